// attention_forward.cuh: what the kernels of attention's forward share: a row's statistics, and the parts of rows that are joined.
#pragma once
#include "attention_score.cuh"
#include <math.h>

namespace tc
{

template <class Real> constexpr Real infinity = static_cast<Real>(INFINITY);

// Has a row of this largest score and this sum of weights seen no key? NaN is none of both.
template <class Real> __device__ __forceinline__ bool is_empty(Real largest, Real sum) { return largest == -infinity<Real> && sum == 0; }

// By one thread for each row: what is saved for the backward.
template <class Real>
__device__ __forceinline__ void save_statistics(const tc_attention_forward_args &a, int64_t row, Real largest, Real sum)
{
    const bool empty = is_empty(largest, sum);
    const Real shift = empty ? Real(0) : largest;
    static_cast<Real *>(a.shift)[row] = shift;
    static_cast<Real *>(a.sum)[row] = empty ? Real(0) : sum;
    if (a.lse) static_cast<Real *>(a.lse)[row] = empty ? -infinity<Real> : shift + real_log(sum);
}
template <class Real> __device__ __forceinline__ Real share_of(Real largest, Real sum)
{
    return is_empty(largest, sum) ? Real(1) : Real(1) / sum;
}

// The rows of each segment, before they are joined: values (segments,B,H,Tq,Dv), largest,sum (segments,B,H,Tq).
template <class Real> struct Segments {
    int64_t count; // 1: there are none, a block computes all
    Real *values, *largest, *sum;

    __host__ __device__ __forceinline__ static int64_t row(const tc_attention_problem &p, int64_t segment, int64_t b, int64_t h, int64_t i)
    {
        return ((segment * p.B + b) * p.H + h) * p.Tq + i;
    }
};

// In scratch memory that begins here: the statistics come first.
template <class Real> Segments<Real> segments_of(const tc_attention_forward_args &a, void *scratch)
{
    const int64_t count = a.splits_keys ? tc_attention_segments(&a.problem) : 1, rows = Segments<Real>::row(a.problem, count, 0, 0, 0);
    Real *const largest = static_cast<Real *>(scratch);
    return count > 1 ? Segments<Real>{count, largest + 2 * rows, largest, largest + rows} : Segments<Real>{1, nullptr, nullptr, nullptr};
}

// The values, shift, sum and lse by tensor cores (attention_mma.cu), for halves and where tc_attention_fits_mma().
template <class T> int attention_mma_forward(const tc_attention_forward_args &a, const Segments<float> &segments, void *stream);
// Then: the map, from the saved shift and sum.
template <class T> int attention_mma_map(const tc_attention_forward_args &a, void *stream);
// And values for the rows that have seen no key, where they take the mean of all values.
template <class T> int attention_mean(const tc_attention_forward_args &a, void *stream);

} // namespace tc
