/* switches.c: states of a thread that a `with` block switches, and the depth of calls. switches.h says why they are in C. */
#include "switches.h"

#include "binding.h"

void tcpy_leave_dropped(PyObject *object, PyObject *(*leave)(PyObject *, PyObject *const *, Py_ssize_t))
{
    PyObject *error[3], *reason = PyExc_GeneratorExit; /* as of a generator that is dropped */
    PyErr_Fetch(&error[0], &error[1], &error[2]);
    PyObject *done = leave(object, &reason, 1);
    if (!done) PyErr_WriteUnraisable(object);
    Py_XDECREF(done);
    PyErr_Restore(error[0], error[1], error[2]);
}

void tcpy_finalize_and_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (PyObject_CallFinalizerFromDealloc(object) < 0) return; /* somebody holds it again */
    PyObject_GC_UnTrack(object);
    type->tp_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

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

static _Thread_local long switchings; /* of recording, until now */

static long set_recording(long enabled)
{
    switchings++;
    return tc_set_grad_enabled(enabled != 0);
}

/* The depth is in the upper bits. */
static long set_autocast(long state)
{
    const long before = autocast.half | autocast.depth << STATE_BITS;
    autocast.half = (int)(state & ((1 << STATE_BITS) - 1));
    autocast.depth = state >> STATE_BITS;
    return before;
}

bool tcpy_casts_parameters(void) { return autocast.half == IN_A_CALL || autocast.half == OFF_IN_A_CALL; }

/* A call whose parameters are cast already stays what it is, but for being off. */
static long enter_autocast(long half)
{
    if (half == UNCAST)
        half = AS_GIVEN;
    else if (tcpy_casts_parameters())
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
    bool by_hand;
    bool is_ahead;        /* switched when it was made: the first entering does not switch again */
    long before, number;  /* if so: the state until then, and which switching of `thread` it was */
    unsigned long thread; /* on which it was made */
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
    static char *names[] = {"enabled", "at_once", NULL};
    int enabled, at_once = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "p|p:recording", names, &enabled, &at_once)) return NULL;
    PyObject *self = new_switch(type, enabled, set_recording, set_recording);
    if (self && at_once) {
        switch_object *made = (switch_object *)self;
        made->before = set_recording(enabled);
        made->number = switchings;
        made->thread = PyThread_get_thread_ident();
        made->is_ahead = true;
    }
    return self;
}

static PyObject *autocasting_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"half", NULL};
    int half;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i:autocasting", names, &half)) return NULL;
    if (half < AS_GIVEN || half >= STATES) return PyErr_Format(PyExc_ValueError, "half must be from 0 to %d, got %d", STATES - 1, half);
    return new_switch(type, half, enter_autocast, set_autocast);
}

/* The last entry of this thread. A generator that is left on another thread than it was entered on leaves that thread's state alone. */
static void leave_one(switch_object *self)
{
    const unsigned long thread = PyThread_get_thread_ident();
    int last = self->count - 1;
    while (last > 0 && self->entries[last].thread != thread) last--;
    if (self->entries[last].thread == thread)
        self->leave(self->entries[last].before);
    else
        last = self->count - 1;
    memmove(&self->entries[last], &self->entries[last + 1], sizeof(entry) * (size_t)(self->count - 1 - last));
    self->count--;
}

/* Whether an exception, which is set, drops what has just been made: an interrupt that comes between set_grad_enabled(mode) and its block.
 * So is one that is an argument of a call that fails. As a statement it is dropped without an exception, and the mode stays. */
static bool is_interrupted(const switch_object *self)
{
    return self->is_ahead && PyErr_Occurred() && self->number == switchings && self->thread == PyThread_get_thread_ident();
}

static void switch_dealloc(PyObject *object)
{
    switch_object *self = (switch_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (is_interrupted(self)) self->leave(self->before);
    while (self->count > 0 && !self->by_hand) leave_one(self);
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
    /* A `with` holds the object twice, for entering and for leaving. tc.no_grad().__enter__(), the state from here on, holds it once. */
    if (Py_REFCNT(object) == 1) self->by_hand = true;
    self->entries[self->count++] = (entry){PyThread_get_thread_ident(), self->is_ahead ? self->before : self->enter(self->given)};
    self->is_ahead = false;
    Py_RETURN_NONE;
}

static PyObject *switch_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    switch_object *self = (switch_object *)object;
    (void)args, (void)count;
    if (self->count == 0 && self->is_ahead) { /* without a block: set_grad_enabled(mode).__exit__() */
        self->is_ahead = false;
        self->leave(self->before);
        Py_RETURN_NONE;
    }
    if (self->count == 0) return PyErr_Format(PyExc_RuntimeError, "%s was left without having been entered", Py_TYPE(object)->tp_name);
    leave_one(self);
    Py_RETURN_NONE;
}

static PyMethodDef switch_methods[] = {
    {"__enter__", switch_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nSwitches this thread's state."},
    {"__exit__", TCPY_FAST(switch_exit), "__exit__($self, /, *exception)\n--\n\nSwitches it back."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef recording_members[] = {
    {"given", T_LONG, offsetof(switch_object, given), READONLY, "Whether it turns recording on."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot recording_slots[] = {
    {Py_tp_new, recording_new},
    {Py_tp_dealloc, switch_dealloc},
    {Py_tp_methods, switch_methods},
    {Py_tp_members, recording_members},
    {Py_tp_doc, "recording(enabled, at_once=False)\n--\n\nA context manager that turns recording on this thread on or off; `at_once`: from "
                "now on, and in the end back to what it was before."},
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

/* ---- calls of modules ----------------------------------------------------------------------------------------------- */

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

int tcpy_add_switches(PyObject *module)
{
    static const struct {
        const char *name;
        PyType_Spec *spec;
    } types[] = {{"recording", &recording_spec},    {"autocasting", &autocasting_spec}, {"switched", &tcpy_switched_spec},
                 {"restored", &tcpy_restored_spec}, {"replaced", &tcpy_replaced_spec},  {"registered", &tcpy_registered_spec}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        PyObject *type = PyType_FromModuleAndSpec(module, types[i].spec, NULL);
        const int result = type ? PyModule_AddObjectRef(module, types[i].name, type) : -1;
        Py_XDECREF(type);
        if (result < 0) return -1;
    }
    return 0;
}
