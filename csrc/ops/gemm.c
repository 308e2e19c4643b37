/* gemm.c: runs a product by the backend's plan, and adds up its parts where the plan splits the sum over k. */
#include "gemm.h"

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

/* out (columns), of `dtype` or stored as halves, = the sum over the splits of parts (splits, columns), a statistic. */
static tc_status add_parts(tc_scope *s, tc_dtype dtype, void *out, tc_stored stored, const void *parts, int64_t splits, int64_t columns)
{
    const tc_sum_partials_args args = {.out = out, .out_stored = stored, .partial = parts, .chunks = splits, .C = columns};
    const int64_t items = tc_divide_up(columns, TC_SUM_PARTIALS_GROUP);
    return tc_run(s->device, dtype, &tc_kernel_sum_partials, &args, items, (double)splits * TC_SUM_PARTIALS_GROUP, 0, s->err);
}

tc_status tc_product(tc_scope *s, tc_gemm_args *g, tc_storage *keep)
{
    TC_PLAN(plan);
    void *const c = g->c, *const a_sum = g->a_sum;
    tc_tensor *parts;
    g->batch = 1;
    for (int d = 0; d < g->batch_dims; d++) g->batch *= g->batch_shape[d];
    if (g->M == 0 || g->N == 0 || g->batch == 0) return TC_OK;
    TC_TRY(tc_plan_begin(&plan, s->device, s->compute, &tc_kernel_gemm, g, keep, s->err));
    plan.interruptible = true;
    if (plan.splits == 1) return tc_plan_run(&plan, g, s->err);
    const tc_stored c_stored = g->c_stored;
    g->c_stored = TC_STORED_AS_COMPUTED;
    TC_TRY(tc_make_statistic(s, &parts, 2, (int64_t[]){plan.splits, g->c_chunk + g->M}));
    g->c = parts->data;
    if (a_sum) g->a_sum = parts->data + (size_t)(plan.splits * g->c_chunk) * tc_dtype_size(s->statistics);
    TC_TRY(tc_plan_run(&plan, g, s->err));
    const tc_dtype result = g->wide ? s->statistics : s->compute;
    TC_TRY(add_parts(s, result, c, c_stored, g->c, plan.splits, g->c_chunk));
    return a_sum ? add_parts(s, result, a_sum, TC_STORED_AS_COMPUTED, g->a_sum, plan.splits, g->M) : TC_OK;
}
