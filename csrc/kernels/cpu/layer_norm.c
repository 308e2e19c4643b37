/* layer_norm.c: y = (x - mean) * rstd * gamma + beta over rows (Ba et al. 2016, eq. 4). */
#include "norm_backward.h"

/* A row of x, or of x + residual, which is then written to `total`. */
typedef struct total_row {
    real *total;
    const real *x, *residual;
} total_row;

TC_INLINE vreal add_total(vreal sum, const void *row, int64_t i, int lanes)
{
    const total_row *r = row;
    vreal v = v_load_some(r->x + i, lanes);
    if (r->residual) {
        v = v + v_load_some(r->residual + i, lanes);
        v_store_some(r->total + i, v, lanes);
    }
    return sum + v;
}

typedef struct centred_row {
    const real *x;
    vreal mean;
} centred_row;

/* A second pass over the row, which stays in L1: the variance of the differences from the mean stays precise for rows with a large mean. */
TC_INLINE vreal add_squared_difference(vreal sum, const void *row, int64_t i, int lanes)
{
    const centred_row *r = row;
    vreal d = v_load_some(r->x + i, lanes) - r->mean;
    if (lanes < TC_LANES) d = v_select(v_first(lanes), d, v_zero());
    return v_fma(d, d, sum);
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
        mean[n] = row_sum(add_total, &(total_row){total, x, a->residual ? (const real *)a->residual + n * C : NULL}, C) / (real)C;
        if (total) x = total;
        const vreal m = v_set1(mean[n]);
        const real variance = row_sum(add_squared_difference, &(centred_row){x, m}, C) / (real)C + (real)a->eps;
        rstd[n] = variance == (real)INFINITY ? (real)NAN : R(1.0) / real_sqrt(variance); /* 0 would hide that the squares overflow */
        const vreal r = v_set1(rstd[n]);
        for (int64_t i = 0; i < C; i += TC_LANES) {
            const int lanes = v_left(C, i);
            const vreal scaled = v_times_some((v_load_some(x + i, lanes) - m) * r, gamma, i, lanes);
            v_store_some(y + i, v_plus_some(scaled, beta, i, lanes), lanes);
        }
    }
}

TC_DEFINE_KERNEL(layer_norm_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    norm_backward(args, begin, end, true);
}
