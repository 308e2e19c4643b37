/* loss.c: losses that are taken element by element: squared differences, and binary cross-entropy of probabilities and of logits.
 *
 * Saved for the backward: input, target and the weights. */
#include "../kernels/loss.h"

#include "../core/backend.h"
#include "../core/broadcast.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"

/* ---- checks ---------------------------------------------------------------------------------------------------------------- */

/* A weight: of the input's dtype, broadcasting to its shape, and constant. */
static tc_status check_weight(const tc_tensor *x, const tc_tensor *weight, const char *name, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int64_t shape[TC_MAX_DIMS];
    int ndim;
    if (!weight) return TC_OK;
    tc_status status = tc_check_same_dtype(x, "input", weight, name, err);
    if (status == TC_OK) status = tc_check_same_device(x, "input", weight, name, err);
    if (status == TC_OK) status = tc_broadcast_shape(&ndim, shape, x->ndim, x->shape, weight->ndim, weight->shape, err);
    if (status != TC_OK) return status;
    bool fits = ndim == x->ndim;
    for (int i = 0; fits && i < ndim; i++) fits = shape[i] == x->shape[i];
    if (!fits)
        return tc_fail(err, TC_ERROR_VALUE, "%s has shape %s, which does not broadcast to that of input, %s", name,
                       tc_tensor_text(a, weight), tc_tensor_text(b, x));
    return tc_check_constant(weight, name, err);
}

static tc_status check_operands(const tc_tensor *x, const tc_tensor *target, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_status status = tc_check_float(x, "input", err);
    if (status == TC_OK) status = tc_check_float(target, "target", err);
    if (status == TC_OK) status = tc_check_same_dtype(x, "input", target, "target", err);
    if (status == TC_OK) status = tc_check_same_device(x, "input", target, "target", err);
    if (status != TC_OK || tc_tensor_same_shape(x, target)) return status;
    return tc_fail(err, TC_ERROR_VALUE, "input has shape %s but target has %s; they must be equal", tc_tensor_text(a, x),
                   tc_tensor_text(b, target));
}

/* Probabilities lie in [0, 1]; NaN passes. */
static tc_status check_probabilities(tc_tensor *x, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *detached, *extreme;
    tc_status status = TC_OK;
    if (x->numel == 0) return TC_OK;
    TC_TRY(tc_tensor_detach(&detached, x, err));
    tc_old_scope_own(&scope, detached);
    for (int largest = 0; largest < 2; largest++) {
        TC_TRY(tc_reduce(&extreme, detached, largest ? TC_REDUCE_max : TC_REDUCE_min, -1, NULL, false, err));
        tc_old_scope_own(&scope, extreme);
        TC_TRY(tc_old_scope_cast(&scope, &extreme, TC_FLOAT64, err));
        if (!tc_tensor_on_cpu(extreme)) {
            TC_TRY(tc_to_device(&extreme, extreme, (tc_device){TC_CPU, 0}, err));
            tc_old_scope_own(&scope, extreme);
        }
        const double value = *(const double *)(const void *)extreme->data;
        if (value < 0 || value > 1)
            TC_TRY(tc_fail(
                err, TC_ERROR_VALUE,
                "input has a value of %g but must hold probabilities, from 0 to 1; binary_cross_entropy_with_logits takes logits", value));
    }
cleanup:
    tc_old_scope_end(&scope);
    return status;
}

/* ---- on the tape ------------------------------------------------------------------------------------------------------------- */

static int64_t block_count(int64_t n) { return (n + TC_LOSS_BLOCK - 1) / TC_LOSS_BLOCK; }

static const double costs[] = {[TC_LOSS_SQUARED] = 2.0, [TC_LOSS_PROBABILITY] = 16.0, [TC_LOSS_LOGIT] = 16.0}; /* an element */

static const void *data_of(const tc_tensor *tensor) { return tensor ? tensor->data : NULL; }

/* One number seen at every place, as the gradient of a sum or mean is. */
static bool is_one_number(const tc_tensor *tensor)
{
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->shape[i] != 1 && tensor->strides[i] != 0) return false;
    return true;
}

