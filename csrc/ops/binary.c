/* binary.c: functions of two arguments, the rows of kernels/binary.def.
 *
 * Saved for the backward: a and b as far as the rows say that a wanted gradient reads them. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "../core/broadcast.h"
#include "../core/copy.h"
#include "../core/elementwise.h"
#include "../core/reduction.h"
#include "../core/own.h"
#include "op.h"
#include "view.h"

enum { NONE, A, B, BOTH };

static const struct {
    const char *name;
    bool has_gradient;
    int needs[2]; /* the operands that the gradients of a and b read */
} rows[TC_BINARY_COUNT] = {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b) [TC_BINARY_##name] = {#name, true, {needs_a, needs_b}},
#define TC_BINARY_FLAT(name, value) [TC_BINARY_##name] = {#name, false, {NONE, NONE}},
#define TC_BINARY_BITS(name) [TC_BINARY_##name] = {#name, false, {NONE, NONE}},
#include "../kernels/binary.def"
#undef TC_BINARY
#undef TC_BINARY_FLAT
#undef TC_BINARY_BITS
};

static const double cost = 2.0; /* elementary operations per element, roughly */

/* Shapes and dtypes of the gradients, and the number where one argument was a number. */
typedef struct binary_attributes {
    tc_binary_function function;
    tc_dtype compute;
    tc_scalar scalar;
    tc_dtype dtype[2];
    int ndim[2];
    int64_t shapes[2 * TC_MAX_DIMS]; /* a's, then b's; only as many as there are */
} binary_attributes;

/* Returns the bytes of *at that are used. */
static size_t describe(binary_attributes *at, const tc_tensor *a, const tc_tensor *b)
{
    const tc_tensor *const inputs[2] = {a, b};
    int64_t *shape = at->shapes;
    for (int i = 0; i < 2; i++) {
        if (!inputs[i]) continue;
        at->dtype[i] = inputs[i]->dtype;
        at->ndim[i] = inputs[i]->ndim;
        for (int k = 0; k < inputs[i]->ndim; k++) *shape++ = inputs[i]->shape[k];
    }
    return (size_t)((char *)shape - (char *)at);
}

/* ---- cubes ----------------------------------------------------------------------------------------------------------------- */

/* Powers by 3 are products. b: NULL where it is a number. */
static bool is_cube(tc_binary_function function, const tc_tensor *a, const tc_tensor *b, const tc_scalar *number)
{
    return function == TC_BINARY_pow && a && !b && number->real == 3.0 && tc_tensor_on_cpu(a);
}

/* out = a^2 times each factor, all of one shape. Products of halves are rounded once, at the end. */
static tc_status square_times(tc_tensor *out, tc_tensor *a, int count, const tc_argument *factors, tc_error *err)
{
    const tc_dtype compute = tc_compute_dtype(a->dtype);
    TC_OWNED tc_tensor *wide = NULL;
    tc_tensor *product = out;
    if (out->dtype != compute) {
        TC_TRY(tc_tensor_like_as(&wide, out, compute, err));
        product = wide;
    }
    TC_TRY(tc_run_elementwise(product, 1, &(tc_argument){.tensor = a}, &tc_kernel_unary_forward, TC_UNARY_square, compute, cost, err));
    for (int i = 0; i < count; i++)
        TC_TRY(tc_run_elementwise(i == count - 1 ? out : product, 2, (tc_argument[]){{.tensor = product}, factors[i]},
                                  &tc_kernel_binary_forward, TC_BINARY_mul, compute, cost, err));
    return TC_OK;
}

/* ---- backward ----------------------------------------------------------------------------------------------------------- */

/* Is the gradient of argument i dy itself? */
static bool passes(tc_binary_function function, int i)
{
    return function == TC_BINARY_add || ((function == TC_BINARY_sub || function == TC_BINARY_remainder) && i == 0);
}

