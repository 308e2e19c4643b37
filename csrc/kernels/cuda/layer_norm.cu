// layer_norm.cu: y = (x - mean) * rstd * gamma + beta over rows (Ba et al. 2016, eq. 4), and its gradients.
//
// A row is read from memory once and stays in registers: the mean first, then the variance of the differences, which stays precise for rows
// with a large mean.
#include "launchers.h"
#include "norm_backward.cuh"

namespace
{

using namespace tc;

// y,x (N,C); gamma,beta (C); mean,rstd (N). The thread's row.
template <class T, int threads, int N, class Dropout>
__device__ __forceinline__ void normalise_row(const tc_layer_norm_forward_args &a, int64_t rows, const Dropout &dropout,
                                              compute<T> *scratch)
{
    using Real = compute<T>;
    const int64_t row = own_row(), C = a.C;
    if (row >= rows) return; // threads of one row leave together, and a row of several warps is alone
    const T *gamma = static_cast<const T *>(a.gamma), *beta = static_cast<const T *>(a.beta);
    T *y = row_at<T>(a.y, row, C);
    OwnRow<T, threads, N> own(row_at<T>(a.x, row, C), C);
    if (a.residual) own.add(row_at<T>(a.residual, row, C), row_at<T>(a.sum, row, C), dropout, row);

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
    const Real rstd = rstd_of(group_sum<threads>(squares, scratch), static_cast<Real>(C), static_cast<Real>(a.eps));
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

// blockDim (threads, rows): `threads` threads per row. The bounds ask for at least one block per multiprocessor: otherwise ptxas takes 40
// registers for float64 on sm_100 and spills.
template <class T, int threads, int N>
__global__ void __launch_bounds__(row_block_threads, 1)
    layer_norm_forward_kernel(const __grid_constant__ tc_layer_norm_forward_args a, int64_t rows)
{
    TC_SHARED(compute<T>, scratch, [row_block_threads / warp_lanes]);
    normalise_row<T, threads, N>(a, rows, KeepAll(), scratch);
}

// Two blocks per multiprocessor: while one draws or adds up, the other's rows are on their way.
template <class T, int threads, int N>
__global__ void __launch_bounds__(row_block_threads, 2)
    dropout_layer_norm_kernel(const __grid_constant__ tc_layer_norm_forward_args a, const __grid_constant__ Keep<compute<T>> keep,
                              int64_t rows)
{
    TC_SHARED(compute<T>, scratch, [row_block_threads / warp_lanes]);
    normalise_row<T, threads, N>(a, rows, RowDropout<T>(a.mask, keep, a.C), scratch);
}

} // namespace

template <class T> int tc_cuda_layer_norm_forward(const void *args, int64_t rows, void *, void *stream)
{
    auto a = *static_cast<const tc_layer_norm_forward_args *>(args);
    const auto forward = [&](auto threads, auto N, const Launch &shape) {
        constexpr int t = decltype(threads)::value, n = decltype(N)::value;
        if (a.residual && a.mask.p > 0) {
            if constexpr (drops_in_rows<T, n>)
                if (a.C <= OwnRow<T, t, n>::longest) return launch<dropout_layer_norm_kernel<T, t, n>>(shape, a, keep_of<T>(a.mask), rows);
            const tc_dropout_forward_args dropped = {a.y, a.x, rows * a.C, a.mask}; // in y until the result is
            const int error = tc_cuda_dropout_forward<T>(&dropped, 0, nullptr, stream);
            if (error) return error;
            a.x = a.y;
        }
        return launch<layer_norm_forward_kernel<T, t, n>>(shape, a, rows);
    };
    return launch_rows<T>(rows, a.C, stream, forward, a.x, a.y, a.gamma, a.beta, a.residual, a.sum);
}

template <class T> int tc_cuda_layer_norm_backward(const void *args, int64_t chunks, void *, void *stream)
{
    return norm_backward<T, true>(*static_cast<const tc_layer_norm_backward_args *>(args), chunks, stream);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, layer_norm_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, layer_norm_backward)
