/* softmax.c: softmax and log-softmax along any axis.
 *
 * Saved for the backward: the result. */
#include "../kernels/softmax.h"

#include "../core/backend.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"
#include "view.h"

/* Rows and their length; x is contiguous, its last axis is the row. */
static int64_t row_count(const tc_tensor *x, int64_t *C)
{
    *C = x->ndim ? x->shape[x->ndim - 1] : 1;
    return *C ? x->numel / *C : 0;
}

static tc_status rows_forward(tc_tensor **y, tc_tensor *x, bool logarithm, tc_error *err)
{
    tc_softmax_forward_args args = {.x = x->data, .logarithm = logarithm};
    const int64_t N = row_count(x, &args.C);
    tc_status status = tc_tensor_like(y, x, err);
    if (status != TC_OK) return status;
    args.y = (*y)->data;
    return tc_run(x->storage->device, x->dtype, TC_K_softmax_forward, &args, N, 12.0 * (double)args.C, 0, err);
}

static tc_status rows_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *y, bool logarithm, tc_error *err)
{
    tc_softmax_backward_args args = {.dy = dy->data, .y = y->data, .logarithm = logarithm};
    const int64_t N = row_count(y, &args.C);
    tc_status status = tc_tensor_like(dx, y, err);
    if (status != TC_OK) return status;
    args.dx = (*dx)->data;
    return tc_run(y->storage->device, y->dtype, TC_K_softmax_backward, &args, N, 4.0 * (double)args.C, 0, err);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const bool *logarithm = node->attributes;
    tc_tensor *dy;
    tc_status status = tc_tensor_contiguous(&dy, grad_outputs[0], err);
    if (status != TC_OK) return status;
    status = rows_backward(&grad_inputs[0], dy, tc_node_saved(node, 0), *logarithm, err);
    tc_tensor_release(dy);
    return status;
}

static const tc_op softmax_op = {"softmax", backward, NULL};

/* Along the last axis of a contiguous float32 or float64 tensor, on the tape. */
static tc_status recorded_rows(tc_tensor **out, tc_tensor *x, bool logarithm, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *y = NULL, *source = x;
    tc_status status = TC_OK;
    TC_TRY(tc_scope_contiguous(&scope, &source, err));
    TC_TRY(rows_forward(&y, source, logarithm, err));
    const tc_record record = {.op = &softmax_op,
                              .input_count = 1,
                              .inputs = &x,
                              .output_count = 1,
                              .outputs = &y,
                              .saved_count = 1,
                              .saved = &y,
                              .attributes = &logarithm,
                              .attribute_bytes = sizeof logarithm};
    TC_TRY(tc_tape_record(&record, err));
    *out = tc_tensor_retain(y);
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(y);
    return status;
}

/* The axis goes last by a recorded view, there and back. */
static tc_status along_axis(tc_tensor **out, tc_tensor *x, int64_t given, bool logarithm, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *moved, *y;
    int axis = 0;
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(tc_normalize_axis(&axis, given, x->ndim, "axis", err));
    const tc_dtype result = x->dtype;
    TC_TRY(tc_scope_cast(&scope, &x, tc_compute_dtype(result), err));
    const bool last = x->ndim < 2 || axis == x->ndim - 1;
    if (!last) {
        TC_TRY(tc_transpose(&moved, x, axis, -1, err));
        x = tc_scope_own(&scope, moved);
    }
    TC_TRY(recorded_rows(&y, x, logarithm, err));
    tc_scope_own(&scope, y);
    if (!last) {
        TC_TRY(tc_transpose(&moved, y, axis, -1, err));
        y = tc_scope_own(&scope, moved);
    }
    TC_TRY(tc_cast(out, y, result, err));
cleanup:
    tc_scope_end(&scope);
    return status;
}

tc_status tc_softmax(tc_tensor **y, tc_tensor *x, int64_t axis, tc_error *err) { return along_axis(y, x, axis, false, err); }
tc_status tc_log_softmax(tc_tensor **y, tc_tensor *x, int64_t axis, tc_error *err) { return along_axis(y, x, axis, true, err); }

tc_status tc_softmax_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *y, int64_t given, bool logarithm, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *moved, *rows = NULL, *back = NULL;
    int axis = 0;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_status status = TC_OK;
    if (!tc_tensor_same_shape(dy, y))
        return tc_fail(err, TC_ERROR_VALUE, "dy has shape %s but y has %s; they must be equal", tc_tensor_text(a, dy), tc_tensor_text(b, y));
    TC_TRY(tc_normalize_axis(&axis, given, y->ndim, "axis", err));
    const tc_dtype result = y->dtype, compute = tc_compute_dtype(result);
    tc_tensor **operands[] = {&dy, &y};
    for (int i = 0; i < 2; i++) {
        TC_TRY(tc_scope_cast(&scope, operands[i], compute, err));
        if (y->ndim > 1) {
            TC_TRY(tc_transpose(&moved, *operands[i], axis, -1, err));
            *operands[i] = tc_scope_own(&scope, moved);
        }
        TC_TRY(tc_scope_contiguous(&scope, operands[i], err));
    }
    TC_TRY(rows_backward(&rows, dy, y, logarithm, err));
    if (y->ndim > 1) TC_TRY(tc_transpose(&back, rows, axis, -1, err));
    else back = tc_tensor_retain(rows);
    TC_TRY(tc_tensor_as(dx, back, result, err));
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(rows);
    tc_tensor_release(back);
    return status;
}
