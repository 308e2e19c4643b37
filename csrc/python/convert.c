/* convert.c: ndarrays and their dtypes to tensors and back. */
#include "binding.h"

#include <string.h>

#include "../core/tensor.h"

int tcpy_has_attribute(PyObject *object, const char *name)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    if (!found && !PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    if (!found) PyErr_Clear();
    Py_XDECREF(found);
    return found != NULL;
}

/* ---- dtypes ------------------------------------------------------------------------------------------------------------------ */

static const int numpy_types[TC_DTYPE_COUNT] = {
    [TC_FLOAT32] = NPY_FLOAT32, [TC_FLOAT64] = NPY_FLOAT64, [TC_FLOAT16] = NPY_FLOAT16, [TC_BFLOAT16] = -1,
    [TC_INT64] = NPY_INT64,     [TC_INT32] = NPY_INT32,     [TC_UINT8] = NPY_UINT8,     [TC_BOOL] = NPY_BOOL};

/* bfloat16 is a dtype of the package ml_dtypes, known by its name. */
static bool is_bfloat16(PyArray_Descr *descr)
{
    return descr->type_num >= NPY_USERDEF && strcmp(descr->typeobj->tp_name, "ml_dtypes.bfloat16") == 0 && PyDataType_ELSIZE(descr) == 2;
}

static bool is_bfloat16_name(PyArray_Descr *descr)
{
    const char *dot = strrchr(descr->typeobj->tp_name, '.');
    return is_bfloat16(descr) || (PyDataType_ELSIZE(descr) == 2 && strcmp(dot ? dot + 1 : descr->typeobj->tp_name, "bfloat16") == 0);
}

static bool dtype_of(PyArray_Descr *descr, tc_dtype *out)
{
    switch (descr->type_num) {
    case NPY_FLOAT32: *out = TC_FLOAT32; return true;
    case NPY_FLOAT64: *out = TC_FLOAT64; return true;
    case NPY_FLOAT16: *out = TC_FLOAT16; return true;
    case NPY_UINT8: *out = TC_UINT8; return true;
    case NPY_BOOL: *out = TC_BOOL; return true;
    default: break;
    }
    if (PyTypeNum_ISSIGNED(descr->type_num) && PyDataType_ELSIZE(descr) == 8) return *out = TC_INT64, true;
    if (PyTypeNum_ISSIGNED(descr->type_num) && PyDataType_ELSIZE(descr) == 4) return *out = TC_INT32, true;
    if (is_bfloat16_name(descr)) return *out = TC_BFLOAT16, true;
    return false;
}

static int load_bfloat16(void)
{
    if (tcpy.bfloat16) return 0;
    PyObject *module = PyImport_ImportModule("ml_dtypes");
    if (!module) {
        if (PyErr_ExceptionMatches(PyExc_ModuleNotFoundError))
            PyErr_SetString(PyExc_ImportError, "bfloat16 arrays need the package ml_dtypes: pip install ml_dtypes");
        return -1;
    }
    PyObject *scalar = PyObject_GetAttrString(module, "bfloat16");
    Py_DECREF(module);
    if (!scalar) return -1;
    PyArray_Descr *descr = NULL;
    const int ok = PyArray_DescrConverter(scalar, &descr);
    Py_DECREF(scalar);
    if (!ok) return -1;
    tcpy.bfloat16 = descr;
    return 0;
}

/* New reference. */
static PyArray_Descr *descr_of(tc_dtype dtype)
{
    if (dtype != TC_BFLOAT16) return PyArray_DescrFromType(numpy_types[dtype]);
    if (load_bfloat16() < 0) return NULL;
    Py_INCREF(tcpy.bfloat16);
    return tcpy.bfloat16;
}

PyObject *tcpy_dtype_to_object(tc_dtype dtype)
{
    if (dtype != TC_BFLOAT16) return (PyObject *)descr_of(dtype);
    if (!tcpy.bfloat16_name) {
        PyObject *module = PyImport_ImportModule("transformer_c._bfloat16");
        if (!module) return NULL;
        tcpy.bfloat16_name = PyObject_GetAttrString(module, "bfloat16");
        Py_DECREF(module);
    }
    return Py_XNewRef(tcpy.bfloat16_name);
}

int tcpy_dtype_from_object(tc_dtype *out, PyObject *object)
{
    if (PyUnicode_Check(object)) {
        const char *name = PyUnicode_AsUTF8(object);
        if (!name) return -1;
        for (int i = 0; i < TC_DTYPE_COUNT; i++)
            if (strcmp(name, tc_dtype_name((tc_dtype)i)) == 0) return *out = (tc_dtype)i, 0;
        if (strcmp(name, "float") == 0) return *out = TC_FLOAT32, 0;
    }
    if (object == (PyObject *)&PyFloat_Type) return *out = TC_FLOAT32, 0;
    PyArray_Descr *descr = NULL;
    if (!PyArray_DescrConverter(object, &descr)) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError))
            tcpy_raise_shown(PyExc_TypeError, object,
                             "%%S is not a dtype; expected one of float32, float64, float16, bfloat16, int64, int32, uint8, bool");
        return -1;
    }
    const bool known = dtype_of(descr, out);
    Py_DECREF(descr);
    if (known) return 0;
    PyErr_Format(PyExc_TypeError,
                 "dtype %R is not supported; expected one of float32, float64, float16, bfloat16, int64, int32, uint8, bool", object);
    return -1;
}

