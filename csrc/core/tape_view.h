/* tape_view.h: views of tensors that are written in place.
 *
 * A view that was made while gradients are recorded owns its base: the tensor at which the chain of views begins. After a write through the
 * view the history of the base is that of its old values with the view's over them; after any other write to the memory a view is this part
 * of what the base is now. So y[0].add_(1) and y[0][1] *= 2 are differentiated as y[0] += 1 is.
 */
#ifndef TC_CORE_TAPE_VIEW_H
#define TC_CORE_TAPE_VIEW_H

#include "tape.h"

/* `view` was made of `x`, in the same memory. */
void tc_tape_note_view(tc_tensor *view, tc_tensor *x);

/* After `view` got the history of a write: its base gets one as well. Where that fails for want of memory, or the base does not know of
 * earlier writes, the base is out of date, and using it is an error. Headers of a call's own wait for tc_tensor_end_hold. */
void tc_tape_write_base(tc_tensor *view);

/* Gives a view that is out of date the history of this part of its base. Does nothing where the base is out of date as well. */
TC_CHECKED tc_status tc_tape_renew_view(tc_tensor *view, tc_error *err);
bool tc_tape_is_renewable(const tc_tensor *view); /* does it do something? */

/* *out = dy, contiguous, but zeros in a window of it. */
TC_CHECKED tc_status tc_gradient_outside(tc_tensor **out, const tc_tensor *dy, int ndim, const int64_t *shape, const int64_t *strides,
                                         int64_t offset, tc_error *err);

#endif
