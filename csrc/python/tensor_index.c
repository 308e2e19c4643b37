/* tensor_index.c: t[...], t[...] = v, len(t), iter(t): from Python's index expressions to those of the core. */
#include "tensor_slots.h"

/* ---- reading an expression --------------------------------------------------------------------------------------------------- */

typedef struct expression {
    int count, owned_count;
    tc_index entries[2 * TC_MAX_DIMS + 1];
    tc_tensor *owned[2 * TC_MAX_DIMS + 1];
} expression;

static void expression_end(expression *e)
{
    for (int i = 0; i < e->owned_count; i++) tc_tensor_release(e->owned[i]);
}

static int add_tensor(expression *e, tc_tensor *tensor) /* steals */
{
    e->owned[e->owned_count++] = tensor;
    e->entries[e->count++] = (tc_index){.kind = TC_INDEX_TENSOR, .tensor = tensor};
    return 0;
}

static int add_bool(expression *e, bool truth)
{
    tc_tensor *tensor = NULL;
    tc_error err;
    if (tc_tensor_full(&tensor, 0, NULL, truth, TC_BOOL, (tc_device){TC_CPU, 0}, &err) == TC_OK) return add_tensor(e, tensor);
    tcpy_raise(&err);
    return -1;
}

static int add_slice(expression *e, PyObject *slice)
{
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return -1;
    e->entries[e->count++] = (tc_index){.kind = TC_INDEX_SLICE, .start = start, .stop = stop, .step = step};
    return 0;
}

static int add_integer(expression *e, PyObject *number)
{
    const Py_ssize_t index = PyNumber_AsSsize_t(number, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred()) return -1;
    e->entries[e->count++] = (tc_index){.kind = TC_INDEX_INTEGER, .start = index};
    return 0;
}

/* An array, or a sequence that np.asarray makes one of. An empty list, which NumPy reads as floats, is a list of no positions. */
static int add_array(expression *e, PyObject *object)
{
    tc_tensor *tensor = NULL;
    PyObject *array = PyArray_Check(object) ? Py_NewRef(object) : PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
    if (!array) return -1;
    PyArrayObject *given = (PyArrayObject *)array;
    if (!PyArray_Check(object) && PyArray_SIZE(given) == 0) Py_SETREF(array, PyArray_Cast(given, NPY_INT64));
    if (!array) return -1;
    given = (PyArrayObject *)array;
    const int kind = PyArray_DESCR(given)->kind;
    if (kind != 'b' && kind != 'i' && kind != 'u') {
        PyErr_Format(PyExc_IndexError,
                     "a Tensor is indexed with ints, slices, '...', None, and arrays of ints or bools, not with %s of dtype %S",
                     PyArray_Check(object) ? "an array" : Py_TYPE(object)->tp_name, (PyObject *)PyArray_DESCR(given));
        Py_DECREF(array);
        return -1;
    }
    const int result = tcpy_tensor_from_array(&tensor, given, "index");
    Py_DECREF(array);
    return result < 0 ? -1 : add_tensor(e, tensor);
}

static int add_entry(expression *e, PyObject *entry)
{
    if (e->count == (int)(sizeof e->entries / sizeof *e->entries)) {
        PyErr_SetString(PyExc_IndexError, "too many indices");
        return -1;
    }
    if (entry == Py_None) return e->entries[e->count++] = (tc_index){.kind = TC_INDEX_NEW_AXIS}, 0;
    if (entry == Py_Ellipsis) return e->entries[e->count++] = (tc_index){.kind = TC_INDEX_ELLIPSIS}, 0;
    if (PySlice_Check(entry)) return add_slice(e, entry);
    if (PyBool_Check(entry)) return add_bool(e, entry == Py_True);
    if (PyLong_Check(entry)) return add_integer(e, entry);
    if (tcpy_is_tensor(entry)) return add_tensor(e, tc_tensor_retain(tcpy_tensor_of(entry)));
    if (!PyArray_Check(entry) && !PyArray_IsScalar(entry, Generic) && PyIndex_Check(entry)) return add_integer(e, entry);
    return add_array(e, entry);
}

static int expression_begin(expression *e, PyObject *key)
{
    e->count = e->owned_count = 0;
    if (!PyTuple_Check(key)) {
        if (add_entry(e, key) == 0) return 0;
        expression_end(e);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++)
        if (add_entry(e, PyTuple_GET_ITEM(key, i)) < 0) {
            expression_end(e);
            return -1;
        }
    return 0;
}

/* ---- the slots ------------------------------------------------------------------------------------------------------------------ */

/* The Tensors of the expression. 0, or -1 with an exception set. */
static int hold_expression(tcpy_call *call, expression *e)
{
    for (int i = 0; i < e->count; i++)
        if (e->entries[i].kind == TC_INDEX_TENSOR && tcpy_hold(call, &e->entries[i].tensor) < 0) return -1;
    return 0;
}

/* Does the expression select few elements of x? Each place along an axis, of which there is one at least, selects one. */
static bool is_little(const tc_tensor *x, const expression *e)
{
    tc_tensor *places[2 * TC_MAX_DIMS + 1];
    int count = 0;
    int64_t shortest = INT64_MAX, selected;
    if (!tcpy_is_little(x)) return false;
    for (int i = 0; i < e->count; i++)
        if (e->entries[i].kind == TC_INDEX_TENSOR && e->entries[i].tensor->dtype != TC_BOOL) places[count++] = e->entries[i].tensor;
    if (count == 0 || x->numel == 0) return true;
    for (int i = 0; i < x->ndim; i++) shortest = x->shape[i] < shortest ? x->shape[i] : shortest;
    return tc_multiply_sizes(tcpy_broadcast_numel(count, places), x->numel / shortest, &selected) && selected <= TCPY_LITTLE;
}

