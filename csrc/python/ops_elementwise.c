/* ops_elementwise.c: arithmetic, comparisons, logic and the functions of one argument, as Python sees them. */
#include "binding.h"

/* ---- numbers ---------------------------------------------------------------------------------------------------------------- */

int tcpy_scalar_from_object(tc_scalar *out, PyObject *object)
{
    if (PyFloat_Check(object)) { /* np.float64 as well */
        *out = tc_scalar_real(PyFloat_AS_DOUBLE(object));
        return 1;
    }
    if (PyBool_Check(object) || PyArray_IsScalar(object, Bool)) {
        const int truth = PyObject_IsTrue(object);
        *out = tc_scalar_bool(truth > 0);
        return truth < 0 ? -1 : 1;
    }
    if (PyLong_Check(object) || PyArray_IsScalar(object, Integer)) {
        PyObject *index = PyNumber_Index(object);
        if (!index) return -1;
        int beyond;
        const long long value = PyLong_AsLongLongAndOverflow(index, &beyond);
        *out = beyond ? tc_scalar_real(PyLong_AsDouble(index)) : tc_scalar_integer(value);
        Py_DECREF(index);
        return PyErr_Occurred() ? -1 : 1;
    }
    if (PyArray_IsScalar(object, Floating)) {
        const double value = PyFloat_AsDouble(object);
        if (value == -1.0 && PyErr_Occurred()) return -1;
        *out = tc_scalar_real(value);
        return 1;
    }
    return 0;
}

/* An int beyond 64 bits is a number like any other to floats, and none to integers. 0, or -1 with an exception set. */
static int check_meets(PyObject *number, const tc_scalar *scalar, const tc_tensor *tensor)
{
    const tc_dtype dtype = tensor ? tc_tensor_dtype(tensor) : TC_FLOAT32;
    if (tc_dtype_is_float(dtype) || !PyLong_Check(number) || scalar->kind != TC_FLOAT64) return 0;
    PyErr_Format(PyExc_OverflowError, "%R has more than 64 bits and meets a tensor of %s; convert the tensor with .float() first", number,
                 tc_dtype_name(dtype));
    return -1;
}

/* ---- operands --------------------------------------------------------------------------------------------------------------- */

/* One operand of a call: a tensor (borrowed from a Tensor, or owned) or a number. */
typedef struct operand {
    tc_tensor *tensor, *owned;
    tc_scalar scalar;
} operand;

static bool is_array_like(PyObject *object)
{
    return PyArray_Check(object) || PyList_Check(object) || PyTuple_Check(object) || PyArray_IsScalar(object, Generic) ||
           PyObject_CheckBuffer(object) || PyObject_HasAttrString(object, "__array__");
}

/* 1, 0 when the object is neither an array nor a number, or -1 with an exception set. */
static int read_operand(operand *out, PyObject *object, const char *name, bool *any_tensor)
{
    out->tensor = out->owned = NULL;
    if (tcpy_is_tensor(object)) {
        out->tensor = ((tcpy_tensor *)object)->tensor;
        *any_tensor = true;
        return 1;
    }
    const int number = tcpy_scalar_from_object(&out->scalar, object);
    if (number) return number;
    if (!is_array_like(object)) return 0;
    bool is_tensor;
    if (tcpy_tensor_from_object(&out->owned, object, name, &is_tensor) < 0) return -1;
    out->tensor = out->owned;
    return 1;
}

/* A tensor without axes in place of a number: for calls with numbers alone. */
static int tensor_of_scalar(operand *out)
{
    tc_error err;
    const tc_dtype dtype = out->scalar.kind == TC_FLOAT64 ? TC_FLOAT32 : out->scalar.kind;
    tc_tensor *tensor;
    if (tc_tensor_full(&tensor, 0, NULL, out->scalar.real, dtype, (tc_device){TC_CPU, 0}, &err) != TC_OK) {
        tcpy_raise(&err);
        return -1;
    }
    out->tensor = out->owned = tensor;
    return 0;
}

/* Both operands of a call, a number among them able to meet the other. As read_operand. */
static int read_operands(operand *a, PyObject *a_object, const char *a_name, operand *b, PyObject *b_object, const char *b_name,
                         bool *any_tensor)
{
    int read = read_operand(a, a_object, a_name, any_tensor);
    if (read == 1) read = read_operand(b, b_object, b_name, any_tensor);
    if (read != 1) return read;
    if (!a->tensor && check_meets(a_object, &a->scalar, b->tensor) < 0) return -1;
    return !b->tensor && check_meets(b_object, &b->scalar, a->tensor) < 0 ? -1 : 1;
}

