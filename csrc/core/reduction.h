/* reduction.h: reductions that are not recorded: ops compute with them, and gradients are summed over broadcast axes with them. */
#ifndef TC_CORE_REDUCTION_H
#define TC_CORE_REDUCTION_H

#include "../kernels/reduce.h"
#include "tensor.h"

/* The axes of a tensor that are reduced. */
typedef struct tc_axis_set {
    bool reduced[TC_MAX_DIMS];
    int count;
    bool all; /* no axis was named: all are reduced */
} tc_axis_set;

/* Each of `axes` is in -ndim .. ndim-1 and none may occur twice; count -1: all axes of x. */
TC_CHECKED tc_status tc_read_axes(tc_axis_set *set, const tc_tensor *x, int count, const int64_t *axes, tc_error *err);
/* The shape of a reduction of x. */
void tc_reduced_shape(const tc_axis_set *set, const tc_tensor *x, bool keepdims, int *ndim, int64_t shape[TC_MAX_DIMS]);
/* Number of elements of x per element of the result. */
int64_t tc_reduced_count(const tc_axis_set *set, const tc_tensor *x);

/* out = the reduction of x by `step`, divided by `divisor`. out is contiguous, with as many elements as the kept axes of x: in x's dtype or
 * its compute dtype, or bool for any and all. For integers and bools, out has any integer dtype or bool, and `divisor` is not read. center:
 * for squared differences, of out's size in the compute dtype; otherwise NULL. */
TC_CHECKED tc_status tc_run_reduction(tc_tensor *out, const tc_tensor *x, const tc_axis_set *set, tc_reduce_step step,
                                      const tc_tensor *center, double divisor, tc_error *err);
/* out (int64) = the index of the first largest or, with TC_STEP_min, smallest element. */
TC_CHECKED tc_status tc_run_arg_reduction(tc_tensor *out, const tc_tensor *x, const tc_axis_set *set, tc_reduce_step step, tc_error *err);

/* Sums a floating `gradient` over the axes along which `shape` was repeated by broadcasting; *out has that shape (gradient itself,
 * retained, when nothing was). */
TC_CHECKED tc_status tc_sum_to_shape(tc_tensor **out, tc_tensor *gradient, int ndim, const int64_t *shape, tc_error *err);
/* The same, cast to `dtype`. */
TC_CHECKED tc_status tc_sum_to(tc_tensor **out, tc_tensor *gradient, int ndim, const int64_t *shape, tc_dtype dtype, tc_error *err);

/* Rows per chunk for a reduction over `rows`, fixed by the shape alone so that results do not depend on threads. */
int64_t tc_reduction_chunk(int64_t rows);
/* out (C) of a compute dtype = sum over the rows of partial (chunks, C). */
TC_CHECKED tc_status tc_sum_partials(tc_tensor *out, const tc_tensor *partial, int64_t chunks, int64_t columns, tc_error *err);

#endif
