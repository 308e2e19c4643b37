/* compute_into.c: functions of elements that are computed into an existing tensor, or in one pass instead of several. */
#include <string.h>

#include "../core/broadcast.h"
#include "../core/elementwise.h"
#include "op.h"
#include "view.h"

static const double cost = 4.0;

typedef struct function {
    const char *name;
    const tc_kernel *kernel;
    int id, inputs;
} function;

static const function functions[] = {
#define TC_UNARY(name, saved, value, gradient) {#name, &tc_kernel_unary_forward, TC_UNARY_##name, 1},
#include "../kernels/unary.def"
#undef TC_UNARY
    {"clamp_min", &tc_kernel_binary_forward, TC_BINARY_clamp_min, 2},
    {"clamp_max", &tc_kernel_binary_forward, TC_BINARY_clamp_max, 2},
    {"clamp", &tc_kernel_where_forward, TC_CHOICE_clamp, 3},
    {"add_product", &tc_kernel_where_forward, TC_CHOICE_add_product, 3},
    {"lerp", &tc_kernel_where_forward, TC_CHOICE_lerp, 3},
    {"same", &tc_kernel_where_forward, TC_CHOICE_same, 3}, /* x, where the others are equal, or 0 */
};

static const function *find(const char *name, int inputs)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i].inputs == inputs && strcmp(functions[i].name, name) == 0) return &functions[i];
    return NULL;
}

/* The kernel for this dtype, or NULL. */
static const tc_kernel *kernel_for(const function *f, tc_dtype dtype)
{
    if (tc_dtype_is_float(dtype)) return f->kernel;
    if (dtype == TC_BOOL) return NULL;
    if (f->inputs == 2) return &tc_kernel_integer_binary;
    if (f->inputs == 3) return f->id == TC_CHOICE_clamp ? &tc_kernel_integer_where : NULL;
    switch (f->id) {
#define TC_INTEGER_UNARY(name, value) case TC_UNARY_##name:
#define TC_INTEGER_BINARY(name, value)
#include "../kernels/integer.def"
#undef TC_INTEGER_UNARY
#undef TC_INTEGER_BINARY
        return &tc_kernel_integer_unary;
    default: return NULL;
    }
}

/* Is it a number of this dtype, as it is? */
static bool is_number_of(tc_scalar number, tc_dtype dtype)
{
    tc_error unfit;
    return tc_dtype_is_float(dtype) || (!tc_dtype_is_float(number.kind) && tc_check_number_fits(number, dtype, &unfit) == TC_OK);
}

/* Has it the bits of the ops that it replaces? Bounds that are crossed, or NaN, are applied in turn, and numbers in float64. */
static bool is_exact(const function *f, const tc_argument *in, tc_dtype dtype)
{
    for (int k = 1; k < f->inputs; k++)
        if (!in[k].tensor && !is_number_of(in[k].scalar, dtype)) return false;
    if (f->kernel != &tc_kernel_where_forward) return true;
    if (f->id != TC_CHOICE_clamp) return in[1].tensor;
    if (in[1].tensor || in[2].tensor) return false;
    return tc_dtype_is_float(dtype) ? in[1].scalar.real <= in[2].scalar.real : in[1].scalar.integer <= in[2].scalar.integer;
}

bool tc_takes_result(tc_tensor *target, tc_dtype dtype, int ndim, const int64_t *shape, int count, tc_tensor *const *given)
{
    if (!tc_tensor_on_cpu(target) || target->dtype != dtype || !tc_has_shape(target, ndim, shape)) return false;
    if (tc_tape_wants(1, &target) || tc_tape_wants(count, given) || tc_tape_is_stale(target)) return false;
    if (!target->contiguous && !tc_layout_is_distinct(ndim, shape, target->strides)) return false;
    for (int k = 0; k < count; k++) {
        const tc_tensor *const x = given[k];
        if (x && tc_may_overlap(target, x) && (x->dtype != dtype || !tc_tensor_same_view(target, x))) return false;
    }
    return true;
}

tc_status tc_compute_into(tc_tensor **out, tc_tensor *target, const char *name, int inputs, const tc_argument *in, tc_error *err)
{
    TC_SCOPE(s, err);
    const function *f = find(name, inputs);
    tc_tensor *tensors[TC_ELEMENT_INPUTS], *result = target, *const first = in[0].tensor;
    int ndim = 0, count = 0;
    int64_t shape[TC_MAX_DIMS];
    *out = NULL;
    if (!f || !first) return TC_OK;
    const tc_kernel *const kernel = kernel_for(f, first->dtype);
    if (!kernel || !is_exact(f, in, first->dtype)) return TC_OK;
    for (int k = 0; k < inputs; k++) {
        tc_tensor *const tensor = in[k].tensor;
        if (!tensor) continue;
        if (tensor->dtype != first->dtype || !tc_tensor_on_cpu(tensor)) return TC_OK;
        TC_TRY(tc_broadcast_shape(&ndim, shape, ndim, shape, tensor->ndim, tensor->shape, err));
        tensors[count++] = tensor;
    }
    if (tc_tape_wants(count, tensors) || (target && !tc_takes_result(target, first->dtype, ndim, shape, count, tensors))) return TC_OK;
    TC_TRY(tc_begin_elements(&s, &(tc_input){"x", first}, 1, first->dtype, first->dtype));
    if (target) {
        TC_TRY(tc_write_elementwise(target, inputs, in, kernel, f->id, s.kernels, cost, err));
    } else {
        TC_TRY(tc_make(&s, &result, ndim, shape));
        TC_TRY(tc_run_elementwise(result, inputs, in, kernel, f->id, s.kernels, cost, err));
    }
    tc_give(&s, out, result);
    return TC_OK;
}