static bool is_little(const operand *x) { return !x->tensor || tcpy_is_little(x->tensor); }

static tc_status compute_binary(tc_tensor **out, const operand *a, const operand *b, tc_binary_function function, tc_error *err)
{
    if (a->tensor && b->tensor) return tc_binary(out, a->tensor, b->tensor, function, err);
    if (a->tensor) return tc_binary_scalar(out, a->tensor, b->scalar, false, function, err);
    return tc_binary_scalar(out, b->tensor, a->scalar, true, function, err);
}

PyObject *tcpy_binary(PyObject *a_object, PyObject *b_object, tc_binary_function function, bool is_operator)
{
    tcpy_call call = {.any_tensor = false};
    operand a = {.owned = NULL}, b = {.owned = NULL};
    tc_tensor *out = NULL;
    tc_error err;
    tc_status status;
    PyObject *result = NULL;
    const int read = read_operands(&a, a_object, "the first argument", &b, b_object, "the second argument", &call.any_tensor);
    if (read == 0 && is_operator)
        result = Py_NewRef(Py_NotImplemented);
    else if (read == 0)
        PyErr_Format(PyExc_TypeError, "expected Tensors, arrays or numbers, got %s and %s", Py_TYPE(a_object)->tp_name,
                     Py_TYPE(b_object)->tp_name);
    if (read != 1) goto done;
    if (!a.tensor && !b.tensor && tensor_of_scalar(&a) < 0) goto done;
    call.keep_gil = is_little(&a) && is_little(&b);
    TCPY_COMPUTE(&call, status, compute_binary(&out, &a, &b, function, &err));
    result = tcpy_result1(&call, status, &err, out);
done:
    tc_tensor_release(a.owned);
    tc_tensor_release(b.owned);
    return result;
}

PyObject *tcpy_unary(PyObject *x, tc_unary_function function)
{
    tcpy_call call = {.any_tensor = true};
    tc_tensor *tensor = ((tcpy_tensor *)x)->tensor, *out = NULL;
    tc_error err;
    tc_status status;
    call.keep_gil = tcpy_is_little(tensor);
    TCPY_COMPUTE(&call, status, tc_unary(&out, tensor, function, &err));
    return tcpy_result1(&call, status, &err, out);
}

/* ---- the rows of binary.def --------------------------------------------------------------------------------------------------- */

#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b) TC_BINARY_FLAT(name, value)
#define TC_BINARY_BITS(name) TC_BINARY_FLAT(name, )
#define TC_BINARY_FLAT(name, value)                                                                                                        \
    static PyObject *run_##name(tcpy_call *call) { return tcpy_binary(call->v[0].o, call->v[1].o, TC_BINARY_##name, false); }
#include "../kernels/binary.def"
#undef TC_BINARY_FLAT

static PyObject *run_binary_backward(tcpy_call *call, tc_binary_function function)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[2] = {NULL, NULL};
    TCPY_COMPUTE(call, status, tc_binary_backward(&out[0], &out[1], call->v[0].t, call->v[1].t, call->v[2].t, function, &err));
    return tcpy_result(call, status, &err, 2, out);
}

#undef TC_BINARY
#undef TC_BINARY_BITS
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b)                                                                   \
    static PyObject *run_##name##_backward(tcpy_call *call) { return run_binary_backward(call, TC_BINARY_##name); }
#define TC_BINARY_FLAT(name, value)
#define TC_BINARY_BITS(name)
#include "../kernels/binary.def"
#undef TC_BINARY
#undef TC_BINARY_FLAT
#undef TC_BINARY_BITS

/* ---- the rows of unary.def ------------------------------------------------------------------------------------------------------ */

static PyObject *run_unary(tcpy_call *call, tc_unary_function function)
{
    tc_error err;
    tc_status status;
    tc_tensor *y = NULL, *x = call->v[0].t;
    TCPY_COMPUTE(call, status, tc_unary(&y, x, function, &err));
    return tcpy_result1(call, status, &err, y);
}

