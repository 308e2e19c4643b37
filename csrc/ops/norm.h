/* norm.h: shared by the ops that normalise rows. */
#ifndef TC_OPS_NORM_H
#define TC_OPS_NORM_H

#include "../kernels/dropout.h"
#include "op.h"

/* Number N and length C of the rows: the last `axes` axes of x make a row; `lengths`, unless NULL, must be theirs. */
TC_CHECKED tc_status tc_norm_rows(tc_scope *s, const tc_tensor *x, int axes, const int64_t *told, int64_t *N, int64_t *C);

/* Not recorded; runs a kernel that takes tc_layer_norm_backward_args. mean is NULL where rows are not centred; their axes follow from
 * rstd's. Dtypes may differ: a sum of halves is kept in float32. ddropped: what dropout with `mask` makes of dx. */
TC_CHECKED tc_status tc_norm_backward(const tc_kernel *kernel, tc_tensor **dx, tc_tensor **ddropped, const tc_mask *mask,
                                      tc_tensor **dgamma, tc_tensor **dbeta, tc_tensor *dy, tc_tensor *x, tc_tensor *gamma, tc_tensor *mean,
                                      tc_tensor *rstd, tc_error *err);

#endif
