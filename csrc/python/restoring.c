/* restoring.c: context managers that put back any state, and attributes; switches.h says why they are in C. */
#include "switches.h"

/* ---- while an interrupt waits ----------------------------------------------------------------------------------------------------- */

void tcpy_keep_first(PyObject *error[3])
{
    if (error[0])
        PyErr_Clear();
    else
        PyErr_Fetch(&error[0], &error[1], &error[2]);
}

void tcpy_insist(PyObject *function, PyObject *value, PyObject *error[3])
{
    for (int i = 0; i < TCPY_TRIES; i++) {
        PyObject *done = PyObject_CallOneArg(function, value);
        Py_XDECREF(done);
        if (done) return;
        tcpy_keep_first(error);
    }
}

/* ---- any other state ----------------------------------------------------------------------------------------------------------- */

typedef struct switched {
    PyObject_HEAD PyObject *set, *make, *end; /* end: NULL for None */
    PyObject *value, *before;                 /* while it is on; otherwise NULL */
} switched;

static PyObject *switched_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"set", "make", "end", NULL};
    PyObject *set, *make, *end = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:switched", names, &set, &make, &end)) return NULL;
    switched *self = (switched *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->set = Py_NewRef(set);
    self->make = Py_NewRef(make);
    self->end = end && end != Py_None ? Py_NewRef(end) : NULL;
    return (PyObject *)self;
}

static int switched_traverse(PyObject *object, visitproc visit, void *arg)
{
    switched *self = (switched *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->set);
    Py_VISIT(self->make);
    Py_VISIT(self->end);
    Py_VISIT(self->value);
    Py_VISIT(self->before);
    return 0;
}

static int switched_clear(PyObject *object)
{
    switched *self = (switched *)object;
    Py_CLEAR(self->set);
    Py_CLEAR(self->make);
    Py_CLEAR(self->end);
    Py_CLEAR(self->value);
    Py_CLEAR(self->before);
    return 0;
}

static PyObject *switched_enter(PyObject *object, PyObject *unused)
{
    switched *self = (switched *)object;
    (void)unused;
    if (self->value) return PyErr_Format(PyExc_RuntimeError, "it is on already: one object is entered once at a time");
    PyObject *value = PyObject_CallNoArgs(self->make);
    if (!value) return NULL;
    PyObject *before = PyObject_CallOneArg(self->set, value);
    if (before) {
        self->before = before;
        self->value = value;
        return Py_NewRef(value);
    }
    PyObject *error[3] = {NULL, NULL, NULL};
    PyErr_Fetch(&error[0], &error[1], &error[2]);
    if (self->end) tcpy_insist(self->end, value, error);
    Py_DECREF(value);
    PyErr_Restore(error[0], error[1], error[2]);
    return NULL;
}

static PyObject *switched_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    switched *self = (switched *)object;
    (void)args, (void)count;
    if (!self->value) return PyErr_Format(PyExc_RuntimeError, "it was left without having been entered");
    PyObject *error[3] = {NULL, NULL, NULL}, *value = self->value, *before = self->before;
    self->value = self->before = NULL;
    tcpy_insist(self->set, before, error);
    if (self->end) tcpy_insist(self->end, value, error);
    Py_DECREF(value);
    Py_DECREF(before);
    if (!error[0]) Py_RETURN_NONE;
    PyErr_Restore(error[0], error[1], error[2]);
    return NULL;
}

static void switched_finalize(PyObject *object)
{
    if (((switched *)object)->value) tcpy_leave_dropped(object, switched_exit);
}

