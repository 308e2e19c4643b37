/* cross_entropy.c: cross-entropy between logits and classes, or class probabilities.
 *
 * With classes it is one op. Saved for its backward: the logits, the classes, the weights, and of each row of logits the largest and the
 * logarithm of its sum of exponentials. With probabilities it is composed of log-softmax, products and a sum. nll_loss is the same with
 * classes for log probabilities, and saves no numbers of rows. */
#include <inttypes.h>
#include <string.h>

#include "../core/layout.h"
#include "../core/own.h"
#include "../kernels/lines.h"
#include "../kernels/softmax.h"
#include "check_index.h"
#include "loss.h"

/* ---- checks ---------------------------------------------------------------------------------------------------------------- */

static int class_axis(const tc_tensor *x) { return x->ndim > 1; }

/* Checks for classes and probabilities alike; `weight` has been compared with x. */
static tc_status check_arguments(tc_scope *s, const tc_tensor *x, const tc_tensor *target, const tc_tensor *weight, double smoothing)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    TC_TRY(tc_check_same_device(x, "input", target, "target", s->err));
    if (x->ndim == 0) return tc_fail(s->err, TC_ERROR_VALUE, "input has shape (); expected (C,), (N, C) or (N, C, d1, ...)");
    const int64_t C = x->shape[class_axis(x)];
    if (weight && (weight->ndim != 1 || weight->shape[0] != C))
        return tc_fail(s->err, TC_ERROR_VALUE, "weight has shape %s but input (%s) has %" PRId64 " classes; they must be equal",
                       tc_tensor_text(a, weight), tc_tensor_text(b, x), C);
    if (!(smoothing >= 0 && smoothing <= 1))
        return tc_fail(s->err, TC_ERROR_VALUE, "label_smoothing must be between 0 and 1, got %g", smoothing);
    if (target->dtype == TC_BOOL)
        return tc_fail(s->err, TC_ERROR_TYPE, "target is bool; classes are integers: convert it with .long() or np.int64");
    return TC_OK;
}

/* The target contains integers, and has x's shape without the class axis. */
static tc_status check_classes(tc_scope *s, const tc_tensor *x, const tc_tensor *target)
{
    int64_t expected[TC_MAX_DIMS];
    int ndim = 0;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT], c[TC_SHAPE_TEXT];
    if (tc_dtype_is_float(target->dtype))
        return tc_fail(s->err, TC_ERROR_TYPE,
                       "target is %s; here it holds classes, integers: with probabilities the loss is made of log_softmax",
                       tc_dtype_name(target->dtype));
    for (int i = 0; i < x->ndim; i++)
        if (i != class_axis(x)) expected[ndim++] = x->shape[i];
    if (target->ndim == ndim && memcmp(target->shape, expected, sizeof(int64_t) * (size_t)ndim) == 0) return TC_OK;
    if (x->ndim > 2 && target->ndim == ndim && memcmp(target->shape, x->shape, sizeof(int64_t) * (size_t)ndim) == 0)
        return tc_fail(s->err, TC_ERROR_VALUE,
                       "input has shape %s and target %s, so the classes seem to be on the last axis; they belong on axis 1: pass "
                       "input.swapaxes(1, -1), or input.reshape(-1, %" PRId64 ") and target.reshape(-1)",
                       tc_tensor_text(a, x), tc_tensor_text(c, target), x->shape[ndim]);
    return tc_fail(
        s->err, TC_ERROR_VALUE,
        "input has shape %s, classes on axis %d, so target must have shape %s (classes) or that of input (probabilities); it has %s",
        tc_tensor_text(a, x), class_axis(x), tc_shape_text(b, ndim, expected), tc_tensor_text(c, target));
}

/* ---- with classes ---------------------------------------------------------------------------------------------------------- */

typedef struct class_attributes {
    int64_t ignore_index;
    double smoothing, total; /* total: the divisor of the mean */
    tc_reduction reduction;
    bool logarithms; /* nll_loss: the input contains log probabilities */
} class_attributes;

