/* gemm_pack.h: copies of operands in the form that tiles read: panels of B, blocks of A. Included by gemm.c and gemm_tiles.h. */
#ifndef TC_KERNELS_CPU_GEMM_PACK_H
#define TC_KERNELS_CPU_GEMM_PACK_H

#include <string.h>

#include "../gemm.h"
#include "ahead.h"
#include "stored.h"
#include "tile.h"
#include "transpose.h"

#define PANEL (TC_GEMM_PANEL_BYTES / (int)sizeof(real)) /* columns of a panel */
#define PANEL_VECTORS (PANEL / TC_LANES)
#define ROWS_AHEAD 16     /* rows of memory that are asked for while others are copied, */
#define COLUMNS_APART 256 /* where they have so many elements: processors read shorter ones ahead by themselves */

/* Stores what was loaded: as it was computed with, or, `raised`, the halves that stand in the upper parts of the lanes. */
TC_INLINE void store_packed(void *out, const bool raised, int64_t i, vreal x)
{
#if TC_PRECISION == 32
    if (raised) {
        v_half_store((uint16_t *)out + i, v_upper_halves(x));
        return;
    }
#endif
    (void)raised;
    v_store((real *)out + i, x);
}

/* out (K, PANEL) <- `cols` columns of b, the rest zeros. A bfloat16 is a float32's upper half, so float16 are moved as they are when
 * they are loaded as bfloat16 and stored `raised`. */
TC_INLINE void pack_panel_of(const tc_stored stored, const bool raised, void *out, int64_t K, int cols, const void *b, int64_t b_row,
                             int64_t b_col)
{
    for (int v = 0; v < PANEL; v += TC_LANES, cols -= TC_LANES) {
        const int lanes = cols <= 0 ? 0 : cols < TC_LANES ? cols : TC_LANES;
        const void *from = lanes > 0 ? stored_at(b, stored, v * b_col) : b;
        if (b_col == 1) {
            for (int64_t k = 0; k < K; k++)
                store_packed(out, raised, k * PANEL + v, v_load_stored(stored_at(from, stored, k * b_row), stored, lanes));
        } else if (b_row == 1) {
            for (int64_t k = 0; k < K; k += TC_LANES) {
                const int rows = v_left(K, k);
                vreal block[TC_LANES];
                if (stored == TC_STORED_AS_COMPUTED && rows == TC_LANES && lanes == TC_LANES) {
                    v_load_transposed(block, (const real *)from + k, b_col, TC_LANES, TC_LANES);
                    TC_UNROLL
                    for (int i = 0; i < TC_LANES; i++) v_store((real *)out + (k + i) * PANEL + v, block[i]);
                    continue;
                }
                TC_UNROLL
                for (int i = 0; i < TC_LANES; i++)
                    block[i] = i < lanes ? v_load_stored(stored_at(from, stored, i * b_col + k), stored, rows) : v_zero();
                v_transpose(block);
                for (int i = 0; i < rows; i++) store_packed(out, raised, (k + i) * PANEL + v, block[i]);
            }
        } else {
            for (int64_t k = 0; k < K; k++) {
                real line[TC_LANES] = {0};
                for (int i = 0; i < lanes; i++) line[i] = load_stored(stored_at(from, stored, k * b_row + i * b_col), stored);
                store_packed(out, raised, k * PANEL + v, v_load(line));
            }
        }
    }
}

#if TC_LANES == 2
#define EVERY_OTHER_OF_TWO 0, 3
#elif TC_LANES == 4
#define EVERY_OTHER_OF_TWO 0, 2, 5, 7
#elif TC_LANES == 8
#define EVERY_OTHER_OF_TWO 0, 2, 4, 6, 9, 11, 13, 15
#else
#define EVERY_OTHER_OF_TWO 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31
#endif

/* Offsets that follow one another, `step` apart: 1 or 2. */
typedef struct offset_run {
    int count, step;
} offset_run;

/* Are TC_LANES offsets from the first to the last of a run? Without branches. */
TC_INLINE bool is_whole_run(const int64_t *offsets, int64_t first, int step)
{
    int64_t differ = 0;
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i++) differ |= offsets[i] - first - i * step;
    return differ == 0;
}

