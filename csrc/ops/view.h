/* view.h: helpers that other ops need of views; the ops themselves are in transformer_c.h. */
#ifndef TC_OPS_VIEW_H
#define TC_OPS_VIEW_H

#include "../core/layout.h"
#include "../core/tensor.h"

/* A view in general: axis i of the result steps along axis[i] of x by step[i] (axis[i] < 0: a new axis of length 1); start, one number per
 * axis of x, is the first element. `overlaps`: an element may be seen more than once, but not twice under one index of the last axis. */
TC_CHECKED tc_status tc_window(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, const int *axis, const int64_t *step,
                               const int64_t *start, bool overlaps, tc_error *err);

/* May a write to one change the other? `false` is certain; `true` is not. */
bool tc_may_overlap(const tc_tensor *a, const tc_tensor *b);
/* May tc_write_where (core/write_where.h) write to x? */
bool tc_can_write_where(const tc_tensor *x, const tc_tensor *mask);
/* Can a function of elements of these tensors (NULL ones are numbers) be computed where the target is, unrecorded? Each element is read
 * before it is written. */
bool tc_takes_result(tc_tensor *target, tc_dtype dtype, int ndim, const int64_t *shape, int count, tc_tensor *const *given);

#endif