/* *out, unless out is NULL: the gradient of argument i. a and b as far as it reads them. */
static tc_status gradient(tc_tensor **out, const binary_attributes *at, int i, tc_tensor *dy, tc_tensor *a, tc_tensor *b, tc_error *err)
{
    const int64_t *shape = at->shapes + (i ? at->ndim[0] : 0);
    const int needs = rows[at->function].needs[i];
    TC_OWNED tc_tensor *sum = NULL, *slope = NULL;
    if (!out) return TC_OK;
    if (needs == NONE) { /* linear in dy: sum first, which leaves less to compute */
        TC_TRY(tc_sum_to(&sum, dy, at->ndim[i], shape, at->dtype[i], err));
        if (passes(at->function, i)) {
            *out = tc_take(&sum);
            return TC_OK;
        }
        dy = sum;
    }
    const tc_argument in[3] = {
        {.tensor = dy}, {.tensor = needs & A ? a : NULL, .scalar = at->scalar}, {.tensor = needs & B ? b : NULL, .scalar = at->scalar}};
    bool same = dy->ndim == at->ndim[i];
    for (int k = 0; same && k < dy->ndim; k++) same = dy->shape[k] == shape[k];
    TC_TRY(tc_tensor_like_as(&slope, dy, same ? at->dtype[i] : at->compute, err));
    if (i == 0 && is_cube(at->function, a, b, &at->scalar)) {
        TC_TRY(square_times(slope, a, 2, (tc_argument[]){{.tensor = dy}, {.scalar = at->scalar}}, err));
        *out = tc_take(&slope);
        return TC_OK;
    }
    TC_TRY(tc_run_elementwise(slope, 3, in, &tc_kernel_binary_backward, 2 * (int)at->function + i, at->compute, 2 * cost, err));
    return tc_sum_to(out, slope, at->ndim[i], shape, at->dtype[i], err);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    tc_tensor *const a = tc_node_saved(node, 0), *const b = tc_node_saved(node, 1);
    for (int i = 0; i < 2; i++) TC_TRY(gradient(tc_wanted(node, grad_inputs, i), node->attributes, i, grad_outputs[0], a, b, err));
    return TC_OK;
}

static const tc_op ops[TC_BINARY_COUNT] = {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b) [TC_BINARY_##name] = {#name, backward},
#define TC_BINARY_FLAT(name, value)
#define TC_BINARY_BITS(name)
#include "../kernels/binary.def"
#undef TC_BINARY
#undef TC_BINARY_FLAT
#undef TC_BINARY_BITS
};

tc_status tc_binary_backward(tc_tensor **da, tc_tensor **db, tc_tensor *dy, tc_tensor *a, tc_tensor *b, tc_binary_function function,
                             tc_error *err)
{
    tc_tensor **const out[2] = {da, db};
    TC_OWNED tc_tensor *of_a = NULL, *of_b = NULL;
    tc_tensor **const found[2] = {&of_a, &of_b};
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    TC_TRY(tc_check_float(a, "a", err));
    TC_TRY(tc_check_same_dtype(a, "a", b, "b", err));
    TC_TRY(tc_check_same_device(a, "a", b, "b", err));
    TC_TRY(tc_broadcast_shape(&ndim, shape, a->ndim, a->shape, b->ndim, b->shape, err));
    TC_TRY(tc_check_gradient(dy, "dy", ndim, shape, a, "a", err));
    binary_attributes at = {.function = function, .compute = tc_compute_dtype(a->dtype)};
    (void)describe(&at, a, b);
    for (int i = 0; i < 2; i++) {
        if (!out[i]) continue;
        TC_TRY(gradient(found[i], &at, i, dy, a, b, err));
        TC_TRY(tc_make_own(found[i], dy, err));
    }
    for (int i = 0; i < 2; i++)
        if (out[i]) *out[i] = tc_take(found[i]);
    return TC_OK;
}

/* ---- forward ------------------------------------------------------------------------------------------------------------ */

static bool gives_bool(tc_binary_function function) { return function >= TC_BINARY_eq && function <= TC_BINARY_logical_xor; }
static bool is_bitwise(tc_binary_function function) { return function >= TC_BINARY_bitwise_and; }

/* Functions of integers and bools. */
static const bool on_integers[TC_BINARY_COUNT] = {
#define TC_INTEGER_UNARY(name, value)
#define TC_INTEGER_BINARY(name, value) [TC_BINARY_##name] = true,
#include "../kernels/integer.def"
#undef TC_INTEGER_UNARY
#undef TC_INTEGER_BINARY
};

