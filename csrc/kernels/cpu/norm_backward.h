/* norm_backward.h: the gradients of y = xhat * gamma + beta with xhat = (x - mean) * rstd over rows, or, not centred, xhat = x * rstd.
 *
 * With g = dy * gamma:  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without mean(g) where x was not centred;
 * dgamma = sum dy * xhat,  dbeta = sum dy. */
#ifndef TC_KERNELS_CPU_NORM_BACKWARD_H
#define TC_KERNELS_CPU_NORM_BACKWARD_H

#include "../layer_norm.h"
#include "ahead.h"
#include "dropout.h"
#include "rows.h"

typedef struct norm_gradient_row {
    vreal mean, rstd, mean_g, mean_gx;
    real *dx, *dgamma, *dbeta;
    const real *x, *dy, *gamma;
    bool centred;
} norm_gradient_row;

TC_INLINE vreal normalised(const norm_gradient_row *r, int64_t i, int lanes)
{
    const vreal x = v_load_some(r->x + i, lanes);
    return (r->centred ? x - r->mean : x) * r->rstd;
}

/* 0 beyond the row's end. */
TC_INLINE vreal gradient_of_normalised(const norm_gradient_row *r, int64_t i, int lanes)
{
    return v_times_some(v_load_some(r->dy + i, lanes), r->gamma, TC_STORED_AS_COMPUTED, i, lanes);
}

/* Adds to sums over the row, which are means later, and to those of its columns. */
TC_INLINE void add_norm_gradient(void *row, int64_t i, int lanes)
{
    norm_gradient_row *r = row;
    const vreal d = v_load_some(r->dy + i, lanes), xhat = normalised(r, i, lanes), g = gradient_of_normalised(r, i, lanes);
    if (r->centred) r->mean_g = r->mean_g + g;
    r->mean_gx = v_fma(g, xhat, r->mean_gx);
    if (r->dgamma) v_store_some(r->dgamma + i, v_fma(d, xhat, v_load_some(r->dgamma + i, lanes)), lanes);
    if (r->dbeta) v_store_some(r->dbeta + i, d + v_load_some(r->dbeta + i, lanes), lanes);
}

TC_INLINE void write_norm_gradient(void *row, int64_t i, int lanes)
{
    const norm_gradient_row *r = row;
    const vreal xhat = normalised(r, i, lanes), g = gradient_of_normalised(r, i, lanes);
    v_store_some(r->dx + i, r->rstd * ((r->centred ? g - r->mean_g : g) - xhat * r->mean_gx), lanes);
}

TC_INLINE void norm_backward_row(const tc_layer_norm_backward_args *a, int64_t n, real *dgamma, real *dbeta, bool centred)
{
    const int64_t C = a->C;
    norm_gradient_row row = {.dx = row_or_null(a->dx || !centred ? a->dx : a->ddropped, n, C),
                             .dgamma = dgamma,
                             .dbeta = dbeta,
                             .x = (const real *)a->x + n * C,
                             .dy = (const real *)a->dy + n * C,
                             .gamma = a->gamma,
                             .mean = v_set1(centred ? ((const real *)a->mean)[n] : R(0.0)),
                             .rstd = v_set1(((const real *)a->rstd)[n]),
                             .mean_g = v_zero(),
                             .mean_gx = v_zero(),
                             .centred = centred};
    each_vector(add_norm_gradient, &row, &(vectors_ahead){0}, 0, C);
    if (!row.dx) return;
    row.mean_g = v_set1(centred ? v_sum(row.mean_g) / (real)C : R(0.0));
    row.mean_gx = v_set1(v_sum(row.mean_gx) / (real)C);
    each_vector(write_norm_gradient, &row, &(vectors_ahead){sizeof(real), rows_ahead(C), {row.dy, row.x}, row.dx}, 0, C);
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
