/* softmax.c: softmax and log-softmax of rows, and the cross-entropy that is fused from them. */
#include "../softmax.h"
#include "simd.h"
#include "simd_math.h"

/* The largest of a row; a NaN may be passed over, the exponentials bring it back. */
TC_INLINE real row_max(const real *x, int64_t C)
{
    vreal largest = v_set1((real)-INFINITY);
    for (int64_t i = 0; i < C; i += TC_LANES) {
        const int lanes = v_left(C, i);
        vreal v = v_load_some(x + i, lanes);
        if (lanes < TC_LANES) v = v_select(v_first(lanes), v, largest);
        largest = v_max(v, largest);
    }
    return v_hmax(largest);
}

/* Sum of exp(x - shift) over a row, which are kept in y unless it is NULL. */
TC_INLINE real row_exp_sum(real *y, const real *x, int64_t C, real shift)
{
    const vreal m = v_set1(shift);
    vreal sum = v_zero();
    for (int64_t i = 0; i < C; i += TC_LANES) {
        const int lanes = v_left(C, i);
        vreal e = v_exp(v_load_some(x + i, lanes) - m);
        if (lanes < TC_LANES) e = v_select(v_first(lanes), e, v_zero());
        if (y) v_store_some(y + i, e, lanes);
        sum = sum + e;
    }
    return v_sum(sum);
}

void TC_KERNEL(softmax_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_softmax_forward_args *a = args;
    const int64_t C = a->C;
    (void)scratch;
    for (int64_t n = begin; n < end; n++) {
        const real *x = (const real *)a->x + n * C;
        real *y = (real *)a->y + n * C;
        const real largest = row_max(x, C);
        const real sum = row_exp_sum(a->logarithm ? NULL : y, x, C, largest);
        const vreal shift = v_set1(largest), log_sum = v_set1(real_log(sum)), inverse = v_set1(R(1.0) / sum);
        for (int64_t i = 0; i < C; i += TC_LANES) {
            const int lanes = v_left(C, i);
            const vreal v = a->logarithm ? v_load_some(x + i, lanes) - shift - log_sum : v_load_some(y + i, lanes) * inverse;
            v_store_some(y + i, v, lanes);
        }
    }
}

/* softmax: dx = y (dy - sum(dy y));  log-softmax: dx = dy - exp(y) sum(dy). */
void TC_KERNEL(softmax_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_softmax_backward_args *a = args;
    const int64_t C = a->C;
    (void)scratch;
    for (int64_t n = begin; n < end; n++) {
        const real *y = (const real *)a->y + n * C, *dy = (const real *)a->dy + n * C;
        real *dx = (real *)a->dx + n * C;
        vreal sum = v_zero();
        for (int64_t i = 0; i < C; i += TC_LANES) { /* lanes beyond the row are 0 */
            const int lanes = v_left(C, i);
            const vreal g = v_load_some(dy + i, lanes);
            sum = a->logarithm ? sum + g : v_fma(g, v_load_some(y + i, lanes), sum);
        }
        const vreal total = v_set1(v_sum(sum));
        for (int64_t i = 0; i < C; i += TC_LANES) {
            const int lanes = v_left(C, i);
            const vreal g = v_load_some(dy + i, lanes), v = v_load_some(y + i, lanes);
            v_store_some(dx + i, a->logarithm ? v_fnma(v_exp(v), total, g) : v * (g - total), lanes);
        }
    }
}

void TC_KERNEL(cross_entropy_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_cross_entropy_forward_args *a = args;
    const int64_t C = a->C;
    const real *weight = a->weight, smoothing = (real)a->smoothing;
    (void)scratch;
    for (int64_t n = begin; n < end; n++) {
        const real *x = (const real *)a->x + n * C;
        const int64_t t = a->target[n];
        const real largest = row_max(x, C), lse = largest + real_log(row_exp_sum(NULL, x, C, largest));
        ((real *)a->lse)[n] = lse;
        real loss = R(0.0);
        if (t != a->ignore_index) {
            loss = (R(1.0) - smoothing) * (weight ? weight[t] : R(1.0)) * (lse - x[t]);
            real spread = R(0.0);
            for (int64_t c = 0; smoothing != 0 && c < C; c++) spread += (weight ? weight[c] : R(1.0)) * (lse - x[c]);
            if (smoothing != 0) loss += smoothing / (real)C * spread;
        }
        ((real *)a->loss)[n] = loss;
    }
}

/* dx[c] = dloss ((1 - s) w[t] (p[c] - [c = t]) + s / C (p[c] sum(w) - w[c])),  p = exp(x - lse). */
void TC_KERNEL(cross_entropy_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_cross_entropy_backward_args *a = args;
    const int64_t C = a->C;
    const real *weight = a->weight, smoothing = (real)a->smoothing;
    real weights = weight ? R(0.0) : (real)C;
    (void)scratch;
    for (int64_t c = 0; weight && c < C; c++) weights += weight[c];
    for (int64_t n = begin; n < end; n++) {
        const real *x = (const real *)a->x + n * C;
        real *dx = (real *)a->dx + n * C;
        const int64_t t = a->target[n];
        const bool ignored = t == a->ignore_index;
        const real dloss = ignored ? R(0.0) : ((const real *)a->dloss)[n];
        const real at_target = ignored ? R(0.0) : dloss * (R(1.0) - smoothing) * (weight ? weight[t] : R(1.0));
        const real even = dloss * smoothing / (real)C;
        const vreal lse = v_set1(((const real *)a->lse)[n]), scale = v_set1(at_target + even * weights), even_v = v_set1(even);
        for (int64_t i = 0; i < C; i += TC_LANES) {
            const int lanes = v_left(C, i);
            const vreal p = v_exp(v_load_some(x + i, lanes) - lse);
            const vreal w = weight ? v_load_some(weight + i, lanes) : v_set1(R(1.0));
            v_store_some(dx + i, ignored ? v_zero() : v_fnma(even_v, w, p * scale), lanes);
        }
        if (!ignored) dx[t] -= at_target;
    }
}
