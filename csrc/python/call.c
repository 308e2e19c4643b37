/* call.c: binds a call to the arguments of an op, and the callable: `_core.layer_norm`, `Tensor.sum`. */
#include "call.h"

#include <stddef.h>

#include "../core/tensor.h"

/* ---- binding a call ------------------------------------------------------------------------------------------------- */

/* Gives the value of an alias to its argument. When both are given they must be the same int; a bool is set by either. No axes at all,
 * by the alias or among the `count` positional arguments, are refused where their meaning differs. */
static int resolve_alias(const tcpy_op_object *self, tcpy_call *call, int i, Py_ssize_t count)
{
    const tcpy_argument *alias = &self->args[i], *meant = &self->args[alias->alias_of];
    const tcpy_value *by_alias = &call->v[i];
    tcpy_value *value = &call->v[alias->alias_of];
    const bool is_named = by_alias->given && !by_alias->none;
    const tcpy_value *axes = is_named ? by_alias : alias->alias_of < count ? value : NULL;
    if (meant->not_empty && axes && !axes->none && axes->ints->count == 0) {
        PyErr_Format(PyExc_ValueError, "the axes () are all of them in PyTorch, none in NumPy; write %U=None for all, %U=() for none",
                     alias->name, meant->name);
        return -1;
    }
    if (!is_named) return 0;
    if (!value->given || value->none || (meant->kind == 'i' && value->i == by_alias->i) || (meant->kind == 'b' && !value->b)) {
        *value = *by_alias;
        return 0;
    }
    if (meant->kind == 'b') return 0;
    if (meant->kind == 'i')
        PyErr_Format(PyExc_TypeError, "%U=%lld and %U=%lld are two names of one argument", meant->name, (long long)value->i, alias->name,
                     (long long)by_alias->i);
    else
        PyErr_Format(PyExc_TypeError, "%U= and %U= mean the same; pass one of them", meant->name, alias->name);
    return -1;
}

/* A call as it came. */
typedef struct given {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *names; /* of the keywords, or NULL */
} given;

/* The message of the exception that is set, if it is a TypeError or ValueError, which is cleared then; otherwise NULL, and it stays. */
static PyObject *take_message(void)
{
    PyObject *type, *value, *trace;
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return NULL;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *message = value ? PyObject_Str(value) : PyUnicode_FromString("");
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return message;
}

/* A name that no argument has. */
static __attribute__((noinline, cold)) void refuse_name(const tcpy_op_object *self, PyObject *name)
{
    if (PyUnicode_CompareWithASCIIString(name, "out") == 0)
        PyErr_Format(PyExc_TypeError, "%U() has no argument 'out'; use its result, or out.copy_(%U(...))", self->name, self->name);
    else if (PyUnicode_CompareWithASCIIString(name, "dtype") == 0 && PyUnicode_CompareWithASCIIString(self->name, "view") == 0)
        PyErr_Format(PyExc_TypeError, "view() has no argument 'dtype'; %s", TCPY_BYTES_AS_DTYPE);
    else if (PyUnicode_CompareWithASCIIString(name, "dtype") == 0)
        PyErr_Format(PyExc_TypeError, "%U() has no argument 'dtype'; convert what it takes, or its result, by .to(dtype)", self->name);
    else
        PyErr_Format(PyExc_TypeError, "%U() has no argument '%U'; its signature is %U%U", self->name, name, self->name, self->signature);
}

/* After argument number `next` - 1 was refused, with an exception set: looks at the others as well, so that one error names all that is
 * wrong. Returns -1. */
static __attribute__((noinline, cold)) int name_others(const tcpy_op_object *self, tcpy_call *call, given g, Py_ssize_t next)
{
    const Py_ssize_t keywords = g.names ? PyTuple_GET_SIZE(g.names) : 0;
    PyObject *kind = PyErr_ExceptionMatches(PyExc_TypeError) ? PyExc_TypeError : PyExc_ValueError;
    PyObject *first_type, *first, *trace, *messages = NULL;
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return -1;
    PyErr_Fetch(&first_type, &first, &trace);
    for (; next < g.count + keywords; next++) {
        PyObject *const name = next < g.count ? NULL : PyTuple_GET_ITEM(g.names, next - g.count);
        const int i = name ? tcpy_find_argument(self, name) : (int)next;
        if (!name && (next >= self->positional || self->args[next].spread)) continue;
        if (i < 0)
            refuse_name(self, name);
        else if (call->v[i].given || tcpy_convert(call, &self->args[i], &call->v[i], g.args[next]) == 0)
            continue;
        PyObject *message = take_message();
        if (!messages && message) {
            PyObject *one = first ? PyObject_Str(first) : NULL;
            messages = one ? Py_BuildValue("[N]", one) : NULL;
        }
        const bool failed = !message || !messages || PyList_Append(messages, message) < 0;
        Py_XDECREF(message);
        if (failed) break; /* another exception: it comes out */
    }
    if (!messages && !PyErr_Occurred()) {
        PyErr_Restore(first_type, first, trace);
        return -1;
    }
    if (messages && !PyErr_Occurred()) {
        PyObject *separator = PyUnicode_FromString("\n  "), *text = separator ? PyUnicode_Join(separator, messages) : NULL;
        if (text) PyErr_Format(kind, "%zd arguments of %U() are wrong:\n  %U", PyList_GET_SIZE(messages), self->name, text);
        Py_XDECREF(separator);
        Py_XDECREF(text);
    }
    Py_XDECREF(messages);
    Py_XDECREF(first_type);
    Py_XDECREF(first);
    Py_XDECREF(trace);
    return -1;
}

