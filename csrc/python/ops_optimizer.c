/* ops_optimizer.c: optimizer steps, gradient norms, and where an optimizer wants its gradients, as Python sees them. */
#include "binding.h"

#include "../core/tensor.h"

/* Lists that belong together have one length. */
static bool same_counts(tcpy_call *call, int first, int last)
{
    for (int i = first + 1; i <= last; i++)
        if (!call->v[i].none && call->v[i].list.count != call->v[first].list.count) {
            PyErr_Format(PyExc_ValueError, "%s: the lists have different lengths (%zd and %zd)", call->name, call->v[first].list.count,
                         call->v[i].list.count);
            return false;
        }
    return true;
}

static tc_tensor *const *list_or_null(const tcpy_value *value) { return value->none ? NULL : value->list.items; }

static PyObject *none_or_error(tc_status status, const tc_error *err)
{
    if (status != TC_OK) return tcpy_raise(err);
    Py_RETURN_NONE;
}

static PyObject *run_sgd_step(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    const tcpy_value *v = call->v;
    if (!same_counts(call, 0, 2)) return NULL;
    TCPY_COMPUTE(call, status,
                 tc_sgd_step(v[0].list.count, v[0].list.items, v[1].list.items, list_or_null(&v[2]), v[3].f, v[4].f, v[5].f, v[6].f, v[7].b,
                             v[8].b, v[9].b, &err));
    return none_or_error(status, &err);
}

static PyObject *run_adam_step(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    const tcpy_value *v = call->v;
    if (!same_counts(call, 0, 4)) return NULL;
    TCPY_COMPUTE(call, status,
                 tc_adam_step(v[0].list.count, v[0].list.items, v[1].list.items, v[2].list.items, v[3].list.items, list_or_null(&v[4]),
                              v[5].i, v[6].f, v[7].f, v[8].f, v[9].f, v[10].f, v[11].b, v[12].b, &err));
    return none_or_error(status, &err);
}

static PyObject *run_rmsprop_step(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    const tcpy_value *v = call->v;
    if (!same_counts(call, 0, 4)) return NULL;
    TCPY_COMPUTE(call, status,
                 tc_rmsprop_step(v[0].list.count, v[0].list.items, v[1].list.items, v[2].list.items, list_or_null(&v[3]),
                                 list_or_null(&v[4]), v[5].f, v[6].f, v[7].f, v[8].f, v[9].f, v[10].b, v[11].b, &err));
    return none_or_error(status, &err);
}

static PyObject *run_gradient_norm(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    double norm;
    TCPY_COMPUTE(call, status, tc_gradient_norm(&norm, call->v[0].list.count, call->v[0].list.items, call->v[1].f, &err));
    return status == TC_OK ? PyFloat_FromDouble(norm) : tcpy_raise(&err);
}

static PyObject *run_gradient_scale(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    TCPY_COMPUTE(call, status, tc_gradient_scale(call->v[0].list.count, call->v[0].list.items, call->v[1].f, call->v[2].f, &err));
    return none_or_error(status, &err);
}

static PyObject *run_set_grad_slot(tcpy_call *call)
{
    tc_error err;
    return none_or_error(tc_tensor_set_grad_slot(call->v[0].t, call->v[1].t, &err), &err);
}

const tcpy_op tcpy_ops_optimizer[] = {
    {"sgd_step", "parameters:T gradients:T buffers:T? lr:f momentum:f dampening:f weight_decay:f nesterov:b maximize:b first:b",
     run_sgd_step, "One step of stochastic gradient descent.", 0},
    {"adam_step",
     "parameters:T gradients:T exp_avg:T exp_avg_sq:T max_exp_avg_sq:T? t:i lr:f beta1:f beta2:f eps:f weight_decay:f decoupled:b "
     "maximize:b",
     run_adam_step, "One step of Adam or AdamW.", 0},
    {"rmsprop_step",
     "parameters:T gradients:T square_avg:T buffers:T? grad_avg:T? lr:f alpha:f eps:f weight_decay:f momentum:f eps_inside_sqrt:b "
     "maximize:b",
     run_rmsprop_step, "One step of RMSprop.", 0},
    {"gradient_norm", "gradients:T power:f=2.0", run_gradient_norm, "The norm of all gradients together.", 0},
    {"gradient_scale", "gradients:T factor:f limit:f", run_gradient_scale, "Scales and clamps gradients in place.", 0},
    {"set_grad_slot", "parameter:t slot:t?=None", run_set_grad_slot, "Where backward() is to put the gradient of a parameter.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
