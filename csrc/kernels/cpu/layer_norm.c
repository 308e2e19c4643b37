/* layer_norm.c: y = (x - mean) * rstd * gamma + beta over rows (Ba et al. 2016, eq. 4). */
#include "../layer_norm.h"
#include "simd.h"

/* Sums over long rows run in as many independent chains, so that one addition need not wait for the one before. */
#define CHAINS 4
#define STRIDE (CHAINS * TC_LANES)

TC_INLINE vreal join_chains(const vreal chain[CHAINS]) { return (chain[0] + chain[1]) + (chain[2] + chain[3]); }

/* `lanes` elements of x, or of x + residual, which go to `total` then. */
TC_INLINE vreal load_total(real *total, const real *x, const real *residual, int64_t i, int lanes)
{
    vreal v = v_load_some(x + i, lanes);
    if (!residual) return v;
    v = v + v_load_some(residual + i, lanes);
    v_store_some(total + i, v, lanes);
    return v;
}

/* Mean of a row. With a residual, of x + residual, which goes to `total`. */
TC_INLINE real row_mean(real *total, const real *x, const real *residual, int64_t C)
{
    vreal sum = v_zero();
    int64_t i = 0;
    if (C >= STRIDE) {
        vreal chain[CHAINS] = {v_zero(), v_zero(), v_zero(), v_zero()};
        for (; i + STRIDE <= C; i += STRIDE)
            for (int k = 0; k < CHAINS; k++) chain[k] = chain[k] + load_total(total, x, residual, i + k * TC_LANES, TC_LANES);
        sum = join_chains(chain);
    }
    for (; i < C; i += TC_LANES) sum = sum + load_total(total, x, residual, i, v_left(C, i));
    return v_sum(sum) / (real)C;
}

/* A second pass over the row, which stays in L1: the variance of the differences from the mean keeps its digits for rows with
 * a large one. */
TC_INLINE real row_rstd(const real *x, int64_t C, real mean, real eps)
{
    const vreal m = v_set1(mean);
    vreal squares = v_zero();
    int64_t i = 0;
    if (C >= STRIDE) {
        vreal chain[CHAINS] = {v_zero(), v_zero(), v_zero(), v_zero()};
        for (; i + STRIDE <= C; i += STRIDE)
            for (int k = 0; k < CHAINS; k++) {
                const vreal d = v_load(x + i + k * TC_LANES) - m;
                chain[k] = v_fma(d, d, chain[k]);
            }
        squares = join_chains(chain);
    }
    for (; i < C; i += TC_LANES) {
        const int lanes = v_left(C, i);
        vreal d = v_load_some(x + i, lanes) - m;
        if (lanes < TC_LANES) d = v_select(v_first(lanes), d, v_zero());
        squares = v_fma(d, d, squares);
    }
    return R(1.0) / real_sqrt(v_sum(squares) / (real)C + eps);
}

TC_DEFINE_KERNEL(layer_norm_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_layer_norm_forward_args *a = args;
    const real *gamma = a->gamma, *beta = a->beta;
    real *mean = a->mean, *rstd = a->rstd;
    const int64_t C = a->C;
    (void)scratch;
    for (int64_t n = begin; n < end; n++) {
        const real *x = (const real *)a->x + n * C;
        real *y = (real *)a->y + n * C;
        real *total = a->residual ? (real *)a->sum + n * C : NULL;
        mean[n] = row_mean(total, x, a->residual ? (const real *)a->residual + n * C : NULL, C);
        if (total) x = total;
        rstd[n] = row_rstd(x, C, mean[n], (real)a->eps);
        const vreal m = v_set1(mean[n]), r = v_set1(rstd[n]);
        for (int64_t i = 0; i < C; i += TC_LANES) {
            const int lanes = v_left(C, i);
            vreal v = (v_load_some(x + i, lanes) - m) * r;
            if (gamma) v = v * v_load_some(gamma + i, lanes);
            if (beta) v = v + v_load_some(beta + i, lanes);
            v_store_some(y + i, v, lanes);
        }
    }
}

/* With xhat = (x - mean) * rstd and g = dy * gamma:
 *     dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),  dgamma = sum dy * xhat,  dbeta = sum dy. */
TC_INLINE void backward_row(const tc_layer_norm_backward_args *a, int64_t n, real *dgamma, real *dbeta)
{
    const int64_t C = a->C;
    const real *x = (const real *)a->x + n * C, *dy = (const real *)a->dy + n * C, *gamma = a->gamma;
    const vreal mean = v_set1(((const real *)a->mean)[n]), rstd = v_set1(((const real *)a->rstd)[n]);
    vreal sum_g = v_zero(), sum_gx = v_zero();
    for (int64_t i = 0; i < C; i += TC_LANES) {
        const int lanes = v_left(C, i);
        const vreal d = v_load_some(dy + i, lanes);
        const vreal xhat = (v_load_some(x + i, lanes) - mean) * rstd;
        const vreal g = gamma ? d * v_load_some(gamma + i, lanes) : d; /* 0 beyond the row's end, so the sums are right */
        sum_g = sum_g + g;
        sum_gx = v_fma(g, xhat, sum_gx);
        if (dgamma) v_store_some(dgamma + i, v_fma(d, xhat, v_load_some(dgamma + i, lanes)), lanes);
        if (dbeta) v_store_some(dbeta + i, d + v_load_some(dbeta + i, lanes), lanes);
    }
    if (!a->dx) return;
    real *dx = (real *)a->dx + n * C;
    const vreal mean_g = v_set1(v_sum(sum_g) / (real)C), mean_gx = v_set1(v_sum(sum_gx) / (real)C);
    for (int64_t i = 0; i < C; i += TC_LANES) {
        const int lanes = v_left(C, i);
        const vreal d = v_load_some(dy + i, lanes);
        const vreal xhat = (v_load_some(x + i, lanes) - mean) * rstd;
        const vreal g = gamma ? d * v_load_some(gamma + i, lanes) : d;
        v_store_some(dx + i, rstd * (g - mean_g - xhat * mean_gx), lanes);
    }
}

TC_DEFINE_KERNEL(layer_norm_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_layer_norm_backward_args *a = args;
    (void)scratch;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        real *dgamma = a->dgamma_partial ? (real *)a->dgamma_partial + chunk * a->C : NULL;
        real *dbeta = a->dbeta_partial ? (real *)a->dbeta_partial + chunk * a->C : NULL;
        for (int64_t i = 0; dgamma && i < a->C; i++) dgamma[i] = R(0.0);
        for (int64_t i = 0; dbeta && i < a->C; i++) dbeta[i] = R(0.0);
        const int64_t first = chunk * a->rows_per_chunk;
        const int64_t last = first + a->rows_per_chunk < a->N ? first + a->rows_per_chunk : a->N;
        for (int64_t n = first; n < last; n++) backward_row(a, n, dgamma, dbeta);
    }
}
