/* assign.c: copies that are recorded, moves between devices, and writing in place.
 *
 * A write replaces the target's history: after y[...] = v the old value's gradient is zero where it was overwritten, and v gets the
 * gradient of what was written. Writing through a view of a recorded tensor is refused when the tensor is used again (tape.h). */
#include <string.h>

#include "../core/backend.h"
#include "../core/layout.h"
#include "../core/reduction.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "index.h"
#include "operands.h"

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
    const tc_record record = {.op = &copy_op,
                              .input_count = 1,
                              .inputs = &x,
                              .output_count = 1,
                              .outputs = &y,
                              .attributes = &from,
                              .attribute_bytes = sizeof from};
    if (status == TC_OK) status = tc_tape_record(&record, err);
    if (status != TC_OK)
        tc_tensor_release(y);
    else
        *out = y;
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

/* What was written, on a contiguous tensor of the target's shape.  saved: where its points are, and the same without those written over. */
typedef struct assign_attributes {
    tc_index_place place;
    tc_dtype value_dtype;
    tc_device value_device;
    int value_ndim;
    int64_t value_shape[TC_MAX_DIMS];
} assign_attributes;

static tc_status window_of(tc_tensor **out, tc_tensor *base, const tc_index_place *place, tc_error *err)
{
    return tc_tensor_alias(out, base, place->ndim, place->shape, place->strides, place->offset, err);
}

/* dvalue = what dy has where the value was written, summed over the axes it was repeated along. */
static tc_status value_gradient(tc_tensor **out, tc_node *node, tc_tensor *dy, tc_error *err)
{
    const assign_attributes *a = node->attributes;
    const tc_index_place *place = &a->place;
    tc_tensor *selection = NULL, *sum = NULL, *cast = NULL;
    tc_status status = TC_OK;
    if (place->advanced) {
        TC_TRY(tc_tensor_empty(&selection, place->selection_ndim, place->selection_shape, dy->dtype, dy->storage->device, err));
        TC_TRY(tc_index_run(&tc_kernel_index_gather, selection, dy, place, tc_node_saved(node, 1), err));
    } else {
        TC_TRY(window_of(&selection, dy, place, err));
    }
    TC_TRY(tc_sum_to_shape(&sum, selection, a->value_ndim, a->value_shape, err));
    TC_TRY(tc_tensor_as(&cast, sum, a->value_dtype, err));
    TC_TRY(tc_index_to_device(out, cast, a->value_device, err));
cleanup:
    tc_tensor_release(selection);
    tc_tensor_release(sum);
    tc_tensor_release(cast);
    return status;
}

/* dtarget = dy, zero where the target was written over. */
static tc_status target_gradient(tc_tensor **out, tc_node *node, const tc_tensor *dy, tc_error *err)
{
    const assign_attributes *a = node->attributes;
    tc_tensor *dtarget = NULL, *window = NULL, *zero = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_tensor_like(&dtarget, dy, err));
    TC_TRY(tc_tensor_copy(dtarget, dy, err));
    TC_TRY(tc_tensor_zeros(&zero, 0, NULL, dy->dtype, dy->storage->device, err));
    if (a->place.advanced) {
        TC_TRY(tc_index_run(&tc_kernel_index_put, zero, dtarget, &a->place, tc_node_saved(node, 0), err));
    } else {
        TC_TRY(window_of(&window, dtarget, &a->place, err));
        TC_TRY(tc_tensor_copy(window, zero, err));
    }
    *out = tc_tensor_retain(dtarget);
cleanup:
    tc_tensor_release(dtarget);
    tc_tensor_release(window);
    tc_tensor_release(zero);
    return status;
}

/* inputs: the target before the write, the value */
static tc_status assign_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    tc_tensor *dy;
    tc_status status = tc_tensor_contiguous(&dy, grad_outputs[0], err);
    if (status != TC_OK) return status;
    if (tc_node_needs(node, 1)) status = value_gradient(&grad_inputs[1], node, dy, err);
    if (status == TC_OK && tc_node_needs(node, 0)) status = target_gradient(&grad_inputs[0], node, dy, err);
    tc_tensor_release(dy);
    return status;
}

static const tc_op assign_op = {"item assignment", assign_backward, NULL};

