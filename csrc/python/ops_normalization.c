/* ops_normalization.c: layer normalisation, as Python sees it. */
#include "binding.h"

#include "../core/tensor.h"

/* The number of axes of normalized_shape, which are the last of x; -1 with an exception set when they are not. */
static int normalized_ndim(const tc_tensor *x, const tcpy_ints *shape)
{
    const int ndim = tc_tensor_ndim(x);
    for (int i = 0; i < shape->count; i++)
        if (shape->count > ndim || tc_tensor_shape(x)[ndim - shape->count + i] != shape->values[i]) {
            char given[TC_SHAPE_TEXT], wanted[TC_SHAPE_TEXT];
            PyErr_Format(PyExc_ValueError, "normalized_shape is %s, but x has shape %s: its last axes must have exactly these lengths",
                         tc_shape_text(wanted, shape->count, shape->values), tc_tensor_text(given, x));
            return -1;
        }
    return shape->count;
}

static PyObject *run_layer_norm(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *y = NULL;
    const tcpy_value *v = call->v;
    const int ndim = normalized_ndim(v[0].t, v[1].ints);
    if (ndim < 0) return NULL;
    TCPY_COMPUTE(call, status, tc_layer_norm(&y, v[0].t, ndim, v[2].t, v[3].t, v[4].f, &err));
    return tcpy_result1(call, status, &err, y);
}

static PyObject *run_add_layer_norm(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *y = NULL;
    const tcpy_value *v = call->v;
    const int ndim = normalized_ndim(v[0].t, v[2].ints);
    if (ndim < 0) return NULL;
    TCPY_COMPUTE(call, status, tc_add_layer_norm(&y, v[0].t, v[1].t, ndim, v[3].t, v[4].t, v[5].f, &err));
    return tcpy_result1(call, status, &err, y);
}

static PyObject *run_add_layer_norm_forward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[4] = {NULL, NULL, NULL, NULL};
    const tcpy_value *v = call->v;
    TCPY_COMPUTE(call, status,
                 tc_add_layer_norm_forward(&out[0], &out[1], &out[2], &out[3], v[0].t, v[1].t, 1, v[2].t, v[3].t, v[4].f, &err));
    return tcpy_result(call, status, &err, 4, out);
}

static PyObject *run_add_layer_norm_backward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[4] = {NULL, NULL, NULL, NULL};
    const tcpy_value *v = call->v;
    TCPY_COMPUTE(call, status, tc_layer_norm_backward(&out[0], &out[2], &out[3], v[0].t, v[1].t, v[2].t, v[3].t, v[4].t, &err));
    if (status == TC_OK) out[1] = tc_tensor_retain(out[0]);
    return tcpy_result(call, status, &err, 4, out);
}

static PyObject *run_layer_norm_forward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[3] = {NULL, NULL, NULL};
    TCPY_COMPUTE(call, status,
                 tc_layer_norm_forward(&out[0], &out[1], &out[2], call->v[0].t, 1, call->v[1].t, call->v[2].t, call->v[3].f, &err));
    return tcpy_result(call, status, &err, 3, out);
}

static PyObject *run_layer_norm_backward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[3] = {NULL, NULL, NULL};
    TCPY_COMPUTE(
        call, status,
        tc_layer_norm_backward(&out[0], &out[1], &out[2], call->v[0].t, call->v[1].t, call->v[2].t, call->v[3].t, call->v[4].t, &err));
    return tcpy_result(call, status, &err, 3, out);
}

const tcpy_op tcpy_ops_normalization[] = {
    {"layer_norm", "x:t normalized_shape:I weight:t?=None bias:t?=None eps:f=1e-5", run_layer_norm,
     "Layer normalisation over the last axes.", 0},
    {"layer_norm_forward", "x:t gamma:t?=None beta:t?=None eps:f=1e-5", run_layer_norm_forward,
     "y, mean, rstd of layer normalisation over the last axis.", 0},
    {"layer_norm_backward", "dy:t x:t gamma:t? mean:t rstd:t", run_layer_norm_backward,
     "dx, dgamma, dbeta of layer normalisation over the last axis.", 0},
    {"add_layer_norm", "x:t residual:t normalized_shape:I weight:t?=None bias:t?=None eps:f=1e-5", run_add_layer_norm,
     "Layer normalisation of x + residual over the last axes.", 0},
    {"add_layer_norm_forward", "x:t residual:t gamma:t?=None beta:t?=None eps:f=1e-5", run_add_layer_norm_forward,
     "y, sum, mean, rstd of layer normalisation of x + residual over the last axis.", 0},
    {"add_layer_norm_backward", "dy:t sum:t gamma:t? mean:t rstd:t", run_add_layer_norm_backward,
     "dx, dresidual (the same), dgamma, dbeta of layer normalisation of the sum.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
