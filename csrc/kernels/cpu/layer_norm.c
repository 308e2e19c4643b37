/* layer_norm.c: y = (x - mean) * rstd * gamma + beta over rows (Ba et al. 2016, eq. 4). */
#include "../layer_norm.h"
#include "ahead.h"
#include "dropout.h"
#include "rows.h"

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
TC_INLINE void normalise_rows(const tc_layer_norm_forward_args *a, const int64_t C, const tc_stored stored, bool with_residual,
                              int64_t first, int rows)
{
    const void *const added = with_residual && a->mask.p > 0.0 ? a->y : a->x;  /* to the residual */
    const tc_stored x_stored = with_residual ? TC_STORED_AS_COMPUTED : stored; /* of the rows that are normalised */
    const void *x = with_residual ? stored_at(a->sum, x_stored, first * C) : stored_at(a->x, stored, first * C);
    real *mean = (real *)a->mean + first, *rstd = (real *)a->rstd + first;
    const bool together = C <= MOST_ADDED_TOGETHER;
    vreal sums[ROWS_TOGETHER];
    for (int n = 0; n < rows; n++) {
        const int64_t at = (first + n) * C;
        const total_row row = {with_residual ? (real *)a->sum + at : NULL, stored_at(added, stored, at),
                               with_residual ? stored_at(a->residual, stored, at) : NULL, stored};
        sums[n] = row_partial_sums(add_total, &row, C);
        if (!together) mean[n] = v_sum(sums[n]) / (real)C;
    }
    if (together) means_of_rows(mean, sums, rows, C);
    for (int n = 0; n < rows; n++) {
        const centred_row row = {v_set1(mean[n]), stored_at(x, x_stored, n * C), x_stored};
        sums[n] = row_partial_sums(add_squared_difference, &row, C);
        if (together) continue;
        const real variance = v_sum(sums[n]) / (real)C + (real)a->eps;
        rstd[n] = variance == (real)INFINITY ? (real)NAN : R(1.0) / real_sqrt(variance); /* 0 would hide that the squares overflow */
    }
    if (together) means_of_rows(rstd, sums, rows, C);
    for (int n = 0; together && n < rows; n += TC_LANES) {
        const int lanes = v_left(rows, n);
        const vreal variance = v_load_some(rstd + n, lanes) + v_set1((real)a->eps);
        const vmask overflows = v_eq(variance, v_set1((real)INFINITY)); /* as above */
        v_store_some(rstd + n, v_select(overflows, v_set1((real)NAN), v_set1(R(1.0)) / v_sqrt(variance)), lanes);
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

TC_INLINE void forward_rows(const int64_t C, const tc_stored stored, const tc_layer_norm_forward_args *a, int64_t begin, int64_t end)
{
    const int64_t block = rows_of_block(C), most = rows_to_drop(C);
    int64_t dropped = a->residual && a->mask.p > 0.0 ? begin : end; /* the rows before it are */
    for (int64_t n = begin; n < end; n += block) {
        const int rows = (int)(end - n < block ? end - n : block);
        if (n == dropped) {
            dropped = end - n < most ? end : n + most;
            drop_rows(a, stored, n * C, dropped * C);
        }
        if (a->residual)
            normalise_rows(a, C, stored, true, n, rows);
        else
            normalise_rows(a, C, stored, false, n, rows);
    }
}

TC_INLINE void forward_rows_of_any_size(const tc_stored stored, const tc_layer_norm_forward_args *a, int64_t begin, int64_t end)
{
    forward_rows(a->C, stored, a, begin, end);
}

TC_DEFINE_KERNEL(layer_norm_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_layer_norm_forward_args *const a = args;
    (void)scratch;
    if (a->stored == TC_STORED_AS_COMPUTED && is_unrolled_row(a->C)) {
        WITH_UNROLLED_ROW(a->C, forward_rows, TC_STORED_AS_COMPUTED, a, begin, end);
    } else {
        WITH_STORED(a->stored, forward_rows_of_any_size, a, begin, end);
    }
}
