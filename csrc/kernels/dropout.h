/* dropout.h: arguments of the dropout kernel. */
#ifndef TC_KERNELS_DROPOUT_H
#define TC_KERNELS_DROPOUT_H

#include <stdint.h>

#include "kernels.h"

/* y = x / (1 - p) where the element is kept, 0 elsewhere, whatever the value of x (philox.h says which are kept). The backward is the same
 * kernel on dy with the same seed and call.  Items are groups of TC_PHILOX_GROUP elements.  y,x (n), contiguous; y may be x.  0 <= p <=
 * 1. */
typedef struct tc_dropout_forward_args {
    void *y;
    const void *x;
    int64_t n;
    double p;
    uint64_t seed, call;
} tc_dropout_forward_args;
extern const tc_kernel tc_kernel_dropout_forward;

#endif
