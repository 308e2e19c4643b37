/* reduce.c: reductions over any axes.
 *
 * Saved for the backward: nothing for sum and mean; x for var; x and y for max and min. */
#include <math.h>
#include <string.h>

#include "../core/backend.h"
#include "../core/broadcast.h"
#include "../core/reduction.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"

/* ---- on the tape --------------------------------------------------------------------------------------------------------- */

typedef struct reduce_attributes {
    tc_reduce_function function;
    tc_dtype dtype; /* of x */
    double count;   /* what mean and var divide by */
    tc_axis_set set;
    int ndim;
    int64_t shape[TC_MAX_DIMS]; /* of x */
} reduce_attributes;

/* A view of the result's size (contiguous) with axes of length 1 where x was reduced. */
static tc_status with_kept_axes(tc_tensor **out, tc_tensor *y, const reduce_attributes *at, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    int from = y->ndim - 1;
    const bool kept = y->ndim == at->ndim;
    for (int i = at->ndim - 1; i >= 0; i--) {
        shape[i] = at->set.reduced[i] ? 1 : at->shape[i];
        strides[i] = at->set.reduced[i] ? 0 : y->strides[from];
        if (kept || !at->set.reduced[i]) from--;
    }
    return tc_tensor_alias(out, y, at->ndim, shape, strides, 0, err);
}

static tc_status sum_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const reduce_attributes *at = node->attributes;
    tc_tensor *dy = tc_tensor_retain(grad_outputs[0]), *shared = NULL;
    tc_status status = TC_OK;
    if (at->function == TC_REDUCE_mean) {
        TC_TRY(tc_binary_scalar(&shared, dy, tc_scalar_real(at->count), false, TC_BINARY_div, err));
        tc_tensor_release(dy);
        dy = shared;
        shared = NULL;
    }
    TC_TRY(with_kept_axes(&shared, dy, at, err));
    TC_TRY(tc_broadcast_view(&grad_inputs[0], shared, at->ndim, at->shape, err));
cleanup:
    tc_tensor_release(dy);
    tc_tensor_release(shared);
    return status;
}

/* dx = dy 2 (x - mean) / count; the gradient through the mean is zero. */
static tc_status var_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const reduce_attributes *at = node->attributes;
    tc_tensor *mean = tc_node_saved(node, 1), *dy = NULL, *scaled = NULL, *difference = NULL;
    tc_status status = TC_OK;
    TC_TRY(with_kept_axes(&dy, grad_outputs[0], at, err));
    TC_TRY(tc_binary_scalar(&scaled, dy, tc_scalar_real(2.0 / at->count), false, TC_BINARY_mul, err));
    TC_TRY(tc_binary(&difference, tc_node_saved(node, 0), mean, TC_BINARY_sub, err));
    tc_tensor_release(dy);
    dy = NULL;
    TC_TRY(tc_binary(&dy, difference, scaled, TC_BINARY_mul, err));
    TC_TRY(tc_tensor_as(&grad_inputs[0], dy, at->dtype, err));
cleanup:
    tc_tensor_release(dy);
    tc_tensor_release(scaled);
    tc_tensor_release(difference);
    return status;
}

/* Over one axis: the first extreme element gets the gradient. */
static tc_status extreme_backward_first(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, const reduce_attributes *at,
                                        tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *out = NULL;
    tc_status status = TC_OK;
    const tc_dtype compute = tc_compute_dtype(x->dtype);
    tc_tensor **operands[3] = {&dy, &x, &y};
    for (int i = 0; i < 3; i++) {
        TC_TRY(tc_old_scope_cast(&scope, operands[i], compute, err));
        TC_TRY(tc_old_scope_contiguous(&scope, operands[i], err));
    }
    TC_TRY(tc_tensor_like(&out, x, err));
    int64_t outer = 1, inner = 1, length = 1;
    for (int i = 0, seen = 0; i < at->ndim; i++) {
        if (at->set.reduced[i])
            length = at->shape[i], seen = 1;
        else
            *(seen ? &inner : &outer) *= at->shape[i];
    }
    const tc_extreme_backward_args args = {.dx = out->data, .dy = dy->data, .x = x->data, .y = y->data, .length = length, .inner = inner};
    const int64_t items = outer * tc_divide_up(inner, TC_REDUCE_TILE);
    TC_TRY(tc_run(x->storage->device, compute, &tc_kernel_extreme_backward, &args, items,
                  2.0 * (double)length * (double)(inner < TC_REDUCE_TILE ? inner : TC_REDUCE_TILE), 0, err));
    TC_TRY(tc_tensor_as(dx, out, at->dtype, err));
cleanup:
    tc_old_scope_end(&scope);
    tc_tensor_release(out);
    return status;
}

