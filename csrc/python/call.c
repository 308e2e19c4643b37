/* call.c: argument specs, and the callable that stands for an op: `_core.layer_norm`, `Tensor.sum`. */
#include "binding.h"

#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "../core/tensor.h"

#define KEEP_GIL_ELEMENTS 16384 /* below this a call is a few microseconds, and letting other threads in costs more */

/* What an argument of kind c may be, found by the name of the argument: a word stands for its place in `words`, None for the first. */
typedef struct word_set {
    const char *argument, *words[5], *error;
} word_set;

static const word_set choices[] = {
    {"activation", {"none", "relu", "gelu", "gelu_tanh"}, "activation is '%s'; expected None, 'relu', 'gelu' or 'gelu_tanh'"},
    {"empty_rows", {"zero", "uniform", "raise"}, "empty_rows is '%s'; expected 'zero', 'uniform' or 'raise'"},
    {"packing",
     {"head", "qkv"},
     "packing is '%s'; expected 'head' (q, k, v of each head together) or 'qkv' (all of q, of k, of v together)"},
    {"reduction", {"none", "mean", "sum"}, "reduction must be 'none', 'mean' or 'sum', got '%s'"},
};

typedef struct argument {
    PyObject *name; /* interned */
    char kind;      /* t T i w f b I s c o */
    bool optional;  /* None is allowed */
    bool spread;    /* I* */
    bool required, keyword_only;
    int alias_of;           /* another name for that argument; -1: an argument itself */
    const word_set *choice; /* of kind c */
    tcpy_value fallback;
} argument;

typedef struct tcpy_op_object {
    PyObject_HEAD vectorcallfunc vectorcall;
    const tcpy_op *op;
    PyObject *name, *doc, *signature, *spec;
    int count, positional, result_count;
    argument args[TCPY_MAX_ARGS];
} tcpy_op_object;

/* ---- reading a spec ------------------------------------------------------------------------------------------------ */

static int find_argument(const tcpy_op_object *self, PyObject *name)
{
    for (int i = 0; i < self->count; i++)
        if (self->args[i].name == name) return i;
    for (int i = 0; i < self->count; i++)
        if (PyUnicode_Compare(self->args[i].name, name) == 0) return i;
    return -1;
}

/* The place of a word among the words of a choice, or -1. */
static int place_of(const word_set *choice, const char *word, size_t length)
{
    for (int i = 0; choice->words[i]; i++)
        if (strlen(choice->words[i]) == length && memcmp(choice->words[i], word, length) == 0) return i;
    return -1;
}

static const word_set *find_choice(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (strlen(choices[i].argument) == length && memcmp(choices[i].argument, name, length) == 0) return &choices[i];
    return NULL;
}

static int parse_default(argument *arg, const char *text, size_t length, char *kept)
{
    arg->required = false;
    if (length == 4 && strncmp(text, "None", 4) == 0) {
        arg->fallback.none = true;
        if (arg->kind == 'o') arg->fallback.o = Py_None;
        return 0;
    }
    switch (arg->kind) {
    case 'i':
    case 'w': arg->fallback.i = strtoll(text, NULL, 10); return 0;
    case 'f': arg->fallback.f = strtod(text, NULL); return 0;
    case 'b': arg->fallback.b = strncmp(text, "True", 4) == 0; return 0;
    case 's':
        memcpy(kept, text, length);
        kept[length] = '\0';
        arg->fallback.s = kept;
        return 0;
    case 'c': arg->fallback.i = place_of(arg->choice, text, length); return arg->fallback.i < 0 ? -1 : 0;
    default: return -1;
    }
}

/* One "name:kind=default" into `arg`. Strings stay in `kept`, which lives as long as the op. */
static int parse_argument(argument *arg, const char *text, size_t length, char **kept)
{
    const char *colon = memchr(text, ':', length), *end = text + length;
    arg->alias_of = -1;
    if (!colon || colon + 1 >= end) return -1;
    arg->name = PyUnicode_FromStringAndSize(text, colon - text);
    if (!arg->name) return -1;
    PyUnicode_InternInPlace(&arg->name);
    const char *at = colon + 1;
    arg->kind = *at++;
    if (at < end && *at == '*') arg->spread = true, at++;
    if (at < end && *at == '?') arg->optional = true, at++;
    arg->required = true;
    if (arg->kind == 'c' && !(arg->choice = find_choice(text, (size_t)(colon - text)))) return -1;
    if (at == end) return 0;
    if (*at != '=') return -1;
    const size_t rest = (size_t)(end - at - 1);
    *kept = NULL;
    if (arg->kind == 's' && !(*kept = PyMem_Malloc(rest + 1))) return -1;
    return parse_default(arg, at + 1, rest, *kept);
}

