/* ops_view.c: views, casts, copies and what a Tensor tells about itself, as Python sees them. */
#include "tensor_slots.h"

#include <string.h>

#include "../core/copy.h"
#include "../core/status.h"
#include "../core/layout.h"
#include "../ops/operands.h"
#include "../ops/view.h"

#define RUN_VIEW(name, expression)                                                                                                         \
    static PyObject *run_##name(tcpy_call *call)                                                                                           \
    {                                                                                                                                      \
        const tcpy_value *v = call->v;                                                                                                     \
        tc_tensor *x = v[0].t, *y = NULL;                                                                                                  \
        tc_error err;                                                                                                                      \
        const tc_status status = (expression);                                                                                             \
        return tcpy_result1(call, status, &err, y);                                                                                        \
    }

/* ---- views -------------------------------------------------------------------------------------------------------------- */

RUN_VIEW(reshape, tc_reshape(&y, x, v[1].ints->count, v[1].ints->values, true, &err))
RUN_VIEW(view, tc_reshape(&y, x, v[1].ints->count, v[1].ints->values, false, &err))
RUN_VIEW(squeeze, tc_squeeze(&y, x, v[1].ints->count, v[1].ints->values, &err))
RUN_VIEW(unsqueeze, tc_unsqueeze(&y, x, v[1].i, &err))
RUN_VIEW(permute, tc_permute(&y, x, v[1].ints->count, v[1].ints->values, &err))
RUN_VIEW(transpose, tc_transpose(&y, x, v[1].i, v[2].i, &err))
RUN_VIEW(expand, tc_expand(&y, x, v[1].ints->count, v[1].ints->values, &err))
RUN_VIEW(flip, tc_flip(&y, x, v[1].ints->count, v[1].ints->values, &err))
RUN_VIEW(unfold, tc_unfold(&y, x, v[1].i, v[2].i, v[3].i, &err))

static PyObject *run_flatten(tcpy_call *call)
{
    tc_tensor *x = call->v[0].t, *y = NULL;
    int64_t shape[TC_MAX_DIMS + 1];
    int first, last, ndim = 0;
    tc_error err;
    tc_status status = tc_normalize_axis(&first, call->v[1].i, x->ndim, "start_dim", &err);
    if (status == TC_OK) status = tc_normalize_axis(&last, call->v[2].i, x->ndim, "end_dim", &err);
    if (status == TC_OK && first > last) status = tc_fail(&err, TC_ERROR_VALUE, "start_dim %d comes after end_dim %d", first, last);
    if (status == TC_OK) {
        for (int i = 0; i < first; i++) shape[ndim++] = x->shape[i];
        shape[ndim] = 1;
        for (int i = first; i <= last && i < x->ndim; i++) shape[ndim] *= x->shape[i];
        ndim++;
        for (int i = last + 1; i < x->ndim; i++) shape[ndim++] = x->shape[i];
        status = tc_reshape(&y, x, ndim, shape, true, &err);
    }
    return tcpy_result1(call, status, &err, y);
}

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

/* Pieces of `size` along the axis, the last one shorter. */
static PyObject *even_slices(tcpy_call *call, int axis, int64_t size)
{
    const int64_t length = call->v[0].t->shape[axis];
    const Py_ssize_t count = length ? (Py_ssize_t)((length - 1) / size + 1) : 1;
    int64_t *lengths = PyMem_Malloc(sizeof *lengths * (size_t)count);
    if (!lengths) return PyErr_NoMemory();
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
    const int64_t length = call->v[0].t->shape[axis], size = length ? (length - 1) / chunks + 1 : 1;
    return even_slices(call, axis, size);
}

