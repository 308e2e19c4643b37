// tile.cuh: products of tiles in shared memory, the body of the matrix product and of attention.
//
// A block of 16 x 16 threads owns a tile of tile x tile results; thread (x, y) has rows y + 16 i and columns x + 16 j of it in
// registers. Operands are in shared memory with the summed index first, a[k][row] and b[k][column], in the compute dtype: half
// formats are widened when they are loaded.
#pragma once
#include "device.cuh"

namespace tc
{

constexpr int tile_side = 16; // threads along each side of a tile
constexpr int tile_threads = tile_side * tile_side;
constexpr int tile_depth = 32; // length of the sum that is in shared memory at a time

// Rows of an operand; the odd row length keeps the banks apart when a tile is written transposed.
template <class Real, int tile> using TileRow = Real[tile + 1];
// A thread's part of a tile of results.
template <class Real, int tile> using Fragment = Real[tile / tile_side][tile / tile_side];

template <class Real, int tile> __device__ __forceinline__ void clear(Fragment<Real, tile> &fragment)
{
    TC_UNROLL
    for (auto &row : fragment) TC_UNROLL
    for (Real &element : row) element = 0;
}

__device__ __forceinline__ int thread_in_tile() { return static_cast<int>(threadIdx.y * tile_side + threadIdx.x); }
__device__ __forceinline__ int own_row(int i) { return static_cast<int>(threadIdx.y) + tile_side * i; }
__device__ __forceinline__ int own_column(int j) { return static_cast<int>(threadIdx.x) + tile_side * j; }

// An operand in global memory: element (row, k) of it at row * across + k * along.
template <class T> struct Operand {
    const T *data;
    int64_t across, along;
    __device__ __forceinline__ Operand at(int64_t row, int64_t k) const { return {data + row * across + k * along, across, along}; }
    __device__ __forceinline__ const T *row(int64_t row) const { return data + row * across; }
};

// to[k][row] = operand (row, k), zeros beyond the `rows` rows and `depth` elements of the sum. Neighbouring threads
// take neighbours along the sum when these are neighbours in memory, otherwise across it.
template <int tile, class Real, class T>
__device__ __forceinline__ void load_operand(TileRow<Real, tile> *to, const Operand<T> &from, int64_t rows, int64_t depth)
{
    const bool runs_along = from.along == 1;
    for (int e = thread_in_tile(); e < tile * tile_depth; e += tile_threads) {
        const int k = runs_along ? e % tile_depth : e / tile, row = runs_along ? e / tile_depth : e % tile;
        to[k][row] = row < rows && k < depth ? widen(from.data[row * from.across + k * from.along]) : Real(0);
    }
}

// sum[i][j] += a[k][row i] b[k][column j] for k < tile_depth.
template <int tile, class Real>
__device__ __forceinline__ void multiply(Fragment<Real, tile> &sum, const TileRow<Real, tile> *a, const TileRow<Real, tile> *b)
{
    constexpr int n = tile / tile_side;
    TC_UNROLL_SOME
    for (int k = 0; k < tile_depth; k++) {
        Real column[n];
        TC_UNROLL
        for (int j = 0; j < n; j++) column[j] = b[k][own_column(j)];
        TC_UNROLL
        for (int i = 0; i < n; i++) {
            const Real row = a[k][own_row(i)];
            TC_UNROLL
            for (int j = 0; j < n; j++) sum[i][j] += row * column[j];
        }
    }
}

// The same, but pairs with hidden[k][row i] are left out: a weight of zero would let a NaN of b through.
template <int tile, class Real>
__device__ __forceinline__ void multiply_seen(Fragment<Real, tile> &sum, const TileRow<Real, tile> *a, const TileRow<bool, tile> *hidden,
                                              const TileRow<Real, tile> *b)
{
    constexpr int n = tile / tile_side;
    TC_UNROLL_SOME
    for (int k = 0; k < tile_depth; k++) {
        TC_UNROLL
        for (int i = 0; i < n; i++) {
            if (hidden[k][own_row(i)]) continue;
            const Real row = a[k][own_row(i)];
            TC_UNROLL
            for (int j = 0; j < n; j++) sum[i][j] += row * b[k][own_column(j)];
        }
    }
}

// Of the 16 threads that share a row, in every one of them: the largest value, and the sum.
template <class Real> __device__ __forceinline__ Real row_max(Real value)
{
    for (int distance = tile_side / 2; distance > 0; distance /= 2) {
        const Real other = __shfl_xor_sync(all_lanes, value, distance);
        value = other > value ? other : value;
    }
    return value;
}
template <class Real> __device__ __forceinline__ Real row_sum(Real value)
{
    for (int distance = tile_side / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
    return value;
}

// The tile and the columns of the result that a block computes: chunks * tile.
template <int tile_, int chunks_> struct BlockShape {
    static constexpr int tile = tile_, chunks = chunks_;
};

} // namespace tc
