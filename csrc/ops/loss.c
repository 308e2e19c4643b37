/* loss.c: element-wise losses: squared and smoothed absolute differences, divergences, and binary cross-entropy of probabilities and of
 * logits.
 *
 * Saved for the backward: input, target and the weights. */
#include "loss.h"

#include <string.h>

#include "../core/broadcast.h"
#include "../core/own.h"
#include "../kernels/loss.h"
#include "check_index.h"

/* ---- from losses to a loss, and back ------------------------------------------------------------------------------------- */

/* *sum divided by the number of what was added up. */
static tc_status divide(tc_scope *s, tc_tensor **sum, double total, tc_tensor *total_at)
{
    if (total_at)
        TC_TRY(tc_binary(sum, *sum, total_at, TC_BINARY_div, s->err));
    else
        TC_TRY(tc_binary_scalar(sum, *sum, tc_scalar_real(total), false, TC_BINARY_div, s->err));
    return tc_own(s, *sum);
}

tc_status tc_reduce_losses(tc_scope *s, tc_tensor **out, tc_tensor *losses, tc_reduction reduction, double total, tc_tensor *total_at)
{
    *out = losses;
    if (reduction == TC_REDUCTION_NONE) return TC_OK;
    TC_TRY(tc_reduce(out, losses, TC_REDUCE_sum, -1, NULL, false, s->err));
    TC_TRY(tc_own(s, *out));
    return reduction == TC_REDUCTION_SUM ? TC_OK : divide(s, out, total, total_at);
}

/* One number as a view of every element: the gradient of a sum or mean. */
static bool is_one_number(const tc_tensor *tensor)
{
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->shape[i] != 1 && tensor->strides[i] != 0) return false;
    return tensor->numel > 0;
}

tc_status tc_spread_gradient(tc_scope *s, tc_tensor **dloss, tc_reduction reduction, double total, tc_tensor *total_at)
{
    if (is_one_number(*dloss)) TC_TRY(tc_make_view(s, dloss, *dloss, 0, NULL, NULL, 0));
    if (reduction != TC_REDUCTION_MEAN) return TC_OK;
    TC_TRY(tc_tensor_as(dloss, *dloss, s->statistics, s->err));
    TC_TRY(tc_own(s, *dloss));
    return divide(s, dloss, total, total_at);
}

/* ---- checks ---------------------------------------------------------------------------------------------------------------- */

/* A weight broadcasts to the input's shape and is constant. */
static tc_status check_weight(tc_scope *s, const tc_tensor *x, const tc_tensor *weight, const char *name)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int64_t shape[TC_MAX_DIMS];
    int ndim;
    if (!weight) return TC_OK;
    TC_TRY(tc_broadcast_shape(&ndim, shape, x->ndim, x->shape, weight->ndim, weight->shape, s->err));
    bool fits = ndim == x->ndim;
    for (int i = 0; fits && i < ndim; i++) fits = shape[i] == x->shape[i];
    if (!fits)
        return tc_fail(s->err, TC_ERROR_VALUE, "%s has shape %s, which does not broadcast to that of input, %s", name,
                       tc_tensor_text(a, weight), tc_tensor_text(b, x));
    return tc_check_constant(weight, name, s->err);
}

/* Are the shapes equal without their axes of length 1? */
static bool same_but_for_ones(const tc_tensor *x, const tc_tensor *target)
{
    int i = 0, j = 0;
    while (true) {
        while (i < x->ndim && x->shape[i] == 1) i++;
        while (j < target->ndim && target->shape[j] == 1) j++;
        if (i == x->ndim || j == target->ndim) return i == x->ndim && j == target->ndim;
        if (x->shape[i++] != target->shape[j++]) return false;
    }
}

static tc_status check_shapes(tc_scope *s, const tc_tensor *x, const tc_tensor *target, const tc_tensor *weight,
                              const tc_tensor *positive_weight)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (!tc_tensor_same_shape(x, target))
        return tc_fail(s->err, TC_ERROR_VALUE, "input has shape %s but target has %s; they must be equal%s", tc_tensor_text(a, x),
                       tc_tensor_text(b, target), same_but_for_ones(x, target) ? ": pass target.reshape(input.shape)" : "");
    TC_TRY(check_weight(s, x, weight, "weight"));
    return check_weight(s, x, positive_weight, "pos_weight");
}