/* Over several axes: all extreme elements share it, as in PyTorch. */
static tc_status extreme_backward_shared(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, const reduce_attributes *at,
                                         tc_error *err)
{
    tc_tensor *hit = NULL, *count = NULL, *share = NULL, *axes_dy = NULL, *axes_y = NULL, *nan_x = NULL, *nan_y = NULL, *both = NULL,
              *either = NULL;
    int64_t axes[TC_MAX_DIMS];
    int n = 0;
    tc_status status = TC_OK;
    for (int i = 0; i < at->ndim; i++)
        if (at->set.reduced[i]) axes[n++] = i;
    TC_TRY(with_kept_axes(&axes_dy, dy, at, err));
    TC_TRY(with_kept_axes(&axes_y, y, at, err));
    TC_TRY(tc_binary(&hit, x, axes_y, TC_BINARY_eq, err));
    TC_TRY(tc_binary(&nan_x, x, x, TC_BINARY_ne, err));
    TC_TRY(tc_binary(&nan_y, axes_y, axes_y, TC_BINARY_ne, err));
    TC_TRY(tc_binary(&both, nan_x, nan_y, TC_BINARY_logical_and, err));
    TC_TRY(tc_binary(&either, hit, both, TC_BINARY_logical_or, err));
    TC_TRY(tc_reduce(&count, either, TC_REDUCE_sum, n, axes, true, err));
    TC_TRY(tc_binary(&share, axes_dy, count, TC_BINARY_div, err));
    TC_TRY(tc_where(dx, either, share, tc_scalar_real(0.0), NULL, tc_scalar_real(0.0), err));
cleanup:
    tc_tensor_release(hit);
    tc_tensor_release(count);
    tc_tensor_release(share);
    tc_tensor_release(axes_dy);
    tc_tensor_release(axes_y);
    tc_tensor_release(nan_x);
    tc_tensor_release(nan_y);
    tc_tensor_release(both);
    tc_tensor_release(either);
    return status;
}

static tc_status extreme_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const reduce_attributes *at = node->attributes;
    const bool one_axis = !at->set.all && at->set.count == 1;
    return (one_axis ? extreme_backward_first : extreme_backward_shared)(&grad_inputs[0], grad_outputs[0], tc_node_saved(node, 0),
                                                                         tc_node_saved(node, 1), at, err);
}

static const tc_op ops[TC_REDUCE_COUNT] = {
    [TC_REDUCE_sum] = {"sum", sum_backward, NULL},
    [TC_REDUCE_mean] = {"mean", sum_backward, NULL},
    [TC_REDUCE_max] = {"max", extreme_backward, NULL},
    [TC_REDUCE_min] = {"min", extreme_backward, NULL},
};
static const tc_op var_op = {"var", var_backward, NULL};

static tc_status record(tc_tensor *out, tc_tensor *x, const tc_op *op, tc_reduce_function function, const tc_axis_set *set, double count,
                        tc_tensor *mean, tc_error *err)
{
    if (!op->backward || !tc_tape_wants(1, &x)) return TC_OK;
    reduce_attributes at = {.function = function, .dtype = x->dtype, .count = count, .set = *set, .ndim = x->ndim};
    memcpy(at.shape, x->shape, sizeof(int64_t) * (size_t)x->ndim);
    tc_tensor *const saved[2] = {x, mean ? mean : out};
    const tc_record entry = {.op = op,
                             .input_count = 1,
                             .inputs = &x,
                             .output_count = 1,
                             .outputs = &out,
                             .saved_count = op->backward == sum_backward ? 0 : 2,
                             .saved = saved,
                             .attributes = &at,
                             .attribute_bytes = sizeof at};
    return tc_tape_record(&entry, err);
}

/* ---- the functions -------------------------------------------------------------------------------------------------------- */