/* *text += part; both are NULL after a failure. Steals `part`. */
static void append(PyObject **text, PyObject *part)
{
    PyObject *joined = *text && part ? PyUnicode_Concat(*text, part) : NULL;
    Py_XDECREF(part);
    Py_XSETREF(*text, joined);
}

/* "(x, dim=-1, *, eps=1e-05)" in the way inspect.signature reads it. */
static PyObject *signature_text(const tcpy_op_object *self)
{
    PyObject *text = PyUnicode_FromString("(");
    for (int i = 0; text && i < self->count; i++) {
        const argument *arg = &self->args[i];
        const char *separator = i ? ", " : "";
        if (arg->keyword_only && (i == 0 || !self->args[i - 1].keyword_only))
            append(&text, PyUnicode_FromFormat("%s*", separator)), separator = ", ";
        PyObject *part;
        if (arg->spread)
            part = PyUnicode_FromFormat("%s*%U", separator, arg->name);
        else if (arg->required)
            part = PyUnicode_FromFormat("%s%U", separator, arg->name);
        else if (arg->fallback.none || arg->kind == 'o')
            part = PyUnicode_FromFormat("%s%U=None", separator, arg->name);
        else if (arg->kind == 'b')
            part = PyUnicode_FromFormat("%s%U=%s", separator, arg->name, arg->fallback.b ? "True" : "False");
        else if (arg->kind == 'i')
            part = PyUnicode_FromFormat("%s%U=%lld", separator, arg->name, (long long)arg->fallback.i);
        else if (arg->kind == 's' || arg->kind == 'c')
            part = PyUnicode_FromFormat("%s%U='%s'", separator, arg->name,
                                        arg->kind == 's' ? arg->fallback.s : arg->choice->words[arg->fallback.i]);
        else {
            PyObject *number = PyFloat_FromDouble(arg->fallback.f);
            part = number ? PyUnicode_FromFormat("%s%U=%R", separator, arg->name, number) : NULL;
            Py_XDECREF(number);
        }
        append(&text, part);
    }
    if (text) append(&text, PyUnicode_FromString(")"));
    return text;
}

/* "dim=axis": the argument `dim` is another name of the earlier `axis`. */
static int parse_alias(tcpy_op_object *self, argument *arg, const char *text, size_t length)
{
    const char *equals = memchr(text, '=', length);
    PyObject *of = equals ? PyUnicode_FromStringAndSize(equals + 1, text + length - equals - 1) : NULL;
    const int found = of ? find_argument(self, of) : -1;
    Py_XDECREF(of);
    if (found < 0) return -1;
    *arg = (argument){.kind = self->args[found].kind, .alias_of = found, .fallback.none = true};
    arg->name = PyUnicode_FromStringAndSize(text, equals - text);
    if (!arg->name) return -1;
    PyUnicode_InternInPlace(&arg->name);
    return 0;
}

static int parse_spec(tcpy_op_object *self, const char *spec)
{
    bool keyword_only = false;
    for (const char *at = spec; *at;) {
        const size_t length = strcspn(at, " ");
        if (length == 1 && *at == '|') {
            keyword_only = true;
        } else {
            if (self->count == TCPY_MAX_ARGS) return -1;
            argument *arg = &self->args[self->count];
            char *kept = NULL;
            if ((memchr(at, ':', length) ? parse_argument(arg, at, length, &kept) : parse_alias(self, arg, at, length)) < 0) return -1;
            arg->keyword_only = keyword_only;
            self->count++;
            if (!keyword_only) self->positional = self->count;
        }
        at += length;
        at += strspn(at, " ");
    }
    return 0;
}

/* ---- converting one argument --------------------------------------------------------------------------------------- */

