/* switches.c: states that a `with` block switches, and the depth of calls. They are in C because an interrupt (Ctrl-C, any exception of a
 * signal handler, MemoryError) comes between two instructions of Python: in a method written in Python, between switching a state and
 * remembering what it was, or before it is switched back. Here nothing comes between them. */
#include "binding.h"

/* ---- the depth of calls of modules ------------------------------------------------------------------------------------------------ */

static _Thread_local long depth;

/* ---- states of a thread -------------------------------------------------------------------------------------------------------- */

/* In what the modules that this thread calls compute, and the depth of the calls to which that applies: those further down compute in what
 * they are given. In a call whose parameters are cast, autocast may be off: a module called there is given the parameters themselves. */
enum { AS_GIVEN, IN_BFLOAT16, IN_FLOAT16, IN_A_CALL, OFF_IN_A_CALL, UNCAST, STATES };
#define STATE_BITS 3
static _Thread_local struct {
    int half;
    long depth;
} autocast;

static long set_recording(long enabled) { return tc_set_grad_enabled(enabled != 0); }

/* The depth is in the upper bits. */
static long set_autocast(long state)
{
    const long before = autocast.half | autocast.depth << STATE_BITS;
    autocast.half = (int)(state & ((1 << STATE_BITS) - 1));
    autocast.depth = state >> STATE_BITS;
    return before;
}

/* A call whose parameters are cast already stays what it is, but for being off. */
static long enter_autocast(long half)
{
    const bool is_cast = autocast.half == IN_A_CALL || autocast.half == OFF_IN_A_CALL;
    if (half == UNCAST)
        half = AS_GIVEN;
    else if (is_cast)
        half = half == AS_GIVEN ? OFF_IN_A_CALL : IN_A_CALL;
    return set_autocast(half | depth << STATE_BITS);
}

#define FEW 4

typedef struct entry {
    unsigned long thread;
    long before;
} entry;

/* One object may be entered several times, by several threads. */
typedef struct switch_object {
    PyObject_HEAD long given;
    long (*enter)(long), (*leave)(long); /* the former returns what the latter is called with */
    int count, capacity;
    entry *entries, few[FEW];
} switch_object;

static PyObject *new_switch(PyTypeObject *type, long given, long (*enter)(long), long (*leave)(long))
{
    switch_object *self = (switch_object *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->given = given;
    self->enter = enter;
    self->leave = leave;
    self->capacity = FEW;
    self->entries = self->few;
    return (PyObject *)self;
}

static PyObject *recording_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"enabled", NULL};
    int enabled;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "p:recording", names, &enabled)) return NULL;
    return new_switch(type, enabled, set_recording, set_recording);
}

static PyObject *autocasting_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"half", NULL};
    int half;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i:autocasting", names, &half)) return NULL;
    if (half < AS_GIVEN || half >= STATES) return PyErr_Format(PyExc_ValueError, "half must be from 0 to %d, got %d", STATES - 1, half);
    return new_switch(type, half, enter_autocast, set_autocast);
}

static void switch_dealloc(PyObject *object)
{
    switch_object *self = (switch_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->entries != self->few) PyMem_Free(self->entries);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *switch_enter(PyObject *object, PyObject *unused)
{
    switch_object *self = (switch_object *)object;
    (void)unused;
    if (self->count == self->capacity) {
        entry *larger = PyMem_Malloc(2 * sizeof *larger * (size_t)self->capacity);
        if (!larger) return PyErr_NoMemory();
        memcpy(larger, self->entries, sizeof *larger * (size_t)self->capacity);
        if (self->entries != self->few) PyMem_Free(self->entries);
        self->entries = larger;
        self->capacity *= 2;
    }
    self->entries[self->count++] = (entry){PyThread_get_thread_ident(), self->enter(self->given)};
    Py_RETURN_NONE;
}

/* A generator that is left on another thread than it was entered on leaves that thread's state alone. */
static PyObject *switch_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    switch_object *self = (switch_object *)object;
    const unsigned long thread = PyThread_get_thread_ident();
    (void)args, (void)count;
    if (self->count == 0) return PyErr_Format(PyExc_RuntimeError, "%s was left without having been entered", Py_TYPE(object)->tp_name);
    int last = self->count - 1;
    while (last > 0 && self->entries[last].thread != thread) last--;
    if (self->entries[last].thread == thread)
        self->leave(self->entries[last].before);
    else
        last = self->count - 1;
    memmove(&self->entries[last], &self->entries[last + 1], sizeof(entry) * (size_t)(self->count - 1 - last));
    self->count--;
    Py_RETURN_NONE;
}