/* The run that begins with the first offset, of which `most` are looked at. Called, not copied to its callers: it is in every object of the
 * product. */
static __attribute__((noinline)) offset_run run_of(const int64_t *offsets, int most)
{
    offset_run run = {0, most > 1 && offsets[1] == offsets[0] + 2 ? 2 : 1};
    while (run.count + TC_LANES <= most && is_whole_run(offsets + run.count, offsets[0] + run.count * run.step, run.step))
        run.count += TC_LANES;
    while (run.count < most && offsets[run.count] == offsets[0] + run.count * run.step) run.count++;
    return run;
}

/* The elements of a run of at most TC_LANES offsets. What is between its ends is read, and nothing else. */
TC_INLINE vreal load_run(const real *from, const int step, int lanes)
{
    if (step == 1) return v_load_some(from, lanes);
    const real *const rest = from + (TC_LANES - 1);
    if (lanes == TC_LANES) return TC_SHUFFLE(v_load(from), v_load(rest), EVERY_OTHER_OF_TWO);
    const int reach = 2 * lanes - 1;
    return TC_SHUFFLE(v_load_n(from, reach < TC_LANES ? reach : TC_LANES), v_load_n(rest, reach < TC_LANES ? 0 : reach + 1 - TC_LANES),
                      EVERY_OTHER_OF_TWO);
}

/* One vector of columns of pack_windows: run by run, and zeros. */
TC_INLINE void pack_column_runs(real *out, int64_t K, const int lanes, const real *b, const int64_t *rows, const int64_t *cols)
{
    offset_run run;
    for (int first = 0; first < lanes; first += run.count) {
        run = run_of(cols + first, lanes - first);
        const int stored = first + run.count == lanes ? TC_LANES - first : run.count;
        const real *const from = b + cols[first];
        if (run.step == 1)
            for (int64_t k = 0; k < K; k++) v_store_some(out + k * PANEL + first, load_run(from + rows[k], 1, run.count), stored);
        else
            for (int64_t k = 0; k < K; k++) v_store_some(out + k * PANEL + first, load_run(from + rows[k], 2, run.count), stored);
    }
}

/* The same for columns that lie apart: runs of rows are transposed. Lanes beyond `lanes` repeat the last column. */
TC_INLINE void pack_row_runs(real *out, int64_t K, const int lanes, const real *b, const int64_t *rows, const int64_t *cols)
{
    int64_t column[TC_LANES];
    offset_run run;
    for (int i = 0; i < TC_LANES; i++) column[i] = cols[i < lanes ? i : lanes - 1];
    for (int64_t k = 0; k < K; k += run.count) {
        const real *const from = b + rows[k];
        vreal block[TC_LANES];
        const bool whole = K - k >= TC_LANES && is_whole_run(rows + k, rows[k], 1);
        run = whole ? (offset_run){TC_LANES, 1} : run_of(rows + k, v_left(K, k));
        if (run.count == 1) {
            TC_UNROLL_BY(1)
            for (int i = 0; i < TC_LANES; i++) out[k * PANEL + i] = from[column[i]];
            continue;
        }
        TC_UNROLL
        for (int i = 0; i < TC_LANES; i++) {
            const real *const column_from = from + column[i];
            block[i] = whole ? v_load(column_from) : load_run(column_from, run.step, run.count);
        }
        v_transpose_by_halves(block);
        for (int i = 0; i < TC_LANES; i++)
            if (i < run.count) v_store(out + (k + i) * PANEL, block[i]);
    }
}

