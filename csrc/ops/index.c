/* index.c: x[...] with NumPy's index expressions. A basic index is a view; the rest is gathered.
 *
 * Saved for the backward of a gather: where its points are on a contiguous tensor (8 bytes each). */
#include "index.h"

#include <string.h>

#include "../core/backend.h"
#include "../core/layout.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"
#include "view.h"

tc_status tc_index_to_device(tc_tensor **out, tc_tensor *tensor, tc_device device, tc_error *err)
{
    const tc_device at = tensor->storage->device;
    if (at.type == device.type && at.index == device.index) {
        *out = tc_tensor_retain(tensor);
        return TC_OK;
    }
    tc_status status = tc_tensor_empty(out, tensor->ndim, tensor->shape, tensor->dtype, device, err);
    if (status != TC_OK) return status;
    status = tc_tensor_copy(*out, tensor, err);
    if (status != TC_OK) tc_tensor_release(*out);
    return status;
}

tc_status tc_index_run(const tc_kernel *kernel, tc_tensor *selection, tc_tensor *base, const tc_index_place *place, tc_tensor *offsets,
                       tc_error *err)
{
    const size_t bytes = tc_dtype_size(base->dtype);
    tc_index_args args = {.selection = selection->data,
                          .base = base->data + place->offset * (int64_t)bytes,
                          .offsets = (const int64_t *)(void *)offsets->data,
                          .element_bytes = (int)bytes,
                          .points = place->points,
                          .numel = 1};
    const bool one = selection->ndim == 0 && place->selection_ndim > 0; /* stands for all */
    int64_t step = 1;
    for (int i = place->ndim; i >= 0; i--) {
        if (i == place->before) {
            args.point_stride = one ? 0 : step;
            step *= place->points;
        }
        if (i == 0) break;
        args.shape[i - 1] = place->shape[i - 1];
        args.base_strides[i - 1] = place->strides[i - 1];
        args.selection_strides[i - 1] = one ? 0 : step;
        step *= place->shape[i - 1];
        args.numel *= place->shape[i - 1];
    }
    if (args.points == 0 || args.numel == 0) return TC_OK;
    int64_t *const strides[2] = {args.base_strides, args.selection_strides};
    args.ndim = tc_layout_merge(place->ndim, args.shape, 2, strides, false);
    const bool by_element = kernel == &tc_kernel_index_gather;
    const int64_t items = by_element ? tc_divide_up(args.points * args.numel, TC_INDEX_BLOCK) : tc_divide_up(args.numel, TC_INDEX_COLUMNS);
    const double cost =
        by_element ? TC_INDEX_BLOCK : (double)args.points * (args.numel < TC_INDEX_COLUMNS ? (double)args.numel : TC_INDEX_COLUMNS);
    const tc_dtype compute = tc_compute_dtype(base->dtype);
    return tc_run(base->storage->device, compute, kernel, &args, items, cost, 0, err);
}

/* ---- the gradient of a gather: added where it came from ------------------------------------------------------------------------ */

static tc_status gather_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_index_place *place = node->attributes;
    const tc_dtype dtype = grad_outputs[0]->dtype, compute = tc_compute_dtype(dtype); /* half types add up in float32 */
    tc_tensor *dy = NULL, *dx = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_tensor_as(&dy, grad_outputs[0], compute, err));
    TC_TRY(tc_tensor_zeros(&dx, place->base_ndim, place->base_shape, compute, dy->storage->device, err));
    TC_TRY(tc_index_run(&tc_kernel_index_add, dy, dx, place, tc_node_saved(node, 0), err));
    TC_TRY(tc_tensor_as(&grad_inputs[0], dx, dtype, err));
cleanup:
    tc_tensor_release(dy);
    tc_tensor_release(dx);
    return status;
}

static const tc_op gather_op = {"index", gather_backward, NULL};

/* Puts the gather on the tape. `offsets` are on x's device; right for the backward when x is contiguous. */
static tc_status record_gather(tc_tensor *y, tc_tensor *x, const tc_index_plan *plan, tc_tensor *offsets, tc_error *err)
{
    int64_t strides[TC_MAX_DIMS];
    tc_index_place place;
    tc_tensor *plain = NULL, *saved = NULL;
    tc_status status = TC_OK;
    tc_c_strides(strides, x->ndim, x->shape);
    TC_TRY(tc_index_place_at(&place, plan, strides, err));
    if (x->contiguous || !tc_tape_wants(1, &x)) {
        saved = tc_tensor_retain(offsets);
    } else {
        TC_TRY(tc_index_offsets(&plain, plan, strides, err));
        TC_TRY(tc_index_to_device(&saved, plain, x->storage->device, err));
    }
    const tc_record record = {.op = &gather_op,
                              .input_count = 1,
                              .inputs = &x,
                              .output_count = 1,
                              .outputs = &y,
                              .saved_count = 1,
                              .saved = &saved,
                              .attributes = &place,
                              .attribute_bytes = sizeof place};
    TC_TRY(tc_tape_record(&record, err));
cleanup:
    tc_tensor_release(plain);
    tc_tensor_release(saved);
    return status;
}

static tc_status gather(tc_tensor **out, tc_tensor *x, const tc_index_plan *plan, tc_error *err)
{
    tc_index_place place;
    tc_tensor *offsets = NULL, *moved = NULL, *y = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_index_place_at(&place, plan, x->strides, err));
    TC_TRY(tc_index_offsets(&offsets, plan, x->strides, err));
    TC_TRY(tc_index_to_device(&moved, offsets, x->storage->device, err));
    TC_TRY(tc_tensor_empty(&y, place.selection_ndim, place.selection_shape, x->dtype, x->storage->device, err));
    TC_TRY(tc_index_run(&tc_kernel_index_gather, y, x, &place, moved, err));
    TC_TRY(record_gather(y, x, plan, moved, err));
    *out = tc_tensor_retain(y);
cleanup:
    tc_tensor_release(offsets);
    tc_tensor_release(moved);
    tc_tensor_release(y);
    return status;
}

tc_status tc_index_get(tc_tensor **out, tc_tensor *x, int count, const tc_index *indices, tc_error *err)
{
    tc_index_plan plan;
    tc_status status = tc_index_plan_make(&plan, x, count, indices, err);
    if (status != TC_OK) return status;
    if (plan.advanced)
        status = gather(out, x, &plan, err);
    else
        status = tc_window(out, x, plan.kept, plan.kept_shape, plan.kept_axis, plan.kept_step, plan.start, false, err);
    tc_index_plan_end(&plan);
    return status;
}
