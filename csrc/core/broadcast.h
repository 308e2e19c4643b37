/* broadcast.h: shapes and strides of operands that are repeated along axes. The inverse, a sum, is in reduction.h. */
#ifndef TC_CORE_BROADCAST_H
#define TC_CORE_BROADCAST_H

#include "tensor.h"

/* NumPy's broadcasting. TC_ERROR_VALUE naming both shapes when they do not fit. */
TC_CHECKED tc_status tc_broadcast_shape(int *ndim, int64_t shape[TC_MAX_DIMS], int a_ndim, const int64_t *a, int b_ndim, const int64_t *b,
                                        tc_error *err);
/* Strides with which `tensor` is read as the larger `shape`: 0 on axes along which it is repeated. The shapes must fit. */
void tc_broadcast_strides(int64_t strides[TC_MAX_DIMS], const tc_tensor *tensor, int ndim, const int64_t *shape);

/* x read as the larger `shape`: a view with strides of 0. Not recorded. */
TC_CHECKED tc_status tc_broadcast_view(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, tc_error *err);

#endif
