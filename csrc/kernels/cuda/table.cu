// table.cu: the one symbol of libtransformer_c_cuda.so, and the kernel tables that it returns.
#include "../cuda_api.h"
#include "launchers.h"

namespace
{

using tc::told;

template <class T> const tc_cuda_kernel_table *kernel_table()
{
    static const tc_cuda_kernel_table table = [] {
        tc_cuda_kernel_table filled = {};
#define FILL_CPU(name) // no kernel for GPUs yet
#define FILL_CUDA(name) filled.run[TC_K_##name] = tc::launcher<TC_K_##name, tc_cuda_##name<T>>;
#define FILL_CUDA_ALONE(name) FILL_CUDA(name)
#define FILL_CUDA_SCRATCH(name)                                                                                                            \
    FILL_CUDA(name)                                                                                                                        \
    filled.scratch_bytes[TC_K_##name] = tc_cuda_##name##_scratch<T>;
#define TC_KERNEL_ENTRY(name, gpu, args, ...) FILL_##gpu(name)
#include "../kernels.def"
#undef TC_KERNEL_ENTRY
        return filled;
    }();
    return &table;
}

const tc_cuda_kernel_table *kernels(tc_dtype storage)
{
    switch (storage) {
    case TC_FLOAT32: return kernel_table<float>();
    case TC_FLOAT64: return kernel_table<double>();
    case TC_FLOAT16: return kernel_table<tc::float16>();
    case TC_BFLOAT16: return kernel_table<tc::bfloat16>();
    default: return nullptr;
    }
}

cudaStream_t stream_of(void *stream) { return static_cast<cudaStream_t>(stream); }

const char *error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }
int versions(int *driver, int *runtime)
{
    const int error = cudaDriverGetVersion(driver);
    return error ? error : cudaRuntimeGetVersion(runtime);
}
int device_count(int *count) { return told(cudaGetDeviceCount(count)); }
int current_device(int *index) { return told(cudaGetDevice(index)); }
int compute_capability(int *capability, int index)
{
    int major = 0, minor = 0;
    const int error = told(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
    if (error) return error;
    *capability = 10 * major;
    const int second = told(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
    *capability += minor;
    return second;
}
int multiprocessors(int *count, int index) { return told(cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, index)); }
int block_shared_bytes(int *bytes, int index)
{
    return told(cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
}
int select_device(int index) { return told(cudaSetDevice(index)); }
int memory_info(size_t *unused, size_t *total) { return told(cudaMemGetInfo(unused, total)); }
int allocate(void **pointer, size_t bytes) { return told(cudaMalloc(pointer, bytes)); }
int release(void *pointer) { return told(cudaFree(pointer)); }
int copy_from_host(void *device, const void *host, size_t bytes, void *stream)
{
    return told(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_of(stream)));
}
int copy_to_host(void *host, const void *device, size_t bytes, void *stream)
{
    return told(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_of(stream)));
}
int copy_on_device(void *to, const void *from, size_t bytes, void *stream)
{
    return told(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(stream)));
}
int allocate_host(void **pointer, size_t bytes) { return told(cudaHostAlloc(pointer, bytes, cudaHostAllocDefault)); }
cudaEvent_t event_of(void *event) { return static_cast<cudaEvent_t>(event); }
int create_event(void **event) { return told(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t *>(event), cudaEventDisableTiming)); }
int record_event(void *event, void *stream) { return told(cudaEventRecord(event_of(event), stream_of(stream))); }
int wait_event(void *stream, void *event) { return told(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0)); }
int query_event(void *event) { return told(cudaEventQuery(event_of(event))); }
int synchronize_event(void *event) { return told(cudaEventSynchronize(event_of(event))); }
int create_stream(void **stream, int apart)
{
    return told(cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t *>(stream), apart ? cudaStreamNonBlocking : cudaStreamDefault));
}
int synchronize_device() { return told(cudaDeviceSynchronize()); }
int synchronize(void *stream) { return told(cudaStreamSynchronize(stream_of(stream))); }

// Relaxed: the first launch of a kernel may load its code, and a block of memory may be missing.
int begin_capture(void *stream) { return told(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeRelaxed)); }
int end_capture(void **captured, void *stream)
{
    return told(cudaStreamEndCapture(stream_of(stream), reinterpret_cast<cudaGraph_t *>(captured)));
}
int instantiate(void **graph, void *captured)
{
    return told(cudaGraphInstantiateWithFlags(reinterpret_cast<cudaGraphExec_t *>(graph), static_cast<cudaGraph_t>(captured), 0));
}
int forget_captured(void *captured) { return told(cudaGraphDestroy(static_cast<cudaGraph_t>(captured))); }
int launch_graph(void *graph, void *stream) { return told(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream))); }
int destroy_graph(void *graph) { return told(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph))); }

#ifdef __CUDACC__
constexpr int emulated = 0;
#else
constexpr int emulated = 1;
#endif

// The compiler gives 800 for sm_80.
template <int... targets> constexpr int capabilities[] = {targets / 10 ..., 0};

const tc_cuda_api api = {TC_CUDA_ABI_VERSION,
                         emulated,
                         tc_kernel_rows,
                         error_text,
                         versions,
                         capabilities<__CUDA_ARCH_LIST__>,
                         device_count,
                         compute_capability,
                         multiprocessors,
                         block_shared_bytes,
                         current_device,
                         select_device,
                         memory_info,
                         allocate,
                         release,
                         copy_from_host,
                         copy_to_host,
                         copy_on_device,
                         allocate_host,
                         create_stream,
                         create_event,
                         record_event,
                         wait_event,
                         query_event,
                         synchronize_event,
                         synchronize,
                         synchronize_device,
                         begin_capture,
                         end_capture,
                         instantiate,
                         forget_captured,
                         launch_graph,
                         destroy_graph,
                         kernels};

} // namespace

extern "C" const tc_cuda_api *tc_cuda_get_api(void) { return &api; }