/* sizes[i] of `length` in all, as Python ints. 0, or -1 with an exception set. */
static int read_sizes(int64_t *sizes, PyObject *const *items, Py_ssize_t count, int axis, int64_t length)
{
    int64_t left = length;
    bool good = true;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *index = PyNumber_Index(items[i]);
        if (!index) return -1;
        sizes[i] = PyLong_AsLongLong(index);
        Py_DECREF(index);
        if (sizes[i] == -1 && PyErr_Occurred()) return -1;
        good = good && sizes[i] >= 0 && sizes[i] <= left;
        if (good) left -= sizes[i];
    }
    if (good && left == 0) return 0;
    PyObject *list = PyList_New(0); /* for its text */
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
        return even_slices(call, axis, size);
    }
    PyObject *items = tcpy_items(given, "split_size must be an int or a sequence of ints");
    if (!items) return NULL;
    const Py_ssize_t count = PyTuple_GET_SIZE(items);
    int64_t *sizes = PyMem_Malloc(sizeof *sizes * (size_t)(count ? count : 1));
    PyObject *result = NULL;
    if (!sizes)
        PyErr_NoMemory();
    else if (read_sizes(sizes, PySequence_Fast_ITEMS(items), count, axis, call->v[0].t->shape[axis]) == 0)
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
    int64_t *ones = PyMem_Malloc(sizeof *ones * (size_t)(count ? count : 1));
    if (!ones) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) ones[i] = 1;
    PyObject *result = pieces(call, axis, count, ones, true);
    PyMem_Free(ones);
    return result;
}

static PyObject *run_narrow(tcpy_call *call)
{
    const int axis = split_axis(call, call->v[1].i);
    if (axis < 0) return NULL;
    tc_tensor *x = call->v[0].t, *y = NULL;
    tc_error err;
    const int64_t start = call->v[2].i < 0 ? call->v[2].i + x->shape[axis] : call->v[2].i, length = call->v[3].i;
    if (start < 0 || length < 0 || start > x->shape[axis] || length > x->shape[axis] - start)
        return PyErr_Format(PyExc_IndexError, "narrow from %lld by %lld is outside an axis of length %lld", (long long)start,
                            (long long)length, (long long)x->shape[axis]);
    const tc_status status = tc_slice(&y, x, axis, start, 1, length, &err);
    return tcpy_result1(call, status, &err, y);
}

/* ---- copies and casts ------------------------------------------------------------------------------------------------------- */

RUN_VIEW(contiguous, tc_contiguous(&y, x, &err))
RUN_VIEW(clone, tc_clone(&y, x, &err))
RUN_VIEW(detach, tc_tensor_detach(&y, x, &err))
RUN_VIEW(float, tc_cast(&y, x, TC_FLOAT32, &err))
RUN_VIEW(double, tc_cast(&y, x, TC_FLOAT64, &err))
RUN_VIEW(half, tc_cast(&y, x, TC_FLOAT16, &err))
RUN_VIEW(bfloat16, tc_cast(&y, x, TC_BFLOAT16, &err))
RUN_VIEW(long, tc_cast(&y, x, TC_INT64, &err))
RUN_VIEW(int, tc_cast(&y, x, TC_INT32, &err))
RUN_VIEW(bool, tc_cast(&y, x, TC_BOOL, &err))
RUN_VIEW(cpu, tc_to_device(&y, x, (tc_device){TC_CPU, 0}, &err))

static PyObject *run_cuda(tcpy_call *call)
{
    tc_tensor *y = NULL;
    tc_error err;
    const tc_status status = tc_to_device(&y, call->v[0].t, (tc_device){TC_CUDA, call->v[1].none ? 0 : (int)call->v[1].i}, &err);
    return tcpy_result1(call, status, &err, y);
}

static PyObject *to_both(tcpy_call *call, tc_dtype dtype, tc_device device)
{
    tc_tensor *cast = NULL, *moved = NULL;
    tc_error err;
    tc_status status = tc_cast(&cast, call->v[0].t, dtype, &err);
    if (status == TC_OK) status = tc_to_device(&moved, cast, device, &err);
    tc_tensor_release(cast);
    return tcpy_result1(call, status, &err, moved);
}

