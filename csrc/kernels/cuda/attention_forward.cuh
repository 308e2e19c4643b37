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

// Of a row over some keys the largest score, and the sums of its weights e^(score - largest) and of these times the values. Other keys are
// joined to them by factors; rounded once, whichever kernel does it.
template <class Real> struct Factors {
    Real largest, own, other;
    __device__ __forceinline__ Factors(Real own_largest, Real other_largest)
        : largest(other_largest > own_largest ? other_largest : own_largest)
    {
        const Real shift = largest == -infinity<Real> ? Real(0) : largest;
        own = real_exp(own_largest - shift);
        other = real_exp(other_largest - shift);
    }
    __device__ __forceinline__ void join(Real &sum, Real other_sum) const { sum = real_fma(other_sum, other, sum * own); }
};

// Of queries [first, end): they see no key outside [some, some_end), and all of [all, all_end) without any change of a score.
struct Reach {
    int some, some_end, all, all_end;

    template <class T>
    __device__ __forceinline__ Reach(const tc_attention_problem &p, const Head<T> &head, int64_t first, int64_t end, bool changes)
        : some(0), some_end(0), all(0), all_end(0)
    {
        if (first >= head.Tq) return;
        const int64_t last = (end < head.Tq ? end : head.Tq) - 1;
        some = static_cast<int>(head.first_key(p, first));
        some_end = static_cast<int>(head.end_key(p, last, 1));
        if (changes) return;
        all = static_cast<int>(head.first_key(p, last));
        all_end = static_cast<int>(head.end_key(p, first, 1));
    }
    __device__ __forceinline__ bool sees_none(int key, int keys) const { return key + keys <= some || key >= some_end; }
    __device__ __forceinline__ bool sees_all(int key, int keys) const { return key >= all && key + keys <= all_end; }
};

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
// Values for the rows that have seen no key, where they take the mean of all values; float32 too.
template <class T> int attention_mean(const tc_attention_forward_args &a, void *stream);

// The values, shift, sum and lse in float32 by large tiles of registers (attention_float.cu), where tc_attention_fits_float().
int attention_float_forward(const tc_attention_forward_args &a, const Segments<float> &segments, void *stream);

} // namespace tc
