/* tensor_number.c: operators between Tensors, and one element as a Python number. */
#include "tensor_slots.h"

#include "../core/copy.h"

/* ---- operators -------------------------------------------------------------------------------------------------------------- */

static bool is_little(const tcpy_operand *x) { return !x->value.tensor || tcpy_is_little(x->value.tensor); }

static const char *const binary_names[] = {
#define TC_BINARY(name, ...) [TC_BINARY_##name] = #name,
#define TC_BINARY_FLAT(name, ...) TC_BINARY(name)
#define TC_BINARY_BITS(name) TC_BINARY(name)
#include "../kernels/binary.def"
#undef TC_BINARY
#undef TC_BINARY_FLAT
#undef TC_BINARY_BITS
};

/* In place: the result is `a_object` itself, or the Tensor that replaces its values. */
static PyObject *binary(PyObject *a_object, PyObject *b_object, tc_binary_function function, bool in_place)
{
    tcpy_call call; /* read by tcpy_result and TCPY_COMPUTE */
    tcpy_operand a, b;
    tc_tensor *out = NULL, *owned_a = NULL, *owned_b = NULL;
    tc_error err;
    tc_status status;
    PyObject *result = NULL;
    call.any_tensor = false;
    int read = tcpy_read_operand(&a, &owned_a, a_object, "the first argument", &call.any_tensor);
    if (read == 1) read = tcpy_read_operand(&b, &owned_b, b_object, "the second argument", &call.any_tensor);
    if (read == 0) result = Py_NewRef(Py_NotImplemented);
    if (read == 1 && tcpy_check_meets(&a, b.value.tensor) == 0 && tcpy_check_meets(&b, a.value.tensor) == 0) {
        call.keep_gil = is_little(&a) && is_little(&b) && tcpy_stays_little(2, (tc_tensor *const[]){a.value.tensor, b.value.tensor});
        tcpy_begin(&call);
        if (tcpy_bring_array(&call, &a.value.tensor, b.value.tensor) == 0 &&
            tcpy_bring_array(&call, &b.value.tensor, a.value.tensor) == 0 && tcpy_hold(&call, &a.value.tensor) == 0 &&
            tcpy_hold(&call, &b.value.tensor) == 0) {
            TCPY_COMPUTE(&call, status,
                         in_place ? tc_binary_in_place(&out, a.value.tensor, &b.value, function, &err)
                                  : tc_binary_arguments(&out, &a.value, &b.value, function, &err));
            result = status == TC_OK && !out ? Py_NewRef(a_object) : tcpy_result1(&call, status, &err, out);
        }
        tcpy_end(&call);
    }
    tc_tensor_release(owned_a);
    tc_tensor_release(owned_b);
    return result == Py_NotImplemented ? result : tcpy_show(binary_names[function], result, (PyObject *[]){a_object, b_object}, 2, NULL);
}

PyObject *tcpy_binary(PyObject *a, PyObject *b, tc_binary_function function) { return binary(a, b, function, false); }

static PyObject *unary(PyObject *x, const char *name, tc_unary_function function)
{
    tcpy_call call;
    tc_tensor *tensor = tcpy_tensor_of(x), *out = NULL;
    tc_error err;
    tc_status status;
    PyObject *result = NULL;
    call.any_tensor = true;
    call.keep_gil = tcpy_is_little(tensor);
    tcpy_begin(&call);
    if (tcpy_hold(&call, &tensor) == 0) {
        TCPY_COMPUTE(&call, status, tc_unary(&out, tensor, function, &err));
        result = tcpy_result1(&call, status, &err, out);
    }
    tcpy_end(&call);
    return tcpy_show(name, result, &x, 1, NULL);
}

