/* ops_dlpack.c: shares memory with other array libraries without a copy (DLPack). */
#include "tensor_slots.h"

#include <stdlib.h>
#include <string.h>

#include "dlpack.h"

static const struct {
    uint8_t kind, bits;
} element_types[TC_DTYPE_COUNT] = {
    [TC_FLOAT32] = {DLPACK_FLOAT, 32},   [TC_FLOAT64] = {DLPACK_FLOAT, 64}, [TC_FLOAT16] = {DLPACK_FLOAT, 16},
    [TC_BFLOAT16] = {DLPACK_BFLOAT, 16}, [TC_INT64] = {DLPACK_INT, 64},     [TC_INT32] = {DLPACK_INT, 32},
    [TC_UINT8] = {DLPACK_UINT, 8},       [TC_BOOL] = {DLPACK_BOOL, 8}};

/* ---- giving ----------------------------------------------------------------------------------------------------------------- */

/* One block: the structure, and the shape and strides it points to. The alias keeps the memory. */
typedef struct loan {
    dlpack_versioned versioned;
    dlpack_managed managed;
    tc_tensor *tensor;
    void *stream; /* of the borrower, on a GPU; NULL: not known */
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
} loan;

static void loan_free(loan *self)
{
    tc_tensor_release(self->tensor);
    free(self);
}

/* Called by the borrower, on any thread, with or without the GIL. Its work may still be on its way. */
static void loan_end(loan *self)
{
    if (!tc_tensor_on_cpu(self->tensor)) tc_cuda_take_back(self->tensor, self->stream);
    loan_free(self);
}

static void delete_managed(dlpack_managed *self) { loan_end(self->context); }
static void delete_versioned(dlpack_versioned *self) { loan_end(self->context); }

static loan *lend(tc_tensor *tensor, bool copied, void *stream)
{
    loan *self = calloc(1, sizeof *self);
    tc_error err;
    if (!self) {
        PyErr_NoMemory();
        return NULL;
    }
    if (tc_tensor_detach(&self->tensor, tensor, &err) != TC_OK) {
        free(self);
        tcpy_raise(&err);
        return NULL;
    }
    memcpy(self->shape, tensor->shape, sizeof(int64_t) * (size_t)tensor->ndim);
    memcpy(self->strides, tensor->strides, sizeof(int64_t) * (size_t)tensor->ndim);
    const tc_device device = tensor->storage->device;
    const dlpack_tensor described = {.data = tensor->data,
                                     .device_kind = device.type == TC_CPU ? DLPACK_CPU : DLPACK_CUDA,
                                     .device_index = device.index,
                                     .ndim = tensor->ndim,
                                     .dtype_kind = element_types[tensor->dtype].kind,
                                     .dtype_bits = element_types[tensor->dtype].bits,
                                     .dtype_lanes = 1,
                                     .shape = self->shape,
                                     .strides = self->strides};
    self->stream = stream;
    const uint64_t flags = (tensor->storage->writable ? 0 : DLPACK_READ_ONLY) | (copied ? DLPACK_IS_COPIED : 0);
    self->managed = (dlpack_managed){described, self, delete_managed};
    self->versioned = (dlpack_versioned){DLPACK_MAJOR, DLPACK_MINOR, self, delete_versioned, flags, described};
    if (tensor->storage->writable) atomic_store(&tensor->storage->shared, true); /* the borrower may write */
    return self;
}

/* A capsule that nobody took frees its content; one that was taken has another name. */
static void end_managed_capsule(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor")) return;
    dlpack_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    loan_free(managed->context);
}

static void end_versioned_capsule(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return;
    dlpack_versioned *versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    loan_free(versioned->context);
}

static PyObject *capsule_of(tc_tensor *tensor, bool versioned, bool copied, void *stream)
{
    if (!versioned && !tensor->storage->writable) {
        PyErr_SetString(
            PyExc_BufferError,
            "this Tensor shares read-only memory, which DLPack before version 1 cannot say: pass max_version=(1, 0), or use clone()");
        return NULL;
    }
    loan *self = lend(tensor, copied, stream);
    if (!self) return NULL;
    PyObject *capsule = versioned ? PyCapsule_New(&self->versioned, "dltensor_versioned", end_versioned_capsule)
                                  : PyCapsule_New(&self->managed, "dltensor", end_managed_capsule);
    if (!capsule) loan_free(self);
    return capsule;
}

