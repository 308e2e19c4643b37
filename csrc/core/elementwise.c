/* elementwise.c: see elementwise.h. */
#include "elementwise.h"

#include <string.h>

#include "backend.h"
#include "broadcast.h"
#include "layout.h"

static void set_operand(tc_operand *operand, const tc_argument *input, int ndim, const int64_t *shape)
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

/* Can all operands be walked along a single axis? Each has the result's elements in the same order, or is one number. */
static bool is_flat(const tc_tensor *out, int inputs, const tc_argument *in)
{
    if (!out->contiguous) return false;
    for (int k = 0; k < inputs; k++)
        if (in[k].tensor && !(in[k].tensor->contiguous && in[k].tensor->numel == out->numel)) return false;
    return true;
}

tc_status tc_run_elementwise(tc_tensor *out, int inputs, const tc_argument *in, const tc_kernel *kernel, int function, tc_dtype compute,
                             double cost, tc_error *err)
{
    if (out->numel == 0) return TC_OK;
    tc_elementwise_args args;
    if (out->storage->device.type != TC_CPU) memset(&args, 0, sizeof args); /* an address left there would be taken for an operand */
    args.function = function;
    args.inputs = inputs;
    args.numel = out->numel;
    const tc_argument result = {.tensor = out};
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
    const int64_t items = tc_divide_up(out->numel, TC_ELEMENT_BLOCK);
    const int64_t item = out->numel < TC_ELEMENT_BLOCK ? out->numel : TC_ELEMENT_BLOCK;
    return tc_run(out->storage->device, compute, kernel, &args, items, cost * (double)item, 0, err);
}
