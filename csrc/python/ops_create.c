/* ops_create.c: new tensors. */
#include "binding.h"

#include <string.h>

#include "../core/copy.h"

/* dtype and device of a call; the default is float32 on the CPU. */
static int read_options(PyObject *dtype_object, PyObject *device_object, tc_dtype *dtype, tc_device *device)
{
    *dtype = TC_FLOAT32;
    if (dtype_object && dtype_object != Py_None && tcpy_dtype_from_object(dtype, dtype_object) < 0) return -1;
    return tcpy_device_from_object(device, device_object);
}

static PyObject *run_empty(tcpy_call *call)
{
    const tcpy_ints *shape = call->v[0].ints;
    tc_tensor *tensor = NULL;
    tc_dtype dtype;
    tc_device device;
    tc_error err;
    if (read_options(call->v[1].o, call->v[2].o, &dtype, &device) < 0) return NULL;
    const tc_status status = tc_tensor_empty(&tensor, shape->count, shape->values, dtype, device, &err);
    call->any_tensor = true;
    return tcpy_result1(call, status, &err, tensor);
}

/* The fill value is a tensor of one element, so that integers keep all their bits. */
static PyObject *run_full(tcpy_call *call)
{
    const tcpy_ints *shape = call->v[0].ints;
    tc_tensor *tensor = NULL;
    tc_dtype dtype;
    tc_device device;
    tc_error err;
    if (read_options(call->v[2].o, call->v[3].o, &dtype, &device) < 0) return NULL;
    tc_status status = tc_check_value_fits(call->v[1].t, dtype, &err);
    if (status == TC_OK) status = tc_tensor_empty(&tensor, shape->count, shape->values, dtype, device, &err);
    if (status == TC_OK) status = tc_tensor_copy(tensor, call->v[1].t, &err);
    if (status != TC_OK) tc_tensor_release(tensor);
    call->any_tensor = true;
    return tcpy_result1(call, status, &err, tensor);
}

static int check_length(int64_t length)
{
    if (length < 0) PyErr_Format(PyExc_ValueError, "length is %lld; it is not negative", (long long)length);
    return length < 0 ? -1 : 0;
}

static PyObject *run_arange(tcpy_call *call)
{
    const int64_t length = call->v[2].i;
    tc_tensor *tensor = NULL;
    tc_dtype dtype;
    tc_device device;
    tc_error err;
    if (read_options(call->v[3].o, call->v[4].o, &dtype, &device) < 0 || check_length(length) < 0) return NULL;
    if (call->v[3].o == Py_None) dtype = TC_INT64;
    const tc_status status = tc_tensor_range(&tensor, call->v[0].i, call->v[1].i, length, dtype, device, &err);
    call->any_tensor = true;
    return tcpy_result1(call, status, &err, tensor);
}

static PyObject *run_spaced(tcpy_call *call)
{
    const int64_t length = call->v[3].i;
    tc_tensor *tensor = NULL;
    tc_dtype dtype;
    tc_device device;
    tc_error err;
    if (read_options(call->v[5].o, call->v[6].o, &dtype, &device) < 0 || check_length(length) < 0) return NULL;
    const tc_status status = tc_tensor_spaced(&tensor, call->v[0].f, call->v[1].f, call->v[2].f, length, call->v[4].i, dtype, device, &err);
    call->any_tensor = true;
    return tcpy_result1(call, status, &err, tensor);
}

/* A Tensor over the memory of an ndarray where that can be read in place. */
static PyObject *run_as_tensor(tcpy_call *call)
{
    call->any_tensor = true;
    call->v[0].t->storage->is_argument = false; /* shared from now on */
    return tcpy_wrap(tc_tensor_retain(call->v[0].t));
}

/* The same for an argument that is passed on: a backward reads a copy of it, as of any array that is passed to a call. */
static PyObject *run_as_argument(tcpy_call *call)
{
    if (tcpy_bring_array(call, &call->v[0].t, call->v[1].t) < 0) return NULL;
    call->any_tensor = true;
    return tcpy_wrap(tc_tensor_retain(call->v[0].t));
}

static PyObject *run_nonzero(tcpy_call *call)
{
    tc_tensor *out, *x = call->v[0].t;
    tc_error err;
    tc_status status;
    if (x->ndim == 0) return PyErr_Format(PyExc_ValueError, "where() of a condition without axes has no indices; use reshape(1) first");
    if (tcpy_hold(call, &x) < 0) return NULL;
    TCPY_COMPUTE(call, status, tc_nonzero(&out, x, &err));
    return tcpy_result1(call, status, &err, out);
}

