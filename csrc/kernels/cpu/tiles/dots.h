/* dots.h: AVX512-BF16, for processors without tiles: 16 sums, to each of which one instruction adds two products of bfloat16.
 *
 * With TC_EMULATE_TILES, in builds for tests, plain C does what the instruction does, bit for bit (Intel SDM volume 2, VDPBF16PS), on any
 * processor. */
#ifndef TC_KERNELS_CPU_DOTS_H
#define TC_KERNELS_CPU_DOTS_H

#include <stdint.h>
#include <string.h>

#ifndef TC_EMULATE_TILES

#include <immintrin.h>

typedef __m512 dot_sums;
typedef __m512i dot_pairs; /* of bfloat16: two k of 16 columns */
TC_INLINE void dot_add_to(float *to, dot_sums sums) { _mm512_storeu_ps(to, _mm512_loadu_ps(to) + sums); }
TC_INLINE dot_sums dot_zero(void) { return _mm512_setzero_ps(); }
TC_INLINE dot_pairs dot_load_pairs(const char *from) { return _mm512_load_si512(from); }
TC_INLINE dot_pairs dot_repeat(const char *pair)
{
    int32_t word;
    memcpy(&word, pair, sizeof word);
    return _mm512_set1_epi32(word);
}
/* Two rows of 32 columns. */
TC_INLINE void dot_join_rows(dot_pairs columns[2], const uint16_t *even, const uint16_t *odd)
{
    const __m512i lower = _mm512_loadu_si512(even), upper = _mm512_loadu_si512(odd);
    columns[0] = _mm512_unpacklo_epi16(lower, upper);
    columns[1] = _mm512_unpackhi_epi16(lower, upper);
}
TC_INLINE dot_sums dot_add(dot_sums sums, dot_pairs a, dot_pairs b) { return _mm512_dpbf16_ps(sums, (__m512bh)a, (__m512bh)b); }

#else

#include "tiles.h"

typedef struct dot_sums {
    float sums[16];
} dot_sums;
typedef struct dot_pairs {
    uint32_t words[16];
} dot_pairs;
TC_INLINE void dot_add_to(float *to, dot_sums sums)
{
    for (int i = 0; i < 16; i++) to[i] += sums.sums[i];
}
TC_INLINE dot_sums dot_zero(void) { return (dot_sums){{0}}; }
TC_INLINE dot_pairs dot_load_pairs(const char *from)
{
    dot_pairs loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}
TC_INLINE dot_pairs dot_repeat(const char *pair)
{
    dot_pairs repeated;
    for (int i = 0; i < 16; i++) memcpy(&repeated.words[i], pair, sizeof *repeated.words);
    return repeated;
}
TC_INLINE void dot_join_rows(dot_pairs columns[2], const uint16_t *even, const uint16_t *odd)
{
    for (int j = 0; j < 32; j++) columns[j / 4 % 2].words[j / 8 * 4 + j % 4] = (uint32_t)odd[j] << 16 | even[j];
}
/* The odd k first, then the even one. */
TC_INLINE dot_sums dot_add(dot_sums sums, dot_pairs a, dot_pairs b)
{
    for (int i = 0; i < 16; i++) {
        const uint32_t x = a.words[i], y = b.words[i];
        const float odd = tile_flushed(fmaf(tile_bfloat16(x & 0xFFFF0000u), tile_bfloat16(y & 0xFFFF0000u), tile_flushed(sums.sums[i])));
        sums.sums[i] = tile_flushed(fmaf(tile_bfloat16(x << 16), tile_bfloat16(y << 16), odd));
    }
    return sums;
}

#endif

#endif