/* saved: input, target, weight or NULL, positive weight or NULL, contiguous and of one shape */
static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_loss_function *function = node->attributes;
    tc_tensor *x = tc_node_saved(node, 0), *dloss = NULL, *dx = NULL, *dtarget = NULL;
    tc_status status = TC_OK;
    const bool spread = is_one_number(grad_outputs[0]);
    if (spread)
        dloss = tc_tensor_retain(grad_outputs[0]);
    else
        TC_TRY(tc_tensor_contiguous(&dloss, grad_outputs[0], err));
    if (tc_node_needs(node, 0)) TC_TRY(tc_tensor_like(&dx, x, err));
    if (tc_node_needs(node, 1)) TC_TRY(tc_tensor_like(&dtarget, x, err));
    const tc_loss_backward_args args = {.dx = dx ? dx->data : NULL,
                                        .dtarget = dtarget ? dtarget->data : NULL,
                                        .dloss = dloss->data,
                                        .x = x->data,
                                        .target = tc_node_saved(node, 1)->data,
                                        .weight = data_of(tc_node_saved(node, 2)),
                                        .positive_weight = data_of(tc_node_saved(node, 3)),
                                        .n = x->numel,
                                        .dloss_step = spread ? 0 : 1,
                                        .function = *function};
    TC_TRY(tc_run(x->storage->device, x->dtype, &tc_kernel_loss_backward, &args, block_count(args.n), costs[*function] * TC_LOSS_BLOCK, 0,
                  err));
    grad_inputs[0] = tc_tensor_retain(dx);
    grad_inputs[1] = tc_tensor_retain(dtarget);
cleanup:
    tc_tensor_release(dloss);
    tc_tensor_release(dx);
    tc_tensor_release(dtarget);
    return status;
}

static const tc_op ops[] = {[TC_LOSS_SQUARED] = {"mse_loss", backward, NULL},
                            [TC_LOSS_PROBABILITY] = {"binary_cross_entropy", backward, NULL},
                            [TC_LOSS_LOGIT] = {"binary_cross_entropy_with_logits", backward, NULL}};

/* *weight (NULL stays) becomes contiguous and of x's shape, owned by the scope. */
static tc_status spread_weight(tc_old_scope *scope, tc_tensor **weight, const tc_tensor *x, tc_error *err)
{
    tc_tensor *view;
    if (!*weight) return TC_OK;
    const tc_status status = tc_broadcast_view(&view, *weight, x->ndim, x->shape, err);
    if (status != TC_OK) return status;
    *weight = tc_old_scope_own(scope, view);
    return tc_old_scope_contiguous(scope, weight, err);
}

static tc_status element_loss(tc_tensor **out, tc_tensor *x, tc_tensor *target, tc_tensor *weight, tc_tensor *positive_weight,
                              tc_loss_function function, tc_reduction reduction, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *losses = NULL, *reduced;
    tc_status status = TC_OK;
    TC_TRY(check_operands(x, target, err));
    TC_TRY(check_weight(x, weight, "weight", err));
    TC_TRY(check_weight(x, positive_weight, "pos_weight", err));
    if (function == TC_LOSS_PROBABILITY) TC_TRY(check_probabilities(x, err));
    const tc_dtype result = x->dtype, compute = tc_compute_dtype(result);
    tc_tensor **operands[] = {&x, &target, &weight, &positive_weight};
    for (int i = 0; i < 4; i++) TC_TRY(tc_old_scope_cast(&scope, operands[i], compute, err));
    tc_tensor *const inputs[] = {x, target};
    TC_TRY(spread_weight(&scope, &weight, x, err));
    TC_TRY(spread_weight(&scope, &positive_weight, x, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &x, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &target, err));
    TC_TRY(tc_tensor_like(&losses, x, err));
    const tc_loss_forward_args args = {.loss = losses->data,
                                       .x = x->data,
                                       .target = target->data,
                                       .weight = data_of(weight),
                                       .positive_weight = data_of(positive_weight),
                                       .n = x->numel,
                                       .function = function};
    TC_TRY(
        tc_run(x->storage->device, compute, &tc_kernel_loss_forward, &args, block_count(args.n), costs[function] * TC_LOSS_BLOCK, 0, err));
    tc_tensor *const saved[] = {x, target, weight, positive_weight};
    const tc_record record = {.op = &ops[function],
                              .input_count = 2,
                              .inputs = inputs,
                              .output_count = 1,
                              .outputs = &losses,
                              .saved_count = 4,
                              .saved = saved,
                              .attributes = &function,
                              .attribute_bytes = sizeof function};
    TC_TRY(tc_tape_record(&record, err));
    TC_TRY(tc_reduce_loss(&reduced, losses, reduction, (double)x->numel, err));
    tc_old_scope_own(&scope, reduced);
    TC_TRY(tc_cast(out, reduced, result, err));
cleanup:
    tc_old_scope_end(&scope);
    tc_tensor_release(losses);
    return status;
}