/* The name of the argument, and a hint on which other one may have been meant. */
static tc_status not_a_probability(int64_t bits, const char *name, const char *hint, tc_error *err)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return tc_fail(err, TC_ERROR_VALUE, "%s has a value of %g but must hold probabilities, from 0 to 1%s", name, value, hint);
}

typedef tc_status (*refusal)(const tc_index_check *check, int64_t position, int64_t bits, tc_error *err);
static tc_status refuse_input(const tc_index_check *check, int64_t position, int64_t bits, tc_error *err)
{
    (void)check, (void)position;
    return not_a_probability(bits, "input", "; binary_cross_entropy_with_logits takes logits", err);
}
static tc_status refuse_target(const tc_index_check *check, int64_t position, int64_t bits, tc_error *err)
{
    (void)check, (void)position;
    return not_a_probability(bits, "target", "", err);
}

static int64_t bits_of(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The smallest or the largest of the numbers x is in [0, 1]; NaN passes. The bits of the numbers from 0 to 1 are, as integers, from 0 to
 * those of 1, and those of all others are not: so on a GPU it is a check of indices, for which the host does not wait. */
static tc_status check_extreme(tc_tensor *x, bool largest, refusal refuse, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_tensor *extreme, *is_outside, *found, *bits;
    TC_TRY(tc_reduce(&extreme, x, largest ? TC_REDUCE_max : TC_REDUCE_min, -1, NULL, false, err));
    TC_TRY(tc_own(&s, extreme));
    TC_TRY(tc_tensor_as(&extreme, extreme, TC_FLOAT64, err));
    TC_TRY(tc_own(&s, extreme));
    if (tc_tensor_on_cpu(extreme)) {
        const double value = *(const double *)tc_data(extreme);
        return value < 0 || value > 1 ? refuse(NULL, 0, bits_of(value), err) : TC_OK;
    }
    TC_TRY(tc_binary_scalar(&is_outside, extreme, tc_scalar_real(largest ? 1 : 0), false, largest ? TC_BINARY_gt : TC_BINARY_lt, err));
    TC_TRY(tc_own(&s, is_outside));
    TC_TRY(tc_where(&found, is_outside, &(tc_argument){.tensor = extreme}, &(tc_argument){.scalar = tc_scalar_real(0.5)}, err));
    TC_TRY(tc_own(&s, found));
    TC_TRY(tc_make_view(&s, &bits, found, 0, NULL, NULL, 0));
    bits->dtype = TC_INT64;
    const tc_index_check check = tc_index_check_of(bits, bits_of(1) + 1, refuse);
    return tc_check_indices(&check, bits, err);
}

static tc_status check_probabilities(tc_tensor *x, refusal refuse, tc_error *err)
{
    TC_OWNED tc_tensor *numbers = NULL;
    if (x->numel == 0) return TC_OK;
    TC_TRY(tc_tensor_detach(&numbers, x, err));
    TC_TRY(check_extreme(numbers, false, refuse, err));
    return check_extreme(numbers, true, refuse, err);
}

/* ---- forward and backward of all -------------------------------------------------------------------------------------------- */

static int64_t block_count(int64_t n) { return tc_divide_up(n, TC_LOSS_BLOCK); }

static const double costs[] = {[TC_LOSS_SQUARED] = 2.0, [TC_LOSS_PROBABILITY] = 16.0, [TC_LOSS_LOGIT] = 16.0,
                               [TC_LOSS_SMOOTH] = 4.0,  [TC_LOSS_DIVERGENCE] = 10.0,  [TC_LOSS_DIVERGENCE_LOG] = 10.0}; /* per element */

/* *weight (NULL stays) broadcast to every element of x. */
static tc_status spread_weight(tc_scope *s, tc_tensor **weight, const tc_tensor *x)
{
    int64_t strides[TC_MAX_DIMS];
    if (!*weight || tc_tensor_same_shape(*weight, x)) return TC_OK;
    tc_broadcast_strides(strides, *weight, x->ndim, x->shape);
    return tc_make_view(s, weight, *weight, x->ndim, x->shape, strides, 0);
}

typedef struct loss_attributes {
    tc_loss_function function;
    tc_reduction reduction;
    double parameter;
} loss_attributes;

enum { X, TARGET, WEIGHT, POSITIVE_WEIGHT, INPUTS }; /* of the op, which saves them as they are given */

static tc_status element_loss_backward(tc_tensor **dx, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *x, tc_tensor *target,
                                       tc_tensor *weight, tc_tensor *positive_weight, loss_attributes of, tc_error *err)
{
    TC_SCOPE(s, err);
    enum { DLOSS, OF_X, OF_TARGET, OF_WEIGHT, OF_POSITIVE_WEIGHT };
    tc_input in[] = {[DLOSS] = {"dloss", dloss, .statistic = true},
                     [OF_X] = {"input", x},
                     [OF_TARGET] = {"target", target},
                     [OF_WEIGHT] = {"weight", weight},
                     [OF_POSITIVE_WEIGHT] = {"pos_weight", positive_weight}};
    tc_tensor *out = NULL, *target_out = NULL;
    TC_TRY(tc_begin_backward(&s, in, 5));
    TC_TRY(check_shapes(&s, x, target, weight, positive_weight));
    TC_TRY(tc_check_shape(&s, dloss, "dloss", "the result has", of.reduction == TC_REDUCTION_NONE ? x->ndim : 0, x->shape));
    TC_TRY(tc_spread_gradient(&s, &in[DLOSS].given, of.reduction, (double)x->numel, NULL));
    TC_TRY(spread_weight(&s, &in[OF_WEIGHT].given, x));
    TC_TRY(spread_weight(&s, &in[OF_POSITIVE_WEIGHT].given, x));
    TC_TRY(tc_prepare(&s));
    if (dx) TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    if (dtarget) TC_TRY(tc_make(&s, &target_out, x->ndim, x->shape));
    const tc_loss_backward_args args = {.dx = tc_data(out),
                                        .dtarget = tc_data(target_out),
                                        .dloss = in[DLOSS].data,
                                        .x = in[OF_X].data,
                                        .target = in[OF_TARGET].data,
                                        .weight = in[OF_WEIGHT].data,
                                        .positive_weight = in[OF_POSITIVE_WEIGHT].data,
                                        .n = x->numel,
                                        .dloss_step = in[DLOSS].given->ndim > 0, /* 0: one number for all */
                                        .function = of.function,
                                        .parameter = of.parameter};
    TC_TRY(tc_compute(&s, &tc_kernel_loss_backward, &args, block_count(args.n), costs[of.function] * TC_LOSS_BLOCK));
    return tc_give_rounded(&s, 2, (tc_result[]){{dx, out}, {dtarget, target_out}});
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const loss_attributes *a = node->attributes;
    return element_loss_backward(tc_wanted(node, grad_inputs, X), tc_wanted(node, grad_inputs, TARGET), grad_outputs[0],
                                 tc_node_saved(node, X), tc_node_saved(node, TARGET), tc_node_saved(node, WEIGHT),
                                 tc_node_saved(node, POSITIVE_WEIGHT), *a, err);
}

static const tc_op ops[] = {[TC_LOSS_SQUARED] = {"mse_loss", backward, .attribute_bytes = sizeof(loss_attributes)},
                            [TC_LOSS_PROBABILITY] = {"binary_cross_entropy", backward, .attribute_bytes = sizeof(loss_attributes)},
                            [TC_LOSS_LOGIT] = {"binary_cross_entropy_with_logits", backward, .attribute_bytes = sizeof(loss_attributes)},
                            [TC_LOSS_SMOOTH] = {"smooth_l1_loss", backward, .attribute_bytes = sizeof(loss_attributes)},
                            [TC_LOSS_DIVERGENCE] = {"kl_div", backward, .attribute_bytes = sizeof(loss_attributes)},
                            [TC_LOSS_DIVERGENCE_LOG] = {"kl_div", backward, .attribute_bytes = sizeof(loss_attributes)}};

static tc_status element_loss(tc_tensor **loss, tc_tensor *x, tc_tensor *target, tc_tensor *weight, tc_tensor *positive_weight,
                              loss_attributes of, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {[X] = {"input", x},
                     [TARGET] = {"target", target},
                     [WEIGHT] = {"weight", weight},
                     [POSITIVE_WEIGHT] = {"pos_weight", positive_weight}};
    tc_tensor *losses, *reduced;
    TC_TRY(tc_begin(&s, in, INPUTS));
    TC_TRY(check_shapes(&s, x, target, weight, positive_weight));
    if (of.function == TC_LOSS_PROBABILITY) {
        TC_TRY(check_probabilities(x, refuse_input, err));
        TC_TRY(check_probabilities(target, refuse_target, err));
    }
    TC_TRY(spread_weight(&s, &in[WEIGHT].given, x));
    TC_TRY(spread_weight(&s, &in[POSITIVE_WEIGHT].given, x));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make_statistic(&s, &losses, x->ndim, x->shape));
    const tc_loss_forward_args args = {.loss = losses->data,
                                       .x = in[X].data,
                                       .target = in[TARGET].data,
                                       .weight = in[WEIGHT].data,
                                       .positive_weight = in[POSITIVE_WEIGHT].data,
                                       .n = x->numel,
                                       .function = of.function,
                                       .parameter = of.parameter};
    TC_TRY(tc_compute(&s, &tc_kernel_loss_forward, &args, block_count(args.n), costs[of.function] * TC_LOSS_BLOCK));
    TC_TRY(tc_reduce_losses(&s, &reduced, losses, of.reduction, (double)x->numel, NULL));
    return tc_finish(&s, loss, reduced,
                     &(tc_record){.op = &ops[of.function], TC_SAVED(x, target, weight, positive_weight), .attributes = &of});
}

