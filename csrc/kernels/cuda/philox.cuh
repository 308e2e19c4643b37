// philox.cuh: the random words of ../philox.h on the GPU, four elements at a time.
#pragma once
#include "../dropout.h"
#include "device.cuh"

namespace tc
{

struct PhiloxWords {
    uint32_t at[4];
};

// The words of the block that `element` is in: those of the elements 16 apart in its group, in order.
__device__ __forceinline__ PhiloxWords philox_words_here(uint64_t seed, uint64_t call, uint64_t element)
{
    const uint64_t group = element / TC_PHILOX_GROUP, block = group * TC_PHILOX_BLOCKS + element % TC_PHILOX_BLOCKS;
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    PhiloxWords c = {
        {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32)}};
    TC_UNROLL
    for (int round = 0; round < TC_PHILOX_ROUNDS; round++) {
        const uint64_t p0 = static_cast<uint64_t>(TC_PHILOX_M0) * c.at[0], p1 = static_cast<uint64_t>(TC_PHILOX_M1) * c.at[2];
        c = {{static_cast<uint32_t>(p1 >> 32) ^ c.at[1] ^ k0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ c.at[3] ^ k1,
              static_cast<uint32_t>(p0)}};
        k0 += TC_PHILOX_W0;
        k1 += TC_PHILOX_W1;
    }
    return c;
}
// The same as a call, where it is needed in several places.
__device__ __noinline__ inline PhiloxWords philox_words(uint64_t seed, uint64_t call, uint64_t element)
{
    return philox_words_here(seed, call, element);
}

// The seed and the number of a dropout that may be one of a graph's.
struct Draw {
    uint64_t seed, call;
};
__device__ __forceinline__ Draw draw_of(uint64_t seed, uint64_t call, const uint64_t *drawn)
{
    return drawn ? Draw{drawn[0], call + drawn[1]} : Draw{seed, call};
}

// tc_place(), for device code. Only a shared batch takes a division of 64 bits.
__device__ __forceinline__ int64_t place_in_batch(const tc_places &places, int64_t i)
{
    if (places.step == 1) return places.first * places.row + i;
    const int64_t group = i / places.row;
    return (places.first + group * places.step) * places.row + (i - group * places.row);
}
// The same, of a number that fits 32 bits, as that of a block of a grid does: divisions of such numbers are short.
__device__ __forceinline__ int64_t place_of(const tc_places &places, uint32_t i)
{
    const uint32_t row = static_cast<uint32_t>(places.row), group = i / row;
    return (places.first + group * places.step) * places.row + (i - group * row);
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

// Which of N neighbours are kept, bit j for element + j. N divides 16 and `element`. With `together`, the 64 / N lanes from a multiple of
// 64 / N on have the vectors of a group of elements, in order: of the blocks that the lanes of vectors 16 elements apart all need, each
// draws its share. Otherwise each lane draws all of its own.
template <int N, class Real>
__device__ __forceinline__ uint32_t kept_of_vector(const Draw &draw, const Keep<Real> &keep, uint64_t element, bool together)
{
    constexpr int lanes = TC_PHILOX_GROUP / N, apart = TC_PHILOX_BLOCKS / N, share = N < 4 ? 1 : N / 4;
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
        const unsigned lane = (threadIdx.y * blockDim.x + threadIdx.x) % warp_lanes;
        const unsigned group = (lanes < warp_lanes ? (1u << lanes % warp_lanes) - 1 : all_lanes) << lane / lanes * lanes;
        kept |= __shfl_xor_sync(group, kept, apart);
        kept |= __shfl_xor_sync(group, kept, 2 * apart);
    }
    return keep.none ? 0 : kept >> 8 * word & ((1u << N) - 1);
}

} // namespace tc
