/* softmax_rows.h: the largest element of a row and the sum of exponentials below it, for softmax and cross-entropy.
 *
 * Long rows are read along a vector, several vectors at a time. Short rows, and rows whose elements are far apart, are read TC_LANES
 * at a time, one per lane ("column" functions): x[c * stride + lane]. Sums are computed in blocks, which stays precise for long rows.
 * The largest element ignores NaN, but the sum becomes NaN; so it does for a row of -inf: e^(-inf - -inf). */
#ifndef TC_KERNELS_CPU_SOFTMAX_ROWS_H
#define TC_KERNELS_CPU_SOFTMAX_ROWS_H

#include "ahead.h"
#include "columns.h"
#include "rows.h"
#include "simd_math.h"

#define COLUMN_BLOCK 64 /* elements of neighbouring rows added up before they are added to the total */

TC_INLINE vreal v_lowest(void) { return v_set1(-(real)INFINITY); }

TC_INLINE real row_top(const real *x, int64_t C)
{
    vreal a = v_lowest(), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * TC_LANES <= C; i += 4 * TC_LANES) {
        a = v_max(v_load(x + i), a);
        b = v_max(v_load(x + i + TC_LANES), b);
        c = v_max(v_load(x + i + 2 * TC_LANES), c);
        d = v_max(v_load(x + i + 3 * TC_LANES), d);
    }
    for (; i < C; i += TC_LANES) {
        const int lanes = v_left(C, i);
        a = v_max(v_select(v_first(lanes), v_load_some(x + i, lanes), v_lowest()), a);
    }
    return v_hmax(v_max(v_max(a, b), v_max(c, d)));
}

typedef struct exp_row {
    vreal top;
    real *y;
    const real *x;
    int64_t ahead; /* 0: a row of few elements, or the processor reads ahead better alone */
} exp_row;

TC_INLINE vreal add_exp(vreal sum, const void *row, int64_t i, int lanes)
{
    const exp_row *r = row;
    const vreal e = v_exp_weight(v_load_some(r->x + i, lanes) - r->top);
    if (r->ahead) read_ahead(r->x + i + r->ahead);
    if (r->y) {
        if (r->ahead) write_ahead(r->y + i + r->ahead);
        v_store_some(r->y + i, e, lanes);
    }
    return sum + (lanes == TC_LANES ? e : v_select(v_first(lanes), e, v_zero()));
}

/* Sum of e^(x - top). y, if not NULL, receives the terms. */
TC_INLINE real row_exp_sum(real *y, const real *x, int64_t C, real top)
{
    if (C < ROW_STRIDE) return row_sum_in_blocks(add_exp, &(exp_row){v_set1(top), y, x, 0}, C);
    return row_sum_in_blocks(add_exp, &(exp_row){v_set1(top), y, x, rows_ahead(C)}, C);
}

/* The first `lanes` columns. */
TC_INLINE vreal column_top(const real *x, int64_t C, int64_t stride, int lanes)
{
    vreal top = v_lowest();
    for (int64_t c = 0; c < C; c++) top = v_max(v_load_some(x + c * stride, lanes), top);
    return top;
}

TC_INLINE vreal column_exp_sum(real *y, const real *x, int64_t C, int64_t stride, int lanes, vreal top)
{
    vreal total = v_zero();
    for (int64_t first = 0; first < C; first += COLUMN_BLOCK) {
        const int64_t last = first + COLUMN_BLOCK < C ? first + COLUMN_BLOCK : C;
        vreal sum = v_zero();
        for (int64_t c = first; c < last; c++) {
            const vreal e = v_exp_weight(v_load_some(x + c * stride, lanes) - top);
            if (y) v_store_some(y + c * stride, e, lanes);
            sum = sum + e;
        }
        total = total + sum;
    }
    return total;
}

#endif
