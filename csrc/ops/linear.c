/* linear.c: y = dropout(activation(x weight^T + bias)) + residual, one product with everything else in its epilogue; on CPUs dropout, and
 * what is added after it, are passes over the result. Halves are rounded once, at the end.
 *
 * Saved for the backward: x if the weight wants a gradient, weight, and with an activation the values it was applied to (M N numbers);
 * ReLU without a residual saves its result instead, which exists anyway and has the same sign where an element is kept. What dropout keeps
 * is drawn again. */
#include "linear.h"

#include <inttypes.h>
#include <string.h>

#include "../core/reduction.h"
#include "../kernels/activation.h"
#include "../kernels/sum_partials.h"
#include "gemm.h"

enum { X, WEIGHT, BIAS, RESIDUAL, INPUTS };                 /* of the op */
enum { SAVED_X, SAVED_WEIGHT, SAVED_VALUE, SAVED_LENGTHS }; /* for its backward */

typedef struct linear_attributes {
    tc_activation activation;
    int64_t length; /* of sequences */
    tc_drawn_mask mask;
} linear_attributes;

/* Is this the shape of the result of x and weight? */
static bool has_result_shape(const tc_tensor *tensor, const tc_tensor *x, const tc_tensor *weight)
{
    return tensor->ndim == x->ndim && tensor->shape[x->ndim - 1] == weight->shape[0] &&
           memcmp(tensor->shape, x->shape, sizeof(int64_t) * (size_t)(x->ndim - 1)) == 0;
}

tc_status tc_linear_check(tc_scope *s, const tc_tensor *x, const tc_tensor *weight, const tc_tensor *bias, const tc_tensor *residual)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (weight->ndim != 2)
        return tc_fail(s->err, TC_ERROR_VALUE, "weight has shape %s; expected two axes, (out_features, in_features)",
                       tc_tensor_text(a, weight));
    if (x->ndim < 1)
        return tc_fail(s->err, TC_ERROR_VALUE, "x has no axes; expected (..., %" PRId64 "), the in_features of weight", weight->shape[1]);
    if (x->shape[x->ndim - 1] != weight->shape[1])
        return tc_fail(s->err, TC_ERROR_VALUE,
                       "x has %" PRId64 " features but weight takes %" PRId64
                       "; they must be equal (x %s, weight %s: out_features, in_features)",
                       x->shape[x->ndim - 1], weight->shape[1], tc_tensor_text(a, x), tc_tensor_text(b, weight));
    if (bias && (bias->ndim != 1 || bias->shape[0] != weight->shape[0]))
        return tc_fail(s->err, TC_ERROR_VALUE, "bias has shape %s but weight %s gives %" PRId64 " features; expected (%" PRId64 ",)",
                       tc_tensor_text(a, bias), tc_tensor_text(b, weight), weight->shape[0], weight->shape[0]);
    if (!residual || has_result_shape(residual, x, weight)) return TC_OK;
    return tc_fail(s->err, TC_ERROR_VALUE,
                   "residual has shape %s; it is added to the result, so it must be that of x %s with %" PRId64 " features",
                   tc_tensor_text(a, residual), tc_tensor_text(b, x), weight->shape[0]);
}

/* Of CPUs: dropout of y, of s->compute, in its place, and the residual. */
static tc_status drop_and_add(tc_scope *s, tc_tensor *y, const tc_mask *mask, const tc_input *residual)
{
    const tc_dropout_forward_args args = {.y = y->data, .x = y->data, .n = y->numel, .mask = *mask};
    TC_TRY(tc_compute(s, &tc_kernel_dropout_forward, &args, tc_dropout_items(&args), 8.0 * TC_PHILOX_GROUP));
    if (!residual) return TC_OK;
    const tc_sum_partials_args sum = {.out = y->data,
                                      .partial = y->data,
                                      .before = residual->data,
                                      .before_stored = tc_stored_as(s, residual->tensor),
                                      .chunks = 1,
                                      .C = y->numel};
    return tc_compute(s, &tc_kernel_sum_partials, &sum, tc_divide_up(sum.C, TC_SUM_PARTIALS_GROUP), TC_SUM_PARTIALS_GROUP);
}

