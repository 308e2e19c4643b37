/* reduce.h: arguments of the reductions: axes that are kept and axes that are reduced, any strides and dtypes.
 *
 * A long reduction is cut into segments, whose length depends on its own alone. Where there are few results, and for rows on GPUs, a second
 * pass adds up the segments; otherwise an item adds up its own, on CPUs in the same order: the bits do not depend on how many results there
 * are. */
#ifndef TC_KERNELS_REDUCE_H
#define TC_KERNELS_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

#define TC_REDUCE_DIMS 16
#define TC_REDUCE_TILE 256        /* columns per item of reduce_columns */
#define TC_REDUCE_ROWS 128        /* rows that it adds up before they are added to the total: its shortest segment */
#define TC_REDUCE_EXACT (1 << 24) /* every smaller index is exact in a float */

/* How elements are combined: `mean` is a sum with a divisor, `square_difference` a sum of (x - center)^2. */
typedef enum tc_reduce_step { TC_STEP_sum, TC_STEP_max, TC_STEP_min, TC_STEP_any, TC_STEP_all, TC_STEP_square_difference } tc_reduce_step;

/* The shapes have been simplified (tc_layout_merge); strides of x in elements; `kept` and `reduced` are the products. x is read as x_dtype,
 * out written as out_dtype: the compute dtype, the half dtype of x, or bool for any and all. center (kept) of the compute dtype, for
 * square_difference.
 *
 * reduce_rows       items are results times segments:   out (kept, segments), each divided by `divisor`
 * reduce_columns    items are outer times segments times tiles of the last kept axis:   out (outer, segments, columns)
 * reduce_arg        items are results: out (kept) int64, the index of the first largest element, or smallest (step min); one segment
 * reduce_arg_columns   the same for outer times tiles of the last kept axis; reduced <= TC_REDUCE_EXACT
 * integer_reduce    items are results times segments: out (kept, segments) of out_dtype, in int64; arg: the index instead, one segment
 */
typedef struct tc_reduce_args {
    void *out;
    const void *x, *center;
    int step;
    bool arg;
    int x_dtype, out_dtype;
    int kept_ndim, reduced_ndim;
    int64_t kept, reduced;
    int64_t segment, segments; /* the length of one, and how many results each has; 1: all segments are added up */
    double divisor;
    int64_t kept_shape[TC_REDUCE_DIMS], kept_strides[TC_REDUCE_DIMS];
    int64_t reduced_shape[TC_REDUCE_DIMS], reduced_strides[TC_REDUCE_DIMS];
} tc_reduce_args;

/* Are neighbouring results closer in memory than neighbouring elements of one result? Then kernels walk along the results. */
static inline bool tc_reduce_by_columns(const tc_reduce_args *a)
{
    if (a->kept_ndim == 0 || a->reduced_ndim == 0) return a->kept_ndim > 0; /* only axes of length 1 are reduced: a copy */
    const int64_t kept = a->kept_strides[a->kept_ndim - 1], reduced = a->reduced_strides[a->reduced_ndim - 1];
    return (kept < 0 ? -kept : kept) < (reduced < 0 ? -reduced : reduced);
}
extern const tc_kernel tc_kernel_integer_reduce;
extern const tc_kernel tc_kernel_reduce_arg;
extern const tc_kernel tc_kernel_reduce_arg_columns;
extern const tc_kernel tc_kernel_reduce_columns;
extern const tc_kernel tc_kernel_reduce_rows;

/* The gradient of a largest or smallest element along one axis: the first element that equals the result (NaN equals NaN) gets all of it.
 * dx,x (outer, length, inner); dy,y (outer, inner); all contiguous, in the backend's compute dtype.  Items are outer times tiles of
 * TC_REDUCE_TILE of inner. */
typedef struct tc_extreme_backward_args {
    void *dx;
    const void *dy, *x, *y;
    int64_t length, inner;
} tc_extreme_backward_args;
extern const tc_kernel tc_kernel_extreme_backward;

#endif
