// streams.h: queues of work, done as late as it may be, so that work which was not waited for is seen not to be there.
//
// The default stream does its work at once, after that of all others but the non-blocking ones, unless that is put off as well; other
// streams when the host waits for them, when another stream's work waits for an event of theirs, or (in random order) at some random
// moment. An error of work that was put off is given by the next call that waits, as on a GPU. Streams in capture: capture.h.
#pragma once
#include "emulator.h"
#include <functional>
#include <mutex>

struct emulated_stream;

namespace emulator
{

std::recursive_mutex &runtime_lock(); // held by every call of the runtime, and while work is done

// Puts work that gives a cudaError_t on a stream. What the default stream does gives its error here.
int put_on_stream(emulated_stream *stream, std::function<int()> work);
int do_all_streams();
int do_blocking_streams(); // what the default stream waits for
bool has_work_left(const emulated_stream *stream);
int do_stream(emulated_stream *stream);

// The result of a call of the runtime: an error also becomes the thread's last error.
cudaError_t result(int error);
bool own_device_is_current();

} // namespace emulator
