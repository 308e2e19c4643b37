/* linear.c: y = activation(x weight^T + bias) + residual, one product with all else in its epilogue.
 *
 * Saved for the backward: x, weight, and with an activation the values it was applied to (M N numbers); ReLU without a residual
 * saves its result instead, which has the same sign and is there anyway. */
#include <inttypes.h>
#include <string.h>

#include "../core/backend.h"
#include "../core/reduction.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "../kernels/activation.h"
#include "gemm.h"
#include "operands.h"

static tc_status check(const tc_tensor *x, const tc_tensor *weight, const tc_tensor *bias, const tc_tensor *residual, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    const tc_tensor *tensors[] = {x, weight, bias, residual};
    static const char *const names[] = {"x", "weight", "bias", "residual"};
    tc_status status = TC_OK;
    for (int i = 0; i < 4 && status == TC_OK; i++) {
        status = tc_check_float(tensors[i], names[i], err);
        if (status == TC_OK) status = tc_check_same_dtype(x, "x", tensors[i], names[i], err);
        if (status == TC_OK) status = tc_check_same_device(x, "x", tensors[i], names[i], err);
    }
    if (status != TC_OK) return status;
    if (weight->ndim != 2)
        return tc_fail(err, TC_ERROR_VALUE, "weight has shape %s; expected two axes, (out_features, in_features)",
                       tc_tensor_text(a, weight));
    if (x->ndim < 1)
        return tc_fail(err, TC_ERROR_VALUE, "x has no axes; expected (..., %" PRId64 "), the in_features of weight", weight->shape[1]);
    if (x->shape[x->ndim - 1] != weight->shape[1])
        return tc_fail(err, TC_ERROR_VALUE,
                       "x has %" PRId64 " features but weight takes %" PRId64
                       "; they must be equal (x %s, weight %s: out_features, in_features)",
                       x->shape[x->ndim - 1], weight->shape[1], tc_tensor_text(a, x), tc_tensor_text(b, weight));
    if (bias && (bias->ndim != 1 || bias->shape[0] != weight->shape[0]))
        return tc_fail(err, TC_ERROR_VALUE, "bias has shape %s but weight %s gives %" PRId64 " features; expected (%" PRId64 ",)",
                       tc_tensor_text(a, bias), tc_tensor_text(b, weight), weight->shape[0], weight->shape[0]);
    if (!residual) return TC_OK;
    const bool fits = residual->ndim == x->ndim && residual->shape[x->ndim - 1] == weight->shape[0] &&
                      memcmp(residual->shape, x->shape, sizeof(int64_t) * (size_t)(x->ndim - 1)) == 0;
    if (fits) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE,
                   "residual has shape %s; it is added to the result, so it must be that of x %s with %" PRId64 " features",
                   tc_tensor_text(a, residual), tc_tensor_text(b, x), weight->shape[0]);
}

/* x becomes a matrix whose rows have one stride; a copy only when its strides do not allow it. */
static tc_status fold(tc_old_scope *scope, tc_tensor **x, int64_t *rows, int64_t *row_stride, tc_error *err)
{
    if (tc_fold_rows(*x, rows, row_stride)) return TC_OK;
    const tc_status status = tc_old_scope_contiguous(scope, x, err);
    if (status == TC_OK) tc_fold_rows(*x, rows, row_stride);
    return status;
}

tc_status tc_linear_forward(tc_tensor **y, tc_tensor **pre, tc_tensor *x, tc_tensor *weight, tc_tensor *bias, tc_activation activation,
                            tc_tensor *residual, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *out = NULL, *before = NULL;
    tc_status status = TC_OK;
    TC_TRY(check(x, weight, bias, residual, err));
    const tc_dtype result = x->dtype, compute = tc_compute_dtype(result);
    /* In training a weight changes with every step: packing it for later pays when it is not trained through this call. */
    const bool keep = weight->storage->owned && !weight->storage->shared && weight->dtype == compute && !tc_tape_wants(1, &weight);
    tc_tensor **operands[] = {&x, &weight, &bias, &residual};
    for (int i = 0; i < 4; i++) TC_TRY(tc_old_scope_cast(&scope, operands[i], compute, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &bias, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &residual, err));
    tc_product p = {
        .device = x->storage->device, .compute = compute, .N = weight->shape[0], .K = weight->shape[1], .activation = activation};
    TC_TRY(fold(&scope, &x, &p.M, &p.a_row, err));
    int64_t shape[TC_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->ndim - 1] = p.N;
    TC_TRY(tc_tensor_empty(&out, x->ndim, shape, compute, p.device, err));
    if (pre) TC_TRY(tc_tensor_like(&before, out, err));
    p.a = x->data, p.a_col = x->strides[x->ndim - 1];
    p.b = weight->data, p.b_row = weight->strides[1], p.b_col = weight->strides[0];
    p.b_storage = keep ? weight->storage : NULL;
    p.c = out->data;
    p.c_row = p.pre_row = p.residual_row = p.N;
    if (pre) p.pre = before->data;
    if (bias) p.bias = bias->data;
    if (residual) p.residual = residual->data;
    TC_TRY(tc_product_run(&p, err));
    TC_TRY(tc_cast(y, out, result, err));
    if (pre) *pre = tc_tensor_retain(before);
cleanup:
    tc_old_scope_end(&scope);
    tc_tensor_release(out);
    tc_tensor_release(before);
    return status;
}

