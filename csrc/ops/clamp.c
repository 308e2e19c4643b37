/* clamp.c: elements between two bounds.
 *
 * Saved for the backward: x and y, of n elements each. Bounds that are no numbers, or that are crossed, and what no kernel here computes:
 * one bound after the other (clamp_min and clamp_max of kernels/binary.def). */
#include "../core/elementwise.h"
#include "../core/own.h"
#include "op.h"

static const double cost = 2.0;

static tc_status clamp_gradient(tc_tensor **out, tc_tensor *dy, tc_tensor *x, tc_tensor *y, tc_error *err)
{
    TC_OWNED tc_tensor *dx = NULL;
    TC_TRY(tc_tensor_like(&dx, dy, err));
    TC_TRY(tc_run_elementwise(dx, 3, (tc_argument[]){{.tensor = dy}, {.tensor = x}, {.tensor = y}}, &tc_kernel_where_forward,
                              TC_CHOICE_same, tc_compute_dtype(dy->dtype), cost, err));
    *out = tc_take(&dx);
    return TC_OK;
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    return clamp_gradient(&grad_inputs[0], grad_outputs[0], tc_node_saved(node, 0), tc_node_saved(node, 1), err);
}

static const tc_op clamp_op = {"clamp", backward};

static bool is_one_pass(const tc_tensor *x, const tc_argument *min, const tc_argument *max)
{
    return !min->tensor && !max->tensor && tc_dtype_is_float(x->dtype) && min->scalar.real <= max->scalar.real;
}

/* Integers between numbers of their dtype, on CPUs. */
static bool is_one_pass_of_integers(const tc_tensor *x, const tc_argument *min, const tc_argument *max)
{
    if (min->tensor || max->tensor || tc_dtype_is_float(x->dtype) || x->storage->device.type != TC_CPU) return false;
    const tc_argument of_x = {.tensor = (tc_tensor *)x};
    return tc_result_dtype(&of_x, min) == x->dtype && tc_result_dtype(&of_x, max) == x->dtype;
}

static tc_status clamp_integers(tc_tensor **y, tc_tensor *x, const tc_argument *min, const tc_argument *max, tc_error *err)
{
    TC_OWNED tc_tensor *out = NULL;
    TC_TRY(tc_check_number_fits(min->scalar, x->dtype, err));
    TC_TRY(tc_check_number_fits(max->scalar, x->dtype, err));
    TC_TRY(tc_tensor_empty(&out, x->ndim, x->shape, x->dtype, x->storage->device, err));
    TC_TRY(tc_run_elementwise(out, 3, (tc_argument[]){{.tensor = x}, *min, *max}, &tc_kernel_integer_where, TC_CHOICE_clamp, TC_FLOAT32,
                              cost, err));
    *y = tc_take(&out);
    return TC_OK;
}

tc_status tc_clamp(tc_tensor **y, tc_tensor *x, const tc_argument *min, const tc_argument *max, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *out;
    if (is_one_pass_of_integers(x, min, max)) return clamp_integers(y, x, min, max, err);
    if (!is_one_pass(x, min, max)) {
        TC_TRY(tc_binary_arguments(&out, &(tc_argument){.tensor = x}, min, TC_BINARY_clamp_min, err));
        TC_TRY(tc_own(&s, out));
        return tc_binary_arguments(y, &(tc_argument){.tensor = out}, max, TC_BINARY_clamp_max, err);
    }
    tc_argument of[3] = {{.tensor = x}, *min, *max};
    for (int i = 1; i < 3; i++) TC_TRY(tc_round_number(&of[i], x->dtype, err));
    TC_TRY(tc_begin_elements(&s, in, 1, x->dtype, x->dtype));
    TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    TC_TRY(tc_run_elementwise(out, 3, of, &tc_kernel_where_forward, TC_CHOICE_clamp, s.kernels, cost, err));
    return tc_finish(&s, y, out, &(tc_record){.op = &clamp_op, TC_SAVED(x, out)});
}

tc_status tc_clamp_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, tc_error *err)
{
    TC_TRY(tc_check_float(x, "x", err));
    TC_TRY(tc_check_same_dtype(x, "x", y, "y", err));
    TC_TRY(tc_check_same_device(x, "x", y, "y", err));
    TC_TRY(tc_check_gradient(y, "y", x->ndim, x->shape, x, "x", err));
    TC_TRY(tc_check_gradient(dy, "dy", x->ndim, x->shape, x, "x", err));
    return clamp_gradient(dx, dy, x, y, err);
}
