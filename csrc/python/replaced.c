/* replaced.c: a context manager that replaces entries of dicts and puts them back; switches.h says why it is in C. */
#include "switches.h"

typedef struct replaced {
    PyObject_HEAD PyObject *places, *result, *end; /* a tuple of (dict, key, value); end: NULL for None */
    enum { OUTSIDE, ENTERING, INSIDE, LEAVING } state;
    PyObject *before; /* a list of what the entries were, NotImplemented for none; NULL outside */
    Py_ssize_t held;  /* the first of them, which are not put back yet */
    struct replaced *earlier;
} replaced;

/* Those that are not outside, the last one first; guarded by the GIL. A value that is dropped from a dict or a list may run any code, and
 * other threads: whatever follows reads this list anew. */
static replaced *latest;

static void begin_replacing(replaced *self, PyObject *before)
{
    self->state = ENTERING;
    self->before = before;
    self->held = 0;
    self->earlier = latest;
    latest = self;
}

static void end_replacing(replaced *self)
{
    replaced **at = &latest;
    while (*at && *at != self) at = &(*at)->earlier;
    if (*at) *at = self->earlier;
    self->state = OUTSIDE;
    self->held = 0;
    Py_CLEAR(self->before);
}

static PyObject *replaced_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"places", "result", "end", NULL};
    PyObject *places, *result = Py_None, *end = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:replaced", names, &places, &result, &end)) return NULL;
    places = PySequence_Tuple(places);
    bool good = places != NULL;
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(places); i++) {
        PyObject *place = PyTuple_GET_ITEM(places, i);
        good = PyTuple_Check(place) && PyTuple_GET_SIZE(place) == 3 && PyDict_Check(PyTuple_GET_ITEM(place, 0));
        if (!good) PyErr_SetString(PyExc_TypeError, "a place is a tuple (dict, key, value)");
    }
    replaced *self = good ? (replaced *)type->tp_alloc(type, 0) : NULL;
    if (self) {
        self->places = Py_NewRef(places);
        self->result = Py_NewRef(result);
        self->end = end && end != Py_None ? Py_NewRef(end) : NULL;
    }
    Py_XDECREF(places);
    return (PyObject *)self;
}

static int replaced_traverse(PyObject *object, visitproc visit, void *arg)
{
    replaced *self = (replaced *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->places);
    Py_VISIT(self->result);
    Py_VISIT(self->end);
    Py_VISIT(self->before);
    return 0;
}

static int replaced_clear(PyObject *object)
{
    replaced *self = (replaced *)object;
    end_replacing(self);
    Py_CLEAR(self->places);
    Py_CLEAR(self->result);
    Py_CLEAR(self->end);
    return 0;
}

/* Keys are str or int, whose comparison runs no code of Python; others are the same only where they are the same object. */
static bool is_place(PyObject *place, PyObject *dict, PyObject *key)
{
    PyObject *other = PyTuple_GET_ITEM(place, 1);
    if (PyTuple_GET_ITEM(place, 0) != dict) return false;
    if (other == key) return true;
    return Py_TYPE(other) == Py_TYPE(key) && (PyUnicode_CheckExact(key) || PyLong_CheckExact(key)) &&
           PyObject_RichCompareBool(other, key, Py_EQ) == 1;
}

/* Of those entered after this one that still hold the same entry, the first, and which of its places that is; or NULL. */
static replaced *entered_over(const replaced *self, PyObject *dict, PyObject *key, Py_ssize_t *index)
{
    replaced *found = NULL;
    for (replaced *other = latest; other && other != self; other = other->earlier) {
        Py_ssize_t i = 0;
        while (i < other->held && !is_place(PyTuple_GET_ITEM(other->places, i), dict, key)) i++;
        if (i < other->held) {
            found = other;
            *index = i;
        }
    }
    return found;
}