/* ---- ndarray to tensor ---------------------------------------------------------------------------------------------------------- */

/* Can the memory be read in place: native byte order, aligned, strides of whole elements? */
static bool readable_in_place(PyArrayObject *array)
{
    if (!PyArray_ISNOTSWAPPED(array) || !PyArray_ISALIGNED(array)) return false;
    const npy_intp bytes = PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); i++)
        if (PyArray_STRIDE(array, i) % bytes != 0) return false;
    return true;
}

/* The dtype as which an array is read when we do not have its own: smaller and unsigned integers as int64, long doubles as float64. */
static int substitute_type(PyArrayObject *array, const char *name)
{
    const int type = PyArray_TYPE(array);
    if (PyTypeNum_ISINTEGER(type) && !(PyTypeNum_ISUNSIGNED(type) && PyArray_ITEMSIZE(array) == 8)) return NPY_INT64;
    if (type == NPY_LONGDOUBLE) return NPY_FLOAT64;
    PyErr_Format(PyExc_TypeError, "%s has dtype %S; expected float32, float64, float16, bfloat16, an integer up to int64, or bool%s", name,
                 (PyObject *)PyArray_DESCR(array),
                 PyTypeNum_ISFLEXIBLE(type) || type == NPY_OBJECT ? ": an array of numbers" : ": convert it with .astype()");
    return -1;
}

int tcpy_tensor_from_array(tc_tensor **out, PyArrayObject *array, const char *name)
{
    tc_dtype dtype;
    tc_error err;
    const bool known = dtype_of(PyArray_DESCR(array), &dtype);
    if (PyArray_NDIM(array) > TC_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%s has %d axes; at most %d are supported", name, PyArray_NDIM(array), TC_MAX_DIMS);
        return -1;
    }
    const bool copied = !known || !readable_in_place(array);
    if (copied) {
        PyArray_Descr *descr;
        if (known) {
            descr = descr_of(dtype);
        } else {
            const int type = substitute_type(array, name);
            if (type < 0) return -1;
            dtype = type == NPY_INT64 ? TC_INT64 : TC_FLOAT64;
            descr = PyArray_DescrFromType(type);
        }
        if (!descr) return -1;
        array = (PyArrayObject *)PyArray_FromArray(array, descr,
                                                   NPY_ARRAY_CARRAY | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_ENSURECOPY | NPY_ARRAY_FORCECAST);
        if (!array) return -1;
    } else {
        Py_INCREF(array);
    }
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        shape[i] = PyArray_DIM(array, i);
        strides[i] = PyArray_STRIDE(array, i) / PyArray_ITEMSIZE(array);
    }
    const tc_status status = tc_tensor_wrap(out, PyArray_DATA(array), PyArray_NDIM(array), shape, strides, dtype,
                                            PyArray_ISWRITEABLE(array), tcpy_release_object, array, &err);
    if (status == TC_OK) {
        (*out)->storage->is_argument = !copied;
        return 0;
    }
    Py_DECREF(array);
    tcpy_raise(&err);
    return -1;
}

/* np.asarray would read Tensors in a list as plain numbers. */
static bool holds_history(PyObject *object, int depth)
{
    if (tcpy_is_tensor(object)) return tc_tensor_requires_grad(((tcpy_tensor *)object)->tensor);
    if (depth > TC_MAX_DIMS || !(PyList_Check(object) || PyTuple_Check(object))) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); i++)
        if (holds_history(PySequence_Fast_GET_ITEM(object, i), depth + 1)) return true;
    return false;
}

/* What is no array of a dtype of its own, and became one of objects or uint64. *array becomes the numbers of a frame with columns of
 * several dtypes; integers that int64 has no room for are refused by their value. */
static int array_of_others(PyObject **array, PyObject *object, const char *name)
{
    const int is_frame = tcpy_has_attribute(object, "to_numpy");
    PyObject *module = is_frame < 0 ? NULL : PyImport_ImportModule("transformer_c._frames");
    PyObject *numbers = NULL;
    if (module && is_frame)
        numbers = PyObject_CallMethod(module, "as_array", "O", object);
    else if (module)
        numbers = PyObject_CallMethod(module, "checked_integers", "Os", *array, name);
    Py_XDECREF(module);
    Py_DECREF(*array);
    *array = numbers;
    return numbers ? 0 : -1;
}

