/* layout.h: axes and strides. */
#ifndef TC_CORE_LAYOUT_H
#define TC_CORE_LAYOUT_H

#include "status.h"

/* -1 and so on; TC_ERROR_INDEX naming `name`. A tensor without axes takes 0 and -1. */
TC_CHECKED tc_status tc_normalize_axis(int *axis, int64_t given, int ndim, const char *name, tc_error *err);

/* Strides of a contiguous tensor. */
void tc_c_strides(int64_t *strides, int ndim, const int64_t *shape);

/* The loop nest over several strided operands of one shape, made as short as it can be: drops axes of length 1 and merges neighbours that
 * every operand steps through as one. `shape` (ndim) and each of `strides[operand]` (ndim) are rewritten in place; returns the new ndim (0
 * for a single element). With `reorder`, axes are first sorted so that operand 0 steps in decreasing strides (for element-wise work, where
 * the order does not matter). */
int tc_layout_merge(int ndim, int64_t *shape, int operands, int64_t *const *strides, bool reorder);

#endif
