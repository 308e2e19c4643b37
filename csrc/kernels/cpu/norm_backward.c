/* norm_backward.c: the gradients of y = xhat * gamma + beta with xhat = (x - mean) * rstd over rows, or, not centred, xhat = x * rstd.
 *
 * With g = dy * gamma:  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without mean(g) where x was not centred;
 * dgamma = sum dy * xhat,  dbeta = sum dy. */
#include "../layer_norm.h"
#include "../rms_norm.h"
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

TC_INLINE void backward_row(const tc_layer_norm_backward_args *a, int64_t n, real *dx, real *dgamma, real *dbeta, bool centred)
{
    const int64_t C = a->C;
    norm_gradient_row row = {.dx = row_or_null(dx, n, C),
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

/* Short rows [first, first + rows), ROWS_TOGETHER at most: each step for all of them before the next, and the sums of columns stay in
 * registers meanwhile, as far as there are enough. Rows that were not centred have means of 0, which change nothing. */
TC_INLINE void backward_short_rows(const int64_t C, const tc_layer_norm_backward_args *a, real *dx_rows, real *dgamma, real *dbeta,
                                   int64_t first, int rows)
{
    const int vectors = (int)(C / TC_LANES);
    const real *const x = (const real *)a->x + first * C, *const dy = (const real *)a->dy + first * C;
    const real none[ROWS_TOGETHER] = {0}, *const rstd = (const real *)a->rstd + first;
    const real *const mean = a->mean ? (const real *)a->mean + first : none;
    real *const dx = row_or_null(dx_rows, first, C);
    vreal gamma[UNROLLED_VECTORS], gamma_sums[UNROLLED_VECTORS], beta_sums[UNROLLED_VECTORS];
    TC_UNROLL
    for (int v = 0; v < vectors; v++) {
        gamma[v] = a->gamma ? v_load((const real *)a->gamma + v * TC_LANES) : v_set1(R(1.0));
        gamma_sums[v] = dgamma ? v_load(dgamma + v * TC_LANES) : v_zero();
        beta_sums[v] = dbeta ? v_load(dbeta + v * TC_LANES) : v_zero();
    }
    vreal g_sums[ROWS_TOGETHER], gx_sums[ROWS_TOGETHER];
    for (int n = 0; n < rows; n++) {
        const vreal row_mean = v_set1(mean[n]), row_rstd = v_set1(rstd[n]);
        vreal g_sum = v_zero(), gx_sum = v_zero();
        TC_UNROLL
        for (int v = 0; v < vectors; v++) {
            const int64_t at = n * C + v * TC_LANES;
            const vreal d = v_load(dy + at), xhat = (v_load(x + at) - row_mean) * row_rstd, g = d * gamma[v];
            g_sum = g_sum + g;
            gx_sum = v_fma(g, xhat, gx_sum);
            gamma_sums[v] = v_fma(d, xhat, gamma_sums[v]);
            beta_sums[v] = d + beta_sums[v];
        }
        g_sums[n] = g_sum;
        gx_sums[n] = gx_sum;
    }
    TC_UNROLL
    for (int v = 0; v < vectors; v++) {
        if (dgamma) v_store(dgamma + v * TC_LANES, gamma_sums[v]);
        if (dbeta) v_store(dbeta + v * TC_LANES, beta_sums[v]);
    }
    if (!dx) return;
    real mean_g[ROWS_TOGETHER] = {0}, mean_gx[ROWS_TOGETHER];
    if (a->mean) means_of_rows(mean_g, g_sums, rows, C);
    means_of_rows(mean_gx, gx_sums, rows, C);
    for (int n = 0; n < rows; n++) {
        const vreal row_mean = v_set1(mean[n]), row_rstd = v_set1(rstd[n]), g_mean = v_set1(mean_g[n]), gx_mean = v_set1(mean_gx[n]);
        TC_UNROLL
        for (int v = 0; v < vectors; v++) {
            const int64_t at = n * C + v * TC_LANES;
            const vreal xhat = (v_load(x + at) - row_mean) * row_rstd, g = v_load(dy + at) * gamma[v];
            v_store(dx + at, row_rstd * (g - g_mean - xhat * gx_mean));
        }
    }
}

/* Rows [begin, end) of a chunk. */
TC_INLINE void backward_rows(const tc_layer_norm_backward_args *a, real *dgamma, real *dbeta, bool centred, int64_t begin, int64_t end)
{
    real *const dx = a->dx || !centred ? a->dx : a->ddropped;
    if (is_unrolled_row(a->C))
        for (int64_t n = begin; n < end; n += ROWS_TOGETHER) {
            const int rows = (int)(end - n < ROWS_TOGETHER ? end - n : ROWS_TOGETHER);
            WITH_UNROLLED_ROW(a->C, backward_short_rows, a, dx, dgamma, dbeta, n, rows);
        }
    else
        for (int64_t n = begin; n < end; n++) backward_row(a, n, dx, dgamma, dbeta, centred);
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
            backward_rows(a, dgamma, dbeta, centred, n, last);
            if (!centred || !a->ddropped) continue;
            real *const ddropped = (real *)a->ddropped + n * a->C; /* what is dropped is still in L1 */
            TC_KERNEL(drop)(&a->mask, ddropped, a->dx ? (real *)a->dx + n * a->C : ddropped, n * a->C, last * a->C);
        }
    }
}

TC_DEFINE_KERNEL(layer_norm_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    norm_backward(args, begin, end, true);
}

TC_DEFINE_KERNEL(rms_norm_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    norm_backward(args, begin, end, false);
}
