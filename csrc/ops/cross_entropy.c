/* cross_entropy.c: cross-entropy between logits and classes, or class probabilities.
 *
 * With classes it is one kernel a direction; saved are the logits, the largest of each row, the logarithm of its sum of
 * exponentials, and the classes. With
 * probabilities it is composed of log-softmax, products and a sum. */
#include <inttypes.h>
#include <string.h>

#include "../core/backend.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "../kernels/softmax.h"
#include "operands.h"

typedef struct loss_attributes {
    int64_t ignore_index;
    double smoothing;
} loss_attributes;

/* saved: x, target, weight or NULL, top, log_sum */
static tc_status rows_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const loss_attributes *a = node->attributes;
    tc_tensor *x = tc_node_saved(node, 0), *target = tc_node_saved(node, 1), *weight = tc_node_saved(node, 2);
    tc_tensor *dloss = NULL, *dx = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_tensor_contiguous(&dloss, grad_outputs[0], err));
    TC_TRY(tc_tensor_like(&dx, x, err));
    const tc_cross_entropy_backward_args args = {.dx = dx->data,
                                                 .dloss = dloss->data,
                                                 .x = x->data,
                                                 .top = tc_node_saved(node, 3)->data,
                                                 .log_sum = tc_node_saved(node, 4)->data,
                                                 .weight = weight ? weight->data : NULL,
                                                 .target = (const int64_t *)(const void *)target->data,
                                                 .C = x->shape[1],
                                                 .ignore_index = a->ignore_index,
                                                 .smoothing = a->smoothing};
    TC_TRY(tc_run(x->storage->device, x->dtype, &tc_kernel_cross_entropy_backward, &args, x->shape[0], 10.0 * (double)args.C, 0, err));
    grad_inputs[0] = tc_tensor_retain(dx);
cleanup:
    tc_tensor_release(dloss);
    tc_tensor_release(dx);
    return status;
}

static const tc_op cross_entropy_op = {"cross_entropy", rows_backward, NULL};

/* loss,parts (N) of contiguous x (N,C), target (N) int64, weight (C) or NULL; x is recorded. parts: top and log_sum, or NULL. */
static tc_status rows_loss(tc_tensor **loss, tc_tensor **parts, tc_tensor *x, tc_tensor *contiguous, tc_tensor *target, tc_tensor *weight,
                           const loss_attributes *a, tc_error *err)
{
    tc_tensor *out = NULL, *top = NULL, *log_sum = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_tensor_empty(&out, 1, x->shape, x->dtype, x->storage->device, err));
    TC_TRY(tc_tensor_empty(&top, 1, x->shape, x->dtype, x->storage->device, err));
    TC_TRY(tc_tensor_empty(&log_sum, 1, x->shape, x->dtype, x->storage->device, err));
    const tc_cross_entropy_forward_args args = {.loss = out->data,
                                                .top = top->data,
                                                .log_sum = log_sum->data,
                                                .x = contiguous->data,
                                                .weight = weight ? weight->data : NULL,
                                                .target = (const int64_t *)(const void *)target->data,
                                                .C = x->shape[1],
                                                .ignore_index = a->ignore_index,
                                                .smoothing = a->smoothing};
    TC_TRY(tc_run(x->storage->device, x->dtype, &tc_kernel_cross_entropy_forward, &args, x->shape[0], 10.0 * (double)args.C, 0, err));
    tc_tensor *const saved[] = {contiguous, target, weight, top, log_sum};
    const tc_record record = {.op = &cross_entropy_op,
                              .input_count = 1,
                              .inputs = &x,
                              .output_count = 1,
                              .outputs = &out,
                              .saved_count = 5,
                              .saved = saved,
                              .attributes = a,
                              .attribute_bytes = sizeof *a};
    TC_TRY(tc_tape_record(&record, err));
    *loss = tc_tensor_retain(out);
    if (parts) parts[0] = tc_tensor_retain(top), parts[1] = tc_tensor_retain(log_sum);
cleanup:
    tc_tensor_release(out);
    tc_tensor_release(top);
    tc_tensor_release(log_sum);
    return status;
}

