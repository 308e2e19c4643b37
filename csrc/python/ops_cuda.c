/* ops_cuda.c: GPUs in Python. */
#include "../core/graph.h"
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

static PyObject *done(tc_status status, const tc_error *err)
{
    if (status != TC_OK) return tcpy_raise(err);
    Py_RETURN_NONE;
}

static PyObject *run_device_count(tcpy_call *call)
{
    tc_error err;
    int count;
    tc_status status;
    TCPY_COMPUTE(call, status, tc_cuda_device_count(&count, &err));
    return status == TC_OK ? PyLong_FromLong(count) : tcpy_raise(&err);
}

static PyObject *run_describe(tcpy_call *call)
{
    tc_error err;
    int index, capability, cores;
    if (read_gpu(call->v[0].o, &index) < 0) return NULL;
    return tc_cuda_describe(&capability, &cores, index, &err) == TC_OK ? Py_BuildValue("ii", capability, cores) : tcpy_raise(&err);
}

static PyObject *run_code_for(tcpy_call *call)
{
    (void)call;
    tc_error err;
    const int *found;
    if (tc_cuda_code_for(&found, &err) != TC_OK) return tcpy_raise(&err);
    PyObject *list = PyList_New(0);
    for (; list && *found; found++) {
        PyObject *capability = PyLong_FromLong(*found);
        if (!capability || PyList_Append(list, capability) < 0) Py_CLEAR(list);
        Py_XDECREF(capability);
    }
    return list;
}