/* product(x, axis, running): x multiplied up; None where tc_multiply_up does not compute it. */
PyObject *tcpy_product(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    tcpy_call call;
    tc_tensor *x, *out = NULL;
    tc_error err;
    tc_status status;
    PyObject *result = NULL;
    (void)module;
    if (tcpy.tracer || count != 3 || !tcpy_is_tensor(args[0])) Py_RETURN_NONE;
    const int64_t axis = PyLong_AsLongLong(args[1]);
    if (axis == -1 && PyErr_Occurred()) return NULL;
    x = tcpy_tensor_of(args[0]);
    call.any_tensor = true;
    call.keep_gil = tcpy_is_little(x) && tcpy_stays_little(1, (tc_tensor *const[]){x});
    tcpy_begin(&call);
    if (tcpy_hold(&call, &x) == 0) {
        TCPY_COMPUTE(&call, status, tc_multiply_up(&out, x, axis, args[2] == Py_True, &err));
        result = status == TC_OK && !out ? Py_NewRef(Py_None) : tcpy_result1(&call, status, &err, out);
    }
    tcpy_end(&call);
    return result;
}

/* pad_by_itself(x, mode, *pads): None where tc_pad_by_itself does not compute it. */
PyObject *tcpy_pad_by_itself(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    enum { X, MODE, PADS };
    static const char *const modes[] = {"reflect", "replicate", "circular"};
    tcpy_call call;
    tc_tensor *x, *out = NULL;
    tc_error err;
    tc_status status;
    PyObject *result = NULL;
    int64_t pads[2 * TC_MAX_DIMS];
    (void)module;
    if (tcpy.tracer || count < PADS || count > PADS + 2 * TC_MAX_DIMS || !tcpy_is_tensor(args[X])) Py_RETURN_NONE;
    const char *name = PyUnicode_AsUTF8(args[MODE]);
    int mode = 0;
    if (!name) return NULL;
    while (mode < TC_PAD_CIRCULAR && strcmp(name, modes[mode]) != 0) mode++;
    for (Py_ssize_t k = PADS; k < count; k++) {
        int overflow;
        pads[k - PADS] = PyLong_AsLongLongAndOverflow(args[k], &overflow);
        if (PyErr_Occurred()) return NULL;
        if (overflow) Py_RETURN_NONE;
    }
    x = tcpy_tensor_of(args[X]);
    call.any_tensor = true;
    call.keep_gil = tcpy_is_little(x) && tcpy_stays_little(1, (tc_tensor *const[]){x});
    tcpy_begin(&call);
    if (tcpy_hold(&call, &x) == 0) {
        TCPY_COMPUTE(&call, status, tc_pad_by_itself(&out, x, (tc_pad_mode)mode, (int)count - PADS, pads, &err));
        result = status == TC_OK && !out ? Py_NewRef(Py_None) : tcpy_result1(&call, status, &err, out);
    }
    tcpy_end(&call);
    return result;
}

/* compute_into(target, name, *operands): the target, or for None a new Tensor, with a function of the operands; None where tc_compute_into
 * does not compute it, or the operands are neither Tensors nor numbers. */
