/* rms_norm.c: y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps), over rows (Zhang and Sennrich 2019, eq. 4). */
#include "../rms_norm.h"
#include "norm_backward.h"

TC_INLINE vreal add_square(vreal sum, const void *row, int64_t i, int lanes)
{
    const vreal v = v_load_some((const real *)row + i, lanes);
    return v_fma(v, v, sum);
}

TC_DEFINE_KERNEL(rms_norm_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_rms_norm_forward_args *a = args;
    (void)scratch;
    for (int64_t n = begin; n < end; n++) {
        const real *x = (const real *)a->x + n * a->C;
        const real rstd = R(1.0) / real_sqrt(row_sum(add_square, x, a->C) / (real)a->C + (real)a->eps);
        ((real *)a->rstd)[n] = rstd;
        for (int64_t i = 0; i < a->C; i += TC_LANES) {
            const int lanes = v_left(a->C, i);
            v_store_some((real *)a->y + n * a->C + i, v_times_some(v_load_some(x + i, lanes) * v_set1(rstd), a->gamma, i, lanes), lanes);
        }
    }
}

TC_DEFINE_KERNEL(rms_norm_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    norm_backward(args, begin, end, false);
}