static PyObject *run_unary_backward(tcpy_call *call, tc_unary_function function, bool reads)
{
    tc_error err;
    tc_status status;
    tc_tensor *dx = NULL, *dy = call->v[0].t, *saved = reads ? call->v[1].t : NULL;
    TCPY_COMPUTE(call, status, tc_unary_backward(&dx, dy, saved, function, &err));
    return tcpy_result1(call, status, &err, dx);
}

enum { NOTHING, X, Y };
#define TC_UNARY(name, saved, value, gradient)                                                                                             \
    static PyObject *run_##name(tcpy_call *call) { return run_unary(call, TC_UNARY_##name); }                                              \
    static PyObject *run_##name##_backward(tcpy_call *call) { return run_unary_backward(call, TC_UNARY_##name, saved != NOTHING); }
#include "../kernels/unary.def"
#undef TC_UNARY

/* ---- choosing --------------------------------------------------------------------------------------------------------------------- */

static PyObject *run_where(tcpy_call *call)
{
    operand a = {.owned = NULL}, b = {.owned = NULL};
    tc_tensor *out = NULL, *condition = call->v[0].t;
    tc_error err;
    tc_status status;
    PyObject *result = NULL;
    const int read = read_operands(&a, call->v[1].o, "a", &b, call->v[2].o, "b", &call->any_tensor);
    if (read == 0) PyErr_SetString(PyExc_TypeError, "where chooses between Tensors, arrays or numbers");
    if (read == 1) {
        call->keep_gil &= is_little(&a) && is_little(&b);
        TCPY_COMPUTE(call, status, tc_where(&out, condition, a.tensor, a.scalar, b.tensor, b.scalar, &err));
        result = tcpy_result1(call, status, &err, out);
    }
    tc_tensor_release(a.owned);
    tc_tensor_release(b.owned);
    return result;
}

static PyObject *run_where_backward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[2] = {NULL, NULL};
    TCPY_COMPUTE(call, status, tc_where_backward(&out[0], &out[1], call->v[0].t, call->v[1].t, call->v[2].t, call->v[3].t, &err));
    return tcpy_result(call, status, &err, 2, out);
}

static PyObject *run_masked_fill(tcpy_call *call)
{
    tc_tensor *out = NULL, *x = call->v[0].t, *mask = call->v[1].t;
    tc_scalar value;
    tc_error err;
    tc_status status;
    const int number = tcpy_scalar_from_object(&value, call->v[2].o);
    if (number == 0) PyErr_Format(PyExc_TypeError, "value must be a number, not %s", Py_TYPE(call->v[2].o)->tp_name);
    if (number != 1 || check_meets(call->v[2].o, &value, x) < 0) return NULL;
    TCPY_COMPUTE(call, status, tc_masked_fill(&out, x, mask, value, &err));
    return tcpy_result1(call, status, &err, out);
}

/* ---- tables ------------------------------------------------------------------------------------------------------------------------ */

#define BACKWARD_SPEC_NOTHING "dy:t"
#define BACKWARD_SPEC_X "dy:t x:t"
#define BACKWARD_SPEC_Y "dy:t y:t"

const tcpy_op tcpy_ops_elementwise[] = {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b)                                                                   \
    TC_BINARY_FLAT(name, value){#name "_backward", "dy:t a:t b:t", run_##name##_backward, "da and db of " #name ".", 0},
#define TC_BINARY_FLAT(name, value) {#name, "a:o b:o", run_##name, #name " of a and b, element by element; they broadcast.", TCPY_METHOD},
#define TC_BINARY_BITS(name) TC_BINARY_FLAT(name, )
#include "../kernels/binary.def"
#undef TC_BINARY
#undef TC_BINARY_FLAT
#undef TC_BINARY_BITS
#define TC_UNARY(name, saved, value, gradient)                                                                                             \
    {#name, "x:t", run_##name, #name " of x, element by element.", TCPY_METHOD},                                                           \
        {#name "_backward", BACKWARD_SPEC_##saved, run_##name##_backward, "dx of " #name ", from dy and what its forward leaves.", 0},
#include "../kernels/unary.def"
#undef TC_UNARY
    {"where", "condition:t a:o b:o", run_where, "a where the condition is set, b elsewhere; the three broadcast.", 0},
    {"where_backward", "dy:t condition:t a:t b:t", run_where_backward, "da and db of where, in the shapes of a and b.", 0},
    {"masked_fill", "x:t mask:t value:o", run_masked_fill, "x with `value` where the bool mask is set.", TCPY_METHOD},
    {NULL, NULL, NULL, NULL, 0},
};
