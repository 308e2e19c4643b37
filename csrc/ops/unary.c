/* unary.c: functions of one argument: the rows of kernels/unary.def.
 *
 * Saved for the backward: x, or y, or nothing, as the row says. */
#include "../core/elementwise.h"
#include "op.h"

enum { NOTHING, X, Y };

static const int saves[TC_UNARY_COUNT] = {
#define TC_UNARY(name, saved, value, gradient) [TC_UNARY_##name] = saved,
#include "../kernels/unary.def"
#undef TC_UNARY
};

static const double cost = 4.0; /* elementary operations per element, roughly */

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_unary_function *function = node->attributes;
    tc_tensor *saved = saves[*function] == NOTHING ? NULL : tc_node_saved(node, 0);
    return tc_unary_backward(&grad_inputs[0], grad_outputs[0], saved, *function, err);
}

static const tc_op ops[TC_UNARY_COUNT] = {
#define TC_UNARY(name, saved, value, gradient) [TC_UNARY_##name] = {#name, backward, .attribute_bytes = sizeof(tc_unary_function)},
#include "../kernels/unary.def"
#undef TC_UNARY
};

static bool takes_integers(tc_unary_function function)
{
    switch ((int)function) {
#define TC_INTEGER_UNARY(name, value) case TC_UNARY_##name:
#define TC_INTEGER_BINARY(name, value)
#include "../kernels/integer.def"
#undef TC_INTEGER_UNARY
#undef TC_INTEGER_BINARY
        return true;
    default: return false;
    }
}

static bool is_rounding(tc_unary_function function)
{
    return function == TC_UNARY_floor || function == TC_UNARY_ceil || function == TC_UNARY_round || function == TC_UNARY_trunc;
}

tc_status tc_unary(tc_tensor **y, tc_tensor *x, tc_unary_function function, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *out;
    const bool floating = tc_dtype_is_float(x->dtype);
    if (x->dtype == TC_BOOL && takes_integers(function))
        return tc_fail(err, TC_ERROR_TYPE,
                       "%s of a bool tensor has no meaning; for its opposite use ~x (logical not), or convert it with .long()",
                       ops[function].name);
    if (!floating && !takes_integers(function))
        return tc_fail(err, TC_ERROR_TYPE, "the argument of %s is %s; a floating dtype is needed: convert it with .float()",
                       ops[function].name, tc_dtype_name(x->dtype));
    TC_TRY(tc_begin_elements(&s, in, 1, x->dtype, x->dtype));
    TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    if (!floating && is_rounding(function)) {
        TC_TRY(tc_tensor_copy(out, x, err));
        tc_give(&s, y, out);
        return TC_OK;
    }
    TC_TRY(tc_run_elementwise(out, 1, &(tc_argument){.tensor = x}, floating ? &tc_kernel_unary_forward : &tc_kernel_integer_unary,
                              (int)function, s.kernels, cost, err));
    if (!floating || !tc_tape_wants(1, &x)) { /* most calls: there is no record to make */
        tc_give(&s, y, out);
        return TC_OK;
    }
    tc_tensor *const saved = saves[function] == Y ? out : x;
    return tc_finish(
        &s, y, out,
        &(tc_record){.op = &ops[function], .saved = &saved, .saved_count = saves[function] != NOTHING, .attributes = &function});
}

tc_status tc_unary_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *saved, tc_unary_function function, tc_error *err)
{
    TC_SCOPE(s, err);
    const char *const name = saves[function] == Y ? "y" : "x";
    if (saves[function] == NOTHING) saved = NULL;
    tc_input in[] = {{"dy", dy}, {name, saved}};
    tc_tensor *out;
    TC_TRY(tc_check_float(dy, "dy", err));
    if (saved) TC_TRY(tc_check_shape(&s, dy, "dy", saves[function] == Y ? "y has" : "x has", saved->ndim, saved->shape));
    TC_TRY(tc_check_same_dtype(dy, "dy", saved, name, err));
    if (function == TC_UNARY_sign || is_rounding(function)) /* whatever dy is: 0 times infinity would be NaN */
        return tc_tensor_zeros(dx, dy->ndim, dy->shape, dy->dtype, dy->storage->device, err);
    TC_TRY(tc_begin_elements(&s, in, 2, dy->dtype, dy->dtype));
    TC_TRY(tc_make(&s, &out, dy->ndim, dy->shape));
    TC_TRY(tc_run_elementwise(out, 2, (tc_argument[]){{.tensor = dy}, {.tensor = saved}}, &tc_kernel_unary_backward, (int)function,
                              s.kernels, cost, err));
    tc_give(&s, dx, out);
    return TC_OK;
}
