/* cat.c: tensors joined along an axis, an old one (cat) or a new one (stack). The gradients are windows of dy: nothing is saved. */
#include <inttypes.h>
#include <string.h>

#include "../core/allocator.h"
#include "../core/layout.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"

typedef struct cat_attributes {
    int axis;
    bool new_axis;
    int64_t lengths[]; /* of the inputs along the axis; -1: passed over */
} cat_attributes;

/* The part of `joined` that is input i: a view of `length` from `start`, without the axis when it was new. */
static tc_status part_of(tc_tensor **out, tc_tensor *joined, int axis, bool new_axis, int64_t start, int64_t length, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; i < joined->ndim; i++) {
        if (new_axis && i == axis) continue;
        shape[ndim] = i == axis ? length : joined->shape[i];
        strides[ndim++] = joined->strides[i];
    }
    return tc_tensor_alias(out, joined, ndim, shape, strides, start * joined->strides[axis], err);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const cat_attributes *a = node->attributes;
    tc_status status = TC_OK;
    int64_t start = 0;
    for (int i = 0; i < node->input_count && status == TC_OK; i++) {
        if (a->lengths[i] < 0) continue;
        if (tc_node_needs(node, i)) status = part_of(&grad_inputs[i], grad_outputs[0], a->axis, a->new_axis, start, a->lengths[i], err);
        start += a->lengths[i];
    }
    return status;
}

static const tc_op cat_op = {"cat", backward, NULL}, stack_op = {"stack", backward, NULL};

/* Everything of one call: the inputs in the dtype of the result, and how they lie in it. */
typedef struct join {
    int64_t count;
    tc_tensor **inputs; /* owned */
    cat_attributes *attributes;
    size_t attribute_bytes;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
} join;

static void join_end(join *j)
{
    for (int64_t i = 0; j->inputs && i < j->count; i++) tc_tensor_release(j->inputs[i]);
    if (j->inputs) tc_free(j->inputs, sizeof *j->inputs * (size_t)j->count);
    if (j->attributes) tc_free(j->attributes, j->attribute_bytes);
}

/* torch.cat passes over tensors of shape (0,), whatever the others look like. */
static bool is_nothing(const tc_tensor *tensor) { return tensor->ndim == 1 && tensor->shape[0] == 0; }

static tc_status join_begin(join *j, int64_t count, tc_tensor *const *tensors, bool new_axis, tc_error *err)
{
    tc_dtype dtype = tensors[0]->dtype;
    tc_status status = TC_OK;
    memset(j, 0, sizeof *j);
    j->count = count;
    j->attribute_bytes = sizeof *j->attributes + sizeof(int64_t) * (size_t)count;
    j->inputs = tc_allocate(sizeof *j->inputs * (size_t)count);
    if (j->inputs) memset(j->inputs, 0, sizeof *j->inputs * (size_t)count);
    j->attributes = tc_allocate(j->attribute_bytes);
    if (!j->inputs || !j->attributes)
        TC_TRY(tc_fail(err, TC_ERROR_MEMORY, "out of memory: the list of %" PRId64 " tensors to join", count));
    j->attributes->new_axis = new_axis;
    for (int64_t i = 1; i < count; i++) {
        TC_TRY(tc_check_same_device(tensors[0], "tensors[0]", tensors[i], "another of the tensors", err));
        dtype = tc_dtype_promote(dtype, tensors[i]->dtype);
    }
    for (int64_t i = 0; i < count; i++) TC_TRY(tc_cast(&j->inputs[i], tensors[i], dtype, err));
    return TC_OK;
cleanup:
    join_end(j);
    return status;
}

/* The shape of the result: that of the first tensor, longer along the axis. */
static tc_status join_shape(join *j, int64_t given, tc_error *err)
{
    const bool new_axis = j->attributes->new_axis;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int64_t first = 0;
    while (!new_axis && first + 1 < j->count && is_nothing(j->inputs[first])) first++;
    const tc_tensor *model = j->inputs[first];
    if (!new_axis && model->ndim == 0) return tc_fail(err, TC_ERROR_VALUE, "tensors without axes cannot be joined by cat(); use stack()");
    if (model->ndim + new_axis > TC_MAX_DIMS) return tc_fail(err, TC_ERROR_VALUE, "a tensor has at most %d axes", TC_MAX_DIMS);
    j->ndim = model->ndim + new_axis;
    tc_status status = tc_normalize_axis(&j->attributes->axis, given, j->ndim, "dim", err);
    if (status != TC_OK) return status;
    const int axis = j->attributes->axis;
    for (int i = 0; i < j->ndim; i++) j->shape[i] = i == axis ? 0 : model->shape[i - (new_axis && i > axis)];
    for (int64_t k = 0; k < j->count; k++) {
        const tc_tensor *x = j->inputs[k];
        bool fits = x->ndim == model->ndim;
        for (int i = 0; fits && i < x->ndim; i++) fits = x->shape[i] == model->shape[i] || (!new_axis && i == axis);
        if (!fits && (new_axis || !is_nothing(x)))
            return tc_fail(err, TC_ERROR_VALUE, "tensors[%" PRId64 "] has shape %s but tensors[%" PRId64 "] has %s; %s", first,
                           tc_tensor_text(a, model), k, tc_tensor_text(b, x),
                           new_axis ? "stack() needs equal shapes" : "cat() needs shapes that differ along `dim` alone");
        j->attributes->lengths[k] = new_axis ? 1 : fits ? x->shape[axis] : -1;
        if (fits) j->shape[axis] += j->attributes->lengths[k];
    }
    return TC_OK;
}

static tc_status joined(tc_tensor **out, int64_t count, tc_tensor *const *tensors, int64_t axis, bool new_axis, tc_error *err)
{
    join j;
    tc_tensor *y = NULL;
    tc_status status = TC_OK;
    if (count < 1) return tc_fail(err, TC_ERROR_VALUE, "tensors is empty; expected at least one tensor to join");
    TC_TRY(join_begin(&j, count, tensors, new_axis, err));
    status = join_shape(&j, axis, err);
    if (status == TC_OK) status = tc_tensor_empty(&y, j.ndim, j.shape, j.inputs[0]->dtype, j.inputs[0]->storage->device, err);
    int64_t start = 0;
    for (int64_t i = 0; i < count && status == TC_OK; i++) {
        tc_tensor *part;
        if (j.attributes->lengths[i] < 0) continue;
        status = part_of(&part, y, j.attributes->axis, new_axis, start, j.attributes->lengths[i], err);
        if (status == TC_OK) {
            status = tc_tensor_copy(part, j.inputs[i], err);
            tc_tensor_release(part);
        }
        start += j.attributes->lengths[i];
    }
    const tc_record record = {.op = new_axis ? &stack_op : &cat_op,
                              .input_count = (int)count,
                              .inputs = j.inputs,
                              .output_count = 1,
                              .outputs = &y,
                              .attributes = j.attributes,
                              .attribute_bytes = j.attribute_bytes};
    if (status == TC_OK) status = tc_tape_record(&record, err);
    if (status == TC_OK) *out = tc_tensor_retain(y);
    tc_tensor_release(y);
    join_end(&j);
cleanup:
    return status;
}

tc_status tc_cat(tc_tensor **out, int64_t count, tc_tensor *const *tensors, int64_t axis, tc_error *err)
{
    return joined(out, count, tensors, axis, false, err);
}

tc_status tc_stack(tc_tensor **out, int64_t count, tc_tensor *const *tensors, int64_t axis, tc_error *err)
{
    return joined(out, count, tensors, axis, true, err);
}
