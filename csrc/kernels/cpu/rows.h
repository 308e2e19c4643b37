/* rows.h: shared by kernels over rows: the range of an item, sums along a row, sums of columns over the rows of a chunk.
 *
 * A sum along a row takes a function that adds `lanes` elements from i on to a vector of partial sums; lanes beyond them are unchanged. The
 * function is a constant of the caller, so it is inlined, and so is the struct that `row` points to. Long rows are added in several
 * independent chains, so that an addition does not wait for the one before. The choice between the two sums changes the bits of a kernel's
 * results. */
#ifndef TC_KERNELS_CPU_ROWS_H
#define TC_KERNELS_CPU_ROWS_H

#include "lane_sums.h"
#include "stored.h"

#define ROW_CHAINS 4
#define ROW_STRIDE (ROW_CHAINS * TC_LANES)
#define ROW_BLOCK (16 * ROW_STRIDE) /* elements of a row that are added up before they are added to the total of row_sum_in_blocks */

typedef vreal (*row_term)(vreal sum, const void *row, int64_t i, int lanes);

TC_INLINE vreal row_join(const vreal chain[ROW_CHAINS]) { return (chain[0] + chain[1]) + (chain[2] + chain[3]); }

/* A vector whose v_sum() is the sum over i < C: elements after the last whole stride are added to the combined chains. */
TC_INLINE vreal row_partial_sums(row_term add, const void *row, int64_t C)
{
    vreal sum = v_zero();
    int64_t i = 0;
    if (C >= ROW_STRIDE) {
        vreal chain[ROW_CHAINS] = {v_zero(), v_zero(), v_zero(), v_zero()};
        for (; i + ROW_STRIDE <= C; i += ROW_STRIDE)
            for (int k = 0; k < ROW_CHAINS; k++) chain[k] = add(chain[k], row, i + k * TC_LANES, TC_LANES);
        sum = row_join(chain);
    }
    for (; i < C; i += TC_LANES) sum = add(sum, row, i, v_left(C, i));
    return sum;
}
TC_INLINE real row_sum(row_term add, const void *row, int64_t C) { return v_sum(row_partial_sums(add, row, C)); }

/* The same in blocks, which stays precise for very long rows. */
TC_INLINE real row_sum_in_blocks(row_term add, const void *row, int64_t C)
{
    vreal total = v_zero();
    for (int64_t first = 0; first < C; first += ROW_BLOCK) {
        const int64_t last = first + ROW_BLOCK < C ? first + ROW_BLOCK : C;
        vreal chain[ROW_CHAINS] = {v_zero(), v_zero(), v_zero(), v_zero()};
        int64_t i = first;
        for (; i + ROW_STRIDE <= last; i += ROW_STRIDE) {
            TC_UNROLL
            for (int k = 0; k < ROW_CHAINS; k++) chain[k] = add(chain[k], row, i + k * TC_LANES, TC_LANES);
        }
        for (; i < last; i += TC_LANES) chain[0] = add(chain[0], row, i, v_left(last, i));
        total = total + row_join(chain);
    }
    return v_sum(total);
}

/* v * gamma, or v without gamma; v + beta likewise. */
TC_INLINE vreal v_times_some(vreal v, const void *gamma, const tc_stored stored, int64_t i, int lanes)
{
    return gamma ? v * v_load_stored(stored_at(gamma, stored, i), stored, lanes) : v;
}
TC_INLINE vreal v_plus_some(vreal v, const void *beta, const tc_stored stored, int64_t i, int lanes)
{
    return beta ? v + v_load_stored(stored_at(beta, stored, i), stored, lanes) : v;
}

/* The rows or elements of items [begin, end), `size` per item, n in total. */
typedef struct item_range {
    int64_t first, last;
} item_range;
TC_INLINE item_range range_of_items(int64_t begin, int64_t end, int64_t size, int64_t n)
{
    return (item_range){begin * size, end * size < n ? end * size : n};
}

/* Rows of C elements that are taken together, each step for all of them before the next: a row alone would wait for its sums, divisions,
 * roots and logarithms. They stay in L1 meanwhile. */
#define ROWS_TOGETHER 16
#define ROWS_BYTES 8192
TC_INLINE int64_t rows_of_block(int64_t C)
{
    const int64_t fit = C > 0 ? ROWS_BYTES / (C * (int64_t)sizeof(real)) : 1;
    return fit < 1 ? 1 : fit < ROWS_TOGETHER ? fit : ROWS_TOGETHER;
}

/* mean[n] = v_sum(sums[n]) / C, for all rows of a block at once, which pays up to this length: adding up the lanes of longer rows is little
 * beside the rest. */
#define MOST_ADDED_TOGETHER (8 * TC_LANES)
static __attribute__((noinline, unused)) void means_of_rows(real *mean, vreal sums[ROWS_TOGETHER], int rows, int64_t C)
{
    sum_lanes(mean, sums, rows);
    for (int n = 0; n < rows; n += TC_LANES) {
        const int lanes = v_left(rows, n);
        v_store_some(mean + n, v_load_some(mean + n, lanes) / v_set1((real)C), lanes);
    }
}

/* Rows of two, four or eight vectors: loops over them are unrolled, where their number is a constant. Loops over other rows take longer to
 * begin and end than what they do to so few vectors. Of floats and wide vectors alone: each length is code of its own. */
TC_INLINE bool is_unrolled_row(int64_t C)
{
    return TC_PRECISION == 32 && TC_LANES >= 8 && (C == 2 * TC_LANES || C == 4 * TC_LANES || C == 8 * TC_LANES);
}
#define UNROLLED_VECTORS 8
#define WITH_UNROLLED_ROW(C, function, ...)                                                                                                \
    switch ((C) / TC_LANES) {                                                                                                              \
    case 2: function(2 * TC_LANES, __VA_ARGS__); break;                                                                                    \
    case 4: function(4 * TC_LANES, __VA_ARGS__); break;                                                                                    \
    default: function(8 * TC_LANES, __VA_ARGS__);                                                                                          \
    }

/* Rows that dropout takes together: several blocks of narrow ones, since each call costs as much as some hundred elements. */
TC_INLINE int64_t rows_to_drop(int64_t C)
{
    const int64_t block = rows_of_block(C), fit = C > 0 ? ROWS_BYTES / (C * (int64_t)sizeof(real)) : 1;
    return fit < block ? block : fit - fit % block;
}

/* Row n of rows of C elements, NULL if `rows` is NULL; and such a row, set to 0. */
TC_INLINE real *row_or_null(void *rows, int64_t n, int64_t C) { return rows ? (real *)rows + n * C : NULL; }
TC_INLINE void clear_row(real *row, int64_t C)
{
    for (int64_t i = 0; row && i < C; i++) row[i] = R(0.0);
}

#endif
