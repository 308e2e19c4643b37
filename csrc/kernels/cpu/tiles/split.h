/* split.h: float32 as sums of bfloat16, in the form that tile instructions read. Included by gemm.c only.
 *
 * A line is a row of A or a column of B. A unit is 16 lines x 32 k of one part: a tile. That of A has a line in each row; that of B has two
 * k in each row, those of a line beside one another. */
#ifndef TC_KERNELS_CPU_SPLIT_H
#define TC_KERNELS_CPU_SPLIT_H

#include <math.h>
#include <string.h>

#include "../../gemm.h"
#include "../stored.h"
#include "../transpose.h"

#define GROUP TC_GEMM_GROUP
#define STEP TC_GEMM_STEP
#define TILE_WORDS (TC_GEMM_TILE_BYTES / 4)

/* Lines of an operand: element (i, j) is i * line + j * k elements after the first. */
typedef struct lines_of {
    const void *first;
    int64_t line, k;
    tc_stored stored; /* as float32, or as bfloat16: halves.h */
} lines_of;

TC_INLINE const void *line_at(const lines_of *from, int64_t line, int64_t k)
{
    return stored_at(from->first, from->stored, line * from->line + k * from->k);
}
TC_INLINE lines_of lines_at(lines_of from, int64_t line, int64_t k)
{
    from.first = line_at(&from, line, k);
    return from;
}

/* Twice the bits of the largest magnitude of each line: in each lane of the line's own vector where its k are adjacent, otherwise in its
 * lane. */
typedef struct line_magnitudes {
    vwords largest[GROUP];
} line_magnitudes;

TC_INLINE vwords larger(vwords known, vreal x)
{
    const vwords magnitude = (vwords)x << 1, more = (vwords)(magnitude > known);
    return (magnitude & more) | (known & ~more);
}

static void extend_range(tc_gemm_range *range, const line_magnitudes *m, bool along)
{
    uint32_t lanes[GROUP * TC_LANES];
    memcpy(lanes, m->largest, sizeof lanes);
    for (int i = 0; i < GROUP; i++)
        for (int j = 0; j < (along ? TC_LANES : 1); j++) {
            const uint32_t bits = lanes[along ? i * TC_LANES + j : i] >> 1;
            if (bits > range->largest[i]) range->largest[i] = bits;
        }
}

/* The nearest number of 8 bits (Veltkamp 1968): a bfloat16, in the upper half of each lane. */
TC_INLINE vreal nearest_bfloat16(vreal x)
{
    const vreal scaled = x * v_set1(65537.0f);
    return scaled - (scaled - x);
}

/* The 32 upper halves of vectors. */
TC_INLINE void store_upper_halves(uint16_t *out, const vreal x[STEP / TC_LANES])
{
#if TC_LANES == 16
    static const uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                     33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    _mm512_storeu_si512(out, _mm512_permutex2var_epi16(_mm512_castps_si512(x[0]), _mm512_loadu_si512(odd), _mm512_castps_si512(x[1])));
#else
    TC_UNROLL
    for (int j = 0; j < STEP / TC_LANES; j++) v_half_store(out + j * TC_LANES, v_upper_halves(x[j]));
#endif
}

/* Lines whose k are adjacent. */
TC_INLINE void split_along(const int parts, uint16_t *out, const lines_of *from, int lines, int left, line_magnitudes *magnitudes)
{
    for (int i = 0; i < GROUP; i++, out += STEP) {
        if (i >= lines) {
            for (int p = 0; p < parts; p++) memset(out + p * 2 * TILE_WORDS, 0, STEP * sizeof *out);
            continue;
        }
        vreal x[STEP / TC_LANES];
        TC_UNROLL
        for (int j = 0; j < STEP / TC_LANES; j++) {
            const int k = j * TC_LANES, lanes = left - k >= TC_LANES ? TC_LANES : left - k;
            x[j] = lanes > 0 ? v_load_some((const float *)from->first + i * from->line + k, lanes) : v_zero();
            magnitudes->largest[i] = larger(magnitudes->largest[i], x[j]);
        }
        TC_UNROLL
        for (int p = 0; p < parts; p++) {
            vreal part[STEP / TC_LANES];
            TC_UNROLL
            for (int j = 0; j < STEP / TC_LANES; j++) {
                part[j] = p < 2 ? nearest_bfloat16(x[j]) : x[j];
                x[j] = x[j] - part[j];
            }
            store_upper_halves(out + p * 2 * TILE_WORDS, part);
        }
    }
}

/* Lines that are adjacent: two k at a time, which become the halves of words. */
TC_INLINE void split_across(const int parts, float *out, const lines_of *from, int lines, int left, line_magnitudes *magnitudes)
{
    for (int k = 0; k < STEP; k += 2, out += GROUP) {
        TC_UNROLL
        for (int j = 0; j < GROUP; j += TC_LANES) {
            const int lanes = lines - j >= TC_LANES ? TC_LANES : lines - j;
            const float *at = (const float *)from->first + k * from->k + j;
            vreal even = lanes > 0 && k < left ? v_load_some(at, lanes) : v_zero();
            vreal odd = lanes > 0 && k + 1 < left ? v_load_some(at + from->k, lanes) : v_zero();
            vwords *const largest = &magnitudes->largest[j / TC_LANES];
            *largest = larger(larger(*largest, even), odd);
            TC_UNROLL
            for (int p = 0; p < parts; p++) {
                const vreal even_part = p < 2 ? nearest_bfloat16(even) : even, odd_part = p < 2 ? nearest_bfloat16(odd) : odd;
                v_store(out + p * TILE_WORDS + j,
                        v_join_bfloat16(even_part, v_upper_bfloat16(odd_part))); /* denormal parts have more bits */
                even = even - even_part, odd = odd - odd_part;
            }
        }
    }
}

