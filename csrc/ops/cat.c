/* cat.c: tensors joined along an axis, an old one (cat) or a new one (stack). The gradients are views of dy: nothing is saved. */
#include <inttypes.h>
#include <string.h>

#include "op.h"

typedef struct part {
    int64_t length; /* along the axis; -1: skipped */
    tc_dtype dtype; /* of the input */
} part;

typedef struct cat_attributes {
    int axis;
    bool new_axis;
    part parts[];
} cat_attributes;

/* The part of `joined` that is one input: a view of `length` from `start`, without the axis when it was new. */
static tc_status part_of(tc_tensor **out, tc_tensor *joined, const cat_attributes *a, int64_t start, int64_t length, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; i < joined->ndim; i++) {
        if (a->new_axis && i == a->axis) continue;
        shape[ndim] = i == a->axis ? length : joined->shape[i];
        strides[ndim++] = joined->strides[i];
    }
    return tc_tensor_alias(out, joined, ndim, shape, strides, start * joined->strides[a->axis], err);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const cat_attributes *a = node->attributes;
    int64_t start = 0;
    for (int i = 0; i < node->input_count; i++) {
        const part *p = &a->parts[i];
        if (p->length < 0) continue;
        if (tc_node_needs(node, i)) {
            TC_OWNED tc_tensor *dpart = NULL;
            TC_TRY(part_of(&dpart, grad_outputs[0], a, start, p->length, err));
            if (dpart->dtype == p->dtype)
                grad_inputs[i] = tc_take(&dpart);
            else
                TC_TRY(tc_tensor_as(&grad_inputs[i], dpart, p->dtype, err));
        }
        start += p->length;
    }
    return TC_OK;
}

static const tc_op cat_op = {"cat", backward}, stack_op = {"stack", backward};

/* torch.cat skips tensors of shape (0,), whatever the shapes of the others. */
static bool is_nothing(const tc_tensor *tensor) { return tensor->ndim == 1 && tensor->shape[0] == 0; }

/* The shape of the result: that of the first tensor, longer along the axis. Fills in the attributes, too. */
static tc_status joint_shape(cat_attributes *a, int *ndim, int64_t shape[TC_MAX_DIMS], int64_t count, tc_tensor *const *tensors,
                             int64_t given, tc_error *err)
{
    const bool new_axis = a->new_axis;
    char p[TC_SHAPE_TEXT], q[TC_SHAPE_TEXT];
    int64_t first = 0;
    while (!new_axis && first + 1 < count && is_nothing(tensors[first])) first++;
    const tc_tensor *model = tensors[first];
    if (!new_axis && model->ndim == 0) return tc_fail(err, TC_ERROR_VALUE, "tensors without axes cannot be joined by cat(); use stack()");
    if (model->ndim + new_axis > TC_MAX_DIMS) return tc_fail(err, TC_ERROR_VALUE, "a tensor has at most %d axes", TC_MAX_DIMS);
    *ndim = model->ndim + new_axis;
    TC_TRY(tc_normalize_axis(&a->axis, given, *ndim, "dim", err));
    for (int i = 0; i < *ndim; i++) shape[i] = i == a->axis ? 0 : model->shape[i - (new_axis && i > a->axis)];
    for (int64_t k = 0; k < count; k++) {
        const tc_tensor *x = tensors[k];
        bool fits = x->ndim == model->ndim;
        for (int i = 0; fits && i < x->ndim; i++) fits = x->shape[i] == model->shape[i] || (!new_axis && i == a->axis);
        if (!fits && (new_axis || !is_nothing(x)))
            return tc_fail(err, TC_ERROR_VALUE, "tensors[%" PRId64 "] has shape %s but tensors[%" PRId64 "] has %s; %s", first,
                           tc_tensor_text(p, model), k, tc_tensor_text(q, x),
                           new_axis ? "stack() needs equal shapes" : "cat() needs shapes that differ along `dim` alone");
        a->parts[k] = (part){new_axis ? 1 : fits ? x->shape[a->axis] : -1, x->dtype};
        if (fits && __builtin_add_overflow(shape[a->axis], a->parts[k].length, &shape[a->axis]))
            return tc_fail(err, TC_ERROR_VALUE, "the lengths of the tensors along axis %d add up to more than memory can address", a->axis);
    }
    return TC_OK;
}

static tc_status joined(tc_tensor **out, int64_t count, tc_tensor *const *tensors, int64_t axis, bool new_axis, tc_error *err)
{
    TC_SCOPE(s, err);
    if (count < 1) return tc_fail(err, TC_ERROR_VALUE, "tensors is empty; expected at least one tensor to join");
    tc_input in[] = {{"tensors[0]", tensors[0]}};
    const size_t bytes = sizeof(cat_attributes) + sizeof(part) * (size_t)count;
    void *memory;
    tc_tensor *y;
    int64_t shape[TC_MAX_DIMS], start = 0;
    int ndim = 0;
    TC_TRY(tc_begin_moving(&s, in, 1));
    for (int64_t i = 1; i < count; i++) {
        TC_TRY(tc_check_same_device(tensors[0], "tensors[0]", tensors[i], "another of the tensors", err));
        s.result = s.compute = tc_dtype_promote(s.compute, tensors[i]->dtype);
    }
    TC_TRY(tc_make_memory(&s, &memory, bytes));
    cat_attributes *a = memory;
    a->new_axis = new_axis;
    TC_TRY(joint_shape(a, &ndim, shape, count, tensors, axis, err));
    TC_TRY(tc_make(&s, &y, ndim, shape));
    for (int64_t i = 0; i < count; i++) {
        TC_OWNED tc_tensor *to = NULL;
        if (a->parts[i].length < 0) continue;
        TC_TRY(part_of(&to, y, a, start, a->parts[i].length, err));
        TC_TRY(tc_tensor_copy(to, tensors[i], err));
        start += a->parts[i].length;
    }
    return tc_finish(
        &s, out, y,
        &(tc_record){
            .op = new_axis ? &stack_op : &cat_op, .input_count = (int)count, .inputs = tensors, .attributes = a, .attribute_bytes = bytes});
}

tc_status tc_cat(tc_tensor **out, int64_t count, tc_tensor *const *tensors, int64_t axis, tc_error *err)
{
    return joined(out, count, tensors, axis, false, err);
}

tc_status tc_stack(tc_tensor **out, int64_t count, tc_tensor *const *tensors, int64_t axis, tc_error *err)
{
    return joined(out, count, tensors, axis, true, err);
}