static tc_status fail_class(const tc_index_check *check, int64_t position, int64_t class, tc_error *err)
{
    return tc_fail(err, TC_ERROR_VALUE,
                   "target[%" PRId64 "] (flattened) is %" PRId64 ", but there are %" PRId64 " classes: expected 0 to %" PRId64
                   ", or ignore_index %" PRId64,
                   position, class, check->length, check->length - 1, check->ignored);
}

/* *classes, contiguous int64, and *weight, of s->statistics, are the kernels' forms of `target` and of the given *weight. a->total or
 * *total: the sum of the weights of the classes that count. */
static tc_status take_classes(tc_scope *s, tc_tensor **classes, tc_tensor **weight, class_attributes *a, tc_tensor **total,
                              const tc_tensor *x, tc_tensor *target)
{
    TC_TRY(check_classes(s, x, target));
    TC_TRY(tc_check_constant(*weight, "weight", s->err));
    TC_TRY(tc_tensor_as(classes, target, TC_INT64, s->err));
    TC_TRY(tc_own(s, *classes));
    if (*weight) {
        TC_TRY(tc_tensor_as(weight, *weight, s->statistics, s->err));
        TC_TRY(tc_own(s, *weight));
    }
    tc_index_check check = tc_index_check_of(*classes, x->shape[class_axis(x)], fail_class);
    check.ignored = a->ignore_index;
    check.ignores = true;
    return tc_check_and_weigh(s, &check, *classes, *weight, &a->total, total);
}

/* ---- of logarithms on CPUs, whose losses read one element of a row, and whose gradients have one ------------------------------ */

/* The kernel takes or writes the element of each row of x that `classes` names; where they name none it takes zero. taken: as many, or one
 * number without axes. */
static tc_status visit_classes(const tc_kernel *kernel, const tc_tensor *x, const tc_tensor *classes, const tc_tensor *taken, tc_error *err)
{
    const int axis = class_axis(x);
    tc_lines_args args = {.whole = x->data,
                          .taken = taken->data,
                          .index = tc_data(classes),
                          .element_bytes = (int)tc_dtype_size(x->dtype),
                          .K = 1,
                          .L = x->shape[axis],
                          .whole_step = x->strides[axis]};
    for (int i = 0; i < x->ndim; i++) {
        if (i == axis) continue;
        const int j = args.ndim++;
        args.shape[j] = x->shape[i];
        args.whole_strides[j] = x->strides[i];
        args.index_strides[j] = classes->strides[j];
        args.taken_strides[j] = taken->ndim ? taken->strides[j] : 0;
    }
    int64_t *const strides[] = {args.index_strides, args.taken_strides, args.whole_strides};
    args.ndim = tc_layout_merge(args.ndim, args.shape, 3, strides, false);
    return classes->numel ? tc_run(x->storage->device, TC_FLOAT32, kernel, &args, classes->numel, 4.0, 0, err) : TC_OK;
}

/* *out: the weights of the classes, of s->statistics and in their shape. */
static tc_status take_weights(tc_scope *s, tc_tensor **out, const tc_tensor *weight, const tc_tensor *classes)
{
    TC_TRY(tc_make_statistic(s, out, classes->ndim, classes->shape));
    const tc_lines_args args = {.whole = weight->data,
                                .taken = (*out)->data,
                                .index = tc_data(classes),
                                .element_bytes = (int)tc_dtype_size(weight->dtype),
                                .K = classes->numel,
                                .L = weight->shape[0],
                                .index_step = 1,
                                .taken_step = 1,
                                .whole_step = weight->strides[0]};
    return classes->numel ? tc_run(s->device, TC_FLOAT32, &tc_kernel_lines_gather, &args, 1, 4.0 * (double)args.K, 0, s->err) : TC_OK;
}

/* *classes without those that are ignored: outside of all rows. */
static tc_status drop_ignored(tc_scope *s, tc_tensor **classes, int64_t ignore_index, int64_t C)
{
    tc_tensor *is_ignored, *kept;
    if (ignore_index < 0 || ignore_index >= C) return TC_OK;
    TC_TRY(tc_binary_scalar(&is_ignored, *classes, tc_scalar_integer(ignore_index), false, TC_BINARY_eq, s->err));
    TC_TRY(tc_own(s, is_ignored));
    TC_TRY(tc_where(&kept, is_ignored, &(tc_argument){.scalar = tc_scalar_integer(-1)}, &(tc_argument){.tensor = *classes}, s->err));
    *classes = kept;
    return tc_own(s, kept);
}

