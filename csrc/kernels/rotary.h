/* rotary.h: arguments of the kernels of rotary position embedding. */
#ifndef TC_KERNELS_ROTARY_H
#define TC_KERNELS_ROTARY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

#define TC_ROTARY_DIMS 15 /* TC_MAX_DIMS without the last axis */

/* Items are the n positions.  cosine,sine (n, D/2) of the angles position * base^(-2 j / D), j < D/2, which are computed in double;
 * positions (n), or NULL: 0, 1, ..., n - 1. The CPU's scratch is D/2 doubles. */
typedef struct tc_rotary_table_args {
    void *cosine, *sine;
    const double *positions;
    int64_t D;
    double base;
} tc_rotary_table_args;
extern const tc_kernel tc_kernel_rotary_table;

/* Items are rows.  y,x (rows, D); cosine,sine (n, D/2) in the dtype of statistics. Pair j of a row, (x[j], x[j + D/2]) or, interleaved,
 * (x[2 j], x[2 j + 1]), is rotated by angle j of the table's row that `strides` gives; in the other direction when `inverse`. */
typedef struct tc_rotary_args {
    void *y;
    const void *x, *cosine, *sine;
    int64_t D;
    int ndim; /* of the rows */
    int64_t shape[TC_ROTARY_DIMS], strides[TC_ROTARY_DIMS];
    bool interleaved, inverse;
} tc_rotary_args;
extern const tc_kernel tc_kernel_rotary;

#endif
