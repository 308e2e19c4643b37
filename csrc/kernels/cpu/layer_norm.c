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

/* A row x normalised. */
typedef struct normalised_row {
    vreal mean, rstd;
    void *y;
    const void *x, *gamma, *beta;
    tc_stored x_stored, stored;
} normalised_row;

TC_INLINE void write_normalised(void *row, int64_t i, int lanes)
{
    const normalised_row *r = row;
    const vreal x = v_load_stored(stored_at(r->x, r->x_stored, i), r->x_stored, lanes);
    const vreal scaled = v_times_some((x - r->mean) * r->rstd, r->gamma, r->stored, i, lanes);
    v_store_stored(stored_to(r->y, r->stored, i), r->stored, v_plus_some(scaled, r->beta, r->stored, i, lanes), lanes);
}

/* What dropout keeps of elements [begin, end) of x, which lies in y until the result does. Halves are rounded, as those of the op are. */
TC_INLINE void drop_rows(const tc_layer_norm_forward_args *a, const tc_stored stored, int64_t begin, int64_t end)
{
    if (stored == TC_STORED_AS_COMPUTED) {
        TC_KERNEL(drop)(&a->mask, (real *)a->y + begin, (const real *)a->x + begin, begin, end);
        return;
    }
    real *const wide = (real *)a->sum + begin; /* the sums come later */
    const int64_t n = end - begin;
    for (int64_t i = 0; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        v_store_some(wide + i, v_load_stored(stored_at(a->x, stored, begin + i), stored, lanes), lanes);
    }
    TC_KERNEL(drop)(&a->mask, wide, wide, begin, end);
    for (int64_t i = 0; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        v_store_stored(stored_to(a->y, stored, begin + i), stored, v_load_some(wide + i, lanes), lanes);
    }
}

/* Rows [first, first + rows), ROWS_TOGETHER at most. */
TC_INLINE void normalise_rows(const tc_layer_norm_forward_args *a, const tc_stored stored, bool with_residual, int64_t first, int rows)
{
    const int64_t C = a->C;
    const void *const added = with_residual && a->mask.p > 0.0 ? a->y : a->x;  /* to the residual */
    const tc_stored x_stored = with_residual ? TC_STORED_AS_COMPUTED : stored; /* of the rows that are normalised */
    const void *x = with_residual ? stored_at(a->sum, x_stored, first * C) : stored_at(a->x, stored, first * C);
    real *mean = (real *)a->mean + first, *rstd = (real *)a->rstd + first;
    for (int n = 0; n < rows; n++) {
        const int64_t at = (first + n) * C;
        const total_row row = {with_residual ? (real *)a->sum + at : NULL, stored_at(added, stored, at),
                               with_residual ? stored_at(a->residual, stored, at) : NULL, stored};
        mean[n] = row_sum(add_total, &row, C) / (real)C;
    }
    for (int n = 0; n < rows; n++) {
        const centred_row row = {v_set1(mean[n]), stored_at(x, x_stored, n * C), x_stored};
        const real variance = row_sum(add_squared_difference, &row, C) / (real)C + (real)a->eps;
        rstd[n] = variance == (real)INFINITY ? (real)NAN : R(1.0) / real_sqrt(variance); /* 0 would hide that the squares overflow */
    }
    for (int n = 0; n < rows; n++) {
        normalised_row row = {.y = stored_to(a->y, stored, (first + n) * C),
                              .x = stored_at(x, x_stored, n * C),
                              .gamma = a->gamma,
                              .beta = a->beta,
                              .mean = v_set1(mean[n]),
                              .rstd = v_set1(rstd[n]),
                              .x_stored = x_stored,
                              .stored = stored};
        each_vector(write_normalised, &row, &(vectors_ahead){0}, 0, C);
    }
}

TC_INLINE void forward_rows(const tc_stored stored, const tc_layer_norm_forward_args *a, int64_t begin, int64_t end)
{
    const int64_t block = rows_of_block(a->C), most = rows_to_drop(a->C);
    int64_t dropped = a->residual && a->mask.p > 0.0 ? begin : end; /* the rows before it are */
    for (int64_t n = begin; n < end; n += block) {
        const int rows = (int)(end - n < block ? end - n : block);
        if (n == dropped) {
            dropped = end - n < most ? end : n + most;
            drop_rows(a, stored, n * a->C, dropped * a->C);
        }
        if (a->residual)
            normalise_rows(a, stored, true, n, rows);
        else
            normalise_rows(a, stored, false, n, rows);
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
