// streams.cpp: see streams.h.
#include "streams.h"
#include "capture.h"
#include <atomic>
#include <deque>
#include <utility>

namespace
{

struct Work {
    std::function<int()> run; // empty: wait until
    emulated_stream *awaited; // this stream
    uint64_t position;        // has done so much
};

} // namespace

struct emulated_stream {
    bool blocking; // the default stream waits for it, and it for the default stream
    std::deque<Work> queue;
    uint64_t put = 0, done = 0; // work items
    emulator::CapturedStream captured;
};

struct emulated_event {
    emulated_stream *stream = nullptr; // null: nothing to wait for
    uint64_t position = 0;
    emulator::CapturedStream captured; // what the stream had in a capture when the event was recorded
};

namespace
{

enum class Order { late, random, at_once };

std::vector<std::unique_ptr<emulated_stream>> streams;
emulated_stream *default_stream = nullptr; // one of them, while its work is put off
std::vector<std::unique_ptr<emulated_event>> events;
Order order = Order::late;
uint64_t generator = 1;
int pending_error = 0; // of work that was put off
std::atomic<int> host_waits = 0;
bool events_ignored = false, host_waits_ignored = false, device_waits_ignored = false,
     blocking_ignored = false; // events_ignored: by streams

uint64_t random_bits() // splitmix64, apart from that of the schedules, which would change with it
{
    uint64_t z = generator += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// A wait names work that was there before it, so this ends.
void do_until(emulated_stream *stream, uint64_t position)
{
    while (stream->done < position) {
        Work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        stream->done++;
        const int error = work.run ? work.run() : 0;
        if (error && !pending_error) pending_error = error;
        if (work.awaited) do_until(work.awaited, work.position);
    }
}

bool is_default(const emulated_stream *stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; } // null, or one of CUDA's names for it
bool does_at_once(const emulated_stream *stream) { return is_default(stream) && !default_stream; }
emulated_stream *queue_of(emulated_stream *stream) { return is_default(stream) ? default_stream : stream; }

void after_putting()
{
    if (order == Order::at_once) {
        for (const auto &stream : streams) do_until(stream.get(), stream->put);
        return;
    }
    if (order == Order::late || streams.empty()) return;
    for (uint64_t turns = random_bits() % 4; turns > 0; turns--) {
        emulated_stream *stream = streams[random_bits() % streams.size()].get();
        do_until(stream, stream->done + random_bits() % (stream->put - stream->done + 1));
    }
}

// The next work of the default stream comes after that of all blocking ones, and theirs after its.
void come_after_others(emulated_stream *stream)
{
    if (!default_stream || !stream->blocking || blocking_ignored) return;
    for (const auto &other : streams) {
        const bool is_other_kind = (other.get() == default_stream) != (stream == default_stream);
        if (!other->blocking || !is_other_kind || other->done == other->put) continue;
        stream->queue.push_back({nullptr, other.get(), other->put});
        stream->put++;
    }
}

void put(emulated_stream *stream, Work work)
{
    come_after_others(stream);
    stream->queue.push_back(std::move(work));
    stream->put++;
    after_putting();
}

int told_error() { return std::exchange(pending_error, 0); }

cudaError_t told() { return emulator::result(told_error()); }

} // namespace

namespace emulator
{

std::recursive_mutex &runtime_lock()
{
    static std::recursive_mutex lock;
    return lock;
}

CapturedStream *captured_part(emulated_stream *stream) { return is_default(stream) ? nullptr : &stream->captured; }

int put_on_stream(emulated_stream *stream, std::function<int()> work)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (does_at_once(stream)) {
        const int before = do_blocking_streams();
        return before ? before : work();
    }
    stream = queue_of(stream);
    if (stream->captured.capture) return put_in_capture(stream->captured, std::move(work));
    put(stream, {std::move(work), nullptr, 0});
    return 0;
}

int do_blocking_streams()
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    for (const auto &stream : streams)
        if (stream->blocking && stream->captured.capture) return invalidate(stream->captured, cudaErrorStreamCaptureImplicit);
    for (const auto &stream : streams)
        if (stream->blocking) do_until(stream.get(), stream->put);
    return told_error();
}

void leave_capture(const Capture *capture)
{
    for (const auto &stream : streams)
        if (stream->captured.capture.get() == capture) stream->captured = {};
}

