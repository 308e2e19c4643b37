/* encoder_block.c: a whole encoder block by the kernels of its parts, some sequences at a time, so that what is between the parts stays in
 * a cache near the core. */
#include "../encoder_block.h"
#include "simd.h"

void TC_KERNEL(gemm)(const void *args, int64_t begin, int64_t end, void *scratch);
void TC_KERNEL(attention_forward)(const void *args, int64_t begin, int64_t end, void *scratch);
void TC_KERNEL(layer_norm_forward)(const void *args, int64_t begin, int64_t end, void *scratch);

/* The sequences of one item, and its memory. */
typedef struct group {
    const tc_encoder_block_args *args;
    int64_t first, count, rows;
    real *wide, *values, *update, *stream, *mean, *rstd, *shift, *sum;
    void *part;
} group;

/* c (rows,N) = activation(a (rows,K) weight^T + bias) + residual */
static void product(const group *g, const tc_gemm_args *planned, real *c, const real *a, const real *residual)
{
    tc_gemm_args args = *planned;
    args.M = g->rows;
    args.c = c;
    args.a = a;
    args.residual = residual;
    TC_KERNEL(gemm)(&args, 0, tc_gemm_items(&args), g->part);
}

/* values (count,T,H,D) from qkv (count,T,H,3,D) */
static void attend(const group *g, real *values, real *qkv)
{
    tc_attention_forward_args args = g->args->attention;
    tc_attention_problem *p = &args.problem;
    const int64_t E = g->args->E;
    p->B = g->count;
    p->q = (tc_attention_operand){qkv, 3 * E * p->Tq, 3 * p->D, 3 * E};
    p->k = (tc_attention_operand){qkv + p->D, 3 * E * p->Tq, 3 * p->D, 3 * E};
    p->v = (tc_attention_operand){qkv + 2 * p->D, 3 * E * p->Tq, 3 * p->D, 3 * E};
    if (p->mask.data) p->mask.data = (uint8_t *)p->mask.data + g->first * p->mask.batch;
    args.values = (tc_attention_operand){values, E * p->Tq, p->D, E};
    args.shift = g->shift;
    args.sum = g->sum;
    TC_KERNEL(attention_forward)(&args, 0, tc_attention_forward_items(p), g->part);
}

/* y (rows,E) = the norm of x, or of x + residual */
static void normalise(const group *g, const tc_layer_norm_forward_args *norm, real *y, const real *x, const real *residual)
{
    tc_layer_norm_forward_args args = *norm;
    args.y = args.sum = y;
    args.x = x;
    args.residual = residual;
    args.mean = g->mean;
    args.rstd = g->rstd;
    TC_KERNEL(layer_norm_forward)(&args, 0, g->rows, g->part);
}

static void norm_after(const group *g, real *y, const real *x)
{
    const tc_encoder_block_args *a = g->args;
    product(g, &a->qkv, g->wide, x, NULL);
    attend(g, g->values, g->wide);
    product(g, &a->out, g->update, g->values, NULL);
    normalise(g, &a->norm1, g->stream, x, g->update);
    product(g, &a->up, g->wide, g->stream, NULL);
    product(g, &a->down, g->update, g->wide, NULL);
    normalise(g, &a->norm2, y, g->stream, g->update);
}

static void norm_before(const group *g, real *y, const real *x)
{
    const tc_encoder_block_args *a = g->args;
    normalise(g, &a->norm1, g->update, x, NULL);
    product(g, &a->qkv, g->wide, g->update, NULL);
    attend(g, g->values, g->wide);
    product(g, &a->out, g->stream, g->values, x);
    normalise(g, &a->norm2, g->update, g->stream, NULL);
    product(g, &a->up, g->wide, g->update, NULL);
    product(g, &a->down, y, g->wide, g->stream);
}

TC_DEFINE_KERNEL(encoder_block_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_encoder_block_args *a = args;
    const tc_encoder_block_scratch s = tc_encoder_block_scratch_of(a, sizeof(real));
    char *const at = scratch;
    for (int64_t item = begin; item < end; item++) {
        const int64_t first = item * a->group, count = a->B - first < a->group ? a->B - first : a->group;
        const group g = {.args = a,
                         .first = first,
                         .count = count,
                         .rows = count * a->T,
                         .wide = (real *)(void *)(at + s.wide),
                         .values = (real *)(void *)(at + s.values),
                         .update = (real *)(void *)(at + s.update),
                         .stream = (real *)(void *)(at + s.stream),
                         .mean = (real *)(void *)(at + s.mean),
                         .rstd = (real *)(void *)(at + s.rstd),
                         .shift = (real *)(void *)(at + s.shift),
                         .sum = (real *)(void *)(at + s.sum),
                         .part = at + s.part};
        const int64_t offset = first * a->T * a->E;
        (a->norm_first ? norm_before : norm_after)(&g, (real *)a->y + offset, (const real *)a->x + offset);
    }
}
