/* check.c: see check.h. */
#include "check.h"

tc_status tc_check_float(const tc_tensor *tensor, const char *name, tc_error *err)
{
    if (!tensor || tc_dtype_is_float(tensor->dtype)) return TC_OK;
    return tc_fail(err, TC_ERROR_TYPE, "%s is %s; a floating dtype is needed: convert it with .float() or np.float32", name,
                   tc_dtype_name(tensor->dtype));
}

tc_status tc_check_same_dtype(const tc_tensor *a, const char *a_name, const tc_tensor *b, const char *b_name, tc_error *err)
{
    if (!a || !b || a->dtype == b->dtype) return TC_OK;
    return tc_fail(err, TC_ERROR_TYPE, "%s is %s but %s is %s; they must have one dtype: convert one with .to()", a_name,
                   tc_dtype_name(a->dtype), b_name, tc_dtype_name(b->dtype));
}

tc_status tc_check_constant(const tc_tensor *tensor, const char *name, tc_error *err)
{
    if (!tensor || !tc_grad_enabled() || !tc_tensor_requires_grad(tensor)) return TC_OK;
    return tc_fail(err, TC_ERROR_NOT_IMPLEMENTED, "%s requires a gradient, which this op does not give; pass %s.detach()", name, name);
}

tc_status tc_check_gradient(const tc_tensor *gradient, const char *name, int ndim, const int64_t *shape, const tc_tensor *like,
                            const char *like_name, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    TC_TRY(tc_check_float(gradient, name, err));
    TC_TRY(tc_check_same_dtype(gradient, name, like, like_name, err));
    TC_TRY(tc_check_same_device(gradient, name, like, like_name, err));
    bool same = gradient->ndim == ndim;
    for (int i = 0; same && i < ndim; i++) same = gradient->shape[i] == shape[i];
    if (same) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "%s has shape %s but the result has %s; they must be equal", name, tc_tensor_text(a, gradient),
                   tc_shape_text(b, ndim, shape));
}