/* *t = 0 - *t w[class], with a weight: as the kernel for all rows computes it. */
static tc_status weigh_and_negate(tc_scope *s, tc_tensor **t, const tc_tensor *weight, const tc_tensor *classes)
{
    tc_tensor *of_classes;
    if (weight) {
        TC_TRY(take_weights(s, &of_classes, weight, classes));
        TC_TRY(tc_binary(t, *t, of_classes, TC_BINARY_mul, s->err));
        TC_TRY(tc_own(s, *t));
    }
    TC_TRY(tc_binary_scalar(t, *t, tc_scalar_real(0), true, TC_BINARY_sub, s->err));
    return tc_own(s, *t);
}

/* *losses, of s->statistics. */
static tc_status pick_losses(tc_scope *s, tc_tensor **losses, const tc_tensor *x, tc_tensor *classes, const tc_tensor *weight,
                             int64_t ignore_index)
{
    TC_TRY(drop_ignored(s, &classes, ignore_index, x->shape[class_axis(x)]));
    TC_TRY(tc_make_as(s, losses, classes->ndim, classes->shape, x->dtype));
    TC_TRY(visit_classes(&tc_kernel_lines_gather, x, classes, *losses, s->err));
    TC_TRY(tc_tensor_as(losses, *losses, s->statistics, s->err));
    TC_TRY(tc_own(s, *losses));
    return weigh_and_negate(s, losses, weight, classes);
}

/* *dx of s->result; dloss: one number, or one for each class. */
static tc_status put_gradient(tc_scope *s, tc_tensor **dx, tc_tensor *dloss, const tc_tensor *x, tc_tensor *classes, tc_tensor *weight,
                              int64_t ignore_index)
{
    TC_OWNED tc_tensor *out = NULL;
    if (weight) {
        TC_TRY(tc_tensor_as(&weight, weight, s->statistics, s->err));
        TC_TRY(tc_own(s, weight));
    }
    TC_TRY(drop_ignored(s, &classes, ignore_index, x->shape[class_axis(x)]));
    TC_TRY(tc_tensor_as(&dloss, dloss, s->statistics, s->err));
    TC_TRY(tc_own(s, dloss));
    TC_TRY(weigh_and_negate(s, &dloss, weight, classes));
    TC_TRY(tc_tensor_as(&dloss, dloss, s->result, s->err));
    TC_TRY(tc_own(s, dloss));
    TC_TRY(tc_tensor_zeros(&out, x->ndim, x->shape, s->result, s->device, s->err));
    TC_TRY(visit_classes(&tc_kernel_lines_put, out, classes, dloss, s->err));
    *dx = tc_take(&out);
    return TC_OK;
}

/* ---- with classes, on all devices ------------------------------------------------------------------------------------------- */

/* dx, a view of rows, from arguments that have been checked; classes: contiguous int64. */
static tc_status class_gradient(tc_tensor **dx, tc_tensor *dloss, tc_tensor *x, tc_tensor *classes, tc_tensor *top, tc_tensor *log_sum,
                                tc_tensor *weight, tc_tensor *total, const class_attributes *a, tc_error *err)
{
    TC_SCOPE(s, err);
    enum { DLOSS, ROWS, TOP, LOG_SUM, WEIGHT };
    tc_input in[] = {[DLOSS] = {"dloss", dloss, .statistic = true},
                     [ROWS] = {"input", x},
                     [TOP] = {"top", top, .statistic = true},
                     [LOG_SUM] = {"log_sum", log_sum, .statistic = true},
                     [WEIGHT] = {"weight", weight, .statistic = true}};
    tc_tensor *rows, *out;
    const int axis = class_axis(x), last = x->ndim - 1;
    const int64_t C = x->shape[axis], N = classes->numel, step = 0;
    TC_TRY(tc_begin_backward(&s, in, 5));
    TC_TRY(tc_spread_gradient(&s, &in[DLOSS].given, a->reduction, a->total, total));
    if (a->logarithms && s.device.type == TC_CPU) return put_gradient(&s, dx, in[DLOSS].given, x, classes, weight, a->ignore_index);
    if (in[DLOSS].given->ndim == 0) TC_TRY(tc_make_view(&s, &in[DLOSS].given, in[DLOSS].given, 1, &N, &step, 0));
    TC_TRY(tc_move_axis(&s, &in[ROWS].given, x, axis, last));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &rows, x->ndim, in[ROWS].given->shape));
    const tc_cross_entropy_backward_args args = {.dx = rows->data,
                                                 .dloss = in[DLOSS].data,
                                                 .x = in[ROWS].data,
                                                 .top = in[TOP].data,
                                                 .log_sum = in[LOG_SUM].data,
                                                 .weight = in[WEIGHT].data,
                                                 .target = tc_data(classes),
                                                 .C = C,
                                                 .ignore_index = a->ignore_index,
                                                 .smoothing = a->smoothing,
                                                 .logarithms = a->logarithms};
    TC_TRY(tc_compute(&s, &tc_kernel_cross_entropy_backward, &args, N, 10.0 * (double)C));
    TC_TRY(tc_move_axis(&s, &out, rows, last, axis));
    return tc_give_rounded(&s, 1, &(tc_result){dx, out});
}

