/* softmax.c: softmax and log softmax along one axis.
 *
 * Saved for the backward: y. */
#include "../kernels/softmax.h"

#include "../core/backend.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"
#include "view.h"

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
    const int64_t rows = inner == 1 ? outer : inner, groups = (rows + TC_SOFTMAX_ROWS - 1) / TC_SOFTMAX_ROWS;
    return inner == 1 ? groups : outer * groups;
}

static double group_cost(int64_t outer, int64_t C, int64_t inner)
{
    const int64_t rows = inner == 1 ? outer : inner;
    return 12.0 * (double)C * (double)(rows < TC_SOFTMAX_ROWS ? rows : TC_SOFTMAX_ROWS);
}

tc_status tc_softmax_forward(tc_tensor **y, tc_tensor *x, int64_t axis, bool logarithm, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *out = NULL;
    int along;
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(tc_normalize_axis(&along, axis, x->ndim, "dim", err));
    const tc_dtype result = x->dtype, compute = tc_compute_dtype(result);
    TC_TRY(tc_scope_cast(&scope, &x, compute, err));
    TC_TRY(tc_scope_contiguous(&scope, &x, err));
    TC_TRY(tc_tensor_like(&out, x, err));
    tc_softmax_forward_args args = {.y = out->data, .x = x->data, .logarithm = logarithm};
    split_shape(x, along, &args.outer, &args.C, &args.inner);
    if (out->numel > 0)
        TC_TRY(tc_run(x->storage->device, compute, TC_K_softmax_forward, &args, group_count(args.outer, args.inner),
                      group_cost(args.outer, args.C, args.inner), 0, err));
    TC_TRY(tc_cast(y, out, result, err));
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(out);
    return status;
}

tc_status tc_softmax_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *y, int64_t axis, bool logarithm, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *out = NULL;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int along;
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(dy, "dy", err));
    TC_TRY(tc_check_same_dtype(dy, "dy", y, "y", err));
    TC_TRY(tc_check_same_device(dy, "dy", y, "y", err));
    if (!tc_tensor_same_shape(dy, y))
        TC_TRY(
            tc_fail(err, TC_ERROR_VALUE, "dy has shape %s but y has %s; they must be equal", tc_tensor_text(a, dy), tc_tensor_text(b, y)));
    TC_TRY(tc_normalize_axis(&along, axis, y->ndim, "dim", err));
    const tc_dtype result = dy->dtype, compute = tc_compute_dtype(result);
    tc_tensor **operands[] = {&dy, &y};
    for (int i = 0; i < 2; i++) {
        TC_TRY(tc_scope_cast(&scope, operands[i], compute, err));
        TC_TRY(tc_scope_contiguous(&scope, operands[i], err));
    }
    TC_TRY(tc_tensor_like(&out, y, err));
    tc_softmax_backward_args args = {.dx = out->data, .dy = dy->data, .y = y->data, .logarithm = logarithm};
    split_shape(y, along, &args.outer, &args.C, &args.inner);
    if (out->numel > 0)
        TC_TRY(tc_run(y->storage->device, compute, TC_K_softmax_backward, &args, group_count(args.outer, args.inner),
                      group_cost(args.outer, args.C, args.inner), 0, err));
    TC_TRY(tc_tensor_as(dx, out, result, err));
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(out);
    return status;
}

/* ---- on the tape --------------------------------------------------------------------------------------------------------- */

typedef struct softmax_attributes {
    int64_t axis;
    bool logarithm;
} softmax_attributes;

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const softmax_attributes *at = node->attributes;
    return tc_softmax_backward(&grad_inputs[0], grad_outputs[0], tc_node_saved(node, 0), at->axis, at->logarithm, err);
}

static const tc_op ops[2] = {{"softmax", backward, NULL}, {"log_softmax", backward, NULL}};

static tc_status recorded(tc_tensor **y, tc_tensor *x, int64_t axis, bool logarithm, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *out = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(x, "x", err));
    const tc_dtype result = x->dtype;
    TC_TRY(tc_scope_cast(&scope, &x, tc_compute_dtype(result), err));
    TC_TRY(tc_softmax_forward(&out, x, axis, logarithm, err));
    const softmax_attributes at = {axis, logarithm};
    const tc_record record = {.op = &ops[logarithm],
                              .input_count = 1,
                              .inputs = &x,
                              .output_count = 1,
                              .outputs = &out,
                              .saved_count = 1,
                              .saved = &out,
                              .attributes = &at,
                              .attribute_bytes = sizeof at};
    TC_TRY(tc_tape_record(&record, err));
    TC_TRY(tc_cast(y, out, result, err));
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(out);
    return status;
}

tc_status tc_softmax(tc_tensor **y, tc_tensor *x, int64_t axis, tc_error *err) { return recorded(y, x, axis, false, err); }
tc_status tc_log_softmax(tc_tensor **y, tc_tensor *x, int64_t axis, tc_error *err) { return recorded(y, x, axis, true, err); }