/* dy becomes the gradient before the activation, owned by the scope. */
static tc_status through_activation(tc_old_scope *scope, tc_tensor **dy, tc_tensor *pre, tc_activation activation, tc_error *err)
{
    tc_tensor *out;
    tc_status status = tc_old_scope_contiguous(scope, dy, err);
    if (status == TC_OK) status = tc_old_scope_contiguous(scope, &pre, err);
    if (status == TC_OK) status = tc_tensor_like(&out, *dy, err);
    if (status != TC_OK) return status;
    const tc_activation_backward_args args = {
        .dx = out->data, .dy = (*dy)->data, .x = pre->data, .n = out->numel, .activation = activation};
    const int64_t blocks = (out->numel + TC_ACTIVATION_BLOCK - 1) / TC_ACTIVATION_BLOCK;
    *dy = tc_old_scope_own(scope, out);
    return tc_run(out->storage->device, out->dtype, &tc_kernel_activation_backward, &args, blocks, 8.0 * TC_ACTIVATION_BLOCK, 0, err);
}

static tc_status check_backward(const tc_tensor *dy, const tc_tensor *x, const tc_tensor *weight, const tc_tensor *pre,
                                tc_activation activation, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT], c[TC_SHAPE_TEXT];
    const tc_status status = check(x, weight, NULL, NULL, err);
    if (status != TC_OK) return status;
    bool fits = dy->ndim == x->ndim && dy->shape[x->ndim - 1] == weight->shape[0];
    fits = fits && memcmp(dy->shape, x->shape, sizeof(int64_t) * (size_t)(x->ndim - 1)) == 0;
    if (!fits)
        return tc_fail(err, TC_ERROR_VALUE, "dy has shape %s but the product of x %s and weight %s has that of x with %" PRId64 " features",
                       tc_tensor_text(a, dy), tc_tensor_text(b, x), tc_tensor_text(c, weight), weight->shape[0]);
    if (activation == TC_ACTIVATION_NONE) return TC_OK;
    if (!pre)
        return tc_fail(err, TC_ERROR_VALUE,
                       "pre is None; the backward of an activation needs what it was applied to, the second result of the forward");
    if (tc_tensor_same_shape(pre, dy)) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "pre has shape %s but dy has %s; they must be equal", tc_tensor_text(a, pre),
                   tc_tensor_text(b, dy));
}