/* out (K, PANEL) <- `cols` columns of windows, the rest zeros: element (k,n) at b[b_rows[k] + b_cols[n]]. */
static __attribute__((noinline)) void pack_windows(real *out, int64_t K, int cols, const real *b, const int64_t *b_rows,
                                                   const int64_t *b_cols)
{
    const offset_run whole = run_of(b_cols, cols);
    if (whole.count == PANEL && whole.step == 1) {
        for (int64_t k = 0; k < K; k++, out += PANEL) {
            const real *from = b + b_rows[k] + b_cols[0];
            TC_UNROLL
            for (int v = 0; v < PANEL; v += TC_LANES) v_store(out + v, v_load(from + v));
        }
        return;
    }
    for (int v = 0; v < PANEL && K > 0; v += TC_LANES, cols -= TC_LANES) {
        const int lanes = cols <= 0 ? 0 : cols < TC_LANES ? cols : TC_LANES;
        int runs = 0;
        if (!lanes)
            for (int64_t k = 0; k < K; k++) v_store(out + k * PANEL + v, v_zero());
        for (int i = 0; i < lanes; runs++) i += run_of(b_cols + v + i, lanes - i).count;
        if ((runs < 2 || runs < lanes) && runs * run_of(b_rows, v_left(K, 0)).count <= TC_LANES) /* parts of vectors, not elements */
            pack_column_runs(out + v, K, lanes, b, b_rows, b_cols + v);
        else
            pack_row_runs(out + v, K, lanes, b, b_rows, b_cols + v);
    }
}

#if TC_PRECISION == 32
#define PAIRED_ROWS 32 /* packed at a time */

/* out (pairs of K, PANEL) words <- `cols` columns of b, bfloat16. */
static void pack_pairs(float *out, int64_t K, int cols, const void *b, int64_t b_row, int64_t b_col)
{
    real rows[PAIRED_ROWS * PANEL];
    for (int64_t k = 0; k < K; k += PAIRED_ROWS) {
        const int64_t left = K - k < PAIRED_ROWS ? K - k : PAIRED_ROWS;
        pack_panel_of(TC_STORED_BFLOAT16, false, rows, left, cols, stored_at(b, TC_STORED_BFLOAT16, k * b_row), b_row, b_col);
        if (left % 2) memset(rows + left * PANEL, 0, PANEL * sizeof(real));
        for (int64_t i = 0; i < left; i += 2, out += PANEL)
            for (int v = 0; v < PANEL; v += TC_LANES)
                v_store(out + v, v_join_bfloat16(v_load(rows + i * PANEL + v), v_load(rows + (i + 1) * PANEL + v)));
    }
}

/* out (K, PANEL), from the first row of a pair on. */
static void widen_pairs(real *out, int64_t K, const float *pairs)
{
    for (int64_t k = 0; k < K; k += 2, out += 2 * PANEL, pairs += PANEL)
        for (int v = 0; v < PANEL; v += TC_LANES) {
            const vreal words = v_load(pairs + v);
            v_store(out + v, v_lower_bfloat16(words));
            if (k + 1 < K) v_store(out + PANEL + v, v_upper_bfloat16(words));
        }
}
#endif

static void pack_panel(void *out, tc_stored out_stored, int64_t K, int cols, const void *b, tc_stored b_stored, int64_t b_row,
                       int64_t b_col)
{
#if TC_PRECISION == 32
    if (out_stored == TC_STORED_BFLOAT16) {
        pack_pairs(out, K, cols, b, b_row, b_col);
        return;
    }
    if (out_stored == TC_STORED_FLOAT16) {
        pack_panel_of(TC_STORED_BFLOAT16, true, out, K, cols, b, b_row, b_col);
        return;
    }
#endif
    (void)out_stored;
    WITH_STORED(b_stored, pack_panel_of, false, out, K, cols, b, b_row, b_col);
}

/* `count` panels <- as many whole ones of b, whose columns are adjacent: so much of each row at a time, as rows may lie pages apart. */
TC_INLINE void pack_adjacent(const int count, real *out, int64_t out_panel, int64_t K, const real *b, int64_t b_row)
{
    for (int64_t k = 0; k < K; k++, out += PANEL, b += b_row) {
        for (int p = 0; p < count; p++) {
            for (int v = 0; v < PANEL; v += TC_LANES) v_store(out + p * out_panel + v, v_load(b + p * PANEL + v));
            read_ahead(b + ROWS_AHEAD * b_row + p * PANEL);
        }
    }
}

