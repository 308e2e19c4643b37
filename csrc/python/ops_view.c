/* ops_view.c: ops of a Tensor that make their own Python objects: tuples of views, properties, conversions. */
#include "tensor_slots.h"

#include <limits.h>
#include <string.h>

#include "../core/copy.h"
#include "../core/layout.h"

/* ---- tuples of views ------------------------------------------------------------------------------------------------------ */

/* A tuple of slices of the given lengths along an axis; without the axis when `drop`. */
static PyObject *pieces(tcpy_call *call, int axis, Py_ssize_t count, const int64_t *lengths, bool drop)
{
    tc_error err;
    tc_tensor **parts = PyMem_Calloc(count ? (size_t)count : 1, sizeof *parts);
    if (!parts) return PyErr_NoMemory();
    PyObject *tuple = NULL;
    if (tc_split(parts, call->v[0].t, axis, count, lengths, drop, &err) == TC_OK)
        tuple = PyTuple_New(count);
    else
        tcpy_raise(&err);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = tuple ? tcpy_result1(call, TC_OK, &err, parts[i]) : NULL;
        if (item)
            PyTuple_SET_ITEM(tuple, i, item);
        else if (tuple)
            Py_CLEAR(tuple);
        else
            tc_tensor_release(parts[i]);
    }
    PyMem_Free(parts);
    return tuple;
}

/* Memory for the lengths of so many pieces. */
static int64_t *new_lengths(int64_t count)
{
    int64_t *lengths = NULL;
    if (count > INT_MAX)
        PyErr_Format(PyExc_ValueError, "%lld pieces are too many", (long long)count);
    else if (!(lengths = PyMem_Malloc(sizeof *lengths * (size_t)(count ? count : 1))))
        PyErr_NoMemory();
    return lengths;
}

/* Pieces of `size` along the axis, the last one shorter; `empty` of them along an axis of length 0. */
static PyObject *even_slices(tcpy_call *call, int axis, int64_t size, int64_t empty)
{
    const int64_t length = call->v[0].t->shape[axis];
    const Py_ssize_t count = (Py_ssize_t)(length ? (length - 1) / size + 1 : empty);
    int64_t *lengths = new_lengths(count);
    if (!lengths) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) lengths[i] = i + 1 < count || size < length - i * size ? size : length - i * size;
    PyObject *result = pieces(call, axis, count, lengths, false);
    PyMem_Free(lengths);
    return result;
}

static int split_axis(tcpy_call *call, int64_t given)
{
    int axis;
    tc_error err;
    if (call->v[0].t->ndim == 0) {
        PyErr_Format(PyExc_ValueError, "%s needs a tensor of at least one axis", call->name);
        return -1;
    }
    if (tc_normalize_axis(&axis, given, call->v[0].t->ndim, "dim", &err) == TC_OK) return axis;
    tcpy_raise(&err);
    return -1;
}

static PyObject *run_chunk(tcpy_call *call)
{
    const int64_t chunks = call->v[1].i;
    const int axis = split_axis(call, call->v[2].i);
    if (axis < 0) return NULL;
    if (chunks < 1) return PyErr_Format(PyExc_ValueError, "chunks must be at least 1, got %lld", (long long)chunks);
    const int64_t length = call->v[0].t->shape[axis], size = length ? (length - 1) / chunks + 1 : 0;
    return even_slices(call, axis, size, chunks);
}

