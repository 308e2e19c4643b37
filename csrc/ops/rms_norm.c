/* rms_norm.c: division of rows, the last axes, by their root mean square (Zhang and Sennrich 2019, eq. 4).
 *
 * Saved for the backward: x, gamma, and 1 / root mean square of each row (N numbers). */
#include "../kernels/rms_norm.h"

#include "norm.h"

enum { X, GAMMA, INPUTS, SAVED_RSTD = INPUTS };

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    return tc_rms_norm_backward(tc_wanted(node, grad_inputs, X), tc_wanted(node, grad_inputs, GAMMA), grad_outputs[0],
                                tc_node_saved(node, X), tc_node_saved(node, GAMMA), tc_node_saved(node, SAVED_RSTD), err);
}

static const tc_op rms_norm_op = {"rms_norm", backward};

tc_status tc_rms_norm(tc_tensor **y, tc_tensor **rstd, tc_tensor *x, int axes, const int64_t *lengths, tc_tensor *gamma, const double *eps,
                      tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {[X] = {"x", x, .halves = true}, [GAMMA] = {"weight (gamma)", gamma, .halves = true}};
    tc_tensor *out, *r;
    int64_t N, C;
    TC_TRY(tc_begin(&s, in, INPUTS));
    TC_TRY(tc_norm_rows(&s, x, axes, lengths, &N, &C));
    const int lead = x->ndim - axes;
    const double epsilon = s.statistics == TC_FLOAT64 ? 0x1p-52 : 0x1p-23;
    TC_TRY(tc_check_shape(&s, gamma, "weight (gamma)", "x is normalised over its last axes", axes, x->shape + lead));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make_result(&s, &out, x->ndim, x->shape));
    TC_TRY(tc_make_statistic(&s, &r, lead, x->shape));
    const tc_rms_norm_forward_args args = {.y = out->data,
                                           .rstd = r->data,
                                           .x = in[X].data,
                                           .gamma = in[GAMMA].data,
                                           .stored = tc_stored_as(&s, x),
                                           .C = C,
                                           .eps = eps ? *eps : epsilon};
    TC_TRY(tc_compute(&s, &tc_kernel_rms_norm_forward, &args, N, 3.0 * (double)C));
    TC_TRY(tc_finish(&s, y, out, &(tc_record){.op = &rms_norm_op, TC_SAVED(x, gamma, r)}));
    tc_give(&s, rstd, r);
    return TC_OK;
}

tc_status tc_rms_norm_backward(tc_tensor **dx, tc_tensor **dgamma, tc_tensor *dy, tc_tensor *x, tc_tensor *gamma, tc_tensor *rstd,
                               tc_error *err)
{
    return tc_norm_backward(&tc_kernel_rms_norm_backward, dx, NULL, NULL, dgamma, NULL, dy, x, gamma, NULL, rstd, err);
}