/* Two ints, from a tuple. 0, or -1 with an exception set. */
static int read_pair(const char *name, PyObject *pair, int *first, int *second)
{
    if (PyTuple_Check(pair)) return PyArg_ParseTuple(pair, "ii", first, second) ? 0 : -1;
    PyErr_Format(PyExc_TypeError, "%s must be a tuple of two ints, got %.200s", name, Py_TYPE(pair)->tp_name);
    return -1;
}

/* The device that the caller asks for must be the Tensor's own. */
static int check_device(const tc_tensor *tensor, PyObject *device)
{
    int kind, index;
    if (!device || device == Py_None) return 0;
    if (read_pair("dl_device", device, &kind, &index) < 0) return -1;
    const tc_device own = tensor->storage->device;
    if (kind == (own.type == TC_CPU ? DLPACK_CPU : DLPACK_CUDA) && index == own.index) return 0;
    PyErr_SetString(PyExc_BufferError, "the Tensor is on another device than dl_device; move it first with .to()");
    return -1;
}

/* The stream that must run after all work on the Tensor, numbered as in the specification: None or 1 is CUDA's legacy default stream, 2
 * that of the calling thread, others are addresses; -1: the caller synchronises. */
static int order_for_consumer(void **out, const tc_tensor *tensor, PyObject *stream)
{
    tc_error err;
    long long number = 1;
    *out = NULL;
    if (stream && stream != Py_None) number = PyLong_AsLongLong(stream);
    if (number == -1) return PyErr_Occurred() ? -1 : 0;
    if (number == 0 || number < -1) {
        PyErr_Format(PyExc_ValueError, "stream %lld says nothing for CUDA; expected None, -1, 1, 2 or the address of a stream", number);
        return -1;
    }
    *out = (void *)(uintptr_t)number;
    if (tc_cuda_hand_over(tensor, *out, &err) == TC_OK) return 0;
    tcpy_raise(&err);
    return -1;
}

/* PyTorch ends the process when it is given a negative stride. */
static bool is_reversed(const tc_tensor *tensor)
{
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->strides[i] < 0 && tensor->shape[i] > 1) return true;
    return false;
}

PyObject *tcpy_tensor_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = NULL, *max_version = NULL, *device = NULL, *copy = NULL;
    tc_tensor *tensor = tcpy_tensor_of(object), *source = NULL;
    int major = 0, minor = 0;
    tc_error err;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &max_version, &device, &copy)) return NULL;
    if (max_version && max_version != Py_None && read_pair("max_version", max_version, &major, &minor) < 0) return NULL;
    if (check_device(tensor, device) < 0) return NULL;
    if (tc_tensor_on_cpu(tensor) && stream && stream != Py_None) {
        PyErr_SetString(PyExc_BufferError, "a Tensor on the CPU has no stream; pass stream=None");
        return NULL;
    }
    if (tc_tensor_requires_grad(tensor)) {
        PyErr_SetString(PyExc_BufferError, "this Tensor requires a gradient, which would be lost; use detach()");
        return NULL;
    }
    if (tcpy_show_numbers("__dlpack__", object) < 0) return NULL;
    const int wants_copy = copy && copy != Py_None ? PyObject_IsTrue(copy) : 0;
    if (wants_copy < 0) return NULL;
    const bool copies = wants_copy || is_reversed(tensor);
    tc_status status = TC_OK;
    if (copies && copy == Py_False) {
        PyErr_SetString(PyExc_BufferError, "this Tensor has a negative stride, which DLPack's consumers do not take; copy=None copies it");
        return NULL;
    }
    if (copies)
        status = tc_clone(&source, tensor, &err);
    else
        source = tc_tensor_retain(tensor);
    if (status != TC_OK) return tcpy_raise(&err);
    void *address = NULL;
    const bool ordered = tc_tensor_on_cpu(source) || order_for_consumer(&address, source, stream) == 0;
    PyObject *capsule = ordered ? capsule_of(source, major >= 1, copies, address) : NULL;
    tc_tensor_release(source);
    return capsule;
}