int tcpy_own(tcpy_call *call, tc_tensor *tensor)
{
    if (call->owned_count == call->owned_capacity) {
        const int capacity = 2 * call->owned_capacity;
        tc_tensor **larger = PyMem_Malloc(sizeof *larger * (size_t)capacity);
        if (!larger) {
            tc_tensor_release(tensor);
            PyErr_NoMemory();
            return -1;
        }
        memcpy(larger, call->owned, sizeof *larger * (size_t)call->owned_count);
        if (call->owned != call->owned_small) PyMem_Free(call->owned);
        call->owned = larger;
        call->owned_capacity = capacity;
    }
    call->owned[call->owned_count++] = tensor;
    return 0;
}

static int convert_tensor(tcpy_call *call, tc_tensor **out, PyObject *object, const char *name)
{
    if (tcpy_is_tensor(object)) { /* the caller holds it */
        *out = ((tcpy_tensor *)object)->tensor;
        call->any_tensor = true;
    } else {
        bool is_tensor;
        if (tcpy_tensor_from_object(out, object, name, &is_tensor) < 0 || tcpy_own(call, *out) < 0) return -1;
    }
    if (tc_tensor_numel(*out) > KEEP_GIL_ELEMENTS) call->keep_gil = false;
    return 0;
}

PyObject *tcpy_items(PyObject *object, const char *format, ...)
{
    PyObject *items = PySequence_Tuple(object);
    if (items || !PyErr_ExceptionMatches(PyExc_TypeError)) return items;
    va_list words;
    va_start(words, format);
    PyErr_FormatV(PyExc_TypeError, format, words);
    va_end(words);
    return NULL;
}

static int convert_tensors(tcpy_call *call, tcpy_value *value, PyObject *object, const char *name)
{
    PyObject *items = tcpy_items(object, "%s must be a sequence of tensors, not %s", name, Py_TYPE(object)->tp_name);
    if (!items) return -1;
    const Py_ssize_t count = PyTuple_GET_SIZE(items);
    tc_tensor **list = PyMem_Malloc(sizeof *list * (size_t)(count ? count : 1));
    int result = list && call->block_count < TCPY_MAX_LISTS ? 0 : -1;
    if (list && result == 0)
        call->blocks[call->block_count++] = list;
    else
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; result == 0 && i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        result = convert_tensor(call, &list[i], item, name);
        /* `items` may have been made for us: the tensor must outlive it */
        if (result == 0 && tcpy_is_tensor(item)) result = tcpy_own(call, tc_tensor_retain(list[i]));
    }
    Py_DECREF(items);
    value->list.items = list;
    value->list.count = count;
    return result;
}

static int convert_int(int64_t *out, PyObject *object, const char *name)
{
    int overflow;
    PyObject *index = PyNumber_Index(object);
    if (!index) {
        PyErr_Format(PyExc_TypeError, "%s must be an int, not %s", name, Py_TYPE(object)->tp_name);
        return -1;
    }
    const long long value = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (overflow) PyErr_Format(PyExc_ValueError, "%s is %R; expected an int of at most 64 bits", name, index);
    Py_DECREF(index);
    if (value == -1 && PyErr_Occurred()) return -1;
    *out = value;
    return 0;
}

static tcpy_ints *new_ints(tcpy_call *call)
{
    tcpy_ints *ints = &call->ints[call->ints_count++];
    ints->count = 0;
    ints->scalar = false;
    return ints;
}

