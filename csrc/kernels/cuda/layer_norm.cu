// layer_norm.cu: y = (x - mean) * rstd * gamma + beta over rows (Ba et al. 2016, eq. 4), and its gradients.
//
// A row is read from memory once and stays in registers: the mean first, then the variance of the differences, which stays precise for rows
// with a large mean.
#include "launchers.h"
#include "norm_backward.cuh"

namespace
{

using namespace tc;

// blockDim (threads, rows): `threads` threads per row.  y,x (N,C); gamma,beta (C); mean,rstd (N). The bounds ask for at least one block per
// multiprocessor: otherwise ptxas takes 40 registers for float64 on sm_100 and spills.
template <class T, int threads, int N>
__global__ void __launch_bounds__(row_block_threads, 1)
    layer_norm_forward_kernel(const __grid_constant__ tc_layer_norm_forward_args a, int64_t rows)
{
    using Real = compute<T>;
    TC_SHARED(Real, scratch, [row_block_threads / warp_lanes]);
    const int64_t row = own_row(), C = a.C;
    if (row >= rows) return; // threads of one row leave together, and a row of several warps is alone
    const T *gamma = static_cast<const T *>(a.gamma), *beta = static_cast<const T *>(a.beta);
    T *y = row_at<T>(a.y, row, C);
    OwnRow<T, threads, N> own(row_at<T>(a.x, row, C), C);
    if (a.residual) own.add(row_at<T>(a.residual, row, C), row_at<T>(a.sum, row, C));

    Real sum = 0;
    own.for_each([&](int64_t, const Vector<T, N> &v) {
        TC_UNROLL
        for (int j = 0; j < N; j++) sum += widen(v.at[j]);
    });
    const Real mean = group_sum<threads>(sum, scratch) / static_cast<Real>(C);

    Real squares = 0;
    own.for_each([&](int64_t, const Vector<T, N> &v) {
        TC_UNROLL
        for (int j = 0; j < N; j++) {
            const Real d = widen(v.at[j]) - mean;
            squares += d * d;
        }
    });
    Real rstd = Real(1) / real_sqrt(group_sum<threads>(squares, scratch) / static_cast<Real>(C) + static_cast<Real>(a.eps));
    if (rstd == 0) rstd = static_cast<Real>(NAN); // 0 would hide that the squares overflow
    if (threadIdx.x == 0) {
        static_cast<Real *>(a.mean)[row] = mean;
        static_cast<Real *>(a.rstd)[row] = rstd;
    }

    own.for_each([&](int64_t i, const Vector<T, N> &v) {
        Vector<T, N> out, g, b;
        if (gamma) g = load_vector<N>(gamma + i);
        if (beta) b = load_vector<N>(beta + i);
        TC_UNROLL
        for (int j = 0; j < N; j++) {
            Real value = (widen(v.at[j]) - mean) * rstd;
            if (gamma) value *= widen(g.at[j]);
            if (beta) value += widen(b.at[j]);
            narrow(out.at[j], value);
        }
        store_vector<N>(y + i, out);
    });
}

} // namespace

template <class T> int tc_cuda_layer_norm_forward(const void *args, int64_t rows, void *, void *stream)
{
    const auto &a = *static_cast<const tc_layer_norm_forward_args *>(args);
    const auto forward = [&](auto threads, auto N, const Launch &shape) {
        return launch<layer_norm_forward_kernel<T, decltype(threads)::value, decltype(N)::value>>(shape, a, rows);
    };
    return launch_rows<T>(rows, a.C, stream, forward, a.x, a.y, a.gamma, a.beta, a.residual, a.sum);
}

template <class T> int tc_cuda_layer_norm_backward(const void *args, int64_t chunks, void *, void *stream)
{
    return norm_backward<T, true>(*static_cast<const tc_layer_norm_backward_args *>(args), chunks, stream);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, layer_norm_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, layer_norm_backward)
