// vector_rows.cuh: shared by the kernels over rows of C neighbouring elements: a warp or a block for each row, which reads and writes
// vectors of 16 bytes where the rows allow it; and sums of columns over the rows of a chunk.
#pragma once
#include "device.cuh"

namespace tc
{

constexpr int row_block_threads = 256;
constexpr int64_t longest_warp_row = 1024; // elements; longer rows get a whole block

// The row of this thread, blockDim (threads of a row, rows).
__device__ __forceinline__ int64_t own_row() { return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; }
template <class T> __device__ __forceinline__ T *row_at(void *rows, int64_t row, int64_t C) { return static_cast<T *>(rows) + row * C; }
template <class T> __device__ __forceinline__ const T *row_at(const void *rows, int64_t row, int64_t C)
{
    return static_cast<const T *>(rows) + row * C;
}

// f(i) for every vector of N elements of a row that this thread owns.
template <int threads, int N, class F> __device__ __forceinline__ void for_own_vectors(int64_t C, F f)
{
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < C; i += threads * N) f(i);
}

// ---- host side ----

// launch_shape(threads, N, shape) with a warp or a block for each row, and vectors of N elements: 16 bytes where C and all the
// addresses allow it, else 1.
template <class T, class F, class... Pointers>
int launch_rows(int64_t rows, int64_t C, void *stream, F launch_shape, const Pointers *...pointers)
{
    const auto with_threads = [&](auto N) {
        constexpr int warps = row_block_threads / warp_lanes;
        if (C <= longest_warp_row)
            return launch_shape(Constant<warp_lanes>(), N, Launch(blocks(divide_up(rows, warps)), dim3(warp_lanes, warps), 0, stream));
        return launch_shape(Constant<row_block_threads>(), N, Launch(blocks(rows), dim3(row_block_threads), 0, stream));
    };
    if (rows == 0) return 0;
    return vectors_fit<T>(C, pointers...) ? with_threads(Constant<vector_lanes<T>>()) : with_threads(Constant<1>());
}

// ---- sums of columns over the rows of a chunk ----

// A block for each tile of 32 columns of each chunk, blockDim (32, 8): a thread adds every 8th row of its column, then the 8 partial sums
// are added in order.
constexpr int column_row_lanes = 8;
constexpr int column_threads = warp_lanes * column_row_lanes;

// K sums at once: add(sums, row, column) adds to them, store(sums, at) stores those of a column of a chunk, at = chunk * C + column. The
// sizes are references to the kernel's arguments: copies of them would take 8 registers.
template <class Real, int K, class Add, class Store>
__device__ __forceinline__ void sum_columns(const int64_t &rows, const int64_t &C, const int64_t &rows_per_chunk, const Add &add,
                                            const Store &store)
{
    TC_SHARED(Real, shared, [K][column_row_lanes][warp_lanes]);
    const int64_t tiles = divide_up(C, warp_lanes);
    const int64_t chunk = blockIdx.x / tiles, column = blockIdx.x % tiles * warp_lanes + threadIdx.x;
    const int64_t first = chunk * rows_per_chunk;
    const int64_t last = first + rows_per_chunk < rows ? first + rows_per_chunk : rows;
    Real sums[K] = {};
    if (column < C)
        for (int64_t row = first + threadIdx.y; row < last; row += column_row_lanes) add(sums, row, column);
    TC_UNROLL
    for (int k = 0; k < K; k++) shared[k][threadIdx.y][threadIdx.x] = sums[k];
    __syncthreads();
    if (threadIdx.y != 0 || column >= C) return;
    for (int i = 1; i < column_row_lanes; i++) {
        TC_UNROLL
        for (int k = 0; k < K; k++) sums[k] += shared[k][i][threadIdx.x];
    }
    store(sums, chunk * C + column);
}

inline Launch column_launch(int64_t chunks, int64_t C, void *stream)
{
    return Launch(blocks(chunks * divide_up(C, warp_lanes)), dim3(warp_lanes, column_row_lanes), 0, stream);
}

} // namespace tc
