/* gemm.c: runs a product by the backend's plan, and adds up its parts where the plan splits the sum over k. */
#include "gemm.h"

#include <inttypes.h>
#include <string.h>

#include "../core/cpu_plan.h"
#include "../kernels/sum_partials.h"

static bool folds(const tc_tensor *x, int64_t *rows, int64_t *row_stride)
{
    *rows = 1;
    *row_stride = 0;
    bool in_step = true;
    for (int d = x->ndim - 2; d >= 0; d--) {
        if (x->shape[d] == 1) continue;
        if (*rows == 1)
            *row_stride = x->strides[d];
        else
            in_step = in_step && x->strides[d] == *row_stride * *rows;
        *rows *= x->shape[d];
    }
    return in_step || *rows == 0;
}

tc_status tc_fold_rows(tc_scope *s, tc_tensor **x, int64_t *rows, int64_t *row_stride)
{
    if (folds(*x, rows, row_stride)) return TC_OK;
    TC_TRY(tc_tensor_contiguous(x, *x, s->err));
    (void)folds(*x, rows, row_stride);
    return tc_own(s, *x);
}

/* out (columns), of `dtype` or stored as halves, = the sum over the chunks of partial (chunks, columns), a statistic. */
static tc_status add_parts(tc_scope *s, tc_dtype dtype, const tc_sum_partials_args *args)
{
    const int64_t items = tc_divide_up(args->C, TC_SUM_PARTIALS_GROUP);
    return tc_run(s->device, dtype, &tc_kernel_sum_partials, args, items, (double)args->chunks * TC_SUM_PARTIALS_GROUP, 0, s->err);
}

tc_status tc_product(tc_scope *s, tc_gemm_args *g, tc_storage *keep)
{
    TC_PLAN(plan);
    tc_tensor *parts;
    g->batch = 1;
    for (int d = 0; d < g->batch_dims; d++) g->batch *= g->batch_shape[d];
    if (g->M == 0 || g->N == 0 || g->batch == 0) return TC_OK;
    TC_TRY(tc_plan_begin(&plan, s->device, s->compute, &tc_kernel_gemm, g, keep, s->err));
    plan.interruptible = true;
    if (plan.splits == 1) return tc_plan_run(&plan, g, s->err);
    const int64_t splits = plan.splits;
    tc_sum_partials_args of_c = {.out = g->c,
                                 .out_stored = g->c_stored,
                                 .before = g->residual,
                                 .before_stored = g->residual_stored,
                                 .chunks = splits,
                                 .C = g->c_chunk},
                         of_a = {.out = g->a_sum, .chunks = splits, .C = g->M};
    g->c_stored = TC_STORED_AS_COMPUTED;
    g->residual = NULL;
    TC_TRY(tc_make_statistic(s, &parts, 2, (int64_t[]){splits, g->c_chunk + g->M}));
    of_c.partial = g->c = parts->data;
    if (of_a.out) of_a.partial = g->a_sum = parts->data + (size_t)(splits * g->c_chunk) * tc_dtype_size(s->statistics);
    TC_TRY(tc_plan_run(&plan, g, s->err));
    const tc_dtype result = g->wide ? s->statistics : s->compute;
    TC_TRY(add_parts(s, result, &of_c));
    return of_a.out ? add_parts(s, result, &of_a) : TC_OK;
}

bool tc_turn_column(const tc_scope *s, tc_gemm_args *p)
{
    const tc_gemm_args q = *p;
    if (s->device.type != TC_CPU || q.N != 1 || q.M == 1 || q.c_row != 1 || q.k_is_rows) return false;
    if (q.bias && q.bias_stored != TC_STORED_AS_COMPUTED) return false;
    p->M = 1, p->N = p->c_row = p->pre_row = p->residual_row = q.M;
    p->may_split = false;
    p->bias_of_rows = q.bias;
    p->a = q.b, p->a_row = q.b_col, p->a_col = q.b_row, p->a_stored = q.b_stored;
    p->b = q.a, p->b_row = q.a_col, p->b_col = q.a_row, p->b_stored = q.a_stored;
    memcpy(p->a_batch, q.b_batch, sizeof p->a_batch);
    memcpy(p->b_batch, q.a_batch, sizeof p->b_batch);
    return true;
}

