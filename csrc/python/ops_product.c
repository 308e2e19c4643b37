/* ops_product.c: linear, qkv_projection and matmul, as Python sees them. */
#include <string.h>

#include "binding.h"

static int activation_from_name(tc_activation *out, const char *name)
{
    static const char *const names[] = {"none", "relu", "gelu", "gelu_tanh"};
    *out = TC_ACTIVATION_NONE;
    if (!name) return 0;
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (tc_activation)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "activation is '%s'; expected None, 'relu', 'gelu' or 'gelu_tanh'", name);
    return -1;
}

static int packing_from_name(tc_packing *out, const char *name)
{
    *out = name && strcmp(name, "qkv") == 0 ? TC_PACKING_QKV : TC_PACKING_HEAD;
    if (name && (*out == TC_PACKING_QKV || strcmp(name, "head") == 0)) return 0;
    PyErr_Format(PyExc_ValueError,
                 "packing is '%s'; expected 'head' (q, k, v of each head together) or 'qkv' (all of q, of k, of v together)",
                 name ? name : "None");
    return -1;
}

static PyObject *run_linear(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_activation activation;
    tc_tensor *y = NULL;
    if (activation_from_name(&activation, call->v[3].s) < 0) return NULL;
    TCPY_COMPUTE(call, status, tc_linear(&y, call->v[0].t, call->v[1].t, call->v[2].t, activation, call->v[4].t, &err));
    return tcpy_result1(call, status, &err, y);
}

static PyObject *run_linear_forward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_activation activation;
    tc_tensor *out[2] = {NULL, NULL};
    if (activation_from_name(&activation, call->v[3].s) < 0) return NULL;
    tc_tensor **pre = activation == TC_ACTIVATION_NONE ? NULL : &out[1];
    TCPY_COMPUTE(call, status, tc_linear_forward(&out[0], pre, call->v[0].t, call->v[1].t, call->v[2].t, activation, call->v[4].t, &err));
    return tcpy_result(call, status, &err, 2, out);
}

static PyObject *run_linear_backward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_activation activation;
    tc_tensor *out[3] = {NULL, NULL, NULL};
    if (activation_from_name(&activation, call->v[4].s) < 0) return NULL;
    TCPY_COMPUTE(call, status,
                 tc_linear_backward(&out[0], &out[1], &out[2], call->v[0].t, call->v[1].t, call->v[2].t, call->v[3].t, activation, &err));
    return tcpy_result(call, status, &err, 3, out);
}

static PyObject *run_qkv(tcpy_call *call, tc_status (*projection)(tc_tensor **, tc_tensor **, tc_tensor **, tc_tensor *, tc_tensor *,
                                                                  tc_tensor *, int64_t, tc_packing, tc_error *))
{
    tc_error err;
    tc_status status;
    tc_packing packing;
    tc_tensor *out[3] = {NULL, NULL, NULL};
    if (packing_from_name(&packing, call->v[4].s) < 0) return NULL;
    TCPY_COMPUTE(call, status,
                 projection(&out[0], &out[1], &out[2], call->v[0].t, call->v[1].t, call->v[2].t, call->v[3].i, packing, &err));
    return tcpy_result(call, status, &err, 3, out);
}

static PyObject *run_qkv_projection(tcpy_call *call) { return run_qkv(call, tc_qkv_projection); }
static PyObject *run_qkv_projection_forward(tcpy_call *call) { return run_qkv(call, tc_qkv_projection_forward); }

static PyObject *run_qkv_projection_backward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_packing packing;
    tc_tensor *out[3] = {NULL, NULL, NULL};
    if (packing_from_name(&packing, call->v[6].s) < 0) return NULL;
    TCPY_COMPUTE(call, status,
                 tc_qkv_projection_backward(&out[0], &out[1], &out[2], call->v[0].t, call->v[1].t, call->v[2].t, call->v[3].t, call->v[4].t,
                                            call->v[5].i, packing, &err));
    return tcpy_result(call, status, &err, 3, out);
}

static PyObject *run_matmul(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *c = NULL;
    TCPY_COMPUTE(call, status, tc_matmul(&c, call->v[0].t, call->v[1].t, &err));
    return tcpy_result1(call, status, &err, c);
}

static PyObject *run_matmul_backward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[2] = {NULL, NULL};
    TCPY_COMPUTE(call, status, tc_matmul_backward(&out[0], &out[1], call->v[0].t, call->v[1].t, call->v[2].t, &err));
    return tcpy_result(call, status, &err, 2, out);
}

const tcpy_op tcpy_ops_product[] = {
    {"linear", "x:t weight:t bias:t?=None activation:s?=None residual:t?=None", run_linear, "activation(x weight^T + bias) + residual.", 0},
    {"linear_forward", "x:t weight:t bias:t?=None activation:s?=None residual:t?=None", run_linear_forward,
     "y, and what the activation was applied to (None without one).", 0},
    {"linear_backward", "dy:t x:t weight:t pre:t?=None activation:s?=None", run_linear_backward,
     "dx, dweight, dbias of linear; that of its residual is dy.", 0},
    {"qkv_projection", "x:t weight:t bias:t?=None num_heads:i=1 packing:s=head", run_qkv_projection,
     "Queries, keys and values (..., H, T, D) of x (..., T, C) by one product.", 0},
    {"qkv_projection_forward", "x:t weight:t bias:t?=None num_heads:i=1 packing:s=head", run_qkv_projection_forward,
     "q, k, v (..., H, T, D) of x (..., T, C).", 0},
    {"qkv_projection_backward", "dq:t? dk:t? dv:t? x:t weight:t num_heads:i=1 packing:s=head", run_qkv_projection_backward,
     "dx, dweight, dbias of qkv_projection.", 0},
    {"matmul", "a:t b:t", run_matmul, "The matrix product with NumPy's broadcasting.", TCPY_METHOD},
    {"matmul_backward", "dc:t a:t b:t", run_matmul_backward, "da and db of matmul.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
