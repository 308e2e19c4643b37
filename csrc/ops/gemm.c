/* gemm.c: how a product is carried out: what is packed, how C is cut into items, when the sum over k is split. All of it follows
 * from shapes and strides, and none of it but the split changes a bit of the result. */
#include "gemm.h"

#include "../core/backend.h"
#include "../core/status.h"
#include "../kernels/sum_partials.h"
#include "packed.h"

#define FMA_PER_OPERATION 16.0 /* how many multiply-adds cost what tc_run() calls an elementary operation */

/* Rows of an item: twelve tiles of AVX-512, and a multiple of the other tiles' heights (6 and 4). */
#define ITEM_ROWS 168
/* Items wanted at least, so that threads share them evenly; columns and multiply-adds an item has at least. */
#define WANTED_ITEMS 8
#define LEAST_COLUMNS 64
#define LEAST_WORK 65536

/* Bytes of B beyond which its panels are fetched ahead: what a second-level cache holds. */
#define LARGE_B 1048576

/* C is small and k long (a weight's gradient: k are the rows of a batch): k is split into chunks of SPLIT_LEAST and more. */
#define SPLIT_LEAST 256
#define SPLIT_MOST 32 /* chunks */
#define SPLIT_LARGEST_C 32768

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

static void choose_split(tc_gemm_args *g)
{
    g->k_chunk = g->K;
    g->k_chunks = 1;
    const bool plain = !g->bias && !g->residual && !g->pre && g->activation == TC_ACTIVATION_NONE && g->batch == 1;
    if (!plain || g->c_row != g->N || g->K < 2 * SPLIT_LEAST || g->M * g->N > SPLIT_LARGEST_C) return;
    const int64_t chunks = g->K / SPLIT_LEAST < SPLIT_MOST ? g->K / SPLIT_LEAST : SPLIT_MOST;
    g->k_chunk = ((g->K + chunks - 1) / chunks + 15) / 16 * 16;
    g->k_chunks = (g->K + g->k_chunk - 1) / g->k_chunk;
    g->c_chunk = g->M * g->N;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static void choose_items(tc_gemm_args *g)
{
    g->row_block = ITEM_ROWS;
    g->col_block = ceil_div(g->N, LEAST_COLUMNS) * LEAST_COLUMNS;
    const int64_t others = g->batch * g->k_chunks * tc_gemm_row_blocks(g);
    if (others >= WANTED_ITEMS) return;
    const int64_t rows = g->M < ITEM_ROWS ? g->M : ITEM_ROWS;
    const int64_t by_work = LEAST_WORK / (rows * (g->k_chunk > 0 ? g->k_chunk : 1)); /* columns that make an item worth while */
    const int64_t columns = ceil_div(g->N, ceil_div(WANTED_ITEMS, others));
    g->col_block = ceil_div(columns > by_work ? columns : by_work, LEAST_COLUMNS) * LEAST_COLUMNS;
}

/* Rows of B are read in place where they stay in L1 from tile to tile, or are used by two tiles at most. Panels that several items
 * would pack are packed once, before. */
static tc_gemm_b_form choose_b_form(const tc_gemm_args *g, bool keep, size_t element)
{
    const int64_t reach = g->k_chunk * (g->b_row < 0 ? -g->b_row : g->b_row) * (int64_t)element;
    if (g->b_col == 1 && (reach <= 49152 || g->M <= 28)) return TC_GEMM_B_ROWS;
    return keep || g->M > g->row_block ? TC_GEMM_B_PANELS : TC_GEMM_B_STRIDED;
}

/* Blocks of A are copied when neither stride is 1; when rows are long and many columns use them; and when k steps from page to
 * page. */
static bool choose_pack_a(const tc_gemm_args *g, size_t element)
{
    if (g->a_row != 1 && g->a_col != 1) return true;
    if (g->N < 128) return false;
    if (g->a_row == 1) return g->a_col * (int64_t)element >= 1024 && g->k_chunk >= 64;
    return g->k_chunk >= 512 && g->N >= 512;
}

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

/* Packs B, each element of its batch once, and turns g to the panels. */
static tc_status pack_b(tc_packed **packed, tc_gemm_args *g, tc_dtype compute, tc_storage *storage, tc_error *err)
{
    tc_gemm_pack_args pack = {.b = g->b, .K = g->K, .N = g->N, .b_row = g->b_row, .b_col = g->b_col};
    const size_t element = tc_dtype_size(compute);
    int64_t step = tc_gemm_panels(g->N, element) * g->K * tc_gemm_panel_width(element), steps[TC_GEMM_BATCH_DIMS];
    for (int d = g->batch_dims - 1; d >= 0; d--) {
        steps[d] = g->b_batch[d] ? step : 0;
        if (g->b_batch[d]) step *= g->batch_shape[d];
    }
    for (int d = 0; d < g->batch_dims; d++) {
        if (!g->b_batch[d]) continue;
        pack.batch_shape[pack.batch_dims] = g->batch_shape[d];
        pack.b_batch[pack.batch_dims++] = g->b_batch[d];
        g->b_batch[d] = steps[d];
    }
    const tc_status status = tc_packed_acquire(packed, &pack, compute, pack.batch_dims ? NULL : storage, err);
    if (status == TC_OK) g->b = tc_packed_panels(*packed);
    return status;
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
    tc_gemm_args g = arguments(p);
    const size_t element = tc_dtype_size(p->compute);
    tc_packed *packed = NULL;
    tc_tensor *chunks = NULL;
    tc_status status = TC_OK;
    if (g.M == 0 || g.N == 0 || g.batch == 0) return TC_OK;
    choose_split(&g);
    choose_items(&g);
    g.b_form = TC_GEMM_B_STRIDED;
    if (p->device.type == TC_CPU) {
        g.b_form = choose_b_form(&g, p->b_storage != NULL, element);
        g.pack_a = choose_pack_a(&g, element);
        g.fetch_b = g.b_form == TC_GEMM_B_PANELS && g.K * g.N * (int64_t)element > LARGE_B;
        if (g.b_form == TC_GEMM_B_PANELS) TC_TRY(pack_b(&packed, &g, p->compute, p->b_storage, err));
    }
    if (g.k_chunks > 1) {
        TC_TRY(tc_tensor_empty(&chunks, 2, (int64_t[]){g.k_chunks, g.c_chunk + g.M}, p->compute, p->device, err));
        g.c = chunks->data;
        if (g.a_sum) g.a_sum = chunks->data + (size_t)(g.k_chunks * g.c_chunk) * element;
    }
    const double work =
        (double)(g.M < g.row_block ? g.M : g.row_block) * (double)(g.N < g.col_block ? g.N : g.col_block) * (double)(g.k_chunk + 1);
    TC_TRY(tc_run(p->device, p->compute, &tc_kernel_gemm, &g, tc_gemm_items(&g), work / FMA_PER_OPERATION,
                  tc_gemm_scratch_bytes(&g, element), err));
    if (g.k_chunks > 1) TC_TRY(add_chunks(p, &g, err));
cleanup:
    tc_packed_release(packed);
    tc_tensor_release(chunks);
    return status;
}