static int64_t bytes_as(tc_stored stored) { return stored == TC_STORED_AS_COMPUTED ? (int64_t)sizeof(float) : 2; }

/* Rows [first, first + rows) of a product of float32; the result and what it is added to may be halves. */
static tc_gemm_args rows_of(const tc_gemm_args *g, int64_t first, int64_t rows, int64_t sequence)
{
    tc_gemm_args part = *g;
    part.M = rows;
    part.sequence = sequence;
    part.a = (const float *)g->a + first * g->a_row;
    part.c = (char *)g->c + first * g->c_row * bytes_as(g->c_stored);
    if (g->pre) part.pre = (float *)g->pre + first * g->pre_row;
    if (g->residual) part.residual = (const char *)g->residual + first * g->residual_row * bytes_as(g->residual_stored);
    return part;
}

tc_status tc_take_sequences(tc_scope *s, tc_sequences *own, const tc_sequences *given, const tc_tensor *x)
{
    char text[TC_SHAPE_TEXT];
    *own = (tc_sequences){0, NULL};
    if (!given) return TC_OK;
    if (given->length < 0)
        return tc_fail(s->err, TC_ERROR_VALUE, "sequence_lengths is %" PRId64 "; a length is not negative", given->length);
    const tc_tensor *lengths = given->lengths;
    if (lengths && (lengths->ndim != 1 || tc_dtype_is_float(lengths->dtype) || lengths->dtype == TC_BOOL))
        return tc_fail(s->err, lengths->ndim == 1 ? TC_ERROR_TYPE : TC_ERROR_VALUE,
                       "sequence_lengths is %s of shape %s; it needs an integer, or one for each sequence: (sequences)",
                       tc_dtype_name(lengths->dtype), tc_tensor_text(text, lengths));
    if (!tc_tensor_on_cpu(x)) return TC_OK;
    own->length = given->length;
    if (!lengths) return TC_OK;
    TC_TRY(tc_tensor_empty(&own->lengths, 1, lengths->shape, TC_INT64, (tc_device){TC_CPU, 0}, s->err));
    TC_TRY(tc_own(s, own->lengths));
    TC_TRY(tc_tensor_copy(own->lengths, given->lengths, s->err));
    int64_t rows = 1, left;
    for (int d = 0; d < x->ndim - 1; d++) rows *= x->shape[d];
    left = rows;
    for (int64_t i = 0; i < lengths->numel; i++) {
        const int64_t length = ((const int64_t *)own->lengths->data)[i];
        if (length < 0 || length > left) left = -1;
        if (left < 0) break;
        left -= length;
    }
    return left == 0 ? TC_OK
                     : tc_fail(s->err, TC_ERROR_VALUE,
                               "sequence_lengths are not negative, and together they are the rows of x; x %s has %" PRId64 " rows",
                               tc_tensor_text(text, x), rows);
}

tc_status tc_product_of_sequences(tc_scope *s, tc_gemm_args *g, tc_storage *keep, const tc_sequences *sequences)
{
    g->sequence = sequences->length;
    if (!sequences->lengths || s->device.type != TC_CPU || !tc_cpu_gemm_goes_by_length(g, s->compute)) return tc_product(s, g, keep);
    const int64_t *length = (const int64_t *)sequences->lengths->data, count = sequences->lengths->numel;
    for (int64_t i = 0, first = 0, rows; i < count; first += rows) {
        const int64_t sequence = length[i];
        for (rows = 0; i < count && tc_gemm_is_long(length[i]) == tc_gemm_is_long(sequence); i++) rows += length[i];
        tc_gemm_args part = rows_of(g, first, rows, sequence);
        TC_TRY(tc_product(s, &part, keep));
    }
    return TC_OK;
}
