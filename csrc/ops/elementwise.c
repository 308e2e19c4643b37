/* elementwise.c: see elementwise.h. */
#include "elementwise.h"

#include <string.h>

#include "../core/backend.h"
#include "../core/layout.h"
#include "view.h"

static void set_operand(tc_operand *operand, const tc_element_input *input, int ndim, const int64_t *shape)
{
    const tc_tensor *tensor = input->tensor;
    if (tensor) {
        operand->data = tensor->data;
        operand->dtype = tensor->dtype;
        tc_broadcast_strides(operand->strides, tensor, ndim, shape);
    } else {
        operand->data = NULL;
        operand->value = input->scalar.real;
        operand->integer = input->scalar.integer;
        memset(operand->strides, 0, sizeof(int64_t) * (size_t)ndim);
    }
}

/* Every operand is the result's elements in the same order, or one number: a single axis. */
static bool is_flat(const tc_tensor *out, int inputs, const tc_element_input *in)
{
    if (!out->contiguous) return false;
    for (int k = 0; k < inputs; k++)
        if (in[k].tensor && !(in[k].tensor->contiguous && in[k].tensor->numel == out->numel)) return false;
    return true;
}

tc_status tc_run_elementwise(tc_tensor *out, int inputs, const tc_element_input *in, const tc_kernel *kernel, int function,
                             tc_dtype compute, double cost, tc_error *err)
{
    if (out->numel == 0) return TC_OK;
    tc_elementwise_args args;
    args.function = function;
    args.inputs = inputs;
    args.numel = out->numel;
    const tc_element_input result = {.tensor = out};
    if (is_flat(out, inputs, in)) {
        args.ndim = 1;
        args.shape[0] = out->numel;
        set_operand(&args.out, &result, 0, NULL);
        args.out.strides[0] = 1;
        for (int k = 0; k < inputs; k++) {
            set_operand(&args.in[k], &in[k], 0, NULL);
            args.in[k].strides[0] = in[k].tensor ? 1 : 0;
        }
    } else {
        int64_t *strides[TC_ELEMENT_INPUTS + 1] = {args.out.strides};
        memcpy(args.shape, out->shape, sizeof(int64_t) * (size_t)out->ndim);
        set_operand(&args.out, &result, out->ndim, out->shape);
        for (int k = 0; k < inputs; k++) {
            set_operand(&args.in[k], &in[k], out->ndim, out->shape);
            strides[k + 1] = args.in[k].strides;
        }
        args.ndim = tc_layout_merge(out->ndim, args.shape, inputs + 1, strides, true);
    }
    const int64_t items = (out->numel + TC_ELEMENT_BLOCK - 1) / TC_ELEMENT_BLOCK;
    const int64_t item = out->numel < TC_ELEMENT_BLOCK ? out->numel : TC_ELEMENT_BLOCK;
    return tc_run(out->storage->device, compute, kernel, &args, items, cost * (double)item, 0, err);
}

tc_status tc_broadcast_view(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, tc_error *err)
{
    int64_t strides[TC_MAX_DIMS];
    tc_broadcast_strides(strides, x, ndim, shape);
    return tc_tensor_alias(out, x, ndim, shape, strides, 0, err);
}

tc_status tc_sum_to(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, tc_dtype dtype, tc_error *err)
{
    tc_tensor *sum;
    tc_status status = tc_sum_to_shape(&sum, x, ndim, shape, err);
    if (status != TC_OK || sum->dtype == dtype) {
        if (status == TC_OK) *out = sum;
        return status;
    }
    status = tc_tensor_as(out, sum, dtype, err);
    tc_tensor_release(sum);
    return status;
}

/* Bools, integers, floats. */
static int kind_of(tc_dtype dtype) { return tc_dtype_is_float(dtype) ? 2 : dtype != TC_BOOL; }

tc_dtype tc_result_dtype(const tc_tensor *a, tc_scalar a_scalar, const tc_tensor *b, tc_scalar b_scalar)
{
    const tc_tensor *tensors[2] = {a, b};
    const tc_scalar scalars[2] = {a_scalar, b_scalar};
    /* Three levels: tensors with axes, tensors without, numbers. A lower one counts when it is of a higher kind than all above. */
    int result = -1;
    for (int level = 0; level < 3; level++) {
        int found = -1;
        for (int i = 0; i < 2; i++) {
            if ((tensors[i] ? tensors[i]->ndim == 0 : 2) != level) continue;
            tc_dtype dtype;
            if (tensors[i])
                dtype = tensors[i]->dtype;
            else
                dtype = scalars[i].kind == TC_FLOAT64 ? TC_FLOAT32 : scalars[i].kind;
            found = found < 0 ? (int)dtype : (int)tc_dtype_promote((tc_dtype)found, dtype);
        }
        if (found < 0) continue;
        if (result < 0)
            result = found;
        else if (kind_of((tc_dtype)found) > kind_of((tc_dtype)result))
            result = (int)tc_dtype_promote((tc_dtype)result, (tc_dtype)found);
    }
    return (tc_dtype)result;
}
