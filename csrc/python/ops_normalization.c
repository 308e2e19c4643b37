/* ops_normalization.c: layer normalisation, as Python sees it. */
#include "binding.h"

static PyObject *run_layer_norm(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *y = NULL;
    tc_tensor *x = call->v[0].t, *weight = call->v[2].t, *bias = call->v[3].t;
    const tcpy_ints *shape = call->v[1].ints;
    const int ndim = tc_tensor_ndim(x);
    for (int i = 0; i < shape->count; i++)
        if (shape->count > ndim || tc_tensor_shape(x)[ndim - shape->count + i] != shape->values[i])
            return PyErr_Format(PyExc_ValueError, "normalized_shape[%d] is %lld, which is not the length of that axis of x, counted from the last", i,
                                (long long)shape->values[i]);
    const double eps = call->v[4].f;
    TCPY_COMPUTE(call, status, tc_layer_norm(&y, x, shape->count, weight, bias, eps, &err));
    return tcpy_result1(call, status, &err, y);
}

static PyObject *run_layer_norm_forward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[3] = {NULL, NULL, NULL};
    TCPY_COMPUTE(call, status, tc_layer_norm_forward(&out[0], &out[1], &out[2], call->v[0].t, 1, call->v[1].t, call->v[2].t, call->v[3].f, &err));
    return tcpy_result(call, status, &err, 3, out);
}

static PyObject *run_layer_norm_backward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[3] = {NULL, NULL, NULL};
    TCPY_COMPUTE(call, status,
                 tc_layer_norm_backward(&out[0], &out[1], &out[2], call->v[0].t, call->v[1].t, call->v[2].t, call->v[3].t, call->v[4].t, &err));
    return tcpy_result(call, status, &err, 3, out);
}

const tcpy_op tcpy_ops_normalization[] = {
    {"layer_norm", "x:t normalized_shape:I weight:t?=None bias:t?=None eps:f=1e-5", run_layer_norm, "Layer normalisation over the last axes.", 0},
    {"layer_norm_forward", "x:t gamma:t?=None beta:t?=None eps:f=1e-5", run_layer_norm_forward, "y, mean, rstd of layer normalisation over the last axis.", 0},
    {"layer_norm_backward", "dy:t x:t gamma:t? mean:t rstd:t", run_layer_norm_backward, "dx, dgamma, dbeta of layer normalisation over the last axis.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
