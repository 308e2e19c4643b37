/* sum_rows.h: the sums of the rows of A, computed with its product: so the gradient of a bias comes with that of its weight. */
#ifndef TC_KERNELS_CPU_SUM_ROWS_H
#define TC_KERNELS_CPU_SUM_ROWS_H

#include "ahead.h"
#include "stored.h"

#define SUM_ROWS_BLOCK 1024 /* terms that are added up before they are added to the total, which stays precise for very long rows */
/* Vectors of rows that are summed together, as the terms of a k lie side by side and those of the next k perhaps pages away: 256 bytes, as
 * far as there are registers. */
#define SUM_ROWS_VECTORS (TC_LANES * sizeof(real) < 32 ? 8 : 256 / (int)(TC_LANES * sizeof(real)))
#define SUM_ROWS_AHEAD 16 /* k */

/* out (vectors) = sums over k, whose terms lie side by side; the last vector has `lanes`. How they are stored is asked for each vector:
 * they are read once, mostly from afar. */
TC_INLINE void sum_vectors(const int vectors, real *out, int64_t K, const void *a, tc_stored stored, int64_t a_col, const int lanes)
{
    vreal total[SUM_ROWS_VECTORS];
    TC_UNROLL
    for (int v = 0; v < vectors; v++) total[v] = v_zero();
    for (int64_t k = 0; k < K;) {
        vreal sum[SUM_ROWS_VECTORS];
        TC_UNROLL
        for (int v = 0; v < vectors; v++) sum[v] = v_zero();
        for (const int64_t last = K - k < SUM_ROWS_BLOCK ? K : k + SUM_ROWS_BLOCK; k < last; k++) {
            TC_UNROLL
            for (int v = 0; v < vectors; v++) {
                const int64_t at = k * a_col + v * TC_LANES;
                sum[v] = sum[v] + v_load_stored(stored_at(a, stored, at), stored, v == vectors - 1 ? lanes : TC_LANES);
                if (v * TC_LANES % LINE == 0) read_ahead(stored_at(a, stored, at + SUM_ROWS_AHEAD * a_col));
            }
        }
        TC_UNROLL
        for (int v = 0; v < vectors; v++) total[v] = total[v] + sum[v];
    }
    TC_UNROLL
    for (int v = 0; v < vectors; v++) v_store_some(out + v * TC_LANES, total[v], v == vectors - 1 ? lanes : TC_LANES);
}

/* The same of rows whose elements lie apart in any way. */
static void sum_apart(real *out, int64_t K, const void *a, tc_stored stored, int64_t a_row, int64_t a_col, int lanes)
{
    vreal total = v_zero();
    for (int64_t k = 0; k < K;) {
        real value[TC_LANES] = {0};
        for (const int64_t last = K - k < SUM_ROWS_BLOCK ? K : k + SUM_ROWS_BLOCK; k < last; k++)
            for (int l = 0; l < lanes; l++) value[l] += load_stored(stored_at(a, stored, l * a_row + k * a_col), stored);
        total = total + v_load(value);
    }
    v_store_some(out, total, lanes);
}

/* out (rows) = sum over k of a (rows, K). */
static __attribute__((noinline)) void sum_rows(real *out, int64_t rows, int64_t K, const void *a, tc_stored stored, int64_t a_row,
                                               int64_t a_col)
{
    for (int64_t i = 0; i < rows;) {
        const void *first = stored_at(a, stored, i * a_row);
        if (a_row == 1 && rows - i >= SUM_ROWS_VECTORS * TC_LANES) {
            sum_vectors(SUM_ROWS_VECTORS, out + i, K, first, stored, a_col, TC_LANES);
            i += SUM_ROWS_VECTORS * TC_LANES;
            continue;
        }
        if (a_row == 1)
            sum_vectors(1, out + i, K, first, stored, a_col, v_left(rows, i));
        else
            sum_apart(out + i, K, first, stored, a_row, a_col, v_left(rows, i));
        i += TC_LANES;
    }
}

#endif
