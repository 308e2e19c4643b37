/* copy.h: moving and casting elements. */
#ifndef TC_KERNELS_COPY_H
#define TC_KERNELS_COPY_H

#include <stdint.h>

#include "kernels.h"

#define TC_COPY_DIMS 16
#define TC_COPY_BLOCK 4096 /* elements per item */

/* Items are blocks of TC_COPY_BLOCK elements of the result, counted in C order.  to[i] = from[i] cast, for i over shape; strides in
 * elements, any sign, 0 to repeat. dtypes are tc_dtype values. The layout has been simplified by the op (tc_layout_merge): axes of length 1
 * are removed and neighbours that can be walked as one are merged. On GPUs `from` may be NULL: then every element gets the bits of
 * `number`, of to_dtype, as many bytes as that has; where `step` is not 0, element i of contiguous int64 gets number + i * step. */
typedef struct tc_copy_args {
    void *to;
    const void *from;
    uint64_t number;
    int64_t step;
    int to_dtype, from_dtype;
    int ndim;
    int64_t numel;
    int64_t shape[TC_COPY_DIMS], to_strides[TC_COPY_DIMS], from_strides[TC_COPY_DIMS];
} tc_copy_args;
extern const tc_kernel tc_kernel_copy;

#endif
