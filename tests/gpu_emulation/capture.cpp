// capture.cpp: see capture.h.
#include "capture.h"
#include <algorithm>
#include <thread>
#include <vector>

using Nodes = std::vector<std::function<int()>>;

struct emulated_graph {
    Nodes nodes;
};
struct emulated_graph_exec {
    std::shared_ptr<const Nodes> nodes; // a launch that is on its way keeps them
};

namespace emulator
{

struct Capture {
    CapturedStream *origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    Nodes nodes;
    bool valid = true, over = false;
};

namespace
{

std::vector<std::shared_ptr<Capture>> captures; // that are not over
int planted_mode = cudaStreamCaptureModeRelaxed, graph_launches = 0, graphs = 0, instantiations_to_fail = 0, starts_to_fail = 0;

bool forbids_unsafe(const Capture &capture)
{
    return capture.mode == cudaStreamCaptureModeGlobal ||
           (capture.mode == cudaStreamCaptureModeThreadLocal && capture.thread == std::this_thread::get_id());
}

// The graph's nodes, or an error; the capture is over in either case.
int finish(Capture &capture, Nodes &nodes)
{
    const bool joined = all_are_joined(&capture, *capture.origin);
    capture.over = true;
    if (!capture.valid) return cudaErrorStreamCaptureInvalidated;
    if (!joined) return cudaErrorStreamCaptureUnjoined;
    nodes = std::move(capture.nodes);
    return 0;
}

} // namespace

int put_in_capture(CapturedStream &stream, std::function<int()> work)
{
    Capture &capture = *stream.capture;
    if (!capture.valid) return cudaErrorStreamCaptureInvalidated;
    capture.nodes.push_back(std::move(work));
    stream.last = capture.nodes.size();
    return 0;
}

int wait_in_capture(CapturedStream *stream, const CapturedStream *recorder, const CapturedStream &recorded)
{
    if (!recorded.capture) return invalidate(*stream, cudaErrorStreamCaptureIsolation); // work that is not in the graph
    if (recorded.capture->over || !stream) return invalidate(recorded, cudaErrorCapturedEvent);
    if (stream->capture && stream->capture != recorded.capture) {
        invalidate(*stream, 0);
        return invalidate(recorded, cudaErrorStreamCaptureMerge);
    }
    stream->capture = recorded.capture; // joins, if it was in none
    for (const auto &[other, count] : recorded.after) stream->after[other] = std::max(stream->after[other], count);
    stream->after[recorder] = std::max(stream->after[recorder], recorded.last);
    return 0;
}

int invalidate(const CapturedStream &stream, int error)
{
    if (stream.capture) stream.capture->valid = false;
    return error;
}

int invalidate_all(int error)
{
    for (const auto &capture : captures) capture->valid = false;
    return captures.empty() ? 0 : error;
}

int refuse_unsafe()
{
    int error = 0;
    for (const auto &capture : captures) {
        if (!forbids_unsafe(*capture)) continue;
        capture->valid = false;
        error = cudaErrorStreamCaptureUnsupported;
    }
    return error;
}

} // namespace emulator

using namespace emulator;

void emulator_set_capture_mode(int mode) { planted_mode = mode; }
int emulator_graph_launches(void) { return graph_launches; }
int emulator_graphs(void) { return graphs; }
void emulator_fail_instantiations(int count) { instantiations_to_fail = count; }
void emulator_fail_starts(int count) { starts_to_fail = count; }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    const std::lock_guard<std::recursive_mutex> held(runtime_lock());
    CapturedStream *captured = captured_part(stream);
    if (!captured) return result(cudaErrorStreamCaptureUnsupported);
    if (captured->capture) return result(cudaErrorIllegalState);
    if (mode == cudaStreamCaptureModeRelaxed) mode = static_cast<cudaStreamCaptureMode>(planted_mode);
    captured->capture = std::make_shared<Capture>(Capture{captured, mode, std::this_thread::get_id(), {}});
    captures.push_back(captured->capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    const std::lock_guard<std::recursive_mutex> held(runtime_lock());
    const CapturedStream *captured = captured_part(stream);
    *graph = nullptr;
    if (!captured || !captured->capture) return result(cudaErrorIllegalState);
    const std::shared_ptr<Capture> capture = captured->capture;
    if (capture->origin != captured) return result(cudaErrorStreamCaptureUnmatched);
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
        return result(cudaErrorStreamCaptureWrongThread);
    Nodes nodes;
    const int error = finish(*capture, nodes);
    leave_capture(capture.get());
    captures.erase(std::find(captures.begin(), captures.end(), capture));
    if (!error) *graph = new emulated_graph{std::move(nodes)};
    return result(error);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    const std::lock_guard<std::recursive_mutex> held(runtime_lock());
    *exec = nullptr;
    if (instantiations_to_fail > 0 && instantiations_to_fail-- > 0) return result(cudaErrorMemoryAllocation);
    *exec = new emulated_graph_exec{std::make_shared<const Nodes>(graph->nodes)};
    graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    const std::lock_guard<std::recursive_mutex> held(runtime_lock());
    if (!exec) return result(cudaErrorInvalidValue);
    if (starts_to_fail > 0 && starts_to_fail-- > 0) return result(cudaErrorMemoryAllocation);
    graph_launches++;
    return result(put_on_stream(stream, [nodes = exec->nodes] {
        for (const auto &node : *nodes)
            if (const int error = node()) return error;
        return 0;
    }));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    const std::lock_guard<std::recursive_mutex> held(runtime_lock());
    graphs--;
    delete exec;
    return cudaSuccess;
}
