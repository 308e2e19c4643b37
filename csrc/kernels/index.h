/* index.h: elements at scattered positions of a tensor (the base) and the same elements next to each other (the selection). */
#ifndef TC_KERNELS_INDEX_H
#define TC_KERNELS_INDEX_H

#include <stdint.h>

#include "kernels.h"

#define TC_INDEX_DIMS 16
#define TC_INDEX_BLOCK 4096  /* elements per item of index_gather */
#define TC_INDEX_COLUMNS 512 /* elements of a window per item of index_put and index_add */

#define TC_INDEX_NOWHERE INT64_MIN /* an offset of no element: gathered as zero */

/* The selection is a window of the base at each of `points` positions: for p < points and i over shape
 *     selection[p * point_stride + i . selection_strides]  <->  base[offsets[p] + i . base_strides]
 * Strides in elements, any sign, 0 to repeat. The layout has been simplified by the op (tc_layout_merge).
 *     index_gather   selection = base; an item is TC_INDEX_BLOCK of its elements
 *     index_put      base = selection  \  an item is TC_INDEX_COLUMNS elements of the window at every point, in the order of the points:
 *     index_add      base += selection /  at repeated positions the last one wins, or all add up in order */
typedef struct tc_index_args {
    void *selection;
    void *base;
    const int64_t *offsets; /* (points) */
    int element_bytes;      /* index_add: of the compute dtype */
    int ndim;
    int64_t points, point_stride;
    int64_t numel; /* of the window */
    int64_t shape[TC_INDEX_DIMS], base_strides[TC_INDEX_DIMS], selection_strides[TC_INDEX_DIMS];
} tc_index_args;
extern const tc_kernel tc_kernel_index_add;
extern const tc_kernel tc_kernel_index_gather;
extern const tc_kernel tc_kernel_index_put;

#endif