enum { SAVED_X, SAVED_CLASSES, SAVED_TOP, SAVED_LOG_SUM, SAVED_WEIGHT, SAVED_TOTAL };

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    return class_gradient(&grad_inputs[0], grad_outputs[0], tc_node_saved(node, SAVED_X), tc_node_saved(node, SAVED_CLASSES),
                          tc_node_saved(node, SAVED_TOP), tc_node_saved(node, SAVED_LOG_SUM), tc_node_saved(node, SAVED_WEIGHT),
                          tc_node_saved(node, SAVED_TOTAL), node->attributes, err);
}

static const tc_op nll_loss_op = {"nll_loss", backward, .attribute_bytes = sizeof(class_attributes)};
static const tc_op cross_entropy_op = {"cross_entropy", backward, .attribute_bytes = sizeof(class_attributes)};

/* ---- with probabilities ---------------------------------------------------------------------------------------------------- */

/* Recorded; casts to s->statistics are. */
static tc_status cast(tc_scope *s, tc_tensor **tensor)
{
    if (!*tensor) return TC_OK;
    TC_TRY(tc_cast(tensor, *tensor, s->statistics, s->err));
    return tc_own(s, *tensor);
}

/* *a times b, recorded. */
static tc_status multiply(tc_scope *s, tc_tensor **a, tc_tensor *b)
{
    TC_TRY(tc_binary(a, *a, b, TC_BINARY_mul, s->err));
    return tc_own(s, *a);
}

/* *q = (1 - smoothing) q + smoothing / C, recorded. */
static tc_status smooth(tc_scope *s, tc_tensor **q, double smoothing, int64_t C)
{
    if (smoothing == 0) return TC_OK;
    TC_TRY(tc_binary_scalar(q, *q, tc_scalar_real(1 - smoothing), false, TC_BINARY_mul, s->err));
    TC_TRY(tc_own(s, *q));
    TC_TRY(tc_binary_scalar(q, *q, tc_scalar_real(smoothing / (double)C), false, TC_BINARY_add, s->err));
    return tc_own(s, *q);
}

/* -sum_c w[c] q[c] log p[c] of each row, of s->statistics, by recorded ops. */
static tc_status with_probabilities(tc_scope *s, tc_tensor **losses, tc_tensor *x, tc_tensor *q, tc_tensor *weight, double smoothing)
{
    const int64_t axis = class_axis(x), C = x->shape[axis];
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_tensor *t;
    if (!tc_tensor_same_shape(x, q))
        return tc_fail(s->err, TC_ERROR_VALUE,
                       "target is floating, class probabilities, so it must have input's shape %s; it has %s (classes are integers)",
                       tc_tensor_text(a, x), tc_tensor_text(b, q));
    TC_TRY(cast(s, &x));
    TC_TRY(cast(s, &q));
    TC_TRY(cast(s, &weight));
    TC_TRY(smooth(s, &q, smoothing, C));
    TC_TRY(tc_softmax(&t, x, axis, true, s->err));
    TC_TRY(tc_own(s, t));
    TC_TRY(multiply(s, &t, q));
    if (weight) {
        int64_t shape[TC_MAX_DIMS];
        for (int i = 0; i < x->ndim; i++) shape[i] = i == axis ? C : 1;
        TC_TRY(tc_reshape(&weight, weight, x->ndim, shape, true, s->err));
        TC_TRY(tc_own(s, weight));
        TC_TRY(multiply(s, &t, weight));
    }
    TC_TRY(tc_reduce(&t, t, TC_REDUCE_sum, 1, &axis, false, s->err));
    TC_TRY(tc_own(s, t));
    TC_TRY(tc_unary(losses, t, TC_UNARY_neg, s->err));
    return tc_own(s, *losses);
}

