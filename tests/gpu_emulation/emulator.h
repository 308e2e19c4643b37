// emulator.h: what csrc/kernels/cuda/device.cuh includes instead of the CUDA headers when g++ compiles a .cu file.
//
// It gives the CUDA language (qualifiers, threadIdx, ...), the part of the runtime library that is used, and the twin of
// every named instruction of device.cuh. The machinery is in the other files of this folder:
//     fiber         a stack a CUDA thread           block         threads, warps, barriers, schedules, reports
//     memory        shared and global memory        access_check  races, bounds, uninitialised reads
//     collectives   shuffles and votes              async_copy    cp.async
//     tensor_core   ldmatrix, mma.sync              numerics      number formats, approximations
//     kernel_rows   the rows of kernels.def           vectors       loads and stores of several elements
//     count         what a kernel would cost        streams       queues of work
//     capture       streams in capture, graphs
#pragma once
#include "async_copy.h"
#include "block.h"
#include "collectives.h"
#include "count.h"
#include "kernel_rows.h"
#include "memory.h"
#include "numerics.h"
#include "tensor_core.h"
#include "vectors.h"
#include <cmath>
#include <cstddef>
#include <cstdint>

// ---- the language ----

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define threadIdx (emulator::thread_index())
#define blockIdx (emulator::block_index())
#define blockDim (emulator::block_dim())
#define gridDim (emulator::grid_dim())

// ---- the runtime library, as far as it is used ----

#define __CUDA_ARCH_LIST__ 750, 800, 900, 1000, 1200

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalState = 401,
    cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureMerge = 902,
    cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorCapturedEvent = 907,
    cudaErrorStreamCaptureWrongThread = 908
};
typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;
typedef struct emulated_graph *cudaGraph_t;
typedef struct emulated_graph_exec *cudaGraphExec_t;
constexpr unsigned cudaEventDisableTiming = 2, cudaHostAllocDefault = 0, cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

cudaError_t cudaGetLastError(); // of this thread; forgotten when it was told
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMemGetInfo(size_t *unused, size_t *total);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *pointer);
const char *cudaGetErrorString(cudaError_t error); // with the emulator's report

extern "C" void emulator_set_compute_capability(int major, int minor); // 8.0 at first
extern "C" void emulator_set_multiprocessors(int count);               // 108 at first
// A thread may select device 1, as if another library worked there. Memory, streams and launches of ours are refused meanwhile.
extern "C" int emulator_current_device(void);
extern "C" void emulator_select_device(int device);
// From now on the host faults when it reads or writes device memory other than by a copy.
extern "C" void emulator_hide_device_memory();

// When the work of streams is done (runtime.cpp): 0 as late as it may be, 1 at random times, 2 at once.
extern "C" void emulator_set_streams(int order, uint64_t seed);
// Plants a bug: streams (1), or streams and the host (2), do not wait for events any more; 0: none.
extern "C" void emulator_ignore_events(int who);
// From now on the work of the default stream is put off like that of others, and its errors are given later; or it is done at once again.
extern "C" void emulator_put_off_default_stream(int put_off);
// Plants a bug, if that work is put off: the default stream and the blocking ones do not wait for each other.
extern "C" void emulator_ignore_blocking(int ignore);
// Plants a bug: nobody waits for the device as a whole.
extern "C" void emulator_ignore_device_waits(int ignore);
extern "C" int emulator_work_left(void); // that was put on streams and is not done

// Copies from or to memory of the host that is not page-locked: all, and those that had to wait for their stream. From now on page-locked
// memory can be had or not.
extern "C" int emulator_pageable_copies(void);
extern "C" int emulator_pageable_waits(void);
extern "C" void emulator_refuse_host_memory(int refuse);
// Copies from and to the host so far, and waits of the host for a stream, an event or the device.
extern "C" int emulator_copies_from_host(void);
extern "C" int emulator_copies_to_host(void);
extern "C" int emulator_host_waits(void);

extern "C" void emulator_set_last_error(int error); // as another library may leave one behind
extern "C" int emulator_last_error(void);
// Plants bugs: last errors are never forgotten; a launch without an error of its own returns the last error, as cudaGetLastError() after
// <<<>>> does.
extern "C" void emulator_keep_last_errors(int keep);
extern "C" void emulator_launches_tell_last_error(int tell);

namespace emulator
{

cudaError_t result_of_launch(int error);

template <auto kernel> const char *pretty_name() { return __PRETTY_FUNCTION__; }

} // namespace emulator

// ---- the device layer's twins ----

