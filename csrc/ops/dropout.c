/* dropout.c: y = x / (1 - p) where an element is kept, 0 elsewhere. Which are kept depends on seed, call and the element's index in C order
 * (kernels/philox.h), so nothing is saved for the backward: the same function on dy. */
#include "../kernels/dropout.h"

#include "../kernels/philox.h"
#include "op.h"

typedef struct dropout_attributes {
    double p;
    uint64_t seed, call;
} dropout_attributes;

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const dropout_attributes *a = node->attributes;
    return tc_dropout(&grad_inputs[0], grad_outputs[0], a->p, a->seed, a->call, err);
}

static const tc_op dropout_op = {"dropout", backward, .attribute_bytes = sizeof(dropout_attributes)};

tc_status tc_dropout(tc_tensor **y, tc_tensor *x, double p, uint64_t seed, uint64_t call, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *out;
    TC_TRY(tc_begin(&s, in, 1));
    if (!(p >= 0.0 && p <= 1.0)) return tc_fail(err, TC_ERROR_VALUE, "the dropout probability p must be between 0 and 1, got %g", p);
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    const tc_dropout_forward_args args = {.y = out->data, .x = in[0].data, .n = x->numel, .p = p, .seed = seed, .call = call};
    const int64_t groups = tc_divide_up(x->numel, TC_PHILOX_GROUP);
    TC_TRY(tc_compute(&s, &tc_kernel_dropout_forward, &args, groups, 8.0 * TC_PHILOX_GROUP));
    const dropout_attributes a = {.p = p, .seed = seed, .call = call};
    return tc_finish(&s, y, out, &(tc_record){.op = &dropout_op, .attributes = &a});
}
