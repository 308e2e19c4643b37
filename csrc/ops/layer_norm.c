/* layer_norm.c: layer normalisation (Ba et al. 2016, eq. 4) over the last axes, of x or of x + residual.
 *
 * Saved for the backward: what was normalised (x, or the sum, which is computed once), gamma, and mean and rstd of each row (2 N
 * numbers). */
#include "../kernels/layer_norm.h"

#include <inttypes.h>

#include "../core/backend.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"

/* Rows N and their length C: the last `normalized_ndim` axes of x make a row. */
static tc_status row_shape(const tc_tensor *x, int normalized_ndim, int64_t *N, int64_t *C, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    if (normalized_ndim < 1 || normalized_ndim > x->ndim)
        return tc_fail(err, TC_ERROR_VALUE, "x has shape %s; %d axes cannot be normalised over, from 1 to %d can", tc_tensor_text(text, x),
                       normalized_ndim, x->ndim);
    *N = *C = 1;
    for (int i = 0; i < x->ndim; i++) *(i < x->ndim - normalized_ndim ? N : C) *= x->shape[i];
    return TC_OK;
}

static tc_status check_parameter(const tc_tensor *x, int normalized_ndim, const tc_tensor *parameter, const char *name, tc_error *err)
{
    if (!parameter) return TC_OK;
    bool fits = parameter->ndim == normalized_ndim;
    for (int i = 0; fits && i < normalized_ndim; i++) fits = parameter->shape[i] == x->shape[x->ndim - normalized_ndim + i];
    if (!fits) {
        char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT], c[TC_SHAPE_TEXT];
        return tc_fail(err, TC_ERROR_VALUE, "%s has shape %s but x (%s) is normalised over its last axes %s; they must be equal", name,
                       tc_tensor_text(a, parameter), tc_tensor_text(b, x),
                       tc_shape_text(c, normalized_ndim, x->shape + x->ndim - normalized_ndim));
    }
    tc_status status = tc_check_same_dtype(x, "x", parameter, name, err);
    return status == TC_OK ? tc_check_same_device(x, "x", parameter, name, err) : status;
}

static tc_status check_residual(const tc_tensor *x, const tc_tensor *residual, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (!residual) return TC_OK;
    if (!tc_tensor_same_shape(x, residual))
        return tc_fail(err, TC_ERROR_VALUE, "residual has shape %s but x has %s; they must be equal", tc_tensor_text(a, residual),
                       tc_tensor_text(b, x));
    tc_status status = tc_check_same_dtype(x, "x", residual, "residual", err);
    return status == TC_OK ? tc_check_same_device(x, "x", residual, "residual", err) : status;
}

/* sum (contiguous, in the compute dtype) is made when there is a residual. */
static tc_status normalise(tc_tensor **y, tc_tensor **sum, tc_tensor **mean, tc_tensor **rstd, tc_tensor *x, tc_tensor *residual,
                           int normalized_ndim, tc_tensor *gamma, tc_tensor *beta, double eps, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *out = NULL, *total = NULL, *m = NULL, *r = NULL;
    int64_t N, C;
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(row_shape(x, normalized_ndim, &N, &C, err));
    TC_TRY(check_residual(x, residual, err));
    TC_TRY(check_parameter(x, normalized_ndim, gamma, "weight (gamma)", err));
    TC_TRY(check_parameter(x, normalized_ndim, beta, "bias (beta)", err));
    const tc_dtype result = x->dtype, compute = tc_compute_dtype(result);
    tc_tensor **operands[] = {&x, &residual, &gamma, &beta};
    for (int i = 0; i < 4; i++) {
        TC_TRY(tc_scope_cast(&scope, operands[i], compute, err));
        TC_TRY(tc_scope_contiguous(&scope, operands[i], err));
    }
    TC_TRY(tc_tensor_like(&out, x, err));
    if (residual) TC_TRY(tc_tensor_like(&total, x, err));
    TC_TRY(tc_tensor_empty(&m, x->ndim - normalized_ndim, x->shape, compute, x->storage->device, err));
    TC_TRY(tc_tensor_empty(&r, x->ndim - normalized_ndim, x->shape, compute, x->storage->device, err));
    const tc_layer_norm_forward_args args = {.y = out->data,
                                             .mean = m->data,
                                             .rstd = r->data,
                                             .sum = total ? total->data : NULL,
                                             .x = x->data,
                                             .residual = residual ? residual->data : NULL,
                                             .gamma = gamma ? gamma->data : NULL,
                                             .beta = beta ? beta->data : NULL,
                                             .C = C,
                                             .eps = eps};
    TC_TRY(tc_run(x->storage->device, compute, TC_K_layer_norm_forward, &args, N, 4.0 * (double)C, 0, err));
    TC_TRY(tc_cast(y, out, result, err));
    if (residual) *sum = tc_tensor_retain(total);
    *mean = tc_tensor_retain(m);
    *rstd = tc_tensor_retain(r);
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(out);
    tc_tensor_release(total);
    tc_tensor_release(m);
    tc_tensor_release(r);
    return status;
}

