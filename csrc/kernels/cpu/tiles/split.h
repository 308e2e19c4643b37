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

#define NO_RANGE ((tc_gemm_range){INFINITY, 0})

/* What must be known of the numbers, lane by lane. */
typedef struct lane_ranges {
    vwords least; /* twice the bits of the smallest magnitude, less 1: zeros are the largest of all */
    vreal huge;
} lane_ranges;

TC_INLINE lane_ranges no_ranges(void)
{
    lane_ranges r = {.huge = v_zero()};
    r.least = ~(vwords){0};
    return r;
}

/* 2^50 and more become NaN: then no sum of products of what is less overflows. */
TC_INLINE void extend_ranges(lane_ranges *r, vreal x)
{
    const vwords magnitude = ((vwords)x << 1) - 1;
    const vwords less = (vwords)(magnitude < r->least);
    r->least = (magnitude & less) | (r->least & ~less);
    r->huge = v_fma(x * v_set1(0x1p78f), v_zero(), r->huge);
}

static tc_gemm_range range_of(const lane_ranges *r, tc_gemm_range before)
{
    uint32_t least[TC_LANES], smallest = UINT32_MAX;
    real huge[TC_LANES];
    memcpy(least, &r->least, sizeof least);
    v_store(huge, r->huge);
    for (int i = 0; i < TC_LANES; i++) {
        if (least[i] < smallest) smallest = least[i];
        before.huge += huge[i];
    }
    if (smallest == UINT32_MAX) return before;
    const uint32_t bits = (smallest + 1) >> 1;
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    if (!(before.least < magnitude)) before.least = magnitude;
    return before;
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
TC_INLINE void split_along(const int parts, uint16_t *out, const lines_of *from, int lines, int left, lane_ranges *ranges)
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
            extend_ranges(ranges, x[j]);
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
TC_INLINE void split_across(const int parts, float *out, const lines_of *from, int lines, int left, lane_ranges *ranges)
{
    for (int k = 0; k < STEP; k += 2, out += GROUP) {
        TC_UNROLL
        for (int j = 0; j < GROUP; j += TC_LANES) {
            const int lanes = lines - j >= TC_LANES ? TC_LANES : lines - j;
            const float *at = (const float *)from->first + k * from->k + j;
            vreal even = lanes > 0 && k < left ? v_load_some(at, lanes) : v_zero();
            vreal odd = lanes > 0 && k + 1 < left ? v_load_some(at + from->k, lanes) : v_zero();
            extend_ranges(ranges, even);
            extend_ranges(ranges, odd);
            TC_UNROLL
            for (int p = 0; p < parts; p++) {
                const vreal even_part = p < 2 ? nearest_bfloat16(even) : even, odd_part = p < 2 ? nearest_bfloat16(odd) : odd;
                v_store(out + p * TILE_WORDS + j, v_join_bfloat16(even_part, odd_part));
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
                          lane_ranges *ranges)
{
    float buffer[GROUP * STEP];
    const lines_of gather = given->k != 1 && given->line != 1 ? gathered(buffer, given, lines, left) : *given, *from = &gather;
    _Alignas(64) float turned[3 * TILE_WORDS];
    const bool along = from->k == 1;
    void *to = along != pairs_down ? out : turned;
    if (along)
        split_along(parts, to, from, lines, left, ranges);
    else
        split_across(parts, to, from, lines, left, ranges);
    if (to == out) return;
    for (int p = 0; p < parts; p++) transpose_tile((float *)out + p * TILE_WORDS, turned + p * TILE_WORDS);
}

/* out [step][part][tile] <- up to 16 lines x K; the range of the group is extended. */
TC_INLINE void split_group_of(const int parts, char *out, lines_of from, int lines, int64_t K, const bool pairs_down, tc_gemm_range *range)
{
    lane_ranges ranges = no_ranges();
    for (int64_t k = 0; k < K; k += STEP, out += parts * TC_GEMM_TILE_BYTES) {
        split_unit(parts, out, &from, lines, K - k < STEP ? (int)(K - k) : STEP, pairs_down, &ranges);
        from = lines_at(from, 0, STEP);
    }
    *range = range_of(&ranges, *range);
}

static void split_group(int parts, void *out, lines_of from, int lines, int64_t K, bool pairs_down, tc_gemm_range *range)
{
    if (pairs_down)
        parts == 3   ? split_group_of(3, out, from, lines, K, true, range)
        : parts == 2 ? split_group_of(2, out, from, lines, K, true, range)
                     : split_group_of(1, out, from, lines, K, true, range);
    else
        parts == 3   ? split_group_of(3, out, from, lines, K, false, range)
        : parts == 2 ? split_group_of(2, out, from, lines, K, false, range)
                     : split_group_of(1, out, from, lines, K, false, range);
}

/* May products of numbers from these ranges be split? Below the limit parts of numbers, or their products, would be denormal, which tile
 * instructions take for zeros, at the cost of more than the rounding of a float32. */
#define LEAST_PRODUCT 0x1p-102f
TC_INLINE bool may_split(tc_gemm_range a, tc_gemm_range b)
{
    return a.least >= LEAST_PRODUCT && b.least >= LEAST_PRODUCT && a.least * b.least >= LEAST_PRODUCT && a.huge + b.huge == 0;
}

/* The range of one line, which its group's range contains. */
static tc_gemm_range range_of_line(const lines_of *from, int64_t K)
{
    tc_gemm_range range = NO_RANGE;
    for (int64_t k = 0; k < K; k++) {
        const float x = fabsf(((const float *)from->first)[k * from->k]);
        range.huge += x * 0x1p78f * 0.0f;
        if (x > 0 && x < range.least) range.least = x;
    }
    return range;
}

#endif