static int convert_int_items(tcpy_ints *ints, PyObject *const *items, Py_ssize_t count, const char *name)
{
    if (count > TCPY_MAX_INTS) {
        PyErr_Format(PyExc_ValueError, "%s has %zd entries; at most %d are supported", name, count, TCPY_MAX_INTS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (convert_int(&ints->values[i], items[i], name) < 0) return -1;
    ints->count = (int)count;
    return 0;
}

static int convert_ints(tcpy_call *call, tcpy_value *value, PyObject *object, const char *name)
{
    tcpy_ints *ints = value->ints = new_ints(call);
    if (PyIndex_Check(object) && !PyArray_Check(object)) {
        ints->scalar = true;
        ints->count = 1;
        return convert_int(&ints->values[0], object, name);
    }
    PyObject *items = tcpy_items(object, "%s must be an int or a sequence of ints, not %s", name, Py_TYPE(object)->tp_name);
    if (!items) return -1;
    const int result = convert_int_items(ints, PySequence_Fast_ITEMS(items), PyTuple_GET_SIZE(items), name);
    Py_DECREF(items);
    return result;
}

static int convert_float(double *out, PyObject *object, const char *name)
{
    *out = PyFloat_AsDouble(object);
    if (*out != -1.0 || !PyErr_Occurred()) return 0;
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "%s must be a number, not %s", name, Py_TYPE(object)->tp_name);
    return -1;
}

static int convert_choice(int64_t *out, PyObject *object, const char *name, const word_set *choice)
{
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be a str, not %s", name, Py_TYPE(object)->tp_name);
        return -1;
    }
    Py_ssize_t length;
    const char *word = PyUnicode_AsUTF8AndSize(object, &length);
    if (!word) return -1;
    *out = place_of(choice, word, (size_t)length);
    if (*out < 0) PyErr_Format(PyExc_ValueError, choice->error, word);
    return *out < 0 ? -1 : 0;
}

static int convert(tcpy_call *call, const argument *arg, tcpy_value *value, PyObject *object)
{
    const char *name = PyUnicode_AsUTF8(arg->name);
    value->given = true;
    value->none = object == Py_None;
    if (value->none && (arg->optional || (!arg->required && arg->fallback.none && arg->kind != 'o'))) {
        const bool given = true;
        *value = (tcpy_value){.given = given, .none = true};
        return 0;
    }
    switch (arg->kind) {
    case 't': return convert_tensor(call, &value->t, object, name);
    case 'T': return convert_tensors(call, value, object, name);
    case 'i': return convert_int(&value->i, object, name);
    case 'w': value->i = (int64_t)PyLong_AsUnsignedLongLongMask(object); return value->i == -1 && PyErr_Occurred() ? -1 : 0;
    case 'I': return convert_ints(call, value, object, name);
    case 'f': return convert_float(&value->f, object, name);
    case 'b': {
        if (PyUnicode_Check(object)) { /* "no" and "False" are true */
            PyErr_Format(PyExc_TypeError, "%s must be a bool, not str", name);
            return -1;
        }
        const int truth = PyObject_IsTrue(object);
        value->b = truth > 0;
        return truth < 0 ? -1 : 0;
    }
    case 's':
        if (!PyUnicode_Check(object)) {
            PyErr_Format(PyExc_TypeError, "%s must be a str, not %s", name, Py_TYPE(object)->tp_name);
            return -1;
        }
        value->s = PyUnicode_AsUTF8(object);
        return value->s ? 0 : -1;
    case 'c': return convert_choice(&value->i, object, name, arg->choice);
    default: value->o = object; return 0;
    }
}

/* ---- binding a call ------------------------------------------------------------------------------------------------- */

/* f(x, 2, 3) for an argument I*: the rest of the positional arguments are its items. */
static int convert_spread(tcpy_call *call, const argument *arg, tcpy_value *value, PyObject *const *items, Py_ssize_t count)
{
    if (count == 1) return convert(call, arg, value, items[0]);
    value->given = true;
    value->ints = new_ints(call);
    return convert_int_items(value->ints, items, count, PyUnicode_AsUTF8(arg->name));
}

/* The value given by another name goes to the argument meant; when both are given they must be one int or bool. */
static int resolve_alias(const tcpy_op_object *self, tcpy_call *call, int i)
{
    const argument *alias = &self->args[i], *meant = &self->args[alias->alias_of];
    const tcpy_value *by_alias = &call->v[i];
    tcpy_value *value = &call->v[alias->alias_of];
    if (!by_alias->given || by_alias->none) return 0;
    if (!value->given || value->none || (meant->kind == 'i' && value->i == by_alias->i) ||
        (meant->kind == 'b' && value->b == by_alias->b)) {
        *value = *by_alias;
        return 0;
    }
    if (meant->kind == 'i')
        PyErr_Format(PyExc_TypeError, "%U=%lld and %U=%lld are two names of one argument", meant->name, (long long)value->i, alias->name,
                     (long long)by_alias->i);
    else
        PyErr_Format(PyExc_TypeError, "%U= and %U= mean the same; pass one of them", meant->name, alias->name);
    return -1;
}

