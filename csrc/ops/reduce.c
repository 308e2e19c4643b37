/* reduce.c: reductions over any axes.
 *
 * Saved for the backward: nothing for sum and mean; x and the mean for var; x and y for max and min. */
#include <string.h>

#include "../core/broadcast.h"
#include "../core/copy.h"
#include "../core/elementwise.h"
#include "../core/own.h"
#include "../core/reduction.h"
#include "op.h"

/* ---- backward ----------------------------------------------------------------------------------------------------------- */

typedef struct reduce_attributes {
    tc_status (*gradient)(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, const struct reduce_attributes *at, tc_error *err);
    double divisor; /* of mean and var */
    tc_axis_set set;
    int ndim;
    int64_t shape[TC_MAX_DIMS]; /* of x */
} reduce_attributes;

/* A view of the result's size with axes of length 1 where x was reduced. */
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

/* dx = dy, repeated along the reduced axes. */
static tc_status sum_gradient(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, const reduce_attributes *at, tc_error *err)
{
    TC_OWNED tc_tensor *kept = NULL;
    (void)x, (void)y;
    TC_TRY(with_kept_axes(&kept, dy, at, err));
    return tc_broadcast_view(dx, kept, at->ndim, at->shape, err);
}

static tc_status mean_gradient(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, const reduce_attributes *at, tc_error *err)
{
    TC_OWNED tc_tensor *share = NULL;
    TC_TRY(tc_binary_scalar(&share, dy, tc_scalar_real(at->divisor), false, TC_BINARY_div, err));
    return sum_gradient(dx, share, x, y, at, err);
}

/* dx = dy 2 (x - mean) / divisor; the gradient through the mean is zero. */
static tc_status var_gradient(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *mean, const reduce_attributes *at, tc_error *err)
{
    TC_OWNED tc_tensor *kept = NULL, *scaled = NULL, *difference = NULL, *product = NULL;
    TC_TRY(with_kept_axes(&kept, dy, at, err));
    TC_TRY(tc_binary_scalar(&scaled, kept, tc_scalar_real(2.0 / at->divisor), false, TC_BINARY_mul, err));
    TC_TRY(tc_binary(&difference, x, mean, TC_BINARY_sub, err));
    TC_TRY(tc_binary(&product, difference, scaled, TC_BINARY_mul, err));
    return tc_tensor_as(dx, product, x->dtype, err);
}

/* Over one axis: the first extreme element gets the gradient.  x (outer, length, inner); dy,y (outer, inner). */
static tc_status first_extreme_gradient(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, const reduce_attributes *at,
                                        tc_error *err)
{
    TC_SCOPE(s, err);
    enum { DY, X, Y, INPUTS };
    tc_input in[] = {[DY] = {"dy", dy}, [X] = {"x", x}, [Y] = {"y", y}};
    tc_tensor *out;
    int64_t outer = 1, inner = 1, length = 1;
    for (int i = 0, seen = 0; i < at->ndim; i++) {
        if (at->set.reduced[i])
            length = at->shape[i], seen = 1;
        else
            *(seen ? &inner : &outer) *= at->shape[i];
    }
    TC_TRY(tc_begin_backward(&s, in, INPUTS));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    const tc_extreme_backward_args args = {
        .dx = out->data, .dy = in[DY].data, .x = in[X].data, .y = in[Y].data, .length = length, .inner = inner};
    TC_TRY(tc_compute(&s, &tc_kernel_extreme_backward, &args, outer * tc_divide_up(inner, TC_REDUCE_TILE),
                      2.0 * (double)length * (double)(inner < TC_REDUCE_TILE ? inner : TC_REDUCE_TILE)));
    return tc_give_rounded(&s, 1, &(tc_result){dx, out});
}

/* Over several axes: all extreme elements share it, as in PyTorch. */
static tc_status shared_extreme_gradient(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, const reduce_attributes *at,
                                         tc_error *err)
{
    TC_OWNED tc_tensor *kept_dy = NULL, *kept_y = NULL, *hit = NULL, *nan_x = NULL, *nan_y = NULL, *both = NULL, *either = NULL,
                       *count = NULL, *share = NULL;
    int64_t axes[TC_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < at->ndim; i++)
        if (at->set.reduced[i]) axes[n++] = i;
    TC_TRY(with_kept_axes(&kept_dy, dy, at, err));
    TC_TRY(with_kept_axes(&kept_y, y, at, err));
    TC_TRY(tc_binary(&hit, x, kept_y, TC_BINARY_eq, err));
    TC_TRY(tc_binary(&nan_x, x, x, TC_BINARY_ne, err));
    TC_TRY(tc_binary(&nan_y, kept_y, kept_y, TC_BINARY_ne, err));
    TC_TRY(tc_binary(&both, nan_x, nan_y, TC_BINARY_logical_and, err));
    TC_TRY(tc_binary(&either, hit, both, TC_BINARY_logical_or, err));
    TC_TRY(tc_reduce(&count, either, TC_REDUCE_sum, n, axes, true, err));
    TC_TRY(tc_binary(&share, kept_dy, count, TC_BINARY_div, err));
    return tc_where(dx, either, &(tc_argument){.tensor = share}, &(tc_argument){.scalar = tc_scalar_real(0.0)}, err);
}