static const char *const names[TC_REDUCE_COUNT] = {"sum", "mean", "max", "min", "any", "all"};
static const tc_reduce_step steps[TC_REDUCE_COUNT] = {TC_STEP_sum, TC_STEP_sum, TC_STEP_max, TC_STEP_min, TC_STEP_any, TC_STEP_all};

static tc_dtype result_dtype(tc_reduce_function function, tc_dtype dtype)
{
    switch (function) {
    case TC_REDUCE_any:
    case TC_REDUCE_all: return TC_BOOL;
    case TC_REDUCE_sum: return tc_dtype_is_float(dtype) ? dtype : TC_INT64;
    default: return dtype;
    }
}

/* An empty sum is 0, an empty mean NaN; an empty maximum does not exist. */
static tc_status check_not_empty(const tc_tensor *x, const tc_axis_set *set, const char *name, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    if (tc_reduced_count(set, x) > 0) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "%s over no elements does not exist: x has shape %s", name, tc_tensor_text(text, x));
}

tc_status tc_reduce(tc_tensor **out, tc_tensor *x, tc_reduce_function function, int axis_count, const int64_t *axes, bool keepdims,
                    tc_error *err)
{
    tc_tensor *result = NULL, *rounded = NULL;
    tc_axis_set set;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    tc_status status = TC_OK;
    const bool floating = tc_dtype_is_float(x->dtype);
    const tc_dtype dtype = result_dtype(function, x->dtype), compute = floating && dtype != TC_BOOL ? tc_compute_dtype(dtype) : dtype;
    if (function == TC_REDUCE_mean) TC_TRY(tc_check_float(x, "the argument of mean", err));
    TC_TRY(tc_read_axes(&set, x, axis_count, axes, err));
    if (function == TC_REDUCE_max || function == TC_REDUCE_min) TC_TRY(check_not_empty(x, &set, names[function], err));
    tc_reduced_shape(&set, x, keepdims, &ndim, shape);
    const double count = (double)tc_reduced_count(&set, x);
    TC_TRY(tc_tensor_empty(&result, ndim, shape, compute, x->storage->device, err));
    TC_TRY(tc_run_reduction(result, x, &set, steps[function], NULL, function == TC_REDUCE_mean ? count : 1.0, err));
    TC_TRY(tc_tensor_as(&rounded, result, dtype, err));
    if (floating) TC_TRY(record(rounded, x, &ops[function], function, &set, count, NULL, err));
    *out = tc_tensor_retain(rounded);
cleanup:
    tc_tensor_release(result);
    tc_tensor_release(rounded);
    return status;
}

tc_status tc_var(tc_tensor **out, tc_tensor *x, double correction, int axis_count, const int64_t *axes, bool keepdims, tc_error *err)
{
    tc_tensor *result = NULL, *rounded = NULL, *mean = NULL;
    tc_axis_set set;
    int ndim;
    int64_t shape[TC_MAX_DIMS], mean_shape[TC_MAX_DIMS];
    tc_status status = TC_OK;
    const tc_dtype compute = tc_compute_dtype(x->dtype);
    TC_TRY(tc_check_float(x, "the argument of var", err));
    TC_TRY(tc_read_axes(&set, x, axis_count, axes, err));
    const double count = (double)tc_reduced_count(&set, x), freedom = count > correction ? count - correction : 0.0;
    tc_reduced_shape(&set, x, true, &ndim, mean_shape);
    TC_TRY(tc_tensor_empty(&mean, ndim, mean_shape, compute, x->storage->device, err));
    TC_TRY(tc_run_reduction(mean, x, &set, TC_STEP_sum, NULL, count, err));
    tc_reduced_shape(&set, x, keepdims, &ndim, shape);
    TC_TRY(tc_tensor_empty(&result, ndim, shape, compute, x->storage->device, err));
    TC_TRY(tc_run_reduction(result, x, &set, TC_STEP_square_difference, mean, freedom, err));
    TC_TRY(tc_tensor_as(&rounded, result, x->dtype, err));
    TC_TRY(record(rounded, x, &var_op, TC_REDUCE_sum, &set, freedom, mean, err));
    *out = tc_tensor_retain(rounded);
cleanup:
    tc_tensor_release(mean);
    tc_tensor_release(result);
    tc_tensor_release(rounded);
    return status;
}