static PyObject *run_type_as(tcpy_call *call)
{
    const tc_tensor *other = call->v[1].t;
    return to_both(call, other->dtype, other->storage->device); /* PyTorch's types name a device, too */
}

/* to(dtype), to(device), to(device, dtype), to(other), and by keyword. */
static PyObject *run_to(tcpy_call *call)
{
    const tc_tensor *x = call->v[0].t;
    tc_dtype dtype = x->dtype;
    tc_device device = x->storage->device;
    for (int i = 1; i < 5; i++) {
        PyObject *object = call->v[i].o;
        if (!object || object == Py_None) continue;
        const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : NULL;
        const bool is_device = i == 4 || (i < 3 && text && (strcmp(text, "cpu") == 0 || strncmp(text, "cuda", 4) == 0));
        if (tcpy_is_tensor(object)) {
            dtype = ((tcpy_tensor *)object)->tensor->dtype;
            device = ((tcpy_tensor *)object)->tensor->storage->device;
        } else if (is_device ? tcpy_device_from_object(&device, object) < 0 : tcpy_dtype_from_object(&dtype, object) < 0) {
            if (text && i < 3 && PyErr_ExceptionMatches(PyExc_TypeError))
                PyErr_Format(
                    PyExc_ValueError,
                    "to('%s'): neither a dtype (float32, float64, float16, bfloat16, int64, int32, uint8, bool) nor a device (\"cpu\", "
                    "\"cuda\", \"cuda:<ordinal>\")",
                    text);
            return NULL;
        }
    }
    return to_both(call, dtype, device);
}

/* ---- in place -------------------------------------------------------------------------------------------------------------- */

static PyObject *self_after(tcpy_call *call, tc_status status, const tc_error *err)
{
    if (status != TC_OK) return tcpy_raise(err);
    return tcpy_wrap(tc_tensor_retain(call->v[0].t));
}

static PyObject *run_copy_(tcpy_call *call)
{
    tc_error err;
    const tc_status status = tc_assign(call->v[0].t, call->v[1].t, &err);
    return self_after(call, status, &err);
}

static PyObject *run_fill_(tcpy_call *call)
{
    tc_error err;
    tc_tensor *value = call->v[1].t;
    char text[TC_SHAPE_TEXT];
    if (value->numel != 1) return PyErr_Format(PyExc_ValueError, "fill_ takes one number; value has shape %s", tc_tensor_text(text, value));
    const tc_status status = tc_assign(call->v[0].t, value, &err);
    return self_after(call, status, &err);
}

static PyObject *run_zero_(tcpy_call *call)
{
    tc_error err;
    tc_tensor *zero = NULL;
    tc_status status = tc_tensor_full(&zero, 0, NULL, 0.0, TC_FLOAT32, (tc_device){TC_CPU, 0}, &err);
    if (status == TC_OK) status = tc_assign(call->v[0].t, zero, &err);
    tc_tensor_release(zero);
    return self_after(call, status, &err);
}

/* ---- what a Tensor tells about itself ------------------------------------------------------------------------------------------ */

