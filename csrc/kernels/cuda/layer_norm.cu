// layer_norm.cu: y = (x - mean) * rstd * gamma + beta over rows (Ba et al. 2016, eq. 4), and its gradients.
//
// Short rows get a warp each, long ones a block. A row is read from memory once and again from the cache: the mean first,
// then the variance of the differences, which keeps its digits for rows with a large mean.
#include "../layer_norm.h"
#include "launchers.h"
#include "device.cuh"

namespace
{

using namespace tc;

constexpr int block_threads = 256;
constexpr int64_t longest_warp_row = 1024; // elements; longer rows get a whole block

// f(i) for every vector of N elements of a row that this thread owns.
template <int threads, int N, class F> __device__ __forceinline__ void for_own_vectors(int64_t C, F f)
{
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < C; i += threads * N) f(i);
}

// blockDim (threads, rows): `threads` threads a row.  y,x (N,C); gamma,beta (C); mean,rstd (N). The bounds ask for one block a
// multiprocessor at least: left to choose, ptxas takes 40 registers for float64 on sm_100 and spills.
template <class T, int threads, int N>
__global__ void __launch_bounds__(block_threads, 1)
    layer_norm_forward_kernel(const __grid_constant__ tc_layer_norm_forward_args a, int64_t rows)
{
    using Real = compute<T>;
    TC_SHARED(Real, scratch, [block_threads / warp_lanes]);
    const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, C = a.C;
    if (row >= rows) return; // whole warps only: threads of one row leave together, and a row of several warps is alone
    const T *x = static_cast<const T *>(a.x) + row * C;
    const T *gamma = static_cast<const T *>(a.gamma), *beta = static_cast<const T *>(a.beta);
    T *y = static_cast<T *>(a.y) + row * C;

    Real sum = 0;
    if (a.residual) { // each thread reads back what it wrote itself
        const T *residual = static_cast<const T *>(a.residual) + row * C;
        T *total = static_cast<T *>(a.sum) + row * C;
        for_own_vectors<threads, N>(C, [&](int64_t i) {
            Vector<T, N> v = load_vector<N>(x + i);
            const Vector<T, N> r = load_vector<N>(residual + i);
            for (int j = 0; j < N; j++) {
                narrow(v.at[j], widen(v.at[j]) + widen(r.at[j]));
                sum += widen(v.at[j]);
            }
            store_vector<N>(total + i, v);
        });
        x = total;
    } else {
        for_own_vectors<threads, N>(C, [&](int64_t i) {
            const Vector<T, N> v = load_vector<N>(x + i);
            for (int j = 0; j < N; j++) sum += widen(v.at[j]);
        });
    }
    const Real mean = group_sum<threads>(sum, scratch) / static_cast<Real>(C);

    Real squares = 0;
    for_own_vectors<threads, N>(C, [&](int64_t i) {
        const Vector<T, N> v = load_vector<N>(x + i);
        for (int j = 0; j < N; j++) {
            const Real d = widen(v.at[j]) - mean;
            squares += d * d;
        }
    });
    const Real rstd = Real(1) / real_sqrt(group_sum<threads>(squares, scratch) / static_cast<Real>(C) + static_cast<Real>(a.eps));
    if (threadIdx.x == 0) {
        static_cast<Real *>(a.mean)[row] = mean;
        static_cast<Real *>(a.rstd)[row] = rstd;
    }

    for_own_vectors<threads, N>(C, [&](int64_t i) {
        const Vector<T, N> v = load_vector<N>(x + i);
        Vector<T, N> out, g, b;
        if (gamma) g = load_vector<N>(gamma + i);
        if (beta) b = load_vector<N>(beta + i);
        for (int j = 0; j < N; j++) {
            Real value = (widen(v.at[j]) - mean) * rstd;
            if (gamma) value *= widen(g.at[j]);
            if (beta) value += widen(b.at[j]);
            narrow(out.at[j], value);
        }
        store_vector<N>(y + i, out);
    });
}

// With xhat = (x - mean) * rstd and g = dy * gamma:
//     dx = rstd * (g - mean(g) - xhat * mean(g * xhat)).
// blockDim as in the forward.  dx,dy,x (N,C); gamma (C); mean,rstd (N).
template <class T, int threads, int N>
__global__ void __launch_bounds__(block_threads) layer_norm_input_gradient_kernel(const __grid_constant__ tc_layer_norm_backward_args a)
{
    using Real = compute<T>;
    TC_SHARED(Real, scratch, [block_threads / warp_lanes]);
    const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, C = a.C;
    if (row >= a.N) return;
    const T *x = static_cast<const T *>(a.x) + row * C, *dy = static_cast<const T *>(a.dy) + row * C,
            *gamma = static_cast<const T *>(a.gamma);
    T *dx = static_cast<T *>(a.dx) + row * C;
    const Real mean = static_cast<const Real *>(a.mean)[row], rstd = static_cast<const Real *>(a.rstd)[row];

    // f(i, xhat, g) for the vectors this thread owns
    const auto for_each = [&](auto f) {
        for_own_vectors<threads, N>(C, [&](int64_t i) {
            const Vector<T, N> xv = load_vector<N>(x + i), dv = load_vector<N>(dy + i);
            Vector<T, N> gv;
            if (gamma) gv = load_vector<N>(gamma + i);
            Real xhat[N], g[N];
            for (int j = 0; j < N; j++) {
                xhat[j] = (widen(xv.at[j]) - mean) * rstd;
                g[j] = gamma ? widen(dv.at[j]) * widen(gv.at[j]) : widen(dv.at[j]);
            }
            f(i, xhat, g);
        });
    };
    Real sum_g = 0, sum_gx = 0;
    for_each([&](int64_t, const Real(&xhat)[N], const Real(&g)[N]) {
        for (int j = 0; j < N; j++) {
            sum_g += g[j];
            sum_gx += g[j] * xhat[j];
        }
    });
    const Real mean_g = group_sum<threads>(sum_g, scratch) / static_cast<Real>(C);
    const Real mean_gx = group_sum<threads>(sum_gx, scratch) / static_cast<Real>(C);
    for_each([&](int64_t i, const Real(&xhat)[N], const Real(&g)[N]) {
        Vector<T, N> out;
        for (int j = 0; j < N; j++) narrow(out.at[j], rstd * (g[j] - mean_g - xhat[j] * mean_gx));
        store_vector<N>(dx + i, out);
    });
}