/* Refuses functions without a meaning for the dtype; `dtype` is the promoted dtype. */
static tc_status check_meaning(tc_binary_function function, tc_dtype dtype, tc_error *err)
{
    const char *name = rows[function].name;
    if (!tc_dtype_is_float(dtype) && !on_integers[function] && function != TC_BINARY_div) /* a quotient of integers is a float32 */
        return tc_fail(err, TC_ERROR_TYPE, "%s of %s has no meaning; convert it with .float() or np.float32", name, tc_dtype_name(dtype));
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
static tc_status smallest_integer(int64_t *out, const tc_tensor *x, tc_error *err)
{
    TC_OWNED tc_tensor *smallest = NULL, *number = NULL;
    tc_axis_set set;
    TC_TRY(tc_read_axes(&set, x, -1, NULL, err));
    TC_TRY(tc_tensor_empty(&smallest, 0, NULL, TC_INT64, x->storage->device, err));
    TC_TRY(tc_run_reduction(smallest, x, &set, TC_STEP_min, NULL, 1.0, err));
    TC_TRY(tc_tensor_wrap(&number, out, 0, NULL, NULL, TC_INT64, true, NULL, NULL, err));
    return tc_tensor_copy(number, smallest, err);
}

/* Exponents of integers: a negative one gives no integer. */
static tc_status check_exponents(const tc_argument *b, tc_error *err)
{
    int64_t smallest = b->tensor ? 0 : b->scalar.integer;
    if (b->tensor && b->tensor->numel && (b->tensor->dtype == TC_INT64 || b->tensor->dtype == TC_INT32))
        TC_TRY(smallest_integer(&smallest, b->tensor, err));
    if (smallest >= 0) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE,
                   "Integers to negative integer powers are not allowed: there is an exponent of %" PRId64
                   "; convert the base with .float()",
                   smallest);
}

/* A number, or a tensor of one, must fit the dtype of the tensor of integers that it is combined with: it would wrap around. Comparisons
 * are computed in int64 and take any. */
static tc_status check_numbers(const tc_argument *a, const tc_argument *b, tc_binary_function function, tc_dtype dtype, tc_error *err)
{
    if (tc_dtype_is_float(dtype) || gives_bool(function)) return TC_OK;
    TC_TRY(a->tensor ? tc_check_value_fits(a->tensor, dtype, err) : tc_check_number_fits(a->scalar, dtype, err));
    return b->tensor ? tc_check_value_fits(b->tensor, dtype, err) : tc_check_number_fits(b->scalar, dtype, err);
}

static tc_status result_shape(int *ndim, int64_t shape[TC_MAX_DIMS], const tc_argument *a, const tc_argument *b, tc_error *err)
{
    const tc_tensor *x = a->tensor ? a->tensor : b->tensor, *y = b->tensor ? b->tensor : a->tensor;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): one of the two is a tensor */
    return tc_broadcast_shape(ndim, shape, x->ndim, x->shape, y->ndim, y->shape, err);
}

/* Puts the op on the tape where there is a gradient, and gives the result away. */
static tc_status finish(tc_scope *s, tc_tensor **out, tc_tensor *result, const tc_argument *a, const tc_argument *b,
                        tc_binary_function function)
{
    tc_tensor *const inputs[2] = {a->tensor, b->tensor};
    if (!rows[function].has_gradient || !tc_dtype_is_float(result->dtype) || !tc_tape_wants(2, inputs)) {
        tc_give(s, out, result);
        return TC_OK;
    }
    binary_attributes at = {.function = function, .compute = s->kernels, .scalar = a->tensor ? b->scalar : a->scalar};
    const size_t bytes = describe(&at, inputs[0], inputs[1]);
    int needs = NONE;
    for (int i = 0; i < 2; i++)
        if (inputs[i] && tc_tensor_requires_grad(inputs[i])) needs |= rows[function].needs[i];
    tc_tensor *const saved[2] = {needs & A ? inputs[0] : NULL, needs & B ? inputs[1] : NULL};
    return tc_finish(
        s, out, result,
        &(tc_record){
            .op = &ops[function], .saved = saved, .saved_count = needs == NONE ? 0 : 2, .attributes = &at, .attribute_bytes = bytes});
}

/* Powers by numbers that need no logarithm, as in PyTorch: *out stays NULL for any other. Written to the target where that is possible. */
static tc_status simple_power(tc_tensor **out, tc_tensor *target, const tc_argument *a, const tc_argument *b, tc_error *err)
{
    static const struct {
        double exponent;
        tc_unary_function function;
        const char *name;
    } simple[] = {{2.0, TC_UNARY_square, "square"},
                  {0.5, TC_UNARY_sqrt, "sqrt"},
                  {-0.5, TC_UNARY_rsqrt, "rsqrt"},
                  {-1.0, TC_UNARY_reciprocal, "reciprocal"}};
    if (!a->tensor || b->tensor || !tc_dtype_is_float(tc_result_dtype(a, b))) return TC_OK;
    const bool is_float = tc_dtype_is_float(a->tensor->dtype);
    TC_OWNED tc_tensor *cast = NULL;
    for (size_t i = 0; i < sizeof simple / sizeof *simple; i++) {
        if (b->scalar.real != simple[i].exponent) continue;
        if (!is_float) { /* of integers: roots alone, which are the same in their dtype */
            TC_TRY(tc_cast(&cast, a->tensor, tc_result_dtype(a, b), err));
            return tc_unary(out, cast, simple[i].function, err);
        }
        if (target) TC_TRY(tc_compute_into(out, target, simple[i].name, 1, a, err));
        return *out ? TC_OK : tc_unary(out, a->tensor, simple[i].function, err);
    }
    return TC_OK;
}

