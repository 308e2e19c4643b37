/* dropout.c: y = x / (1 - p) where an element is kept, 0 elsewhere. Which are kept follows from seed, call and the
 * element's place in C order (kernels/philox.h), so nothing is saved for the backward: the same function on dy. */
#include "../kernels/dropout.h"

#include "../core/backend.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "../kernels/philox.h"
#include "operands.h"

typedef struct dropout_attributes {
    double p;
    uint64_t seed, call;
} dropout_attributes;

tc_status tc_dropout_forward(tc_tensor **y, tc_tensor *x, double p, uint64_t seed, uint64_t call, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *out = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(x, "x", err));
    if (!(p >= 0.0 && p <= 1.0)) return tc_fail(err, TC_ERROR_VALUE, "the dropout probability p must be between 0 and 1, got %g", p);
    const tc_dtype result = x->dtype, compute = tc_compute_dtype(result);
    TC_TRY(tc_scope_cast(&scope, &x, compute, err));
    TC_TRY(tc_scope_contiguous(&scope, &x, err));
    TC_TRY(tc_tensor_like(&out, x, err));
    const tc_dropout_forward_args args = {.y = out->data, .x = x->data, .n = x->numel, .p = p, .seed = seed, .call = call};
    const int64_t groups = (x->numel + TC_PHILOX_GROUP - 1) / TC_PHILOX_GROUP;
    TC_TRY(tc_run(x->storage->device, compute, TC_K_dropout_forward, &args, groups, 8.0 * TC_PHILOX_GROUP, 0, err));
    TC_TRY(tc_cast(y, out, result, err));
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(out);
    return status;
}

/* ---- on the tape --------------------------------------------------------------------------------------------------------- */

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const dropout_attributes *a = node->attributes;
    return tc_dropout_forward(&grad_inputs[0], grad_outputs[0], a->p, a->seed, a->call, err);
}

static const tc_op dropout_op = {"dropout", backward, NULL};

tc_status tc_dropout(tc_tensor **y, tc_tensor *x, double p, uint64_t seed, uint64_t call, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *out = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(x, "x", err));
    const tc_dtype result = x->dtype;
    TC_TRY(tc_scope_cast(&scope, &x, tc_compute_dtype(result), err));
    TC_TRY(tc_dropout_forward(&out, x, p, seed, call, err));
    const dropout_attributes attributes = {.p = p, .seed = seed, .call = call};
    const tc_record record = {.op = &dropout_op,
                              .input_count = 1,
                              .inputs = &x,
                              .output_count = 1,
                              .outputs = &out,
                              .attributes = &attributes,
                              .attribute_bytes = sizeof attributes};
    TC_TRY(tc_tape_record(&record, err));
    TC_TRY(tc_cast(y, out, result, err));
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(out);
    return status;
}
