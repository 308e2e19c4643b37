/* rms_norm.h: arguments of the RMS normalisation kernels. The backward takes tc_layer_norm_backward_args, without mean and
 * dbeta_partial. */
#ifndef TC_KERNELS_RMS_NORM_H
#define TC_KERNELS_RMS_NORM_H

#include "layer_norm.h"

/* Items are rows.  y,x (N,C); gamma (C) or NULL; rstd (N), 1 / root mean square, is saved for the backward. `stored`: of y, x and gamma. */
typedef struct tc_rms_norm_forward_args {
    void *y, *rstd;
    const void *x, *gamma;
    tc_stored stored;
    int64_t C;
    double eps;
} tc_rms_norm_forward_args;
extern const tc_kernel tc_kernel_rms_norm_forward;
extern const tc_kernel tc_kernel_rms_norm_backward;

#endif