/* The words of a tile, lines <-> pairs of k. */
static __attribute__((noinline)) void transpose_tile(float *out, const float *in)
{
    for (int i = 0; i < GROUP; i += TC_LANES)
        for (int j = 0; j < GROUP; j += TC_LANES) {
            vreal block[TC_LANES];
            TC_UNROLL
            for (int r = 0; r < TC_LANES; r++) block[r] = v_load(in + (i + r) * GROUP + j);
            v_transpose(block);
            TC_UNROLL
            for (int r = 0; r < TC_LANES; r++) v_store(out + (j + r) * GROUP + i, block[r]);
        }
}

/* Neither stride is 1. */
static lines_of gathered(float *buffer, const lines_of *from, int lines, int left)
{
    for (int i = 0; i < lines; i++)
        for (int k = 0; k < left; k++) buffer[i * STEP + k] = ((const float *)from->first)[i * from->line + k * from->k];
    return (lines_of){buffer, STEP, 1, TC_STORED_AS_COMPUTED};
}

TC_INLINE void split_unit(const int parts, void *out, const lines_of *given, int lines, int left, const bool pairs_down,
                          line_magnitudes *magnitudes)
{
    float buffer[GROUP * STEP];
    const lines_of gather = given->k != 1 && given->line != 1 ? gathered(buffer, given, lines, left) : *given, *from = &gather;
    _Alignas(64) float turned[3 * TILE_WORDS];
    const bool along = from->k == 1;
    void *to = along != pairs_down ? out : turned;
    if (along)
        split_along(parts, to, from, lines, left, magnitudes);
    else
        split_across(parts, to, from, lines, left, magnitudes);
    if (to == out) return;
    for (int p = 0; p < parts; p++) transpose_tile((float *)out + p * TILE_WORDS, turned + p * TILE_WORDS);
}

/* out [step][part][tile] <- up to 16 lines x K; the range of the group is extended. */
TC_INLINE void split_group_of(const int parts, char *out, lines_of from, int lines, int64_t K, const bool pairs_down, tc_gemm_range *range)
{
    line_magnitudes magnitudes = {0};
    for (int64_t k = 0; k < K; k += STEP, out += parts * TC_GEMM_TILE_BYTES) {
        split_unit(parts, out, &from, lines, K - k < STEP ? (int)(K - k) : STEP, pairs_down, &magnitudes);
        from = lines_at(from, 0, STEP);
    }
    extend_range(range, &magnitudes, from.k == 1 || from.line != 1);
}

#ifdef TC_DOTS
#define MOST_PARTS 1
#else
#define MOST_PARTS 3
#endif

static void split_group(int parts, void *out, lines_of from, int lines, int64_t K, bool pairs_down, tc_gemm_range *range)
{
    if (pairs_down && parts == 1)
        split_group_of(1, out, from, lines, K, true, range);
    else if (parts == 1)
        split_group_of(1, out, from, lines, K, false, range);
#if MOST_PARTS == 3
    else if (pairs_down)
        parts == 3 ? split_group_of(3, out, from, lines, K, true, range) : split_group_of(2, out, from, lines, K, true, range);
    else
        parts == 3 ? split_group_of(3, out, from, lines, K, false, range) : split_group_of(2, out, from, lines, K, false, range);
#endif
}

/* The lines of a group that are not all zeros, by their largest magnitudes. */
typedef struct group_magnitudes {
    float least; /* infinity where all are zeros */
    bool huge;   /* 2^50 or more, infinite or not a number: sums of products of what is less do not overflow */
} group_magnitudes;

#define HUGE_BITS 0x58800000u /* of 2^50 */
static group_magnitudes magnitudes_of(const uint32_t *largest, int lines)
{
    group_magnitudes m = {INFINITY, false};
    for (int i = 0; i < lines; i++) {
        float magnitude;
        memcpy(&magnitude, &largest[i], sizeof magnitude);
        m.huge |= largest[i] >= HUGE_BITS;
        if (largest[i] && magnitude < m.least) m.least = magnitude;
    }
    return m;
}

/* May products of these lines be split? Tile instructions take denormal parts of numbers, and denormal products, for zeros. Where the
 * largest magnitudes multiply to this and more, that is less than the rounding of a float32 beside their product; what is smaller in the
 * same line loses no more than that either. */
#define LEAST_PRODUCT 0x1p-80f
TC_INLINE bool may_split(group_magnitudes a, group_magnitudes b)
{
    return !a.huge && !b.huge && a.least >= LEAST_PRODUCT && b.least >= LEAST_PRODUCT && a.least * b.least >= LEAST_PRODUCT;
}

#endif