#define TC_SHARED(type, name, ...)                                                                                                         \
    static const char name##_tag = 0;                                                                                                      \
    using name##_type = type __VA_ARGS__;                                                                                                  \
    name##_type &name = *static_cast<name##_type *>(                                                                                       \
        emulator::shared_variable(&name##_tag, #name, sizeof(name##_type), alignof(name##_type), emulator::Site::here()))

#define TC_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulator::dynamic_shared())

namespace tc
{

// ---- launching ----

struct Launch {
    dim3 grid, block;
    size_t shared_bytes;
    void *stream;
    emulator::Site site;
    Launch(dim3 grid_, dim3 block_, size_t shared_bytes_, void *stream_, emulator::Site site_ = emulator::Site::here())
        : grid(grid_), block(block_), shared_bytes(shared_bytes_), stream(stream_), site(site_)
    {
    }
};

// The arguments are copied, as for a GPU: the launch may be over long before the kernel runs.
template <auto kernel, class... Args> cudaError_t start(const Launch &shape, const Args &...args)
{
    auto body = [args...]() __attribute__((no_sanitize("thread"))) { kernel(args...); };
    using Body = decltype(body);
    const emulator::Closure closure = {[](void *self) __attribute__((no_sanitize("thread"))){(*static_cast<Body *>(self))();
}
, [](const void *self) -> void * { return new Body(*static_cast<const Body *>(self)); },
    [](void *self) { delete static_cast<Body *>(self); }
}; // namespace tc
const int error = emulator::launch(emulator::pretty_name<kernel>(), {shape.grid, shape.block, shape.shared_bytes}, closure, &body,
                                   shape.stream, shape.site);
return emulator::result_of_launch(error);
}

template <int id, auto run> constexpr auto launcher = &emulator::launch_by_row<id, run>;

// ---- number formats ----

struct float16 {
    uint16_t bits;
};
struct bfloat16 {
    uint16_t bits;
};
inline float to_float(float16 x) { return emulator::float16_to_float(x.bits); }
inline float to_float(bfloat16 x) { return emulator::bfloat16_to_float(x.bits); }
inline void from_float(float16 &to, float x) { to.bits = emulator::float_to_float16(x); }
inline void from_float(bfloat16 &to, float x) { to.bits = emulator::float_to_bfloat16(x); }
template <class T> uint32_t pack(float low, float high, T)
{
    T first, second;
    from_float(first, low);
    from_float(second, high);
    return first.bits | static_cast<uint32_t>(second.bits) << 16;
}
inline uint32_t float_to_tf32(float x) { return emulator::float_to_tf32(x); }
inline uint32_t bits_of_float(float x)
{
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float float_of_bits(uint32_t bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
template <class Real> Real rounded_product(Real x, Real y)
{
    const volatile Real product = x * y; // no compiler makes one operation of it and a sum
    return product;
}
inline float exp2_approximate(float x) { return emulator::exp2_approximate(x); }
inline float reciprocal_approximate(float x) { return emulator::reciprocal_approximate(x); }

// ---- asynchronous copies ----

template <int bytes>
void copy_async(void *shared, const void *global, int valid_bytes = bytes, emulator::Site site = emulator::Site::here())
{
    emulator::copy_async(shared, global, bytes, valid_bytes, site);
}
inline void copy_async_commit() { emulator::copy_async_commit(); }
template <int groups_left> void copy_async_wait() { emulator::copy_async_wait(groups_left); }

// ---- tensor cores ----

inline void load_matrix_x2(uint32_t (&registers)[2], const void *row, emulator::Site site = emulator::Site::here())
{
    emulator::load_matrix("load_matrix_x2", site, registers, 2, false, row);
}
inline void load_matrix_x2_transposed(uint32_t (&registers)[2], const void *row, emulator::Site site = emulator::Site::here())
{
    emulator::load_matrix("load_matrix_x2_transposed", site, registers, 2, true, row);
}
inline void load_matrix_x4(uint32_t (&registers)[4], const void *row, emulator::Site site = emulator::Site::here())
{
    emulator::load_matrix("load_matrix_x4", site, registers, 4, false, row);
}
inline void load_matrix_x4_transposed(uint32_t (&registers)[4], const void *row, emulator::Site site = emulator::Site::here())
{
    emulator::load_matrix("load_matrix_x4_transposed", site, registers, 4, true, row);
}
inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], float16, emulator::Site site = emulator::Site::here())
{
    emulator::multiply_accumulate("mma", site, emulator::Element::float16, d, a, b);
}
inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bfloat16, emulator::Site site = emulator::Site::here())
{
    emulator::multiply_accumulate("mma", site, emulator::Element::bfloat16, d, a, b);
}
inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], emulator::Site site = emulator::Site::here())
{
    emulator::multiply_accumulate("mma_tf32", site, emulator::Element::tf32, d, a, b);
}

} // namespace tc
