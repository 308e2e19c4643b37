// capture.h: streams in capture, and graphs, by CUDA's rules.
//
// Work that is put on a stream in capture is kept for the graph and not done. What CUDA refuses meanwhile is refused, and makes the
// capture invalid: its end fails then. A launch of a graph is one piece of work.
#pragma once
#include "streams.h"
#include <cstddef>
#include <map>
#include <memory>

namespace emulator
{

struct Capture;

// A stream's part in a capture.
struct CapturedStream {
    std::shared_ptr<Capture> capture;               // null: none
    size_t last = 0;                                // the capture had so many pieces of work after the stream's last one
    std::map<const CapturedStream *, size_t> after; // its next work comes after so many of the pieces, as far as these streams put them
};

// These give a cudaError_t. The runtime's lock is held.
int put_in_capture(CapturedStream &stream, std::function<int()> work);
// The wait of `stream` (null: the default stream) for an event of `recorder`, which had `recorded` then.
int wait_in_capture(CapturedStream *stream, const CapturedStream *recorder, const CapturedStream &recorded);
int invalidate(const CapturedStream &stream, int error); // the error
int invalidate_all(int error);                           // the error; 0: there is no capture
int refuse_unsafe(); // of a call that may wait for what a capture must not wait for: an error while one is in a mode that forbids it

// By streams.cpp.
CapturedStream *captured_part(emulated_stream *stream);
void leave_capture(const Capture *capture); // all its streams
bool all_are_joined(const Capture *capture, const CapturedStream &origin);

} // namespace emulator

// Plants bugs: captures begin in the mode CUDA calls global, or thread-local; 2: relaxed, as asked for. Graphs launched so far.
extern "C" void emulator_set_capture_mode(int mode);
extern "C" int emulator_graph_launches(void);
extern "C" int emulator_graphs(void);                    // that were made and not destroyed
extern "C" void emulator_fail_instantiations(int count); // so many from now on find no memory
extern "C" void emulator_fail_starts(int count);         // and so many launches of graphs
