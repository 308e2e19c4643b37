/* dropout.c: y = x / (1 - p) where an element is kept, 0 elsewhere. Which are kept depends on seed, call and the element's index in C order
 * (kernels/philox.h), so nothing is saved for the backward: the same function on dy. */
#include "../kernels/dropout.h"

#include "../core/graph.h"
#include "../core/random.h"
#include "../kernels/philox.h"
#include "op.h"

typedef struct dropout_attributes {
    double p;
    uint64_t seed, call;
    tc_drawn drawn;
    tc_places places;
} dropout_attributes;

static tc_status drop(tc_tensor **y, tc_tensor *x, const dropout_attributes *a, tc_error *err);

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const dropout_attributes *a = node->attributes;
    TC_TRY(tc_check_drawn(&a->drawn, err));
    return drop(&grad_inputs[0], grad_outputs[0], a, err);
}

static const tc_op dropout_op = {"dropout", backward, .attribute_bytes = sizeof(dropout_attributes)};

static tc_status drop(tc_tensor **y, tc_tensor *x, const dropout_attributes *a, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *out;
    TC_TRY(tc_begin(&s, in, 1));
    if (!(a->p >= 0.0 && a->p <= 1.0))
        return tc_fail(err, TC_ERROR_VALUE, "the dropout probability p must be between 0 and 1, got %g", a->p);
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    const tc_dropout_forward_args args = {.y = out->data,
                                          .x = in[0].data,
                                          .n = x->numel,
                                          .p = a->p,
                                          .seed = a->seed,
                                          .call = a->call,
                                          .drawn = tc_tensor_on_cpu(x) ? NULL : a->drawn.at,
                                          .places = a->places};
    TC_TRY(tc_compute(&s, &tc_kernel_dropout_forward, &args, tc_dropout_items(&args), 8.0 * TC_PHILOX_GROUP));
    return tc_finish(&s, y, out, &(tc_record){.op = &dropout_op, .attributes = a});
}

tc_status tc_dropout(tc_tensor **y, tc_tensor *x, double p, uint64_t seed, uint64_t call, tc_error *err)
{
    const tc_batch_share share = tc_get_batch_share();
    const bool is_shared = x->ndim > 0 && share.rows > 0 && x->shape[0] % share.rows == 0;
    const tc_places places = tc_places_of(is_shared ? share : (tc_batch_share){0}, x->numel);
    return drop(y, x, &(dropout_attributes){.p = p, .seed = seed, .call = call, .drawn = tc_drawn_here(), .places = places}, err);
}
