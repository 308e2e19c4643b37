/* unary.c: functions of one argument: the rows of kernels/unary.def.
 *
 * Saved for the backward: x, or y, or nothing, as the row says. */
#include "../core/elementwise.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"

enum { NOTHING, X, Y };

static const struct {
    const char *name;
    int saved;
} rows[TC_UNARY_COUNT] = {
#define TC_UNARY(name, saved, value, gradient) [TC_UNARY_##name] = {#name, saved},
#include "../kernels/unary.def"
#undef TC_UNARY
};

static const double cost = 4.0; /* elementary operations an element, roughly */

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

tc_status tc_unary_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *saved, tc_unary_function function, tc_error *err)
{
    tc_tensor *out = NULL;
    tc_status status = TC_OK;
    const bool reads = rows[function].saved != NOTHING;
    TC_TRY(tc_check_float(dy, "dy", err));
    if (reads) {
        char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
        if (!tc_tensor_same_shape(dy, saved))
            TC_TRY(tc_fail(err, TC_ERROR_VALUE, "dy has shape %s but what was saved has %s; they must be equal", tc_tensor_text(a, dy),
                           tc_tensor_text(b, saved)));
        TC_TRY(tc_check_same_dtype(dy, "dy", saved, "what was saved", err));
        TC_TRY(tc_check_same_device(dy, "dy", saved, "what was saved", err));
    }
    const tc_element_input in[2] = {{.tensor = dy}, {.tensor = reads ? saved : NULL}};
    TC_TRY(tc_tensor_like(&out, dy, err));
    TC_TRY(tc_run_elementwise(out, 2, in, &tc_kernel_unary_backward, (int)function, tc_compute_dtype(dy->dtype), cost, err));
    *dx = tc_tensor_retain(out);
cleanup:
    tc_tensor_release(out);
    return status;
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_unary_function *function = node->attributes;
    return tc_unary_backward(&grad_inputs[0], grad_outputs[0], rows[*function].saved == NOTHING ? NULL : tc_node_saved(node, 0), *function,
                             err);
}

static const tc_op ops[TC_UNARY_COUNT] = {
#define TC_UNARY(name, saved, value, gradient) [TC_UNARY_##name] = {#name, backward, NULL},
#include "../kernels/unary.def"
#undef TC_UNARY
};

tc_status tc_unary(tc_tensor **y, tc_tensor *x, tc_unary_function function, tc_error *err)
{
    tc_tensor *out = NULL;
    tc_status status = TC_OK;
    const bool floating = tc_dtype_is_float(x->dtype);
    if (x->dtype == TC_BOOL && takes_integers(function))
        return tc_fail(err, TC_ERROR_TYPE,
                       "%s of a bool tensor has no meaning; for its opposite use ~x (logical not), or convert it with .long()",
                       rows[function].name);
    if (!floating && !takes_integers(function)) return tc_check_float(x, rows[function].name, err);
    const tc_element_input in = {.tensor = x};
    TC_TRY(tc_tensor_like(&out, x, err));
    TC_TRY(tc_run_elementwise(out, 1, &in, floating ? &tc_kernel_unary_forward : &tc_kernel_integer_unary, function,
                              tc_compute_dtype(x->dtype), cost, err));
    if (floating) {
        tc_tensor *const saved = rows[function].saved == Y ? out : x;
        const tc_record record = {.op = &ops[function],
                                  .input_count = 1,
                                  .inputs = &x,
                                  .output_count = 1,
                                  .outputs = &out,
                                  .saved_count = rows[function].saved != NOTHING,
                                  .saved = &saved,
                                  .attributes = &function,
                                  .attribute_bytes = sizeof function};
        TC_TRY(tc_tape_record(&record, err));
    }
    *y = tc_tensor_retain(out);
cleanup:
    tc_tensor_release(out);
    return status;
}
