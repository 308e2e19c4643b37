/* matmul.c: a @ b by NumPy's rules. Any strides are read in place.
 *
 * Saved for the backward: a and b, each if the other wants a gradient. */
#include <inttypes.h>
#include <string.h>

#include "../core/reduction.h"
#include "../kernels/integer_product.h"
#include "gemm.h"
#include "op.h"

enum { A, B, INPUTS }; /* of the op; both are saved */

/* The operands as batches of matrices: vectors get an axis of length 1, leading axes broadcast. */
typedef struct problem {
    tc_gemm_args product;
    int ndim; /* of the result */
    int64_t shape[TC_MAX_DIMS];
} problem;

static tc_status broadcast_batch(problem *p, const tc_tensor *a, const tc_tensor *b, tc_error *err)
{
    char x[TC_SHAPE_TEXT], y[TC_SHAPE_TEXT];
    const int a_lead = a->ndim > 2 ? a->ndim - 2 : 0, b_lead = b->ndim > 2 ? b->ndim - 2 : 0, lead = a_lead > b_lead ? a_lead : b_lead;
    for (int d = 0; d < lead; d++) {
        const int i = d - (lead - a_lead), j = d - (lead - b_lead); /* the axis in a and in b, when not negative */
        const int64_t m = i < 0 ? 1 : a->shape[i], n = j < 0 ? 1 : b->shape[j];
        if (m != n && m != 1 && n != 1)
            return tc_fail(err, TC_ERROR_VALUE,
                           "the leading axes of a %s and b %s do not broadcast: %" PRId64 " and %" PRId64
                           " must be equal, or one of them 1",
                           tc_tensor_text(x, a), tc_tensor_text(y, b), m, n);
        p->shape[d] = p->product.batch_shape[d] = m == 1 ? n : m;
        p->product.a_batch[d] = m == 1 ? 0 : a->strides[i];
        p->product.b_batch[d] = n == 1 ? 0 : b->strides[j];
    }
    p->ndim = p->product.batch_dims = lead;
    return TC_OK;
}

static tc_status understand(problem *p, const tc_tensor *a, const tc_tensor *b, tc_error *err)
{
    char x[TC_SHAPE_TEXT], y[TC_SHAPE_TEXT];
    if (a->ndim < 1 || b->ndim < 1)
        return tc_fail(err, TC_ERROR_VALUE,
                       "matmul needs at least one axis in each operand, got a %s and b %s: multiply by a number with *",
                       tc_tensor_text(x, a), tc_tensor_text(y, b));
    const int a_col = a->ndim - 1, b_row = b->ndim > 1 ? b->ndim - 2 : 0;
    tc_gemm_args *q = &p->product;
    q->K = a->shape[a_col];
    if (b->shape[b_row] != q->K)
        return tc_fail(err, TC_ERROR_VALUE, "a has %" PRId64 " columns but b has %" PRId64 " rows; they must be equal (a %s, b %s)", q->K,
                       b->shape[b_row], tc_tensor_text(x, a), tc_tensor_text(y, b));
    TC_TRY(broadcast_batch(p, a, b, err));
    q->M = q->N = 1;
    q->a = a->data, q->a_col = a->strides[a_col];
    q->b = b->data, q->b_row = b->strides[b_row];
    if (a->ndim > 1) q->M = p->shape[p->ndim++] = a->shape[a_col - 1], q->a_row = a->strides[a_col - 1];
    if (b->ndim > 1) q->N = p->shape[p->ndim++] = b->shape[b->ndim - 1], q->b_col = b->strides[b->ndim - 1];
    TC_TRY(tc_check_lengths(p->ndim, p->shape, err));
    int64_t step = q->c_row = q->N;
    step *= q->M;
    for (int d = q->batch_dims - 1; d >= 0; step *= q->batch_shape[d--]) q->c_batch[d] = step;
    return TC_OK;
}

/* A batch that shares one b is one tall product, if a's axes can be walked as one. */
static void fold_batch(tc_gemm_args *p)
{
    while (p->batch_dims > 0) {
        const int d = p->batch_dims - 1;
        if (p->batch_shape[d] != 1) {
            if (p->b_batch[d] != 0 || (p->M > 1 && p->a_batch[d] != p->M * p->a_row)) return;
            if (p->M <= 1) p->a_row = p->a_batch[d], p->c_row = p->c_batch[d];
            p->M *= p->batch_shape[d];
        }
        p->batch_dims--;
    }
}