/* Calls a function that may wait for the GPU which a call names. */
static PyObject *wait_for_gpu(tcpy_call *call, tc_status (*function)(int index, tc_error *err))
{
    tc_error err;
    int index;
    tc_status status;
    if (read_gpu(call->v[0].o, &index) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS status = function(index, &err);
    Py_END_ALLOW_THREADS return done(status, &err);
}

static PyObject *run_synchronize(tcpy_call *call) { return wait_for_gpu(call, tc_cuda_synchronize); }
static PyObject *run_empty_cache(tcpy_call *call) { return wait_for_gpu(call, tc_cuda_empty_cache); }

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

/* ---- graphs -------------------------------------------------------------------------------------------------------------------- */

#define GRAPH "transformer_c.cuda_graph"

/* The generators that this thread's capture draws from, in the order of their first draws: a list, borrowed, or NULL. */
static _Thread_local PyObject *drawn_from;

static void free_graph(PyObject *capsule) { tc_cuda_graph_free(PyCapsule_GetPointer(capsule, GRAPH)); }
static tc_cuda_graph *graph_of(tcpy_call *call) { return PyCapsule_GetPointer(call->v[0].o, GRAPH); }

int tcpy_begin_draw(PyObject *generator, uint64_t seed, uint64_t call, uint64_t count)
{
    tc_error err;
    Py_ssize_t number = 0;
    while (number < PyList_GET_SIZE(drawn_from) && PyList_GET_ITEM(drawn_from, number) != generator) number++;
    if (number == PyList_GET_SIZE(drawn_from) && PyList_Append(drawn_from, generator) < 0) return -1;
    if (tc_cuda_begin_draw((int)number, seed, call, count, &err) == TC_OK) return 0;
    tcpy_raise(&err);
    return -1;
}

static PyObject *run_graph_begin(tcpy_call *call)
{
    tc_error err;
    int index;
    tc_cuda_graph *graph;
    PyObject *generators = call->v[1].o;
    if (read_gpu(call->v[0].o, &index) < 0) return NULL;
    if (!PyList_CheckExact(generators)) return PyErr_Format(PyExc_TypeError, "generators must be a list");
    if (tc_cuda_graph_begin(&graph, index, &err) != TC_OK) return tcpy_raise(&err);
    PyObject *capsule = PyCapsule_New(graph, GRAPH, free_graph);
    if (!capsule) {
        tc_error ignored;
        (void)!tc_cuda_graph_end(graph, &ignored);
        tc_cuda_graph_free(graph);
        return NULL;
    }
    for (int64_t i = 0; i < call->v[2].list.count; i++) {
        if (tc_cuda_graph_argument(graph, call->v[2].list.items[i], &err) == TC_OK) continue;
        Py_DECREF(capsule); /* ends the capture */
        return tcpy_raise(&err);
    }
    drawn_from = generators;
    return capsule;
}

static PyObject *run_graph_end(tcpy_call *call)
{
    tc_error err;
    tc_cuda_graph *graph = graph_of(call);
    if (!graph) return NULL;
    drawn_from = NULL;
    return done(tc_cuda_graph_end(graph, &err), &err);
}

static PyObject *with_graph(tcpy_call *call, tc_status (*function)(tc_cuda_graph *, tc_error *))
{
    tc_error err;
    tc_cuda_graph *graph = graph_of(call);
    return graph ? done(function(graph, &err), &err) : NULL;
}

static PyObject *run_graph_check(tcpy_call *call)
{
    tc_error err;
    tc_cuda_graph *graph = graph_of(call);
    return graph ? done(tc_cuda_graph_check(graph, &err), &err) : NULL;
}

static PyObject *run_graph_collect(tcpy_call *call) { return with_graph(call, tc_cuda_graph_collect); }
static PyObject *run_graph_collected(tcpy_call *call) { return with_graph(call, tc_cuda_graph_collected); }
static PyObject *run_graph_give_up(tcpy_call *call) { return with_graph(call, tc_cuda_graph_give_up); }

static PyObject *run_graph_use(tcpy_call *call)
{
    static const char *const uses[] = {[TC_CUDA_UNUSED] = "", [TC_CUDA_READ] = "read", [TC_CUDA_WRITTEN] = "written"};
    const bool is_own = call->v[0].o == Py_None; /* the capture's, in which this is called */
    const tc_cuda_graph *graph = is_own ? NULL : graph_of(call);
    if (!is_own && !graph) return NULL;
    if (is_own && !tc_cuda_is_capturing()) return PyErr_Format(PyExc_RuntimeError, "this thread captures no graph");
    return PyUnicode_FromString(uses[tc_cuda_graph_use(graph, call->v[1].t)]);
}

static PyObject *run_graph_note(tcpy_call *call)
{
    for (int64_t i = 0; i < call->v[0].list.count; i++) tc_graph_note_leaf(call->v[0].list.items[i], false);
    Py_RETURN_NONE;
}

static PyObject *run_graph_draw(tcpy_call *call)
{
    tc_cuda_graph *graph = graph_of(call);
    PyObject *generators = call->v[1].o;
    if (!graph) return NULL;
    for (int i = 0; i < (int)PyList_GET_SIZE(generators); i++) {
        uint64_t seed, calls;
        tcpy_take_masks(PyList_GET_ITEM(generators, i), tc_cuda_graph_draws(graph, i), &seed, &calls);
        tc_cuda_graph_set_draw(graph, i, seed, calls);
    }
    Py_RETURN_NONE;
}

static PyObject *run_graph_undraw(tcpy_call *call)
{
    const tc_cuda_graph *graph = graph_of(call);
    PyObject *generators = call->v[1].o;
    if (!graph) return NULL;
    for (int i = 0; i < (int)PyList_GET_SIZE(generators); i++)
        tcpy_give_masks_back(PyList_GET_ITEM(generators, i), tc_cuda_graph_draws(graph, i), tc_cuda_graph_first_draw(graph, i));
    Py_RETURN_NONE;
}

static PyObject *run_graph_start(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_cuda_graph *graph = graph_of(call);
    if (!graph) return NULL;
    Py_BEGIN_ALLOW_THREADS status = tc_cuda_graph_start(graph, &err);
    Py_END_ALLOW_THREADS if (status == TC_OK) status = tc_cuda_graph_give_gradients(graph, &err);
    return done(status, &err);
}

static PyObject *run_is_capturing(tcpy_call *call)
{
    (void)call;
    return PyBool_FromLong(tc_cuda_is_capturing());
}

static PyObject *run_cuda(tcpy_call *call)
{
    tc_tensor *x = call->v[0].t, *y = NULL;
    tc_device device = {TC_CUDA, 0};
    tc_error err;
    tc_status status;
    if (read_gpu(call->v[1].o, &device.index) < 0 || tcpy_hold(call, &x) < 0) return NULL;
    TCPY_COMPUTE(call, status, tc_to_device(&y, x, device, &err));
    return tcpy_result1(call, status, &err, y);
}

const tcpy_op tcpy_ops_cuda[] = {
    {"cuda", "self:t device:o=None | non_blocking:b=False", run_cuda,
     "On a GPU: the first one, or that of a number or name. non_blocking has no effect.", TCPY_METHOD_ONLY},
    {"cuda_device_count", "", run_device_count, "How many GPUs there are; an error that says why when CUDA is not available.", 0},
    {"cuda_describe", "device:o=None", run_describe, "The compute capability of a GPU, 80 for 8.0, and its multiprocessors.", 0},
    {"cuda_code_for", "", run_code_for, "The compute capabilities that the CUDA library has code for.", 0},
    {"cuda_synchronize", "device:o=None", run_synchronize, "Waits for all work of a GPU.", 0},
    {"cuda_empty_cache", "device:o=None", run_empty_cache, "Gives memory that is kept for later back to the driver.", 0},
    {"cuda_memory_stats", "device:o=None", run_memory_stats, "A dict of bytes.", 0},
    {"cuda_new_stream", "device:o=None", run_new_stream, "The address of a new stream.", 0},
    {"cuda_set_stream", "stream:o", run_set_stream, "The stream of this thread's work from now on, 0 its own; gives the one before.", 0},
    {"cuda_end_stream", "stream:o", run_end_stream, "Gives a new stream back.", 0},
    {"cuda_is_capturing", "", run_is_capturing, "Whether this thread captures a graph.", 0},
    {"cuda_graph_begin", "device:o generators:o arguments:T", run_graph_begin,
     "Begins a capture of this thread, of work on arguments that each start brings anew; generators, a list, gets those drawn from.", 0},
    {"cuda_graph_end", "graph:o", run_graph_end, "Ends the capture.", 0},
    {"cuda_graph_check", "graph:o", run_graph_check, "Before a start: are the gradients as the graph needs them?", 0},
    {"cuda_graph_use", "graph:o tensor:t", run_graph_use,
     "What the work of a graph, or for None of this thread's capture, does with the memory of the Tensor: \"\", \"read\" or \"written\".",
     0},
    {"cuda_graph_note", "leaves:T", run_graph_note,
     "In a capture, whose work uses the leaves' gradients: a start needs them where they are.", 0},
    {"cuda_graph_collect", "graph:o", run_graph_collect, "From now on steps of optimizers give their numbers to the graph.", 0},
    {"cuda_graph_collected", "graph:o", run_graph_collected, "The end of this.", 0},
    {"cuda_graph_draw", "graph:o generators:o", run_graph_draw, "Before a start: takes the numbers of its dropout masks.", 0},
    {"cuda_graph_undraw", "graph:o generators:o", run_graph_undraw,
     "Where a start, or the capture, is not done: gives the numbers of its dropout masks back.", 0},
    {"cuda_graph_start", "graph:o", run_graph_start, "Does the work of the graph once more.", 0},
    {"cuda_graph_give_up", "graph:o", run_graph_give_up,
     "Where the work of a capture is never done: gives the leaves the gradients that it would have begun with.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
