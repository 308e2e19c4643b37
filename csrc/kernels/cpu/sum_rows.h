/* sum_rows.h: the sums of the rows of A, computed with its product: so the gradient of a bias comes with that of its weight. */
#ifndef TC_KERNELS_CPU_SUM_ROWS_H
#define TC_KERNELS_CPU_SUM_ROWS_H

#include "simd.h"

/* out (rows) = sum over k of a (rows, K). */
static void sum_rows(real *out, int64_t rows, int64_t K, const real *a, int64_t a_row, int64_t a_col)
{
    for (int64_t i = 0; i < rows; i += TC_LANES) {
        const int lanes = v_left(rows, i);
        vreal sum = v_zero();
        if (a_row == 1) {
            for (int64_t k = 0; k < K; k++) sum = sum + v_load_some(a + k * a_col + i, lanes);
        } else {
            real value[TC_LANES] = {0};
            for (int64_t k = 0; k < K; k++)
                for (int l = 0; l < lanes; l++) value[l] += a[(i + l) * a_row + k * a_col];
            sum = v_load(value);
        }
        v_store_some(out + i, sum, lanes);
    }
}

#endif
