// elements.cuh: shared by the kernels over single elements: their launch, and number formats read and written by dtype.
#pragma once
#include "../types.h"
#include "device.cuh"

namespace tc
{

constexpr int element_threads = 128;
constexpr int64_t most_element_blocks = 1 << 20;
// Minimum of blocks per multiprocessor: left to choose, ptxas takes so few registers for some kernels on some targets that it
// spills.
constexpr int block_residency = 8;

// Threads that a multiprocessor holds.
#if __CUDA_ARCH__ == 750
constexpr int resident_threads = 1024;
#elif __CUDA_ARCH__ >= 1200
constexpr int resident_threads = 1536;
#else
constexpr int resident_threads = 2048;
#endif

// f(i) for the elements i < n of this thread: the grid, less its first `others` blocks, iterates as often as needed.
template <class F> __device__ __forceinline__ void for_own_elements(int64_t n, F f, unsigned others = 0)
{
    const int64_t step = static_cast<int64_t>(gridDim.x - others) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x - others) * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

// Element i of rows of n: which row, and where in it. One division, where a quotient and a remainder may be two.
struct InRow {
    int64_t row, at;
    __device__ __forceinline__ InRow(int64_t i, int64_t n) : row(i / n), at(i - row * n) {}
};

inline Launch element_launch(int64_t n, void *stream)
{
    const int64_t wanted = divide_up(n, element_threads);
    return Launch(blocks(wanted < most_element_blocks ? wanted : most_element_blocks), dim3(element_threads), 0, stream);
}

// launch_shape(N, shape) for a kernel over an array of n elements, whose threads take N at a time: 16 bytes of T where n and the addresses
// allow it, else 1.
template <class T, class F, class... Pointers> int launch_flat(int64_t n, void *stream, F launch_shape, const Pointers *...pointers)
{
    if (!vectors_fit<T>(n, pointers...)) return launch_shape(Constant<1>(), element_launch(n, stream));
    return launch_shape(Constant<vector_lanes<T>>(), element_launch(n / vector_lanes<T>, stream));
}

// One block per item, for any number of items: a block takes every gridDim.x-th.
inline Launch block_launch(int64_t items, void *stream)
{
    return Launch(blocks(items < most_element_blocks ? items : most_element_blocks), dim3(element_threads), 0, stream);
}

// Offsets of element i, counted in C order over a shape, in K strided layouts. A division per axis but the first.
template <int K>
__device__ __forceinline__ void element_offsets(int64_t (&offset)[K], int64_t i, int ndim, const int64_t *shape,
                                                const int64_t *const (&strides)[K])
{
    for (int k = 0; k < K; k++) offset[k] = 0;
    for (int axis = ndim - 1; axis >= 0; axis--) {
        const int64_t rest = axis ? i / shape[axis] : 0, at = i - rest * shape[axis];
        for (int k = 0; k < K; k++) offset[k] += at * strides[k][axis];
        i = rest;
    }
}

struct boolean { // written as 0 or 1; memory from outside may have any other byte for true
    uint8_t byte;
};

// A C cast of a float that the integer cannot hold is undefined. Here NaN and all that is out of range become the smallest integer, as on
// the CPU.
__device__ __forceinline__ int64_t to_int64(double x)
{
    return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? static_cast<int64_t>(x) : INT64_MIN;
}
__device__ __forceinline__ int32_t to_int32(double x)
{
    return x > -2147483649.0 && x < 2147483648.0 ? static_cast<int32_t>(x) : INT32_MIN;
}

// The type in which an element is converted from one dtype to another: floats as they are, half formats as float, integers as
// int64.
__device__ __forceinline__ float element(float x) { return x; }
__device__ __forceinline__ double element(double x) { return x; }
__device__ __forceinline__ float element(float16 x) { return widen(x); }
__device__ __forceinline__ float element(bfloat16 x) { return widen(x); }
__device__ __forceinline__ int64_t element(int64_t x) { return x; }
__device__ __forceinline__ int64_t element(int32_t x) { return x; }
__device__ __forceinline__ int64_t element(uint8_t x) { return x; }
__device__ __forceinline__ int64_t element(boolean x) { return x.byte != 0; }

__device__ __forceinline__ int64_t as_integer(float x) { return to_int64(x); }
__device__ __forceinline__ int64_t as_integer(double x) { return to_int64(x); }
__device__ __forceinline__ int64_t as_integer(int64_t x) { return x; }
__device__ __forceinline__ int32_t as_int32(float x) { return to_int32(x); }
__device__ __forceinline__ int32_t as_int32(double x) { return to_int32(x); }
__device__ __forceinline__ int32_t as_int32(int64_t x) { return static_cast<int32_t>(x); }

template <class X> __device__ __forceinline__ void convert(float &to, X x) { to = static_cast<float>(x); }
template <class X> __device__ __forceinline__ void convert(double &to, X x) { to = static_cast<double>(x); }
template <class X> __device__ __forceinline__ void convert(float16 &to, X x) { narrow(to, static_cast<float>(x)); }
template <class X> __device__ __forceinline__ void convert(bfloat16 &to, X x) { narrow(to, static_cast<float>(x)); }
template <class X> __device__ __forceinline__ void convert(int64_t &to, X x) { to = as_integer(x); }
template <class X> __device__ __forceinline__ void convert(int32_t &to, X x) { to = as_int32(x); }
template <class X> __device__ __forceinline__ void convert(uint8_t &to, X x) { to = static_cast<uint8_t>(as_int32(x)); }
template <class X> __device__ __forceinline__ void convert(boolean &to, X x) { to.byte = x != 0; }

// A place of C, whatever is read: where another library changes the numbers meanwhile, a pass of sorting leaves places unwritten.
__device__ __forceinline__ int64_t within(int64_t place, int64_t C)
{
    return static_cast<uint64_t>(place) < static_cast<uint64_t>(C) ? place : 0;
}

// f(Bits()) for the unsigned integer of this many bytes.
template <class F> int with_bits(int bytes, F f)
{
    switch (bytes) {
    case 8: return f(uint64_t());
    case 4: return f(uint32_t());
    case 2: return f(uint16_t());
    default: return f(uint8_t());
    }
}

// f(T()) for the element type of a tc_dtype.
template <class F> __host__ __device__ __forceinline__ auto with_dtype(int dtype, F f)
{
    switch (dtype) {
    case TC_FLOAT32: return f(float());
    case TC_FLOAT64: return f(double());
    case TC_FLOAT16: return f(float16());
    case TC_BFLOAT16: return f(bfloat16());
    case TC_INT64: return f(int64_t());
    case TC_INT32: return f(int32_t());
    case TC_UINT8: return f(uint8_t());
    default: return f(boolean());
    }
}

} // namespace tc