static tc_status extreme_gradient(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, const reduce_attributes *at, tc_error *err)
{
    const bool one_axis = !at->set.all && at->set.count == 1;
    return (one_axis ? first_extreme_gradient : shared_extreme_gradient)(dx, dy, x, y, at, err);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const reduce_attributes *at = node->attributes;
    tc_tensor *x = node->saved_count ? tc_node_saved(node, 0) : NULL, *y = node->saved_count ? tc_node_saved(node, 1) : NULL;
    return at->gradient(&grad_inputs[0], grad_outputs[0], x, y, at, err);
}

static const tc_op ops[TC_REDUCE_COUNT] = {
    [TC_REDUCE_sum] = {"sum", backward, .attribute_bytes = sizeof(reduce_attributes)},
    [TC_REDUCE_mean] = {"mean", backward, .attribute_bytes = sizeof(reduce_attributes)},
    [TC_REDUCE_max] = {"max", backward, .attribute_bytes = sizeof(reduce_attributes)},
    [TC_REDUCE_min] = {"min", backward, .attribute_bytes = sizeof(reduce_attributes)},
};
static const tc_op var_op = {"var", backward, .attribute_bytes = sizeof(reduce_attributes)};

static bool is_extreme(tc_reduce_function function) { return function == TC_REDUCE_max || function == TC_REDUCE_min; }

static reduce_attributes describe(const tc_tensor *x, const tc_axis_set *set, tc_reduce_function function)
{
    reduce_attributes at = {.set = *set, .ndim = x->ndim, .divisor = (double)tc_reduced_count(set, x)};
    at.gradient = is_extreme(function) ? extreme_gradient : function == TC_REDUCE_mean ? mean_gradient : sum_gradient;
    memcpy(at.shape, x->shape, sizeof(int64_t) * (size_t)x->ndim);
    return at;
}

/* ---- forward ------------------------------------------------------------------------------------------------------------ */

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
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *result;
    tc_axis_set set;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    if (function == TC_REDUCE_mean) TC_TRY(tc_check_float(x, "the argument of mean", err));
    TC_TRY(tc_read_axes(&set, x, axis_count, axes, err));
    if (is_extreme(function)) TC_TRY(check_not_empty(x, &set, ops[function].name, err));
    TC_TRY(tc_begin_elements(&s, in, 1, x->dtype, result_dtype(function, x->dtype)));
    tc_reduced_shape(&set, x, keepdims, &ndim, shape);
    TC_TRY(tc_make(&s, &result, ndim, shape));
    const double divisor = function == TC_REDUCE_mean ? (double)tc_reduced_count(&set, x) : 1.0;
    TC_TRY(tc_run_reduction(result, x, &set, steps[function], NULL, divisor, err));
    if (!ops[function].backward || !tc_dtype_is_float(x->dtype) || !tc_tape_wants(1, &x)) {
        tc_give(&s, out, result);
        return TC_OK;
    }
    const reduce_attributes at = describe(x, &set, function);
    tc_tensor *const saved[2] = {x, result};
    return tc_finish(&s, out, result,
                     &(tc_record){.op = &ops[function], .saved = saved, .saved_count = is_extreme(function) ? 2 : 0, .attributes = &at});
}

/* *mean, a statistic with the reduced axes kept; owned by the scope. */
static tc_status make_mean(tc_scope *s, tc_tensor **mean, const tc_tensor *x, const tc_axis_set *set)
{
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    tc_reduced_shape(set, x, true, &ndim, shape);
    TC_TRY(tc_make_statistic(s, mean, ndim, shape));
    return tc_run_reduction(*mean, x, set, TC_STEP_sum, NULL, (double)tc_reduced_count(set, x), s->err);
}

static reduce_attributes describe_var(const tc_tensor *x, const tc_axis_set *set, double correction)
{
    reduce_attributes at = describe(x, set, TC_REDUCE_mean);
    at.gradient = var_gradient;
    at.divisor = at.divisor > correction ? at.divisor - correction : 0.0;
    return at;
}

