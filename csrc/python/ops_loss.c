/* ops_loss.c: element-wise losses, as Python sees them. */
#include "binding.h"

#define RUN(name, reduction_at, expression)                                                                                                \
    static PyObject *run_##name(tcpy_call *call)                                                                                           \
    {                                                                                                                                      \
        const tcpy_value *v = call->v;                                                                                                     \
        tc_tensor *loss = NULL;                                                                                                            \
        tc_reduction reduction;                                                                                                            \
        tc_error err;                                                                                                                      \
        tc_status status;                                                                                                                  \
        if (tcpy_reduction(&reduction, v[reduction_at].s) < 0) return NULL;                                                                \
        TCPY_COMPUTE(call, status, expression);                                                                                            \
        return tcpy_result1(call, status, &err, loss);                                                                                     \
    }

#define RUN_BACKWARD(name, reduction_at, expression)                                                                                       \
    static PyObject *run_##name##_backward(tcpy_call *call)                                                                                \
    {                                                                                                                                      \
        const tcpy_value *v = call->v;                                                                                                     \
        tc_tensor *out[2] = {NULL, NULL};                                                                                                  \
        tc_reduction reduction;                                                                                                            \
        tc_error err;                                                                                                                      \
        tc_status status;                                                                                                                  \
        if (tcpy_reduction(&reduction, v[reduction_at].s) < 0) return NULL;                                                                \
        TCPY_COMPUTE(call, status, expression);                                                                                            \
        return tcpy_result(call, status, &err, 2, out);                                                                                    \
    }

RUN(mse_loss, 2, tc_mse_loss(&loss, v[0].t, v[1].t, reduction, &err))
RUN(binary_cross_entropy, 3, tc_binary_cross_entropy(&loss, v[0].t, v[1].t, v[2].t, reduction, &err))
RUN(binary_cross_entropy_with_logits, 4, tc_binary_cross_entropy_with_logits(&loss, v[0].t, v[1].t, v[2].t, v[3].t, reduction, &err))

RUN_BACKWARD(mse_loss, 3, tc_mse_loss_backward(&out[0], &out[1], v[0].t, v[1].t, v[2].t, reduction, &err))
RUN_BACKWARD(binary_cross_entropy, 4, tc_binary_cross_entropy_backward(&out[0], &out[1], v[0].t, v[1].t, v[2].t, v[3].t, reduction, &err))
RUN_BACKWARD(binary_cross_entropy_with_logits, 5,
             tc_binary_cross_entropy_with_logits_backward(&out[0], &out[1], v[0].t, v[1].t, v[2].t, v[3].t, v[4].t, reduction, &err))

const tcpy_op tcpy_ops_loss[] = {
    {"mse_loss", "input:t target:t reduction:s=mean", run_mse_loss, "Squared differences: their mean, their sum, or each.", 0},
    {"binary_cross_entropy", "input:t target:t weight:t?=None reduction:s=mean", run_binary_cross_entropy,
     "Binary cross-entropy of probabilities, logarithms cut off at -100.", 0},
    {"binary_cross_entropy_with_logits", "input:t target:t weight:t?=None pos_weight:t?=None reduction:s=mean",
     run_binary_cross_entropy_with_logits, "Binary cross-entropy of logits, without overflow.", 0},
    {"mse_loss_backward", "dloss:t input:t target:t reduction:s=mean", run_mse_loss_backward, "dinput and dtarget of mse_loss.", 0},
    {"binary_cross_entropy_backward", "dloss:t input:t target:t weight:t?=None reduction:s=mean", run_binary_cross_entropy_backward,
     "dinput and dtarget of binary_cross_entropy.", 0},
    {"binary_cross_entropy_with_logits_backward", "dloss:t input:t target:t weight:t?=None pos_weight:t?=None reduction:s=mean",
     run_binary_cross_entropy_with_logits_backward, "dinput and dtarget of binary_cross_entropy_with_logits.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
