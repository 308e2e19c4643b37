/* halves.h: bfloat16 in the form that tile instructions read, which is how they are: a group of them is moved, not split. Included by
 * gemm.c only.
 *
 * Products of two are exact in float32, infinities and NaN are multiplied as everywhere; denormals count as zeros. */
#ifndef TC_KERNELS_CPU_HALVES_H
#define TC_KERNELS_CPU_HALVES_H

#include "split.h"

/* Lines whose k are adjacent. */
TC_INLINE void move_along(uint16_t *out, const lines_of *from, int lines, int left)
{
    for (int i = 0; i < GROUP; i++, out += STEP) {
        if (i < lines && left == STEP) {
            memcpy(out, line_at(from, i, 0), STEP * sizeof *out);
        } else {
            memset(out, 0, STEP * sizeof *out);
            if (i < lines) memcpy(out, line_at(from, i, 0), (size_t)left * sizeof *out);
        }
    }
}

/* Lines that are adjacent: two k at a time, which become the halves of words. */
TC_INLINE void move_across(float *out, const lines_of *from, int lines, int left)
{
    for (int k = 0; k < STEP; k += 2, out += GROUP) {
        TC_UNROLL
        for (int j = 0; j < GROUP; j += TC_LANES) {
            const int lanes = lines - j >= TC_LANES ? TC_LANES : lines - j;
            const uint16_t *even = line_at(from, j, k), *odd = line_at(from, j, k + 1);
            const vreal lower = lanes > 0 && k < left ? v_load_stored(even, TC_STORED_BFLOAT16, lanes) : v_zero();
            const vreal upper = lanes > 0 && k + 1 < left ? v_load_stored(odd, TC_STORED_BFLOAT16, lanes) : v_zero();
            v_store(out + j, v_join_bfloat16(lower, upper));
        }
    }
}

/* Two rows of up to 32 adjacent numbers, NULL for zeros, as words of a row of two tiles: 4 of them to the first, 4 to the second and so on,
 * which is one instruction for each tile. */
TC_INLINE void store_joined(float *first, float *second, const uint16_t *even, const uint16_t *odd, int cols)
{
#if TC_LANES == 16
    const __mmask32 mask = (__mmask32)(0xFFFFFFFFu >> (32 - cols));
    const __m512i lower = even ? _mm512_maskz_loadu_epi16(mask, even) : _mm512_setzero_si512();
    const __m512i upper = odd ? _mm512_maskz_loadu_epi16(mask, odd) : _mm512_setzero_si512();
    _mm512_store_si512(first, _mm512_unpacklo_epi16(lower, upper));
    _mm512_store_si512(second, _mm512_unpackhi_epi16(lower, upper));
#else
    for (int j = 0; j < 2 * GROUP; j++) {
        const uint32_t lower = even && j < cols ? even[j] : 0, upper = odd && j < cols ? odd[j] : 0, word = upper << 16 | lower;
        memcpy((j / 4 % 2 ? second : first) + j / 8 * 4 + j % 4, &word, sizeof word);
    }
#endif
}

/* Sums of 32 columns that were stored so, into their order; and one row out of it. */
static void order_columns(float *sums, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++, sums += 2 * GROUP) {
        float row[2 * GROUP];
        memcpy(row, sums, sizeof row);
        for (int j = 0; j < GROUP; j += 4) {
            memcpy(sums + 2 * j, row + j, 4 * sizeof *row);
            memcpy(sums + 2 * j + 4, row + GROUP + j, 4 * sizeof *row);
        }
    }
}
static void disorder_columns(float *columns)
{
    float row[2 * GROUP];
    memcpy(row, columns, sizeof row);
    for (int j = 0; j < GROUP; j += 4) {
        memcpy(columns + j, row + 2 * j, 4 * sizeof *row);
        memcpy(columns + GROUP + j, row + 2 * j + 4, 4 * sizeof *row);
    }
}

/* `rows` of k, of which there are `left`, of up to 32 adjacent lines: to rows of two tiles. */
static void move_rows(float *first, float *second, lines_of from, int cols, int left, int rows)
{
    const uint16_t *row = from.first;
    if (left >= rows && cols == 2 * GROUP) {
        for (int k = 0; k < rows; k += 2, row += 2 * from.k, first += GROUP, second += GROUP)
            store_joined(first, second, row, row + from.k, 2 * GROUP);
        return;
    }
    for (int k = 0; k < rows; k += 2, row += 2 * from.k, first += GROUP, second += GROUP)
        store_joined(first, second, k < left ? row : NULL, k + 1 < left ? row + from.k : NULL, cols);
}

/* Neither stride is 1. */
static lines_of gathered_halves(uint16_t *buffer, const lines_of *from, int lines, int left)
{
    for (int i = 0; i < lines; i++)
        for (int k = 0; k < left; k++) buffer[i * STEP + k] = *(const uint16_t *)line_at(from, i, k);
    return (lines_of){buffer, STEP, 1, TC_STORED_BFLOAT16};
}

static void move_unit(void *out, const lines_of *given, int lines, int left, const bool pairs_down)
{
    uint16_t buffer[GROUP * STEP];
    const lines_of gather = given->k != 1 && given->line != 1 ? gathered_halves(buffer, given, lines, left) : *given, *from = &gather;
    _Alignas(64) float turned[TILE_WORDS];
    const bool along = from->k == 1;
    void *to = along != pairs_down ? out : turned;
    if (along)
        move_along(to, from, lines, left);
    else
        move_across(to, from, lines, left);
    if (to != out) transpose_tile(out, turned);
}

/* out [step][tile] <- up to 16 lines x K. */
static void move_group(char *out, lines_of from, int lines, int64_t K, bool pairs_down)
{
    for (int64_t k = 0; k < K; k += STEP, out += TC_GEMM_TILE_BYTES) {
        move_unit(out, &from, lines, K - k < STEP ? (int)(K - k) : STEP, pairs_down);
        from = lines_at(from, 0, STEP);
    }
}

#endif
