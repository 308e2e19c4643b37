// attention_mma.cuh: what the kernels of attention on tensor cores share. A warp has 16 rows of its own, in the forward also 32, and
// computes with them and with tiles of `rows` rows of another operand, which are in shared memory.
#pragma once
#include "attention_score.cuh"
#include "mma.cuh"

namespace tc
{

constexpr int warp_rows = 16;
template <int rows> using Products = float[rows / 8][4];                    // (16, rows), a lane's part
template <int rows> using Weights = uint32_t[rows / 16][4];                 // the same in halves, as a left operand
template <int size> using WarpSums = float[size / 8][4];                    // (16, size)
template <int rows> constexpr int own_pairs = warp_rows *rows / warp_lanes; // that a lane has of a tile

// Pair e of a lane: in fragment e / 4, whose columns are eight rows of the tile.
__device__ __forceinline__ int row_of(int e) { return lane_group() + e % 4 / 2 * 8; }
__device__ __forceinline__ int column_of(int e) { return e / 4 * 8 + lane_pair() + e % 2; }

template <int fragments> __device__ __forceinline__ void clear_sums(float (&sums)[fragments][4])
{
    TC_UNROLL
    for (auto &fragment : sums) TC_UNROLL
    for (float &element : fragment) element = 0;
}

// The bits that are all set in what is infinite or NaN.
__device__ __forceinline__ uint32_t exponent_of(float16) { return 0x7c00; }
__device__ __forceinline__ uint32_t exponent_of(bfloat16) { return 0x7f80; }
template <class T> __device__ __forceinline__ bool is_finite(T x) { return (x.bits & exponent_of(x)) != exponent_of(x); }

// f(the first of eight elements) for what the thread, one of `threads`, has copied of a tile.
template <int rows, int size, int threads, class T, class F> __device__ __forceinline__ void for_own_copies(T *tile, F f)
{
    constexpr int chunks = Swizzle<size>::chunks;
    TC_ROLLED
    for (int e = static_cast<int>(threadIdx.x % threads); e < rows * chunks; e += threads)
        f(tile + Swizzle<size>::chunk(e / chunks, e % chunks));
}
template <int rows, int size, int threads, class T> __device__ __forceinline__ bool has_infinite(T *tile)
{
    // Of two elements at a time: one more in the exponent's last place carries to the sign's where all bits of the exponent are set.
    const uint32_t exponents = exponent_of(T()) * 0x10001u, ones = 0x80008000u - exponents;
    uint32_t found = 0;
    for_own_copies<rows, size, threads>(tile, [&](const T *at) {
        const auto pairs = load_whole<Vector<uint32_t, 4>>(at);
        TC_UNROLL
        for (const uint32_t pair : pairs.at) found |= (pair & exponents) + ones;
    });
    return found & 0x80008000u;
}
template <int rows, int size, int threads, class T> __device__ __forceinline__ void clear_infinite(T *tile)
{
    for_own_copies<rows, size, threads>(tile, [&](T *at) {
        Vector<T, 8> values = load_vector<8>(at);
        TC_UNROLL
        for (T &value : values.at)
            if (!is_finite(value)) value.bits = 0;
        store_vector(at, values);
    });
}

// A warp's own rows as the left operand, fragments of 16: in registers, if they are kept there, or else in shared memory.
template <int size, bool kept, int fragments = 1> struct OwnRows {
    static constexpr int depth = size / 16;
    const unsigned char *shared;
    MatrixRows<size> rows;
    uint32_t own[fragments][kept ? depth : 1][4];

    // begin: where they are, in bytes from there on.
    __device__ __forceinline__ OwnRows(const unsigned char *all, int begin) : shared(all), rows(begin, false)
    {
        TC_UNROLL
        for (int f = 0; f < fragments; f++) TC_UNROLL
        for (int d = 0; d < (kept ? depth : 0); d++) load_matrix_x4(own[f][d], shared + rows.at(f, d));
    }
    __device__ __forceinline__ void load(int d)
    {
        TC_UNROLL
        for (int f = 0; f < (kept ? 0 : fragments); f++) load_matrix_x4(own[f][0], shared + rows.at(f, d));
    }
    // After load(d).
    __device__ __forceinline__ const uint32_t (&fragment(int f, int d) const)[4] { return own[f][kept ? d : 0]; }
};

// products = own rows times the tile's, for each fragment; `tile` takes matrices beside each other.
template <int rows, int size, bool kept, int fragments, class T>
__device__ __forceinline__ void multiply_rows(Products<rows> *products, OwnRows<size, kept, fragments> &own, const unsigned char *shared,
                                              const MatrixRows<size> &tile, T type)
{
    TC_UNROLL
    for (int f = 0; f < fragments; f++) clear_sums(products[f]);
    TC_UNROLL
    for (int d = 0; d < size / 16; d++) {
        own.load(d);
        TC_UNROLL
        for (int n = 0; n < rows / 16; n++) {
            uint32_t four[4];
            load_matrix_x4(four, shared + tile.at(n, d));
            TC_UNROLL
            for (int f = 0; f < fragments; f++) {
                mma(products[f][2 * n], own.fragment(f, d), {four[0], four[1]}, type);
                mma(products[f][2 * n + 1], own.fragment(f, d), {four[2], four[3]}, type);
            }
        }
    }
}
template <int rows, int size, bool kept, class T>
__device__ __forceinline__ void multiply_rows(Products<rows> &products, OwnRows<size, kept> &own, const unsigned char *shared,
                                              const MatrixRows<size> &tile, T type)
{
    multiply_rows<rows>(&products, own, shared, tile, type);
}

// Two halves, with zeros for what is not finite.
template <class T> __device__ __forceinline__ uint32_t finite_of(uint32_t pair, T type)
{
    const uint32_t low = exponent_of(type), high = low << 16;
    return ((pair & low) == low ? 0 : pair & 0xffffu) | ((pair & high) == high ? 0 : pair & 0xffff0000u);
}

// sums += weights tile, likewise; `tile` takes matrices below each other. With finite_only its elements that are not finite count as zeros.
template <int rows, int size, int fragments, bool finite_only = false, class T>
__device__ __forceinline__ void weigh_tile(WarpSums<size> *sums, const Weights<rows> *weights, const unsigned char *shared,
                                           const MatrixRows<size> &tile, T type)
{
    TC_UNROLL
    for (int n = 0; n < rows / 16; n++) TC_UNROLL
    for (int d = 0; d < size / 16; d++) {
        uint32_t four[4];
        load_matrix_x4_transposed(four, shared + tile.at(n, d));
        if (finite_only) TC_UNROLL
        for (uint32_t &pair : four) pair = finite_of(pair, type);
        TC_UNROLL
        for (int f = 0; f < fragments; f++) {
            mma(sums[f][2 * d], weights[f][n], {four[0], four[1]}, type);
            mma(sums[f][2 * d + 1], weights[f][n], {four[2], four[3]}, type);
        }
    }
}
template <int rows, int size, bool finite_only = false, class T>
__device__ __forceinline__ void weigh_tile(WarpSums<size> &sums, const Weights<rows> &weights, const unsigned char *shared,
                                           const MatrixRows<size> &tile, T type)
{
    weigh_tile<rows, size, 1, finite_only>(&sums, &weights, shared, tile, type);
}

// Adds weight times value where the value is not finite and the pair not hidden: a weight of zero would let it through. `shared`: for the
// weights of the warp.
template <int rows, int size, class T>
__device__ __forceinline__ void add_infinite(WarpSums<size> &sums, const Weights<rows> &weights, uint32_t hidden, uint32_t *shared,
                                             const T *tile)
{
    constexpr uint32_t mark = 0xffff; // NaN, and no conversion's
    __syncwarp();
    TC_UNROLL
    for (int e = 0; e < own_pairs<rows>; e += 2) {
        const uint32_t pair = weights[e / 8][e % 8 / 2];
        const uint32_t low = hidden >> e & 1 ? mark : pair & 0xffff, high = hidden >> (e + 1) & 1 ? mark : pair >> 16;
        shared[(row_of(e) * rows + column_of(e)) / 2] = low | high << 16;
    }
    __syncwarp();
    const T *const own = reinterpret_cast<const T *>(shared) + lane_group() * rows;
    TC_ROLLED
    for (int row = 0; row < rows; row++) {
        const T weight[2] = {own[row], own[row + 8 * rows]};
        TC_UNROLL
        for (int n = 0; n < size / 8; n++) {
            const Vector<T, 2> pair = load_vector<2>(tile + Swizzle<size>::chunk(row, n) + lane_pair());
            if (is_finite(pair.at[0]) && is_finite(pair.at[1])) continue;
            TC_UNROLL
            for (int i = 0; i < 4; i++) {
                const T value = pair.at[i % 2];
                if (!is_finite(value) && weight[i / 2].bits != mark) sums[n][i] += widen(weight[i / 2]) * widen(value);
            }
        }
    }
    __syncwarp();
}

} // namespace tc
