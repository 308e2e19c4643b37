/* layer_norm.c: layer normalisation (Ba et al. 2016, eq. 4) over the last axes, of x, of x + residual, or of the sum of residual and what
 * dropout keeps of x.
 *
 * Saved for the backward: the normalised tensor (x, or the sum, which is computed once), gamma, and mean and rstd of each row (2 N
 * numbers). What dropout keeps is drawn again. */
#include "../kernels/layer_norm.h"

#include "dropout.h"
#include "norm.h"

enum { X, GAMMA, BETA, RESIDUAL, INPUTS };                /* of the op */
enum { NORMALISED, SAVED_GAMMA, SAVED_MEAN, SAVED_RSTD }; /* for its backward */

/* mask: NULL without dropout. */
static tc_status add_backward(tc_tensor **dx, tc_tensor **dresidual, tc_tensor **dgamma, tc_tensor **dbeta, tc_tensor *dy, tc_tensor *sum,
                              tc_tensor *gamma, tc_tensor *mean, tc_tensor *rstd, const tc_mask *mask, tc_error *err)
{
    tc_tensor **const dsum = mask || dresidual ? dresidual : dx, **const ddropped = mask ? dx : NULL;
    TC_TRY(tc_norm_backward(&tc_kernel_layer_norm_backward, dsum, ddropped, mask, dgamma, dbeta, dy, sum, gamma, mean, rstd, err));
    if (!mask && dx && dresidual) *dx = tc_tensor_retain(*dresidual); /* both get d(x + residual) */
    return TC_OK;
}

static tc_status backward_with(const tc_mask *mask, tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    return add_backward(tc_wanted(node, grad_inputs, X), tc_wanted(node, grad_inputs, RESIDUAL), tc_wanted(node, grad_inputs, GAMMA),
                        tc_wanted(node, grad_inputs, BETA), grad_outputs[0], tc_node_saved(node, NORMALISED),
                        tc_node_saved(node, SAVED_GAMMA), tc_node_saved(node, SAVED_MEAN), tc_node_saved(node, SAVED_RSTD), mask, err);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    return backward_with(NULL, node, grad_outputs, grad_inputs, err);
}

static tc_status backward_with_dropout(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_drawn_mask *mask = node->attributes;
    TC_TRY(tc_check_mask(mask, err));
    return backward_with(&mask->kept, node, grad_outputs, grad_inputs, err);
}

static const tc_op layer_norm_op = {"layer_norm", backward}, add_layer_norm_op = {"add_layer_norm", backward},
                   dropout_op = {"add_layer_norm", backward_with_dropout, .attribute_bytes = sizeof(tc_drawn_mask)};

tc_status tc_add_layer_norm(tc_tensor **y, tc_tensor **sum, tc_tensor **mean, tc_tensor **rstd, tc_tensor *x, tc_tensor *residual, int axes,
                            const int64_t *lengths, tc_tensor *gamma, tc_tensor *beta, double eps, double dropout, uint64_t seed,
                            uint64_t call, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {[X] = {"x", x, .halves = true},
                     [GAMMA] = {"weight (gamma)", gamma, .halves = true},
                     [BETA] = {"bias (beta)", beta, .halves = true},
                     [RESIDUAL] = {"residual", residual, .halves = true}};
    tc_tensor *out, *total = NULL, *m, *r;
    int64_t N, C;
    TC_TRY(tc_begin(&s, in, INPUTS));
    TC_TRY(tc_norm_rows(&s, x, axes, lengths, &N, &C));
    const int lead = x->ndim - axes;
    TC_TRY(tc_check_dropout(dropout, err));
    if (dropout > 0.0 && !residual)
        return tc_fail(err, TC_ERROR_VALUE, "dropout is %g and residual is NULL; x is dropped as it is added to a residual", dropout);
    TC_TRY(tc_check_shape(&s, residual, "residual", "x has", x->ndim, x->shape));
    TC_TRY(tc_check_shape(&s, gamma, "weight (gamma)", "x is normalised over its last axes", axes, x->shape + lead));
    TC_TRY(tc_check_shape(&s, beta, "bias (beta)", "x is normalised over its last axes", axes, x->shape + lead));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make_result(&s, &out, x->ndim, x->shape));
    /* Where nobody reads the sums later, a row's are written where its result will be. */
    const bool kept = sum || out->dtype != s.compute || tc_tape_wants(4, (tc_tensor *const[]){x, residual, gamma, beta});
    if (residual && kept) TC_TRY(tc_make(&s, &total, x->ndim, x->shape));
    TC_TRY(tc_make_statistic(&s, &m, lead, x->shape));
    TC_TRY(tc_make_statistic(&s, &r, lead, x->shape));
    const tc_drawn_mask mask = tc_mask_of(x, lead, dropout, seed, call);
    const bool drops = dropout > 0.0;
    const tc_layer_norm_forward_args args = {.y = out->data,
                                             .mean = m->data,
                                             .rstd = r->data,
                                             .sum = kept ? tc_data(total) : out->data,
                                             .x = in[X].data,
                                             .residual = in[RESIDUAL].data,
                                             .gamma = in[GAMMA].data,
                                             .beta = in[BETA].data,
                                             .mask = mask.kept,
                                             .stored = tc_stored_as(&s, x),
                                             .C = C,
                                             .eps = eps};
    TC_TRY(tc_compute(&s, &tc_kernel_layer_norm_forward, &args, N, (drops ? 12.0 : 4.0) * (double)C));
    TC_TRY(tc_finish(&s, y, out,
                     &(tc_record){.op = drops      ? &dropout_op
                                        : residual ? &add_layer_norm_op
                                                   : &layer_norm_op,
                                  TC_SAVED(residual ? total : x, gamma, m, r),
                                  .attributes = &mask}));
    tc_give(&s, sum, total);
    tc_give(&s, mean, m);
    tc_give(&s, rstd, r);
    return TC_OK;
}

tc_status tc_layer_norm(tc_tensor **y, tc_tensor **mean, tc_tensor **rstd, tc_tensor *x, int axes, const int64_t *lengths, tc_tensor *gamma,
                        tc_tensor *beta, double eps, tc_error *err)
{
    return tc_add_layer_norm(y, NULL, mean, rstd, x, NULL, axes, lengths, gamma, beta, eps, 0.0, 0, 0, err);
}

tc_status tc_layer_norm_backward(tc_tensor **dx, tc_tensor **dgamma, tc_tensor **dbeta, tc_tensor *dy, tc_tensor *x, tc_tensor *gamma,
                                 tc_tensor *mean, tc_tensor *rstd, tc_error *err)
{
    return tc_norm_backward(&tc_kernel_layer_norm_backward, dx, NULL, NULL, dgamma, dbeta, dy, x, gamma, mean, rstd, err);
}

tc_status tc_add_layer_norm_backward(tc_tensor **dx, tc_tensor **dresidual, tc_tensor **dgamma, tc_tensor **dbeta, tc_tensor *dy,
                                     tc_tensor *sum, tc_tensor *gamma, tc_tensor *mean, tc_tensor *rstd, double dropout, uint64_t seed,
                                     uint64_t call, tc_error *err)
{
    TC_TRY(tc_check_dropout(dropout, err));
    const tc_drawn_mask mask = tc_mask_of(sum, rstd->ndim, dropout, seed, call);
    return add_backward(dx, dresidual, dgamma, dbeta, dy, sum, gamma, mean, rstd, dropout > 0.0 ? &mask.kept : NULL, err);
}