tc_status tc_linear_compute(tc_scope *s, tc_tensor **y, tc_tensor **pre, tc_activation activation, tc_drawn_mask *mask,
                            const tc_sequences *sequences)
{
    tc_tensor *x = s->in[X].tensor, *weight = s->in[WEIGHT].tensor, *bias = s->in[BIAS].tensor;
    tc_storage *storage = weight->storage;
    /* In training a weight changes with every step: keeping its prepared form is worthwhile only when this call does not train it. */
    const bool keep = weight == s->in[WEIGHT].given && !storage->shared && !tc_tape_wants(1, &weight);
    tc_gemm_args g = {.N = weight->shape[0], .K = weight->shape[1], .activation = activation, .may_split = true};
    TC_TRY(tc_fold_rows(s, &x, &g.M, &g.a_row));
    int64_t shape[TC_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->ndim - 1] = g.N;
    const tc_input *residual = s->in_count > RESIDUAL && s->in[RESIDUAL].tensor ? &s->in[RESIDUAL] : NULL;
    const bool drops_after = mask && s->device.type == TC_CPU;
    TC_TRY((drops_after ? tc_make : tc_make_result)(s, y, x->ndim, shape));
    if (pre) TC_TRY(tc_make(s, pre, x->ndim, shape));
    g.a = x->data, g.a_col = x->strides[x->ndim - 1];
    g.b = weight->data, g.b_row = weight->strides[1], g.b_col = weight->strides[0];
    g.c = (*y)->data, g.pre = pre ? (*pre)->data : NULL;
    if (bias && g.N == 1 && g.M > 1 && s->device.type == TC_CPU) { /* as tc_turn_column() needs it */
        TC_TRY(tc_tensor_as(&bias, bias, s->compute, s->err));
        TC_TRY(tc_own(s, bias));
    }
    g.bias = tc_data(bias);
    g.a_stored = tc_stored_as(s, x), g.b_stored = tc_stored_as(s, weight), g.c_stored = tc_stored_as(s, *y);
    g.bias_stored = tc_stored_as(s, bias);
    if (residual && !drops_after) g.residual = residual->data, g.residual_stored = tc_stored_as(s, residual->tensor);
    g.c_row = g.pre_row = g.residual_row = g.N;
    if (mask) *mask = tc_mask_of(*y, (*y)->ndim, mask->kept.p, mask->kept.seed, mask->kept.call);
    if (mask && !drops_after) g.mask = mask->kept;
    if (tc_turn_column(s, &g))
        TC_TRY(tc_product(s, &g, NULL));
    else
        TC_TRY(tc_product_of_sequences(s, &g, keep ? storage : NULL, sequences));
    return drops_after ? drop_and_add(s, *y, &mask->kept, residual) : TC_OK;
}

/* tc_linear_gradients, of what dropout keeps of dy. */
static tc_status gradients_with(const tc_drawn_mask *mask, const tc_node *node, tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias,
                                tc_tensor *dy, tc_tensor *x, tc_tensor *weight, tc_tensor *pre, tc_activation activation,
                                const tc_sequences *sequences, tc_error *err)
{
    TC_SCOPE(s, err);
    if (mask->kept.p > 0.0) {
        TC_TRY(tc_drop(&dy, dy, mask, err));
        TC_TRY(tc_own(&s, dy));
    }
    const bool is_own = mask->kept.p > 0.0;
    return tc_linear_gradients(node, dx, dweight, dbias, dy, is_own, x, weight, pre, activation, sequences, err);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const linear_attributes *a = node->attributes;
    const tc_sequences sequences = {a->length, tc_node_saved(node, SAVED_LENGTHS)};
    tc_tensor **const dx = tc_wanted(node, grad_inputs, X), **const dweight = tc_wanted(node, grad_inputs, WEIGHT),
                      **const dbias = tc_wanted(node, grad_inputs, BIAS);
    if (tc_node_needs(node, RESIDUAL)) grad_inputs[RESIDUAL] = tc_tensor_retain(grad_outputs[0]);
    if (!dx && !dweight && !dbias) return TC_OK; /* the values before the activation were not saved */
    TC_TRY(tc_check_mask(&a->mask, err));
    return gradients_with(&a->mask, node, dx, dweight, dbias, grad_outputs[0], tc_node_saved(node, SAVED_X),
                          tc_node_saved(node, SAVED_WEIGHT), tc_node_saved(node, SAVED_VALUE), a->activation, &sequences, err);
}

static const tc_op linear_op = {"linear", backward, NULL, sizeof(linear_attributes)};