/* One entry. Threads leave in any order: a later one that has the same entry puts the old value back instead. */
static void put_back_one(const replaced *self, PyObject *place, PyObject *old, PyObject *error[3])
{
    PyObject *dict = PyTuple_GET_ITEM(place, 0), *key = PyTuple_GET_ITEM(place, 1);
    Py_ssize_t index;
    const replaced *over = entered_over(self, dict, key, &index);
    if (over) {
        PyObject *before = Py_NewRef(over->before); /* what is dropped from it may leave that block */
        PyList_SetItem(before, index, Py_NewRef(old));
        Py_DECREF(before);
        return;
    }
    PyObject *now = PyDict_GetItemWithError(dict, key);
    if (PyErr_Occurred()) tcpy_keep_first(error);
    if (!now && old == Py_NotImplemented) return;
    if ((old == Py_NotImplemented ? PyDict_DelItem(dict, key) : PyDict_SetItem(dict, key, old)) < 0) tcpy_keep_first(error);
}

/* Last first, those that were entered. */
static void put_back(replaced *self, PyObject *error[3])
{
    while (self->held > 0) {
        self->held--;
        PyObject *old = Py_NewRef(PyList_GET_ITEM(self->before, self->held));
        put_back_one(self, PyTuple_GET_ITEM(self->places, self->held), old, error);
        Py_DECREF(old);
    }
    end_replacing(self);
}

static PyObject *replaced_enter(PyObject *object, PyObject *unused)
{
    replaced *self = (replaced *)object;
    (void)unused;
    PyObject *before = PyList_New(0); /* may collect garbage, and so run other code, which must not come after this in the list */
    if (!before) return NULL;
    if (self->state != OUTSIDE) {
        Py_DECREF(before);
        return PyErr_Format(PyExc_RuntimeError, "it is on already: one object is entered once at a time");
    }
    begin_replacing(self, before);
    bool good = true;
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(self->places); i++) {
        PyObject *place = PyTuple_GET_ITEM(self->places, i), *dict = PyTuple_GET_ITEM(place, 0), *key = PyTuple_GET_ITEM(place, 1);
        PyObject *now = PyDict_GetItemWithError(dict, key);
        good = !PyErr_Occurred() && PyList_Append(self->before, now ? now : Py_NotImplemented) == 0;
        if (!good) break;
        self->held = i + 1;
        good = PyDict_SetItem(dict, key, PyTuple_GET_ITEM(place, 2)) == 0;
    }
    if (good) {
        self->state = INSIDE;
        return Py_NewRef(self->result);
    }
    PyObject *error[3] = {NULL, NULL, NULL};
    PyErr_Fetch(&error[0], &error[1], &error[2]);
    put_back(self, error);
    PyErr_Restore(error[0], error[1], error[2]);
    return NULL;
}

static PyObject *replaced_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    replaced *self = (replaced *)object;
    PyObject *error[3] = {NULL, NULL, NULL};
    (void)args, (void)count;
    if (self->state != INSIDE) return PyErr_Format(PyExc_RuntimeError, "it was left without having been entered");
    self->state = LEAVING;
    put_back(self, error);
    if (self->end) tcpy_insist(self->end, self->result, error);
    if (!error[0]) Py_RETURN_NONE;
    PyErr_Restore(error[0], error[1], error[2]);
    return NULL;
}

static void replaced_finalize(PyObject *object)
{
    if (((replaced *)object)->state == INSIDE) tcpy_leave_dropped(object, replaced_exit);
}

static PyMethodDef replaced_methods[] = {
    {"__enter__", replaced_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nEnters the values; returns the result."},
    {"__exit__", TCPY_FAST(replaced_exit), "__exit__($self, /, *exception)\n--\n\nEnters what was there, then end(result)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot replaced_slots[] = {
    {Py_tp_new, replaced_new},
    {Py_tp_finalize, replaced_finalize},
    {Py_tp_dealloc, tcpy_finalize_and_free},
    {Py_tp_traverse, replaced_traverse},
    {Py_tp_clear, replaced_clear},
    {Py_tp_methods, replaced_methods},
    {Py_tp_doc, "replaced(places, result=None, end=None)\n--\n\nA context manager: each (dict, key, value) of "
                "`places` is entered, "
                "and what was there afterwards. An interrupt that "
                "comes in between waits."},
    {0, NULL},
};

PyType_Spec tcpy_replaced_spec = {.name = "transformer_c._core.replaced",
                                  .basicsize = sizeof(replaced),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                  .slots = replaced_slots};