/* ---- each of them ------------------------------------------------------------------------------------------------------------ */

tc_status tc_mse_loss(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_reduction reduction, tc_error *err)
{
    return element_loss(loss, input, target, NULL, NULL, (loss_attributes){TC_LOSS_SQUARED, reduction, 0}, err);
}

tc_status tc_mse_loss_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input, tc_tensor *target,
                               tc_reduction reduction, tc_error *err)
{
    return element_loss_backward(dinput, dtarget, dloss, input, target, NULL, NULL, (loss_attributes){TC_LOSS_SQUARED, reduction, 0}, err);
}

tc_status tc_binary_cross_entropy(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_tensor *weight, tc_reduction reduction,
                                  tc_error *err)
{
    return element_loss(loss, input, target, weight, NULL, (loss_attributes){TC_LOSS_PROBABILITY, reduction, 0}, err);
}

tc_status tc_binary_cross_entropy_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input, tc_tensor *target,
                                           tc_tensor *weight, tc_reduction reduction, tc_error *err)
{
    return element_loss_backward(dinput, dtarget, dloss, input, target, weight, NULL, (loss_attributes){TC_LOSS_PROBABILITY, reduction, 0},
                                 err);
}

tc_status tc_binary_cross_entropy_with_logits(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_tensor *weight,
                                              tc_tensor *positive_weight, tc_reduction reduction, tc_error *err)
{
    return element_loss(loss, input, target, weight, positive_weight, (loss_attributes){TC_LOSS_LOGIT, reduction, 0}, err);
}