tc_status tc_linear(tc_tensor **y, tc_tensor **pre, tc_tensor *x, tc_tensor *weight, tc_tensor *bias, tc_activation activation,
                    tc_tensor *residual, double dropout, uint64_t seed, uint64_t call, const tc_sequences *sequences, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {[X] = {"x", x, .strided = true, .halves = true},
                     [WEIGHT] = {"weight", weight, .strided = true, .halves = true},
                     [BIAS] = {"bias", bias, .halves = true},
                     [RESIDUAL] = {"residual", residual, .halves = true}};
    tc_tensor *out, *kept, *before = NULL;
    tc_sequences own;
    TC_TRY(tc_begin(&s, in, INPUTS));
    TC_TRY(tc_linear_check(&s, x, weight, bias, residual));
    TC_TRY(tc_check_dropout(dropout, err));
    TC_TRY(tc_take_sequences(&s, &own, sequences, x));
    TC_TRY(tc_prepare(&s));
    const bool by_result = activation == TC_ACTIVATION_RELU && !residual; /* y > 0 where pre > 0 and the element is kept */
    const bool to_save = !by_result && tc_tape_wants(3, (tc_tensor *const[]){x, weight, bias});
    linear_attributes a = {activation, own.length, {.kept = {.p = dropout, .seed = seed, .call = call}}};
    TC_TRY(tc_linear_compute(&s, &out, activation != TC_ACTIVATION_NONE && (pre || to_save) ? &before : NULL, activation,
                             dropout > 0.0 ? &a.mask : NULL, &own));
    TC_TRY(tc_keep_for(&s, &kept, x, weight));
    TC_TRY(tc_finish(&s, y, out,
                     &(tc_record){.op = &linear_op, TC_SAVED(kept, weight, by_result ? out : before, own.lengths), .attributes = &a}));
    tc_give(&s, pre, before);
    return TC_OK;
}

/* Halves are multiplied as they are stored, but where x has so few features that copying rows of dy for them takes longer than widening
 * all. */
#define LEAST_FEATURES_OF_HALVES 64

/* ---- backward -------------------------------------------------------------------------------------------------------------- */

static tc_status check_backward(tc_scope *s, const tc_tensor *dy, const tc_tensor *x, const tc_tensor *weight, const tc_tensor *pre,
                                tc_activation activation)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT], c[TC_SHAPE_TEXT];
    TC_TRY(tc_linear_check(s, x, weight, NULL, NULL));
    if (!has_result_shape(dy, x, weight))
        return tc_fail(s->err, TC_ERROR_VALUE,
                       "dy has shape %s but the product of x %s and weight %s has that of x with %" PRId64 " features",
                       tc_tensor_text(a, dy), tc_tensor_text(b, x), tc_tensor_text(c, weight), weight->shape[0]);
    if (activation == TC_ACTIVATION_NONE) return TC_OK;
    if (!pre)
        return tc_fail(s->err, TC_ERROR_VALUE,
                       "pre is None; the backward of an activation needs what it was applied to, the second result of the forward");
    return tc_check_shape(s, pre, "pre", "dy has", dy->ndim, dy->shape);
}

/* *p: dy f'(pre), both contiguous, as dy is stored; in the memory of dy if that may be overwritten. */
static tc_status through_activation(tc_scope *s, tc_tensor **p, tc_tensor *dy, bool overwrites, const tc_tensor *pre,
                                    tc_activation activation)
{
    *p = dy;
    if (!overwrites) TC_TRY(tc_make_as(s, p, dy->ndim, dy->shape, dy->dtype));
    const tc_activation_backward_args args = {.dx = (*p)->data,
                                              .dy = dy->data,
                                              .x = pre->data,
                                              .n = dy->numel,
                                              .activation = activation,
                                              .stored = tc_stored_as(s, dy),
                                              .x_stored = tc_stored_as(s, pre)};
    const int64_t blocks = tc_divide_up(dy->numel, TC_ACTIVATION_BLOCK);
    return tc_compute(s, &tc_kernel_activation_backward, &args, blocks, 8.0 * TC_ACTIVATION_BLOCK);
}

/* Halves become what kernels compute in. */
static tc_status widen(tc_scope *s, tc_tensor **p)
{
    if (tc_stored_as(s, *p) == TC_STORED_AS_COMPUTED) return TC_OK;
    TC_TRY(tc_tensor_as(p, *p, s->compute, s->err));
    return tc_own(s, *p);
}

/* The product is added to what has arrived for this input of the node, if anything has and it is of `dtype`. */
static tc_status add_to_sum(tc_scope *s, tc_gemm_args *g, const tc_node *node, int input, tc_dtype dtype)
{
    tc_tensor *sum = node ? tc_node_take_sum(node, input, dtype) : NULL;
    if (!sum) return TC_OK;
    g->residual = sum->data, g->residual_stored = tc_stored_as(s, sum), g->residual_row = g->N;
    g->accumulates = true;
    return tc_own(s, sum);
}

