/* where.c: the choice between two tensors or numbers, element by element.
 *
 * Saved for the backward: the condition. */
#include <string.h>

#include "../core/broadcast.h"
#include "../core/elementwise.h"
#include "../core/reduction.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"

typedef struct where_attributes {
    tc_dtype dtype[2];
    int ndim[2];
    int64_t shapes[2][TC_MAX_DIMS];
} where_attributes;

static const double cost = 2.0;

/* da is dy where the condition is set and 0 elsewhere; db the other way round. */
static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const where_attributes *at = node->attributes;
    tc_tensor *dy = grad_outputs[0], *chosen = NULL;
    tc_status status = TC_OK;
    for (int i = 0; i < 2; i++) {
        if (!tc_node_needs(node, i)) continue;
        const tc_element_input taken = {.tensor = dy}, zero = {.scalar = {TC_FLOAT64, 0.0, 0}};
        const tc_element_input in[3] = {{.tensor = tc_node_saved(node, 0)}, i == 0 ? taken : zero, i == 0 ? zero : taken};
        TC_TRY(tc_tensor_like(&chosen, dy, err));
        TC_TRY(tc_run_elementwise(chosen, 3, in, &tc_kernel_where_forward, 0, tc_compute_dtype(dy->dtype), cost, err));
        TC_TRY(tc_sum_to(&grad_inputs[i], chosen, at->ndim[i], at->shapes[i], at->dtype[i], err));
        tc_tensor_release(chosen);
        chosen = NULL;
    }
cleanup:
    tc_tensor_release(chosen);
    return status;
}

static const tc_op where_op = {"where", backward, NULL};

static tc_status record_where(tc_tensor *out, tc_tensor *condition, tc_tensor *a, tc_tensor *b, tc_error *err)
{
    tc_tensor *const inputs[2] = {a, b};
    if (!tc_dtype_is_float(out->dtype) || !tc_tape_wants(2, inputs)) return TC_OK;
    where_attributes at;
    for (int i = 0; i < 2; i++) {
        if (!inputs[i]) continue;
        at.dtype[i] = inputs[i]->dtype;
        at.ndim[i] = inputs[i]->ndim;
        memcpy(at.shapes[i], inputs[i]->shape, sizeof(int64_t) * (size_t)inputs[i]->ndim);
    }
    const tc_record record = {.op = &where_op,
                              .input_count = 2,
                              .inputs = inputs,
                              .output_count = 1,
                              .outputs = &out,
                              .saved_count = 1,
                              .saved = &condition,
                              .attributes = &at,
                              .attribute_bytes = sizeof at};
    return tc_tape_record(&record, err);
}

tc_status tc_where_backward(tc_tensor **da, tc_tensor **db, tc_tensor *dy, tc_tensor *condition, tc_tensor *a, tc_tensor *b, tc_error *err)
{
    tc_tensor *const inputs[2] = {a, b};
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    where_attributes at;
    tc_status status = TC_OK;
    if (tc_dtype_is_float(condition->dtype))
        TC_TRY(tc_fail(err, TC_ERROR_TYPE, "condition is %s; where needs a bool condition", tc_dtype_name(condition->dtype)));
    TC_TRY(tc_check_float(a, "a", err));
    TC_TRY(tc_check_same_dtype(a, "a", b, "b", err));
    TC_TRY(tc_check_same_device(a, "a", b, "b", err));
    TC_TRY(tc_check_same_device(a, "a", condition, "condition", err));
    TC_TRY(tc_broadcast_shape(&ndim, shape, a->ndim, a->shape, b->ndim, b->shape, err));
    TC_TRY(tc_broadcast_shape(&ndim, shape, ndim, shape, condition->ndim, condition->shape, err));
    TC_TRY(tc_check_gradient(dy, "dy", ndim, shape, a, "a", err));
    for (int i = 0; i < 2; i++) {
        at.dtype[i] = inputs[i]->dtype;
        at.ndim[i] = inputs[i]->ndim;
        memcpy(at.shapes[i], inputs[i]->shape, sizeof(int64_t) * (size_t)inputs[i]->ndim);
    }
    const tc_record record = {.op = &where_op, .input_count = 2, .saved_count = 1, .saved = &condition, .attributes = &at};
    TC_TRY(tc_tape_apply(&record, dy, (tc_tensor * *[]){da, db}, err));
cleanup:
    return status;
}

tc_status tc_where(tc_tensor **out, tc_tensor *condition, tc_tensor *a, tc_scalar a_scalar, tc_tensor *b, tc_scalar b_scalar, tc_error *err)
{
    tc_tensor *result = NULL;
    int ndim = condition->ndim;
    int64_t shape[TC_MAX_DIMS];
    tc_status status = TC_OK;
    const tc_dtype dtype = tc_result_dtype(a, a_scalar, b, b_scalar);
    if (tc_dtype_is_float(condition->dtype))
        return tc_fail(err, TC_ERROR_TYPE, "condition is %s; where needs a bool condition: compare first, as in x > 0",
                       tc_dtype_name(condition->dtype));
    TC_TRY(tc_check_same_device(condition, "condition", a, "the second argument", err));
    TC_TRY(tc_check_same_device(condition, "condition", b, "the third argument", err));
    memcpy(shape, condition->shape, sizeof(int64_t) * (size_t)ndim);
    if (a) TC_TRY(tc_broadcast_shape(&ndim, shape, ndim, shape, a->ndim, a->shape, err));
    if (b) TC_TRY(tc_broadcast_shape(&ndim, shape, ndim, shape, b->ndim, b->shape, err));
    TC_TRY(tc_tensor_empty(&result, ndim, shape, dtype, condition->storage->device, err));
    const tc_element_input in[3] = {{.tensor = condition}, {.tensor = a, .scalar = a_scalar}, {.tensor = b, .scalar = b_scalar}};
    TC_TRY(tc_run_elementwise(result, 3, in, tc_dtype_is_float(dtype) ? &tc_kernel_where_forward : &tc_kernel_integer_where, 0,
                              tc_compute_dtype(dtype), cost, err));
    TC_TRY(record_where(result, condition, a, b, err));
    *out = tc_tensor_retain(result);
cleanup:
    tc_tensor_release(result);
    return status;
}

tc_status tc_masked_fill(tc_tensor **out, tc_tensor *x, tc_tensor *mask, tc_scalar value, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    if (mask->dtype != TC_BOOL)
        return tc_fail(err, TC_ERROR_TYPE,
                       "mask is %s; masked_fill needs a bool mask, True where the value goes: mask == 0, or mask.bool()",
                       tc_dtype_name(mask->dtype));
    tc_status status = tc_broadcast_shape(&ndim, shape, x->ndim, x->shape, mask->ndim, mask->shape, err);
    if (status != TC_OK) return status;
    if (ndim != x->ndim || memcmp(shape, x->shape, sizeof(int64_t) * (size_t)ndim) != 0)
        return tc_fail(err, TC_ERROR_VALUE, "mask has shape %s, which does not broadcast to the shape of x, %s", tc_tensor_text(a, mask),
                       tc_tensor_text(b, x));
    if (value.kind == TC_FLOAT64 && !tc_dtype_is_float(x->dtype))
        return tc_fail(err, TC_ERROR_TYPE, "value %g cannot be written to a tensor of %s; convert the tensor with .float()", value.real,
                       tc_dtype_name(x->dtype));
    if (x->dtype == TC_BOOL) value = tc_scalar_bool(value.integer != 0);
    return tc_where(out, mask, NULL, value, x, (tc_scalar){TC_BOOL, 0.0, 0}, err);
}