/* Classes are in range; *total becomes the sum of the weights of those that count. */
static tc_status check_classes(double *total, const tc_tensor *target, const tc_tensor *weight, int64_t C, int64_t ignore_index,
                               tc_error *err)
{
    const int64_t *t = (const int64_t *)(const void *)target->data;
    *total = 0;
    for (int64_t n = 0; n < target->numel; n++) {
        if (t[n] == ignore_index) continue;
        if (t[n] < 0 || t[n] >= C)
            return tc_fail(err, TC_ERROR_VALUE,
                           "target[%" PRId64 "] (flattened) is %" PRId64 ", but there are %" PRId64 " classes: expected 0 to %" PRId64
                           ", or ignore_index %" PRId64,
                           n, t[n], C, C - 1, ignore_index);
        if (!weight)
            *total += 1;
        else
            *total += weight->dtype == TC_FLOAT64 ? ((const double *)(const void *)weight->data)[t[n]]
                                                  : ((const float *)(const void *)weight->data)[t[n]];
    }
    return TC_OK;
}

/* (N,C,d1,...) as rows (N d1 ..., C), by recorded views; (N,C) is that already. */
static tc_status class_rows(tc_tensor **rows, tc_tensor *x, tc_error *err)
{
    if (x->ndim == 2) {
        *rows = tc_tensor_retain(x);
        return TC_OK;
    }
    int64_t axes[TC_MAX_DIMS], shape[2];
    tc_tensor *moved;
    const int class_axis = x->ndim > 1;
    int count = 0;
    for (int i = 0; i < x->ndim; i++)
        if (i != class_axis) axes[count++] = i;
    axes[count] = class_axis;
    if (x->ndim == 1) axes[0] = 0;
    shape[1] = x->shape[x->ndim == 1 ? 0 : class_axis];
    shape[0] = shape[1] ? x->numel / shape[1] : 0;
    tc_status status = tc_permute(&moved, x, x->ndim, axes, err);
    if (status != TC_OK) return status;
    status = tc_reshape(rows, moved, 2, shape, true, err);
    tc_tensor_release(moved);
    return status;
}

tc_status tc_reduce_loss(tc_tensor **out, tc_tensor *loss, tc_reduction reduction, double total, tc_error *err)
{
    tc_tensor *sum;
    if (reduction == TC_REDUCTION_NONE) {
        *out = tc_tensor_retain(loss);
        return TC_OK;
    }
    tc_status status = tc_reduce(&sum, loss, TC_REDUCE_sum, -1, NULL, false, err);
    if (status != TC_OK || reduction == TC_REDUCTION_SUM) {
        if (status == TC_OK) *out = sum;
        return status;
    }
    status = tc_binary_scalar(out, sum, tc_scalar_real(total), false, TC_BINARY_div, err);
    tc_tensor_release(sum);
    return status;
}

/* The target's shape: x's without the class axis. */
static tc_status check_target_shape(const tc_tensor *x, const tc_tensor *target, tc_error *err)
{
    int64_t expected[TC_MAX_DIMS];
    int ndim = 0;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT], c[TC_SHAPE_TEXT];
    for (int i = 0; i < x->ndim; i++)
        if (i != (x->ndim > 1)) expected[ndim++] = x->shape[i];
    if (x->ndim == 1) ndim = 0;
    if (target->ndim == ndim && memcmp(target->shape, expected, sizeof(int64_t) * (size_t)ndim) == 0) return TC_OK;
    return tc_fail(
        err, TC_ERROR_VALUE,
        "input has shape %s, classes on axis %d, so target must have shape %s (classes) or that of input (probabilities); it has %s",
        tc_tensor_text(a, x), x->ndim > 1, tc_shape_text(b, ndim, expected), tc_tensor_text(c, target));
}

/* Logits and classes as the kernels read them; the scope owns what was made. */
typedef struct class_problem {
    tc_tensor *rows, *contiguous; /* (N,C), recorded; the same laid out in C order */
    tc_tensor *classes;           /* (N) int64 */
    double total;                 /* what the mean divides by */
} class_problem;