/* sizes[i], which add up to `length`, from Python ints. 0, or -1 with an exception set. */
static int read_sizes(int64_t *sizes, PyObject *const *items, Py_ssize_t count, int axis, int64_t length)
{
    int64_t left = length;
    bool good = true;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyIndex_Check(items[i])) {
            PyErr_Format(PyExc_TypeError, "split_size must be an int or a sequence of ints; number %zd of the sequence is %R, a %s", i,
                         items[i], Py_TYPE(items[i])->tp_name);
            return -1;
        }
        PyObject *index = PyNumber_Index(items[i]);
        if (!index) return -1;
        sizes[i] = PyLong_AsLongLong(index);
        Py_DECREF(index);
        if (sizes[i] == -1 && PyErr_Occurred()) return -1;
        good = good && sizes[i] >= 0 && sizes[i] <= left;
        if (good) left -= sizes[i];
    }
    if (good && left == 0) return 0;
    PyObject *list = PyList_New(0); /* for the message */
    for (Py_ssize_t i = 0; list && i < count && i < 8; i++)
        if (PyList_Append(list, items[i]) < 0) Py_CLEAR(list);
    if (list)
        PyErr_Format(PyExc_ValueError, "split_size is %R%s; sizes are at least 0 and add up to the length of axis %d, %lld", list,
                     count > 8 ? " and more" : "", axis, (long long)length);
    Py_XDECREF(list);
    return -1;
}

static PyObject *run_split(tcpy_call *call)
{
    PyObject *given = call->v[1].o;
    const int axis = split_axis(call, call->v[2].i);
    if (axis < 0) return NULL;
    if (PyIndex_Check(given) && !PyArray_Check(given)) {
        const int64_t size = PyNumber_AsSsize_t(given, NULL);
        if (size == -1 && PyErr_Occurred()) return NULL;
        if (size < 1) return PyErr_Format(PyExc_ValueError, "split_size must be at least 1, got %lld", (long long)size);
        return even_slices(call, axis, size, 1);
    }
    /* a str is a sequence as well */
    PyObject *items = tcpy_items(PyUnicode_Check(given) ? Py_None : given, "split_size must be an int or a sequence of ints, not %s",
                                 Py_TYPE(given)->tp_name);
    if (!items) return NULL;
    const Py_ssize_t count = PyTuple_GET_SIZE(items);
    int64_t *sizes = new_lengths(count);
    PyObject *result = NULL;
    if (sizes && read_sizes(sizes, PySequence_Fast_ITEMS(items), count, axis, call->v[0].t->shape[axis]) == 0)
        result = pieces(call, axis, count, sizes, false);
    PyMem_Free(sizes);
    Py_DECREF(items);
    return result;
}

static PyObject *run_unbind(tcpy_call *call)
{
    const int axis = split_axis(call, call->v[1].i);
    if (axis < 0) return NULL;
    const Py_ssize_t count = (Py_ssize_t)call->v[0].t->shape[axis];
    int64_t *ones = new_lengths(count);
    if (!ones) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) ones[i] = 1;
    PyObject *result = pieces(call, axis, count, ones, true);
    PyMem_Free(ones);
    return result;
}

/* ---- another dtype or device ------------------------------------------------------------------------------------------------ */

/* One positional argument of to(), or dtype= or device=. 0, or -1 with an exception set. */
static int read_target(PyObject *object, bool positional, bool named_device, tc_dtype *dtype, tc_device *device)
{
    const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : NULL;
    const bool is_number = PyLong_Check(object) && !PyBool_Check(object);
    const bool is_device =
        named_device || (positional && (is_number || (text && (strncmp(text, "cpu", 3) == 0 || strncmp(text, "cuda", 4) == 0))));
    if (tcpy_is_tensor(object)) {
        *dtype = ((tcpy_tensor *)object)->tensor->dtype;
        *device = ((tcpy_tensor *)object)->tensor->storage->device;
        return 0;
    }
    if ((is_device ? tcpy_device_from_object(device, object) : tcpy_dtype_from_object(dtype, object)) == 0) return 0;
    if (text && positional && PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_ValueError,
                     "to('%s'): neither a dtype (float32, float64, float16, bfloat16, int64, int32, uint8, bool) nor a device (\"cpu\", "
                     "\"cuda\", \"cuda:<ordinal>\")",
                     text);
    return -1;
}

/* to(dtype), to(device), to(device, dtype), to(other), each followed by non_blocking and copy, and by keyword. Copies to a GPU never block
 * longer than they must: non_blocking has no effect. */
