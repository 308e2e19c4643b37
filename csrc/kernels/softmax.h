/* softmax.h: what the softmax and cross-entropy kernels work on. */
#ifndef TC_KERNELS_SOFTMAX_H
#define TC_KERNELS_SOFTMAX_H

#include <stdbool.h>
#include <stdint.h>

/* Items are rows.  y,x (N,C): y = softmax(x), or its logarithm. */
typedef struct tc_softmax_forward_args {
    void *y;
    const void *x;
    int64_t C;
    bool logarithm;
} tc_softmax_forward_args;

/* Items are rows.  dx,dy,y (N,C); y is what the forward gave. */
typedef struct tc_softmax_backward_args {
    void *dx;
    const void *dy, *y;
    int64_t C;
    bool logarithm;
} tc_softmax_backward_args;

/* Items are rows.  loss,lse (N) in the compute dtype; x (N,C); target (N), each in [0, C) or ignore_index; weight (C) or NULL.
 *     loss = (1 - smoothing) w[t] (lse - x[t]) + smoothing / C sum_c w[c] (lse - x[c]),  0 where the target is ignored. */
typedef struct tc_cross_entropy_forward_args {
    void *loss, *lse;
    const void *x, *weight;
    const int64_t *target;
    int64_t C, ignore_index;
    double smoothing;
} tc_cross_entropy_forward_args;

/* Items are rows.  dx (N,C); dloss (N). */
typedef struct tc_cross_entropy_backward_args {
    void *dx;
    const void *dloss, *x, *lse, *weight;
    const int64_t *target;
    int64_t C, ignore_index;
    double smoothing;
} tc_cross_entropy_backward_args;

#endif
