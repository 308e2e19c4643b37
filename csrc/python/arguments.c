/* arguments.c: converts the arguments of a call from Python's objects to C's values. */
#include "call.h"

#include <stdarg.h>
#include <string.h>

#include "../core/copy.h"

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

void tcpy_release_owned(tcpy_call *call)
{
    for (int i = 0; i < call->owned_count; i++) tc_tensor_release(call->owned[i]);
    if (call->owned != call->owned_small) PyMem_Free(call->owned);
    for (int i = 0; i < call->block_count; i++) PyMem_Free(call->blocks[i]);
}

int tcpy_hold_tensor(tcpy_call *call, tc_tensor **tensor)
{
    tc_error err;
    tc_tensor *held = NULL;
    if (!*tensor || (!(*tensor)->wrapper && atomic_load(&(*tensor)->references) == 1)) return 0; /* none, or one that nobody else has */
    for (int i = 0; i < call->owned_count && i < TCPY_MAX_ARGS; i++)
        if (call->owned[i]->of == *tensor) { /* the same Tensor again: some ops save work then */
            *tensor = call->owned[i];
            return 0;
        }
    if (tc_tensor_hold(&held, *tensor, &err) != TC_OK) {
        tcpy_raise(&err);
        return -1;
    }
    *tensor = held;
    return tcpy_own(call, held);
}

void tcpy_end_holds(tcpy_call *call)
{
    for (int i = 0; i < call->owned_count; i++)
        if (call->owned[i]->of) tc_tensor_end_hold(call->owned[i]);
}

int tcpy_bring_array(tcpy_call *call, tc_tensor **array, const tc_tensor *beside)
{
    tc_error err;
    tc_status status;
    tc_tensor *brought;
    if (!*array || !beside || (*array)->wrapper || !tc_tensor_on_cpu(*array) || tc_tensor_on_cpu(beside)) return 0;
    TCPY_COMPUTE(call, status, tc_tensor_on(&brought, *array, beside->storage->device, &err));
    if (status != TC_OK) return tcpy_raise(&err), -1;
    *array = brought;
    return tcpy_own(call, brought);
}

static int convert_tensor(tcpy_call *call, tc_tensor **out, PyObject *object, const char *name)
{
    if (tcpy_is_tensor(object)) { /* the caller owns it */
        *out = ((tcpy_tensor *)object)->tensor;
        call->any_tensor = true;
    } else {
        bool is_tensor;
        if (tcpy_tensor_from_object(out, object, name, &is_tensor) < 0 || tcpy_own(call, *out) < 0) return -1;
        call->any_array = true;
    }
    if (!tcpy_is_little(*out)) call->keep_gil = false;
    return 0;
}

int tcpy_name_argument(const char *format, ...)
{
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
    va_list words;
    va_start(words, format);
    PyErr_FormatV(PyExc_TypeError, format, words);
    va_end(words);
    return -1;
}

PyObject *tcpy_shown(PyObject *object)
{
    const bool is_int = PyLong_CheckExact(object);
    PyObject *bits = is_int ? PyObject_CallMethod(object, "bit_length", NULL) : NULL;
    if (is_int && !bits) return NULL;
    const long count = bits ? PyLong_AsLong(bits) : 0;
    Py_XDECREF(bits);
    return count > 256 ? PyUnicode_FromFormat("an int of %ld bits", count) : PyObject_Repr(object);
}

void tcpy_raise_shown(PyObject *type, PyObject *object, const char *format, ...)
{
    PyErr_Clear(); /* the one that this one replaces: Python's functions are not called with an error */
    va_list words;
    va_start(words, format);
    PyObject *message = PyUnicode_FromFormatV(format, words), *shown = tcpy_shown(object);
    va_end(words);
    const char *text = message ? PyUnicode_AsUTF8(message) : NULL;
    if (text && shown) PyErr_Format(type, text, shown);
    Py_XDECREF(message);
    Py_XDECREF(shown);
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
        char place[64];
        if (!tcpy_is_tensor(item)) PyOS_snprintf(place, sizeof place, "%s[%zd]", name, i); /* how errors call it */
        result = convert_tensor(call, &list[i], item, tcpy_is_tensor(item) ? name : place);
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
    if (PyBool_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be an int, not bool", name);
        return -1;
    }
    PyObject *index = PyNumber_Index(object);
    if (!index) return tcpy_name_argument("%s must be an int, not %s", name, Py_TYPE(object)->tp_name);
    const long long value = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (overflow) tcpy_raise_shown(PyExc_ValueError, index, "%s is %%S; expected an int of at most 64 bits", name);
    Py_DECREF(index);
    if (value == -1 && PyErr_Occurred()) return -1;
    *out = value;
    return 0;
}