static tc_status copy_settled(tc_tensor **out, tc_tensor *x, tc_error *err)
{
    TC_TRY(tc_tensor_copy_of(out, x, err));
    const tc_status status = tc_tensor_settle_bools(*out, err);
    if (status != TC_OK) tc_tensor_release(*out);
    return status;
}

/* The copy in a pair (copy, memory of x), which an earlier call left in the dict; borrowed, NULL for anything else. */
static PyObject *copy_in_pair(PyObject *pair, const tc_tensor *x)
{
    if (!pair || !PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return NULL;
    PyObject *copy = PyTuple_GET_ITEM(pair, 0), *memory = PyTuple_GET_ITEM(pair, 1);
    if (!tcpy_is_tensor(copy) || !tcpy_is_tensor(memory)) return NULL;
    return ((tcpy_tensor *)memory)->tensor->storage == x->storage ? copy : NULL;
}

/* The copy of the memory of x that an earlier call left in the dict, or a new one. NULL without an exception: x has none of its own. The
 * dict has the memory as well, so that no other gets its address, which is the key. */
static PyObject *copied_memory(tcpy_call *call, tc_tensor *x, PyObject *memo)
{
    tc_tensor *memory, *copy = NULL;
    tc_error err;
    tc_status status;
    if (tc_tensor_memory(&memory, x, &err) != TC_OK) return tcpy_raise(&err);
    if (!memory) return NULL;
    PyObject *key = PyUnicode_FromFormat("memory at %p", (void *)x->storage), *found = NULL;
    if (key) found = Py_XNewRef(copy_in_pair(PyDict_GetItemWithError(memo, key), x));
    if (key && !found && !PyErr_Occurred()) { /* x is of tcpy_hold */
        TCPY_COMPUTE(call, status, copy_settled(&copy, memory, &err));
        found = status == TC_OK ? tcpy_wrap(copy) : tcpy_raise(&err);
        PyObject *held = found ? tcpy_wrap(tc_tensor_retain(memory)) : NULL, *pair = held ? PyTuple_Pack(2, found, held) : NULL;
        if (!pair || PyDict_SetItem(memo, key, pair) < 0) Py_CLEAR(found);
        Py_XDECREF(pair);
        Py_XDECREF(held);
    }
    Py_XDECREF(key);
    tc_tensor_release(memory);
    return found;
}

/* Tensors that share memory share that of their copies. */
static PyObject *run_copied_with_memory(tcpy_call *call)
{
    tc_tensor *x = call->v[0].t, *out = NULL;
    tc_error err;
    tc_status status;
    if (!PyDict_Check(call->v[1].o)) return PyErr_Format(PyExc_TypeError, "memo must be a dict, not %s", Py_TYPE(call->v[1].o)->tp_name);
    if (tcpy_hold(call, &x) < 0) return NULL;
    PyObject *memory = copied_memory(call, x, call->v[1].o);
    if (!memory && PyErr_Occurred()) return NULL;
    if (memory)
        status = tc_tensor_in_copy(&out, x, ((tcpy_tensor *)memory)->tensor, &err);
    else
        TCPY_COMPUTE(call, status, copy_settled(&out, x, &err));
    Py_XDECREF(memory);
    return tcpy_result1(call, status, &err, out);
}

const tcpy_op tcpy_ops_create[] = {
    {"empty", "shape:I dtype:o=None device:o=None", run_empty, "A tensor of uninitialised memory.", 0},
    {"full", "shape:I value:t dtype:o=None device:o=None", run_full, "A tensor that has one value everywhere.", 0},
    {"arange", "first:i step:i length:i dtype:o=None device:o=None", run_arange, "length integers, from first in equal steps.", 0},
    {"spaced", "first:f step:f last:f length:i turn:i dtype:o=None device:o=None", run_spaced,
     "length numbers, from first in equal steps, and from the turn on towards last.", 0},
    {"as_tensor", "data:t", run_as_tensor, "A Tensor over the memory of an ndarray, or over a copy where that must be.", 0},
    {"as_argument", "data:t beside:t=None", run_as_argument,
     "as_tensor for an array that its owner may change after the call; beside a Tensor on a GPU it goes there.", 0},
    {"copied_with_memory", "input:t memo:o", run_copied_with_memory,
     "A copy in a copy of all the memory, which the dict has for others that share the memory.", 0},
    {"nonzero", "input:t", run_nonzero, "The indices where the input is not zero, a row for each, on the CPU.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