tc_status tc_layer_norm_forward(tc_tensor **y, tc_tensor **mean, tc_tensor **rstd, tc_tensor *x, int normalized_ndim, tc_tensor *gamma,
                                tc_tensor *beta, double eps, tc_error *err)
{
    return normalise(y, NULL, mean, rstd, x, NULL, normalized_ndim, gamma, beta, eps, err);
}

tc_status tc_add_layer_norm_forward(tc_tensor **y, tc_tensor **sum, tc_tensor **mean, tc_tensor **rstd, tc_tensor *x, tc_tensor *residual,
                                    int normalized_ndim, tc_tensor *gamma, tc_tensor *beta, double eps, tc_error *err)
{
    return normalise(y, sum, mean, rstd, x, residual, normalized_ndim, gamma, beta, eps, err);
}

static tc_status check_like(const tc_tensor *tensor, const char *name, int ndim, const int64_t *shape, const tc_tensor *x, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT], c[TC_SHAPE_TEXT];
    tc_status status = tc_check_float(tensor, name, err);
    if (status == TC_OK) status = tc_check_same_device(x, "x", tensor, name, err);
    if (status != TC_OK) return status;
    bool same = tensor->ndim == ndim;
    for (int i = 0; same && i < ndim; i++) same = tensor->shape[i] == shape[i];
    if (same) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "%s has shape %s; with x of shape %s it must have %s", name, tc_tensor_text(a, tensor),
                   tc_tensor_text(b, x), tc_shape_text(c, ndim, shape));
}

/* What the backward gets has the shapes of what the forward got and gave; dtypes may differ (a sum of halves is kept in float32). */
static tc_status check_backward(const tc_tensor *dy, const tc_tensor *x, const tc_tensor *gamma, const tc_tensor *mean,
                                const tc_tensor *rstd, int normalized_ndim, tc_error *err)
{
    const int lead = x->ndim - normalized_ndim;
    tc_status status = check_like(dy, "dy", x->ndim, x->shape, x, err);
    if (status == TC_OK && gamma) status = check_like(gamma, "gamma", normalized_ndim, x->shape + lead, x, err);
    if (status == TC_OK) status = check_like(mean, "mean", lead, x->shape, x, err);
    if (status == TC_OK) status = check_like(rstd, "rstd", lead, x->shape, x, err);
    return status;
}

tc_status tc_layer_norm_backward(tc_tensor **dx, tc_tensor **dgamma, tc_tensor **dbeta, tc_tensor *dy, tc_tensor *x, tc_tensor *gamma,
                                 tc_tensor *mean, tc_tensor *rstd, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *out = NULL, *gamma_partial = NULL, *beta_partial = NULL, *sum_gamma = NULL, *sum_beta = NULL,
              *rounded[3] = {NULL, NULL, NULL};
    const int normalized_ndim = x->ndim - mean->ndim;
    int64_t N, C;
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(row_shape(x, normalized_ndim, &N, &C, err));
    TC_TRY(check_backward(dy, x, gamma, mean, rstd, normalized_ndim, err));
    const tc_dtype result = dy->dtype, compute = tc_compute_dtype(tc_dtype_promote(result, x->dtype));
    tc_tensor **operands[] = {&dy, &x, &gamma, &mean, &rstd};
    for (int i = 0; i < 5; i++) {
        TC_TRY(tc_scope_cast(&scope, operands[i], compute, err));
        TC_TRY(tc_scope_contiguous(&scope, operands[i], err));
    }
    const int64_t rows = tc_reduction_chunk(N), chunks = (N + rows - 1) / rows, partial_shape[2] = {chunks, C};
    const int64_t *row = x->shape + x->ndim - normalized_ndim;
    const tc_device device = x->storage->device;
    if (dx) TC_TRY(tc_tensor_like(&out, x, err));
    if (dgamma) TC_TRY(tc_tensor_empty(&gamma_partial, 2, partial_shape, compute, device, err));
    if (dbeta) TC_TRY(tc_tensor_empty(&beta_partial, 2, partial_shape, compute, device, err));
    if (dgamma) TC_TRY(tc_tensor_empty(&sum_gamma, normalized_ndim, row, compute, device, err));
    if (dbeta) TC_TRY(tc_tensor_empty(&sum_beta, normalized_ndim, row, compute, device, err));
    const tc_layer_norm_backward_args args = {.dx = out ? out->data : NULL,
                                              .dgamma_partial = gamma_partial ? gamma_partial->data : NULL,
                                              .dbeta_partial = beta_partial ? beta_partial->data : NULL,
                                              .dy = dy->data,
                                              .x = x->data,
                                              .gamma = gamma ? gamma->data : NULL,
                                              .mean = mean->data,
                                              .rstd = rstd->data,
                                              .N = N,
                                              .C = C,
                                              .rows_per_chunk = rows};
    TC_TRY(tc_run(device, compute, TC_K_layer_norm_backward, &args, chunks, 8.0 * (double)(C * rows), 0, err));
    if (dgamma) TC_TRY(tc_sum_partials(sum_gamma, gamma_partial, chunks, C, err));
    if (dbeta) TC_TRY(tc_sum_partials(sum_beta, beta_partial, chunks, C, err));
    tc_tensor *const found[] = {out, sum_gamma, sum_beta};
    for (int i = 0; i < 3; i++)
        if (found[i]) TC_TRY(tc_tensor_as(&rounded[i], found[i], result, err));
    if (dx) *dx = tc_tensor_retain(rounded[0]);
    if (dgamma) *dgamma = tc_tensor_retain(rounded[1]);
    if (dbeta) *dbeta = tc_tensor_retain(rounded[2]);
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(out);
    tc_tensor_release(gamma_partial);
    tc_tensor_release(beta_partial);
    tc_tensor_release(sum_gamma);
    tc_tensor_release(sum_beta);
    for (int i = 0; i < 3; i++) tc_tensor_release(rounded[i]);
    return status;
}