/* An int; one beyond 64 bits is clamped. */
static int convert_saturated(int64_t *out, PyObject *object)
{
    int overflow;
    PyObject *index = PyNumber_Index(object);
    if (!index) return -1;
    *out = PyLong_AsLongLongAndOverflow(index, &overflow);
    Py_DECREF(index);
    if (overflow) *out = overflow < 0 ? INT64_MIN : INT64_MAX;
    return !overflow && *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int convert_integers(tcpy_call *call, tcpy_integers *out, PyObject *object, const char *name)
{
    out->tensor = NULL;
    if (PyIndex_Check(object) && !PyArray_Check(object) && !tcpy_is_tensor(object)) return convert_saturated(&out->number, object);
    bool is_tensor;
    tc_tensor *tensor;
    if (tcpy_tensor_from_object(&tensor, object, name, &is_tensor) < 0 || tcpy_own(call, tensor) < 0) return -1;
    if (tensor->ndim == 0 && !tc_dtype_is_float(tensor->dtype) && tensor->dtype != TC_BOOL) return convert_saturated(&out->number, object);
    out->tensor = tensor;
    return 0;
}

/* One element of a pair. */
static int convert_count(int64_t *out, PyObject *object, const char *name)
{
    *out = INT64_MAX;
    if (object == Py_None) return 0;
    if (!PyIndex_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s holds a %s; both sides are counts, integers, or None for no bound", name,
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    if (convert_saturated(out, object) < 0) return -1;
    if (*out >= 0) return 0;
    PyErr_Format(PyExc_ValueError, "%s holds %lld; both sides are counts, at least 0, or None for no bound", name, (long long)*out);
    return -1;
}

static tcpy_ints *new_ints(tcpy_call *call)
{
    tcpy_ints *ints = &call->ints[call->ints_count++];
    ints->count = 0;
    ints->scalar = ints->none = false;
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
    if (PyArray_DescrCheck(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be an int or a sequence of ints, not a dtype, %S; %s", name, object, TCPY_BYTES_AS_DTYPE);
        return -1;
    }
    PyObject *items = tcpy_items(object, "%s must be an int or a sequence of ints, not %s", name, Py_TYPE(object)->tp_name);
    if (!items) return -1;
    const int result = convert_int_items(ints, PySequence_Fast_ITEMS(items), PyTuple_GET_SIZE(items), name);
    Py_DECREF(items);
    return result;
}

static int convert_pair(tcpy_call *call, tcpy_value *value, PyObject *object, const char *name)
{
    PyObject *sides = tcpy_items(object, "%s must be a pair (left, right), each a count or None for no bound", name);
    if (!sides) return -1;
    int result = -1;
    tcpy_ints *ints = value->ints = new_ints(call);
    ints->count = 2;
    if (PyTuple_GET_SIZE(sides) != 2)
        PyErr_Format(PyExc_ValueError, "%s has %zd entries; expected (left, right)", name, PyTuple_GET_SIZE(sides));
    else if (convert_count(&ints->values[0], PyTuple_GET_ITEM(sides, 0), name) == 0)
        result = convert_count(&ints->values[1], PyTuple_GET_ITEM(sides, 1), name);
    Py_DECREF(sides);
    return result;
}

static int convert_operand(tcpy_call *call, const tcpy_argument *arg, tcpy_value *value, PyObject *object)
{
    tcpy_operand *out = &call->operands[call->operand_count++];
    tc_tensor *owned = NULL;
    const bool number = arg->kind == 'v';
    int read = number ? tcpy_read_number(out, object) : tcpy_read_operand(out, &owned, object, arg->text, &call->any_tensor);
    if (read == 0 && number) read = tcpy_read_integer_like(out, object);
    if (read == 0)
        PyErr_Format(PyExc_TypeError, number ? "%s must be a number, not %s" : "expected Tensors, arrays or numbers, but %s is %s",
                     arg->text, Py_TYPE(object)->tp_name);
    if (read != 1 || (owned && tcpy_own(call, owned) < 0)) return -1;
    if (owned) call->any_array = true;
    if (out->value.tensor && !tcpy_is_little(out->value.tensor)) call->keep_gil = false;
    value->operand = out;
    return 0;
}

int tcpy_check_operands(const tcpy_call *call)
{
    for (int i = 0; i < call->operand_count; i++) {
        const tc_tensor *met = call->operand_count == 2 ? call->operands[1 - i].value.tensor : call->v[0].t;
        if (tcpy_check_meets(&call->operands[i], met) < 0) return -1;
    }
    return 0;
}

static int convert_float(double *out, PyObject *object, const char *name)
{
    *out = PyFloat_AsDouble(object);
    if (*out != -1.0 || !PyErr_Occurred()) return 0;
    return tcpy_name_argument("%s must be a number, not %s", name, Py_TYPE(object)->tp_name);
}

static int convert_choice(int64_t *out, PyObject *object, const char *name, const tcpy_choice *choice)
{
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be a str, not %s", name, Py_TYPE(object)->tp_name);
        return -1;
    }
    Py_ssize_t length;
    const char *word = PyUnicode_AsUTF8AndSize(object, &length);
    if (!word) return -1;
    *out = tcpy_find_word(choice, word, (size_t)length);
    if (*out < 0) PyErr_Format(PyExc_ValueError, choice->error, word);
    return *out < 0 ? -1 : 0;
}

int tcpy_convert(tcpy_call *call, const tcpy_argument *arg, tcpy_value *value, PyObject *object)
{
    const char *name = arg->text;
    value->given = true;
    value->none = object == Py_None;
    if (value->none && (arg->optional || (!arg->required && arg->fallback.none && arg->kind != 'o'))) {
        *value = (tcpy_value){.integers = {NULL, 0}, .given = true, .none = true};
        return 0;
    }
    switch (arg->kind) {
    case 't': return convert_tensor(call, &value->t, object, name);
    case 'T': return convert_tensors(call, value, object, name);
    case 'i': return convert_int(&value->i, object, name);
    case 'n': return convert_integers(call, &value->integers, object, name);
    case 'a':
    case 'v': return convert_operand(call, arg, value, object);
    case 'p': return convert_pair(call, value, object, name);
    case 'w':
        value->i = (int64_t)PyLong_AsUnsignedLongLongMask(object);
        if (value->i != -1 || !PyErr_Occurred()) return 0;
        return tcpy_name_argument("%s must be an int, not %s", name, Py_TYPE(object)->tp_name);
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
    case 'c': return convert_choice(&value->i, object, name, arg->choice);
    default: value->o = object; return 0;
    }
}

int tcpy_convert_spread(tcpy_call *call, const tcpy_argument *arg, tcpy_value *value, PyObject *const *items, Py_ssize_t count)
{
    if (count == 1) return tcpy_convert(call, arg, value, items[0]);
    value->given = true;
    tcpy_ints *ints = value->ints = new_ints(call);
    ints->none = count == 0;
    return convert_int_items(value->ints, items, count, arg->text);
}

int tcpy_promote(tcpy_call *call, const tcpy_op_object *self)
{
    tc_dtype common = TC_BOOL; /* promotes to any other */
    if (call->any_tensor) return 0;
    for (int i = 0; i < self->count; i++) {
        if (!self->args[i].promoted) continue;
        const tc_dtype dtype = call->v[i].t->dtype;
        if (!tc_dtype_is_float(dtype)) return 0;
        common = tc_dtype_promote(common, dtype);
    }
    for (int i = 0; i < self->count; i++) {
        tc_error err;
        tc_tensor *cast;
        if (!self->args[i].promoted || call->v[i].t->dtype == common) continue;
        if (tc_tensor_as(&cast, call->v[i].t, common, &err) != TC_OK) return tcpy_raise(&err), -1;
        if (tcpy_own(call, cast) < 0) return -1;
        call->v[i].t = cast;
    }
    return 0;
}