/* ---- the ops --------------------------------------------------------------------------------------------------------------- */

enum { LOGITS, WEIGHTS, GIVEN };

/* Does the kernel read the rows where they are? Otherwise all of x would be copied for one element of each. */
static bool has_plain_rows(const tc_scope *s, const tc_tensor *x)
{
    return s->device.type != TC_CPU || (x->dtype == s->statistics && x->contiguous && class_axis(x) == x->ndim - 1);
}

static tc_status compute_losses(tc_scope *s, tc_input *in, tc_tensor **losses, tc_tensor **top, tc_tensor **log_sum,
                                const tc_tensor *classes, const class_attributes *a)
{
    tc_tensor *const x = in[LOGITS].given;
    const int64_t C = x->shape[class_axis(x)], N = classes->numel;
    TC_TRY(tc_move_axis(s, &in[LOGITS].given, x, class_axis(x), x->ndim - 1));
    TC_TRY(tc_prepare(s));
    TC_TRY(tc_make_statistic(s, losses, classes->ndim, classes->shape));
    if (!a->logarithms) TC_TRY(tc_make_statistic(s, top, 1, &N));
    if (!a->logarithms) TC_TRY(tc_make_statistic(s, log_sum, 1, &N));
    const tc_cross_entropy_forward_args args = {.loss = (*losses)->data,
                                                .top = tc_data(*top),
                                                .log_sum = tc_data(*log_sum),
                                                .x = in[LOGITS].data,
                                                .weight = in[WEIGHTS].data,
                                                .target = tc_data(classes),
                                                .C = C,
                                                .ignore_index = a->ignore_index,
                                                .smoothing = a->smoothing,
                                                .logarithms = a->logarithms};
    return tc_compute(s, &tc_kernel_cross_entropy_forward, &args, N, a->logarithms ? 4.0 : 10.0 * (double)C);
}

/* Both ops with classes. top, log_sum: NULL where nobody asks. */
static tc_status with_classes(tc_tensor **loss, tc_tensor **top, tc_tensor **log_sum, tc_tensor *x, tc_tensor *target, tc_tensor *weight,
                              class_attributes a, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {[LOGITS] = {"input", x}, [WEIGHTS] = {"weight", weight, .statistic = true}};
    tc_tensor *classes, *total, *losses, *reduced, *t = NULL, *l = NULL;
    TC_TRY(tc_begin(&s, in, GIVEN));
    TC_TRY(check_arguments(&s, x, target, weight, a.smoothing));
    TC_TRY(take_classes(&s, &classes, &in[WEIGHTS].given, &a, &total, x, target));
    if (a.logarithms && !has_plain_rows(&s, x))
        TC_TRY(pick_losses(&s, &losses, x, classes, in[WEIGHTS].given, a.ignore_index));
    else
        TC_TRY(compute_losses(&s, in, &losses, &t, &l, classes, &a));
    TC_TRY(tc_reduce_losses(&s, &reduced, losses, a.reduction, a.total, total));
    TC_TRY(tc_finish(&s, loss, reduced,
                     &(tc_record){.op = a.logarithms ? &nll_loss_op : &cross_entropy_op,
                                  .input_count = 1,
                                  .inputs = &x, /* as it was given */
                                  TC_SAVED(x, classes, t, l, weight, total),
                                  .attributes = &a}));
    tc_give(&s, top, t);
    tc_give(&s, log_sum, l);
    return TC_OK;
}