bool all_are_joined(const Capture *capture, const CapturedStream &origin)
{
    for (const auto &stream : streams) {
        const CapturedStream &captured = stream->captured;
        if (captured.capture.get() != capture || &captured == &origin) continue;
        const auto found = origin.after.find(&captured);
        if (found == origin.after.end() || found->second < captured.last) return false;
    }
    return true;
}

int do_all_streams()
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    for (const auto &stream : streams) do_until(stream.get(), stream->put);
    return told_error();
}

bool has_work_left(const emulated_stream *stream)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (does_at_once(stream)) return false;
    const emulated_stream *queue = queue_of(const_cast<emulated_stream *>(stream));
    return queue->done < queue->put;
}

int do_stream(emulated_stream *stream)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (does_at_once(stream)) return do_blocking_streams();
    stream = queue_of(stream);
    if (stream->captured.capture) return invalidate(stream->captured, cudaErrorStreamCaptureUnsupported);
    come_after_others(stream);
    do_until(stream, stream->put);
    return told_error();
}

} // namespace emulator

void emulator_set_streams(int new_order, uint64_t seed)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    order = static_cast<Order>(new_order);
    generator = seed * 2654435769u + 1;
}

void emulator_ignore_events(int who)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    events_ignored = who >= 1;
    host_waits_ignored = who == 2;
}

void emulator_put_off_default_stream(int put_off)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    static emulated_stream *kept = nullptr;
    if (!kept) {
        streams.push_back(std::make_unique<emulated_stream>());
        kept = streams.back().get();
        kept->blocking = true;
    }
    do_until(kept, kept->put);
    default_stream = put_off ? kept : nullptr;
}

void emulator_ignore_blocking(int ignore)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    blocking_ignored = ignore;
}

int emulator_work_left(void)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    size_t left = 0;
    for (const auto &stream : streams) left += stream->queue.size();
    return static_cast<int>(left);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (!emulator::own_device_is_current()) return emulator::result(cudaErrorInvalidDevice);
    streams.push_back(std::make_unique<emulated_stream>());
    streams.back()->blocking = flags != cudaStreamNonBlocking;
    *stream = streams.back().get();
    return cudaSuccess;
}

int emulator_host_waits(void) { return host_waits; }

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    host_waits++;
    return emulator::result(emulator::do_stream(stream));
}

void emulator_ignore_device_waits(int ignore)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    device_waits_ignored = ignore;
}

cudaError_t cudaDeviceSynchronize()
{
    host_waits++;
    if (device_waits_ignored) return cudaSuccess;
    const int refused = emulator::invalidate_all(cudaErrorStreamCaptureUnsupported);
    return emulator::result(refused ? refused : emulator::do_all_streams());
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (!emulator::own_device_is_current()) return emulator::result(cudaErrorInvalidDevice);
    events.push_back(std::make_unique<emulated_event>());
    *event = events.back().get();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (does_at_once(stream)) {
        *event = {};
        return emulator::result(emulator::do_blocking_streams());
    }
    stream = queue_of(stream);
    come_after_others(stream);
    *event = {stream, stream->put, stream->captured};
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (event->captured.capture) return emulator::result(emulator::invalidate(event->captured, cudaErrorCapturedEvent));
    if (const int refused = emulator::refuse_unsafe()) return emulator::result(refused);
    return host_waits_ignored || !event->stream || event->stream->done >= event->position ? cudaSuccess
                                                                                          : emulator::result(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    host_waits++;
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (event->captured.capture) return emulator::result(emulator::invalidate(event->captured, cudaErrorCapturedEvent));
    if (host_waits_ignored || !event->stream) return cudaSuccess;
    do_until(event->stream, event->position);
    return told();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (event->captured.capture || (event->stream && !is_default(stream) && stream->captured.capture))
        return emulator::result(
            emulator::wait_in_capture(emulator::captured_part(stream), emulator::captured_part(event->stream), event->captured));
    if (events_ignored || !event->stream) return cudaSuccess;
    if (does_at_once(stream)) {
        do_until(event->stream, event->position);
        return emulator::result(emulator::do_blocking_streams());
    }
    put(queue_of(stream), {nullptr, event->stream, event->position});
    return cudaSuccess;
}