/* What PyTorch raises for a tensor that NumPy cannot read, in words of ours; any other exception stays. */
static void explain_failure(PyObject *object, const char *name)
{
    PyObject *type, *value, *trace;
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_RuntimeError)) return;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *module = PyImport_ImportModule("transformer_c._frames");
    PyObject *result = module ? PyObject_CallMethod(module, "refuse_unreadable", "Os", object, name) : NULL;
    Py_XDECREF(module);
    if (result) {
        Py_DECREF(result);
        PyErr_Restore(type, value, trace);
        return;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* Has NumPy made an array of objects, or of uint64 because Python's integers fit no int64? */
static bool has_large_items(PyArrayObject *array, PyObject *object)
{
    const int type = PyArray_TYPE(array);
    if (type == NPY_OBJECT) return true;
    return PyTypeNum_ISUNSIGNED(type) && PyArray_ITEMSIZE(array) == 8 &&
           (PyList_Check(object) || PyTuple_Check(object) || PyLong_Check(object));
}

/* Python's integers are int64, also on 32-bit systems, where NumPy makes 32 bits of them. */
static PyObject *with_integers_of_64_bits(PyArrayObject *array, PyObject *object)
{
    if (sizeof(npy_intp) == 8 || !PyTypeNum_ISSIGNED(PyArray_TYPE(array))) return (PyObject *)array;
    while ((PyList_Check(object) || PyTuple_Check(object)) && PySequence_Fast_GET_SIZE(object))
        object = PySequence_Fast_GET_ITEM(object, 0);
    if (!PyLong_Check(object)) return (PyObject *)array;
    PyObject *wide = PyArray_Cast(array, NPY_INT64);
    Py_DECREF(array);
    return wide;
}

int tcpy_tensor_from_object(tc_tensor **out, PyObject *object, const char *name, bool *is_tensor)
{
    *is_tensor = tcpy_is_tensor(object);
    if (*is_tensor) {
        *out = tc_tensor_retain(((tcpy_tensor *)object)->tensor);
        return 0;
    }
    if (PyArray_Check(object)) return tcpy_tensor_from_array(out, (PyArrayObject *)object, name);
    if (object == Py_None) {
        PyErr_Format(PyExc_TypeError, "%s is None; expected a Tensor, an ndarray, or what np.asarray takes", name);
        return -1;
    }
    if (tc_grad_enabled() && holds_history(object, 0)) {
        PyErr_Format(PyExc_TypeError,
                     "%s is a list of Tensors that require a gradient, which would be lost; join them with tc.stack() first", name);
        return -1;
    }
    PyObject *array = PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
    if (!array) explain_failure(object, name);
    if (array && has_large_items((PyArrayObject *)array, object) && array_of_others(&array, object, name) < 0) return -1;
    if (!array && PyList_Check(object) && PyErr_ExceptionMatches(PyExc_ValueError))
        PyErr_Format(PyExc_ValueError,
                     "%s is not an array: its nested lists have different lengths; fill them up to one length (and mask the rest)", name);
    if (array) array = with_integers_of_64_bits((PyArrayObject *)array, object);
    if (!array) return -1;
    const int result = tcpy_tensor_from_array(out, (PyArrayObject *)array, name);
    Py_DECREF(array);
    return result;
}

/* ---- tensor to ndarray ------------------------------------------------------------------------------------------ */

static void release_tensor_capsule(PyObject *capsule) { tc_tensor_release(PyCapsule_GetPointer(capsule, "transformer_c.tensor")); }

PyObject *tcpy_array_from_tensor(tc_tensor *tensor, bool writable)
{
    if (!tc_tensor_on_cpu(tensor)) {
        PyErr_SetString(PyExc_TypeError, "this tensor is on a GPU; copy it to host memory first with .cpu()");
        return NULL;
    }
    tc_tensor *alias; /* keeps the memory, even when the tensor takes on other memory: Python code may run below */
    tc_error err;
    if (tc_tensor_detach(&alias, tensor, &err) != TC_OK) return tcpy_raise(&err);
    tensor = alias;
    PyArray_Descr *descr = descr_of(tensor->dtype);
    if (!descr) {
        tc_tensor_release(alias);
        return NULL;
    }
    npy_intp shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    const npy_intp bytes = (npy_intp)tc_dtype_size(tensor->dtype);
    for (int i = 0; i < tensor->ndim; i++) {
        shape[i] = (npy_intp)tensor->shape[i];
        strides[i] = (npy_intp)tensor->strides[i] * bytes;
    }
    const int flags = writable && tensor->storage->writable ? NPY_ARRAY_WRITEABLE : 0;
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, tensor->ndim, shape, strides, tensor->data, flags, NULL);
    PyObject *capsule = array ? PyCapsule_New(alias, "transformer_c.tensor", release_tensor_capsule) : NULL;
    if (!capsule) {
        tc_tensor_release(alias);
        Py_XDECREF(array);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)array, capsule) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    if (flags) atomic_store(&tensor->storage->shared, true);
    return array;
}
