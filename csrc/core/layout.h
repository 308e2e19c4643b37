/* layout.h: axes and strides. */
#ifndef TC_CORE_LAYOUT_H
#define TC_CORE_LAYOUT_H

#include "status.h"

/* Negative axes count from the end; TC_ERROR_INDEX naming `name`. A tensor without axes takes 0 and -1. */
TC_CHECKED tc_status tc_normalize_axis(int *axis, int64_t given, int ndim, const char *name, tc_error *err);

/* Strides of a contiguous tensor. */
void tc_c_strides(int64_t *strides, int ndim, const int64_t *shape);

/* Makes the loop nest over several strided operands of one shape as short as possible: removes axes of length 1 and merges neighbouring
 * axes that every operand can walk as one. `shape` (ndim) and each of `strides[operand]` (ndim) are rewritten in place; returns the new
 * ndim (0 for a single element). With `reorder`, axes are first sorted by decreasing stride of operand 0 (for element-wise work, where the
 * order does not matter). */
int tc_layout_merge(int ndim, int64_t *shape, int operands, int64_t *const *strides, bool reorder);

/* Does each element have memory of its own? `true` is certain; `false` is not. */
bool tc_layout_is_distinct(int ndim, const int64_t *shape, const int64_t *strides);

#endif
