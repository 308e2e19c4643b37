/* ops_optimizer.c: the norm of gradients, a Python float. */
#include "binding.h"

static PyObject *run_gradient_norm(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    double norm;
    for (int64_t i = 0; i < call->v[0].list.count; i++)
        if (tcpy_hold(call, (tc_tensor **)&call->v[0].list.items[i]) < 0) return NULL;
    TCPY_COMPUTE(call, status, tc_gradient_norm(&norm, &call->v[0].list, call->v[1].f, &err));
    return status == TC_OK ? PyFloat_FromDouble(norm) : tcpy_raise(&err);
}

const tcpy_op tcpy_ops_optimizer[] = {
    {"gradient_norm", "gradients:T power:f=2.0", run_gradient_norm, "The norm of all gradients together.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