#define FAST(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL

static PyMethodDef switch_methods[] = {
    {"__enter__", switch_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nSwitches this thread's state."},
    {"__exit__", FAST(switch_exit), "__exit__($self, /, *exception)\n--\n\nSwitches it back."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot recording_slots[] = {
    {Py_tp_new, recording_new},
    {Py_tp_dealloc, switch_dealloc},
    {Py_tp_methods, switch_methods},
    {Py_tp_doc, "recording(enabled)\n--\n\nA context manager that turns recording on this thread on or off."},
    {0, NULL},
};

static PyType_Spec recording_spec = {.name = "transformer_c._core.recording",
                                     .basicsize = sizeof(switch_object),
                                     .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                     .slots = recording_slots};

static PyType_Slot autocasting_slots[] = {
    {Py_tp_new, autocasting_new},
    {Py_tp_dealloc, switch_dealloc},
    {Py_tp_methods, switch_methods},
    {Py_tp_doc, "autocasting(half)\n--\n\nA context manager: modules that this thread calls compute in bfloat16 (1), float16 (2) or what "
                "they are given "
                "(0); or a call of one whose parameters are cast already (3), with autocast off (4), or are themselves again (5)."},
    {0, NULL},
};

static PyType_Spec autocasting_spec = {.name = "transformer_c._core.autocasting",
                                       .basicsize = sizeof(switch_object),
                                       .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                       .slots = autocasting_slots};

PyObject *tcpy_autocast_state(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLong(autocast.half);
}

/* ---- any other state ----------------------------------------------------------------------------------------------------------- */

/* Interrupts that wait are raised by a call before it does anything; it is then called again, this many times at most. */
#define TRIES 100

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

static void switched_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    switched_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Clears the exception that is set; the first one is kept. */
static void keep_first(PyObject *error[3])
{
    if (error[0])
        PyErr_Clear();
    else
        PyErr_Fetch(&error[0], &error[1], &error[2]);
}

/* function(value), again after an interrupt; *error is the first exception, or stays what it was. */
static void insist(PyObject *function, PyObject *value, PyObject *error[3])
{
    for (int i = 0; i < TRIES; i++) {
        PyObject *done = PyObject_CallOneArg(function, value);
        Py_XDECREF(done);
        if (done) return;
        keep_first(error);
    }
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
    if (self->end) insist(self->end, value, error);
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
    insist(self->set, before, error);
    if (self->end) insist(self->end, value, error);
    Py_DECREF(value);
    Py_DECREF(before);
    if (!error[0]) Py_RETURN_NONE;
    PyErr_Restore(error[0], error[1], error[2]);
    return NULL;
}

static PyMethodDef switched_methods[] = {
    {"__enter__", switched_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nset(make()), the value."},
    {"__exit__", FAST(switched_exit), "__exit__($self, /, *exception)\n--\n\nset() to what it was, then end(value)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot switched_slots[] = {
    {Py_tp_new, switched_new},
    {Py_tp_dealloc, switched_dealloc},
    {Py_tp_traverse, switched_traverse},
    {Py_tp_clear, switched_clear},
    {Py_tp_methods, switched_methods},
    {Py_tp_doc,
     "switched(set, make, end=None)\n--\n\nA context manager: before = set(make()), in the end set(before). set gives what was set until "
     "then. An interrupt that comes in between waits."},
    {0, NULL},
};

static PyType_Spec switched_spec = {.name = "transformer_c._core.switched",
                                    .basicsize = sizeof(switched),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
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

static void restored_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    restored_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
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
        for (int tries = 0; tries < TRIES && PyObject_SetAttr(of, name, PyList_GET_ITEM(values, i)) < 0; tries++) keep_first(error);
    }
    Py_DECREF(values);
    if (!error[0]) Py_RETURN_NONE;
    PyErr_Restore(error[0], error[1], error[2]);
    return NULL;
}

static PyMethodDef restored_methods[] = {
    {"__enter__", restored_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nRemembers the attributes."},
    {"__exit__", FAST(restored_exit), "__exit__($self, /, *exception)\n--\n\nAfter an exception, sets them to what they were."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot restored_slots[] = {
    {Py_tp_new, restored_new},
    {Py_tp_dealloc, restored_dealloc},
    {Py_tp_traverse, restored_traverse},
    {Py_tp_clear, restored_clear},
    {Py_tp_methods, restored_methods},
    {Py_tp_doc,
     "restored(objects, names)\n--\n\nA context manager: if the block raises, the attributes of that tuple of names are again what "
     "they were, of all objects. An interrupt that comes in between waits."},
    {0, NULL},
};

static PyType_Spec restored_spec = {.name = "transformer_c._core.restored",
                                    .basicsize = sizeof(restored),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                    .slots = restored_slots};

/* ---- entries of dicts ------------------------------------------------------------------------------------------------------------- */

typedef struct replaced {
    PyObject_HEAD PyObject *places, *result, *end; /* a tuple of (dict, key, value); end: NULL for None */
    bool unless_changed;
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
    static char *names[] = {"places", "result", "end", "unless_changed", NULL};
    PyObject *places, *result = Py_None, *end = NULL;
    int unless_changed = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOp:replaced", names, &places, &result, &end, &unless_changed)) return NULL;
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
        self->unless_changed = unless_changed != 0;
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

static void replaced_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    replaced_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
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

/* One entry. Threads leave in any order: what was there before an earlier one is put back by the later one. */
static void put_back_one(const replaced *self, PyObject *place, PyObject *old, PyObject *error[3])
{
    PyObject *dict = PyTuple_GET_ITEM(place, 0), *key = PyTuple_GET_ITEM(place, 1), *value = PyTuple_GET_ITEM(place, 2);
    Py_ssize_t index;
    const replaced *over = entered_over(self, dict, key, &index);
    if (over) {
        PyObject *before = Py_NewRef(over->before); /* what is dropped from it may leave that block */
        const bool changed = PyList_GET_ITEM(before, index) != value;
        if (!(self->unless_changed && changed)) PyList_SetItem(before, index, Py_NewRef(old));
        Py_DECREF(before);
        return;
    }
    PyObject *now = PyDict_GetItemWithError(dict, key);
    if (PyErr_Occurred()) keep_first(error);
    if ((self->unless_changed && now != value) || (!now && old == Py_NotImplemented)) return;
    if ((old == Py_NotImplemented ? PyDict_DelItem(dict, key) : PyDict_SetItem(dict, key, old)) < 0) keep_first(error);
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
    if (self->end) insist(self->end, self->result, error);
    if (!error[0]) Py_RETURN_NONE;
    PyErr_Restore(error[0], error[1], error[2]);
    return NULL;
}

static PyMethodDef replaced_methods[] = {
    {"__enter__", replaced_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nEnters the values; returns the result."},
    {"__exit__", FAST(replaced_exit), "__exit__($self, /, *exception)\n--\n\nEnters what was there, then end(result)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot replaced_slots[] = {
    {Py_tp_new, replaced_new},
    {Py_tp_dealloc, replaced_dealloc},
    {Py_tp_traverse, replaced_traverse},
    {Py_tp_clear, replaced_clear},
    {Py_tp_methods, replaced_methods},
    {Py_tp_doc, "replaced(places, result=None, end=None, unless_changed=False)\n--\n\nA context manager: each (dict, key, value) of "
                "`places` is entered, "
                "and what was there afterwards, unless the block has entered another value and `unless_changed` is set. An interrupt that "
                "comes in between waits."},
    {0, NULL},
};

static PyType_Spec replaced_spec = {.name = "transformer_c._core.replaced",
                                    .basicsize = sizeof(replaced),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                    .slots = replaced_slots};

/* ---- calls of modules -----------------------------------------------------------------------------------------------------------------
 */

PyObject *tcpy_call_depth(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    const bool changes = autocast.half == IN_BFLOAT16 || autocast.half == IN_FLOAT16 || autocast.half == OFF_IN_A_CALL;
    return PyLong_FromLong(changes && autocast.depth == depth ? -1 : depth);
}

PyObject *tcpy_call_nested(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "call_nested(function, args, kwargs) takes a function, a tuple and a dict");
    depth++;
    PyObject *result = PyObject_Call(args[0], args[1], args[2]);
    depth--;
    return result;
}

/* ---- the module --------------------------------------------------------------------------------------------------------------------- */

static int add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (!type) return -1;
    const int result = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return result;
}

int tcpy_add_switches(PyObject *module)
{
    return add_type(module, &recording_spec, "recording") < 0 || add_type(module, &switched_spec, "switched") < 0 ||
                   add_type(module, &restored_spec, "restored") < 0 || add_type(module, &autocasting_spec, "autocasting") < 0 ||
                   add_type(module, &replaced_spec, "replaced") < 0
               ? -1
               : 0;
}