/* dy has the shape of the result, with or without the reduced axes. */
static tc_status check_reduced(const tc_tensor *dy, const tc_tensor *x, const tc_axis_set *set, tc_error *err)
{
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    tc_reduced_shape(set, x, dy->ndim == x->ndim, &ndim, shape);
    return tc_check_gradient(dy, "dy", ndim, shape, x, "x", err);
}

tc_status tc_reduce_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, tc_reduce_function function, int axis_count,
                             const int64_t *axes, tc_error *err)
{
    reduce_attributes at = {.function = function, .ndim = x->ndim, .dtype = x->dtype};
    tc_tensor *found = NULL;
    tc_status status = TC_OK;
    if (!ops[function].backward) TC_TRY(tc_fail(err, TC_ERROR_VALUE, "%s has no gradient: its values are not continuous", names[function]));
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(tc_read_axes(&at.set, x, axis_count, axes, err));
    TC_TRY(check_reduced(dy, x, &at.set, err));
    if (!y && (function == TC_REDUCE_max || function == TC_REDUCE_min))
        TC_TRY(tc_fail(err, TC_ERROR_VALUE, "y, the result of %s, is needed for its gradient", names[function]));
    if (y) TC_TRY(tc_check_gradient(y, "y", dy->ndim, dy->shape, x, "x", err));
    at.count = (double)tc_reduced_count(&at.set, x);
    memcpy(at.shape, x->shape, sizeof(int64_t) * (size_t)x->ndim);
    tc_tensor *const saved[2] = {x, y};
    const tc_record record_of = {.op = &ops[function], .input_count = 1, .saved_count = 2, .saved = saved, .attributes = &at};
    TC_TRY(tc_tape_apply(&record_of, dy, (tc_tensor * *[]){&found}, err));
    TC_TRY(tc_make_own(&found, dy, err));
    *dx = tc_tensor_retain(found);
cleanup:
    tc_tensor_release(found);
    return status;
}

tc_status tc_var_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, double correction, int axis_count, const int64_t *axes,
                          tc_error *err)
{
    reduce_attributes at = {.function = TC_REDUCE_sum, .ndim = x->ndim, .dtype = x->dtype};
    tc_tensor *mean = NULL;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(tc_read_axes(&at.set, x, axis_count, axes, err));
    TC_TRY(check_reduced(dy, x, &at.set, err));
    const double count = (double)tc_reduced_count(&at.set, x);
    at.count = count > correction ? count - correction : 0.0;
    memcpy(at.shape, x->shape, sizeof(int64_t) * (size_t)x->ndim);
    tc_reduced_shape(&at.set, x, true, &ndim, shape);
    TC_TRY(tc_tensor_empty(&mean, ndim, shape, tc_compute_dtype(x->dtype), x->storage->device, err));
    TC_TRY(tc_run_reduction(mean, x, &at.set, TC_STEP_sum, NULL, count, err));
    tc_tensor *const saved[2] = {x, mean};
    const tc_record record_of = {.op = &var_op, .input_count = 1, .saved_count = 2, .saved = saved, .attributes = &at};
    TC_TRY(tc_tape_apply(&record_of, dy, (tc_tensor * *[]){dx}, err));
cleanup:
    tc_tensor_release(mean);
    return status;
}

tc_status tc_arg_reduce(tc_tensor **out, tc_tensor *x, bool largest, int axis_count, const int64_t *axes, bool keepdims, tc_error *err)
{
    tc_tensor *result = NULL;
    tc_axis_set set;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    tc_status status = TC_OK;
    const tc_reduce_step step = largest ? TC_STEP_max : TC_STEP_min;
    TC_TRY(tc_read_axes(&set, x, axis_count, axes, err));
    TC_TRY(check_not_empty(x, &set, largest ? "argmax" : "argmin", err));
    tc_reduced_shape(&set, x, keepdims, &ndim, shape);
    TC_TRY(tc_tensor_empty(&result, ndim, shape, TC_INT64, x->storage->device, err));
    TC_TRY(tc_run_arg_reduction(result, x, &set, step, err));
    *out = tc_tensor_retain(result);
cleanup:
    tc_tensor_release(result);
    return status;
}
