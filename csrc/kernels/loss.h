/* loss.h: arguments of the kernels for element-wise losses. */
#ifndef TC_KERNELS_LOSS_H
#define TC_KERNELS_LOSS_H

#include <stdint.h>

#include "kernels.h"

#define TC_LOSS_BLOCK 1024 /* elements per item; a multiple of every vector width */

/* Of an input x and a target t, times the weight:
 *     squared        (x - t)^2
 *     probability    -(t log x + (1 - t) log(1 - x)), logarithms clamped at -100
 *     logit          (1 - t) x + (1 + (p - 1) t) log(1 + e^-x), p the positive weight
 *     smooth         (x - t)^2 / 2p where |x - t| < p, |x - t| - p / 2 elsewhere, p the parameter
 *     divergence     t (log t - x), 0 where t is
 *     divergence_log e^t (t - x) */
typedef enum tc_loss_function {
    TC_LOSS_SQUARED,
    TC_LOSS_PROBABILITY,
    TC_LOSS_LOGIT,
    TC_LOSS_SMOOTH,
    TC_LOSS_DIVERGENCE,
    TC_LOSS_DIVERGENCE_LOG
} tc_loss_function;

/* Items are blocks of elements. All arrays (n), contiguous; weight and positive_weight may be NULL: ones. */
typedef struct tc_loss_forward_args {
    void *loss;
    const void *x, *target, *weight, *positive_weight;
    int64_t n;
    int function;
    double parameter;
} tc_loss_forward_args;
extern const tc_kernel tc_kernel_loss_forward;

/* dloss is read with the stride `dloss_step`: 1, or 0 for a single number. dx and dtarget may be NULL. */
typedef struct tc_loss_backward_args {
    void *dx, *dtarget;
    const void *dloss, *x, *target, *weight, *positive_weight;
    int64_t n, dloss_step;
    int function;
    double parameter;
} tc_loss_backward_args;
extern const tc_kernel tc_kernel_loss_backward;

#endif
