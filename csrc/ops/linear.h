/* linear.h: linear without its record, for ops that continue with its result. */
#ifndef TC_OPS_LINEAR_H
#define TC_OPS_LINEAR_H

#include "dropout.h"
#include "op.h"

/* Do the shapes fit? bias and residual may be NULL. */
TC_CHECKED tc_status tc_linear_check(tc_scope *s, const tc_tensor *x, const tc_tensor *weight, const tc_tensor *bias,
                                     const tc_tensor *residual);

/* Takes prepared inputs: x and weight with their strides, bias, and residual if there is a fourth. The scope owns *y and, unless `pre` is
 * NULL, *pre. `mask`: NULL, or p, seed and call of a dropout before the residual is added; it becomes the whole mask. */
TC_CHECKED tc_status tc_linear_compute(tc_scope *s, tc_tensor **y, tc_tensor **pre, tc_activation activation, tc_drawn_mask *mask,
                                       const tc_sequences *sequences);

/* tc_linear_backward, for a backward of the tape unless `node` is NULL: x and weight are its first two inputs, and their gradients are
 * added to those that arrived before as they are written. dy may be overwritten if the caller says so. */
TC_CHECKED tc_status tc_linear_gradients(const tc_node *node, tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dy,
                                         bool overwrites, tc_tensor *x, tc_tensor *weight, tc_tensor *pre, tc_activation activation,
                                         const tc_sequences *sequences, tc_error *err);

#endif
