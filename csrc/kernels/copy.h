/* copy.h: moving and casting elements. */
#ifndef TC_KERNELS_COPY_H
#define TC_KERNELS_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

#define TC_COPY_DIMS 16
#define TC_COPY_BLOCK 4096 /* elements per item */

/* Numbers in equal steps, which are then cast. Element i is first + i * step in float64, each operation rounded; from the element `turn` on
 * it is last - (numel - 1 - i) * step, and the last one is `last`. With is_whole: (whole_first + i * whole_step) * unit, in integers that
 * wrap around; unit is 1 for an integer dtype, else a power of two, so that float32 holds what is rounded to it without another
 * rounding. */
typedef struct tc_range {
    double first, step, last;
    int64_t turn;
    bool is_whole;
    float unit;
    int64_t whole_first, whole_step;
} tc_range;

/* Items are blocks of TC_COPY_BLOCK elements of the result, counted in C order.  to[i] = from[i] cast, for i over shape; strides in
 * elements, any sign, 0 to repeat. dtypes are tc_dtype values. The layout has been simplified by the op (tc_layout_merge): axes of length 1
 * are removed and neighbours that can be walked as one are merged. On GPUs `from` may be NULL: then `to` is contiguous and gets the
 * numbers of `range`, or, where that is NULL too, every element gets the bits of `number`, of to_dtype, as many bytes as that has. */
typedef struct tc_copy_args {
    void *to;
    const void *from;
    const tc_range *range; /* of the host */
    uint64_t number;
    int to_dtype, from_dtype;
    int ndim;
    int64_t numel;
    int64_t shape[TC_COPY_DIMS], to_strides[TC_COPY_DIMS], from_strides[TC_COPY_DIMS];
} tc_copy_args;
extern const tc_kernel tc_kernel_copy;

/* On CPUs a matrix that is read down its columns is moved by tiles, which are the items then: of TC_COPY_ROWS rows and TC_COPY_COLUMNS
 * columns of the last two axes, in C order. */
#define TC_COPY_ROWS 32
#define TC_COPY_COLUMNS 128
#define TC_COPY_LEAST 16 /* a side below which tiles do not pay */
static inline bool tc_copy_by_tiles(const tc_copy_args *a)
{
    const int rows = a->ndim - 2, columns = a->ndim - 1;
    if (a->ndim < 2 || a->to_strides[columns] != 1 || a->from_strides[rows] != 1 || a->to_strides[rows] < a->shape[columns]) return false;
    const int64_t step = a->from_strides[columns];
    return (step > 1 || step < -1) && a->shape[rows] >= TC_COPY_LEAST && a->shape[columns] >= TC_COPY_LEAST;
}
static inline int64_t tc_copy_tiles(const tc_copy_args *a, int64_t *down, int64_t *across)
{
    const int64_t rows = a->shape[a->ndim - 2], columns = a->shape[a->ndim - 1];
    *down = (rows + TC_COPY_ROWS - 1) / TC_COPY_ROWS;
    *across = (columns + TC_COPY_COLUMNS - 1) / TC_COPY_COLUMNS;
    return a->numel / rows / columns * *down * *across;
}

#endif