/* The bytes a tensor reaches, on the CPU. */
static void reach(const tc_tensor *tensor, uintptr_t *low, uintptr_t *high)
{
    const intptr_t size = (intptr_t)tc_dtype_size(tensor->dtype);
    *low = (uintptr_t)tensor->data;
    *high = *low + (uintptr_t)size;
    for (int i = 0; i < tensor->ndim; i++) {
        const intptr_t span = (intptr_t)((tensor->shape[i] - 1) * tensor->strides[i]) * size;
        if (span < 0)
            *low += (uintptr_t)span;
        else
            *high += (uintptr_t)span;
    }
}

static bool may_overlap(const tc_tensor *a, const tc_tensor *b)
{
    uintptr_t a_low, a_high, b_low, b_high;
    if (a->storage == b->storage) return true;
    if (a->numel == 0 || b->numel == 0 || !tc_tensor_on_cpu(a) || !tc_tensor_on_cpu(b)) return false;
    reach(a, &a_low, &a_high); /* two ndarrays may be views of one */
    reach(b, &b_low, &b_high);
    return a_low < b_high && b_low < a_high;
}

/* NumPy takes a value with more axes than the selection when the first ones have length 1. Recorded. */
static tc_status drop_leading_ones(tc_tensor **out, tc_tensor *value, int ndim, tc_error *err)
{
    int drop = 0;
    while (value->ndim - drop > ndim && value->shape[drop] == 1) drop++;
    if (drop) return tc_reshape(out, value, value->ndim - drop, value->shape + drop, false, err);
    *out = tc_tensor_retain(value);
    return TC_OK;
}

static tc_status check_fits(const tc_tensor *value, const tc_index_place *place, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    const int lead = place->selection_ndim - value->ndim;
    bool fits = lead >= 0;
    for (int i = 0; fits && i < value->ndim; i++) fits = value->shape[i] == 1 || value->shape[i] == place->selection_shape[lead + i];
    if (fits) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "a value of shape %s cannot be written to a selection of shape %s: it must broadcast to it",
                   tc_tensor_text(a, value), tc_shape_text(b, place->selection_ndim, place->selection_shape));
}

/* The value as the write reads it: where the target is, in memory the write does not touch; for points in the target's dtype and dense. */
static tc_status prepare_value(tc_tensor **out, const tc_tensor *target, tc_tensor *value, const tc_index_place *place, tc_error *err)
{
    const tc_device device = target->storage->device;
    tc_tensor *source = NULL;
    tc_status status = TC_OK;
    if (place->advanced && value->numel == 1)
        TC_TRY(tc_tensor_empty(&source, 0, NULL, target->dtype, device, err));
    else if (place->advanced)
        TC_TRY(tc_tensor_empty(&source, place->selection_ndim, place->selection_shape, target->dtype, device, err));
    else if (may_overlap(target, value))
        TC_TRY(tc_tensor_empty(&source, value->ndim, value->shape, value->dtype, device, err));
    else
        return tc_index_to_device(out, value, device, err);
    if (value->numel == 1 && value->ndim > source->ndim) {
        tc_tensor *number;
        TC_TRY(tc_tensor_alias(&number, value, 0, NULL, NULL, 0, err));
        status = tc_tensor_copy(source, number, err);
        tc_tensor_release(number);
    } else {
        status = tc_tensor_copy(source, value, err);
    }
    if (status == TC_OK) *out = tc_tensor_retain(source);
cleanup:
    tc_tensor_release(source);
    return status;
}

/* Everything a recorded write needs and can fail for. */
typedef struct write {
    tc_index_place place; /* on the target as it lies in memory */
    tc_tensor *offsets;   /* of the points, on the target's device */
    tc_tensor *source, *window;
    assign_attributes attributes;
    tc_tensor *saved[2];
} write;

static void write_end(write *w)
{
    tc_tensor *const owned[] = {w->offsets, w->source, w->window, w->saved[0], w->saved[1]};
    for (int i = 0; i < 5; i++) tc_tensor_release(owned[i]);
}

/* Offsets with the given strides, on the target's device: all of them, and those that last. */
static tc_status device_offsets(tc_tensor **all, tc_tensor **last, const tc_index_plan *plan, const int64_t *strides, tc_device device,
                                tc_error *err)
{
    tc_tensor *offsets = NULL, *lasting = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_index_offsets(&offsets, plan, strides, err));
    if (last) TC_TRY(tc_index_last_points(&lasting, offsets, err));
    if (last) TC_TRY(tc_index_to_device(last, lasting, device, err));
    TC_TRY(tc_index_to_device(all, offsets, device, err));
