/* index.h: elements at scattered positions of a tensor (the base) and the same elements next to each other (the selection). */
#ifndef TC_KERNELS_INDEX_H
#define TC_KERNELS_INDEX_H

#include <stdint.h>

#include "kernels.h"

#define TC_INDEX_DIMS 16
#define TC_INDEX_BLOCK 4096  /* elements per item of index_gather, points of index_points */
#define TC_INDEX_COLUMNS 512 /* elements of a window per item of index_put and index_add */

#define TC_INDEX_NOWHERE INT64_MIN /* an offset of no element: gathered as zero */

/* The selection is a window of the base at each of `points` positions: for p < points and i over shape
 *     selection[p * point_stride + i . selection_strides]  <->  base[offsets[p] + i . base_strides]
 * Strides in elements, any sign, 0 to repeat. The layout has been simplified by the op (tc_layout_merge).
 *     index_gather   selection = base; an item is TC_INDEX_BLOCK of its elements
 *     index_put      base = selection  \  an item is TC_INDEX_COLUMNS elements of the window at every point, in the order of the points:
 *     index_add      base += selection /  at repeated positions the last one wins, or all add up in order
 * On GPUs points whose offset is TC_INDEX_NOWHERE are left out of the last two. */
typedef struct tc_index_args {
    void *selection;
    void *base;
    const int64_t *offsets; /* (points) */
    const int64_t *order;   /* (points): the points by offset, equal ones in order; or NULL, on CPUs always */
    int element_bytes;      /* index_add: of the compute dtype */
    int ndim;
    int64_t points, point_stride;
    int64_t numel; /* of the window */
    int64_t shape[TC_INDEX_DIMS], base_strides[TC_INDEX_DIMS], selection_strides[TC_INDEX_DIMS];
} tc_index_args;
extern const tc_kernel tc_kernel_index_add;
extern const tc_kernel tc_kernel_index_put;

/* An array of indices into one axis of the base, of any integer dtype. */
typedef struct tc_index_pointer {
    const void *indices;
    int64_t strides[TC_INDEX_DIMS]; /* in elements, over the axes of the points; any sign, 0 to repeat */
    int64_t length;                 /* of the axis: indices are from -length to length - 1 */
    int64_t step, plain_step;       /* of the axis: in the base, and in a contiguous tensor of its shape */
    int dtype, axis;                /* a tc_dtype; the axis is for the message */
} tc_index_pointer;

/* Where the points are. Items are TC_INDEX_BLOCK points. Offsets go to `offsets`, in a contiguous tensor of the base's shape to `plain`,
 * each (points) or NULL. The first index that is out of range goes to the alarm (check_index.h), with the axis for the position, and its
 * point is TC_INDEX_NOWHERE; without an alarm all are in range. */
typedef struct tc_index_points_args {
    int64_t *offsets, *plain;
    int64_t *alarm;
    int64_t ticket;
    int64_t points;
    int pointers, ndim;
    int64_t shape[TC_INDEX_DIMS]; /* of the points, simplified like the window's */
    tc_index_pointer pointer[TC_INDEX_DIMS];
} tc_index_points_args;
extern const tc_kernel tc_kernel_index_points;

/* With pointers the gather finds the points itself, on GPUs alone: window.offsets is NULL then, and so is points.offsets. */
typedef struct tc_index_gather_args {
    tc_index_args window;
    tc_index_points_args points;
} tc_index_gather_args;
extern const tc_kernel tc_kernel_index_gather;

#endif
