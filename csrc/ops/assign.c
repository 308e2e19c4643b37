/* assign.c: writing in place.
 *
 * A write replaces the target's history: after y[...] = v the old value's gradient is zero where it was overwritten, and v gets the
 * gradient of what was written. Other tensors in the same memory follow, or are out of date (core/tape_view.h); writing all elements of one
 * that is out of date mends it. A view that was written and is then assigned to where it is, as Python ends y[k] += v, is not written
 * again. */
#include <string.h>

#include "../core/reduction.h"
#include "../core/tape_view.h"
#include "../core/write_where.h"
#include "index.h"
#include "view.h"

/* The written elements, on a contiguous tensor of the target's shape.  saved: the offsets of its points, and the same without points that
 * were overwritten. */
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

/* NumPy takes a value with more axes than the selection when the first ones have length 1. Returns the number of those. */
static int surplus_axes(int ndim, const int64_t *shape, int selection_ndim)
{
    int surplus = 0;
    while (ndim - surplus > selection_ndim && shape[surplus] == 1) surplus++;
    return surplus;
}

/* dvalue = what dy has where the value was written, summed over the axes it was repeated along. */
static tc_status value_gradient(tc_tensor **out, tc_node *node, tc_tensor *dy, tc_error *err)
{
    const assign_attributes *a = node->attributes;
    const tc_index_place *place = &a->place;
    const int surplus = surplus_axes(a->value_ndim, a->value_shape, place->selection_ndim);
    int64_t strides[TC_MAX_DIMS];
    TC_OWNED tc_tensor *selection = NULL, *sum = NULL, *cast = NULL, *moved = NULL;
    if (place->advanced) {
        TC_TRY(tc_tensor_empty(&selection, place->selection_ndim, place->selection_shape, dy->dtype, dy->storage->device, err));
        TC_TRY(tc_index_gather(selection, dy, place, tc_node_saved(node, 1), err));
    } else {
        TC_TRY(window_of(&selection, dy, place, err));
    }
    TC_TRY(tc_sum_to_shape(&sum, selection, a->value_ndim - surplus, a->value_shape + surplus, err));
    TC_TRY(tc_tensor_as(&cast, sum, a->value_dtype, err));
    TC_TRY(tc_tensor_on(&moved, cast, a->value_device, err));
    tc_c_strides(strides, a->value_ndim, a->value_shape);
    return tc_tensor_alias(out, moved, a->value_ndim, a->value_shape, strides, 0, err);
}

/* dtarget = dy, zero where the target was written over. */
static tc_status target_gradient(tc_tensor **out, tc_node *node, tc_tensor *dy, tc_error *err)
{
    const tc_index_place *place = &((const assign_attributes *)node->attributes)->place;
    TC_OWNED tc_tensor *dtarget = NULL, *zero = NULL;
    if (!place->advanced) return tc_gradient_outside(out, dy, place->ndim, place->shape, place->strides, place->offset, err);
    TC_TRY(tc_tensor_copy_of(&dtarget, dy, err));
    TC_TRY(tc_tensor_zeros(&zero, 0, NULL, dy->dtype, dy->storage->device, err));
    TC_TRY(tc_index_run(&tc_kernel_index_put, zero, dtarget, place, tc_node_saved(node, 0), err));
    *out = tc_take(&dtarget);
    return TC_OK;
}

enum { TARGET, VALUE, INPUTS }; /* the target before the write */

static tc_status assign_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    TC_OWNED tc_tensor *dy = NULL;
    TC_TRY(tc_tensor_contiguous(&dy, grad_outputs[0], err));
    if (tc_node_needs(node, VALUE)) TC_TRY(value_gradient(&grad_inputs[VALUE], node, dy, err));
    if (tc_node_needs(node, TARGET)) TC_TRY(target_gradient(&grad_inputs[TARGET], node, dy, err));
    return TC_OK;
}

static const tc_op assign_op = {"item assignment", assign_backward, .attribute_bytes = sizeof(assign_attributes)};

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