/* ---- on the tape --------------------------------------------------------------------------------------------------------- */

/* Inputs: x, gamma, beta, residual. */
static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    tc_tensor *dsum = NULL;
    const bool needs_x = tc_node_needs(node, 0), needs_residual = tc_node_needs(node, 3);
    const tc_status status =
        tc_layer_norm_backward(needs_x || needs_residual ? &dsum : NULL, tc_node_needs(node, 1) ? &grad_inputs[1] : NULL,
                               tc_node_needs(node, 2) ? &grad_inputs[2] : NULL, grad_outputs[0], tc_node_saved(node, 0),
                               tc_node_saved(node, 1), tc_node_saved(node, 2), tc_node_saved(node, 3), err);
    if (status != TC_OK) return status;
    if (needs_x) grad_inputs[0] = tc_tensor_retain(dsum);
    if (needs_residual) grad_inputs[3] = tc_tensor_retain(dsum); /* d(x + residual) flows to both */
    tc_tensor_release(dsum);
    return TC_OK;
}

static const tc_op layer_norm_op = {"layer_norm", backward, NULL}, add_layer_norm_op = {"add_layer_norm", backward, NULL};

static tc_status recorded(tc_tensor **y, tc_tensor *x, tc_tensor *residual, int normalized_ndim, tc_tensor *gamma, tc_tensor *beta,
                          double eps, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *out = NULL, *sum = NULL, *mean = NULL, *rstd = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(tc_check_same_dtype(x, "x", residual, "residual", err));
    TC_TRY(tc_check_same_dtype(x, "x", gamma, "weight (gamma)", err));
    TC_TRY(tc_check_same_dtype(x, "x", beta, "bias (beta)", err));
    const tc_dtype result = x->dtype;
    tc_tensor **operands[] = {&x, &gamma, &beta, &residual};
    for (int i = 0; i < 4; i++) TC_TRY(tc_scope_cast(&scope, operands[i], tc_compute_dtype(result), err));
    TC_TRY(normalise(&out, &sum, &mean, &rstd, x, residual, normalized_ndim, gamma, beta, eps, err));
    tc_tensor *const inputs[] = {x, gamma, beta, residual}, *const saved[] = {residual ? sum : x, gamma, mean, rstd};
    const tc_record record = {.op = residual ? &add_layer_norm_op : &layer_norm_op,
                              .input_count = 4,
                              .inputs = inputs,
                              .output_count = 1,
                              .outputs = &out,
                              .saved_count = 4,
                              .saved = saved};
    TC_TRY(tc_tape_record(&record, err));
    TC_TRY(tc_cast(y, out, result, err));
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(out);
    tc_tensor_release(sum);
    tc_tensor_release(mean);
    tc_tensor_release(rstd);
    return status;
}

tc_status tc_layer_norm(tc_tensor **y, tc_tensor *x, int normalized_ndim, tc_tensor *gamma, tc_tensor *beta, double eps, tc_error *err)
{
    return recorded(y, x, NULL, normalized_ndim, gamma, beta, eps, err);
}

tc_status tc_add_layer_norm(tc_tensor **y, tc_tensor *x, tc_tensor *residual, int normalized_ndim, tc_tensor *gamma, tc_tensor *beta,
                            double eps, tc_error *err)
{
    return recorded(y, x, residual, normalized_ndim, gamma, beta, eps, err);
}