/* The gradient of each loss from that of the result. */
static tc_status gradient_of_losses(tc_tensor **out, tc_tensor *dloss, const tc_tensor *x, tc_reduction reduction, tc_error *err)
{
    tc_tensor *one;
    tc_status status = TC_OK;
    if (reduction == TC_REDUCTION_NONE) {
        *out = tc_tensor_retain(dloss);
        return TC_OK;
    }
    if (reduction == TC_REDUCTION_MEAN)
        status = tc_binary_scalar(&one, dloss, tc_scalar_real((double)x->numel), false, TC_BINARY_div, err);
    else
        one = tc_tensor_retain(dloss);
    if (status != TC_OK) return status;
    status = tc_broadcast_view(out, one, x->ndim, x->shape, err);
    tc_tensor_release(one);
    return status;
}

static tc_status element_loss_backward(tc_tensor **dx, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *x, tc_tensor *target,
                                       tc_tensor *weight, tc_tensor *positive_weight, tc_loss_function function, tc_reduction reduction,
                                       tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *each = NULL, *found[2] = {NULL, NULL}, *rounded[2] = {NULL, NULL};
    tc_status status = TC_OK;
    TC_TRY(check_operands(x, target, err));
    TC_TRY(check_weight(x, weight, "weight", err));
    TC_TRY(check_weight(x, positive_weight, "pos_weight", err));
    TC_TRY(tc_check_gradient(dloss, "dloss", reduction == TC_REDUCTION_NONE ? x->ndim : 0, x->shape, x, "input", err));
    const tc_dtype result = x->dtype;
    tc_tensor **operands[] = {&dloss, &x, &target, &weight, &positive_weight};
    for (int i = 0; i < 5; i++) TC_TRY(tc_old_scope_cast(&scope, operands[i], tc_compute_dtype(result), err));
    TC_TRY(spread_weight(&scope, &weight, x, err));
    TC_TRY(spread_weight(&scope, &positive_weight, x, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &x, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &target, err));
    TC_TRY(gradient_of_losses(&each, dloss, x, reduction, err));
    tc_tensor *const saved[] = {x, target, weight, positive_weight};
    const tc_record record = {.op = &ops[function], .input_count = 2, .saved_count = 4, .saved = saved, .attributes = &function};
    TC_TRY(tc_tape_apply(&record, each, (tc_tensor * *[]){&found[0], &found[1]}, err));
    for (int i = 0; i < 2; i++) TC_TRY(tc_tensor_as(&rounded[i], found[i], result, err));
    *dx = tc_tensor_retain(rounded[0]);
    *dtarget = tc_tensor_retain(rounded[1]);
cleanup:
    tc_old_scope_end(&scope);
    tc_tensor_release(each);
    for (int i = 0; i < 2; i++) tc_tensor_release(found[i]), tc_tensor_release(rounded[i]);
    return status;
}

tc_status tc_mse_loss(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_reduction reduction, tc_error *err)
{
    return element_loss(loss, input, target, NULL, NULL, TC_LOSS_SQUARED, reduction, err);
}

tc_status tc_binary_cross_entropy(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_tensor *weight, tc_reduction reduction,
                                  tc_error *err)
{
    return element_loss(loss, input, target, weight, NULL, TC_LOSS_PROBABILITY, reduction, err);
}

tc_status tc_binary_cross_entropy_with_logits(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_tensor *weight,
                                              tc_tensor *positive_weight, tc_reduction reduction, tc_error *err)
{
    return element_loss(loss, input, target, weight, positive_weight, TC_LOSS_LOGIT, reduction, err);
}

tc_status tc_mse_loss_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input, tc_tensor *target,
                               tc_reduction reduction, tc_error *err)
{
    return element_loss_backward(dinput, dtarget, dloss, input, target, NULL, NULL, TC_LOSS_SQUARED, reduction, err);
}

tc_status tc_binary_cross_entropy_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input, tc_tensor *target,
                                           tc_tensor *weight, tc_reduction reduction, tc_error *err)
{
    return element_loss_backward(dinput, dtarget, dloss, input, target, weight, NULL, TC_LOSS_PROBABILITY, reduction, err);
}

tc_status tc_binary_cross_entropy_with_logits_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input,
                                                       tc_tensor *target, tc_tensor *weight, tc_tensor *positive_weight,
                                                       tc_reduction reduction, tc_error *err)
{
    return element_loss_backward(dinput, dtarget, dloss, input, target, weight, positive_weight, TC_LOSS_LOGIT, reduction, err);
}
