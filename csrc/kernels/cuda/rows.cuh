// rows.cuh: shared by the kernels in which a warp reduces a row to one result: blocks of (32, warps) threads, threadIdx.y the warp.
#pragma once
#include "../reduce.h"
#include "elements.cuh"
#include "functions.cuh"
#include "vector_rows.cuh"

namespace tc
{

constexpr int warps_a_block = 4;
constexpr int column_rows = 16; // threads that share a column, in blocks of (32, column_rows) threads

template <class Real> __device__ __forceinline__ Real identity(int step)
{
    switch (step) {
    case TC_STEP_max: return -static_cast<Real>(INFINITY);
    case TC_STEP_min: return static_cast<Real>(INFINITY);
    case TC_STEP_all: return 1;
    default: return 0;
    }
}

template <class Real> __device__ __forceinline__ Real combine(int step, Real a, Real b)
{
    switch (step) {
    case TC_STEP_any:
    case TC_STEP_max: return v_maximum(a, b);
    case TC_STEP_all:
    case TC_STEP_min: return v_minimum(a, b);
    default: return a + b;
    }
}

// Combines the warp's lanes, in every lane; a butterfly, so that the order is fixed.
template <class Real> __device__ __forceinline__ Real warp_combine(int step, Real x)
{
    for (int distance = warp_lanes / 2; distance > 0; distance /= 2) x = combine(step, x, __shfl_xor_sync(all_lanes, x, distance));
    return x;
}

__device__ __forceinline__ int64_t offset_of(int64_t i, int ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t offset[1];
    element_offsets<1>(offset, i, ndim, shape, {strides});
    return offset[0];
}

// Of element i of a result; one axis needs no division.
__device__ __forceinline__ int64_t reduced_offset(const tc_reduce_args &a, int64_t i)
{
    return a.reduced_ndim == 1 ? i * a.reduced_strides[0] : offset_of(i, a.reduced_ndim, a.reduced_shape, a.reduced_strides);
}

// The elements [first, last) of a segment.
struct Segment {
    int64_t first, last;
    __device__ __forceinline__ Segment(const tc_reduce_args &a, int64_t number)
    {
        const int64_t length = a.segments == 1 ? a.reduced : a.segment;
        first = number * length;
        last = first + length < a.reduced ? first + length : a.reduced;
    }
};

inline Launch warp_launch(int64_t results, void *stream)
{
    return Launch(blocks(divide_up(results, warps_a_block)), dim3(warp_lanes, warps_a_block), 0, stream);
}

// For outer * columns results of `segments` each.
inline Launch column_launch(int64_t results, int64_t columns, int64_t segments, void *stream)
{
    return Launch(blocks(results / columns * segments * divide_up(columns, warp_lanes)), dim3(warp_lanes, column_rows), 0, stream);
}

// An element and its index; at < 0: none yet.
template <class X> struct Found {
    X value;
    int64_t at;
};

// The larger of two (for TC_STEP_min the smaller); NaN comes before all others; of equal elements, the first.
template <class X> __device__ __forceinline__ Found<X> first_extreme(int step, const Found<X> &a, const Found<X> &b)
{
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool a_wins = b_nan ? false : a_nan || (step == TC_STEP_max ? a.value > b.value : a.value < b.value);
    const bool b_wins = a_nan ? false : b_nan || (step == TC_STEP_max ? b.value > a.value : b.value < a.value);
    return a_wins || (!b_wins && a.at < b.at) ? a : b;
}

// The largest of C elements that are `step` apart, and the sum of e^(x - top).
template <class T> __device__ __forceinline__ compute<T> warp_top(const T *x, int64_t C, int64_t step)
{
    compute<T> top = identity<compute<T>>(TC_STEP_max);
    for (int64_t c = threadIdx.x; c < C; c += warp_lanes) top = v_maximum(top, widen(x[c * step]));
    return warp_combine(TC_STEP_max, top);
}
template <class T> __device__ __forceinline__ compute<T> warp_exp_sum(const T *x, int64_t C, int64_t step, compute<T> top)
{
    compute<T> sum = 0;
    for (int64_t c = threadIdx.x; c < C; c += warp_lanes) sum += real_exp(widen(x[c * step]) - top);
    return warp_sum(sum);
}

} // namespace tc
