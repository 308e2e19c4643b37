/* ops_reduce.c: reductions, as Python sees them: axis= and keepdims= as in NumPy, dim= and keepdim= as in PyTorch. */
#include "binding.h"

int tcpy_axes(int64_t axes[TC_MAX_DIMS], const tcpy_value *axis, const tcpy_value *dim)
{
    if (axis->given && !axis->none && dim->given && !dim->none) {
        PyErr_SetString(PyExc_TypeError, "axis= and dim= mean the same; pass one of them");
        return -2;
    }
    const tcpy_value *value = dim->given && !dim->none ? dim : axis;
    if (!value->given || value->none) return -1;
    for (int i = 0; i < value->ints->count; i++) axes[i] = value->ints->values[i];
    return value->ints->count;
}

/* Arguments 1 to 4 of the reductions: axis, keepdims, dim, keepdim. */
static PyObject *run_reduce(tcpy_call *call, tc_reduce_function function)
{
    int64_t axes[TC_MAX_DIMS];
    tc_error err;
    tc_status status;
    tc_tensor *y = NULL, *x = call->v[0].t;
    const int count = tcpy_axes(axes, &call->v[1], &call->v[3]);
    const bool keepdims = call->v[2].b || call->v[4].b;
    if (count == -2) return NULL;
    TCPY_COMPUTE(call, status, tc_reduce(&y, x, function, count, axes, keepdims, &err));
    return tcpy_result1(call, status, &err, y);
}

static PyObject *run_sum(tcpy_call *call) { return run_reduce(call, TC_REDUCE_sum); }
static PyObject *run_mean(tcpy_call *call) { return run_reduce(call, TC_REDUCE_mean); }
static PyObject *run_max(tcpy_call *call) { return run_reduce(call, TC_REDUCE_max); }
static PyObject *run_min(tcpy_call *call) { return run_reduce(call, TC_REDUCE_min); }
static PyObject *run_any(tcpy_call *call) { return run_reduce(call, TC_REDUCE_any); }
static PyObject *run_all(tcpy_call *call) { return run_reduce(call, TC_REDUCE_all); }

static PyObject *run_arg(tcpy_call *call, bool largest)
{
    int64_t axes[TC_MAX_DIMS];
    tc_error err;
    tc_status status;
    tc_tensor *y = NULL, *x = call->v[0].t;
    const int count = tcpy_axes(axes, &call->v[1], &call->v[3]);
    const bool keepdims = call->v[2].b || call->v[4].b;
    if (count == -2) return NULL;
    if (count >= 0 && count != 1)
        return PyErr_Format(PyExc_ValueError, "%s works along one axis, or over all of them with axis=None; %d were given", call->name,
                            count);
    TCPY_COMPUTE(call, status, tc_arg_reduce(&y, x, largest, count, axes, keepdims, &err));
    return tcpy_result1(call, status, &err, y);
}

static PyObject *run_argmax(tcpy_call *call) { return run_arg(call, true); }
static PyObject *run_argmin(tcpy_call *call) { return run_arg(call, false); }

static PyObject *run_var(tcpy_call *call)
{
    int64_t axes[TC_MAX_DIMS];
    tc_error err;
    tc_status status;
    tc_tensor *y = NULL, *x = call->v[0].t;
    const int count = tcpy_axes(axes, &call->v[1], &call->v[3]);
    const bool keepdims = call->v[2].b || call->v[4].b;
    if (count == -2) return NULL;
    const double correction = call->v[6].given && !call->v[6].none ? (double)call->v[6].b : call->v[5].f;
    TCPY_COMPUTE(call, status, tc_var(&y, x, correction, count, axes, keepdims, &err));
    return tcpy_result1(call, status, &err, y);
}

