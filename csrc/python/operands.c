/* operands.c: converts Python's operands of arithmetic: tensors, arrays and numbers. */
#include "binding.h"

#include "../core/tensor.h"

int tcpy_scalar_from_object(tc_scalar *out, PyObject *object)
{
    if (PyFloat_Check(object)) { /* np.float64 as well */
        *out = tc_scalar_real(PyFloat_AS_DOUBLE(object));
        return 1;
    }
    if (PyBool_Check(object) || PyArray_IsScalar(object, Bool)) {
        const int truth = PyObject_IsTrue(object);
        *out = tc_scalar_bool(truth > 0);
        return truth < 0 ? -1 : 1;
    }
    if (PyLong_Check(object) || PyArray_IsScalar(object, Integer)) {
        PyObject *index = PyNumber_Index(object);
        if (!index) return -1;
        int beyond;
        const long long value = PyLong_AsLongLongAndOverflow(index, &beyond);
        *out = beyond ? tc_scalar_real(PyLong_AsDouble(index)) : tc_scalar_integer(value);
        Py_DECREF(index);
        return PyErr_Occurred() ? -1 : 1;
    }
    if (PyArray_IsScalar(object, Floating)) {
        const double value = PyFloat_AsDouble(object);
        if (value == -1.0 && PyErr_Occurred()) return -1;
        *out = tc_scalar_real(value);
        return 1;
    }
    return 0;
}

/* 1, 0, or -1 with an exception set; a missing attribute is 0. */
static int is_array_like(PyObject *object)
{
    if (PyArray_Check(object) || PyList_Check(object) || PyTuple_Check(object) || PyArray_IsScalar(object, Generic) ||
        PyObject_CheckBuffer(object))
        return 1;
    return tcpy_has_attribute(object, "__array__");
}

int tcpy_read_integer_like(tcpy_operand *out, PyObject *object)
{
    if (!PyIndex_Check(object) || PyArray_Check(object) || tcpy_is_tensor(object)) return 0;
    PyObject *index = PyNumber_Index(object);
    if (!index) return -1;
    const int read = tcpy_read_number(out, index);
    if (out->beyond) out->beyond = object; /* which the caller owns */
    Py_DECREF(index);
    return read;
}

int tcpy_read_number(tcpy_operand *out, PyObject *object)
{
    const int read = tcpy_scalar_from_object(&out->value.scalar, object);
    out->value.tensor = NULL;
    out->beyond = read == 1 && out->value.scalar.kind == TC_FLOAT64 && PyLong_Check(object) ? object : NULL;
    return read;
}

int tcpy_read_operand(tcpy_operand *out, tc_tensor **owned, PyObject *object, const char *name, bool *any_tensor)
{
    *owned = NULL;
    if (tcpy_is_tensor(object)) {
        out->value.tensor = ((tcpy_tensor *)object)->tensor;
        out->beyond = NULL;
        *any_tensor = true;
        return 1;
    }
    const int number = tcpy_read_number(out, object);
    if (number) return number;
    const int array_like = is_array_like(object);
    if (array_like != 1) return array_like;
    bool is_tensor;
    if (tcpy_tensor_from_object(owned, object, name, &is_tensor) < 0) return -1;
    out->value.tensor = *owned;
    return 1;
}

int tcpy_check_meets(const tcpy_operand *operand, const tc_tensor *tensor)
{
    const tc_dtype dtype = tensor ? tc_tensor_dtype(tensor) : TC_FLOAT32;
    if (!operand->beyond || tc_dtype_is_float(dtype)) return 0;
    tcpy_raise_shown(PyExc_OverflowError, operand->beyond,
                     "%%S has more than 64 bits and meets a tensor of %s; convert the tensor with .float() first", tc_dtype_name(dtype));
    return -1;
}

int64_t tcpy_broadcast_numel(int count, tc_tensor *const *tensors)
{
    int64_t longest[TC_MAX_DIMS] = {0}, numel = 1; /* from the last axis on */
    int ndim = 0;
    for (int i = 0; i < count; i++) {
        const tc_tensor *t = tensors[i];
        if (!t) continue;
        for (; ndim < t->ndim; ndim++) longest[ndim] = 1;
        for (int axis = 0; axis < t->ndim; axis++) {
            const int64_t length = t->shape[t->ndim - 1 - axis];
            if (length != 1) longest[axis] = length;
        }
    }
    for (int axis = 0; axis < ndim; axis++)
        if (!tc_multiply_sizes(numel, longest[axis], &numel)) return INT64_MAX;
    return numel;
}

bool tcpy_stays_little(int count, tc_tensor *const *tensors)
{
    const tc_tensor *first = NULL;
    for (int i = 0; i < count; i++) {
        if (!tensors[i] || tensors[i]->numel == 1) continue;
        if (!first) first = tensors[i];
        if (first != tensors[i] && !tc_tensor_same_shape(first, tensors[i])) return tcpy_broadcast_numel(count, tensors) <= TCPY_LITTLE;
    }
    return true;
}
