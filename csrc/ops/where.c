/* where.c: the choice between two tensors or numbers, element by element.
 *
 * Saved for the backward: the condition. */
#include <string.h>

#include "../core/broadcast.h"
#include "../core/copy.h"
#include "../core/elementwise.h"
#include "../core/reduction.h"
#include "op.h"

typedef struct where_attributes {
    tc_dtype dtype[2];
    int ndim[2];
    int64_t shapes[2][TC_MAX_DIMS];
} where_attributes;

static where_attributes describe(const tc_tensor *a, const tc_tensor *b)
{
    const tc_tensor *const inputs[2] = {a, b};
    where_attributes at;
    for (int i = 0; i < 2; i++) {
        if (!inputs[i]) continue;
        at.dtype[i] = inputs[i]->dtype;
        at.ndim[i] = inputs[i]->ndim;
        memcpy(at.shapes[i], inputs[i]->shape, sizeof(int64_t) * (size_t)inputs[i]->ndim);
    }
    return at;
}

static const double cost = 2.0;

enum { CONDITION, OF_A, OF_B, INPUTS };

/* *out, unless out is NULL: da (i = 0) is dy where the condition is set and 0 elsewhere; db (i = 1) the reverse. */
static tc_status gradient(tc_tensor **out, const where_attributes *at, int i, tc_tensor *dy, tc_tensor *condition, tc_error *err)
{
    const tc_argument taken = {.tensor = dy}, zero = {.scalar = tc_scalar_real(0.0)};
    const tc_argument in[3] = {{.tensor = condition}, i == 0 ? taken : zero, i == 0 ? zero : taken};
    TC_OWNED tc_tensor *chosen = NULL;
    if (!out) return TC_OK;
    TC_TRY(tc_tensor_like(&chosen, dy, err));
    TC_TRY(tc_run_elementwise(chosen, 3, in, &tc_kernel_where_forward, TC_CHOICE_where, tc_compute_dtype(dy->dtype), cost, err));
    return tc_sum_to(out, chosen, at->ndim[i], at->shapes[i], at->dtype[i], err);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    tc_tensor *const condition = tc_node_saved(node, 0);
    for (int i = 0; i < 2; i++)
        TC_TRY(gradient(tc_wanted(node, grad_inputs, OF_A + i), node->attributes, i, grad_outputs[0], condition, err));
    return TC_OK;
}

static const tc_op where_op = {"where", backward, .attribute_bytes = sizeof(where_attributes)};

/* The shape that the condition and a and b, as far as they are tensors, broadcast to. */
static tc_status result_shape(int *ndim, int64_t shape[TC_MAX_DIMS], const tc_tensor *condition, const tc_tensor *a, const tc_tensor *b,
                              tc_error *err)
{
    *ndim = condition->ndim;
    memcpy(shape, condition->shape, sizeof(int64_t) * (size_t)*ndim);
    if (a) TC_TRY(tc_broadcast_shape(ndim, shape, *ndim, shape, a->ndim, a->shape, err));
    if (b) TC_TRY(tc_broadcast_shape(ndim, shape, *ndim, shape, b->ndim, b->shape, err));
    return TC_OK;
}

static tc_status check_condition(const tc_tensor *condition, tc_error *err)
{
    if (!tc_dtype_is_float(condition->dtype)) return TC_OK;
    return tc_fail(err, TC_ERROR_TYPE, "condition is %s; where needs a bool condition: compare first, as in x > 0",
                   tc_dtype_name(condition->dtype));
}

tc_status tc_where(tc_tensor **out, tc_tensor *condition, const tc_argument *a, const tc_argument *b, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_argument chosen[2] = {*a, *b};
    tc_tensor *result;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    const tc_dtype dtype = tc_result_dtype(a, b);
    const bool floating = tc_dtype_is_float(dtype);
    TC_TRY(check_condition(condition, err));
    if (!a->tensor) TC_TRY(tc_check_number_fits(a->scalar, dtype, err));
    if (!b->tensor) TC_TRY(tc_check_number_fits(b->scalar, dtype, err));
    for (int i = 0; i < 2; i++) TC_TRY(tc_bring_number(&s, &chosen[i].tensor, condition));
    tc_input in[INPUTS] = {[CONDITION] = {"condition", condition},
                           [OF_A] = {"the second argument", chosen[0].tensor},
                           [OF_B] = {"the third argument", chosen[1].tensor}};
    TC_TRY(tc_begin_elements(&s, in, INPUTS, dtype, dtype));
    TC_TRY(result_shape(&ndim, shape, condition, chosen[0].tensor, chosen[1].tensor, err));
    TC_TRY(tc_make(&s, &result, ndim, shape));
    TC_TRY(tc_run_elementwise(result, 3, (tc_argument[]){{.tensor = condition}, chosen[0], chosen[1]},
                              floating ? &tc_kernel_where_forward : &tc_kernel_integer_where, TC_CHOICE_where, s.kernels, cost, err));
    if (!floating) {
        tc_give(&s, out, result);
        return TC_OK;
    }
    const where_attributes at = describe(chosen[0].tensor, chosen[1].tensor);
    return tc_finish(&s, out, result, &(tc_record){.op = &where_op, TC_SAVED(condition), .attributes = &at});
}

tc_status tc_where_backward(tc_tensor **da, tc_tensor **db, tc_tensor *dy, tc_tensor *condition, tc_tensor *a, tc_tensor *b, tc_error *err)
{
    TC_OWNED tc_tensor *of_a = NULL, *of_b = NULL;
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    TC_TRY(check_condition(condition, err));
    TC_TRY(tc_check_float(a, "a", err));
    TC_TRY(tc_check_same_dtype(a, "a", b, "b", err));
    TC_TRY(tc_check_same_device(a, "a", b, "b", err));
    TC_TRY(tc_check_same_device(a, "a", condition, "condition", err));
    TC_TRY(result_shape(&ndim, shape, condition, a, b, err));
    TC_TRY(tc_check_gradient(dy, "dy", ndim, shape, a, "a", err));
    const where_attributes at = describe(a, b);
    TC_TRY(gradient(da ? &of_a : NULL, &at, 0, dy, condition, err));
    TC_TRY(gradient(db ? &of_b : NULL, &at, 1, dy, condition, err));
    if (da) *da = tc_take(&of_a);
    if (db) *db = tc_take(&of_b);
    return TC_OK;
}