/* Argument number i is missing, and maybe others after it. Returns -1. */
static __attribute__((noinline, cold)) int name_missing(const tcpy_op_object *self, const tcpy_call *call, int i)
{
    PyObject *names = PyUnicode_FromFormat("'%U'", self->args[i].name);
    int count = 1;
    while (names && ++i < self->count) {
        if (call->v[i].given || !self->args[i].required || self->args[i].spread) continue;
        PyObject *more = PyUnicode_FromFormat("%U, '%U'", names, self->args[i].name);
        Py_DECREF(names);
        names = more;
        count++;
    }
    if (names)
        PyErr_Format(PyExc_TypeError, "%U() is missing the argument%s %U; its signature is %U%U", self->name, count > 1 ? "s" : "", names,
                     self->name, self->signature);
    Py_XDECREF(names);
    return -1;
}

static bool is_number(PyObject *object)
{
    return !PyBool_Check(object) && (PyLong_Check(object) || PyFloat_Check(object) || PyArray_IsScalar(object, Number));
}

/* A number for a bool without a name: of x.sum(0, 1) one meant two axes. Returns -1. */
static __attribute__((noinline, cold)) int refuse_number(const tcpy_op_object *self, Py_ssize_t i, PyObject *object)
{
    const bool after_axes = self->args[i - 1].kind == 'I';
    tcpy_raise_shown(PyExc_TypeError, object, "%s must be a bool, got %%S%s", self->args[i].text,
                     after_axes ? "; several axes are one argument, a tuple" : "; pass True or False");
    return -1;
}

static int bind(tcpy_op_object *self, tcpy_call *call, PyObject *const *args, Py_ssize_t count, PyObject *kwnames)
{
    for (int i = 0; i < self->count; i++) call->v[i] = self->args[i].fallback;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i < self->positional && self->args[i].spread) {
            if (tcpy_convert_spread(call, &self->args[i], &call->v[i], args + i, count - i) < 0) return -1;
            break;
        }
        if (i >= self->positional) {
            PyErr_Format(PyExc_TypeError, "%U() takes at most %d positional arguments, %zd were given; its signature is %U%U", self->name,
                         self->positional, count, self->name, self->signature);
            return -1;
        }
        const bool refused = i > 0 && self->args[i].kind == 'b' && is_number(args[i]);
        if (refused ? refuse_number(self, i, args[i]) : tcpy_convert(call, &self->args[i], &call->v[i], args[i]) < 0)
            return name_others(self, call, (given){args, count, kwnames}, i + 1);
    }
    const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t k = 0; k < keywords; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        const int i = tcpy_find_argument(self, name);
        if (i < 0 || call->v[i].given) {
            if (i < 0)
                refuse_name(self, name);
            else
                PyErr_Format(PyExc_TypeError, "%U() got two values for '%U'; its signature is %U%U", self->name, name, self->name,
                             self->signature);
            return name_others(self, call, (given){args, count, kwnames}, count + k + 1);
        }
        if (tcpy_convert(call, &self->args[i], &call->v[i], args[count + k]) < 0)
            return name_others(self, call, (given){args, count, kwnames}, count + k + 1);
    }
    for (int i = 0; i < self->count; i++)
        if (self->args[i].alias_of >= 0 && resolve_alias(self, call, i, count) < 0) return -1;
    for (int i = 0; i < self->count; i++) {
        if (call->v[i].given || !self->args[i].required) continue;
        if (self->args[i].spread) { /* t.squeeze() */
            tcpy_convert_spread(call, &self->args[i], &call->v[i], NULL, 0);
            continue;
        }
        return name_missing(self, call, i);
    }
    if (call->operand_count && tcpy_check_operands(call) < 0) return -1;
    return self->promotes ? tcpy_promote(call, self) : 0;
}