static tc_status integer_product(tc_scope *s, const tc_gemm_args *p)
{
    const tc_integer_product_args args = {.product = *p, .dtype = s->compute};
    int64_t rows = p->M;
    for (int d = 0; d < p->batch_dims; d++) rows *= p->batch_shape[d];
    return tc_compute(s, &tc_kernel_integer_product, &args, rows, (double)p->N * (double)p->K);
}

/* *c = a b, of s->result for a forward, otherwise of s->compute. `k_is_rows`: of the product's arguments. */
static tc_status product(tc_scope *s, tc_tensor **c, const tc_tensor *a, const tc_tensor *b, bool forward, bool k_is_rows)
{
    problem p = {.ndim = 0};
    TC_TRY(understand(&p, a, b, s->err));
    TC_TRY((forward ? tc_make_result : tc_make)(s, c, p.ndim, p.shape));
    p.product.c = (*c)->data;
    p.product.a_stored = tc_stored_as(s, a), p.product.b_stored = tc_stored_as(s, b), p.product.c_stored = tc_stored_as(s, *c);
    p.product.k_is_rows = k_is_rows;
    p.product.may_split = true;
    fold_batch(&p.product);
    if (tc_dtype_is_float(s->compute)) (void)tc_turn_column(s, &p.product);
    return tc_dtype_is_float(s->compute) ? tc_product(s, &p.product, NULL) : integer_product(s, &p.product);
}

/* ---- backward ---------------------------------------------------------------------------------------------------------------
 *
 * With a (..., M, K) and b (..., K, N): da = dc b^T and db = a^T dc, summed over the axes their tensor was repeated along. Vectors get
 * the axis that they lack. */

/* The transpose of x as a matrix, which has a vector as its only row (a) or column (b). */
static tc_status transpose(tc_scope *s, tc_tensor **out, tc_tensor *x, bool column)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    int n = x->ndim;
    memcpy(shape, x->shape, sizeof shape);
    memcpy(strides, x->strides, sizeof strides);
    if (n == 1) {
        shape[column ? 1 : 0] = 1, strides[column ? 1 : 0] = 0;
        shape[column ? 0 : 1] = x->shape[0], strides[column ? 0 : 1] = x->strides[0];
        n = 2;
    }
    const int64_t length = shape[n - 1], stride = strides[n - 1];
    shape[n - 1] = shape[n - 2], strides[n - 1] = strides[n - 2];
    shape[n - 2] = length, strides[n - 2] = stride;
    return tc_make_view(s, out, x, n, shape, strides, 0);
}

/* dc (..., M, N) where the result lacks the axes of vectors. */
static tc_status gradient_matrix(tc_scope *s, tc_tensor **out, tc_tensor *dc, bool a_vector, bool b_vector)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    int n = 0;
    const int lead = dc->ndim - !a_vector - !b_vector;
    for (; n < lead; n++) shape[n] = dc->shape[n], strides[n] = dc->strides[n];
    shape[n] = a_vector ? 1 : dc->shape[lead], strides[n++] = a_vector ? 0 : dc->strides[lead];
    shape[n] = b_vector ? 1 : dc->shape[dc->ndim - 1], strides[n++] = b_vector ? 0 : dc->strides[dc->ndim - 1];
    return tc_make_view(s, out, dc, n, shape, strides, 0);
}

/* x (batch, M, K) as one matrix (batch M, K), where its strides allow it; otherwise a copy. */
static tc_status as_rows(tc_scope *s, tc_tensor **out, tc_tensor *x)
{
    int64_t rows, stride;
    TC_TRY(tc_fold_rows(s, &x, &rows, &stride));
    return tc_make_view(s, out, x, 2, (int64_t[]){rows, x->shape[x->ndim - 1]}, (int64_t[]){stride, x->strides[x->ndim - 1]}, 0);
}

/* *out = `full`, summed to the shape of `like` and rounded to its dtype. */
static tc_status reduce_to(tc_scope *s, tc_tensor **out, tc_tensor *full, const tc_tensor *like)
{
    TC_TRY(tc_sum_to(out, full, like->ndim, like->shape, like->dtype, s->err));
    return tc_own(s, *out);
}

static tc_status gradient_a(tc_scope *s, tc_tensor **full, tc_tensor *dc, tc_tensor *b)
{
    tc_tensor *b_transposed;
    TC_TRY(transpose(s, &b_transposed, b, true));
    return product(s, full, dc, b_transposed, false, false);
}

