// dropout.cuh: which elements of an array a dropout keeps, a vector of 16 bytes or one element at a time.
#pragma once
#include "../dropout.h"
#include "philox.cuh"

namespace tc
{

// tc_place(), for device code. Only a shared batch takes a division of 64 bits.
__device__ __forceinline__ int64_t place_in_batch(const tc_places &places, int64_t i)
{
    if (places.step == 1) return places.first * places.row + i;
    const int64_t group = i / places.row;
    return (places.first + group * places.step) * places.row + (i - group * places.row);
}
// What dropout makes of an element. The numbers come from the host: arithmetic in float64 is slow on most GPUs.
template <class Real> struct Keep {
    Real scale;
    uint32_t threshold;
    bool none; // no 32-bit threshold can express it
    __device__ __forceinline__ Real applied(Real x, bool kept) const { return kept ? rounded_product(x, scale) : Real(0); }
};
template <class T> Keep<compute<T>> keep_of(const tc_mask &mask)
{
    return {static_cast<compute<T>>(tc_keep_scale(mask.p)), tc_keep_threshold(mask.p), mask.p == 1.0};
}

// Is one element kept?
template <class Real> __device__ __forceinline__ bool is_kept(const Draw &draw, const Keep<Real> &keep, uint64_t element)
{
    const PhiloxWords words = philox_words_here(draw.seed, draw.call, element);
    const int own = static_cast<int>(element / TC_PHILOX_BLOCKS % 4);
    uint32_t word = words.at[0];
    TC_UNROLL
    for (int w = 1; w < 4; w++) word = own == w ? words.at[w] : word;
    return !keep.none && word >= keep.threshold;
}
// Which of N neighbours are kept, bit j for element + j. N divides 16 and `element`. With `together`, 64 / N neighbouring lanes have the
// vectors of a group of elements, in order, and all lanes of `mask` meet here: of the blocks that the lanes of vectors 16 elements apart
// all need, each draws its share. Otherwise each lane draws all of its own.
template <int N, class Real>
__device__ __forceinline__ uint32_t kept_of_vector(const Draw &draw, const Keep<Real> &keep, uint64_t element, bool together, unsigned mask)
{
    constexpr int apart = TC_PHILOX_BLOCKS / N, share = N < 4 ? 1 : N / 4;
    static_assert(N == 2 || N == 4 || N == 8, "a group is within a warp, and the bits of its four words within a register");
    const int word = static_cast<int>(element / TC_PHILOX_BLOCKS % 4), count = together ? share : N;
    uint32_t kept = 0; // N bits from 8 w on are those of the lane with word w
    TC_ROLLED
    for (int b = 0; b < count; b++) {
        const int j = together ? (word + 4 * b) % N : b;
        const PhiloxWords words = philox_words_here(draw.seed, draw.call, element + static_cast<uint64_t>(j));
        TC_UNROLL
        for (int w = 0; w < 4; w++) kept |= static_cast<uint32_t>(words.at[w] >= keep.threshold) << (8 * w + j);
    }
    if (together) {
        kept |= __shfl_xor_sync(mask, kept, apart);
        kept |= __shfl_xor_sync(mask, kept, 2 * apart);
    }
    return keep.none ? 0 : kept >> 8 * word & ((1u << N) - 1);
}

} // namespace tc