/* Calls visit(call, tensor, context) for the tensors among the arguments: for all of them, or for those that do not stay where they are. 0,
 * or -1 with an exception set. */
typedef int visit_function(tcpy_call *call, tc_tensor **tensor, void *context);
static __attribute__((noinline)) int visit_tensors(const tcpy_op_object *self, tcpy_call *call, bool all, visit_function *visit,
                                                   void *context)
{
    for (int i = 0; i < self->count; i++) {
        const tcpy_argument *arg = &self->args[i];
        tcpy_value *value = &call->v[i];
        if (value->none || arg->alias_of >= 0 || (arg->stays && !all)) continue;
        if (arg->kind == 't' && visit(call, &value->t, context) < 0) return -1;
        if (arg->kind == 'n' && all && visit(call, &value->integers.tensor, context) < 0) return -1;
        for (int64_t k = 0; arg->kind == 'T' && k < value->list.count; k++)
            if (visit(call, (tc_tensor **)&value->list.items[k], context) < 0) return -1;
    }
    for (int i = 0; i < call->operand_count; i++)
        if (visit(call, &call->operands[i].value.tensor, context) < 0) return -1;
    return 0;
}

static int hold(tcpy_call *call, tc_tensor **tensor, void *unused)
{
    (void)unused;
    return tcpy_hold(call, tensor);
}

static int look_for_gpu(tcpy_call *call, tc_tensor **tensor, void *found)
{
    (void)call;
    if (*tensor && !tc_tensor_on_cpu(*tensor)) *(tc_tensor **)found = *tensor;
    return 0;
}

static int bring(tcpy_call *call, tc_tensor **tensor, void *beside) { return tcpy_bring_array(call, tensor, beside); }

/* Arrays beside Tensors on a GPU become Tensors there. (An op without results writes to its arguments.) */
static __attribute__((noinline)) int bring_arrays(const tcpy_op_object *self, tcpy_call *call)
{
    tc_tensor *on_gpu = NULL;
    if (self->results && PyTuple_GET_SIZE(self->results) == 0) return 0;
    (void)visit_tensors(self, call, false, look_for_gpu, &on_gpu);
    return on_gpu ? visit_tensors(self, call, false, bring, on_gpu) : 0;
}

/* Is the work little, of little arguments? */
static bool stays_little(const tcpy_op_object *self, const tcpy_call *call)
{
    tc_tensor *tensors[TCPY_MAX_ARGS + 2];
    int count = 0;
    if (call->operand_count == 0) return true; /* otherwise it broadcasts them */
    for (int i = 0; i < self->count; i++)
        if (self->args[i].kind == 't' && !call->v[i].none) tensors[count++] = call->v[i].t;
    for (int i = 0; i < call->operand_count; i++) tensors[count++] = call->operands[i].value.tensor;
    return tcpy_stays_little(count, tensors);
}

/* Does it compute nothing, however large its argument is? */
static bool is_quick(const tcpy_op_object *self, const tcpy_call *call)
{
    const int flags = self->op->flags;
    return flags & TCPY_KEEP_GIL && !(flags & TCPY_MAY_COPY && !call->v[0].t->contiguous);
}

/* An op of ops.def: computes, and converts the results to Python objects. */
static PyObject *call_c(const tcpy_op_object *self, tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[TCPY_MAX_RESULTS] = {NULL};
    call->keep_gil = (call->keep_gil && stays_little(self, call)) || is_quick(self, call);
    if (call->any_array && call->any_tensor && bring_arrays(self, call) < 0) return NULL;
    if (!call->keep_gil && visit_tensors(self, call, true, hold, NULL) < 0) return NULL;
    const bool unrecorded = call->any_tensor && self->op->flags & TCPY_UNRECORDED; /* ndarrays are never recorded */
    if (unrecorded) tc_suspend_recording();
    TCPY_COMPUTE(call, status, self->op->call(out, call->v, &err));
    if (unrecorded) tc_resume_recording();
    const int count = self->results ? (int)PyTuple_GET_SIZE(self->results) : 0;
    if (!self->results && status == TC_OK) return tcpy_wrap(tc_tensor_retain(call->v[0].t));
    if (count == 0 && status == TC_OK) Py_RETURN_NONE;
    return tcpy_result(call, status, &err, count, out);
}

