/* assign.c: copies that are recorded, moves between devices, and writing in place.
 *
 * A write replaces the target's history: after y[...] = v the old value's gradient is zero where it was overwritten, and v gets the gradient of
 * what was written. Writing through a view of a recorded tensor is refused when the tensor is used again (tape.h). */
#include <string.h>

#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"
#include "view.h"

/* ---- clone, contiguous, to another device --------------------------------------------------------------------------------- */

static tc_status copy_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_device *from = node->attributes;
    const tc_tensor *dy = grad_outputs[0];
    const tc_device at = dy->storage->device;
    if (at.type == from->type && at.index == from->index) {
        grad_inputs[0] = tc_tensor_retain(grad_outputs[0]);
        return TC_OK;
    }
    tc_status status = tc_tensor_empty(&grad_inputs[0], dy->ndim, dy->shape, dy->dtype, *from, err);
    return status == TC_OK ? tc_tensor_copy(grad_inputs[0], dy, err) : status;
}

static const tc_op copy_op = {"clone", copy_backward, NULL};

static tc_status copied(tc_tensor **out, tc_tensor *x, tc_device device, tc_error *err)
{
    tc_tensor *y;
    const tc_device from = x->storage->device;
    tc_status status = tc_tensor_empty(&y, x->ndim, x->shape, x->dtype, device, err);
    if (status != TC_OK) return status;
    status = tc_tensor_copy(y, x, err);
    const tc_record record = {
        .op = &copy_op, .input_count = 1, .inputs = &x, .output_count = 1, .outputs = &y, .attributes = &from, .attribute_bytes = sizeof from};
    if (status == TC_OK) status = tc_tape_record(&record, err);
    if (status != TC_OK) tc_tensor_release(y);
    else *out = y;
    return status;
}

tc_status tc_clone(tc_tensor **out, tc_tensor *x, tc_error *err) { return copied(out, x, x->storage->device, err); }

tc_status tc_contiguous(tc_tensor **out, tc_tensor *x, tc_error *err)
{
    if (!x->contiguous) return tc_clone(out, x, err);
    *out = tc_tensor_retain(x);
    return TC_OK;
}

tc_status tc_to_device(tc_tensor **out, tc_tensor *x, tc_device device, tc_error *err)
{
    const tc_device at = x->storage->device;
    if (at.type != device.type || at.index != device.index) return copied(out, x, device, err);
    *out = tc_tensor_retain(x);
    return TC_OK;
}

/* ---- writing in place --------------------------------------------------------------------------------------------------------- */

/* The window of the target that was written, on a contiguous tensor of the target's shape. */
typedef struct assign_attributes {
    int ndim, window_ndim, value_ndim;
    tc_dtype value_dtype;
    int64_t shape[TC_MAX_DIMS], window_shape[TC_MAX_DIMS], window_strides[TC_MAX_DIMS], value_shape[TC_MAX_DIMS];
    int64_t offset;
} assign_attributes;

/* inputs: the target before the write, the value.  dtarget = dy with zeros in the window; dvalue = the window of dy. */
static tc_status assign_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const assign_attributes *a = node->attributes;
    tc_tensor *dy = NULL, *dtarget = NULL, *window = NULL, *zero = NULL, *sum = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_tensor_contiguous(&dy, grad_outputs[0], err));
    if (tc_node_needs(node, 1)) {
        TC_TRY(tc_tensor_alias(&window, dy, a->window_ndim, a->window_shape, a->window_strides, a->offset, err));
        TC_TRY(tc_sum_to_shape(&sum, window, a->value_ndim, a->value_shape, err));
        TC_TRY(tc_tensor_as(&grad_inputs[1], sum, a->value_dtype, err));
        tc_tensor_release(window);
        window = NULL;
    }
    if (tc_node_needs(node, 0)) {
        TC_TRY(tc_tensor_like(&dtarget, dy, err));
        TC_TRY(tc_tensor_copy(dtarget, dy, err));
        TC_TRY(tc_tensor_alias(&window, dtarget, a->window_ndim, a->window_shape, a->window_strides, a->offset, err));
        TC_TRY(tc_tensor_full(&zero, 0, NULL, 0.0, dy->dtype, dy->storage->device, err));
        TC_TRY(tc_tensor_copy(window, zero, err));
        grad_inputs[0] = tc_tensor_retain(dtarget);
    }
