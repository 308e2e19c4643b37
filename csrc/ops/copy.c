/* copy.c: copies that are recorded: clones, casts, moves between devices. Nothing is saved. */
#include "../core/kept_half.h"
#include "op.h"

typedef struct copy_attributes {
    tc_dtype dtype; /* of the input */
    tc_device device;
} copy_attributes;

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const copy_attributes *a = node->attributes;
    tc_tensor *const dy = grad_outputs[0];
    TC_OWNED tc_tensor *dx = NULL;
    if (dy->dtype == a->dtype && tc_same_device(dy->storage->device, a->device)) {
        grad_inputs[0] = tc_tensor_retain(dy);
        return TC_OK;
    }
    TC_TRY(tc_tensor_empty(&dx, dy->ndim, dy->shape, a->dtype, a->device, err));
    TC_TRY(tc_tensor_copy(dx, dy, err));
    grad_inputs[0] = tc_take(&dx);
    return TC_OK;
}

static const tc_op clone_op = {"clone", backward, .attribute_bytes = sizeof(copy_attributes)},
                   cast_op = {"cast", backward, .attribute_bytes = sizeof(copy_attributes)};

static tc_status copied(tc_tensor **out, tc_tensor *x, tc_dtype dtype, tc_device device, tc_error *err)
{
    const copy_attributes a = {x->dtype, x->storage->device};
    TC_OWNED tc_tensor *y = NULL;
    TC_TRY(tc_tensor_empty(&y, x->ndim, x->shape, dtype, device, err));
    TC_TRY(tc_tensor_copy(y, x, err));
    if (dtype == x->dtype || (tc_dtype_is_float(dtype) && tc_dtype_is_float(x->dtype)))
        return tc_finish_alone(out, tc_take(&y), x, dtype == x->dtype ? &clone_op : &cast_op, &a, err);
    *out = tc_take(&y); /* has no gradient */
    return TC_OK;
}

tc_status tc_clone(tc_tensor **out, tc_tensor *x, tc_error *err) { return copied(out, x, x->dtype, x->storage->device, err); }

tc_status tc_contiguous(tc_tensor **out, tc_tensor *x, tc_error *err)
{
    if (!x->contiguous) return tc_clone(out, x, err);
    *out = tc_tensor_retain(x);
    return TC_OK;
}

tc_status tc_to(tc_tensor **out, tc_tensor *x, tc_dtype dtype, tc_device device, tc_error *err)
{
    if (dtype != x->dtype || !tc_same_device(device, x->storage->device)) return copied(out, x, dtype, device, err);
    *out = tc_tensor_retain(x);
    return TC_OK;
}

tc_status tc_cast_parameter(tc_tensor **out, tc_tensor *x, tc_dtype dtype, tc_error *err)
{
    const copy_attributes a = {x->dtype, x->storage->device};
    TC_OWNED tc_tensor *y = NULL;
    const tc_backend *backend;
    TC_TRY(tc_backend_for(&backend, a.device, err));
    if (x->dtype != TC_FLOAT32)
        return tc_fail(err, TC_ERROR_TYPE, "x is %s; expected float32, which is cast to halves", tc_dtype_name(x->dtype));
    const bool keeps = backend->compute_dtype(dtype) == dtype && tc_may_keep_half(x);
    TC_TRY((keeps ? tc_kept_half : tc_half_copy)(&y, x, dtype, err));
    return tc_finish_alone(out, tc_take(&y), x, &cast_op, &a, err);
}

tc_status tc_cast(tc_tensor **out, tc_tensor *x, tc_dtype dtype, tc_error *err) { return tc_to(out, x, dtype, x->storage->device, err); }
tc_status tc_to_device(tc_tensor **out, tc_tensor *x, tc_device device, tc_error *err) { return tc_to(out, x, x->dtype, device, err); }

tc_status tc_bring_number(tc_scope *s, tc_tensor **number, const tc_tensor *beside)
{
    tc_tensor *brought;
    if (!*number || !beside || (*number)->ndim > 0 || !tc_tensor_on_cpu(*number) || tc_tensor_on_cpu(beside)) return TC_OK;
    TC_TRY(tc_to_device(&brought, *number, beside->storage->device, s->err));
    *number = brought;
    return tc_own(s, brought);
}

tc_status tc_round_number(tc_argument *number, tc_dtype dtype, tc_error *err)
{
    TC_OWNED tc_tensor *rounded = NULL, *wide = NULL;
    if (number->tensor || (dtype != TC_FLOAT16 && dtype != TC_BFLOAT16)) return TC_OK;
    number->scalar.kind = TC_FLOAT64;
    TC_TRY(tc_tensor_full(&rounded, 0, NULL, number->scalar.real, dtype, (tc_device){TC_CPU, 0}, err));
    TC_TRY(tc_tensor_wrap(&wide, &number->scalar.real, 0, NULL, NULL, TC_FLOAT64, true, NULL, NULL, err));
    return tc_tensor_copy(wide, rounded, err);
}