static tc_status take_classes(class_problem *p, tc_old_scope *scope, tc_tensor *x, tc_tensor *target, tc_tensor *weight,
                              const loss_attributes *a, tc_error *err)
{
    tc_status status = TC_OK;
    TC_TRY(tc_check_constant(weight, "weight", err));
    TC_TRY(check_target_shape(x, target, err));
    TC_TRY(tc_tensor_as(&p->classes, target, TC_INT64, err));
    tc_old_scope_own(scope, p->classes);
    TC_TRY(class_rows(&p->rows, x, err));
    p->contiguous = tc_old_scope_own(scope, p->rows);
    TC_TRY(tc_old_scope_contiguous(scope, &p->contiguous, err));
    tc_tensor *classes, *weights = NULL;
    TC_TRY(tc_to_device(&classes, p->classes, (tc_device){TC_CPU, 0}, err));
    tc_old_scope_own(scope, classes);
    if (weight) TC_TRY(tc_to_device(&weights, weight, (tc_device){TC_CPU, 0}, err));
    tc_old_scope_own(scope, weights);
    TC_TRY(check_classes(&p->total, classes, weights, p->rows->shape[1], a->ignore_index, err));
cleanup:
    return status;
}

static tc_status with_classes(tc_tensor **out, tc_tensor **parts, tc_tensor *x, tc_tensor *target, tc_tensor *weight,
                              const loss_attributes *a, tc_reduction reduction, tc_error *err)
{
    tc_old_scope scope = {0};
    class_problem p;
    tc_tensor *loss, *shaped;
    tc_status status = TC_OK;
    TC_TRY(take_classes(&p, &scope, x, target, weight, a, err));
    TC_TRY(rows_loss(&loss, parts, p.rows, p.contiguous, p.classes, weight, a, err));
    tc_old_scope_own(&scope, loss);
    if (target->ndim != 1) {
        TC_TRY(tc_reshape(&shaped, loss, target->ndim, target->shape, true, err));
        loss = tc_old_scope_own(&scope, shaped);
    }
    TC_TRY(tc_reduce_loss(out, loss, reduction, p.total, err));
cleanup:
    tc_old_scope_end(&scope);
    return status;
}

/* -sum_c w[c] q[c] log p[c],  q = (1 - smoothing) target + smoothing / C. */
static tc_status with_probabilities(tc_tensor **out, tc_tensor *x, tc_tensor *q, tc_tensor *weight, double smoothing,
                                    tc_reduction reduction, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *t;
    const int64_t axis = x->ndim > 1;
    const int64_t C = x->shape[axis];
    int64_t shape[TC_MAX_DIMS];
    tc_status status = TC_OK;
    TC_TRY(tc_check_same_dtype(x, "input", q, "target", err));
    if (smoothing != 0) {
        TC_TRY(tc_binary_scalar(&t, q, tc_scalar_real(1 - smoothing), false, TC_BINARY_mul, err));
        tc_old_scope_own(&scope, t);
        TC_TRY(tc_binary_scalar(&q, t, tc_scalar_real(smoothing / (double)C), false, TC_BINARY_add, err));
        tc_old_scope_own(&scope, q);
    }
    TC_TRY(tc_softmax(&t, x, axis, true, err));
    tc_old_scope_own(&scope, t);
    TC_TRY(tc_binary(&t, t, q, TC_BINARY_mul, err));
    tc_old_scope_own(&scope, t);
    if (weight) {
        tc_tensor *w;
        for (int i = 0; i < x->ndim; i++) shape[i] = i == axis ? C : 1;
        TC_TRY(tc_reshape(&w, weight, x->ndim, shape, true, err));
        tc_old_scope_own(&scope, w);
        TC_TRY(tc_binary(&t, t, w, TC_BINARY_mul, err));
        tc_old_scope_own(&scope, t);
    }
    TC_TRY(tc_reduce(&t, t, TC_REDUCE_sum, 1, &axis, false, err));
    tc_old_scope_own(&scope, t);
    TC_TRY(tc_unary(&t, t, TC_UNARY_neg, err));
    tc_old_scope_own(&scope, t);
    TC_TRY(tc_reduce_loss(out, t, reduction, C ? (double)(x->numel / C) : 0.0, err));
cleanup:
    tc_old_scope_end(&scope);
    return status;
}

