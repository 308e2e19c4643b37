/* binary.c: functions of two arguments, the rows of kernels/binary.def.
 *
 * Saved for the backward: a and b as far as the rows say that a wanted gradient reads them. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "../core/broadcast.h"
#include "../core/elementwise.h"
#include "../core/reduction.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"

enum { NONE, A, B, BOTH };

static const struct {
    const char *name;
    bool has_gradient;
    int needs[2]; /* what the gradients of a and b read */
} rows[TC_BINARY_COUNT] = {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b) [TC_BINARY_##name] = {#name, true, {needs_a, needs_b}},
#define TC_BINARY_FLAT(name, value) [TC_BINARY_##name] = {#name, false, {NONE, NONE}},
#define TC_BINARY_BITS(name) [TC_BINARY_##name] = {#name, false, {NONE, NONE}},
#include "../kernels/binary.def"
#undef TC_BINARY
#undef TC_BINARY_FLAT
#undef TC_BINARY_BITS
};

static const double cost = 2.0; /* elementary operations an element, roughly */

/* An argument: a tensor, or a number. */
typedef tc_element_input argument;

/* Shapes and dtypes the gradients go back to, and the number where one argument was one. */
typedef struct binary_attributes {
    tc_binary_function function;
    tc_dtype compute;
    tc_scalar scalar;
    tc_dtype dtype[2];
    int ndim[2];
    int64_t shapes[2 * TC_MAX_DIMS]; /* a's, then b's; only as many as there are */
} binary_attributes;

/* ---- backward ----------------------------------------------------------------------------------------------------------- */

/* Is the gradient of argument i dy itself? */
static bool passes(tc_binary_function function, int i)
{
    return function == TC_BINARY_add || ((function == TC_BINARY_sub || function == TC_BINARY_remainder) && i == 0);
}

static tc_status gradient(tc_tensor **out, tc_node *node, int i, tc_tensor *dy, tc_error *err)
{
    const binary_attributes *at = node->attributes;
    const int64_t *shape = at->shapes + (i ? at->ndim[0] : 0);
    const int needs = rows[at->function].needs[i];
    tc_tensor *a = tc_node_saved(node, 0), *b = tc_node_saved(node, 1), *sum = NULL, *slope = NULL;
    tc_status status = TC_OK;
    if (needs == NONE) { /* linear in dy: sum first, there is less to do then */
        TC_TRY(tc_sum_to(&sum, dy, at->ndim[i], shape, at->dtype[i], err));
        dy = sum;
        if (passes(at->function, i)) {
            *out = tc_tensor_retain(dy);
            goto cleanup;
        }
    }
    const argument in[3] = {
        {.tensor = dy}, {.tensor = needs & A ? a : NULL, .scalar = at->scalar}, {.tensor = needs & B ? b : NULL, .scalar = at->scalar}};
    bool same = dy->ndim == at->ndim[i];
    for (int k = 0; same && k < dy->ndim; k++) same = dy->shape[k] == shape[k];
    TC_TRY(tc_tensor_like_as(&slope, dy, same ? at->dtype[i] : at->compute, err));
    TC_TRY(tc_run_elementwise(slope, 3, in, &tc_kernel_binary_backward, 2 * (int)at->function + i, at->compute, 2 * cost, err));
    TC_TRY(tc_sum_to(out, slope, at->ndim[i], shape, at->dtype[i], err));
cleanup:
    tc_tensor_release(sum);
    tc_tensor_release(slope);
    return status;
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    tc_status status = TC_OK;
    for (int i = 0; i < 2 && status == TC_OK; i++)
        if (tc_node_needs(node, i)) status = gradient(&grad_inputs[i], node, i, grad_outputs[0], err);
    return status;
}

static const tc_op ops[TC_BINARY_COUNT] = {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b) [TC_BINARY_##name] = {#name, backward, NULL},
#define TC_BINARY_FLAT(name, value)
#define TC_BINARY_BITS(name)
#include "../kernels/binary.def"
#undef TC_BINARY
#undef TC_BINARY_FLAT
#undef TC_BINARY_BITS
};

