/* add_in_place.h: to += from, by which gradients are accumulated. */
#ifndef TC_KERNELS_ADD_IN_PLACE_H
#define TC_KERNELS_ADD_IN_PLACE_H

#include <stdint.h>

#include "kernels.h"

#define TC_ADD_BLOCK 8192 /* elements per item */

/* Items are blocks of TC_ADD_BLOCK elements.  to,from (numel), contiguous, of the backend's compute dtype. */
typedef struct tc_add_in_place_args {
    void *to;
    const void *from;
    int64_t numel;
} tc_add_in_place_args;
extern const tc_kernel tc_kernel_add_in_place;

#endif
