/* sum_rows.h: the sums of the rows of A, computed with its product: so the gradient of a bias comes with that of its weight. */
#ifndef TC_KERNELS_CPU_SUM_ROWS_H
#define TC_KERNELS_CPU_SUM_ROWS_H

#include "stored.h"

#define SUM_ROWS_BLOCK 1024 /* terms that are added up before they are added to the total, which stays precise for very long rows */

/* out (rows) = sum over k of a (rows, K). How its elements are stored is asked for each vector: it is read once, mostly from afar. */
static __attribute__((noinline)) void sum_rows(real *out, int64_t rows, int64_t K, const void *a, tc_stored stored, int64_t a_row,
                                               int64_t a_col)
{
    for (int64_t i = 0; i < rows; i += TC_LANES) {
        const int lanes = v_left(rows, i);
        vreal total = v_zero();
        for (int64_t first = 0; first < K; first += SUM_ROWS_BLOCK) {
            const int64_t last = first + SUM_ROWS_BLOCK < K ? first + SUM_ROWS_BLOCK : K;
            vreal sum = v_zero();
            if (a_row == 1) {
                for (int64_t k = first; k < last; k++) sum = sum + v_load_stored(stored_at(a, stored, k * a_col + i), stored, lanes);
            } else {
                real value[TC_LANES] = {0};
                for (int64_t k = first; k < last; k++)
                    for (int l = 0; l < lanes; l++) value[l] += load_stored(stored_at(a, stored, (i + l) * a_row + k * a_col), stored);
                sum = v_load(value);
            }
            total = total + sum;
        }
        v_store_some(out + i, total, lanes);
    }
}

#endif