static tc_status gradient_b(tc_scope *s, tc_tensor **full, tc_tensor *dc, tc_tensor *a, const tc_tensor *b)
{
    tc_tensor *a_transposed;
    if (b->ndim == 2 && a->ndim > 2) { /* one b for the whole batch: its rows and the batch are summed over in one product */
        TC_TRY(as_rows(s, &a, a));
        TC_TRY(as_rows(s, &dc, dc));
    }
    TC_TRY(transpose(s, &a_transposed, a, false));
    TC_TRY(product(s, full, a_transposed, dc, false, true));
    if (b->ndim > 1) return TC_OK;
    return tc_make_view(s, full, *full, (*full)->ndim - 1, (*full)->shape, (*full)->strides, 0); /* (..., K, 1): without the last axis */
}

static tc_status check_gradient(const tc_tensor *dc, const problem *p, const tc_tensor *a, const tc_tensor *b, tc_error *err)
{
    char x[TC_SHAPE_TEXT], y[TC_SHAPE_TEXT];
    const tc_dtype dtype = tc_dtype_promote(a->dtype, b->dtype);
    TC_TRY(tc_check_float(dc, "dc", err));
    if (dc->dtype != dtype)
        return tc_fail(err, TC_ERROR_TYPE, "dc is %s but the product of a (%s) and b (%s) is %s; convert dc with .to()",
                       tc_dtype_name(dc->dtype), tc_dtype_name(a->dtype), tc_dtype_name(b->dtype), tc_dtype_name(dtype));
    if (tc_has_shape(dc, p->ndim, p->shape)) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "dc has shape %s but the result has %s; they must be equal", tc_tensor_text(x, dc),
                   tc_shape_text(y, p->ndim, p->shape));
}

tc_status tc_matmul_backward(tc_tensor **da, tc_tensor **db, tc_tensor *dc, tc_tensor *a, tc_tensor *b, tc_error *err)
{
    TC_SCOPE(s, err);
    enum { DC = INPUTS };
    tc_input in[] = {[A] = {"a", a, .strided = true, .halves = !db}, /* what is not read stays as it is */
                     [B] = {"b", b, .strided = true, .halves = !da},
                     [DC] = {"dc", dc, .strided = true}};
    problem p = {.ndim = 0};
    tc_tensor *gradient, *full, *for_a = NULL, *for_b = NULL;
    TC_TRY(tc_begin_promoting(&s, in, 3));
    if (da) TC_TRY(tc_check_float(a, "a", err));
    if (db) TC_TRY(tc_check_float(b, "b", err));
    TC_TRY(understand(&p, a, b, err));
    TC_TRY(check_gradient(dc, &p, a, b, err));
    TC_TRY(tc_prepare(&s));
    TC_TRY(gradient_matrix(&s, &gradient, in[DC].tensor, a->ndim == 1, b->ndim == 1));
    if (da) TC_TRY(gradient_a(&s, &full, gradient, in[B].tensor));
    if (da) TC_TRY(reduce_to(&s, &for_a, full, a));
    if (db) TC_TRY(gradient_b(&s, &full, gradient, in[A].tensor, b));
    if (db) TC_TRY(reduce_to(&s, &for_b, full, b));
    tc_give(&s, da, for_a);
    tc_give(&s, db, for_b);
    return TC_OK;
}

/* ---- on the tape ------------------------------------------------------------------------------------------------------------ */

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    return tc_matmul_backward(tc_wanted(node, grad_inputs, A), tc_wanted(node, grad_inputs, B), grad_outputs[0], tc_node_saved(node, A),
                              tc_node_saved(node, B), err);
}

static const tc_op matmul_op = {"matmul", backward};

tc_status tc_matmul(tc_tensor **c, tc_tensor *a, tc_tensor *b, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {[A] = {"a", a, .strided = true, .halves = true}, [B] = {"b", b, .strided = true, .halves = true}};
    tc_tensor *out, *kept_a, *kept_b;
    TC_TRY(tc_begin_promoting(&s, in, INPUTS));
    TC_TRY(tc_prepare(&s));
    TC_TRY(product(&s, &out, in[A].tensor, in[B].tensor, true, false));
    TC_TRY(tc_keep_for(&s, &kept_a, a, b));
    TC_TRY(tc_keep_for(&s, &kept_b, b, a));
    return tc_finish(&s, c, out, &(tc_record){.op = &matmul_op, TC_SAVED(kept_a, kept_b)});
}
