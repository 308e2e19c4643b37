/* matmul.c: a @ b with NumPy's meaning. Any strides are read in place.
 *
 * Saved for the backward: a and b. */
#include <inttypes.h>
#include <string.h>

#include "../core/backend.h"
#include "../core/reduction.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "../kernels/integer_product.h"
#include "gemm.h"
#include "operands.h"

/* The operands as batches of matrices: an axis of length 1 put in for vectors, leading axes broadcast. */
typedef struct problem {
    tc_product product;
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
    tc_product *q = &p->product;
    q->K = a->shape[a_col];
    if (b->shape[b_row] != q->K)
        return tc_fail(err, TC_ERROR_VALUE, "a has %" PRId64 " columns but b has %" PRId64 " rows; they must be equal (a %s, b %s)", q->K,
                       b->shape[b_row], tc_tensor_text(x, a), tc_tensor_text(y, b));
    const tc_status status = broadcast_batch(p, a, b, err);
    if (status != TC_OK) return status;
    q->M = q->N = 1;
    q->device = a->storage->device;
    q->a = a->data, q->a_col = a->strides[a_col];
    q->b = b->data, q->b_row = b->strides[b_row];
    if (a->ndim > 1) q->M = p->shape[p->ndim++] = a->shape[a_col - 1], q->a_row = a->strides[a_col - 1];
    if (b->ndim > 1) q->N = p->shape[p->ndim++] = b->shape[b->ndim - 1], q->b_col = b->strides[b->ndim - 1];
    int64_t step = q->c_row = q->N;
    step *= q->M;
    for (int d = q->batch_dims - 1; d >= 0; step *= q->batch_shape[d--]) q->c_batch[d] = step;
    return TC_OK;
}

/* A batch that shares one b is one tall product, when a's axes step as one. */
static void fold_batch(tc_product *p)
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

static tc_status integer_product(const tc_product *p, tc_dtype dtype, tc_error *err)
{
    tc_integer_product_args args = {.dtype = dtype};
    tc_gemm_args *g = &args.product;
    *g = (tc_gemm_args){.c = p->c, .a = p->a, .b = p->b, .M = p->M, .N = p->N, .K = p->K, .batch_dims = p->batch_dims};
    g->a_row = p->a_row, g->a_col = p->a_col, g->b_row = p->b_row, g->b_col = p->b_col, g->c_row = p->c_row;
    int64_t rows = p->M;
    for (int d = 0; d < p->batch_dims; d++) {
        rows *= g->batch_shape[d] = p->batch_shape[d];
        g->a_batch[d] = p->a_batch[d], g->b_batch[d] = p->b_batch[d], g->c_batch[d] = p->c_batch[d];
    }
    return tc_run(p->device, TC_FLOAT32, &tc_kernel_integer_product, &args, rows, (double)p->N * (double)p->K, 0, err);
}

/* Not recorded; a and b have one dtype, a compute dtype or an integer. */
static tc_status product(tc_tensor **out, tc_tensor *a, tc_tensor *b, tc_error *err)
{
    problem p = {.ndim = 0};
    tc_tensor *c = NULL;
    tc_status status = TC_OK;
    TC_TRY(understand(&p, a, b, err));
    TC_TRY(tc_tensor_empty(&c, p.ndim, p.shape, a->dtype, p.product.device, err));
    p.product.c = c->data;
    p.product.compute = a->dtype;
    fold_batch(&p.product);
    TC_TRY(tc_dtype_is_float(a->dtype) ? tc_product_run(&p.product, err) : integer_product(&p.product, a->dtype, err));
    *out = tc_tensor_retain(c);
cleanup:
    tc_tensor_release(c);
    return status;
}

/* ---- backward ---------------------------------------------------------------------------------------------------------------
 *
 * With a (..., M, K) and b (..., K, N): da = dc b^T and db = a^T dc, summed over the axes their tensor was repeated along. Vectors are
 * given the axis they lack. */

/* x as a matrix: a vector becomes its only row (of a) or column (of b); `swap` transposes. */
static tc_status as_matrix(tc_tensor **out, tc_tensor *x, bool column, bool swap, tc_error *err)
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
    if (swap) {
        const int64_t length = shape[n - 1], stride = strides[n - 1];
        shape[n - 1] = shape[n - 2], strides[n - 1] = strides[n - 2];
        shape[n - 2] = length, strides[n - 2] = stride;
    }
    return tc_tensor_alias(out, x, n, shape, strides, 0, err);
}

/* dc (..., M, N) where the result lacks the axes of vectors. */
static tc_status gradient_matrix(tc_tensor **out, tc_tensor *dc, bool a_vector, bool b_vector, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    int n = 0;
    const int lead = dc->ndim - !a_vector - !b_vector;
    for (; n < lead; n++) shape[n] = dc->shape[n], strides[n] = dc->strides[n];
    shape[n] = a_vector ? 1 : dc->shape[lead], strides[n++] = a_vector ? 0 : dc->strides[lead];
    shape[n] = b_vector ? 1 : dc->shape[dc->ndim - 1], strides[n++] = b_vector ? 0 : dc->strides[dc->ndim - 1];
    return tc_tensor_alias(out, dc, n, shape, strides, 0, err);
}

/* x (batch, M, K) as one matrix (batch M, K), where its strides allow it; else a copy. */
static tc_status as_rows(tc_tensor **out, tc_tensor *x, tc_error *err)
{
    int64_t rows, stride;
    tc_tensor *base = NULL;
    tc_status status = TC_OK;
    if (tc_fold_rows(x, &rows, &stride))
        base = tc_tensor_retain(x);
    else
        TC_TRY(tc_tensor_contiguous(&base, x, err));
    tc_fold_rows(base, &rows, &stride);
    TC_TRY(
        tc_tensor_alias(out, base, 2, (int64_t[]){rows, x->shape[x->ndim - 1]}, (int64_t[]){stride, base->strides[x->ndim - 1]}, 0, err));
cleanup:
    tc_tensor_release(base);
    return status;
}

