/* activation.h: arguments of the backward of a product's activation. */
#ifndef TC_KERNELS_ACTIVATION_H
#define TC_KERNELS_ACTIVATION_H

#include "kernels.h"
#include "types.h"

#define TC_ACTIVATION_BLOCK 4096 /* elements per item */

/* Items are blocks of elements.  dx = dy * f'(x);  dx,dy,x (n), contiguous; dx and dy are stored alike. */
typedef struct tc_activation_backward_args {
    void *dx;
    const void *dy, *x;
    int64_t n;
    tc_activation activation;
    tc_stored stored, x_stored;
} tc_activation_backward_args;
extern const tc_kernel tc_kernel_activation_backward;

#endif
