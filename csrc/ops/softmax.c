/* softmax.c: softmax and log softmax along one axis.
 *
 * Saved for the backward: y. */
#include "../kernels/softmax.h"

#include "../core/layout.h"
#include "op.h"

/* x (outer, C, inner) with C the length of `axis`. */
static void split_shape(const tc_tensor *x, int axis, int64_t *outer, int64_t *C, int64_t *inner)
{
    *outer = *inner = 1;
    *C = x->ndim ? x->shape[axis] : 1;
    for (int i = 0; i < x->ndim; i++)
        if (i != axis) *(i < axis ? outer : inner) *= x->shape[i];
}

static int64_t group_count(int64_t outer, int64_t inner)
{
    const int64_t rows = inner == 1 ? outer : inner, groups = tc_divide_up(rows, TC_SOFTMAX_ROWS);
    return inner == 1 ? groups : outer * groups;
}

static double group_cost(int64_t outer, int64_t C, int64_t inner)
{
    const int64_t rows = inner == 1 ? outer : inner;
    return 12.0 * (double)C * (double)(rows < TC_SOFTMAX_ROWS ? rows : TC_SOFTMAX_ROWS);
}

typedef struct softmax_attributes {
    int64_t axis;
    bool logarithm;
} softmax_attributes;

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const softmax_attributes *a = node->attributes;
    return tc_softmax_backward(&grad_inputs[0], grad_outputs[0], tc_node_saved(node, 0), a->axis, a->logarithm, err);
}

static const tc_op ops[2] = {{"softmax", backward, .attribute_bytes = sizeof(softmax_attributes)},
                             {"log_softmax", backward, .attribute_bytes = sizeof(softmax_attributes)}};

tc_status tc_softmax(tc_tensor **y, tc_tensor *x, int64_t axis, bool logarithm, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *out;
    int along;
    TC_TRY(tc_begin(&s, in, 1));
    TC_TRY(tc_normalize_axis(&along, axis, x->ndim, "dim", err));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    tc_softmax_forward_args args = {.y = out->data, .x = in[0].data, .logarithm = logarithm};
    split_shape(x, along, &args.outer, &args.C, &args.inner);
    if (x->numel)
        TC_TRY(tc_compute(&s, &tc_kernel_softmax_forward, &args, group_count(args.outer, args.inner),
                          group_cost(args.outer, args.C, args.inner)));
    const softmax_attributes a = {along, logarithm};
    return tc_finish(&s, y, out, &(tc_record){.op = &ops[logarithm], TC_SAVED(out), .attributes = &a});
}

tc_status tc_softmax_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *y, int64_t axis, bool logarithm, tc_error *err)
{
    TC_SCOPE(s, err);
    enum { DY, Y };
    tc_input in[] = {[DY] = {"dy", dy}, [Y] = {"y", y}};
    tc_tensor *out;
    int along;
    TC_TRY(tc_begin_backward(&s, in, 2));
    TC_TRY(tc_check_shape(&s, dy, "dy", "y has", y->ndim, y->shape));
    TC_TRY(tc_normalize_axis(&along, axis, y->ndim, "dim", err));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &out, y->ndim, y->shape));
    tc_softmax_backward_args args = {.dx = out->data, .dy = in[DY].data, .y = in[Y].data, .logarithm = logarithm};
    split_shape(y, along, &args.outer, &args.C, &args.inner);
    if (y->numel)
        TC_TRY(tc_compute(&s, &tc_kernel_softmax_backward, &args, group_count(args.outer, args.inner),
                          group_cost(args.outer, args.C, args.inner)));
    return tc_give_rounded(&s, 1, &(tc_result){dx, out});
}
