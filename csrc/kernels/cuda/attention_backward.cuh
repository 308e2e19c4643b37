// attention_backward.cuh: what the kernels of attention's gradients share: the gradients of a pair of query and key, and which gradient
// is wanted.
#pragma once
#include "attention_score.cuh"

namespace tc
{

// Numbers of each query, (B,H,Tq) or (H,tokens); those after delta not for the plain kernel, and shift for tensor cores
// only: otherwise null.
template <class Real> struct QueryNumbers {
    Real *delta, *share, *shift; // share: 1 / sum, 0 in an empty row; shift: -shift log2(e)
};

// The weight of a score, of halves that are computed on tensor cores. share: 1 / sum.
__device__ __forceinline__ float approximate_weight(float score, float shift, float share)
{
    return exp2_approximate((score - shift) * log2_e) * share;
}

// One head of the backward: values of query (b,h,i) and of pairs of query and key.
template <class T> struct BackwardHead {
    using Real = compute<T>;
    const tc_attention_backward_args &a;
    const Head<T> head;
    Operand<T> dvalues;
    const T *dmap; // (Tq,Tk) or null
    const Real *shift, *sum, *delta;

    __device__ __forceinline__ BackwardHead(const tc_attention_backward_args &args, const Numbers<Real> &numbers, const void *all_delta,
                                            int64_t b, int64_t h)
        : a(args), head(args.problem, numbers, b, h)
    {
        const int64_t row = head.statistics(a.problem, b, h);
        dvalues = head.template of<T>(a.dvalues, b, h);
        dmap = a.dmap ? static_cast<const T *>(a.dmap) + (b * a.problem.H + h) * a.problem.Tq * a.problem.Tk : nullptr;
        shift = static_cast<const Real *>(a.shift) + row;
        sum = static_cast<const Real *>(a.sum) + row;
        delta = static_cast<const Real *>(all_delta) + row;
    }

    struct Pair {
        Real weight, dbias, dscore; // weight: after dropout
        bool hidden;
    };
    // From the products q . k and dvalues . v of a pair and its factor of dropout. approximate: with the bits of approximate_weight().
    template <bool approximate = false> __device__ __forceinline__ Pair pair(int64_t query, int64_t key, Real qk, Real dv, Real kept) const
    {
        const tc_attention_problem &p = a.problem;
        const Score<Real> score = finish_score(p, head, query, key, qk);
        Pair out = {0, 0, 0, score.hidden};
        if (query >= head.Tq || key >= head.Tk) return out;
        const Real share = sum[query];
        if (share == 0) { // an empty row: only the values, of which it took the mean, get a gradient
            if (p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM) out.weight = kept / static_cast<Real>(head.Tk);
            return out;
        }
        if (score.hidden) return out;
        Real weight;
        if constexpr (approximate)
            weight = approximate_weight(score.value, shift[query], 1 / share);
        else
            weight = real_exp(score.value - shift[query]) / share;
        out.weight = weight * kept;
        if (score.filled) return out;
        const Real dp = dv * kept + (dmap ? widen(dmap[query * p.Tk + key]) : Real(0));
        out.dbias = weight * (dp - delta[query]);
        out.dscore = out.dbias * score.slope;
        return out;
    }
};

enum class Gradient { query, key, value };

__host__ __device__ __forceinline__ const tc_attention_operand &result_of(const tc_attention_backward_args &a, Gradient gradient)
{
    return gradient == Gradient::query ? a.dq : gradient == Gradient::key ? a.dk : a.dv;
}

// dq, dk or dv: its rows, and how the tiles of the other rows, which a row is a sum over, are shared among blocks.
struct Wanted {
    Gradient gradient;
    int64_t heads, rows, width;
    int64_t shares;
    void *partial; // (shares,B,heads,rows,width) in the compute dtype, where there are several

    __host__ __device__ __forceinline__ int64_t row(int64_t share, int64_t B, int64_t b, int64_t h, int64_t i) const
    {
        return ((share * B + b) * heads + h) * rows + i;
    }
};

// dq by `first`, or dk and dv by `first` and `second`, on tensor cores (attention_backward_mma.cu), for halves and where
// tc_attention_backward_fits_mma().
template <class T>
int attention_mma_backward(const tc_attention_backward_args &a, const Wanted &first, const Wanted &second,
                           const QueryNumbers<float> &of_queries, void *stream);
// The same in float32 by large tiles of registers (attention_backward_float.cu), where tc_attention_fits_float().
int attention_float_backward(const tc_attention_backward_args &a, const Wanted &first, const Wanted &second,
                             const QueryNumbers<float> &of_queries, void *stream);

// dq, dk and dv in one launch (attention_backward_head.cu), likewise, where tc_attention_backward_takes_heads(). It needs no numbers of the
// queries.
template <class T> int attention_head_backward(const tc_attention_backward_args &a, void *stream);

} // namespace tc
