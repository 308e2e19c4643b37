/* ops_softmax.c: softmax and cross-entropy, as Python sees them. */
#include "binding.h"

#include <string.h>

#define RUN_AXIS(name)                                                                                                                     \
    static PyObject *run_##name(tcpy_call *call)                                                                                           \
    {                                                                                                                                      \
        tc_error err;                                                                                                                      \
        tc_status status;                                                                                                                  \
        tc_tensor *y = NULL;                                                                                                               \
        int64_t axis;                                                                                                                      \
        if (tcpy_axis(&axis, &call->v[1], &call->v[2]) < 0) return NULL;                                                                   \
        TCPY_COMPUTE(call, status, tc_##name(&y, call->v[0].t, axis, &err));                                                               \
        return tcpy_result1(call, status, &err, y);                                                                                        \
    }
RUN_AXIS(softmax)
RUN_AXIS(log_softmax)

static PyObject *run_forward(tcpy_call *call, bool logarithm)
{
    tc_error err;
    tc_status status;
    tc_tensor *y = NULL;
    TCPY_COMPUTE(call, status, tc_softmax_forward(&y, call->v[0].t, call->v[1].i, logarithm, &err));
    return tcpy_result1(call, status, &err, y);
}

static PyObject *run_softmax_forward(tcpy_call *call) { return run_forward(call, false); }
static PyObject *run_log_softmax_forward(tcpy_call *call) { return run_forward(call, true); }

static PyObject *run_backward(tcpy_call *call, bool logarithm)
{
    tc_error err;
    tc_status status;
    tc_tensor *dx = NULL;
    TCPY_COMPUTE(call, status, tc_softmax_backward(&dx, call->v[0].t, call->v[1].t, call->v[2].i, logarithm, &err));
    return tcpy_result1(call, status, &err, dx);
}

static PyObject *run_softmax_backward(tcpy_call *call) { return run_backward(call, false); }
static PyObject *run_log_softmax_backward(tcpy_call *call) { return run_backward(call, true); }

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
    {"softmax", "x:t axis:i=-1 | dim:i?=None", run_softmax, "exp(x) / sum(exp(x)) along an axis.", TCPY_METHOD},
    {"log_softmax", "x:t axis:i=-1 | dim:i?=None", run_log_softmax, "The logarithm of softmax.", TCPY_METHOD},
    {"softmax_forward", "x:t dim:i=-1", run_softmax_forward, "softmax, not recorded.", 0},
    {"log_softmax_forward", "x:t dim:i=-1", run_log_softmax_forward, "log_softmax, not recorded.", 0},
    {"softmax_backward", "dy:t y:t dim:i=-1", run_softmax_backward, "dx of softmax from its result.", 0},
    {"log_softmax_backward", "dy:t y:t dim:i=-1", run_log_softmax_backward, "dx of log_softmax from its result.", 0},
    {"cross_entropy", "input:t target:t weight:t?=None ignore_index:i=-100 reduction:s=mean label_smoothing:f=0.0", run_cross_entropy,
     "Cross-entropy between logits, classes on axis 1, and classes or class probabilities.", 0},
    {"cross_entropy_forward", "input:t target:t weight:t?=None ignore_index:i=-100 reduction:s=mean label_smoothing:f=0.0",
     run_cross_entropy_forward, "loss, and of each row the largest logit and log sum e^(x - largest); target holds classes.", 0},
    {"cross_entropy_backward",
     "dloss:t input:t target:t top:t log_sum:t weight:t?=None ignore_index:i=-100 reduction:s=mean label_smoothing:f=0.0",
     run_cross_entropy_backward, "dinput of cross_entropy.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