cleanup:
    tc_tensor_release(offsets);
    tc_tensor_release(lasting);
    return status;
}

static tc_status write_begin(write *w, tc_tensor *target, const tc_index_plan *plan, tc_tensor *value, bool recorded, tc_error *err)
{
    int64_t strides[TC_MAX_DIMS];
    const tc_device device = target->storage->device;
    tc_status status = TC_OK;
    memset(w, 0, sizeof *w);
    TC_TRY(tc_index_place_at(&w->place, plan, target->strides, err));
    TC_TRY(check_fits(value, &w->place, err));
    TC_TRY(prepare_value(&w->source, target, value, &w->place, err));
    if (plan->advanced)
        TC_TRY(device_offsets(&w->offsets, NULL, plan, target->strides, device, err));
    else
        TC_TRY(window_of(&w->window, target, &w->place, err));
    if (!recorded) return TC_OK;
    tc_c_strides(strides, target->ndim, target->shape);
    TC_TRY(tc_index_place_at(&w->attributes.place, plan, strides, err));
    if (plan->advanced) TC_TRY(device_offsets(&w->saved[0], &w->saved[1], plan, strides, device, err));
    w->attributes.value_dtype = value->dtype;
    w->attributes.value_device = value->storage->device;
    w->attributes.value_ndim = value->ndim;
    memcpy(w->attributes.value_shape, value->shape, sizeof(int64_t) * (size_t)value->ndim);
cleanup:
    if (status != TC_OK) write_end(w);
    return status;
}

static tc_status assign(tc_tensor *target, const tc_index_plan *plan, tc_tensor *value, tc_error *err)
{
    tc_tensor *const inputs[] = {target, tc_dtype_is_float(target->dtype) && tc_dtype_is_float(value->dtype) ? value : NULL};
    write w;
    tc_status status = write_begin(&w, target, plan, value, tc_tape_wants(2, inputs), err);
    if (status != TC_OK) return status;
    const tc_record record = {.op = &assign_op,
                              .input_count = 2,
                              .inputs = inputs,
                              .output_count = 1,
                              .outputs = &target,
                              .saved_count = 2,
                              .saved = w.saved,
                              .attributes = &w.attributes,
                              .attribute_bytes = sizeof w.attributes};
    TC_TRY(tc_tape_begin_write(target, &record, err));
    if (plan->advanced)
        status = tc_index_run(&tc_kernel_index_put, w.source, target, &w.place, w.offsets, err);
    else
        status = tc_tensor_copy(w.window, w.source, err);
cleanup:
    write_end(&w);
    return status;
}

tc_status tc_index_set(tc_tensor *x, int count, const tc_index *indices, tc_tensor *value, tc_error *err)
{
    tc_index_plan plan;
    tc_tensor *stripped = NULL;
    tc_status status = tc_index_plan_make(&plan, x, count, indices, err);
    if (status != TC_OK) return status;
    const int ndim = plan.kept + plan.points_ndim;
    TC_TRY(drop_leading_ones(&stripped, value, ndim, err));
    TC_TRY(assign(x, &plan, stripped, err));
cleanup:
    tc_index_plan_end(&plan);
    tc_tensor_release(stripped);
    return status;
}

tc_status tc_assign(tc_tensor *target, tc_tensor *value, tc_error *err) { return tc_index_set(target, 0, NULL, value, err); }

static int kind_of(tc_dtype dtype) { return dtype == TC_BOOL ? 0 : tc_dtype_is_float(dtype) ? 2 : 1; }

tc_status tc_replace(tc_tensor *target, tc_tensor *result, tc_error *err)
{
    tc_tensor *cast = NULL;
    tc_status status = TC_OK;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (!tc_tensor_same_shape(target, result))
        return tc_fail(err, TC_ERROR_VALUE, "the result has shape %s, which cannot be written in place to a tensor of shape %s",
                       tc_tensor_text(a, result), tc_tensor_text(b, target));
    if (kind_of(result->dtype) > kind_of(target->dtype))
        return tc_fail(err, TC_ERROR_TYPE, "the result is %s, which cannot be written in place to a tensor of %s",
                       tc_dtype_name(result->dtype), tc_dtype_name(target->dtype));
    TC_TRY(tc_cast(&cast, result, target->dtype, err));
    TC_TRY(tc_tape_begin_replace(target, cast, err));
    TC_TRY(tc_tensor_copy(target, cast, err));
cleanup:
    tc_tensor_release(cast);
    return status;
}