PyObject *tcpy_compute_into(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    enum { TARGET, NAME, OPERANDS, MOST = 3 };
    tcpy_call call;
    tc_argument in[MOST];
    tc_tensor *target = NULL, *out = NULL, *tensors[MOST];
    tc_error err;
    tc_status status;
    PyObject *result = NULL;
    const int inputs = (int)count - OPERANDS;
    (void)module;
    if (tcpy.tracer || inputs < 1 || inputs > MOST || (args[TARGET] != Py_None && !tcpy_is_tensor(args[TARGET]))) Py_RETURN_NONE;
    const char *name = PyUnicode_AsUTF8(args[NAME]);
    if (!name) return NULL;
    call.any_tensor = call.keep_gil = true;
    for (int k = 0; k < inputs; k++) {
        PyObject *const object = args[OPERANDS + k];
        tensors[k] = in[k].tensor = tcpy_is_tensor(object) ? tcpy_tensor_of(object) : NULL;
        if (in[k].tensor)
            call.keep_gil &= tcpy_is_little(in[k].tensor);
        else if (tcpy_scalar_from_object(&in[k].scalar, object) != 1)
            return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    call.keep_gil = call.keep_gil && tcpy_stays_little(inputs, tensors);
    tcpy_begin(&call);
    int held = 0;
    if (args[TARGET] != Py_None) {
        target = tcpy_tensor_of(args[TARGET]);
        held = tcpy_hold(&call, &target);
    }
    for (int k = 0; k < inputs && held == 0; k++) {
        if (args[OPERANDS + k] == args[TARGET])
            in[k].tensor = target;
        else if (in[k].tensor)
            held = tcpy_hold(&call, &in[k].tensor);
    }
    if (held == 0) {
        TCPY_COMPUTE(&call, status, tc_compute_into(&out, target, name, inputs, in, &err));
        if (status == TC_OK && !out) result = Py_NewRef(Py_None);
        if (status == TC_OK && out && target) result = Py_NewRef(args[TARGET]);
        if (result)
            tc_tensor_release(out);
        else
            result = tcpy_result1(&call, status, &err, out);
    }
    tcpy_end(&call);
    return result;
}

/* t += x is t.copy_(t + x) with the history of t + x. */
static PyObject *replace(PyObject *self, PyObject *other, tc_binary_function function)
{
    tc_error err;
    PyObject *result = binary(self, other, function, tcpy.tracer == NULL);
    if (!result || result == Py_NotImplemented || result == self) return result;
    const tc_status status = tc_replace(tcpy_tensor_of(self), tcpy_tensor_of(result), &err);
    PyObject *replaced = status == TC_OK ? Py_NewRef(self) : tcpy_raise(&err);
    replaced = tcpy_show("copy_", replaced, (PyObject *[]){self, result}, 2, NULL);
    Py_DECREF(result);
    return replaced;
}

#define OPERATOR(name, function)                                                                                                           \
    static PyObject *tensor_##name(PyObject *a, PyObject *b) { return tcpy_binary(a, b, TC_BINARY_##function); }                           \
    static PyObject *in_place_##name(PyObject *a, PyObject *b) { return replace(a, b, TC_BINARY_##function); }
OPERATOR(add, add)
OPERATOR(subtract, sub)
OPERATOR(multiply, mul)
OPERATOR(divide, div)
OPERATOR(floor_divide, floor_divide)
OPERATOR(remainder, remainder)
OPERATOR(and, bitwise_and)
OPERATOR(or, bitwise_or)
OPERATOR(xor, bitwise_xor)
OPERATOR(power, pow)

static PyObject *power(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return tensor_power(a, b);
}

static PyObject *power_in_place(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return in_place_power(a, b);
}

static PyObject *divmod(PyObject *a, PyObject *b)
{
    PyObject *quotient = tensor_floor_divide(a, b);
    if (!quotient || quotient == Py_NotImplemented) return quotient;
    PyObject *rest = tensor_remainder(a, b);
    if (rest) return Py_BuildValue("(NN)", quotient, rest);
    Py_DECREF(quotient);
    return NULL;
}

static PyObject *matrix_product(PyObject *a, PyObject *b)
{
    PyObject *const arguments[] = {a, b};
    tcpy_call call;
    tc_tensor *x[2] = {NULL, NULL}, *y = NULL;
    tc_error err;
    tc_status status = TC_OK;
    bool is_tensor;
    for (int i = 0; i < 2; i++) {
        tc_scalar number;
        if (!tcpy_is_tensor(arguments[i]) && (tcpy_scalar_from_object(&number, arguments[i]) || !PySequence_Check(arguments[i]))) {
            tc_tensor_release(x[0]);
            if (PyErr_Occurred()) return NULL;
            Py_RETURN_NOTIMPLEMENTED;
        }
        if (tcpy_tensor_from_object(&x[i], arguments[i], i ? "the second argument of @" : "the first argument of @", &is_tensor) < 0) {
            tc_tensor_release(x[0]);
            return NULL;
        }
    }
    tc_tensor *given[2] = {x[0], x[1]};
    PyObject *result = NULL;
    call.keep_gil = tcpy_is_little(x[0]) && tcpy_is_little(x[1]);
    tcpy_begin(&call);
    if (tcpy_bring_array(&call, &x[0], x[1]) == 0 && tcpy_bring_array(&call, &x[1], x[0]) == 0 && tcpy_hold(&call, &x[0]) == 0 &&
        tcpy_hold(&call, &x[1]) == 0) {
        TCPY_COMPUTE(&call, status, tc_matmul(&y, x[0], x[1], &err));
        result = status == TC_OK ? tcpy_wrap(y) : tcpy_raise(&err);
    }
    tcpy_end(&call);
    for (int i = 0; i < 2; i++) tc_tensor_release(given[i]);
    return tcpy_show("matmul", result, arguments, 2, NULL);
}

static PyObject *negative(PyObject *self) { return unary(self, "neg", TC_UNARY_neg); }
static PyObject *absolute(PyObject *self) { return unary(self, "abs", TC_UNARY_abs); }
static PyObject *positive(PyObject *self) { return Py_NewRef(self); }

/* ~t: logical not for bools, inverted bits for integers. */
static PyObject *invert(PyObject *self)
{
    if (tc_dtype_is_float(tcpy_tensor_of(self)->dtype))
        return PyErr_Format(PyExc_TypeError, "~ is for bools and integers, not %s; compare first, or use 1 - t",
                            tc_dtype_name(tcpy_tensor_of(self)->dtype));
    PyObject *all = tcpy_tensor_of(self)->dtype == TC_BOOL ? Py_NewRef(Py_True) : PyLong_FromLong(-1);
    PyObject *result = all ? tcpy_binary(self, all, TC_BINARY_bitwise_xor) : NULL;
    Py_XDECREF(all);
    return result;
}

PyObject *tcpy_tensor_compare(PyObject *a, PyObject *b, int operation)
{
    static const tc_binary_function functions[] = {[Py_LT] = TC_BINARY_lt, [Py_LE] = TC_BINARY_le, [Py_EQ] = TC_BINARY_eq,
                                                   [Py_NE] = TC_BINARY_ne, [Py_GT] = TC_BINARY_gt, [Py_GE] = TC_BINARY_ge};
    return tcpy_binary(a, b, functions[operation]);
}

/* ---- one element as a number ------------------------------------------------------------------------------------------------- */

/* The element of a tensor of one element in this memory; NULL without an exception for other memory and for halves. */
static PyObject *read_number(const tc_tensor *tensor)
{
    const void *at = tensor->data;
    if (tensor->storage->device.type != TC_CPU) return NULL;
    switch (tensor->dtype) {
    case TC_FLOAT32: return PyFloat_FromDouble((double)*(const float *)at);
    case TC_FLOAT64: return PyFloat_FromDouble(*(const double *)at);
    case TC_INT64: return PyLong_FromLongLong(*(const int64_t *)at);
    case TC_INT32: return PyLong_FromLong(*(const int32_t *)at);
    case TC_UINT8: return PyLong_FromLong(*(const uint8_t *)at);
    case TC_BOOL: return PyBool_FromLong(*(const uint8_t *)at);
    default: return NULL;
    }
}

PyObject *tcpy_tensor_number(tc_tensor *tensor)
{
    char text[TC_SHAPE_TEXT];
    if (tensor->numel != 1)
        return PyErr_Format(PyExc_ValueError, "only a Tensor of one element can become a Python number; this one has shape %s",
                            tc_tensor_text(text, tensor));
    PyObject *read = read_number(tensor);
    if (read || PyErr_Occurred()) return read;
    union {
        double real;
        int64_t integer;
        uint8_t truth;
    } value;
    const tc_dtype kind = tensor->dtype == TC_BOOL ? TC_BOOL : tc_dtype_is_float(tensor->dtype) ? TC_FLOAT64 : TC_INT64;
    tc_tensor *element = NULL, *number = NULL;
    tc_error err;
    tc_status status = tc_tensor_alias(&element, tensor, 0, NULL, NULL, 0, &err);
    if (status == TC_OK) status = tc_tensor_wrap(&number, &value, 0, NULL, NULL, kind, true, NULL, NULL, &err);
    if (status == TC_OK) status = tc_tensor_copy(number, element, &err);
    tc_tensor_release(element);
    tc_tensor_release(number);
    if (status != TC_OK) return tcpy_raise(&err);
    if (kind == TC_BOOL) return PyBool_FromLong(value.truth);
    return kind == TC_FLOAT64 ? PyFloat_FromDouble(value.real) : PyLong_FromLongLong(value.integer);
}

static int truth(PyObject *self)
{
    const tc_tensor *tensor = tcpy_tensor_of(self);
    char text[TC_SHAPE_TEXT];
    if (tensor->numel != 1) {
        PyErr_Format(PyExc_ValueError, "the truth of a Tensor of shape %s is ambiguous; use .any() or .all()",
                     tc_tensor_text(text, tensor));
        return -1;
    }
    PyObject *number = tcpy_show_numbers("__bool__", self) < 0 ? NULL : tcpy_tensor_number(tcpy_tensor_of(self));
    if (!number) return -1;
    const int result = PyObject_IsTrue(number);
    Py_DECREF(number);
    return result;
}

static PyObject *as_number(PyObject *self, const char *name, PyObject *(*convert)(PyObject *))
{
    PyObject *number = tcpy_show_numbers(name, self) < 0 ? NULL : tcpy_tensor_number(tcpy_tensor_of(self));
    if (!number) return NULL;
    PyObject *result = convert(number);
    Py_DECREF(number);
    return result;
}

static PyObject *as_int(PyObject *self) { return as_number(self, "__int__", PyNumber_Long); }
static PyObject *as_float(PyObject *self) { return as_number(self, "__float__", PyNumber_Float); }

static PyObject *as_index(PyObject *self)
{
    const tc_tensor *tensor = tcpy_tensor_of(self);
    if (tc_dtype_is_float(tensor->dtype) || tensor->dtype == TC_BOOL || tensor->numel != 1)
        return PyErr_Format(PyExc_TypeError, "only a Tensor of one integer can be used as an index");
    return as_number(self, "__index__", PyNumber_Index);
}

PyType_Slot tcpy_number_slots[] = {
    {Py_nb_add, tensor_add},
    {Py_nb_subtract, tensor_subtract},
    {Py_nb_multiply, tensor_multiply},
    {Py_nb_true_divide, tensor_divide},
    {Py_nb_floor_divide, tensor_floor_divide},
    {Py_nb_remainder, tensor_remainder},
    {Py_nb_divmod, divmod},
    {Py_nb_power, power},
    {Py_nb_matrix_multiply, matrix_product},
    {Py_nb_negative, negative},
    {Py_nb_positive, positive},
    {Py_nb_absolute, absolute},
    {Py_nb_invert, invert},
    {Py_nb_and, tensor_and},
    {Py_nb_or, tensor_or},
    {Py_nb_xor, tensor_xor},
    {Py_nb_inplace_add, in_place_add},
    {Py_nb_inplace_subtract, in_place_subtract},
    {Py_nb_inplace_multiply, in_place_multiply},
    {Py_nb_inplace_true_divide, in_place_divide},
    {Py_nb_inplace_floor_divide, in_place_floor_divide},
    {Py_nb_inplace_remainder, in_place_remainder},
    {Py_nb_inplace_power, power_in_place},
    {Py_nb_inplace_and, in_place_and},
    {Py_nb_inplace_or, in_place_or},
    {Py_nb_inplace_xor, in_place_xor},
    {Py_nb_bool, truth},
    {Py_nb_int, as_int},
    {Py_nb_float, as_float},
    {Py_nb_index, as_index},
    {0, NULL},
};