static PyObject *run_to(tcpy_call *call)
{
    enum { POSITIONAL = 4, DTYPE, DEVICE, NON_BLOCKING, COPY };
    tc_tensor *x = call->v[0].t, *y = NULL;
    tc_dtype dtype = x->dtype;
    tc_device device = x->storage->device;
    bool copy = call->v[COPY].b;
    int flags = 0; /* positional bools so far: non_blocking, copy */
    for (int i = 1; i <= DEVICE; i++) {
        PyObject *object = call->v[i].o;
        if (!object || object == Py_None) continue;
        if (i <= POSITIONAL && PyBool_Check(object)) {
            if (flags++ == 1) copy = object == Py_True;
            if (flags <= 2) continue;
        }
        if (i <= POSITIONAL && (flags || i > 2))
            return PyErr_Format(PyExc_TypeError,
                                "to() takes a dtype, a device, a device and a dtype, or a Tensor, then two bools, "
                                "non_blocking and copy; not %R as argument %d",
                                object, i);
        if (read_target(object, i <= POSITIONAL, i == DEVICE, &dtype, &device) < 0) return NULL;
    }
    tc_error err;
    tc_status status;
    if (tcpy_hold(call, &x) < 0) return NULL;
    const bool same = dtype == x->dtype && device.type == x->storage->device.type && device.index == x->storage->device.index;
    TCPY_COMPUTE(call, status, copy && same ? tc_clone(&y, x, &err) : tc_to(&y, x, dtype, device, &err));
    return tcpy_result1(call, status, &err, y);
}

/* ---- what a Tensor tells about itself ------------------------------------------------------------------------------------------ */

/* A value for each axis of x: all of them as a tuple, or the one of the given axis. */
static PyObject *per_axis(tcpy_call *call, const int64_t *values)
{
    const int ndim = call->v[0].t->ndim;
    int axis;
    tc_error err;
    if (call->v[1].none) return tcpy_int_tuple(ndim, values);
    if (!ndim) {
        PyErr_SetString(PyExc_IndexError, "a tensor without axes has no length or step along one; its shape is ()");
        return NULL;
    }
    if (tc_normalize_axis(&axis, call->v[1].i, ndim, "dim", &err) != TC_OK) return tcpy_raise(&err);
    return PyLong_FromLongLong(values[axis]);
}

static PyObject *run_size(tcpy_call *call) { return per_axis(call, call->v[0].t->shape); }
static PyObject *run_stride(tcpy_call *call) { return per_axis(call, call->v[0].t->strides); }
static PyObject *run_data_ptr(tcpy_call *call) { return PyLong_FromVoidPtr(call->v[0].t->data); }

static PyObject *run_dim(tcpy_call *call) { return PyLong_FromLong(call->v[0].t->ndim); }
static PyObject *run_numel(tcpy_call *call) { return PyLong_FromLongLong(call->v[0].t->numel); }
static PyObject *run_is_contiguous(tcpy_call *call) { return PyBool_FromLong(call->v[0].t->contiguous); }

static PyObject *run_numpy(tcpy_call *call)
{
    tc_tensor *x = call->v[0].t;
    return tcpy_array_from_tensor(x, false);
}

static PyObject *run_item(tcpy_call *call) { return tcpy_tensor_number(call->v[0].t); }

static PyObject *run_tolist(tcpy_call *call)
{
    tc_tensor *x = call->v[0].t, *host = NULL;
    tc_error err;
    tc_status status =
        tc_tensor_empty(&host, x->ndim, x->shape, x->dtype == TC_BFLOAT16 ? TC_FLOAT32 : x->dtype, (tc_device){TC_CPU, 0}, &err);
    if (status == TC_OK) status = tc_tensor_copy(host, x, &err);
    PyObject *array = status == TC_OK ? tcpy_array_from_tensor(host, false) : tcpy_raise(&err);
    tc_tensor_release(host);
    if (!array) return NULL;
    PyObject *list = PyObject_CallMethod(array, "tolist", NULL);
    Py_DECREF(array);
    return list;
}

