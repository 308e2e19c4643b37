/* layout.h: the loop nest over several strided operands of one shape, made as short as it can be. */
#ifndef TC_CORE_LAYOUT_H
#define TC_CORE_LAYOUT_H

#include "../transformer_c.h"

/* Drops axes of length 1 and merges neighbours that every operand steps through as one. `shape` (ndim) and each of
 * `strides[operand]` (ndim) are rewritten in place; returns the new ndim (0 for a single element). With `reorder`, axes are
 * first sorted so that operand 0 steps in decreasing strides (for element-wise work, where the order does not matter). */
int tc_layout_merge(int ndim, int64_t *shape, int operands, int64_t *const *strides, bool reorder);

#endif