// dgamma = sum dy * xhat, dbeta = sum dy over the rows of a chunk. A block for each tile of 32 columns of each chunk, blockDim
// (32, 8): a thread adds every 8th row of its column, then the 8 partial sums are added in order.
constexpr int row_lanes = 8;
template <class T>
__global__ void __launch_bounds__(warp_lanes *row_lanes)
    layer_norm_weight_gradient_kernel(const __grid_constant__ tc_layer_norm_backward_args a)
{
    using Real = compute<T>;
    TC_SHARED(Real, dgamma, [row_lanes][warp_lanes]);
    TC_SHARED(Real, dbeta, [row_lanes][warp_lanes]);
    const int64_t C = a.C, tiles = divide_up(C, warp_lanes);
    const int64_t chunk = blockIdx.x / tiles, column = blockIdx.x % tiles * warp_lanes + threadIdx.x;
    const int64_t first = chunk * a.rows_per_chunk;
    const int64_t last = first + a.rows_per_chunk < a.N ? first + a.rows_per_chunk : a.N;
    Real sum_gamma = 0, sum_beta = 0;
    if (column < C) {
        for (int64_t row = first + threadIdx.y; row < last; row += row_lanes) {
            const Real d = widen(static_cast<const T *>(a.dy)[row * C + column]);
            const Real mean = static_cast<const Real *>(a.mean)[row], rstd = static_cast<const Real *>(a.rstd)[row];
            sum_gamma += d * ((widen(static_cast<const T *>(a.x)[row * C + column]) - mean) * rstd);
            sum_beta += d;
        }
    }
    dgamma[threadIdx.y][threadIdx.x] = sum_gamma;
    dbeta[threadIdx.y][threadIdx.x] = sum_beta;
    __syncthreads();
    if (threadIdx.y != 0 || column >= C) return;
    for (int i = 1; i < row_lanes; i++) {
        sum_gamma += dgamma[i][threadIdx.x];
        sum_beta += dbeta[i][threadIdx.x];
    }
    if (a.dgamma_partial) static_cast<Real *>(a.dgamma_partial)[chunk * C + column] = sum_gamma;
    if (a.dbeta_partial) static_cast<Real *>(a.dbeta_partial)[chunk * C + column] = sum_beta;
}

// A kernel over rows: its grid for warps a row or a block a row.
Launch row_launch(int64_t rows, bool warp_a_row, void *stream)
{
    const int rows_per_block = block_threads / warp_lanes;
    if (!warp_a_row) return Launch(blocks(rows), dim3(block_threads), 0, stream);
    return Launch(blocks(divide_up(rows, rows_per_block)), dim3(warp_lanes, rows_per_block), 0, stream);
}

template <class T, int N> int forward(const tc_layer_norm_forward_args &a, int64_t rows, void *stream)
{
    if (a.C <= longest_warp_row) return launch<layer_norm_forward_kernel<T, warp_lanes, N>>(row_launch(rows, true, stream), a, rows);
    return launch<layer_norm_forward_kernel<T, block_threads, N>>(row_launch(rows, false, stream), a, rows);
}

template <class T, int N> int input_gradient(const tc_layer_norm_backward_args &a, void *stream)
{
    if (a.C <= longest_warp_row) return launch<layer_norm_input_gradient_kernel<T, warp_lanes, N>>(row_launch(a.N, true, stream), a);
    return launch<layer_norm_input_gradient_kernel<T, block_threads, N>>(row_launch(a.N, false, stream), a);
}

} // namespace

template <class T> int tc_cuda_layer_norm_forward(const void *args, int64_t rows, void *, void *stream)
{
    const auto &a = *static_cast<const tc_layer_norm_forward_args *>(args);
    if (rows == 0) return 0;
    return vectors_fit<T>(a.C, a.x, a.y, a.gamma, a.beta) && vectors_fit<T>(a.C, a.residual, a.sum)
               ? forward<T, vector_lanes<T>>(a, rows, stream)
               : forward<T, 1>(a, rows, stream);
}

template <class T> int tc_cuda_layer_norm_backward(const void *args, int64_t chunks, void *, void *stream)
{
    const auto &a = *static_cast<const tc_layer_norm_backward_args *>(args);
    if (a.dx && a.N > 0) {
        const int error =
            vectors_fit<T>(a.C, a.x, a.dy, a.dx, a.gamma) ? input_gradient<T, vector_lanes<T>>(a, stream) : input_gradient<T, 1>(a, stream);
        if (error) return error;
    }
    if ((!a.dgamma_partial && !a.dbeta_partial) || chunks == 0 || a.C == 0) return 0;
    const dim3 grid = blocks(chunks * divide_up(a.C, warp_lanes));
    return launch<layer_norm_weight_gradient_kernel<T>>(Launch(grid, dim3(warp_lanes, row_lanes), 0, stream), a);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, layer_norm_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, layer_norm_backward)