/* The first panels of `cols` columns, out_panel elements from one to the next. How many: some that lie side by side, or one. */
static int pack_panels(void *out, int64_t out_panel, tc_stored out_stored, int64_t K, int64_t cols, const void *b, tc_stored b_stored,
                       int64_t b_row, int64_t b_col)
{
    if (b_col == 1 && out_stored == TC_STORED_AS_COMPUTED && b_stored == TC_STORED_AS_COMPUTED && cols >= 2 * PANEL) {
        const int count = cols >= 4 * PANEL ? 4 : 2;
        if (count == 4)
            pack_adjacent(4, out, out_panel, K, b, b_row);
        else
            pack_adjacent(2, out, out_panel, K, b, b_row);
        return count;
    }
    pack_panel(out, out_stored, K, cols < PANEL ? (int)cols : PANEL, b, b_stored, b_row, b_col);
    return 1;
}

/* Columns [0, K) of `rows` <= TC_TILE_ROWS rows of a, of which there are `left` to read, to out[k * rows + i]. Reads full vectors where it
 * may; stores full vectors, each over the excess of the one before, and up to one vector beyond the end, but where a_row is 1. */
TC_INLINE void pack_tile_rows_of(const tc_stored stored, real *out, int rows, int left, int64_t K, const void *a, int64_t a_row,
                                 int64_t a_col)
{
    enum { GROUPS = (TC_TILE_ROWS + TC_LANES - 1) / TC_LANES };
    const int readable = left > rows ? left : rows;
    if (a_row == 1) {
        const bool apart = a_col >= COLUMNS_APART;
        for (int64_t k = 0; k < K; k++)
            for (int i = 0; i < rows; i += TC_LANES) {
                const vreal x = v_load_stored(stored_at(a, stored, k * a_col + i), stored, v_left(readable, i));
                if (apart) read_ahead(stored_at(a, stored, (k + ROWS_AHEAD) * a_col + i + TC_LANES - 1)); /* of two lines the new one */
                v_store_some(out + k * rows + i, x, v_left((K - k) * rows, i));
            }
    } else if (a_col == 1) {
        for (int64_t k = 0; k < K; k += TC_LANES) {
            const int some = v_left(K, k);
            vreal block[GROUPS][TC_LANES];
            TC_UNROLL
            for (int g = 0; g < GROUPS; g++) {
                TC_UNROLL
                for (int i = 0; i < TC_LANES; i++) {
                    const int row = g * TC_LANES + i;
                    block[g][i] = row < rows ? v_load_stored(stored_at(a, stored, row * a_row + k), stored, some) : v_zero();
                }
                v_transpose(block[g]);
            }
            for (int i = 0; i < some; i++)
                for (int g = 0; g * TC_LANES < rows; g++) v_store(out + (k + i) * rows + g * TC_LANES, block[g][i]);
        }
    } else {
        for (int64_t k = 0; k < K; k++)
            for (int i = 0; i < rows; i++) out[k * rows + i] = load_stored(stored_at(a, stored, i * a_row + k * a_col), stored);
    }
}

static void pack_tile_rows(real *out, int rows, int left, int64_t K, const void *a, tc_stored stored, int64_t a_row, int64_t a_col)
{
    WITH_STORED(stored, pack_tile_rows_of, out, rows, left, K, a, a_row, a_col);
}

/* out (K) <- a row of a. */
TC_INLINE void copy_row(const tc_stored stored, real *out, int64_t K, const void *a, int64_t a_col)
{
    if (a_col == 1) {
        read_stored(out, a, stored, K);
    } else {
        for (int64_t k = 0; k < K; k++) out[k] = load_stored(stored_at(a, stored, k * a_col), stored);
    }
}

static void copy_rows(real *out, int64_t out_row, int64_t rows, int64_t K, const void *a, tc_stored stored, int64_t a_row, int64_t a_col)
{
    for (int64_t i = 0; i < rows; i++, out += out_row) {
        const void *from = stored_at(a, stored, i * a_row);
        WITH_STORED(stored, copy_row, out, K, from, a_col);
    }
}

#endif
