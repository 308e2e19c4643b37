/* philox.h: the words of ../philox.h a group at a time, in vectors of the compile's width.
 *
 * A 32-bit word is in the low half of a 64-bit lane, so a round takes two widening multiplications, two shifts and two
 * exclusive-ors per vector; the rest in the high halves is never read. Even and odd blocks are in separate vectors and are
 * interleaved at the end. Little-endian. */
#ifndef TC_CPU_PHILOX_H
#define TC_CPU_PHILOX_H

#include "../philox.h"
#include "simd.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define PHILOX_BYTES 64
#define PHILOX_MUL(a, b) ((vword)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__) && defined(__FMA__)
#define PHILOX_BYTES 32
#define PHILOX_MUL(a, b) ((vword)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#elif defined(TC_NEON)
#define PHILOX_BYTES 16
#define PHILOX_MUL(a, b) ((vword)vmull_u32(vmovn_u64(a), vmovn_u64(b)))
#elif defined(__SSE2__)
#include <emmintrin.h>
#define PHILOX_BYTES 16
#define PHILOX_MUL(a, b) ((vword)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#else
#define PHILOX_BYTES 16
#define PHILOX_MUL(a, b) (((a)&UINT32_MAX) * (b))
#endif
#define PHILOX_LANES (PHILOX_BYTES / 8)
typedef uint64_t vword __attribute__((vector_size(PHILOX_BYTES))); /* a word in the low half of each lane */

/* Blocks first, first + 2, first + 4, ... of one call, c[word]. The low half of `first` must not overflow. */
TC_INLINE void philox_blocks(vword c[4], uint64_t seed, uint64_t call, uint64_t first)
{
    const vword zero = {0}, m0 = zero + TC_PHILOX_M0, m1 = zero + TC_PHILOX_M1;
    vword step = {0};
    TC_UNROLL
    for (int i = 0; i < PHILOX_LANES; i++) step[i] = 2 * (uint64_t)i;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    c[0] = step + (first & UINT32_MAX);
    c[1] = zero + (first >> 32);
    c[2] = zero + (call & UINT32_MAX);
    c[3] = zero + (call >> 32);
    TC_UNROLL
    for (int round = 0; round < TC_PHILOX_ROUNDS; round++) {
        const vword p0 = PHILOX_MUL(c[0], m0), p1 = PHILOX_MUL(c[2], m1);
        c[0] = (p1 >> 32) ^ c[1] ^ (zero + k0);
        c[1] = p1;
        c[2] = (p0 >> 32) ^ c[3] ^ (zero + k1);
        c[3] = p0;
        k0 += TC_PHILOX_W0;
        k1 += TC_PHILOX_W1;
    }
}

/* words[i] is the word of element group * 64 + i. */
TC_INLINE void philox_group(uint32_t words[TC_PHILOX_GROUP], uint64_t seed, uint64_t call, uint64_t group)
{
    TC_UNROLL
    for (int block = 0; block < TC_PHILOX_BLOCKS; block += 2 * PHILOX_LANES) {
        const uint64_t first = group * TC_PHILOX_BLOCKS + (uint64_t)block;
        vword even[4], odd[4];
        philox_blocks(even, seed, call, first);
        philox_blocks(odd, seed, call, first + 1);
        TC_UNROLL
        for (int word = 0; word < 4; word++) {
            const vword woven = (even[word] & UINT32_MAX) | (odd[word] << 32);
            __builtin_memcpy(words + TC_PHILOX_BLOCKS * word + block, &woven, sizeof woven);
        }
    }
}

/* Lane i is set when words[i] >= threshold. */
TC_INLINE vmask v_keep(const uint32_t *words, uint32_t threshold)
{
#if PHILOX_BYTES == 64 && TC_PRECISION == 32
    return _mm512_cmpge_epu32_mask(_mm512_loadu_si512(words), _mm512_set1_epi32((int)threshold));
#elif PHILOX_BYTES == 64
    return _mm256_cmpge_epu32_mask(_mm256_loadu_si256((const __m256i *)words), _mm256_set1_epi32((int)threshold));
#elif PHILOX_BYTES == 32 && TC_PRECISION == 32
    const __m256i w = _mm256_loadu_si256((const __m256i *)words);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(w, _mm256_set1_epi32((int)threshold)), w));
#elif PHILOX_BYTES == 32
    const __m128i w = _mm_loadu_si128((const __m128i *)words);
    return _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm_cmpeq_epi32(_mm_max_epu32(w, _mm_set1_epi32((int)threshold)), w)));
#elif defined(TC_NEON) && TC_PRECISION == 32
    return (vmask)(vld1q_u32(words) >= threshold);
#elif defined(TC_NEON)
    return vmovl_s32((int32x2_t)vcge_u32(vld1_u32(words), vdup_n_u32(threshold)));
#else
    vmask keep;
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i++) keep[i] = words[i] >= threshold ? -1 : 0;
    return keep;
#endif
}

#endif
