// rms_norm.cu: y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps), over rows (Zhang and Sennrich 2019, eq. 4).
#include "../rms_norm.h"
#include "launchers.h"
#include "norm_backward.cuh"

namespace
{

using namespace tc;

// blockDim (threads, rows): `threads` threads per row.  y,x (N,C); gamma (C); rstd (N).
template <class T, int threads, int N>
__global__ void __launch_bounds__(row_block_threads, 1)
    rms_norm_forward_kernel(const __grid_constant__ tc_rms_norm_forward_args a, int64_t rows)
{
    using Real = compute<T>;
    TC_SHARED(Real, scratch, [row_block_threads / warp_lanes]);
    const int64_t row = own_row(), C = a.C;
    if (row >= rows) return; // all threads of a row
    const T *gamma = static_cast<const T *>(a.gamma);
    OwnRow<T, threads, N> own(row_at<T>(a.x, row, C), C);
    Real squares = 0;
    own.for_each([&](int64_t, const Vector<T, N> &v) {
        TC_UNROLL
        for (int j = 0; j < N; j++) squares += widen(v.at[j]) * widen(v.at[j]);
    });
    const Real rstd = Real(1) / real_sqrt(group_sum<threads>(squares, scratch) / static_cast<Real>(C) + static_cast<Real>(a.eps));
    if (threadIdx.x == 0) static_cast<Real *>(a.rstd)[row] = rstd;
    own.for_each([&](int64_t i, const Vector<T, N> &v) {
        Vector<T, N> out, g;
        if (gamma) g = load_vector<N>(gamma + i);
        TC_UNROLL
        for (int j = 0; j < N; j++) narrow(out.at[j], widen(v.at[j]) * rstd * (gamma ? widen(g.at[j]) : Real(1)));
        store_vector<N>(row_at<T>(a.y, row, C) + i, out);
    });
}

} // namespace

template <class T> int tc_cuda_rms_norm_forward(const void *args, int64_t rows, void *, void *stream)
{
    const auto &a = *static_cast<const tc_rms_norm_forward_args *>(args);
    const auto forward = [&](auto threads, auto N, const Launch &shape) {
        return launch<rms_norm_forward_kernel<T, decltype(threads)::value, decltype(N)::value>>(shape, a, rows);
    };
    return launch_rows<T>(rows, a.C, stream, forward, a.x, a.y, a.gamma);
}

template <class T> int tc_cuda_rms_norm_backward(const void *args, int64_t chunks, void *, void *stream)
{
    return norm_backward<T, false>(*static_cast<const tc_layer_norm_backward_args *>(args), chunks, stream);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, rms_norm_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, rms_norm_backward)