static PyObject *backward_to(tcpy_call *call, PyObject *inputs)
{
    PyObject *module = PyImport_ImportModule("transformer_c.autograd");
    PyObject *root = module ? tcpy_wrap(tc_tensor_retain(call->v[0].t)) : NULL, *gradient = NULL, *result = NULL;
    if (root) gradient = call->v[1].t ? tcpy_wrap(tc_tensor_retain(call->v[1].t)) : Py_NewRef(Py_None);
    if (gradient)
        result = PyObject_CallMethod(module, "backward", "OOOOO", root, gradient, call->v[2].b ? Py_True : Py_False, Py_False, inputs);
    Py_XDECREF(gradient);
    Py_XDECREF(root);
    Py_XDECREF(module);
    return result;
}

static PyObject *run_backward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    call->keep_gil = false;
    if (call->v[3].b) {
        PyErr_SetString(PyExc_ValueError,
                        "create_graph must be False: there are no gradients of gradients; retain_graph=True keeps the graph");
        return NULL;
    }
    if (tcpy_bring_array(call, &call->v[1].t, call->v[0].t) < 0) return NULL;
    const bool can_start = call->v[1].t || call->v[0].t->numel == 1; /* otherwise tc_backward says so */
    if (can_start && call->v[4].o && call->v[4].o != Py_None) return backward_to(call, call->v[4].o);
    if (tcpy_hold(call, &call->v[0].t) < 0 || tcpy_hold(call, &call->v[1].t) < 0) return NULL;
    TCPY_COMPUTE(call, status, tc_backward(call->v[0].t, call->v[1].t, call->v[2].b, &err));
    tcpy_drain_releases();
    if (status != TC_OK) return tcpy_raise(&err);
    Py_RETURN_NONE;
}

#define METHOD(name, spec, doc)                                                                                                            \
    {                                                                                                                                      \
#name, spec, run_##name, doc, TCPY_METHOD_ONLY                                                                                     \
    }

const tcpy_op tcpy_ops_view[] = {
    METHOD(chunk, "self:t chunks:i dim:i=0", "A tuple of at most `chunks` equal slices."),
    METHOD(split, "self:t split_size:o dim:i=0", "A tuple of slices of a size, or of the sizes given."),
    METHOD(unbind, "self:t dim:i=0", "A tuple of the slices along an axis, without that axis."),
    METHOD(is_contiguous, "self:t", "Whether the memory is in C order without gaps."),
    METHOD(
        to,
        "self:t target:o=None second:o=None third:o=None fourth:o=None | dtype:o=None device:o=None non_blocking:b=False copy:b=False "
        "memory_format:c=None",
        "In another dtype, on another device, or both: to(dtype), to(device), to(device, dtype), to(other), each followed by non_blocking "
        "(without effect) and copy. The Tensor itself where nothing changes, unless copy is set."),
    METHOD(size, "self:t dim:i?=None", "The shape as a tuple, or one length."),
    METHOD(dim, "self:t", "How many axes."),
    METHOD(numel, "self:t", "How many elements."),
    {"nelement", "self:t", run_numel, "How many elements.", TCPY_METHOD_ONLY},
    METHOD(data_ptr, "self:t", "Address of the first element."),
    METHOD(stride, "self:t dim:i?=None", "Steps along the axes in elements, a tuple, or one of them."),
    METHOD(numpy, "self:t", "A detached, read-only ndarray over the same memory."),
    METHOD(item, "self:t", "The one element as a Python number."),
    METHOD(tolist, "self:t", "Nested lists of Python numbers."),
    METHOD(backward, "self:t gradient:t?=None retain_graph:b=False create_graph:b=False inputs:o=None",
           "Brings gradients to the leaves this Tensor was computed from, or to the Tensors `inputs` alone."),
    {NULL, NULL, NULL, NULL, 0},
};