/* The bytes of *at that are used. */
static size_t describe(binary_attributes *at, tc_tensor *const inputs[2])
{
    int64_t *shape = at->shapes;
    for (int i = 0; i < 2; i++) {
        if (!inputs[i]) continue;
        at->dtype[i] = inputs[i]->dtype;
        at->ndim[i] = inputs[i]->ndim;
        for (int k = 0; k < inputs[i]->ndim; k++) *shape++ = inputs[i]->shape[k];
    }
    return (size_t)((char *)shape - (char *)at);
}

static tc_status record_binary(tc_tensor *out, const argument *a, const argument *b, tc_binary_function function, tc_dtype compute,
                               tc_error *err)
{
    tc_tensor *const inputs[2] = {a->tensor, b->tensor};
    if (!rows[function].has_gradient || !tc_tape_wants(2, inputs)) return TC_OK;
    binary_attributes at = {.function = function, .compute = compute, .scalar = a->tensor ? b->scalar : a->scalar};
    const size_t bytes = describe(&at, inputs);
    int needs = NONE;
    for (int i = 0; i < 2; i++)
        if (inputs[i] && tc_tensor_requires_grad(inputs[i])) needs |= rows[function].needs[i];
    tc_tensor *const saved[2] = {needs & A ? inputs[0] : NULL, needs & B ? inputs[1] : NULL};
    const tc_record record = {.op = &ops[function],
                              .input_count = 2,
                              .inputs = inputs,
                              .output_count = 1,
                              .outputs = &out,
                              .saved_count = needs == NONE ? 0 : 2,
                              .saved = saved,
                              .attributes = &at,
                              .attribute_bytes = bytes};
    return tc_tape_record(&record, err);
}

tc_status tc_binary_backward(tc_tensor **da, tc_tensor **db, tc_tensor *dy, tc_tensor *a, tc_tensor *b, tc_binary_function function,
                             tc_error *err)
{
    tc_tensor *const inputs[2] = {a, b};
    tc_tensor *found[2] = {NULL, NULL};
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(a, "a", err));
    TC_TRY(tc_check_same_dtype(a, "a", b, "b", err));
    TC_TRY(tc_check_same_device(a, "a", b, "b", err));
    TC_TRY(tc_broadcast_shape(&ndim, shape, a->ndim, a->shape, b->ndim, b->shape, err));
    TC_TRY(tc_check_gradient(dy, "dy", ndim, shape, a, "a", err));
    binary_attributes at = {.function = function, .compute = tc_compute_dtype(a->dtype)};
    (void)describe(&at, inputs);
    const tc_record record = {.op = &ops[function], .input_count = 2, .saved_count = 2, .saved = inputs, .attributes = &at};
    TC_TRY(tc_tape_apply(&record, dy, (tc_tensor * *[]){&found[0], &found[1]}, err));
    for (int i = 0; i < 2; i++) TC_TRY(tc_make_own(&found[i], dy, err));
    *da = tc_tensor_retain(found[0]);
    *db = tc_tensor_retain(found[1]);
cleanup:
    for (int i = 0; i < 2; i++) tc_tensor_release(found[i]);
    return status;
}

/* ---- forward ------------------------------------------------------------------------------------------------------------ */

static bool gives_bool(tc_binary_function function) { return function >= TC_BINARY_eq && function <= TC_BINARY_logical_xor; }
static bool is_bitwise(tc_binary_function function) { return function >= TC_BINARY_bitwise_and; }

/* Refuses what has no meaning; `dtype` is the promoted dtype. */
static tc_status check_meaning(tc_binary_function function, tc_dtype dtype, tc_error *err)
{
    const char *name = rows[function].name;
    if (is_bitwise(function) && tc_dtype_is_float(dtype))
        return tc_fail(err, TC_ERROR_TYPE,
                       "%s is for integers and bools, got %s; compare first, or use logical_and, logical_or, logical_xor", name,
                       tc_dtype_name(dtype));
    const bool no_bools =
        function == TC_BINARY_sub || function == TC_BINARY_pow || function == TC_BINARY_floor_divide || function == TC_BINARY_remainder;
    if (no_bools && dtype == TC_BOOL)
        return tc_fail(err, TC_ERROR_TYPE, "%s of two bools has no meaning; use ^ (logical_xor), or convert them with .long()", name);
    return TC_OK;
}

