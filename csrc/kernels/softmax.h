/* softmax.h: arguments of the softmax and cross-entropy kernels. */
#ifndef TC_KERNELS_SOFTMAX_H
#define TC_KERNELS_SOFTMAX_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

#define TC_SOFTMAX_ROWS 64 /* neighbouring rows per item; a multiple of every vector width */

/* Rows of C elements, `inner` of them interleaved:  y,x (outer, C, inner); the rows are the (outer, inner).  Items are outer times groups
 * of TC_SOFTMAX_ROWS of inner, or, where inner is 1, groups of TC_SOFTMAX_ROWS of outer. logarithm: log softmax. */
typedef struct tc_softmax_forward_args {
    void *y;
    const void *x;
    int64_t outer, C, inner;
    bool logarithm;
} tc_softmax_forward_args;
extern const tc_kernel tc_kernel_softmax_forward;

/* dx,dy,y (outer, C, inner); y is the result of the forward. Items as in the forward. */
typedef struct tc_softmax_backward_args {
    void *dx;
    const void *dy, *y;
    int64_t outer, C, inner;
    bool logarithm;
} tc_softmax_backward_args;
extern const tc_kernel tc_kernel_softmax_backward;

/* Items are rows.  loss,top,log_sum (N): the largest element of a row and log sum e^(x - top),
 * separate because their sum would lose the digits of large logits; x (N,C); target (N), each in [0, C) or ignore_index; weight (C) or
 * NULL. loss = (1 - smoothing) w[t] (lse - x[t]) + smoothing / C sum_c w[c] (lse - x[c]),  0 where the target is ignored;  lse = top +
 * log_sum. logarithms: x contains log probabilities; then lse is 0, constant, and top and log_sum are not used. */
typedef struct tc_cross_entropy_forward_args {
    void *loss, *top, *log_sum;
    const void *x, *weight;
    const int64_t *target;
    int64_t C, ignore_index;
    double smoothing;
    bool logarithms;
} tc_cross_entropy_forward_args;
extern const tc_kernel tc_kernel_cross_entropy_forward;

/* Items are rows.  dx (N,C); dloss (N). */
typedef struct tc_cross_entropy_backward_args {
    void *dx;
    const void *dloss, *x, *top, *log_sum, *weight;
    const int64_t *target;
    int64_t C, ignore_index;
    double smoothing;
    bool logarithms;
} tc_cross_entropy_backward_args;
extern const tc_kernel tc_kernel_cross_entropy_backward;

#endif
