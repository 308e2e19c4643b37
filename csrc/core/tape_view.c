/* tape_view.c: what a write in place does to the history of other tensors in the same memory. */
#include "tape_view.h"

#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "own.h"
#include "tape_node.h"

/* A view as a window of its base, which is contiguous. */
typedef struct part {
    int ndim, base_ndim;
    int64_t base_shape[TC_MAX_DIMS];
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS], offset;
} part;

/* Does no element occur twice? May be false where none does: each stride has to exceed all that the axes with smaller ones span. */
static bool has_distinct_elements(const tc_tensor *view)
{
    bool passed[TC_MAX_DIMS] = {false};
    for (int64_t reach = 0, left = view->ndim; left > 0; left--) {
        int next = -1;
        for (int i = 0; i < view->ndim; i++)
            if (!passed[i] && (next < 0 || llabs(view->strides[i]) < llabs(view->strides[next]))) next = i;
        passed[next] = true;
        if (view->shape[next] <= 1) continue;
        if (llabs(view->strides[next]) <= reach) return false;
        reach += (view->shape[next] - 1) * llabs(view->strides[next]);
    }
    return true;
}

/* Are all elements of the view in its base, which is contiguous? After base.data = another part of the memory they may not be. */
static bool is_inside(const tc_tensor *view)
{
    const int64_t bytes = (int64_t)tc_dtype_size(view->dtype);
    int64_t low = (view->data - view->base->data) / bytes, high = low;
    for (int i = 0; i < view->ndim && view->numel; i++) *(view->strides[i] < 0 ? &low : &high) += (view->shape[i] - 1) * view->strides[i];
    return !view->numel || (low >= 0 && high < view->base->numel);
}

/* False where no gradient can be passed between view and base, or the base has other memory by now. */
static bool find_part(part *p, const tc_tensor *view)
{
    const tc_tensor *base = view->base;
    if (!base || base->storage != view->storage || base->dtype != view->dtype || !base->contiguous || base->requires_grad) return false;
    if (!is_inside(view) || !has_distinct_elements(view)) return false;
    *p = (part){.ndim = view->ndim, .base_ndim = base->ndim, .offset = (view->data - base->data) / (int64_t)tc_dtype_size(view->dtype)};
    memcpy(p->base_shape, base->shape, sizeof(int64_t) * (size_t)base->ndim);
    memcpy(p->shape, view->shape, sizeof(int64_t) * (size_t)view->ndim);
    memcpy(p->strides, view->strides, sizeof(int64_t) * (size_t)view->ndim);
    return true;
}

tc_status tc_gradient_inside(tc_tensor **out, const tc_tensor *dy, int base_ndim, const int64_t *base_shape, const int64_t *strides,
                             int64_t offset, tc_error *err)
{
    TC_OWNED tc_tensor *dbase = NULL, *window = NULL;
    TC_TRY(tc_tensor_zeros(&dbase, base_ndim, base_shape, dy->dtype, dy->storage->device, err));
    TC_TRY(tc_tensor_alias(&window, dbase, dy->ndim, dy->shape, strides, offset, err));
    TC_TRY(tc_tensor_copy(window, dy, err));
    *out = tc_take(&dbase);
    return TC_OK;
}

tc_status tc_gradient_outside(tc_tensor **out, const tc_tensor *dy, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset,
                              tc_error *err)
{
    TC_OWNED tc_tensor *outside = NULL, *window = NULL, *zero = NULL;
    TC_TRY(tc_tensor_like(&outside, dy, err));
    TC_TRY(tc_tensor_copy(outside, dy, err));
    TC_TRY(tc_tensor_alias(&window, outside, ndim, shape, strides, offset, err));
    TC_TRY(tc_tensor_zeros(&zero, 0, NULL, dy->dtype, dy->storage->device, err));
    TC_TRY(tc_tensor_copy(window, zero, err));
    *out = tc_take(&outside);
    return TC_OK;
}

enum { BASE, VIEW, INPUTS }; /* the base before the write; the view after it */

static tc_status write_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const part *p = node->attributes;
    TC_OWNED tc_tensor *dy = NULL, *window = NULL;
    TC_TRY(tc_tensor_contiguous(&dy, grad_outputs[0], err));
    if (tc_node_needs(node, VIEW)) {
        TC_TRY(tc_tensor_alias(&window, dy, p->ndim, p->shape, p->strides, p->offset, err));
        TC_TRY(tc_tensor_copy_of(&grad_inputs[VIEW], window, err));
    }
    if (tc_node_needs(node, BASE)) return tc_gradient_outside(&grad_inputs[BASE], dy, p->ndim, p->shape, p->strides, p->offset, err);
    return TC_OK;
}

static tc_status part_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const part *p = node->attributes;
    return tc_gradient_inside(&grad_inputs[BASE], grad_outputs[0], p->base_ndim, p->base_shape, p->strides, p->offset, err);
}

static const tc_op write_op = {"a write through a view", write_backward}, part_op = {"view", part_backward};

void tc_tape_note_view(tc_tensor *view, tc_tensor *x)
{
    if (!tc_dtype_is_float(view->dtype) || view->storage->is_argument || !(tc_grad_enabled() || tc_tape_is_detached(x))) return;
    TC_ASSERT(view->storage == x->storage && !view->base);
    view->base = tc_tensor_retain(x->base ? x->base : tc_tensor_itself(x));
}

void tc_tape_write_base(tc_tensor *view)
{
    part p;
    tc_error ignored;
    tc_tensor *const inputs[] = {[BASE] = view->base, [VIEW] = view};
    if (view->of || !view->base || view->base->storage != view->storage) return;
    if (!tc_tape_lacks_writes(view->base, view) || !tc_tape_wants(INPUTS, inputs)) return;
    const tc_record record = {.op = &write_op,
                              .input_count = INPUTS,
                              .inputs = inputs,
                              .output_count = 1,
                              .outputs = &view->base,
                              .attributes = &p,
                              .attribute_bytes = sizeof p};
    if (find_part(&p, view) && tc_tape_take_writes(view->base, &record, &ignored) == TC_OK) return;
    if (view->base->version == TC_NEVER_STALE) view->base->version = view->traced_before;
}

static bool renewable_part(part *p, const tc_tensor *view)
{
    const tc_tensor *base = view->base;
    if (!base || view->of || !base->node) return false; /* a header of a call's own was renewed when it was made */
    return tc_tape_is_stale(view) && !tc_tape_is_stale(base) && find_part(p, view);
}

bool tc_tape_is_renewable(const tc_tensor *view)
{
    part p;
    return renewable_part(&p, view);
}

tc_status tc_tape_renew_view(tc_tensor *view, tc_error *err)
{
    part p;
    if (!renewable_part(&p, view)) return TC_OK;
    tc_tensor *const base = view->base;
    const tc_record record = {.op = &part_op,
                              .input_count = 1,
                              .inputs = &base,
                              .output_count = 1,
                              .outputs = &view,
                              .attributes = &p,
                              .attribute_bytes = sizeof p};
    tc_node *node, *before = view->node;
    TC_TRY(tc_node_make_for(&node, view, &record, err));
    tc_set_history(view, node, 0);
    view->version = base->version; /* other threads may have written since */
    view->wrote = false;
    tc_node_release(node);
    if (before) tc_node_release(before);
    return TC_OK;
}