static PyMethodDef switched_methods[] = {
    {"__enter__", switched_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nset(make()), the value."},
    {"__exit__", TCPY_FAST(switched_exit), "__exit__($self, /, *exception)\n--\n\nset() to what it was, then end(value)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot switched_slots[] = {
    {Py_tp_new, switched_new},
    {Py_tp_finalize, switched_finalize},
    {Py_tp_dealloc, tcpy_finalize_and_free},
    {Py_tp_traverse, switched_traverse},
    {Py_tp_clear, switched_clear},
    {Py_tp_methods, switched_methods},
    {Py_tp_doc,
     "switched(set, make, end=None)\n--\n\nA context manager: before = set(make()), in the end set(before). set gives what was set until "
     "then. An interrupt that comes in between waits."},
    {0, NULL},
};

PyType_Spec tcpy_switched_spec = {.name = "transformer_c._core.switched",
                                  .basicsize = sizeof(switched),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                                  .slots = switched_slots};

/* ---- attributes ----------------------------------------------------------------------------------------------------------------- */

typedef struct restored {
    PyObject_HEAD PyObject *objects, *names; /* tuples */
    PyObject *values;                        /* a list, of every name of every object, from entering on; otherwise NULL */
} restored;

static PyObject *restored_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *parameters[] = {"objects", "names", NULL};
    PyObject *objects, *names;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!:restored", parameters, &objects, &PyTuple_Type, &names)) return NULL;
    objects = PySequence_Tuple(objects);
    restored *self = objects ? (restored *)type->tp_alloc(type, 0) : NULL;
    if (self) {
        self->objects = Py_NewRef(objects);
        self->names = Py_NewRef(names);
    }
    Py_XDECREF(objects);
    return (PyObject *)self;
}

static int restored_traverse(PyObject *object, visitproc visit, void *arg)
{
    restored *self = (restored *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->objects);
    Py_VISIT(self->names);
    Py_VISIT(self->values);
    return 0;
}

static int restored_clear(PyObject *object)
{
    restored *self = (restored *)object;
    Py_CLEAR(self->objects);
    Py_CLEAR(self->names);
    Py_CLEAR(self->values);
    return 0;
}

static PyObject *restored_enter(PyObject *object, PyObject *unused)
{
    restored *self = (restored *)object;
    (void)unused;
    PyObject *values = PyList_New(0);
    for (Py_ssize_t i = 0; values && i < PyTuple_GET_SIZE(self->objects); i++)
        for (Py_ssize_t j = 0; values && j < PyTuple_GET_SIZE(self->names); j++) {
            PyObject *value = PyObject_GetAttr(PyTuple_GET_ITEM(self->objects, i), PyTuple_GET_ITEM(self->names, j));
            if (!value || PyList_Append(values, value) < 0) Py_CLEAR(values);
            Py_XDECREF(value);
        }
    if (!values) return NULL;
    Py_XSETREF(self->values, values);
    Py_RETURN_NONE;
}

/* All are set, again after an interrupt, which waits. */
static PyObject *restored_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    restored *self = (restored *)object;
    PyObject *values = self->values, *error[3] = {NULL, NULL, NULL};
    if (!values) return PyErr_Format(PyExc_RuntimeError, "it was left without having been entered");
    self->values = NULL;
    const Py_ssize_t names = PyTuple_GET_SIZE(self->names), all = count > 0 && args[0] != Py_None ? PyList_GET_SIZE(values) : 0;
    for (Py_ssize_t i = 0; i < all; i++) {
        PyObject *of = PyTuple_GET_ITEM(self->objects, i / names), *name = PyTuple_GET_ITEM(self->names, i % names);
        for (int tries = 0; tries < TCPY_TRIES && PyObject_SetAttr(of, name, PyList_GET_ITEM(values, i)) < 0; tries++)
            tcpy_keep_first(error);
    }
    Py_DECREF(values);
    if (!error[0]) Py_RETURN_NONE;
    PyErr_Restore(error[0], error[1], error[2]);
    return NULL;
}

static void restored_finalize(PyObject *object)
{
    if (((restored *)object)->values) tcpy_leave_dropped(object, restored_exit);
}

static PyMethodDef restored_methods[] = {
    {"__enter__", restored_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nRemembers the attributes."},
    {"__exit__", TCPY_FAST(restored_exit), "__exit__($self, /, *exception)\n--\n\nAfter an exception, sets them to what they were."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot restored_slots[] = {
    {Py_tp_new, restored_new},
    {Py_tp_finalize, restored_finalize},
    {Py_tp_dealloc, tcpy_finalize_and_free},
    {Py_tp_traverse, restored_traverse},
    {Py_tp_clear, restored_clear},
    {Py_tp_methods, restored_methods},
    {Py_tp_doc,
     "restored(objects, names)\n--\n\nA context manager: if the block raises, the attributes of that tuple of names are again what "
     "they were, of all objects. An interrupt that comes in between waits."},
    {0, NULL},
};

PyType_Spec tcpy_restored_spec = {.name = "transformer_c._core.restored",
                                  .basicsize = sizeof(restored),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                  .slots = restored_slots};
