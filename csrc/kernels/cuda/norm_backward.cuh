// norm_backward.cuh: the gradients of y = xhat * gamma + beta with xhat = (x - mean) * rstd over rows, or, not centred, xhat = x * rstd.
#pragma once
#include "../layer_norm.h"
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
    // Writes dx.
    __device__ __forceinline__ void input_gradient(T *dx, Real *scratch)
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
            Vector<T, N> out;
            TC_UNROLL
            for (int j = 0; j < N; j++) narrow(out.at[j], rstd * ((centred ? g[j] - mean_g : g[j]) - normalised(xv.at[j]) * mean_gx));
            store_vector<N>(dx + i, out);
        });
    }
};

// dx,dy,x (N,C); gamma (C); mean,rstd (N).
template <class T, int threads, int N, bool centred>
__global__ void __launch_bounds__(row_block_threads, 1) norm_input_gradient_kernel(const __grid_constant__ tc_layer_norm_backward_args a)
{
    TC_SHARED(compute<T>, scratch, [row_block_threads / warp_lanes]);
    const int64_t row = own_row();
    if (row >= a.N) return;
    NormRow<T, threads, N, centred> own(a, row);
    own.input_gradient(row_at<T>(a.dx, row, a.C), scratch);
}

// The same, and at once the sums over the rows of a chunk of what norm_weight_gradient_kernel adds up, for rows that are kept whole. A
// block takes a chunk, `together` rows at a time; their sums are added in order at the end.
template <class T, int threads, int N, bool centred>
__global__ void __launch_bounds__(row_block_threads, 1) norm_gradients_kernel(const __grid_constant__ tc_layer_norm_backward_args a)
{
    using Real = compute<T>;
    using Four = Vector<Real, 4>;
    constexpr int together = row_block_threads / threads, kept = kept_vectors<T, threads, N>, K = centred ? 2 : 1;
    TC_SHARED(Real, scratch, [row_block_threads / warp_lanes]);
    TC_SHARED(Four, shared, [K][together][threads * N / 4]);
    Real sums[K][kept * N] = {};
    const int64_t first = blockIdx.x * a.rows_per_chunk, last = first + a.rows_per_chunk < a.N ? first + a.rows_per_chunk : a.N;
    for (int64_t row = first + threadIdx.y; row < last; row += together) {
        NormRow<T, threads, N, centred> own(a, row);
        own.input_gradient(row_at<T>(a.dx, row, a.C), scratch);
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

template <class T, bool centred> int norm_backward(const tc_layer_norm_backward_args &a, int64_t chunks, void *stream)
{
    const bool weights = (a.dgamma_partial || a.dbeta_partial) && chunks > 0 && a.C > 0;
    bool separate = weights; // from dx
    const auto gradients = [&](auto threads, auto N, const Launch &shape) {
        constexpr int t = decltype(threads)::value, n = decltype(N)::value;
        if constexpr (sizeof(T) < 8 && n > 1) // rows of float64, and those that begin anywhere, are not worth more kernels
            if (weights && a.C <= OwnRow<T, t, n>::longest) {
                separate = false;
                return launch<norm_gradients_kernel<T, t, n, centred>>(Launch(blocks(chunks), shape.block, 0, stream), a);
            }
        return launch<norm_input_gradient_kernel<T, t, n, centred>>(shape, a);
    };
    const int error = a.dx ? launch_rows<T>(a.N, a.C, stream, gradients, a.x, a.dy, a.dx, a.gamma) : 0;
    if (error || !separate) return error;
    return launch<norm_weight_gradient_kernel<T, centred>>(column_launch(chunks, a.C, stream), a);
}

} // namespace tc