cleanup:
    tc_tensor_release(dy);
    tc_tensor_release(dtarget);
    tc_tensor_release(window);
    tc_tensor_release(zero);
    tc_tensor_release(sum);
    return status;
}

static const tc_op assign_op = {"item assignment", assign_backward, NULL};

/* `window` is an unrecorded alias of target. */
static assign_attributes describe(const tc_tensor *target, const tc_tensor *window, const int64_t *steps, int64_t offset, const tc_tensor *value)
{
    assign_attributes a = {.ndim = target->ndim, .window_ndim = window->ndim, .value_ndim = value->ndim, .value_dtype = value->dtype, .offset = offset};
    memcpy(a.shape, target->shape, sizeof(int64_t) * (size_t)target->ndim);
    memcpy(a.window_shape, window->shape, sizeof(int64_t) * (size_t)window->ndim);
    memcpy(a.window_strides, steps, sizeof(int64_t) * (size_t)window->ndim);
    memcpy(a.value_shape, value->shape, sizeof(int64_t) * (size_t)value->ndim);
    return a;
}

/* Do the two tensors share memory? */
static bool overlap(const tc_tensor *a, const tc_tensor *b) { return a->storage == b->storage; }

tc_status tc_assign_window(tc_tensor *target, tc_tensor *window, const int64_t *steps, int64_t offset, tc_tensor *value, tc_error *err)
{
    tc_tensor *source = NULL;
    tc_status status = TC_OK;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    /* everything that can be refused comes before the write */
    tc_error ignored;
    bool fits = tc_broadcast_shape(&ndim, shape, window->ndim, window->shape, value->ndim, value->shape, &ignored) == TC_OK && ndim == window->ndim;
    fits = fits && memcmp(shape, window->shape, sizeof(int64_t) * (size_t)ndim) == 0;
    if (!fits)
        return tc_fail(err, TC_ERROR_VALUE, "a value of shape %s cannot be written to a selection of shape %s: it must broadcast to it", tc_tensor_text(a, value),
                       tc_tensor_text(b, window));
    if (overlap(target, value)) {
        TC_TRY(tc_tensor_like(&source, value, err));
        TC_TRY(tc_tensor_copy(source, value, err));
    } else {
        source = tc_tensor_retain(value);
    }
    TC_TRY(tc_tensor_begin_write(target, err));
    TC_TRY(tc_tensor_copy(window, source, err));
    tc_tensor *const inputs[] = {target, value};
    if (tc_tape_wants(2, inputs)) {
        const assign_attributes attributes = describe(target, window, steps, offset, value);
        if (target->node) target->node_version++; /* this write is the one the new node stands for */
        const tc_record record = {.op = &assign_op,
                                  .input_count = 2,
                                  .inputs = inputs,
                                  .output_count = 1,
                                  .outputs = &target,
                                  .attributes = &attributes,
                                  .attribute_bytes = sizeof attributes};
        TC_TRY(tc_tape_record_in_place(target, &record, err));
    } else if (target->node) {
        target->node_version++; /* under no_grad: the caller knows */
    }
cleanup:
    tc_tensor_release(source);
    return status;
}

tc_status tc_assign(tc_tensor *target, tc_tensor *value, tc_error *err)
{
    tc_tensor *window;
    int64_t steps[TC_MAX_DIMS], step = 1;
    for (int i = target->ndim - 1; i >= 0; i--) {
        steps[i] = step;
        step *= target->shape[i] > 0 ? target->shape[i] : 1;
    }
    tc_status status = tc_tensor_detach(&window, target, err);
    if (status != TC_OK) return status;
    status = tc_assign_window(target, window, steps, 0, value, err);
    tc_tensor_release(window);
    return status;
}