static tc_status gradient_a(tc_tensor **out, tc_tensor *dc, tc_tensor *b, const tc_tensor *a, tc_error *err)
{
    tc_tensor *b_transposed = NULL, *full = NULL;
    tc_status status = TC_OK;
    TC_TRY(as_matrix(&b_transposed, b, true, true, err));
    TC_TRY(product(&full, dc, b_transposed, err));
    TC_TRY(tc_sum_to_shape(out, full, a->ndim, a->shape, err));
cleanup:
    tc_tensor_release(b_transposed);
    tc_tensor_release(full);
    return status;
}

static tc_status gradient_b(tc_tensor **out, tc_tensor *dc, tc_tensor *a, const tc_tensor *b, tc_error *err)
{
    tc_tensor *a_transposed = NULL, *full = NULL, *dc_rows = NULL, *a_rows = NULL, *a_matrix = NULL;
    tc_status status = TC_OK;
    if (b->ndim == 2 && a->ndim > 2) { /* one b for the whole batch: its rows and the batch are summed over in one product */
        TC_TRY(as_rows(&a_rows, a, err));
        TC_TRY(as_rows(&dc_rows, dc, err));
        TC_TRY(as_matrix(&a_transposed, a_rows, false, true, err));
        TC_TRY(product(out, a_transposed, dc_rows, err));
    } else {
        TC_TRY(as_matrix(&a_matrix, a, false, true, err));
        TC_TRY(product(&full, a_matrix, dc, err));
        if (b->ndim == 1) { /* (..., K, 1): the axis put in goes again */
            tc_tensor *vector;
            TC_TRY(tc_tensor_alias(&vector, full, full->ndim - 1, full->shape, full->strides, 0, err));
            tc_tensor_release(full);
            full = vector;
        }
        TC_TRY(tc_sum_to_shape(out, full, b->ndim, b->shape, err));
    }
cleanup:
    tc_tensor_release(a_transposed);
    tc_tensor_release(a_rows);
    tc_tensor_release(dc_rows);
    tc_tensor_release(a_matrix);
    tc_tensor_release(full);
    return status;
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    tc_tensor *a = tc_node_saved(node, 0), *b = tc_node_saved(node, 1), *dc = NULL;
    tc_status status = TC_OK;
    TC_TRY(gradient_matrix(&dc, grad_outputs[0], a->ndim == 1, b->ndim == 1, err));
    if (tc_node_needs(node, 0)) TC_TRY(gradient_a(&grad_inputs[0], dc, b, a, err));
    if (tc_node_needs(node, 1)) TC_TRY(gradient_b(&grad_inputs[1], dc, a, b, err));
cleanup:
    tc_tensor_release(dc);
    return status;
}

static const tc_op matmul_op = {"matmul", backward, NULL};

tc_status tc_matmul(tc_tensor **c, tc_tensor *a, tc_tensor *b, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *out = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_check_same_device(a, "a", b, "b", err));
    const tc_dtype result = tc_dtype_promote(a->dtype, b->dtype), compute = tc_dtype_is_float(result) ? tc_compute_dtype(result) : result;
    TC_TRY(tc_old_scope_cast(&scope, &a, compute, err));
    TC_TRY(tc_old_scope_cast(&scope, &b, compute, err));
    TC_TRY(product(&out, a, b, err));
    tc_tensor *const inputs[] = {a, b};
    const tc_record record = {
        .op = &matmul_op, .input_count = 2, .inputs = inputs, .output_count = 1, .outputs = &out, .saved_count = 2, .saved = inputs};
    TC_TRY(tc_tape_record(&record, err));
    TC_TRY(tc_cast(c, out, result, err));
cleanup:
    tc_old_scope_end(&scope);
    tc_tensor_release(out);
    return status;
}

tc_status tc_matmul_backward(tc_tensor **da, tc_tensor **db, tc_tensor *dc, tc_tensor *a, tc_tensor *b, tc_error *err)
{
    tc_old_scope scope = {0};
    problem p = {.ndim = 0};
    tc_tensor *found[2] = {NULL, NULL}, *rounded[2] = {NULL, NULL};
    tc_status status = TC_OK;
    TC_TRY(tc_check_float(a, "a", err));
    TC_TRY(tc_check_same_dtype(a, "a", b, "b", err));
    TC_TRY(tc_check_same_device(a, "a", b, "b", err));
    TC_TRY(understand(&p, a, b, err));
    TC_TRY(tc_check_gradient(dc, "dc", p.ndim, p.shape, a, "a", err));
    const tc_dtype result = a->dtype;
    tc_tensor **operands[3] = {&dc, &a, &b};
    for (int i = 0; i < 3; i++) TC_TRY(tc_old_scope_cast(&scope, operands[i], tc_compute_dtype(result), err));
    tc_tensor *const saved[2] = {a, b};
    const tc_record record = {.op = &matmul_op, .input_count = 2, .saved_count = 2, .saved = saved};
    TC_TRY(tc_tape_apply(&record, dc, (tc_tensor * *[]){&found[0], &found[1]}, err));
    for (int i = 0; i < 2; i++) TC_TRY(tc_tensor_as(&rounded[i], found[i], result, err));
    *da = tc_tensor_retain(rounded[0]);
    *db = tc_tensor_retain(rounded[1]);
cleanup:
    tc_old_scope_end(&scope);
    for (int i = 0; i < 2; i++) tc_tensor_release(found[i]), tc_tensor_release(rounded[i]);
    return status;
}
