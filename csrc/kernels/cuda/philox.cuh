// philox.cuh: the random words of ../philox.h on the GPU, four elements at a time.
#pragma once
#include "../philox.h"
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

// tc_place(), for device code, of a number that fits 32 bits, as that of a block of a grid does: divisions of such numbers are short.
__device__ __forceinline__ int64_t place_of(const tc_places &places, uint32_t i)
{
    const uint32_t row = static_cast<uint32_t>(places.row), group = i / row;
    return (places.first + group * places.step) * places.row + (i - group * row);
}

} // namespace tc
