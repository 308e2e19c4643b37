/* philox.h: the words of ../philox.h a group at a time, in vectors of the compile's width.
 *
 * A 32-bit word is in the low half of a 64-bit lane, so a round takes two widening multiplications, two shifts and four
 * exclusive-ors per vector; the rest in the high halves is never read. Of four neighbouring blocks two are in one vector and two in
 * another, so that one shuffle joins the words of both, from the low halves or from the high halves of products. Little-endian. */
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
#define LAST_ROUND (TC_PHILOX_ROUNDS - 1)
typedef uint64_t vword __attribute__((vector_size(PHILOX_BYTES))); /* a word in the low half of each lane */

/* The low halves, or the high halves, of the lanes of two vectors: in each 16 bytes two of the first, then two of the second. */
#if PHILOX_BYTES == 64
#define PHILOX_SHUFFLE(a, b, which) ((vword)_mm512_shuffle_ps((__m512)(a), (__m512)(b), which))
#elif PHILOX_BYTES == 32
#define PHILOX_SHUFFLE(a, b, which) ((vword)_mm256_shuffle_ps((__m256)(a), (__m256)(b), which))
#elif defined(__SSE2__)
#define PHILOX_SHUFFLE(a, b, which) ((vword)_mm_shuffle_ps((__m128)(a), (__m128)(b), which))
#endif
#if defined(PHILOX_SHUFFLE)
TC_INLINE vword philox_low(vword first, vword second) { return PHILOX_SHUFFLE(first, second, 0x88); }
TC_INLINE vword philox_high(vword first, vword second) { return PHILOX_SHUFFLE(first, second, 0xDD); }
#elif defined(TC_NEON)
TC_INLINE vword philox_low(vword first, vword second) { return (vword)vuzp1q_u32((uint32x4_t)first, (uint32x4_t)second); }
TC_INLINE vword philox_high(vword first, vword second) { return (vword)vuzp2q_u32((uint32x4_t)first, (uint32x4_t)second); }
#else
TC_INLINE vword philox_low(vword first, vword second)
{
    return (vword){(first[0] & UINT32_MAX) | first[1] << 32, (second[0] & UINT32_MAX) | second[1] << 32};
}
TC_INLINE vword philox_high(vword first, vword second) { return philox_low(first >> 32, second >> 32); }
#endif

TC_INLINE vword philox_times_m0(vword x) { return PHILOX_MUL(x, (vword){0} + TC_PHILOX_M0); }
TC_INLINE vword philox_times_m1(vword x) { return PHILOX_MUL(x, (vword){0} + TC_PHILOX_M1); }

/* What all blocks of a call share: the keys of the rounds, in both halves of each lane, and what the first two rounds make of words that do
 * not depend on the block. */
typedef struct philox_call {
    vword keys[2][TC_PHILOX_ROUNDS];
    vword first_2, second_0; /* for word 2 after the first round, word 0 after the second */
    uint32_t first_0;        /* word 0 after the first round, where the upper half of the block's number is 0 */
} philox_call;

TC_INLINE philox_call philox_begin(uint64_t seed, uint64_t call)
{
    const vword zero = {0};
    const uint64_t both_halves = UINT64_C(0x100000001), p1 = (call & UINT32_MAX) * TC_PHILOX_M1;
    philox_call of;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    TC_UNROLL
    for (int round = 0; round < TC_PHILOX_ROUNDS; round++) {
        of.keys[0][round] = zero + k0 * both_halves;
        of.keys[1][round] = zero + k1 * both_halves;
        k0 += TC_PHILOX_W0;
        k1 += TC_PHILOX_W1;
    }
    of.first_0 = (uint32_t)(p1 >> 32) ^ (uint32_t)seed;
    of.first_2 = of.keys[1][0] ^ (call >> 32);
    of.second_0 = of.keys[0][1] ^ p1;
    return of;
}

/* The words c of blocks after three rounds. p0: the first product of the first round; second_p0: of the second, the same for all blocks. */
TC_INLINE void philox_three_rounds(vword c[4], const philox_call *of, vword p0, uint64_t second_p0)
{
    const vword p1 = philox_times_m1((p0 >> 32) ^ of->first_2), zero = {0};
    const vword q0 = philox_times_m0((p1 >> 32) ^ of->second_0), q1 = philox_times_m1(p0 ^ (of->keys[1][1] ^ (second_p0 >> 32)));
    c[0] = (q1 >> 32) ^ (p1 ^ of->keys[0][2]);
    c[1] = q1;
    c[2] = (q0 >> 32) ^ (of->keys[1][2] ^ (zero + second_p0));
    c[3] = q0;
}

TC_INLINE void philox_round(vword c[4], vword k0, vword k1)
{
    const vword p0 = philox_times_m0(c[0]), p1 = philox_times_m1(c[2]);
    c[0] = (p1 >> 32) ^ (c[1] ^ k0);
    c[1] = p1;
    c[2] = (p0 >> 32) ^ (c[3] ^ k1);
    c[3] = p0;
}

/* words[i] is the word of element group * 64 + i. */
TC_INLINE void philox_group(uint32_t words[TC_PHILOX_GROUP], const philox_call *of, uint64_t group)
{
    const uint64_t first = group * TC_PHILOX_BLOCKS; /* block; the upper half of its number is that of all */
    const uint64_t second_p0 = (uint64_t)(of->first_0 ^ (uint32_t)(first >> 32)) * TC_PHILOX_M0;
    TC_UNROLL
    for (int block = 0; block < TC_PHILOX_BLOCKS; block += 2 * PHILOX_LANES) {
        vword c[2][4], p0[2], p1[2];
        TC_UNROLL
        for (int half = 0; half < 2; half++) {
            vword more = {0}; /* by which its first product is above that of the first block */
            TC_UNROLL
            for (int i = 0; i < PHILOX_LANES; i++) more[i] = (uint64_t)(block + i / 2 * 4 + half * 2 + i % 2) * TC_PHILOX_M0;
            philox_three_rounds(c[half], of, more + (first & UINT32_MAX) * TC_PHILOX_M0, second_p0);
        }
        TC_UNROLL
        for (int round = 3; round < LAST_ROUND; round++) TC_UNROLL
        for (int half = 0; half < 2; half++) philox_round(c[half], of->keys[0][round], of->keys[1][round]);
        TC_UNROLL
        for (int half = 0; half < 2; half++) p0[half] = philox_times_m0(c[half][0]), p1[half] = philox_times_m1(c[half][2]);
        const vword w0 = philox_low(c[0][1], c[1][1]) ^ of->keys[0][LAST_ROUND],
                    w2 = philox_low(c[0][3], c[1][3]) ^ of->keys[1][LAST_ROUND];
        const vword joined[4] = {philox_high(p1[0], p1[1]) ^ w0, philox_low(p1[0], p1[1]), philox_high(p0[0], p0[1]) ^ w2,
                                 philox_low(p0[0], p0[1])};
        TC_UNROLL
        for (int word = 0; word < 4; word++) __builtin_memcpy(words + TC_PHILOX_BLOCKS * word + block, &joined[word], sizeof(vword));
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