/* The smallest element of an integer tensor that has elements. */
static tc_status smallest_integer(int64_t *out, tc_tensor *x, tc_error *err)
{
    tc_tensor *smallest = NULL, *number = NULL;
    tc_axis_set set;
    tc_status status = TC_OK;
    TC_TRY(tc_read_axes(&set, x, -1, NULL, err));
    TC_TRY(tc_tensor_empty(&smallest, 0, NULL, TC_INT64, x->storage->device, err));
    TC_TRY(tc_run_reduction(smallest, x, &set, TC_STEP_min, NULL, 1.0, err));
    TC_TRY(tc_tensor_wrap(&number, out, 0, NULL, NULL, TC_INT64, true, NULL, NULL, err));
    TC_TRY(tc_tensor_copy(number, smallest, err));
cleanup:
    tc_tensor_release(smallest);
    tc_tensor_release(number);
    return status;
}

/* Exponents of integers: a negative one gives no integer. */
static tc_status check_exponents(const argument *b, tc_error *err)
{
    int64_t smallest = b->tensor ? 0 : b->scalar.integer;
    if (b->tensor && b->tensor->numel && (b->tensor->dtype == TC_INT64 || b->tensor->dtype == TC_INT32)) {
        const tc_status status = smallest_integer(&smallest, b->tensor, err);
        if (status != TC_OK) return status;
    }
    if (smallest >= 0) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE,
                   "Integers to negative integer powers are not allowed: there is an exponent of %" PRId64
                   "; convert the base with .float()",
                   smallest);
}

static tc_status result_shape(int *ndim, int64_t shape[TC_MAX_DIMS], const argument *a, const argument *b, tc_error *err)
{
    const tc_tensor *x = a->tensor ? a->tensor : b->tensor, *y = b->tensor ? b->tensor : a->tensor;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): one of the two is a tensor */
    return tc_broadcast_shape(ndim, shape, x->ndim, x->shape, y->ndim, y->shape, err);
}

static tc_status binary(tc_tensor **out, const argument *a, const argument *b, tc_binary_function function, tc_error *err)
{
    tc_tensor *result = NULL;
    const tc_tensor *either = a->tensor ? a->tensor : b->tensor;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    tc_status status = TC_OK;
    tc_dtype dtype = tc_result_dtype(a->tensor, a->scalar, b->tensor, b->scalar);
    TC_TRY(tc_check_same_device(a->tensor, "the first argument", b->tensor, "the second", err));
    TC_TRY(check_meaning(function, dtype, err));
    if (function == TC_BINARY_pow && !tc_dtype_is_float(dtype)) TC_TRY(check_exponents(b, err));
    TC_TRY(result_shape(&ndim, shape, a, b, err));
    if (function == TC_BINARY_div && !tc_dtype_is_float(dtype)) dtype = TC_FLOAT32;
    const bool floating = tc_dtype_is_float(dtype);
    const tc_dtype compute = tc_compute_dtype(dtype);
    TC_TRY(tc_tensor_empty(&result, ndim, shape, gives_bool(function) ? TC_BOOL : dtype, either->storage->device, err));
    const argument in[2] = {*a, *b};
    TC_TRY(
        tc_run_elementwise(result, 2, in, floating ? &tc_kernel_binary_forward : &tc_kernel_integer_binary, function, compute, cost, err));
    if (floating) TC_TRY(record_binary(result, a, b, function, compute, err));
    *out = tc_tensor_retain(result);
cleanup:
    tc_tensor_release(result);
    return status;
}

tc_status tc_binary(tc_tensor **out, tc_tensor *a, tc_tensor *b, tc_binary_function function, tc_error *err)
{
    const argument x = {.tensor = a}, y = {.tensor = b};
    return binary(out, &x, &y, function, err);
}

tc_status tc_binary_scalar(tc_tensor **out, tc_tensor *a, tc_scalar b, bool scalar_first, tc_binary_function function, tc_error *err)
{
    const argument x = {.tensor = a}, y = {.scalar = b};
    return scalar_first ? binary(out, &y, &x, function, err) : binary(out, &x, &y, function, err);
}