bool tc_may_overlap(const tc_tensor *a, const tc_tensor *b)
{
    uintptr_t a_low, a_high, b_low, b_high;
    if (a->storage == b->storage) return true;
    if (a->numel == 0 || b->numel == 0 || !tc_tensor_on_cpu(a) || !tc_tensor_on_cpu(b)) return false;
    reach(a, &a_low, &a_high); /* two ndarrays may be views of one */
    reach(b, &b_low, &b_high);
    return a_low < b_high && b_low < a_high;
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

static tc_status on_device(tc_scope *s, tc_tensor **tensor)
{
    TC_TRY(tc_tensor_on(tensor, *tensor, s->device, s->err));
    return tc_own(s, *tensor);
}

/* The value as the write reads it: on the target's device, in memory that the write does not touch; for points also in the target's dtype
 * and dense. */
static tc_status prepare_value(tc_scope *s, tc_tensor **out, const tc_tensor *target, tc_tensor *value, const tc_index_place *place)
{
    if (!place->advanced && !tc_may_overlap(target, value)) {
        *out = value;
        return on_device(s, out);
    }
    if (!place->advanced) {
        TC_TRY(tc_tensor_like(out, value, s->err));
        TC_TRY(tc_own(s, *out));
    } else if (value->numel == 1) {
        TC_TRY(tc_make(s, out, 0, NULL));
        TC_TRY(tc_make_view(s, &value, value, 0, NULL, NULL, 0));
    } else {
        TC_TRY(tc_make(s, out, place->selection_ndim, place->selection_shape));
    }
    return tc_tensor_copy(*out, value, s->err);
}

/* The offsets of the points: on the target as it is in memory; for the backward on a contiguous tensor, all of them and those that last. */
enum { HERE, PLAIN, LAST, OFFSETS };

/* Everything that a recorded write needs and that can fail. */
typedef struct write {
    tc_index_place place;        /* on the target as it is in memory */
    tc_tensor *offsets[OFFSETS]; /* on the target's device; NULL: not needed */
    tc_tensor *source, *window;
    assign_attributes attributes;
} write;

static tc_status prepare_offsets(tc_scope *s, write *w, const tc_tensor *target, const tc_index_plan *plan, bool recorded)
{
    TC_TRY(tc_index_offsets(s, &w->offsets[HERE], recorded ? &w->offsets[PLAIN] : NULL, plan, target));
    if (recorded) TC_TRY(tc_index_last_points(s, &w->offsets[LAST], w->offsets[PLAIN], target->numel));
    return tc_index_move_offsets(s, OFFSETS, w->offsets);
}

static tc_status prepare_record(write *w, const tc_tensor *target, const tc_index_plan *plan, const tc_tensor *value, tc_error *err)
{
    int64_t strides[TC_MAX_DIMS];
    tc_c_strides(strides, target->ndim, target->shape);
    TC_TRY(tc_index_place_at(&w->attributes.place, plan, strides, err));
    w->attributes.value_dtype = value->dtype;
    w->attributes.value_device = value->storage->device;
    w->attributes.value_ndim = value->ndim;
    memcpy(w->attributes.value_shape, value->shape, sizeof(int64_t) * (size_t)value->ndim);
    return TC_OK;
}

/* Is the history of the tensor out of date, for good? */
static bool is_lost(const tc_tensor *tensor) { return tc_tape_is_stale(tensor) && !tc_tape_is_renewable(tensor); }

/* Writes all elements of a target whose history is out of date, and does not matter from then on. */
static tc_status write_all(tc_tensor *target, tc_tensor *value, tc_error *err)
{
    TC_OWNED tc_tensor *moved = NULL, *expanded = NULL, *copy = NULL;
    TC_TRY(tc_to(&moved, value, target->dtype, target->storage->device, err));
    TC_TRY(tc_expand(&expanded, moved, target->ndim, target->shape, err));
    TC_TRY(tc_clone(&copy, expanded, err));
    return tc_replace(target, copy, err);
}

bool tc_can_write_where(const tc_tensor *x, const tc_tensor *mask)
{
    if (!tc_tensor_on_cpu(x) || !tc_tensor_on_cpu(mask) || !tc_layout_is_distinct(x->ndim, x->shape, x->strides)) return false;
    return !tc_may_overlap(x, mask) || tc_tensor_same_view(x, mask);
}

/* Is it x[mask] = one number, all on the CPU? */
static bool is_filled_where(const tc_tensor *x, int count, const tc_index *indices, const tc_tensor *value)
{
    const tc_tensor *mask = count == 1 && indices->kind == TC_INDEX_TENSOR ? indices->tensor : NULL;
    if (!mask || mask->dtype != TC_BOOL || mask->ndim == 0 || mask->ndim > x->ndim || value->numel != 1) return false;
    if (!tc_tensor_on_cpu(value) || !tc_can_write_where(x, mask)) return false;
    return memcmp(mask->shape, x->shape, sizeof(int64_t) * (size_t)mask->ndim) == 0;
}

/* x = value where the mask is set: no list of places is made, and unless it is recorded no second x. */
static tc_status fill_where(tc_scope *s, tc_tensor *x, tc_tensor *mask, tc_tensor *value, bool recorded)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    TC_OWNED tc_tensor *own_mask = NULL, *cast = NULL, *filled = NULL;
    tc_tensor *number;
    for (int i = 0; i < x->ndim; i++) shape[i] = i < mask->ndim ? mask->shape[i] : 1, strides[i] = i < mask->ndim ? mask->strides[i] : 0;
    TC_TRY(tc_make_view(s, &mask, mask, x->ndim, shape, strides, 0));
    if (recorded) {
        TC_TRY(tc_tensor_copy_of(&own_mask, mask, s->err)); /* its owner may change it before the backward */
        TC_TRY(tc_reshape(&number, value, 0, NULL, true, s->err));
        TC_TRY(tc_own(s, number));
        TC_TRY(tc_cast(&cast, number, x->dtype, s->err));
        TC_TRY(tc_where(&filled, own_mask, &(tc_argument){.tensor = cast}, &(tc_argument){.tensor = x}, s->err));
        return tc_replace(x, filled, s->err);
    }
    TC_TRY(tc_make_view(s, &value, value, 0, NULL, NULL, 0));
    TC_TRY(tc_make(s, &number, 0, NULL));
    TC_TRY(tc_tensor_copy(number, value, s->err)); /* it may be an element of x */
    TC_TRY(tc_tensor_begin_write(x, s->err));
    return tc_write_where(x, mask, number, s->err);
}