static int bind(tcpy_op_object *self, tcpy_call *call, PyObject *const *args, Py_ssize_t count, PyObject *kwnames)
{
    for (int i = 0; i < self->count; i++) call->v[i] = self->args[i].fallback;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i < self->positional && self->args[i].spread) {
            if (convert_spread(call, &self->args[i], &call->v[i], args + i, count - i) < 0) return -1;
            break;
        }
        if (i >= self->positional) {
            PyErr_Format(PyExc_TypeError, "%U() takes at most %d positional arguments, %zd were given; its signature is %U%U", self->name,
                         self->positional, count, self->name, self->signature);
            return -1;
        }
        if (convert(call, &self->args[i], &call->v[i], args[i]) < 0) return -1;
    }
    const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t k = 0; k < keywords; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        const int i = find_argument(self, name);
        if (i < 0 || call->v[i].given) {
            PyErr_Format(PyExc_TypeError,
                         i < 0 ? "%U() has no argument '%U'; its signature is %U%U" : "%U() got two values for '%U'; its signature is %U%U",
                         self->name, name, self->name, self->signature);
            return -1;
        }
        if (convert(call, &self->args[i], &call->v[i], args[count + k]) < 0) return -1;
    }
    for (int i = 0; i < self->count; i++)
        if (self->args[i].alias_of >= 0 && resolve_alias(self, call, i) < 0) return -1;
    for (int i = 0; i < self->count; i++) {
        if (call->v[i].given || !self->args[i].required) continue;
        if (self->args[i].spread) { /* t.squeeze() */
            call->v[i].ints = new_ints(call);
            continue;
        }
        PyErr_Format(PyExc_TypeError, "%U() misses the argument '%U'; its signature is %U%U", self->name, self->args[i].name, self->name,
                     self->signature);
        return -1;
    }
    return 0;
}

/* An op of ops.def: computes, and makes Python objects of the results. */
static PyObject *call_c(const tcpy_op_object *self, tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[TCPY_MAX_RESULTS] = {NULL};
    const bool unrecorded = call->any_tensor && self->op->flags & TCPY_UNRECORDED; /* ndarrays are never recorded */
    const bool before = unrecorded && tc_set_grad_enabled(false);
    TCPY_COMPUTE(call, status, self->op->call(out, call->v, &err));
    if (unrecorded) tc_set_grad_enabled(before);
    if (self->result_count == 0 && status == TC_OK) Py_RETURN_NONE;
    return tcpy_result(call, status, &err, self->result_count, out);
}

static PyObject *op_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    tcpy_op_object *self = (tcpy_op_object *)callable;
    tcpy_call call;
    call.name = self->op->name;
    call.any_tensor = false;
    call.keep_gil = true;
    call.owned = call.owned_small;
    call.owned_count = 0;
    call.owned_capacity = TCPY_MAX_ARGS;
    call.ints_count = call.block_count = 0;
    tcpy_drain_releases();
    PyObject *result = NULL;
    if (bind(self, &call, args, PyVectorcall_NARGS(nargsf), kwnames) == 0)
        result = self->op->call ? call_c(self, &call) : self->op->run(&call);
    for (int i = 0; i < call.owned_count; i++) tc_tensor_release(call.owned[i]);
    if (call.owned != call.owned_small) PyMem_Free(call.owned);
    for (int i = 0; i < call.block_count; i++) PyMem_Free(call.blocks[i]);
    return result;
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
    for (int i = 0; i < self->count; i++) {
        Py_XDECREF(self->args[i].name);
        if (self->args[i].kind == 's') PyMem_Free((void *)(uintptr_t)self->args[i].fallback.s);
    }
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

static PyObject *new_op(const tcpy_op *op)
{
    tcpy_op_object *self = (tcpy_op_object *)tcpy.op_type->tp_alloc(tcpy.op_type, 0);
    if (!self) return NULL;
    self->vectorcall = op_vectorcall;
    self->op = op;
    for (const char *at = op->results; at && *at; at++) self->result_count += *at == ' ';
    self->name = PyUnicode_InternFromString(op->name);
    self->doc = PyUnicode_FromString(op->doc ? op->doc : "");
    self->spec = PyUnicode_FromString(op->spec);
    if (!self->name || !self->doc || !self->spec || parse_spec(self, op->spec) < 0 || !(self->signature = signature_text(self))) {
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
