/* layer_norm.c: y = (x - mean) * rstd * gamma + beta over rows (Ba et al. 2016, eq. 4). */
#include "norm_backward.h"

/* A row of x, or of x + residual, which is then written to `total`. */
typedef struct total_row {
    real *total;
    const void *x, *residual;
    tc_stored stored;
} total_row;

TC_INLINE vreal add_total(vreal sum, const void *row, int64_t i, int lanes)
{
    const total_row *r = row;
    vreal v = v_load_stored(stored_at(r->x, r->stored, i), r->stored, lanes);
    if (r->residual) {
        v = v + v_load_stored(stored_at(r->residual, r->stored, i), r->stored, lanes);
        v_store_some(r->total + i, v, lanes);
    }
    return sum + v;
}

typedef struct centred_row {
    vreal mean;
    const void *x;
    tc_stored stored;
} centred_row;

/* A second pass over the row, which stays in L1: the variance of the differences from the mean stays precise for rows with a large mean. */
TC_INLINE vreal add_squared_difference(vreal sum, const void *row, int64_t i, int lanes)
{
    const centred_row *r = row;
    vreal d = v_load_stored(stored_at(r->x, r->stored, i), r->stored, lanes) - r->mean;
    if (lanes < TC_LANES) d = v_select(v_first(lanes), d, v_zero());
    return v_fma(d, d, sum);
}

/* mean and rstd of the row x, whose sum is known, and y, its normalised row. */
TC_INLINE void normalise_row(const tc_layer_norm_forward_args *a, int64_t n, real sum, const void *x, const tc_stored x_stored,
                             const tc_stored stored)
{
    const int64_t C = a->C;
    void *y = stored_to(a->y, stored, n * C);
    const real mean = sum / (real)C;
    const vreal m = v_set1(mean);
    const real variance = row_sum(add_squared_difference, &(centred_row){m, x, x_stored}, C) / (real)C + (real)a->eps;
    const real rstd = variance == (real)INFINITY ? (real)NAN : R(1.0) / real_sqrt(variance); /* 0 would hide that the squares overflow */
    ((real *)a->mean)[n] = mean;
    ((real *)a->rstd)[n] = rstd;
    const vreal r = v_set1(rstd);
    for (int64_t i = 0; i < C; i += TC_LANES) {
        const int lanes = v_left(C, i);
        const vreal scaled = v_times_some((v_load_stored(stored_at(x, x_stored, i), x_stored, lanes) - m) * r, a->gamma, stored, i, lanes);
        v_store_stored(stored_to(y, stored, i), stored, v_plus_some(scaled, a->beta, stored, i, lanes), lanes);
    }
}

TC_INLINE void forward_rows(const tc_stored stored, const tc_layer_norm_forward_args *a, int64_t begin, int64_t end)
{
    for (int64_t n = begin; n < end; n++) {
        const void *x = stored_at(a->x, stored, n * a->C);
        if (a->residual) {
            const total_row row = {(real *)a->sum + n * a->C, x, stored_at(a->residual, stored, n * a->C), stored};
            normalise_row(a, n, row_sum(add_total, &row, a->C), row.total, TC_STORED_AS_COMPUTED, stored);
        } else {
            normalise_row(a, n, row_sum(add_total, &(total_row){NULL, x, NULL, stored}, a->C), x, stored, stored);
        }
    }
}

TC_DEFINE_KERNEL(layer_norm_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    WITH_STORED(((const tc_layer_norm_forward_args *)args)->stored, forward_rows, args, begin, end);
}

TC_DEFINE_KERNEL(layer_norm_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    norm_backward(args, begin, end, true);
}