PyObject *tcpy_tensor_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)unused;
    const tc_device device = tcpy_tensor_of(self)->storage->device;
    return Py_BuildValue("(ii)", device.type == TC_CPU ? DLPACK_CPU : DLPACK_CUDA, device.index);
}

/* ---- taking --------------------------------------------------------------------------------------------------------------------- */

static int dtype_of(const dlpack_tensor *given, tc_dtype *dtype)
{
    for (int i = 0; i < TC_DTYPE_COUNT; i++)
        if (given->dtype_kind == element_types[i].kind && given->dtype_bits == element_types[i].bits && given->dtype_lanes == 1)
            return *dtype = (tc_dtype)i, 0;
    PyErr_Format(PyExc_TypeError,
                 "a DLPack element of kind %d, %d bits and %d lanes has no dtype here; expected float32, float64, float16, bfloat16, "
                 "int64, int32, uint8 or bool",
                 given->dtype_kind, given->dtype_bits, given->dtype_lanes);
    return -1;
}

static tc_tensor *borrow(const dlpack_tensor *given, bool writable, void (*release)(void *), void *context)
{
    int64_t strides[TC_MAX_DIMS], step = 1;
    tc_tensor *tensor = NULL;
    tc_dtype dtype;
    tc_error err;
    if (given->device_kind != DLPACK_CPU && given->device_kind != DLPACK_CUDA_HOST) {
        PyErr_SetString(PyExc_BufferError,
                        "from_dlpack takes CPU memory and this is another device's; copy the array to the CPU in its own library first, "
                        "then to a GPU with device=");
        return NULL;
    }
    if (given->ndim < 0 || given->ndim > TC_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "the array has %d axes; at most %d are supported", given->ndim, TC_MAX_DIMS);
        return NULL;
    }
    if (dtype_of(given, &dtype) < 0) return NULL;
    if (tc_check_lengths(given->ndim, given->shape, &err) != TC_OK) {
        tcpy_raise(&err);
        return NULL;
    }
    for (int i = given->ndim - 1; i >= 0; i--) {
        strides[i] = given->strides ? given->strides[i] : step;
        step *= given->shape[i];
    }
    if (tc_tensor_wrap(&tensor, (char *)given->data + given->byte_offset, given->ndim, given->shape, strides, dtype, writable, release,
                       context, &err) != TC_OK)
        tcpy_raise(&err);
    return tensor;
}

static void delete_borrowed_managed(void *context) { ((dlpack_managed *)context)->deleter(context); }
static void delete_borrowed_versioned(void *context) { ((dlpack_versioned *)context)->deleter(context); }

/* A producer's deleter may take the GIL: it is called with it. */
static void give_back_managed(void *context)
{
    if (((dlpack_managed *)context)->deleter) tcpy_release_with_gil(delete_borrowed_managed, context);
}

static void give_back_versioned(void *context)
{
    if (((dlpack_versioned *)context)->deleter) tcpy_release_with_gil(delete_borrowed_versioned, context);
}

/* The capsule remains the producer's unless everything succeeds. */
static PyObject *run_from_capsule(tcpy_call *call)
{
    PyObject *capsule = call->v[0].o;
    tc_tensor *tensor = NULL;
    call->any_tensor = true;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dlpack_versioned *versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (versioned->major != DLPACK_MAJOR)
            return PyErr_Format(PyExc_BufferError, "the array comes in version %u of DLPack; version %d is understood", versioned->major,
                                DLPACK_MAJOR);
        tensor = borrow(&versioned->tensor, !(versioned->flags & DLPACK_READ_ONLY), give_back_versioned, versioned);
        if (tensor) PyCapsule_SetName(capsule, "used_dltensor_versioned");
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        dlpack_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
        tensor = borrow(&managed->tensor, true, give_back_managed, managed);
        if (tensor) PyCapsule_SetName(capsule, "used_dltensor");
    } else {
        return PyErr_Format(PyExc_ValueError, "from_dlpack needs a DLPack capsule that nobody has taken yet, or an object with __dlpack__");
    }
    if (!tensor) return NULL;
    const tc_error none = {0};
    return tcpy_result1(call, TC_OK, &none, tensor);
}

const tcpy_op tcpy_ops_dlpack[] = {
    {"from_dlpack_capsule", "capsule:o", run_from_capsule, "A Tensor over the memory of a DLPack capsule, which it takes.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
