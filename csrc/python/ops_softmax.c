/* ops_softmax.c: softmax and cross-entropy, as Python sees them. */
#include "binding.h"

#include <string.h>

int tcpy_reduction(tc_reduction *out, const char *name)
{
    static const char *const names[] = {[TC_REDUCTION_NONE] = "none", [TC_REDUCTION_MEAN] = "mean", [TC_REDUCTION_SUM] = "sum"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) return *out = (tc_reduction)i, 0;
    PyErr_Format(PyExc_ValueError, "reduction must be 'none', 'mean' or 'sum', got '%s'", name);
    return -1;
}

static PyObject *run_cross_entropy(tcpy_call *call)
{
    const tcpy_value *v = call->v;
    tc_error err;
    tc_status status;
    tc_tensor *loss = NULL;
    tc_reduction reduction;
    if (tcpy_reduction(&reduction, v[4].s) < 0) return NULL;
    TCPY_COMPUTE(call, status, tc_cross_entropy(&loss, v[0].t, v[1].t, v[2].t, v[3].i, v[5].f, reduction, &err));
    return tcpy_result1(call, status, &err, loss);
}

static PyObject *run_cross_entropy_forward(tcpy_call *call)
{
    const tcpy_value *v = call->v;
    tc_error err;
    tc_status status;
    tc_tensor *out[3] = {NULL, NULL, NULL};
    tc_reduction reduction;
    if (tcpy_reduction(&reduction, v[4].s) < 0) return NULL;
    TCPY_COMPUTE(call, status,
                 tc_cross_entropy_forward(&out[0], &out[1], &out[2], v[0].t, v[1].t, v[2].t, v[3].i, v[5].f, reduction, &err));
    return tcpy_result(call, status, &err, 3, out);
}

static PyObject *run_cross_entropy_backward(tcpy_call *call)
{
    const tcpy_value *v = call->v;
    tc_error err;
    tc_status status;
    tc_tensor *dx = NULL;
    tc_reduction reduction;
    if (tcpy_reduction(&reduction, v[7].s) < 0) return NULL;
    TCPY_COMPUTE(call, status,
                 tc_cross_entropy_backward(&dx, v[0].t, v[1].t, v[2].t, v[3].t, v[4].t, v[5].t, v[6].i, v[8].f, reduction, &err));
    return tcpy_result1(call, status, &err, dx);
}

const tcpy_op tcpy_ops_softmax[] = {
    {"cross_entropy", "input:t target:t weight:t?=None ignore_index:i=-100 reduction:s=mean label_smoothing:f=0.0", run_cross_entropy,
     "Cross-entropy between logits, classes on axis 1, and classes or class probabilities.", 0},
    {"cross_entropy_forward", "input:t target:t weight:t?=None ignore_index:i=-100 reduction:s=mean label_smoothing:f=0.0",
     run_cross_entropy_forward, "loss, and of each row the largest logit and log sum e^(x - largest); target holds classes.", 0},
    {"cross_entropy_backward",
     "dloss:t input:t target:t top:t log_sum:t weight:t?=None ignore_index:i=-100 reduction:s=mean label_smoothing:f=0.0",
     run_cross_entropy_backward, "dinput of cross_entropy.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
