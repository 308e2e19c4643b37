/* trace.c: the tracer, a Python function that sees the calls of ops on one thread. Without one it costs a comparison per call. */
#include "binding.h"

static unsigned long traced_thread;
static bool is_tracing; /* the tracer is running: its own calls are not reported */

PyObject *tcpy_show_call(const char *name, PyObject *result, PyObject *const *args, Py_ssize_t count, PyObject *kwnames)
{
    if (!result || is_tracing || PyThread_get_thread_ident() != traced_thread) return result;
    const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    PyObject *tracer = Py_NewRef(tcpy.tracer), *seen = NULL;
    PyObject *given = PyTuple_New(count), *named = PyDict_New();
    bool good = given && named;
    for (Py_ssize_t i = 0; good && i < count; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    for (Py_ssize_t k = 0; good && k < keywords; k++) good = PyDict_SetItem(named, PyTuple_GET_ITEM(kwnames, k), args[count + k]) == 0;
    is_tracing = true;
    if (good) seen = PyObject_CallFunction(tracer, "sOOO", name, given, named, result);
    is_tracing = false;
    Py_XDECREF(given);
    Py_XDECREF(named);
    Py_DECREF(tracer);
    if (!seen) Py_DECREF(result);
    Py_XDECREF(seen);
    return seen ? result : NULL;
}

int tcpy_show_numbers_taken(const char *name, PyObject *tensor)
{
    PyObject *shown = tcpy_show_call(name, Py_NewRef(Py_None), &tensor, 1, NULL);
    Py_XDECREF(shown);
    return shown ? 0 : -1;
}

PyObject *tcpy_is_traced(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(tcpy.tracer && PyThread_get_thread_ident() == traced_thread);
}

/* Returns the tracer until now, or None. */
PyObject *tcpy_set_tracer(PyObject *module, PyObject *tracer)
{
    (void)module;
    PyObject *before = tcpy.tracer ? tcpy.tracer : Py_NewRef(Py_None);
    tcpy.tracer = tracer == Py_None ? NULL : Py_NewRef(tracer);
    traced_thread = PyThread_get_thread_ident();
    return before;
}
