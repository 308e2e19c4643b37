// norm_backward.cuh: the gradients of y = xhat * gamma + beta with xhat = (x - mean) * rstd over rows, or, not centred, xhat = x * rstd.
#pragma once
#include "../layer_norm.h"
#include "launchers.h"
#include "vector_rows.cuh"

namespace tc
{

// A row of x and of dy, and what the formulas have of it. With g = dy * gamma:
//     dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without mean(g) where x was not centred.
template <class T, int threads, int N, bool centred> struct NormRow {
    using Real = compute<T>;
    OwnRow<T, threads, N> x, dy;
    const T *gamma;
    int64_t C;
    Real mean, rstd;

    __device__ __forceinline__ NormRow(const tc_layer_norm_backward_args &a, int64_t row)
        : x(row_at<T>(a.x, row, a.C), a.C), dy(row_at<T>(a.dy, row, a.C), a.C), gamma(static_cast<const T *>(a.gamma)), C(a.C),
          mean(centred ? static_cast<const Real *>(a.mean)[row] : Real(0)), rstd(static_cast<const Real *>(a.rstd)[row])
    {
    }
    __device__ __forceinline__ Real normalised(T v) const { return (centred ? widen(v) - mean : widen(v)) * rstd; }

    // f(i, x, dy, gamma), vectors of each, for all that this thread owns.
    template <class F> __device__ __forceinline__ void for_each(F f)
    {
        const auto with_gamma = [&](int64_t i, const Vector<T, N> &xv, const Vector<T, N> &dv) {
            Real g[N];
            Vector<T, N> gv;
            if (gamma) gv = load_vector<N>(gamma + i);
            TC_UNROLL
            for (int j = 0; j < N; j++) g[j] = gamma ? widen(dv.at[j]) * widen(gv.at[j]) : widen(dv.at[j]);
            f(i, xv, g);
        };
        TC_UNROLL
        for (int k = 0; k < x.kept; k++) {
            const int64_t i = (static_cast<int64_t>(threadIdx.x) + k * threads) * N;
            if (i < C) with_gamma(i, x.at[k], dy.at[k]);
        }
        for_own_vectors<threads, N>(
            C, [&](int64_t i) { with_gamma(i, load_vector<N>(x.row + i), load_vector<N>(dy.row + i)); }, x.kept);
    }
    // store(i, vector of dx) for all that this thread owns.
    template <class Store> __device__ __forceinline__ void input_gradient(Real *scratch, const Store &store)
    {
        Real sum_g = 0, sum_gx = 0;
        for_each([&](int64_t, const Vector<T, N> &xv, const Real(&g)[N]) {
            TC_UNROLL
            for (int j = 0; j < N; j++) {
                if (centred) sum_g += g[j];
                sum_gx += g[j] * normalised(xv.at[j]);
            }
        });
        const Real mean_g = centred ? group_sum<threads>(sum_g, scratch) / static_cast<Real>(C) : Real(0);
        const Real mean_gx = group_sum<threads>(sum_gx, scratch) / static_cast<Real>(C);
        for_each([&](int64_t i, const Vector<T, N> &xv, const Real(&g)[N]) {
            Real out[N];
            TC_UNROLL
            for (int j = 0; j < N; j++) out[j] = rstd * ((centred ? g[j] - mean_g : g[j]) - normalised(xv.at[j]) * mean_gx);
            store(i, out);
        });
    }
};

template <class T, int N, class Real> __device__ __forceinline__ void store_rounded(T *to, const Real (&values)[N])
{
    Vector<T, N> out;
    TC_UNROLL
    for (int j = 0; j < N; j++) narrow(out.at[j], values[j]);
    store_vector<N>(to, out);
}

// dx,dy,x (N,C); gamma (C); mean,rstd (N).
template <class T, int threads, int N, bool centred>
__global__ void __launch_bounds__(row_block_threads, 1) norm_input_gradient_kernel(const __grid_constant__ tc_layer_norm_backward_args a)
{
    TC_SHARED(compute<T>, scratch, [row_block_threads / warp_lanes]);
    const int64_t row = own_row();
    if (row >= a.N) return;
    NormRow<T, threads, N, centred> own(a, row);
    own.input_gradient(scratch, [&](int64_t i, const auto &dx) { store_rounded(row_at<T>(a.dx, row, a.C) + i, dx); });
}

// The same, and at once the sums over the rows of a chunk of what norm_weight_gradient_kernel adds up, for rows that are kept whole. A
// block takes a chunk, `together` rows at a time; their sums are added in order at the end.
template <class T, int threads, int N, bool centred> struct NormGradients {
    using Real = compute<T>;
    using Four = Vector<Real, 4>;
    static constexpr int together = row_block_threads / threads, kept = kept_vectors<T, threads, N>, K = centred ? 2 : 1;
    using Partial = Four[together][threads * N / 4]; // of one of the K sums

    // scratch: one element per warp; shared: K of them.
    template <class Dropout>
    static __device__ __forceinline__ void compute_chunk(const tc_layer_norm_backward_args &a, const Dropout &dropout, Real *scratch,
                                                         Partial *shared)
    {
        Real sums[K][kept * N] = {};
        const int64_t first = blockIdx.x * a.rows_per_chunk, last = first + a.rows_per_chunk < a.N ? first + a.rows_per_chunk : a.N;
        for (int64_t row = first + threadIdx.y; row < last; row += together) {
            NormRow<T, threads, N, centred> own(a, row);
            if constexpr (Dropout::drops) {
                const uint32_t bits = dropout.template kept_of_row<threads, N>(row, a.C);
                own.input_gradient(scratch, [&](int64_t i, Real(&values)[N]) {
                    if (a.dx) store_rounded(row_at<T>(a.dx, row, a.C) + i, values);
                    const uint32_t at = bits >> static_cast<int>(i / (threads * N)) * N;
                    TC_UNROLL
                    for (int j = 0; j < N; j++) values[j] = dropout.keep.applied(values[j], at >> j & 1);
                    store_rounded(row_at<T>(a.ddropped, row, a.C) + i, values);
                });
            } else {
                own.input_gradient(scratch, [&](int64_t i, const Real(&dx)[N]) { store_rounded(row_at<T>(a.dx, row, a.C) + i, dx); });
            }
            TC_UNROLL
            for (int k = 0; k < kept; k++) {
                if ((static_cast<int64_t>(threadIdx.x) + k * threads) * N >= a.C) continue;
                TC_UNROLL
                for (int j = 0; j < N; j++) {
                    const Real d = widen(own.dy.at[k].at[j]);
                    sums[0][k * N + j] += d * own.normalised(own.x.at[k].at[j]);
                    if constexpr (centred) sums[1][k * N + j] += d;
                }
            }
        }
        TC_UNROLL
        for (int k = 0; k < kept; k++) {
            const int64_t begin = static_cast<int64_t>(k) * threads * N; // of the columns whose sums are written now
            if (begin >= a.C) continue;
            TC_UNROLL
            for (int s = 0; s < K; s++) {
                TC_UNROLL
                for (int j = 0; j < N; j += 4)
                    store_vector<4>(shared[s][threadIdx.y][(threadIdx.x * N + j) / 4].at, *reinterpret_cast<Four *>(&sums[s][k * N + j]));
            }
            __syncthreads();
            for (int i = threadIdx.y * threads + threadIdx.x; i < K * threads * N; i += row_block_threads) {
                const int s = i / (threads * N), column = i % (threads * N);
                Real *const partial = static_cast<Real *>(s ? a.dbeta_partial : a.dgamma_partial);
                Real sum = shared[s][0][column / 4].at[column % 4];
                for (int y = 1; y < together; y++) sum += shared[s][y][column / 4].at[column % 4];
                if (partial && begin + column < a.C) partial[blockIdx.x * a.C + begin + column] = sum;
            }
            __syncthreads();
        }
    }
};

template <class T, int threads, int N, bool centred>
__global__ void __launch_bounds__(row_block_threads, 1) norm_gradients_kernel(const __grid_constant__ tc_layer_norm_backward_args a)
{
    using Gradients = NormGradients<T, threads, N, centred>;
    TC_SHARED(compute<T>, scratch, [row_block_threads / warp_lanes]);
    TC_SHARED(typename Gradients::Partial, shared, [Gradients::K]);
    Gradients::compute_chunk(a, KeepAll(), scratch, shared);
}

// And what dropout makes of dx.
template <class T, int threads, int N>
__global__ void __launch_bounds__(row_block_threads, 1)
    dropout_norm_gradients_kernel(const __grid_constant__ tc_layer_norm_backward_args a, const __grid_constant__ Keep<compute<T>> keep)
{
    using Gradients = NormGradients<T, threads, N, true>;
    TC_SHARED(compute<T>, scratch, [row_block_threads / warp_lanes]);
    TC_SHARED(typename Gradients::Partial, shared, [Gradients::K]);
    Gradients::compute_chunk(a, RowDropout<T>(a.mask, keep, a.C), scratch, shared);
}

// dgamma = sum dy * xhat, and for centred norms dbeta = sum dy, over the rows of a chunk: without dx, or of rows that the kernel above does
// not take.
template <class T, bool centred>
__global__ void __launch_bounds__(column_threads) norm_weight_gradient_kernel(const __grid_constant__ tc_layer_norm_backward_args a)
{
    using Real = compute<T>;
    const auto add = [&](auto &sums, int64_t row, int64_t column) {
        const int64_t at = row * a.C + column;
        const Real d = widen(static_cast<const T *>(a.dy)[at]);
        const Real mean = centred ? static_cast<const Real *>(a.mean)[row] : Real(0), rstd = static_cast<const Real *>(a.rstd)[row];
        const Real v = widen(static_cast<const T *>(a.x)[at]);
        sums[0] += d * ((centred ? v - mean : v) * rstd);
        if constexpr (centred) sums[1] += d;
    };
    const auto store = [&](const auto &sums, int64_t at) {
        if (a.dgamma_partial) static_cast<Real *>(a.dgamma_partial)[at] = sums[0];
        if constexpr (centred)
            if (a.dbeta_partial) static_cast<Real *>(a.dbeta_partial)[at] = sums[1];
    };
    sum_columns<Real, centred ? 2 : 1>(a.N, a.C, a.rows_per_chunk, add, store);
}

template <class T, bool centred> int norm_backward(tc_layer_norm_backward_args a, int64_t chunks, void *stream)
{
    const bool weights = (a.dgamma_partial || a.dbeta_partial) && chunks > 0 && a.C > 0;
    bool separate = weights, drops = a.ddropped; // from dx; still
    const auto gradients = [&](auto threads, auto N, const Launch &shape) {
        constexpr int t = decltype(threads)::value, n = decltype(N)::value;
        if constexpr (sizeof(T) < 8 && n > 1) // rows of float64, and those that begin anywhere, are not worth more kernels
            if (weights && a.C <= OwnRow<T, t, n>::longest) {
                const Launch chunk_shape(blocks(chunks), shape.block, 0, stream);
                separate = false;
                if constexpr (centred)
                    if (drops) {
                        drops = false;
                        return launch<dropout_norm_gradients_kernel<T, t, n>>(chunk_shape, a, keep_of<T>(a.mask));
                    }
                return launch<norm_gradients_kernel<T, t, n, centred>>(chunk_shape, a);
            }
        if (!a.dx) a.dx = a.ddropped; // until dropout acts on it
        return launch<norm_input_gradient_kernel<T, t, n, centred>>(shape, a);
    };
    int error = a.dx || drops ? launch_rows<T>(a.N, a.C, stream, gradients, a.x, a.dy, a.dx, a.ddropped, a.gamma) : 0;
    if (!error && drops) {
        const tc_dropout_forward_args dropped = {a.ddropped, a.dx, a.N * a.C, a.mask};
        error = tc_cuda_dropout_forward<T>(&dropped, 0, nullptr, stream);
    }
    if (error || !separate) return error;
    return launch<norm_weight_gradient_kernel<T, centred>>(column_launch(chunks, a.C, stream), a);
}

} // namespace tc