static PyObject *op_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    tcpy_op_object *self = (tcpy_op_object *)callable;
    tcpy_call call;
    call.name = self->op->name;
    call.any_tensor = false;
    call.keep_gil = true;
    tcpy_begin(&call);
    tcpy_drain_releases();
    PyObject *result = NULL;
    if (bind(self, &call, args, PyVectorcall_NARGS(nargsf), kwnames) == 0)
        result = self->op->call ? call_c(self, &call) : self->op->run(&call);
    tcpy_end(&call);
    return tcpy_show(self->op->name, result, args, PyVectorcall_NARGS(nargsf), kwnames);
}

/* ---- the type ----------------------------------------------------------------------------------------------------------- */

static void op_dealloc(PyObject *object)
{
    tcpy_op_object *self = (tcpy_op_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->name);
    Py_XDECREF(self->doc);
    Py_XDECREF(self->signature);
    Py_XDECREF(self->spec);
    Py_XDECREF(self->results);
    for (int i = 0; i < self->count; i++) Py_XDECREF(self->args[i].name);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *op_repr(PyObject *object)
{
    const tcpy_op_object *self = (tcpy_op_object *)object;
    return PyUnicode_FromFormat("<transformer_c op %U%U>", self->name, self->signature);
}

static PyObject *op_get(PyObject *object, PyObject *instance, PyObject *type)
{
    (void)type;
    if (!instance || instance == Py_None) return Py_NewRef(object);
    return PyMethod_New(object, instance);
}

static PyObject *op_reduce(PyObject *object, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(((tcpy_op_object *)object)->name); /* pickled by name, like a built-in function */
}

static PyMemberDef op_members[] = {
    {"__name__", T_OBJECT_EX, offsetof(tcpy_op_object, name), READONLY, NULL},
    {"__qualname__", T_OBJECT_EX, offsetof(tcpy_op_object, name), READONLY, NULL},
    {"__doc__", T_OBJECT_EX, offsetof(tcpy_op_object, doc), READONLY, NULL},
    {"spec", T_OBJECT_EX, offsetof(tcpy_op_object, spec), READONLY, "Names, kinds and defaults of the arguments, as binding.h explains."},
    {"results", T_OBJECT, offsetof(tcpy_op_object, results), READONLY,
     "The names of the results; None where they vary or are the first argument."},
    {"__text_signature__", T_OBJECT_EX, offsetof(tcpy_op_object, signature), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(tcpy_op_object, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef op_methods[] = {{"__reduce__", op_reduce, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyType_Slot op_slots[] = {
    {Py_tp_dealloc, op_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_repr, op_repr},
    {Py_tp_descr_get, op_get},
    {Py_tp_members, op_members},
    {Py_tp_methods, op_methods},
    {0, NULL},
};

static PyType_Spec op_spec = {
    .name = "transformer_c._core.op",
    .basicsize = sizeof(tcpy_op_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = op_slots,
};

int tcpy_add_op_type(PyObject *module)
{
    tcpy.op_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &op_spec, NULL);
    return tcpy.op_type ? PyModule_AddObjectRef(module, "op", (PyObject *)tcpy.op_type) : -1;
}

/* The words of a text, as a tuple. */
static PyObject *split_words(const char *text)
{
    PyObject *string = PyUnicode_FromString(text), *list = string ? PyUnicode_Split(string, NULL, -1) : NULL;
    PyObject *words = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(string);
    return words;
}

static PyObject *new_op(const tcpy_op *op)
{
    tcpy_op_object *self = (tcpy_op_object *)tcpy.op_type->tp_alloc(tcpy.op_type, 0);
    if (!self) return NULL;
    self->vectorcall = op_vectorcall;
    self->op = op;
    self->name = PyUnicode_InternFromString(op->name);
    self->doc = PyUnicode_FromString(op->doc ? op->doc : "");
    self->spec = PyUnicode_FromString(op->spec);
    const bool has_results = op->results && !(op->flags & TCPY_RETURNS_SELF);
    if (has_results) self->results = split_words(op->results);
    if (!self->name || !self->doc || !self->spec || (has_results && !self->results) || tcpy_read_spec(self, op->spec) < 0 ||
        !(self->signature = tcpy_signature(self))) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_SystemError, "the spec of op %s cannot be read: %s", op->name, op->spec);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

int tcpy_add_ops(PyObject *module, const tcpy_op *table)
{
    for (; table->name; table++) {
        PyObject *op = new_op(table);
        if (!op) return -1;
        int result = 0;
        if (!(table->flags & TCPY_METHOD_ONLY)) result = PyObject_SetAttrString(module, table->name, op);
        if (result == 0 && (table->flags & (TCPY_METHOD | TCPY_METHOD_ONLY)))
            result = PyObject_SetAttrString((PyObject *)tcpy.tensor_type, table->name, op);
        Py_DECREF(op);
        if (result < 0) return -1;
    }
    return 0;
}
