/* dropout.c: y = x / (1 - p) where an element is kept, 0 elsewhere. Which are kept depends on seed, call and the element's index in C order
 * (kernels/philox.h), so nothing is saved for the backward: the same function on dy. */
#include "dropout.h"

#include "../core/random.h"

tc_drawn_mask tc_mask_of(const tc_tensor *x, int lead, double p, uint64_t seed, uint64_t call)
{
    return tc_mask_of_rows(x, lead, x->numel, p, seed, call);
}

tc_drawn_mask tc_mask_of_rows(const tc_tensor *x, int lead, int64_t numel, double p, uint64_t seed, uint64_t call)
{
    const tc_drawn drawn = tc_tensor_on_cpu(x) ? (tc_drawn){.at = NULL} : tc_drawn_here();
    const tc_batch_share share = tc_get_batch_share();
    const bool is_shared = lead > 0 && share.rows > 0 && x->shape[0] % share.rows == 0;
    const tc_places places = tc_places_of(is_shared ? share : (tc_batch_share){0}, numel);
    return (tc_drawn_mask){{.p = p, .seed = seed, .call = call, .drawn = drawn.at, .places = places}, drawn.graph};
}

tc_status tc_check_dropout(double p, tc_error *err)
{
    if (p >= 0.0 && p <= 1.0) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "the dropout probability p must be between 0 and 1, got %g", p);
}

tc_status tc_check_mask(const tc_drawn_mask *mask, tc_error *err)
{
    return tc_check_drawn(&(tc_drawn){mask->kept.drawn, mask->graph}, err);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    TC_TRY(tc_check_mask(node->attributes, err));
    return tc_drop(&grad_inputs[0], grad_outputs[0], node->attributes, err);
}

static const tc_op dropout_op = {"dropout", backward, .attribute_bytes = sizeof(tc_drawn_mask)};

tc_status tc_drop(tc_tensor **y, tc_tensor *x, const tc_drawn_mask *mask, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *out;
    TC_TRY(tc_begin(&s, in, 1));
    TC_TRY(tc_check_dropout(mask->kept.p, err));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    const tc_dropout_forward_args args = {.y = out->data, .x = in[0].data, .n = x->numel, .mask = mask->kept};
    TC_TRY(tc_compute(&s, &tc_kernel_dropout_forward, &args, tc_dropout_items(&args), 8.0 * TC_PHILOX_GROUP));
    return tc_finish(&s, y, out, &(tc_record){.op = &dropout_op, .attributes = mask});
}

tc_status tc_dropout(tc_tensor **y, tc_tensor *x, double p, uint64_t seed, uint64_t call, tc_error *err)
{
    const tc_drawn_mask mask = tc_mask_of(x, x->ndim, p, seed, call);
    return tc_drop(y, x, &mask, err);
}