tc_status tc_var(tc_tensor **out, tc_tensor *x, double correction, int axis_count, const int64_t *axes, bool keepdims, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *result, *mean;
    tc_axis_set set;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    TC_TRY(tc_check_float(x, "the argument of var or std", err));
    TC_TRY(tc_read_axes(&set, x, axis_count, axes, err));
    TC_TRY(tc_begin_elements(&s, in, 1, x->dtype, x->dtype));
    TC_TRY(make_mean(&s, &mean, x, &set));
    tc_reduced_shape(&set, x, keepdims, &ndim, shape);
    TC_TRY(tc_make(&s, &result, ndim, shape));
    const reduce_attributes at = describe_var(x, &set, correction);
    TC_TRY(tc_run_reduction(result, x, &set, TC_STEP_square_difference, mean, at.divisor, err));
    return tc_finish(&s, out, result, &(tc_record){.op = &var_op, TC_SAVED(x, mean), .attributes = &at});
}

tc_status tc_sum_of_squares(tc_tensor **out, tc_tensor *x, int axis_count, const int64_t *axes, bool keepdims, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *result, *dense;
    tc_axis_set set;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(tc_read_axes(&set, x, axis_count, axes, err));
    TC_TRY(tc_begin_elements(&s, in, 1, x->dtype, tc_compute_dtype(x->dtype)));
    TC_TRY(tc_tensor_contiguous(&dense, x, err)); /* as square(x) is: strides decide the order */
    TC_TRY(tc_own(&s, dense));
    tc_reduced_shape(&set, x, keepdims, &ndim, shape);
    TC_TRY(tc_make(&s, &result, ndim, shape));
    TC_TRY(tc_run_reduction(result, dense, &set, TC_STEP_square_difference, NULL, 1.0, err));
    tc_give(&s, out, result);
    return TC_OK;
}

/* ---- products: halves by halves, as ops one after the other compute them ------------------------------------------------------------ */

static tc_status slices_of(tc_tensor **out, tc_tensor *x, int axis, int64_t first, int64_t length, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS];
    memcpy(shape, x->shape, sizeof *shape * (size_t)x->ndim);
    shape[axis] = length;
    return tc_tensor_alias(out, x, x->ndim, shape, x->strides, first * x->strides[axis], err);
}

static tc_status copy_slices(tc_tensor *y, int64_t to, tc_tensor *x, int64_t from, int axis, int64_t length, tc_error *err)
{
    TC_OWNED tc_tensor *target = NULL, *source = NULL;
    TC_TRY(slices_of(&target, y, axis, to, length, err));
    TC_TRY(slices_of(&source, x, axis, from, length, err));
    return tc_tensor_copy(target, source, err);
}

/* `length` slices of y from `to` on = those of x from `first` on, times the same from `second` on. */
static tc_status multiply_slices(tc_tensor *y, int64_t to, tc_tensor *x, int64_t first, int64_t second, int axis, int64_t length,
                                 tc_error *err)
{
    TC_OWNED tc_tensor *target = NULL, *a = NULL, *b = NULL;
    const bool floating = tc_dtype_is_float(y->dtype);
    TC_TRY(slices_of(&target, y, axis, to, length, err));
    TC_TRY(slices_of(&a, x, axis, first, length, err));
    TC_TRY(slices_of(&b, x, axis, second, length, err));
    return tc_run_elementwise(target, 2, (tc_argument[]){{.tensor = a}, {.tensor = b}},
                              floating ? &tc_kernel_binary_forward : &tc_kernel_integer_binary, TC_BINARY_mul,
                              floating ? y->dtype : TC_FLOAT32, 2.0, err);
}

/* y: half of x, rounded up. The product ends in its first slice. */
static tc_status multiply_halves(tc_tensor *y, tc_tensor *x, int axis, tc_error *err)
{
    for (int64_t length = x->shape[axis], half; length > 1; length -= half, x = y) {
        half = length / 2;
        TC_TRY(multiply_slices(y, 0, x, 0, half, axis, half, err));
        if (length % 2) TC_TRY(copy_slices(y, half, x, 2 * half, axis, 1, err));
    }
    return TC_OK;
}

/* *y: the one of both, of the shape of x, in which the running products are. */
static tc_status multiply_running(tc_tensor **y, tc_tensor *const both[2], tc_tensor *x, int axis, tc_error *err)
{
    const int64_t length = x->shape[axis];
    int next = 0;
    for (int64_t done = 1; done < length; done *= 2, next = !next) {
        *y = both[next];
        TC_TRY(copy_slices(*y, 0, x, 0, axis, done, err));
        TC_TRY(multiply_slices(*y, done, x, done, 0, axis, length - done, err));
        x = *y;
    }
    return TC_OK;
}