static tc_status check_arguments(const tc_tensor *x, const tc_tensor *target, const tc_tensor *weight, double label_smoothing,
                                 tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(x, "input", err));
    TC_TRY(tc_check_same_dtype(x, "input", weight, "weight", err));
    TC_TRY(tc_check_same_device(x, "input", target, "target", err));
    if (x->ndim == 0) TC_TRY(tc_fail(err, TC_ERROR_VALUE, "input has shape (); expected (C,), (N, C) or (N, C, d1, ...)"));
    const int64_t C = x->shape[x->ndim > 1];
    if (weight && (weight->ndim != 1 || weight->shape[0] != C))
        TC_TRY(tc_fail(err, TC_ERROR_VALUE, "weight has shape %s but input (%s) has %" PRId64 " classes; they must be equal",
                       tc_tensor_text(a, weight), tc_tensor_text(b, x), C));
    if (!(label_smoothing >= 0 && label_smoothing <= 1))
        TC_TRY(tc_fail(err, TC_ERROR_VALUE, "label_smoothing must be between 0 and 1, got %g", label_smoothing));
    if (target->dtype == TC_BOOL)
        TC_TRY(tc_fail(err, TC_ERROR_TYPE, "target is bool; classes are integers: convert it with .long() or np.int64"));
cleanup:
    return status;
}

tc_status tc_cross_entropy(tc_tensor **out, tc_tensor *x, tc_tensor *target, tc_tensor *weight, int64_t ignore_index,
                           double label_smoothing, tc_reduction reduction, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *loss = NULL;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_status status = TC_OK;
    TC_TRY(check_arguments(x, target, weight, label_smoothing, err));
    const tc_dtype result = x->dtype, compute = tc_compute_dtype(result);
    TC_TRY(tc_old_scope_cast(&scope, &x, compute, err));
    TC_TRY(tc_old_scope_cast(&scope, &weight, compute, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &weight, err));
    if (tc_dtype_is_float(target->dtype)) {
        if (!tc_tensor_same_shape(x, target))
            TC_TRY(tc_fail(err, TC_ERROR_VALUE,
                           "target is floating, class probabilities, so it must have input's shape %s; it has %s (classes are integers)",
                           tc_tensor_text(a, x), tc_tensor_text(b, target)));
        TC_TRY(tc_old_scope_cast(&scope, &target, compute, err));
        TC_TRY(with_probabilities(&loss, x, target, weight, label_smoothing, reduction, err));
    } else {
        const loss_attributes attributes = {ignore_index, label_smoothing};
        TC_TRY(with_classes(&loss, NULL, x, target, weight, &attributes, reduction, err));
    }
    tc_old_scope_own(&scope, loss);
    TC_TRY(tc_cast(out, loss, result, err));
cleanup:
    tc_old_scope_end(&scope);
    return status;
}

/* ---- without the tape, with classes --------------------------------------------------------------------------------------------- */

static tc_status check_classes_only(const tc_tensor *target, tc_error *err)
{
    if (!tc_dtype_is_float(target->dtype)) return TC_OK;
    return tc_fail(err, TC_ERROR_TYPE, "target is %s; here it holds classes, integers: with probabilities the loss is made of log_softmax",
                   tc_dtype_name(target->dtype));
}

tc_status tc_cross_entropy_forward(tc_tensor **out, tc_tensor **top, tc_tensor **log_sum, tc_tensor *x, tc_tensor *target,
                                   tc_tensor *weight, int64_t ignore_index, double label_smoothing, tc_reduction reduction, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *loss, *rounded, *parts[2] = {NULL, NULL};
    tc_status status = TC_OK;
    TC_TRY(check_arguments(x, target, weight, label_smoothing, err));
    TC_TRY(check_classes_only(target, err));
    const tc_dtype result = x->dtype, compute = tc_compute_dtype(result);
    TC_TRY(tc_old_scope_cast(&scope, &x, compute, err));
    TC_TRY(tc_old_scope_cast(&scope, &weight, compute, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &weight, err));
    const loss_attributes attributes = {ignore_index, label_smoothing};
    TC_TRY(with_classes(&loss, parts, x, target, weight, &attributes, reduction, err));
    tc_old_scope_own(&scope, loss);
    for (int i = 0; i < 2; i++) tc_old_scope_own(&scope, parts[i]);
    TC_TRY(tc_tensor_as(&rounded, loss, result, err));
    *out = rounded;
    *top = tc_tensor_retain(parts[0]);
    *log_sum = tc_tensor_retain(parts[1]);
cleanup:
    tc_old_scope_end(&scope);
    return status;
}