static PyObject *subscript(PyObject *self, PyObject *key)
{
    tc_tensor *x = tcpy_tensor_of(self), *y = NULL;
    expression e;
    tcpy_call call;
    PyObject *result = NULL;
    tc_error err;
    tc_status status;
    tcpy_drain_releases();
    if (expression_begin(&e, key) < 0) return NULL;
    call.keep_gil = e.owned_count == 0 || is_little(x, &e);
    tcpy_begin(&call);
    if (tcpy_hold(&call, &x) == 0 && hold_expression(&call, &e) == 0) {
        TCPY_COMPUTE(&call, status, tc_index_get(&y, x, e.count, e.entries, &err));
        result = status == TC_OK ? tcpy_wrap(y) : tcpy_raise(&err);
    }
    tcpy_end(&call);
    expression_end(&e);
    return tcpy_show("getitem", result, (PyObject *[]){self, key}, 2, NULL);
}

static int assign_subscript(PyObject *self, PyObject *key, PyObject *value)
{
    tc_tensor *x = tcpy_tensor_of(self), *v = NULL, *given;
    expression e;
    tcpy_call call;
    int result = -1;
    tc_error err;
    tc_status status;
    bool is_tensor;
    tcpy_drain_releases();
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "elements of a Tensor cannot be deleted");
        return -1;
    }
    if (expression_begin(&e, key) < 0) return -1;
    if (tcpy_tensor_from_object(&v, value, "value", &is_tensor) < 0) {
        expression_end(&e);
        return -1;
    }
    given = v;
    call.keep_gil = is_little(x, &e);
    tcpy_begin(&call);
    if (tcpy_hold(&call, &x) == 0 && tcpy_hold(&call, &v) == 0 && hold_expression(&call, &e) == 0) {
        TCPY_COMPUTE(&call, status, tc_index_set(x, e.count, e.entries, v, &err));
        result = status == TC_OK ? 0 : -1;
        if (status != TC_OK) tcpy_raise(&err);
    }
    tcpy_end(&call);
    expression_end(&e);
    tc_tensor_release(given);
    if (result < 0) return -1;
    PyObject *shown = tcpy_show("setitem", Py_NewRef(self), (PyObject *[]){self, key, value}, 3, NULL);
    Py_XDECREF(shown);
    return shown ? 0 : -1;
}

static Py_ssize_t length(PyObject *self)
{
    const tc_tensor *x = tcpy_tensor_of(self);
    if (x->ndim) return (Py_ssize_t)x->shape[0];
    PyErr_SetString(PyExc_TypeError, "a Tensor of no axes has no len()");
    return -1;
}

static PyObject *item(PyObject *self, Py_ssize_t i)
{
    const tc_index index = {.kind = TC_INDEX_INTEGER, .start = i};
    tc_tensor *y = NULL;
    tc_error err;
    PyObject *result = tc_index_get(&y, tcpy_tensor_of(self), 1, &index, &err) == TC_OK ? tcpy_wrap(y) : tcpy_raise(&err);
    if (!tcpy.tracer || !result) return result;
    PyObject *number = PyLong_FromSsize_t(i);
    if (number) result = tcpy_show("getitem", result, (PyObject *[]){self, number}, 2, NULL);
    Py_XDECREF(number);
    return result;
}

/* When recorded, all parts come from one node, so that their gradients are joined, not added up one by one. */
static PyObject *iter(PyObject *self)
{
    tc_tensor *x = tcpy_tensor_of(self);
    if (!x->ndim) return PyErr_Format(PyExc_TypeError, "a Tensor of no axes cannot be iterated over");
    if (!(tc_grad_enabled() && tc_tensor_requires_grad(x))) return PySeqIter_New(self);
    PyObject *parts = PyObject_CallMethod(self, "unbind", NULL);
    if (!parts) return NULL;
    PyObject *result = PyObject_GetIter(parts);
    Py_DECREF(parts);
    return result;
}

static int contains(PyObject *self, PyObject *value)
{
    PyObject *equal = tcpy_binary(self, value, TC_BINARY_eq);
    tc_tensor *any = NULL;
    tc_error err;
    if (!equal) return -1;
    if (equal == Py_NotImplemented) {
        Py_DECREF(equal);
        PyErr_Format(PyExc_TypeError, "a Tensor holds numbers, not %s", Py_TYPE(value)->tp_name);
        return -1;
    }
    const tc_status status = tc_reduce(&any, tcpy_tensor_of(equal), TC_REDUCE_any, -1, NULL, false, &err);
    Py_DECREF(equal);
    if (status != TC_OK) {
        tcpy_raise(&err);
        return -1;
    }
    PyObject *number = tcpy_tensor_number(any);
    tc_tensor_release(any);
    const int result = number ? PyObject_IsTrue(number) : -1;
    Py_XDECREF(number);
    return result;
}

PyType_Slot tcpy_index_slots[] = {
    {Py_mp_length, length},
    {Py_mp_subscript, subscript},
    {Py_mp_ass_subscript, assign_subscript},
    {Py_sq_length, length},
    {Py_sq_item, item},
    {Py_sq_contains, contains},
    {Py_tp_iter, iter},
    {0, NULL},
};
