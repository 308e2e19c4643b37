// norm_backward.cuh: the gradients of y = xhat * gamma + beta with xhat = (x - mean) * rstd over rows, or, not centred, xhat = x * rstd.
#pragma once
#include "../layer_norm.h"
#include "vector_rows.cuh"

namespace tc
{

// With g = dy * gamma:  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without mean(g) where x was not centred.
// dx,dy,x (N,C); gamma (C); mean,rstd (N).
template <class T, int threads, int N, bool centred>
__global__ void __launch_bounds__(row_block_threads) norm_input_gradient_kernel(const __grid_constant__ tc_layer_norm_backward_args a)
{
    using Real = compute<T>;
    TC_SHARED(Real, scratch, [row_block_threads / warp_lanes]);
    const int64_t row = own_row(), C = a.C;
    if (row >= a.N) return;
    const T *x = row_at<T>(a.x, row, C), *dy = row_at<T>(a.dy, row, C), *gamma = static_cast<const T *>(a.gamma);
    T *dx = row_at<T>(a.dx, row, C);
    const Real mean = centred ? static_cast<const Real *>(a.mean)[row] : Real(0), rstd = static_cast<const Real *>(a.rstd)[row];

    // f(i, xhat, g) for the vectors that this thread owns
    const auto for_each = [&](auto f) {
        for_own_vectors<threads, N>(C, [&](int64_t i) {
            const Vector<T, N> xv = load_vector<N>(x + i), dv = load_vector<N>(dy + i);
            Vector<T, N> gv;
            if (gamma) gv = load_vector<N>(gamma + i);
            Real xhat[N], g[N];
            for (int j = 0; j < N; j++) {
                xhat[j] = (centred ? widen(xv.at[j]) - mean : widen(xv.at[j])) * rstd;
                g[j] = gamma ? widen(dv.at[j]) * widen(gv.at[j]) : widen(dv.at[j]);
            }
            f(i, xhat, g);
        });
    };
    Real sum_g = 0, sum_gx = 0;
    for_each([&](int64_t, const Real(&xhat)[N], const Real(&g)[N]) {
        for (int j = 0; j < N; j++) {
            if (centred) sum_g += g[j];
            sum_gx += g[j] * xhat[j];
        }
    });
    const Real mean_g = centred ? group_sum<threads>(sum_g, scratch) / static_cast<Real>(C) : Real(0);
    const Real mean_gx = group_sum<threads>(sum_gx, scratch) / static_cast<Real>(C);
    for_each([&](int64_t i, const Real(&xhat)[N], const Real(&g)[N]) {
        Vector<T, N> out;
        for (int j = 0; j < N; j++) narrow(out.at[j], rstd * ((centred ? g[j] - mean_g : g[j]) - xhat[j] * mean_gx));
        store_vector<N>(dx + i, out);
    });
}

// dgamma = sum dy * xhat, and for centred norms dbeta = sum dy, over the rows of a chunk.
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
    const auto input_gradient = [&](auto threads, auto N, const Launch &shape) {
        return launch<norm_input_gradient_kernel<T, decltype(threads)::value, decltype(N)::value, centred>>(shape, a);
    };
    const int error = a.dx ? launch_rows<T>(a.N, a.C, stream, input_gradient, a.x, a.dy, a.dx, a.gamma) : 0;
    if (error || (!a.dgamma_partial && !a.dbeta_partial) || chunks == 0 || a.C == 0) return error;
    return launch<norm_weight_gradient_kernel<T, centred>>(column_launch(chunks, a.C, stream), a);
}

} // namespace tc