/* With P = dy f'(pre):  dx = P weight,  dweight = P^T x,  dbias = sum of P's rows. */
tc_status tc_linear_backward(tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dy, tc_tensor *x, tc_tensor *weight,
                             tc_tensor *pre, tc_activation activation, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *out_x = NULL, *out_weight = NULL, *out_bias = NULL, *rounded[3] = {NULL, NULL, NULL};
    int64_t rows, dy_row, x_row;
    tc_status status = TC_OK;
    TC_TRY(check_backward(dy, x, weight, pre, activation, err));
    const tc_dtype result = x->dtype, compute = tc_compute_dtype(result);
    tc_tensor **operands[] = {&dy, &x, &weight, &pre};
    for (int i = 0; i < 4; i++) TC_TRY(tc_old_scope_cast(&scope, operands[i], compute, err));
    if (activation != TC_ACTIVATION_NONE) TC_TRY(through_activation(&scope, &dy, pre, activation, err));
    TC_TRY(fold(&scope, &dy, &rows, &dy_row, err));
    TC_TRY(fold(&scope, &x, &rows, &x_row, err));
    const int64_t N = weight->shape[0], K = weight->shape[1], dy_col = dy->strides[dy->ndim - 1];
    const tc_product common = {.device = x->storage->device, .compute = compute};
    if (dx) {
        TC_TRY(tc_tensor_like(&out_x, x, err));
        tc_product p = common; /* (rows,K) = P (rows,N) weight (N,K) */
        p.M = rows, p.N = K, p.K = N;
        p.a = dy->data, p.a_row = dy_row, p.a_col = dy_col;
        p.b = weight->data, p.b_row = weight->strides[0], p.b_col = weight->strides[1];
        p.c = out_x->data, p.c_row = K;
        TC_TRY(tc_product_run(&p, err));
    }
    const bool bias_with_weight = dweight && dbias && K > 0;
    if (bias_with_weight) TC_TRY(tc_tensor_empty(&out_bias, 1, &N, compute, common.device, err));
    if (dweight) {
        TC_TRY(tc_tensor_empty(&out_weight, 2, weight->shape, compute, common.device, err));
        tc_product p = common; /* (N,K) = P^T (N,rows) x (rows,K) */
        p.M = N, p.N = K, p.K = rows;
        p.a = dy->data, p.a_row = dy_col, p.a_col = dy_row;
        p.b = x->data, p.b_row = x_row, p.b_col = x->strides[x->ndim - 1];
        p.c = out_weight->data, p.c_row = K;
        if (bias_with_weight) p.a_sum = out_bias->data;
        TC_TRY(tc_product_run(&p, err));
    }
    if (dbias && !bias_with_weight) TC_TRY(tc_sum_to_shape(&out_bias, dy, 1, &N, err));
    tc_tensor *const found[] = {dx ? out_x : NULL, dweight ? out_weight : NULL, dbias ? out_bias : NULL};
    for (int i = 0; i < 3; i++)
        if (found[i]) TC_TRY(tc_tensor_as(&rounded[i], found[i], result, err));
    if (dx) *dx = tc_tensor_retain(rounded[0]);
    if (dweight) *dweight = tc_tensor_retain(rounded[1]);
    if (dbias) *dbias = tc_tensor_retain(rounded[2]);
cleanup:
    tc_old_scope_end(&scope);
    tc_tensor_release(out_x);
    tc_tensor_release(out_weight);
    tc_tensor_release(out_bias);
    for (int i = 0; i < 3; i++) tc_tensor_release(rounded[i]);
    return status;
}

/* ---- on the tape --------------------------------------------------------------------------------------------------------- */

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_activation *activation = node->attributes;
    tc_tensor **wanted[3];
    for (int i = 0; i < 3; i++) wanted[i] = tc_node_needs(node, i) ? &grad_inputs[i] : NULL;
    if (tc_node_needs(node, 3)) grad_inputs[3] = tc_tensor_retain(grad_outputs[0]);
    if (!wanted[0] && !wanted[1] && !wanted[2]) return TC_OK; /* pre was not saved */
    return tc_linear_backward(wanted[0], wanted[1], wanted[2], grad_outputs[0], tc_node_saved(node, 0), tc_node_saved(node, 1),
                              tc_node_saved(node, 2), *activation, err);
}

static const tc_op linear_op = {"linear", backward, NULL};

tc_status tc_linear(tc_tensor **y, tc_tensor *x, tc_tensor *weight, tc_tensor *bias, tc_activation activation, tc_tensor *residual,
                    tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *out = NULL, *pre = NULL;
    tc_status status = TC_OK;
    TC_TRY(check(x, weight, bias, residual, err));
    const tc_dtype result = x->dtype, compute = tc_compute_dtype(result);
    tc_tensor **operands[] = {&x, &weight, &bias, &residual};
    for (int i = 0; i < 4; i++) TC_TRY(tc_old_scope_cast(&scope, operands[i], compute, err));
    tc_tensor *const inputs[] = {x, weight, bias, residual};
    const bool by_result = activation == TC_ACTIVATION_RELU && !residual; /* y > 0 where pre > 0 */
    const bool need_pre = activation != TC_ACTIVATION_NONE && !by_result && tc_tape_wants(3, inputs);
    TC_TRY(tc_linear_forward(&out, need_pre ? &pre : NULL, x, weight, bias, activation, residual, err));
    tc_tensor *const saved[] = {x, weight, by_result ? out : pre};
    const tc_record record = {.op = &linear_op,
                              .input_count = 4,
                              .inputs = inputs,
                              .output_count = 1,
                              .outputs = &out,
                              .saved_count = 3,
                              .saved = saved,
                              .attributes = &activation,
                              .attribute_bytes = sizeof activation};
    TC_TRY(tc_tape_record(&record, err));
    TC_TRY(tc_cast(y, out, result, err));
cleanup:
    tc_old_scope_end(&scope);
    tc_tensor_release(out);
    tc_tensor_release(pre);
    return status;
}