/* What x has for each axis: all of it as a tuple, or that of the axis given. Without axes, 1 for the only one that can be named. */
static PyObject *per_axis(tcpy_call *call, const int64_t *values)
{
    const int ndim = call->v[0].t->ndim;
    int axis;
    tc_error err;
    if (call->v[1].none) return tcpy_int_tuple(ndim, values);
    if (tc_normalize_axis(&axis, call->v[1].i, ndim, "dim", &err) != TC_OK) return tcpy_raise(&err);
    return PyLong_FromLongLong(ndim ? values[axis] : 1);
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

static PyObject *run_requires_grad_(tcpy_call *call)
{
    tc_error err;
    const tc_status status = tc_tensor_set_requires_grad(call->v[0].t, call->v[1].b, &err);
    return self_after(call, status, &err);
}

static PyObject *run_backward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    call->keep_gil = false;
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
    METHOD(reshape, "self:t shape:I*",
           "The same elements under another shape; one length may be -1. A copy where the memory cannot be read so."),
    METHOD(view, "self:t shape:I*", "Like reshape, but never a copy: an error where one would be needed."),
    METHOD(squeeze, "self:t dim:I*", "Without the named axes of length 1, or without all of them."),
    METHOD(unsqueeze, "self:t dim:i", "With a new axis of length 1 before axis `dim`."),
    METHOD(permute, "self:t dims:I*", "The axes in another order."),
    METHOD(transpose, "self:t dim0:i dim1:i", "Two axes exchanged."),
    {"swapaxes", "self:t axis1:i axis2:i", run_transpose, "Two axes exchanged.", TCPY_METHOD_ONLY},
    METHOD(expand, "self:t size:I*", "Axes of length 1 repeated without a copy; -1 keeps a length."),
    METHOD(flip, "self:t dims:I*", "The named axes in reverse order."),
    METHOD(unfold, "self:t dimension:i size:i step:i", "Windows of `size` every `step` along an axis; a new last axis runs over a window."),
    METHOD(flatten, "self:t start_dim:i=0 end_dim:i=-1", "Axes joined into one."),
    METHOD(chunk, "self:t chunks:i dim:i=0", "A tuple of at most `chunks` equal slices."),
    METHOD(split, "self:t split_size:o dim:i=0", "A tuple of slices of a size, or of the sizes given."),
    METHOD(unbind, "self:t dim:i=0", "A tuple of the slices along an axis, without that axis."),
    METHOD(narrow, "self:t dim:i start:i length:i", "A slice of one axis."),
    METHOD(contiguous, "self:t", "Itself when its memory is in C order without gaps, otherwise a copy that is."),
    METHOD(is_contiguous, "self:t", "Whether the memory is in C order without gaps."),
    METHOD(clone, "self:t", "A recorded copy."),
    METHOD(detach, "self:t", "The same memory with no history."),
    METHOD(float, "self:t", "As float32."),
    METHOD(double, "self:t", "As float64."),
    METHOD(half, "self:t", "As float16."),
    METHOD(bfloat16, "self:t", "As bfloat16."),
    METHOD(long, "self:t", "As int64."),
    METHOD(int, "self:t", "As int32."),
    METHOD(bool, "self:t", "As bool: True where not zero."),
    METHOD(type_as, "self:t other:t", "In the dtype and on the device of another Tensor, as in PyTorch."),
    METHOD(cpu, "self:t", "On the CPU."),
    METHOD(cuda, "self:t device:i?=None", "On a GPU."),
    METHOD(to, "self:t target:o=None dtype_or_none:o=None | dtype:o=None device:o=None", "In another dtype, on another device, or both."),
    METHOD(copy_, "self:t src:t", "Overwritten with other values, broadcast and cast."),
    METHOD(zero_, "self:t", "Overwritten with zeros."),
    METHOD(fill_, "self:t value:t", "Overwritten with one value."),
    METHOD(size, "self:t dim:i?=None", "The shape as a tuple, or one length."),
    METHOD(dim, "self:t", "How many axes."),
    METHOD(numel, "self:t", "How many elements."),
    {"nelement", "self:t", run_numel, "How many elements.", TCPY_METHOD_ONLY},
    METHOD(data_ptr, "self:t", "Address of the first element."),
    METHOD(stride, "self:t dim:i?=None", "Steps along the axes in elements, a tuple, or one of them."),
    METHOD(numpy, "self:t", "A detached, read-only ndarray over the same memory."),
    METHOD(item, "self:t", "The one element as a Python number."),
    METHOD(tolist, "self:t", "Nested lists of Python numbers."),
    METHOD(requires_grad_, "self:t requires_grad:b=True", "Sets requires_grad; returns itself."),
    METHOD(backward, "self:t gradient:t?=None retain_graph:b=False", "Brings gradients to the leaves this Tensor was computed from."),
    {NULL, NULL, NULL, NULL, 0},
};
