/* one_kind.c: the parameters of an optimizer as lists that one call of a kernel takes, where all are of one kind. In a small model, to look
 * at each of them from Python takes longer than the step itself. */
#include "binding.h"

#include "tensor_slots.h"

typedef struct lists {
    const tc_tensor *first; /* all others are like it */
    PyObject *parameters, *gradients;
    PyObject *states, *values;             /* dicts, and a tuple with a list of their values for each of `names` */
    PyObject *state, *names, *counts_from; /* borrowed; NULL: no states */
    long long steps;
} lists;

static bool fits(const lists *all, const tc_tensor *x)
{
    return x->contiguous && x->dtype == all->first->dtype && tc_same_device(x->storage->device, all->first->storage->device);
}

/* Of a parameter: its entries that every optimizer has, and the float32 copy of a half. */
static PyObject *step, *master;

/* 1: its dict has all that a step reads, and it has taken as many steps as the others; otherwise 0. -1: an exception is set. */
static int add_state(lists *all, PyObject *own)
{
    PyObject *taken = PyDict_GetItemWithError(own, step);
    const int counts = PyDict_Contains(own, all->counts_from), has_master = PyDict_Contains(own, master);
    if (!taken || !PyLong_Check(taken) || counts < 0 || has_master) return PyErr_Occurred() ? -1 : 0;
    const long long steps = counts ? PyLong_AsLongLong(taken) : 0;
    if (steps == -1 && PyErr_Occurred()) return -1;
    if (PyList_GET_SIZE(all->states) == 0) all->steps = steps;
    if (steps != all->steps) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all->names); i++) {
        PyObject *value = PyDict_GetItemWithError(own, PyTuple_GET_ITEM(all->names, i));
        if (!value || !tcpy_is_tensor(value) || !fits(all, tcpy_tensor_of(value))) return PyErr_Occurred() ? -1 : 0;
        if (PyList_Append(PyTuple_GET_ITEM(all->values, i), value) < 0) return -1;
    }
    return PyList_Append(all->states, own) < 0 ? -1 : 1;
}

static int add_state_of(lists *all, PyObject *parameter)
{
    PyObject *own = PyDict_GetItemWithError(all->state, parameter);
    if (!own || !PyDict_Check(own)) return PyErr_Occurred() ? -1 : 0;
    Py_INCREF(own);
    const int added = add_state(all, own);
    Py_DECREF(own);
    return added;
}

/* 1: the parameter has been added, or has no gradient. 0: it is of another kind. -1: an exception is set. */
static int add(lists *all, PyObject *parameter)
{
    if (!tcpy_is_tensor(parameter)) return 0;
    tc_tensor *found = tc_tensor_take_grad(tcpy_tensor_of(parameter));
    if (!found) return 1;
    PyObject *gradient = tcpy_wrap(found);
    if (!gradient) return -1;
    const tc_dtype dtype = tcpy_tensor_of(parameter)->dtype;
    if (!all->first) all->first = all->state ? tcpy_tensor_of(parameter) : found;
    const bool is_wide = dtype == TC_FLOAT32 || dtype == TC_FLOAT64;
    int added = fits(all, found) && (!all->state || (is_wide && fits(all, tcpy_tensor_of(parameter))));
    if (added && all->state) added = add_state_of(all, parameter);
    if (added > 0 && (PyList_Append(all->gradients, gradient) < 0 || PyList_Append(all->parameters, parameter) < 0)) added = -1;
    Py_DECREF(gradient);
    return added;
}

/* The same of all in a list; 0 also if there is nothing to do. */
static int add_all(lists *all, PyObject *parameters)
{
    int added = (all->parameters = PyList_New(0)) && (all->gradients = PyList_New(0)) ? 1 : -1;
    for (Py_ssize_t i = 0; added > 0 && i < PyList_GET_SIZE(parameters); i++) {
        PyObject *parameter = Py_NewRef(PyList_GET_ITEM(parameters, i));
        added = add(all, parameter);
        Py_DECREF(parameter);
    }
    return added > 0 && PyList_GET_SIZE(all->gradients) == 0 ? 0 : added;
}

static PyObject *end(lists *all, int added, PyObject *result)
{
    Py_XDECREF(all->parameters);
    Py_XDECREF(all->gradients);
    Py_XDECREF(all->states);
    Py_XDECREF(all->values);
    return added == 0 ? Py_NewRef(Py_None) : result;
}

PyObject *tcpy_gradients_of_one_kind(PyObject *module, PyObject *parameters)
{
    lists all = {0};
    (void)module;
    if (!PyList_Check(parameters)) return PyErr_Format(PyExc_TypeError, "parameters must be a list, not %s", Py_TYPE(parameters)->tp_name);
    const int added = add_all(&all, parameters);
    return end(&all, added, added > 0 ? Py_NewRef(all.gradients) : NULL);
}

PyObject *tcpy_step_of_one_kind(PyObject *module, PyObject *args)
{
    lists all = {0};
    PyObject *parameters;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!O!U:step_of_one_kind", &PyList_Type, &parameters, &PyDict_Type, &all.state, &PyTuple_Type, &all.names,
                          &all.counts_from))
        return NULL;
    if (!step && (!(step = PyUnicode_InternFromString("step")) || !(master = PyUnicode_InternFromString("master")))) return NULL;
    const Py_ssize_t count = PyTuple_GET_SIZE(all.names);
    bool made = (all.states = PyList_New(0)) && (all.values = PyTuple_New(count));
    for (Py_ssize_t i = 0; made && i < count; i++) {
        PyObject *list = PyList_New(0);
        made = list != NULL;
        PyTuple_SET_ITEM(all.values, i, list);
    }
    const int added = made ? add_all(&all, parameters) : -1;
    return end(&all, added, added > 0 ? Py_BuildValue("OOOOL", all.parameters, all.gradients, all.states, all.values, all.steps) : NULL);
}
