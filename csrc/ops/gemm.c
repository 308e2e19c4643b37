/* gemm.c: a product as the device's backend plans it, and the sum of its parts where the plan splits the sum over k. */
#include "gemm.h"

#include "../core/backend.h"
#include "../core/status.h"
#include "../kernels/sum_partials.h"

bool tc_fold_rows(const tc_tensor *x, int64_t *rows, int64_t *row_stride)
{
    *rows = 1;
    *row_stride = 0;
    bool folds = true;
    for (int d = x->ndim - 2; d >= 0; d--) {
        if (x->shape[d] == 1) continue;
        if (*rows == 1)
            *row_stride = x->strides[d];
        else
            folds = folds && x->strides[d] == *row_stride * *rows;
        *rows *= x->shape[d];
    }
    return folds || *rows == 0;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static tc_gemm_args arguments(const tc_product *p)
{
    tc_gemm_args g = {.c = p->c, .pre = p->pre, .a = p->a, .b = p->b, .bias = p->bias, .residual = p->residual, .a_sum = p->a_sum};
    g.M = p->M, g.N = p->N, g.K = p->K;
    g.a_row = p->a_row, g.a_col = p->a_col, g.b_row = p->b_row, g.b_col = p->b_col;
    g.c_row = p->c_row, g.pre_row = p->pre_row, g.residual_row = p->residual_row;
    g.activation = p->activation;
    g.batch = 1;
    g.batch_dims = p->batch_dims;
    for (int d = 0; d < p->batch_dims; d++) {
        g.batch *= g.batch_shape[d] = p->batch_shape[d];
        g.a_batch[d] = p->a_batch[d], g.b_batch[d] = p->b_batch[d], g.c_batch[d] = p->c_batch[d];
    }
    return g;
}

/* The chunks of k have left a C each (and sums of A's rows): adds them up. */
static tc_status add_chunks(const tc_product *p, const tc_gemm_args *g, tc_error *err)
{
    const tc_sum_partials_args c = {.out = p->c, .partial = g->c, .chunks = g->k_chunks, .C = g->c_chunk};
    const tc_sum_partials_args a = {.out = p->a_sum, .partial = g->a_sum, .chunks = g->k_chunks, .C = g->M};
    const double cost = (double)g->k_chunks * TC_SUM_PARTIALS_GROUP;
    tc_status status = tc_run(p->device, p->compute, &tc_kernel_sum_partials, &c, ceil_div(c.C, TC_SUM_PARTIALS_GROUP), cost, 0, err);
    if (status == TC_OK && p->a_sum)
        status = tc_run(p->device, p->compute, &tc_kernel_sum_partials, &a, ceil_div(a.C, TC_SUM_PARTIALS_GROUP), cost, 0, err);
    return status;
}

tc_status tc_product_run(const tc_product *p, tc_error *err)
{
    TC_PLAN(plan);
    tc_gemm_args g = arguments(p);
    const size_t element = tc_dtype_size(p->compute);
    tc_tensor *chunks = NULL;
    tc_status status = TC_OK;
    if (g.M == 0 || g.N == 0 || g.batch == 0) return TC_OK;
    TC_TRY(tc_plan_begin(&plan, p->device, p->compute, &tc_kernel_gemm, &g, p->b_storage, err));
    if (plan.splits > 1) {
        TC_TRY(tc_tensor_empty(&chunks, 2, (int64_t[]){plan.splits, g.c_chunk + g.M}, p->compute, p->device, err));
        g.c = chunks->data;
        if (g.a_sum) g.a_sum = chunks->data + (size_t)(plan.splits * g.c_chunk) * element;
    }
    TC_TRY(tc_plan_run(&plan, &g, err));
    if (plan.splits > 1) TC_TRY(add_chunks(p, &g, err));
cleanup:
    tc_tensor_release(chunks);
    return status;
}