tc_status tc_cross_entropy(tc_tensor **loss, tc_tensor **top, tc_tensor **log_sum, tc_tensor *x, tc_tensor *target, tc_tensor *weight,
                           int64_t ignore_index, double label_smoothing, tc_reduction reduction, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"input", x}, {"weight", weight, .statistic = true}};
    tc_tensor *losses, *reduced;
    if (!tc_dtype_is_float(target->dtype) || top || log_sum)
        return with_classes(loss, top, log_sum, x, target, weight,
                            (class_attributes){.ignore_index = ignore_index, .smoothing = label_smoothing, .reduction = reduction}, err);
    TC_TRY(tc_begin(&s, in, 2));
    TC_TRY(check_arguments(&s, x, target, weight, label_smoothing));
    if (ignore_index >= 0)
        return tc_fail(err, TC_ERROR_VALUE,
                       "ignore_index is %" PRId64 " and target has probabilities, which have no index: set rows of target to 0 instead",
                       ignore_index);
    const int64_t C = x->shape[class_axis(x)];
    TC_TRY(with_probabilities(&s, &losses, x, target, weight, label_smoothing));
    TC_TRY(tc_reduce_losses(&s, &reduced, losses, reduction, (double)(C ? x->numel / C : 0), NULL));
    return tc_cast(loss, reduced, s.result, err);
}

tc_status tc_nll_loss(tc_tensor **loss, tc_tensor *x, tc_tensor *target, tc_tensor *weight, int64_t ignore_index, tc_reduction reduction,
                      tc_error *err)
{
    return with_classes(loss, NULL, NULL, x, target, weight,
                        (class_attributes){.ignore_index = ignore_index, .reduction = reduction, .logarithms = true}, err);
}

static tc_status classes_backward(tc_tensor **dx, tc_tensor *dloss, tc_tensor *x, tc_tensor *target, tc_tensor *top, tc_tensor *log_sum,
                                  tc_tensor *weight, class_attributes a, tc_error *err)
{
    TC_SCOPE(s, err);
    enum { DLOSS, X, TOP, LOG_SUM, WEIGHT, INPUTS };
    tc_input in[] = {[DLOSS] = {"dloss", dloss},
                     [X] = {"input", x},
                     [TOP] = {"top", top},
                     [LOG_SUM] = {"log_sum", log_sum},
                     [WEIGHT] = {"weight", weight}};
    tc_tensor *classes, *total, *out;
    TC_TRY(tc_begin_backward(&s, in, INPUTS));
    TC_TRY(check_arguments(&s, x, target, weight, a.smoothing));
    TC_TRY(take_classes(&s, &classes, &weight, &a, &total, x, target));
    TC_TRY(tc_check_shape(&s, dloss, "dloss", "the result has", a.reduction == TC_REDUCTION_NONE ? target->ndim : 0, target->shape));
    TC_TRY(tc_check_follows(&s, top, "top", x, 1, &classes->numel));
    TC_TRY(tc_check_follows(&s, log_sum, "log_sum", x, 1, &classes->numel));
    TC_TRY(class_gradient(&out, dloss, x, classes, top, log_sum, weight, total, &a, err));
    TC_TRY(tc_own(&s, out));
    return tc_tensor_contiguous(dx, out, err);
}

tc_status tc_cross_entropy_backward(tc_tensor **dx, tc_tensor *dloss, tc_tensor *x, tc_tensor *target, tc_tensor *top, tc_tensor *log_sum,
                                    tc_tensor *weight, int64_t ignore_index, double label_smoothing, tc_reduction reduction, tc_error *err)
{
    return classes_backward(dx, dloss, x, target, top, log_sum, weight,
                            (class_attributes){.ignore_index = ignore_index, .smoothing = label_smoothing, .reduction = reduction}, err);
}

tc_status tc_nll_loss_backward(tc_tensor **dx, tc_tensor *dloss, tc_tensor *x, tc_tensor *target, tc_tensor *weight, int64_t ignore_index,
                               tc_reduction reduction, tc_error *err)
{
    return classes_backward(dx, dloss, x, target, NULL, NULL, weight,
                            (class_attributes){.ignore_index = ignore_index, .reduction = reduction, .logarithms = true}, err);
}
