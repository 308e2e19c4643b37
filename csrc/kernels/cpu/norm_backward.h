/* norm_backward.h: the gradients of y = xhat * gamma + beta with xhat = (x - mean) * rstd over rows, or, not centred, xhat = x * rstd.
 *
 * With g = dy * gamma:  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without mean(g) where x was not centred;
 * dgamma = sum dy * xhat,  dbeta = sum dy. */
#ifndef TC_KERNELS_CPU_NORM_BACKWARD_H
#define TC_KERNELS_CPU_NORM_BACKWARD_H

#include "../layer_norm.h"
#include "dropout.h"
#include "rows.h"

TC_INLINE void norm_backward_row(const tc_layer_norm_backward_args *a, int64_t n, real *dgamma, real *dbeta, bool centred)
{
    const int64_t C = a->C;
    const real *x = (const real *)a->x + n * C, *dy = (const real *)a->dy + n * C, *gamma = a->gamma;
    const vreal mean = v_set1(centred ? ((const real *)a->mean)[n] : R(0.0)), rstd = v_set1(((const real *)a->rstd)[n]);
    vreal sum_g = v_zero(), sum_gx = v_zero();
    for (int64_t i = 0; i < C; i += TC_LANES) {
        const int lanes = v_left(C, i);
        const vreal d = v_load_some(dy + i, lanes), v = v_load_some(x + i, lanes);
        const vreal xhat = (centred ? v - mean : v) * rstd;
        const vreal g = v_times_some(d, gamma, TC_STORED_AS_COMPUTED, i, lanes); /* 0 beyond the row's end, so the sums are right */
        if (centred) sum_g = sum_g + g;
        sum_gx = v_fma(g, xhat, sum_gx);
        if (dgamma) v_store_some(dgamma + i, v_fma(d, xhat, v_load_some(dgamma + i, lanes)), lanes);
        if (dbeta) v_store_some(dbeta + i, d + v_load_some(dbeta + i, lanes), lanes);
    }
    real *const dx = row_or_null(a->dx || !centred ? a->dx : a->ddropped, n, C);
    if (!dx) return;
    const vreal mean_g = v_set1(centred ? v_sum(sum_g) / (real)C : R(0.0)), mean_gx = v_set1(v_sum(sum_gx) / (real)C);
    for (int64_t i = 0; i < C; i += TC_LANES) {
        const int lanes = v_left(C, i);
        const vreal d = v_load_some(dy + i, lanes), v = v_load_some(x + i, lanes);
        const vreal xhat = (centred ? v - mean : v) * rstd;
        const vreal g = v_times_some(d, gamma, TC_STORED_AS_COMPUTED, i, lanes);
        v_store_some(dx + i, rstd * ((centred ? g - mean_g : g) - xhat * mean_gx), lanes);
    }
}

/* Chunks [begin, end). */
TC_INLINE void norm_backward(const tc_layer_norm_backward_args *a, int64_t begin, int64_t end, bool centred)
{
    const int64_t block = rows_to_drop(a->C);
    for (int64_t chunk = begin; chunk < end; chunk++) {
        real *dgamma = row_or_null(a->dgamma_partial, chunk, a->C), *dbeta = row_or_null(a->dbeta_partial, chunk, a->C);
        clear_row(dgamma, a->C);
        clear_row(dbeta, a->C);
        const item_range rows = range_of_items(chunk, chunk + 1, a->rows_per_chunk, a->N);
        for (int64_t n = rows.first, last; n < rows.last; n = last) {
            last = n + block < rows.last ? n + block : rows.last;
            for (int64_t row = n; row < last; row++) norm_backward_row(a, row, dgamma, dbeta, centred);
            if (!centred || !a->ddropped) continue;
            real *const ddropped = (real *)a->ddropped + n * a->C; /* what is dropped is still in L1 */
            TC_KERNEL(drop)(&a->mask, ddropped, a->dx ? (real *)a->dx + n * a->C : ddropped, n * a->C, last * a->C);
        }
    }
}

#endif