/* dy, x, axis, dim for sum and mean; max and min have y after x. */
static PyObject *run_reduce_backward(tcpy_call *call, tc_reduce_function function, bool has_y)
{
    int64_t axes[TC_MAX_DIMS];
    tc_error err;
    tc_status status;
    tc_tensor *dx = NULL, *y = has_y ? call->v[2].t : NULL;
    const int count = tcpy_axes(axes, &call->v[2 + has_y], &call->v[3 + has_y]);
    if (count == -2) return NULL;
    TCPY_COMPUTE(call, status, tc_reduce_backward(&dx, call->v[0].t, call->v[1].t, y, function, count, axes, &err));
    return tcpy_result1(call, status, &err, dx);
}

static PyObject *run_sum_backward(tcpy_call *call) { return run_reduce_backward(call, TC_REDUCE_sum, false); }
static PyObject *run_mean_backward(tcpy_call *call) { return run_reduce_backward(call, TC_REDUCE_mean, false); }
static PyObject *run_max_backward(tcpy_call *call) { return run_reduce_backward(call, TC_REDUCE_max, true); }
static PyObject *run_min_backward(tcpy_call *call) { return run_reduce_backward(call, TC_REDUCE_min, true); }

static PyObject *run_var_backward(tcpy_call *call)
{
    int64_t axes[TC_MAX_DIMS];
    tc_error err;
    tc_status status;
    tc_tensor *dx = NULL;
    const int count = tcpy_axes(axes, &call->v[2], &call->v[3]);
    if (count == -2) return NULL;
    TCPY_COMPUTE(call, status, tc_var_backward(&dx, call->v[0].t, call->v[1].t, call->v[4].f, count, axes, &err));
    return tcpy_result1(call, status, &err, dx);
}

#define REDUCE_SPEC "x:t axis:I?=None keepdims:b=False | dim:I?=None keepdim:b=False"

const tcpy_op tcpy_ops_reduce[] = {
    {"sum", REDUCE_SPEC, run_sum, "Sum over the axes (all when None); integers and bools to int64.", TCPY_METHOD},
    {"mean", REDUCE_SPEC, run_mean, "Mean over the axes (all when None).", TCPY_METHOD},
    {"max", REDUCE_SPEC, run_max,
     "Largest value over the axes (all when None), NaN when there is one. Over one axis the first of equal maxima gets the gradient, over "
     "several they share it.",
     TCPY_METHOD},
    {"min", REDUCE_SPEC, run_min, "Smallest value over the axes (all when None); see max.", TCPY_METHOD},
    {"any", REDUCE_SPEC, run_any, "Whether an element is not zero.", TCPY_METHOD},
    {"all", REDUCE_SPEC, run_all, "Whether no element is zero.", TCPY_METHOD},
    {"argmax", REDUCE_SPEC, run_argmax,
     "Index of the first largest element along the axis, of the flattened tensor when None; a NaN counts as the largest.", TCPY_METHOD},
    {"argmin", REDUCE_SPEC, run_argmin, "Index of the first smallest element along the axis; see argmax.", TCPY_METHOD},
    {"var", REDUCE_SPEC " correction:f=1 unbiased:b?=None", run_var,
     "Mean squared difference from the mean, over count - correction; unbiased=False: correction 0.", TCPY_METHOD},
    {"sum_backward", "dy:t x:t axis:I?=None | dim:I?=None", run_sum_backward, "dx of sum: dy, spread over the axes; x gives the shape.", 0},
    {"mean_backward", "dy:t x:t axis:I?=None | dim:I?=None", run_mean_backward, "dx of mean; x gives the shape.", 0},
    {"max_backward", "dy:t x:t y:t axis:I?=None | dim:I?=None", run_max_backward, "dx of max from its result y; ties as max says.", 0},
    {"min_backward", "dy:t x:t y:t axis:I?=None | dim:I?=None", run_min_backward, "dx of min from its result y; ties as max says.", 0},
    {"var_backward", "dy:t x:t axis:I?=None | dim:I?=None correction:f=1", run_var_backward, "dx of var.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
