/* triangle.h: a matrix with one of its corners set to zero. */
#ifndef TC_KERNELS_TRIANGLE_H
#define TC_KERNELS_TRIANGLE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

/* Items are rows of all matrices, one after the other.  y,x (..., M, N), contiguous. Elements on diagonal number `diagonal` (0: the main
 * one; positive: above it) are kept, and those above it (`upper`) or below it. */
typedef struct tc_triangle_args {
    void *y;
    const void *x;
    int element_bytes;
    bool upper;
    int64_t M, N, diagonal;
} tc_triangle_args;
extern const tc_kernel tc_kernel_triangle;

#endif