/* `target`: NULL, or `a`, which is written where that is possible: *out then stays NULL. */
static tc_status compute(tc_tensor **out, tc_tensor *target, const tc_argument *a, const tc_argument *b, tc_binary_function function,
                         tc_error *err)
{
    TC_SCOPE(s, err);
    tc_argument in[2] = {*a, *b};
    tc_dtype dtype = tc_result_dtype(a, b);
    tc_tensor *power = NULL;
    if (function == TC_BINARY_pow) TC_TRY(simple_power(&power, target, a, b, err));
    if (power) {
        *out = power == target ? NULL : power;
        if (power == target) tc_tensor_release(power);
        return TC_OK;
    }
    if (!a->tensor && !b->tensor) { /* two numbers: the first becomes a tensor without axes */
        TC_TRY(tc_tensor_full(&in[0].tensor, 0, NULL, a->scalar.real, tc_result_dtype(a, a), (tc_device){TC_CPU, 0}, err));
        TC_TRY(tc_own(&s, in[0].tensor));
        if (in[0].tensor->dtype == TC_INT64) memcpy(in[0].tensor->data, &a->scalar.integer, sizeof a->scalar.integer);
    }
    for (int i = 0; i < 2; i++) TC_TRY(tc_bring_number(&s, &in[i].tensor, in[1 - i].tensor));
    tc_input inputs[] = {{"the first argument", in[0].tensor}, {"the second", in[1].tensor}};
    tc_tensor *result;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    TC_TRY(check_meaning(function, dtype, err));
    if (function == TC_BINARY_div && !tc_dtype_is_float(dtype)) dtype = TC_FLOAT32;
    if (function == TC_BINARY_clamp_min || function == TC_BINARY_clamp_max) TC_TRY(tc_round_number(&in[1], dtype, err));
    const bool floating = tc_dtype_is_float(dtype);
    TC_TRY(tc_begin_elements(&s, inputs, 2, dtype, gives_bool(function) ? TC_BOOL : dtype));
    if (function == TC_BINARY_pow && !floating) TC_TRY(check_exponents(b, err));
    TC_TRY(check_numbers(a, b, function, dtype, err));
    TC_TRY(result_shape(&ndim, shape, &in[0], &in[1], err));
    const bool cube = floating && is_cube(function, in[0].tensor, in[1].tensor, &b->scalar);
    tc_tensor *const given[2] = {in[0].tensor, in[1].tensor}; /* the first is another one than the target where that was brought to a GPU */
    const bool in_place = target && !cube && given[0] == target && tc_takes_result(target, s.result, ndim, shape, 2, given);
    const tc_kernel *const kernel = floating ? &tc_kernel_binary_forward : &tc_kernel_integer_binary;
    if (in_place) {
        *out = NULL;
        return tc_write_elementwise(target, 2, in, kernel, (int)function, s.kernels, cost, err);
    }
    TC_TRY(tc_make(&s, &result, ndim, shape));
    if (cube)
        TC_TRY(square_times(result, in[0].tensor, 1, in, err));
    else
        TC_TRY(tc_run_elementwise(result, 2, in, kernel, (int)function, s.kernels, cost, err));
    return finish(&s, out, result, &in[0], &in[1], function);
}

tc_status tc_binary_arguments(tc_tensor **out, const tc_argument *a, const tc_argument *b, tc_binary_function function, tc_error *err)
{
    return compute(out, NULL, a, b, function, err);
}

tc_status tc_binary_in_place(tc_tensor **out, tc_tensor *target, const tc_argument *b, tc_binary_function function, tc_error *err)
{
    return compute(out, target, &(tc_argument){.tensor = target}, b, function, err);
}

tc_status tc_binary(tc_tensor **out, tc_tensor *a, tc_tensor *b, tc_binary_function function, tc_error *err)
{
    return tc_binary_arguments(out, &(tc_argument){.tensor = a}, &(tc_argument){.tensor = b}, function, err);
}

tc_status tc_binary_scalar(tc_tensor **out, tc_tensor *a, tc_scalar b, bool scalar_first, tc_binary_function function, tc_error *err)
{
    const tc_argument tensor = {.tensor = a}, number = {.scalar = b};
    return tc_binary_arguments(out, scalar_first ? &number : &tensor, scalar_first ? &tensor : &number, function, err);
}
