/* rms_norm.c: y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps), over rows (Zhang and Sennrich 2019, eq. 4). */
#include "../rms_norm.h"
#include "ahead.h"
#include "rows.h"

typedef struct stored_row {
    const void *x;
    tc_stored stored;
} stored_row;

TC_INLINE vreal add_square(vreal sum, const void *row, int64_t i, int lanes)
{
    const stored_row *r = row;
    const vreal v = v_load_stored(stored_at(r->x, r->stored, i), r->stored, lanes);
    return v_fma(v, v, sum);
}

typedef struct scaled_row {
    vreal rstd;
    void *y;
    const void *x, *gamma;
    tc_stored stored;
} scaled_row;

TC_INLINE void write_scaled(void *row, int64_t i, int lanes)
{
    const scaled_row *r = row;
    const vreal scaled = v_load_stored(stored_at(r->x, r->stored, i), r->stored, lanes) * r->rstd;
    v_store_stored(stored_to(r->y, r->stored, i), r->stored, v_times_some(scaled, r->gamma, r->stored, i, lanes), lanes);
}

TC_INLINE void forward_rows(const tc_stored stored, const tc_rms_norm_forward_args *a, int64_t begin, int64_t end)
{
    for (int64_t n = begin; n < end; n++) {
        const void *x = stored_at(a->x, stored, n * a->C);
        void *y = stored_to(a->y, stored, n * a->C);
        const real rstd = R(1.0) / real_sqrt(row_sum(add_square, &(stored_row){x, stored}, a->C) / (real)a->C + (real)a->eps);
        ((real *)a->rstd)[n] = rstd;
        scaled_row row = {v_set1(rstd), y, x, a->gamma, stored};
        each_vector(write_scaled, &row, &(vectors_ahead){stored_size(stored), rows_ahead(a->C), {x}, y}, 0, a->C);
    }
}

TC_DEFINE_KERNEL(rms_norm_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    WITH_STORED(((const tc_rms_norm_forward_args *)args)->stored, forward_rows, args, begin, end);
}
