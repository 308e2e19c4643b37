/* ops_cuda.c: GPUs in Python. */
#include "binding.h"

/* The ordinal of a device that must be a GPU; None is cuda:0. */
static int read_gpu(PyObject *object, int *index)
{
    tc_device device = {TC_CUDA, 0};
    if (object != Py_None && tcpy_device_from_object(&device, object) < 0) return -1;
    if (device.type != TC_CUDA) {
        PyErr_Format(PyExc_ValueError, "device %R is not a GPU; expected \"cuda\" or \"cuda:<ordinal>\"", object);
        return -1;
    }
    *index = device.index;
    return 0;
}

static PyObject *run_device_count(tcpy_call *call)
{
    tc_error err;
    int count;
    tc_status status;
    TCPY_COMPUTE(call, status, tc_cuda_device_count(&count, &err));
    return status == TC_OK ? PyLong_FromLong(count) : tcpy_raise(&err);
}

static PyObject *run_synchronize(tcpy_call *call)
{
    tc_error err;
    int index;
    tc_status status;
    if (read_gpu(call->v[0].o, &index) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS status = tc_cuda_synchronize(index, &err);
    Py_END_ALLOW_THREADS if (status != TC_OK) return tcpy_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *run_empty_cache(tcpy_call *call)
{
    tc_error err;
    int index;
    tc_status status;
    if (read_gpu(call->v[0].o, &index) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS status = tc_cuda_empty_cache(index, &err);
    Py_END_ALLOW_THREADS if (status != TC_OK) return tcpy_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *run_memory_stats(tcpy_call *call)
{
    tc_error err;
    int index;
    tc_cuda_memory_stats s;
    if (read_gpu(call->v[0].o, &index) < 0) return NULL;
    if (tc_cuda_memory_statistics(&s, index, &err) != TC_OK) return tcpy_raise(&err);
    return Py_BuildValue("{s:n,s:n,s:n,s:n,s:n,s:K}", "in_use", (Py_ssize_t)s.in_use, "peak_in_use", (Py_ssize_t)s.peak_in_use, "cached",
                         (Py_ssize_t)s.cached, "free", (Py_ssize_t)s.unused, "total", (Py_ssize_t)s.total, "device_calls",
                         (unsigned long long)s.device_calls);
}

/* Streams are numbers in Python: their addresses; 0: the thread's own. */
static PyObject *run_new_stream(tcpy_call *call)
{
    tc_error err;
    int index;
    void *stream;
    if (read_gpu(call->v[0].o, &index) < 0) return NULL;
    return tc_cuda_new_stream(&stream, index, &err) == TC_OK ? PyLong_FromVoidPtr(stream) : tcpy_raise(&err);
}

static PyObject *run_set_stream(tcpy_call *call)
{
    tc_error err;
    void *stream = PyLong_AsVoidPtr(call->v[0].o), *before;
    if (!stream && PyErr_Occurred()) return NULL;
    return tc_cuda_set_stream(&before, stream, &err) == TC_OK ? PyLong_FromVoidPtr(before) : tcpy_raise(&err);
}

static PyObject *run_end_stream(tcpy_call *call)
{
    void *stream = PyLong_AsVoidPtr(call->v[0].o);
    if (!stream && PyErr_Occurred()) return NULL;
    tc_cuda_end_stream(stream);
    Py_RETURN_NONE;
}

const tcpy_op tcpy_ops_cuda[] = {
    {"cuda_device_count", "", run_device_count, "How many GPUs there are; an error that says why when CUDA is not available.", 0},
    {"cuda_synchronize", "device:o=None", run_synchronize, "Waits for all work of a GPU.", 0},
    {"cuda_empty_cache", "device:o=None", run_empty_cache, "Gives memory that is kept for later back to the driver.", 0},
    {"cuda_memory_stats", "device:o=None", run_memory_stats, "A dict of bytes.", 0},
    {"cuda_new_stream", "device:o=None", run_new_stream, "The address of a new stream.", 0},
    {"cuda_set_stream", "stream:o", run_set_stream, "The stream of this thread's work from now on, 0 its own; gives the one before.", 0},
    {"cuda_end_stream", "stream:o", run_end_stream, "Gives a new stream back.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
