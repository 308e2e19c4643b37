/* result.c: what a call gives: a Tensor, an ndarray, a tuple, or an exception. */
#include "binding.h"

#include "../core/tensor.h"

PyObject *tcpy_wrap(tc_tensor *tensor)
{
    if (tensor->of) { /* a call gives back what it was given */
        tc_tensor *itself = tc_tensor_retain(tensor->of);
        tc_tensor_release(tensor);
        tensor = itself;
    }
    PyObject *existing = tensor->wrapper;
    if (existing && Py_REFCNT(existing) > 0) { /* the one object of this tensor, so that `p.grad is p.grad`; not while it is being freed */
        Py_INCREF(existing);
        tc_tensor_release(tensor);
        return existing;
    }
    tcpy_tensor *object = (tcpy_tensor *)tcpy.tensor_type->tp_alloc(tcpy.tensor_type, 0);
    if (!object) {
        tc_tensor_release(tensor);
        return NULL;
    }
    object->tensor = tensor;
    tensor->wrapper = object;
    return (PyObject *)object;
}

PyObject *tcpy_int_tuple(int count, const int64_t *values)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (number)
            PyTuple_SET_ITEM(tuple, i, number);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

PyObject *tcpy_raise(const tc_error *err)
{
    PyObject *type = PyExc_RuntimeError;
    switch (err->status) {
    case TC_ERROR_VALUE: type = PyExc_ValueError; break;
    case TC_ERROR_TYPE: type = PyExc_TypeError; break;
    case TC_ERROR_INDEX: type = PyExc_IndexError; break;
    case TC_ERROR_MEMORY: type = PyExc_MemoryError; break;
    case TC_ERROR_NOT_IMPLEMENTED: type = PyExc_NotImplementedError; break;
    case TC_ERROR_CALLBACK:
        if (PyErr_Occurred()) return NULL;
        break;
    default: break;
    }
    PyErr_SetString(type, err->message);
    return NULL;
}

static PyObject *result_object(tcpy_call *call, tc_tensor *tensor)
{
    if (!tensor) Py_RETURN_NONE;
    if (call->any_tensor) return tcpy_wrap(tensor);
    PyObject *array = tcpy_array_from_tensor(tensor, true);
    tc_tensor_release(tensor);
    return array;
}

PyObject *tcpy_result(tcpy_call *call, tc_status status, const tc_error *err, int count, tc_tensor **tensors)
{
    if (status != TC_OK) return tcpy_raise(err);
    if (count == 1) return result_object(call, tensors[0]);
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; i < count; i++) {
        PyObject *item = tuple ? result_object(call, tensors[i]) : NULL;
        if (tuple && item)
            PyTuple_SET_ITEM(tuple, i, item);
        else if (tuple)
            Py_CLEAR(tuple);
        else
            tc_tensor_release(tensors[i]);
    }
    return tuple;
}
