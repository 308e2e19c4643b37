/* operands.c: see operands.h. The cast is an op of its own. */
#include "operands.h"

#include "../core/status.h"
#include "../core/tape.h"

tc_tensor *tc_old_scope_own(tc_old_scope *scope, tc_tensor *tensor)
{
    if (tensor) scope->owned[scope->count++] = tensor;
    return tensor;
}

void tc_old_scope_end(tc_old_scope *scope)
{
    for (int i = 0; i < scope->count; i++) tc_tensor_release(scope->owned[i]);
    scope->count = 0;
}

tc_status tc_old_scope_cast(tc_old_scope *scope, tc_tensor **tensor, tc_dtype dtype, tc_error *err)
{
    if (!*tensor || (*tensor)->dtype == dtype) return TC_OK;
    tc_tensor *cast;
    tc_status status = tc_cast(&cast, *tensor, dtype, err);
    if (status == TC_OK) *tensor = tc_old_scope_own(scope, cast);
    return status;
}

tc_status tc_old_scope_contiguous(tc_old_scope *scope, tc_tensor **tensor, tc_error *err)
{
    if (!*tensor || (*tensor)->contiguous) return TC_OK;
    tc_tensor *copy;
    tc_status status = tc_tensor_contiguous(&copy, *tensor, err);
    if (status == TC_OK) *tensor = tc_old_scope_own(scope, copy);
    return status;
}

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

tc_status tc_check_same_device(const tc_tensor *a, const char *a_name, const tc_tensor *b, const char *b_name, tc_error *err)
{
    char p[TC_DEVICE_TEXT], q[TC_DEVICE_TEXT];
    if (!a || !b) return TC_OK;
    const tc_device x = a->storage->device, y = b->storage->device;
    if (x.type == y.type && x.index == y.index) return TC_OK;
    return tc_fail(err, TC_ERROR_STATE, "%s is on %s but %s is on %s; move one with .to()", a_name, tc_device_text(p, x), b_name,
                   tc_device_text(q, y));
}

tc_status tc_check_constant(const tc_tensor *tensor, const char *name, tc_error *err)
{
    if (!tensor || !tc_grad_enabled() || !tc_tensor_requires_grad(tensor)) return TC_OK;
    return tc_fail(err, TC_ERROR_NOT_IMPLEMENTED, "%s requires a gradient, which this loss does not give; pass %s.detach()", name, name);
}

tc_status tc_check_gradient(const tc_tensor *gradient, const char *name, int ndim, const int64_t *shape, const tc_tensor *like,
                            const char *like_name, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_status status = tc_check_float(gradient, name, err);
    if (status == TC_OK) status = tc_check_same_dtype(gradient, name, like, like_name, err);
    if (status == TC_OK) status = tc_check_same_device(gradient, name, like, like_name, err);
    if (status != TC_OK) return status;
    bool same = gradient->ndim == ndim;
    for (int i = 0; same && i < ndim; i++) same = gradient->shape[i] == shape[i];
    if (same) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "%s has shape %s but the result has %s; they must be equal", name, tc_tensor_text(a, gradient),
                   tc_shape_text(b, ndim, shape));
}

tc_status tc_make_own(tc_tensor **tensor, const tc_tensor *source, tc_error *err)
{
    tc_tensor *copy;
    if ((*tensor)->contiguous && (*tensor)->storage != source->storage) return TC_OK;
    tc_status status = tc_tensor_like(&copy, *tensor, err);
    if (status != TC_OK) return status;
    status = tc_tensor_copy(copy, *tensor, err);
    if (status != TC_OK) {
        tc_tensor_release(copy);
        return status;
    }
    tc_tensor_release(*tensor);
    *tensor = copy;
    return TC_OK;
}

/* ---- cast ------------------------------------------------------------------------------------------------------------- */

static tc_status cast_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_dtype *from = node->attributes;
    return tc_tensor_as(&grad_inputs[0], grad_outputs[0], *from, err);
}

static const tc_op cast_op = {"cast", cast_backward, NULL};

tc_status tc_cast(tc_tensor **out, tc_tensor *x, tc_dtype dtype, tc_error *err)
{
    if (x->dtype == dtype) {
        *out = tc_tensor_retain(x);
        return TC_OK;
    }
    tc_tensor *y;
    tc_status status = tc_tensor_like_as(&y, x, dtype, err);
    if (status != TC_OK) return status;
    status = tc_tensor_copy(y, x, err);
    if (status == TC_OK && tc_dtype_is_float(dtype) && tc_dtype_is_float(x->dtype)) {
        const tc_dtype from = x->dtype;
        const tc_record record = {.op = &cast_op,
                                  .input_count = 1,
                                  .inputs = &x,
                                  .output_count = 1,
                                  .outputs = &y,
                                  .attributes = &from,
                                  .attribute_bytes = sizeof from};
        status = tc_tape_record(&record, err);
    }
    if (status != TC_OK)
        tc_tensor_release(y);
    else
        *out = y;
    return status;
}