/* dx (x's shape, memory of its own) of rows (N,C). */
static tc_status from_rows(tc_tensor **out, tc_tensor *rows, const tc_tensor *x, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS], axes[TC_MAX_DIMS];
    tc_tensor *moved, *back = NULL;
    const int n = x->ndim;
    tc_status status = TC_OK;
    for (int i = 0, count = 0; i < n; i++)
        if (i != (n > 1)) shape[count++] = x->shape[i];
    shape[n - 1] = x->shape[n > 1];
    for (int i = 0; i < n; i++) axes[i] = i == 0 ? 0 : i == 1 ? n - 1 : i - 1;
    TC_TRY(tc_reshape(&moved, rows, n, shape, true, err));
    status = tc_permute(&back, moved, n, axes, err);
    tc_tensor_release(moved);
    TC_TRY(status);
    TC_TRY(tc_tensor_contiguous(out, back, err));
cleanup:
    tc_tensor_release(back);
    return status;
}

/* What reaches each row's loss, (N). */
static tc_status spread_gradient(tc_tensor **out, tc_tensor *dloss, int64_t N, double total, tc_reduction reduction, tc_error *err)
{
    tc_tensor *one;
    if (reduction == TC_REDUCTION_NONE) return tc_reshape(out, dloss, 1, &N, true, err);
    tc_status status =
        tc_binary_scalar(&one, dloss, tc_scalar_real(reduction == TC_REDUCTION_MEAN ? total : 1.0), false, TC_BINARY_div, err);
    if (status != TC_OK) return status;
    status = tc_expand(out, one, 1, &N, err);
    tc_tensor_release(one);
    return status;
}

tc_status tc_cross_entropy_backward(tc_tensor **dx, tc_tensor *dloss, tc_tensor *x, tc_tensor *target, tc_tensor *top, tc_tensor *log_sum,
                                    tc_tensor *weight, int64_t ignore_index, double label_smoothing, tc_reduction reduction, tc_error *err)
{
    tc_old_scope scope = {0};
    class_problem p;
    tc_tensor *each, *rows, *shaped;
    const tc_tensor *given = x;
    tc_status status = TC_OK;
    TC_TRY(check_arguments(x, target, weight, label_smoothing, err));
    TC_TRY(check_classes_only(target, err));
    const tc_dtype result = x->dtype, compute = tc_compute_dtype(result);
    const loss_attributes attributes = {ignore_index, label_smoothing};
    TC_TRY(check_target_shape(x, target, err));
    TC_TRY(tc_check_gradient(dloss, "dloss", reduction == TC_REDUCTION_NONE ? target->ndim : 0, target->shape, x, "input", err));
    tc_tensor **operands[] = {&dloss, &x, &weight};
    for (int i = 0; i < 3; i++) TC_TRY(tc_old_scope_cast(&scope, operands[i], compute, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &weight, err));
    TC_TRY(take_classes(&p, &scope, x, target, weight, &attributes, err));
    TC_TRY(tc_check_gradient(top, "top", 1, p.rows->shape, x, "input", err));
    TC_TRY(tc_check_gradient(log_sum, "log_sum", 1, p.rows->shape, x, "input", err));
    TC_TRY(tc_old_scope_contiguous(&scope, &top, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &log_sum, err));
    TC_TRY(spread_gradient(&each, dloss, p.rows->shape[0], p.total, reduction, err));
    tc_old_scope_own(&scope, each);
    tc_tensor *const saved[] = {p.contiguous, p.classes, weight, top, log_sum};
    const tc_record record = {.op = &cross_entropy_op, .input_count = 1, .saved_count = 5, .saved = saved, .attributes = &attributes};
    TC_TRY(tc_tape_apply(&record, each, (tc_tensor * *[]){&rows}, err));
    tc_old_scope_own(&scope, rows);
    TC_TRY(from_rows(&shaped, rows, given, err));
    tc_old_scope_own(&scope, shaped);
    TC_TRY(tc_tensor_as(dx, shaped, result, err));
cleanup:
    tc_old_scope_end(&scope);
    return status;
}
