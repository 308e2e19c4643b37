/* check.h: the checks that ops share, one message each (tc_check_same_device, which the core shares, is in tensor.h). */
#ifndef TC_OPS_CHECK_H
#define TC_OPS_CHECK_H

#include "../core/tensor.h"

/* Errors that name the argument. NULL tensors pass. */
TC_CHECKED tc_status tc_check_float(const tc_tensor *tensor, const char *name, tc_error *err);
TC_CHECKED tc_status tc_check_same_dtype(const tc_tensor *a, const char *a_name, const tc_tensor *b, const char *b_name, tc_error *err);

/* While gradients are recorded, an argument to which this op gives no gradient must not require one. */
TC_CHECKED tc_status tc_check_constant(const tc_tensor *tensor, const char *name, tc_error *err);

/* The gradient of a result has its shape, and the dtype and device of `like`. */
TC_CHECKED tc_status tc_check_gradient(const tc_tensor *gradient, const char *name, int ndim, const int64_t *shape, const tc_tensor *like,
                                       const char *like_name, tc_error *err);

#endif
