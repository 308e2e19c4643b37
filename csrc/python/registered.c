/* registered.c: an attribute of a class of modules for what its objects have registered under that name. Python looks for an attribute
 * in the object and its class first, and makes an exception when it fails, before it asks __getattr__: up to Python 3.11 that takes
 * longer than the rest of a small layer's call. */
#include "switches.h"

#include "binding.h"

typedef struct registered {
    PyObject_HEAD PyObject *registry, *name; /* the name of a dict of the module; that of the attribute, or NULL until it is in a class */
} registered;

static PyObject *registered_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"registry", "name", NULL};
    PyObject *registry, *name = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|U:registered", names, &registry, &name)) return NULL;
    registered *self = (registered *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->registry = Py_NewRef(registry);
    self->name = Py_XNewRef(name);
    return (PyObject *)self;
}

static void registered_dealloc(PyObject *object)
{
    registered *self = (registered *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->registry);
    Py_XDECREF(self->name);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *registered_set_name(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    registered *self = (registered *)object;
    if (count != 2 || !PyUnicode_Check(args[1])) return PyErr_Format(PyExc_TypeError, "__set_name__() takes a class and a name");
    Py_XSETREF(self->name, Py_NewRef(args[1]));
    Py_RETURN_NONE;
}

/* For what pickles classes by value, with their attributes, as joblib does. */
static PyObject *registered_reduce(PyObject *object, PyObject *unused)
{
    const registered *self = (registered *)object;
    (void)unused;
    if (!self->name) return Py_BuildValue("O(O)", Py_TYPE(object), self->registry);
    return Py_BuildValue("O(OO)", Py_TYPE(object), self->registry, self->name);
}

/* A new reference, or NULL, with an exception set or not. */
static PyObject *find(const registered *self, PyObject *module)
{
    PyObject *attributes = PyObject_GenericGetDict(module, NULL);
    PyObject *registry = attributes ? PyDict_GetItemWithError(attributes, self->registry) : NULL;
    PyObject *found = registry && PyDict_Check(registry) && self->name ? PyDict_GetItemWithError(registry, self->name) : NULL;
    Py_XINCREF(found);
    Py_XDECREF(attributes);
    return found;
}

/* AttributeError makes Python call the module's __getattr__, which knows the casts of parameters and says what a name may have meant. */
static PyObject *registered_get(PyObject *object, PyObject *module, PyObject *type)
{
    const registered *self = (registered *)object;
    (void)type;
    if (!module) return Py_NewRef(object);
    PyObject *found = tcpy_casts_parameters() ? NULL : find(self, module);
    if (!found && !PyErr_Occurred()) PyErr_SetObject(PyExc_AttributeError, self->name);
    return found;
}

static PyMethodDef registered_methods[] = {
    {"__set_name__", (PyCFunction)(void (*)(void))registered_set_name, METH_FASTCALL,
     "__set_name__($self, owner, name, /)\n--\n\nTells it its name."},
    {"__reduce__", registered_reduce, METH_NOARGS, "__reduce__($self, /)\n--\n\nFor pickle and copy."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot registered_slots[] = {
    {Py_tp_new, registered_new},
    {Py_tp_dealloc, registered_dealloc},
    {Py_tp_descr_get, registered_get},
    {Py_tp_methods, registered_methods},
    {Py_tp_doc, "registered(registry, name=None)\n--\n\nAn attribute of a class: what a module has under its name in one of its dicts, "
                "such as \"_parameters\"."},
    {0, NULL},
};

PyType_Spec tcpy_registered_spec = {
    .name = "transformer_c._core.registered", .basicsize = sizeof(registered), .flags = Py_TPFLAGS_DEFAULT, .slots = registered_slots};