/* With P = dy f'(pre):  dx = P weight,  dweight = P^T x,  dbias = sum of P's rows. */
tc_status tc_linear_gradients(const tc_node *node, tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dy, bool overwrites,
                              tc_tensor *x, tc_tensor *weight, tc_tensor *pre, tc_activation activation, const tc_sequences *sequences,
                              tc_error *err)
{
    TC_SCOPE(s, err);
    enum { DY, OF_X, OF_WEIGHT, PRE };
    const bool plain = activation == TC_ACTIVATION_NONE; /* P is dy */
    tc_input in[] = {[DY] = {"dy", dy, .strided = plain},
                     [OF_X] = {"x", x, .strided = true},
                     [OF_WEIGHT] = {"weight", weight, .strided = true},
                     [PRE] = {"pre", plain ? NULL : pre}};
    tc_tensor *out_x = NULL, *out_weight = NULL, *out_bias = NULL;
    tc_sequences own;
    int64_t rows, p_row, x_row;
    TC_TRY(tc_begin_backward(&s, in, 4));
    TC_TRY(check_backward(&s, dy, x, weight, pre, activation));
    const bool narrow = weight->shape[1] < LEAST_FEATURES_OF_HALVES;
    in[OF_X].halves = !narrow || !dweight; /* which alone reads x */
    in[OF_WEIGHT].halves = !narrow;
    in[DY].halves = !narrow || !plain; /* P is rounded as dy is, whatever the width */
    in[PRE].halves = true;
    TC_TRY(tc_take_sequences(&s, &own, sequences, x));
    TC_TRY(tc_prepare(&s));
    tc_tensor *p = in[DY].tensor, *of_x = in[OF_X].tensor, *of_weight = in[OF_WEIGHT].tensor;
    if (!plain) TC_TRY(through_activation(&s, &p, p, overwrites, in[PRE].tensor, activation));
    if (narrow) TC_TRY(widen(&s, &p));
    TC_TRY(tc_fold_rows(&s, &p, &rows, &p_row));
    TC_TRY(tc_fold_rows(&s, &of_x, &rows, &x_row));
    const int64_t N = weight->shape[0], K = weight->shape[1], p_col = p->strides[p->ndim - 1], x_col = of_x->strides[x->ndim - 1];
    const tc_dtype of_weights = tc_weight_gradient_dtype(&s, weight);
    const bool bias_with_weight = dweight && dbias && K > 0, wide = of_weights != s.compute;
    if (dx) {
        TC_TRY(tc_make_result(&s, &out_x, x->ndim, x->shape));
        tc_gemm_args g = {.c = out_x->data, .a = p->data, .b = of_weight->data}; /* (rows,K) = P (rows,N) weight (N,K) */
        g.may_split = g.is_gradient = true;
        g.a_stored = tc_stored_as(&s, p), g.b_stored = tc_stored_as(&s, of_weight), g.c_stored = tc_stored_as(&s, out_x);
        g.M = rows, g.N = g.c_row = K, g.K = N;
        g.a_row = p_row, g.a_col = p_col;
        g.b_row = of_weight->strides[0], g.b_col = of_weight->strides[1];
        TC_TRY(add_to_sum(&s, &g, node, X, s.result));
        TC_TRY(tc_product_of_sequences(&s, &g, NULL, &own));
    }
    if (bias_with_weight) TC_TRY(tc_make_as(&s, &out_bias, 1, &N, of_weights));
    if (dweight) {
        TC_TRY(tc_make_as(&s, &out_weight, 2, weight->shape, of_weights));
        tc_gemm_args g = {.c = out_weight->data, .a = p->data, .b = of_x->data}; /* (N,K) = P^T (N,rows) x (rows,K) */
        g.may_split = g.is_gradient = true;
        g.a_stored = tc_stored_as(&s, p), g.b_stored = tc_stored_as(&s, of_x);
        g.M = N, g.N = g.c_row = K, g.K = rows;
        g.a_row = p_col, g.a_col = p_row;
        g.b_row = x_row, g.b_col = x_col;
        g.a_sum = tc_data(out_bias);
        g.k_is_rows = true;
        g.wide = wide;
        TC_TRY(add_to_sum(&s, &g, node, WEIGHT, wide ? of_weights : s.result));
        TC_TRY(tc_product(&s, &g, NULL));
    }
    if (dbias && !bias_with_weight) {
        TC_TRY(widen(&s, &p)); /* the sum is rounded once, if at all */
        TC_TRY(tc_sum_to_shape(&out_bias, p, 1, &N, err));
        TC_TRY(tc_own(&s, out_bias));
    }
    return tc_give_rounded(&s, 3, (tc_result[]){{dx, out_x}, {dweight, out_weight, .wide = wide}, {dbias, out_bias, .wide = wide}});
}

tc_status tc_linear_backward(tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dy, tc_tensor *x, tc_tensor *weight,
                             tc_tensor *pre, tc_activation activation, double dropout, uint64_t seed, uint64_t call,
                             const tc_sequences *sequences, tc_error *err)
{
    TC_TRY(tc_check_dropout(dropout, err));
    const tc_drawn_mask mask = tc_mask_of(dy, dy->ndim, dropout, seed, call);
    return gradients_with(&mask, NULL, dx, dweight, dbias, dy, x, weight, pre, activation, sequences, err);
}