tc_status tc_multiply_up(tc_tensor **out, tc_tensor *x, int64_t given, bool running, tc_error *err)
{
    TC_OWNED tc_tensor *products = NULL, *more = NULL, *first = NULL, *result = NULL;
    tc_tensor *last = x;
    int64_t shape[TC_MAX_DIMS];
    int axis;
    *out = NULL;
    if (x->ndim == 0 || !tc_tensor_on_cpu(x) || x->dtype == TC_BOOL || tc_tape_wants(1, &x)) return TC_OK;
    TC_TRY(tc_normalize_axis(&axis, given, x->ndim, "axis", err));
    if (x->shape[axis] < 2) return TC_OK;
    const tc_dtype dtype = tc_dtype_is_float(x->dtype) ? tc_compute_dtype(x->dtype) : x->dtype;
    memcpy(shape, x->shape, sizeof *shape * (size_t)x->ndim);
    if (!running) shape[axis] -= shape[axis] / 2;
    TC_TRY(tc_tensor_empty(&products, x->ndim, shape, dtype, x->storage->device, err));
    if (running) {
        TC_TRY(tc_tensor_empty(&more, x->ndim, shape, dtype, x->storage->device, err));
        TC_TRY(multiply_running(&last, (tc_tensor *const[]){products, more}, x, axis, err));
        return tc_tensor_as(out, last, x->dtype, err);
    }
    TC_TRY(multiply_halves(products, x, axis, err));
    shape[axis] = 1;
    TC_TRY(slices_of(&first, products, axis, 0, 1, err));
    TC_TRY(tc_tensor_empty(&result, x->ndim, shape, x->dtype, x->storage->device, err));
    TC_TRY(tc_tensor_copy(result, first, err));
    *out = tc_take(&result);
    return TC_OK;
}

tc_status tc_arg_reduce(tc_tensor **out, tc_tensor *x, bool largest, int axis_count, const int64_t *axes, bool keepdims, tc_error *err)
{
    const char *name = largest ? "argmax" : "argmin";
    tc_axis_set set;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    TC_OWNED tc_tensor *result = NULL;
    if (axis_count >= 0 && axis_count != 1)
        return tc_fail(err, TC_ERROR_VALUE, "%s works along one axis, or over all of them with axis=None; %d were given", name, axis_count);
    TC_TRY(tc_read_axes(&set, x, axis_count, axes, err));
    TC_TRY(check_not_empty(x, &set, name, err));
    tc_reduced_shape(&set, x, keepdims, &ndim, shape);
    TC_TRY(tc_tensor_empty(&result, ndim, shape, TC_INT64, x->storage->device, err));
    TC_TRY(tc_run_arg_reduction(result, x, &set, largest ? TC_STEP_max : TC_STEP_min, err));
    *out = tc_take(&result);
    return TC_OK;
}

/* ---- gradients that are not recorded ------------------------------------------------------------------------------------------- */

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
    TC_OWNED tc_tensor *found = NULL;
    tc_axis_set set;
    if (!ops[function].backward)
        return tc_fail(err, TC_ERROR_VALUE, "%s has no gradient: its values are not continuous", function == TC_REDUCE_any ? "any" : "all");
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(tc_read_axes(&set, x, axis_count, axes, err));
    TC_TRY(check_reduced(dy, x, &set, err));
    if (!y && is_extreme(function))
        return tc_fail(err, TC_ERROR_VALUE, "y, the result of %s, is needed for its gradient", ops[function].name);
    if (y) TC_TRY(tc_check_gradient(y, "y", dy->ndim, dy->shape, x, "x", err));
    const reduce_attributes at = describe(x, &set, function);
    TC_TRY(at.gradient(&found, dy, x, y, &at, err));
    TC_TRY(tc_make_own(&found, dy, err));
    *dx = tc_take(&found);
    return TC_OK;
}

tc_status tc_var_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, double correction, int axis_count, const int64_t *axes,
                          tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"dy", dy}, {"x", x}};
    tc_tensor *mean;
    tc_axis_set set;
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(tc_read_axes(&set, x, axis_count, axes, err));
    TC_TRY(check_reduced(dy, x, &set, err));
    TC_TRY(tc_begin(&s, in, 2));
    TC_TRY(make_mean(&s, &mean, x, &set));
    const reduce_attributes at = describe_var(x, &set, correction);
    return var_gradient(dx, dy, x, mean, &at, err);
}
