// gemm.cu: C = dropout(activation(A B + bias)) + residual for any strides, every shape and batch: the body of linear, of qkv_projection
// (whose q, k and v are views of C) and of matmul. Plain products in the compute dtype, of float64 and halves.
//
// Operands are read through Operand (tile.cuh) and results are written by an epilogue that takes row, column and value
// (gemm_epilogue.cuh). gemm_float.cu has the products of float32, gemm_tensor.cuh those on tensor cores.
#include "gemm_epilogue.cuh"
#include "launchers.h"
#include "tile.cuh"

namespace
{

using namespace tc;

// Blocks per multiprocessor at least: two hide each other's loads, but in float64 the registers are too few for them.
template <class T> constexpr int gemm_residency = sizeof(compute<T>) < 8 ? 2 : 1;

// Block: one tile of C, of one chunk of the sum, of one element of the batch.  a (M,K), b (K,N), c (M,N); a_sum (k_chunks,M).
// k_block: how many terms are summed before they are added to the total.
template <class T, int tile, class Epilogue>
__global__ void __launch_bounds__(tile_threads, gemm_residency<T>)
    gemm_kernel(const __grid_constant__ tc_gemm_args a, int64_t k_block, const __grid_constant__ Keep<compute<T>> keep)
{
    using Real = compute<T>;
    TC_SHARED(Real, rows, [tile_depth][tile + 1]);
    TC_SHARED(Real, columns, [tile_depth][tile + 1]);
    BlockPlace place;
    const int64_t row = place.take(divide_up(a.M, tile)) * tile, column = place.take(divide_up(a.N, tile)) * tile;
    const int64_t chunk = place.take(a.k_chunks), batch = place.rest;
    const int64_t first = chunk * a.k_chunk, end = a.K - first < a.k_chunk ? a.K : first + a.k_chunk;
    const Operand<T> left = {static_cast<const T *>(a.a) + batch_offset(a, a.a_batch, batch), a.a_row, a.a_col};
    const Operand<T> right = {static_cast<const T *>(a.b) + batch_offset(a, a.b_batch, batch), a.b_col, a.b_row};

    const bool sums_a_row = a.a_sum && column == 0 && thread_in_tile() < tile;
    Real a_sum = 0;
    Fragment<Real, tile> total;
    clear<Real, tile>(total);
    for (int64_t block = first; block < end; block += k_block) {
        const int64_t block_end = end - block < k_block ? end : block + k_block;
        Fragment<Real, tile> sum;
        clear<Real, tile>(sum);
        for (int64_t k = block; k < block_end; k += tile_depth) {
            load_operand<tile>(rows, left.at(row, k), a.M - row, block_end - k);
            load_operand<tile>(columns, right.at(column, k), a.N - column, block_end - k);
            __syncthreads();
            multiply<tile>(sum, rows, columns);
            for (int i = 0; sums_a_row && i < tile_depth; i++) a_sum += rows[i][thread_in_tile()];
            __syncthreads();
        }
        TC_UNROLL
        for (int i = 0; i < tile / tile_side; i++) TC_UNROLL
        for (int j = 0; j < tile / tile_side; j++) total[i][j] += sum[i][j];
    }
    if (sums_a_row && row + thread_in_tile() < a.M) {
        const int64_t at = chunk * a.M + row + thread_in_tile();
        if (is_partial(a))
            static_cast<Real *>(a.a_sum)[at] = a_sum;
        else
            narrow(static_cast<T *>(a.a_sum)[at], a_sum);
    }
    const Epilogue epilogue(a, batch_offset(a, a.c_batch, batch), chunk, keep);
    TC_UNROLL
    for (int i = 0; i < tile / tile_side; i++) TC_UNROLL
    for (int j = 0; j < tile / tile_side; j++)
        if (row + own_row(i) < a.M && column + own_column(j) < a.N) epilogue(row + own_row(i), column + own_column(j), total[i][j]);
}

template <class T, int tile> int launch_gemm(const tc_gemm_args &a, void *stream)
{
    const int64_t count = divide_up(a.M, tile) * divide_up(a.N, tile) * a.k_chunks * a.batch;
    const Launch shape(blocks(count), dim3(tile_side, tile_side), 0, stream);
    const auto keep = keep_of<T>(a.mask);
    if (is_partial(a)) return launch<gemm_kernel<T, tile, PartialSum<T>>>(shape, a, tc_gemm_item_k_block(&a), keep);
    if (a.mask.p > 0) return launch<gemm_kernel<T, tile, DroppedSum<T, tile>>>(shape, a, tc_gemm_item_k_block(&a), keep);
    return launch<gemm_kernel<T, tile, WholeSum<T>>>(shape, a, tc_gemm_item_k_block(&a), keep);
}

} // namespace

// B is read in place: only CPUs use panels, row_block, col_block and copies of A.
template <class T> int tc_cuda_gemm(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_gemm_args *>(args);
    if (a.b_form == TC_GEMM_B_PANELS) return cudaErrorInvalidValue;
    if (a.M * a.N * a.k_chunks * a.batch == 0) return 0;
    if (a.variant == TC_GEMM_TENSOR_CORES) {
        if constexpr (sizeof(T) == 2)
            return launch_tensor_gemm<T>(a, stream);
        else
            return cudaErrorInvalidValue;
    }
    if constexpr (sizeof(T) == 4) {
        return a.variant == TC_GEMM_PLAIN ? launch_float_gemm(a, stream) : launch_tf32_gemm(a, stream);
    } else {
        constexpr int widest = sizeof(T) == 2 ? 64 : 32;
        if (a.variant != TC_GEMM_PLAIN) return cudaErrorInvalidValue;
        return a.tile == 64 ? launch_gemm<T, widest>(a, stream) : launch_gemm<T, 32>(a, stream);
    }
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, gemm)
