// philox.cuh: the random words of ../philox.h on the GPU, one element at a time.
#pragma once
#include "../philox.h"
#include "device.cuh"

namespace tc
{

// The word of an element; dropout keeps the element when it is at least the threshold.
__device__ __noinline__ inline uint32_t philox_word(uint64_t seed, uint64_t call, uint64_t element)
{
    const uint64_t group = element / TC_PHILOX_GROUP, block = group * TC_PHILOX_BLOCKS + element % TC_PHILOX_BLOCKS;
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    uint32_t c[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(call),
                     static_cast<uint32_t>(call >> 32)};
    TC_UNROLL
    for (int round = 0; round < TC_PHILOX_ROUNDS; round++) {
        const uint64_t p0 = static_cast<uint64_t>(TC_PHILOX_M0) * c[0], p1 = static_cast<uint64_t>(TC_PHILOX_M1) * c[2];
        const uint32_t next[4] = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
                                  static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
        TC_UNROLL
        for (int i = 0; i < 4; i++) c[i] = next[i];
        k0 += TC_PHILOX_W0;
        k1 += TC_PHILOX_W1;
    }
    const int word = static_cast<int>(element / TC_PHILOX_BLOCKS % 4);
    return word == 0 ? c[0] : word == 1 ? c[1] : word == 2 ? c[2] : c[3];
}

// tc_keep_threshold(), for device code.
__device__ __forceinline__ uint32_t keep_threshold(double p)
{
    const double threshold = p * 4294967296.0 + 0.5;
    return threshold < 4294967295.0 ? static_cast<uint32_t>(threshold) : UINT32_MAX;
}

} // namespace tc
