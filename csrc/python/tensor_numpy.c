/* tensor_numpy.c: gives other libraries access to a Tensor's memory: __array__, the buffer protocol, __cuda_array_interface__. */
#include "tensor_slots.h"

#include <string.h>

/* ---- __array__ ------------------------------------------------------------------------------------------------------------- */

PyObject *tcpy_tensor_array(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *dtype = NULL, *copy = NULL;
    const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (nargs > 0) dtype = args[0];
    for (Py_ssize_t i = 0; i < keywords; i++) {
        const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i));
        if (name && strcmp(name, "dtype") == 0)
            dtype = args[nargs + i];
        else if (name && strcmp(name, "copy") == 0)
            copy = args[nargs + i];
    }
    PyObject *array = tcpy_show_numbers("__array__", self) < 0 ? NULL : tcpy_array_from_tensor(tcpy_tensor_of(self), false);
    if (!array) return NULL;
    PyArray_Descr *descr = NULL;
    if (dtype && dtype != Py_None && !PyArray_DescrConverter(dtype, &descr)) {
        Py_DECREF(array);
        return NULL;
    }
    const bool same = !descr || PyArray_EquivTypes(descr, PyArray_DESCR((PyArrayObject *)array));
    if (same && copy != Py_True) {
        Py_XDECREF(descr);
        return array;
    }
    if (!same && copy == Py_False) {
        PyErr_SetString(PyExc_ValueError, "a copy is needed to change the dtype, and copy=False forbids it");
        Py_XDECREF(descr);
        Py_DECREF(array);
        return NULL;
    }
    PyObject *result = PyArray_FromArray((PyArrayObject *)array, descr, NPY_ARRAY_ENSURECOPY | NPY_ARRAY_FORCECAST);
    Py_DECREF(array);
    return result;
}

/* ---- the buffer protocol: read-only, on the CPU ------------------------------------------------------------------------------ */

typedef struct lent {
    tc_tensor *tensor; /* an alias: the memory stays even when the Tensor takes on other memory */
    Py_ssize_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
} lent;

static const char *const formats[TC_DTYPE_COUNT] = {[TC_FLOAT32] = "f", [TC_FLOAT64] = "d", [TC_FLOAT16] = "e", [TC_BFLOAT16] = NULL,
                                                    [TC_INT64] = "q",   [TC_INT32] = "i",   [TC_UINT8] = "B",   [TC_BOOL] = "?"};

static const char *refusal(const tc_tensor *tensor, int flags)
{
    if (!tc_tensor_on_cpu(tensor)) return "this Tensor is on a GPU; copy it to host memory first with .cpu()";
    if (!formats[tensor->dtype]) return "the buffer protocol has no bfloat16; convert with .float() first";
    if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) return "the memory of a Tensor is lent for reading only";
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && tensor->ndim > 1) return "the memory is not in Fortran order";
    const bool any_order = (flags & PyBUF_STRIDES) == PyBUF_STRIDES && (flags & PyBUF_C_CONTIGUOUS) != PyBUF_C_CONTIGUOUS &&
                           (flags & PyBUF_ANY_CONTIGUOUS) != PyBUF_ANY_CONTIGUOUS;
    return any_order || tensor->contiguous ? NULL : "the memory is not contiguous; use contiguous() first";
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    tc_tensor *tensor = tcpy_tensor_of(self);
    tc_error err;
    const char *reason = refusal(tensor, flags);
    view->obj = NULL;
    if (reason) {
        PyErr_SetString(PyExc_BufferError, reason);
        return -1;
    }
    if (tcpy_show_numbers("__buffer__", self) < 0) return -1;
    lent *loan = PyMem_Malloc(sizeof *loan);
    if (!loan) {
        PyErr_NoMemory();
        return -1;
    }
    if (tc_tensor_detach(&loan->tensor, tensor, &err) != TC_OK) {
        PyMem_Free(loan);
        tcpy_raise(&err);
        return -1;
    }
    const Py_ssize_t size = (Py_ssize_t)tc_dtype_size(tensor->dtype);
    for (int i = 0; i < tensor->ndim; i++) {
        loan->shape[i] = (Py_ssize_t)tensor->shape[i];
        loan->strides[i] = (Py_ssize_t)tensor->strides[i] * size;
    }
    *view = (Py_buffer){.buf = loan->tensor->data,
                        .obj = Py_NewRef(self),
                        .len = (Py_ssize_t)tensor->numel * size,
                        .itemsize = size,
                        .readonly = 1,
                        .ndim = tensor->ndim,
                        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)formats[tensor->dtype] : NULL,
                        .shape = flags & PyBUF_ND ? loan->shape : NULL,
                        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? loan->strides : NULL,
                        .internal = loan};
    return 0;
}

static void release_buffer(PyObject *self, Py_buffer *view)
{
    lent *loan = view->internal;
    (void)self;
    tc_tensor_release(loan->tensor);
    PyMem_Free(loan);
}

PyType_Slot tcpy_buffer_slots[] = {{Py_bf_getbuffer, get_buffer}, {Py_bf_releasebuffer, release_buffer}, {0, NULL}};

/* ---- __cuda_array_interface__, version 3 ----------------------------------------------------------------------------------------- */

/* Stream 1, CUDA's legacy default stream, waits for all of ours and they for it: work there, or on another stream that waits for it, is in
 * order with ours. */

PyObject *tcpy_tensor_cuda_array_interface(PyObject *self, void *unused)
{
    (void)unused;
    const tc_tensor *tensor = tcpy_tensor_of(self);
    static const char *const types[TC_DTYPE_COUNT] = {
        [TC_FLOAT32] = "<f4", [TC_FLOAT64] = "<f8", [TC_FLOAT16] = "<f2", [TC_BFLOAT16] = NULL,
        [TC_INT64] = "<i8",   [TC_INT32] = "<i4",   [TC_UINT8] = "|u1",   [TC_BOOL] = "|b1"};
    if (tc_tensor_on_cpu(tensor) || !types[tensor->dtype]) {
        PyErr_SetString(PyExc_AttributeError, tc_tensor_on_cpu(tensor)
                                                  ? "__cuda_array_interface__ is there for Tensors on a GPU only; this one is on the CPU"
                                                  : "__cuda_array_interface__ has no bfloat16");
        return NULL;
    }
    PyObject *shape = PyTuple_New(tensor->ndim), *strides = PyTuple_New(tensor->ndim);
    const long long size = (long long)tc_dtype_size(tensor->dtype);
    for (int i = 0; shape && strides && i < tensor->ndim; i++) {
        PyTuple_SET_ITEM(shape, i, PyLong_FromLongLong(tensor->shape[i]));
        PyTuple_SET_ITEM(strides, i, PyLong_FromLongLong(tensor->strides[i] * size));
    }
    if (!shape || !strides || PyErr_Occurred()) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    if (tensor->storage->writable) atomic_store(&tensor->storage->shared, true); /* the borrower may write, at any time from now on */
    return Py_BuildValue("{s:N,s:s,s:(KO),s:N,s:i,s:i}", "shape", shape, "typestr", types[tensor->dtype], "data",
                         (unsigned long long)(tensor->numel ? (uintptr_t)tensor->data : 0), tensor->storage->writable ? Py_False : Py_True,
                         "strides", strides, "stream", 1, "version", 3);
}
