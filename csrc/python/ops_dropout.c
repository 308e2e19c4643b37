/* ops_dropout.c: dropout, as Python sees it. */
#include "binding.h"

/* A seed of 64 bits; negative ones wrap around, as everywhere. */
static int word_from_object(uint64_t *out, PyObject *object)
{
    *out = PyLong_AsUnsignedLongLongMask(object);
    return *out == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

static PyObject *run(tcpy_call *call, tc_status (*dropout)(tc_tensor **, tc_tensor *, double, uint64_t, uint64_t, tc_error *))
{
    tc_error err;
    tc_status status;
    tc_tensor *y = NULL;
    uint64_t seed, number;
    if (word_from_object(&seed, call->v[2].o) < 0 || word_from_object(&number, call->v[3].o) < 0) return NULL;
    TCPY_COMPUTE(call, status, dropout(&y, call->v[0].t, call->v[1].f, seed, number, &err));
    return tcpy_result1(call, status, &err, y);
}

static PyObject *run_dropout(tcpy_call *call) { return run(call, tc_dropout); }
static PyObject *run_dropout_forward(tcpy_call *call) { return run(call, tc_dropout_forward); }

const tcpy_op tcpy_ops_dropout[] = {
    {"dropout", "x:t p:f seed:o call:o", run_dropout, "Dropout; what is kept follows from seed, call and the element's place.", 0},
    {"dropout_forward", "x:t p:f seed:o call:o", run_dropout_forward, "Dropout without the tape; its backward is the same on dy.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