tc_status tc_index_set(tc_tensor *x, int count, const tc_index *indices, tc_tensor *value, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *const inputs[] = {[TARGET] = x, [VALUE] = tc_dtype_is_float(x->dtype) && tc_dtype_is_float(value->dtype) ? value : NULL};
    tc_index_plan plan;
    tc_tensor *stripped = value;
    const bool recorded = tc_tape_wants(INPUTS, inputs);
    write w = {.offsets = {NULL}};
    TC_TRY(tc_begin_moving(&s, in, 1));
    if (value->ndim == 0 && value->storage->is_argument)
        TC_TRY(tc_check_value_fits(value, x->dtype, err)); /* a number, or an array of one */
    if (is_filled_where(x, count, indices, value)) return fill_where(&s, x, indices->tensor, value, recorded);
    TC_TRY(tc_index_plan_make(&s, &plan, x, count, indices));
    TC_TRY(tc_index_place_at(&w.place, &plan, x->strides, err));
    const int surplus = surplus_axes(value->ndim, value->shape, w.place.selection_ndim);
    if (surplus) TC_TRY(tc_make_view(&s, &stripped, value, value->ndim - surplus, value->shape + surplus, value->strides + surplus, 0));
    TC_TRY(check_fits(stripped, &w.place, err));
    if (!plan.advanced) TC_TRY(tc_make_view(&s, &w.window, x, w.place.ndim, w.place.shape, w.place.strides, w.place.offset));
    const bool is_part = !plan.advanced && value->storage == x->storage && tc_tensor_same_view(value, w.window);
    if (!is_part && recorded && is_lost(x) && w.window && tc_tensor_same_view(w.window, x)) return write_all(x, stripped, err);
    const bool is_there = is_part && (!recorded || tc_tape_has_writes(x, value) || tc_tape_lacks_writes(x, value));
    if (!is_there) TC_TRY(prepare_value(&s, &w.source, x, stripped, &w.place));
    if (plan.advanced) TC_TRY(prepare_offsets(&s, &w, x, &plan, recorded));
    if (recorded) TC_TRY(prepare_record(&w, x, &plan, value, err));
    const tc_record record = {.op = &assign_op,
                              .input_count = INPUTS,
                              .inputs = inputs,
                              TC_SAVED(w.offsets[PLAIN], w.offsets[LAST]),
                              .attributes = &w.attributes};
    if (is_there) return tc_finish_written(&s, &record);
    TC_TRY(tc_finish_write(&s, &record));
    if (plan.advanced) return tc_index_run(&tc_kernel_index_put, w.source, x, &w.place, w.offsets[HERE], err);
    return tc_tensor_copy(w.window, w.source, err);
}

tc_status tc_assign(tc_tensor *target, tc_tensor *value, tc_error *err) { return tc_index_set(target, 0, NULL, value, err); }

tc_status tc_fill(tc_tensor *target, tc_tensor *value, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    if (value->numel == 1) return tc_assign(target, value, err);
    return tc_fail(err, TC_ERROR_VALUE, "fill_ takes one number; value has shape %s", tc_tensor_text(text, value));
}

tc_status tc_zero(tc_tensor *target, tc_error *err)
{
    TC_OWNED tc_tensor *zero = NULL;
    TC_TRY(tc_tensor_zeros(&zero, 0, NULL, TC_FLOAT32, (tc_device){TC_CPU, 0}, err));
    return tc_assign(target, zero, err);
}

tc_status tc_replace(tc_tensor *target, tc_tensor *result, tc_error *err)
{
    TC_OWNED tc_tensor *cast = NULL;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (!tc_tensor_same_shape(target, result))
        return tc_fail(err, TC_ERROR_VALUE, "the result has shape %s, which cannot be written in place to a tensor of shape %s",
                       tc_tensor_text(a, result), tc_tensor_text(b, target));
    if (tc_dtype_kind_of(result->dtype) > tc_dtype_kind_of(target->dtype))
        return tc_fail(err, TC_ERROR_TYPE, "the result is %s, which cannot be written in place to a tensor of %s",
                       tc_dtype_name(result->dtype), tc_dtype_name(target->dtype));
    TC_TRY(tc_cast(&cast, result, target->dtype, err));
    TC_TRY(tc_tape_keep_saved(result, target, err));
    TC_TRY(tc_tape_begin_replace(target, cast, err));
    return tc_tensor_copy(target, cast, err);
}
