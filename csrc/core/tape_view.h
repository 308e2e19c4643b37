/* tape_view.h: views of tensors that are written in place.
 *
 * A view that is made while gradients are recorded owns its base: the tensor at which the chain of views begins. After a recorded write
 * through the view, the base has the history of its old values with those of the view over them. After any other write, the view has the
 * history of its part of the base. So the gradients of y[0].add_(1) and y[0][1] *= 2 are those of y[0] += 1. A view of a detached tensor
 * always owns its base: a detached tensor is never out of date, and could not tell that a write was missed.
 */
#ifndef TC_CORE_TAPE_VIEW_H
#define TC_CORE_TAPE_VIEW_H

#include "tape.h"

/* `view` is a new view of `x`. */
void tc_tape_note_view(tc_tensor *view, tc_tensor *x);

/* After a write gave `view` a history: gives its base one as well. Where that is impossible (no memory left, a base that is not contiguous
 * or missed earlier writes) the base is out of date, and using it is an error. Does nothing for headers of a call's own: their tensors
 * follow in tc_tensor_end_hold. */
void tc_tape_write_base(tc_tensor *view);

/* Gives a view that is out of date the history of this part of its base. Does nothing where the base is out of date as well. */
TC_CHECKED tc_status tc_tape_renew_view(tc_tensor *view, tc_error *err);
bool tc_tape_is_renewable(const tc_tensor *view); /* would it do something? */

/* *out = zeros of the base's shape, with dy in a window of them. */
TC_CHECKED tc_status tc_gradient_inside(tc_tensor **out, const tc_tensor *dy, int base_ndim, const int64_t *base_shape,
                                        const int64_t *strides, int64_t offset, tc_error *err);
/* *out = a copy of dy, which is contiguous, with zeros in a window of it. */
TC_CHECKED tc_status tc_gradient_outside(tc_tensor **out, const tc_tensor *dy, int ndim, const int64_t *shape, const int64_t *strides,
                                         int64_t offset, tc_error *err);

#endif