tc_status tc_binary_cross_entropy_with_logits_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input,
                                                       tc_tensor *target, tc_tensor *weight, tc_tensor *positive_weight,
                                                       tc_reduction reduction, tc_error *err)
{
    return element_loss_backward(dinput, dtarget, dloss, input, target, weight, positive_weight,
                                 (loss_attributes){TC_LOSS_LOGIT, reduction, 0}, err);
}

static tc_status check_beta(double beta, tc_error *err)
{
    return beta >= 0 ? TC_OK : tc_fail(err, TC_ERROR_VALUE, "beta must not be negative, got %g", beta);
}

tc_status tc_smooth_l1_loss(tc_tensor **loss, tc_tensor *input, tc_tensor *target, double beta, tc_reduction reduction, tc_error *err)
{
    TC_TRY(check_beta(beta, err));
    return element_loss(loss, input, target, NULL, NULL, (loss_attributes){TC_LOSS_SMOOTH, reduction, beta}, err);
}

tc_status tc_smooth_l1_loss_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input, tc_tensor *target,
                                     double beta, tc_reduction reduction, tc_error *err)
{
    TC_TRY(check_beta(beta, err));
    return element_loss_backward(dinput, dtarget, dloss, input, target, NULL, NULL, (loss_attributes){TC_LOSS_SMOOTH, reduction, beta},
                                 err);
}

static loss_attributes divergence(tc_reduction reduction, bool log_target)
{
    return (loss_attributes){log_target ? TC_LOSS_DIVERGENCE_LOG : TC_LOSS_DIVERGENCE, reduction, 0};
}

tc_status tc_kl_div(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_reduction reduction, bool log_target, tc_error *err)
{
    return element_loss(loss, input, target, NULL, NULL, divergence(reduction, log_target), err);
}

tc_status tc_kl_div_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input, tc_tensor *target,
                             tc_reduction reduction, bool log_target, tc_error *err)
{
    return element_loss_backward(dinput, dtarget, dloss, input, target, NULL, NULL, divergence(reduction, log_target), err);
}
