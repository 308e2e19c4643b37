/* cpu_attention.c: the CPU's plan of attention: shares of the backward, scratch and cost. */
#include "../kernels/attention.h"
#include "cpu_plan.h"

#define SPLIT_HEADS 16                 /* with fewer key/value heads than this, the backward of a head is split */
#define SPLIT_BLOCKS 4                 /* minimum of blocks of queries per share */
#define SPLIT_BYTES (INT64_C(1) << 25) /* limit of the memory for the shares' own dk and dv */

/* Blocks of queries that one key/value head serves. */
static int64_t blocks_per_key_head(const tc_attention_problem *p) { return p->H / (p->Hk ? p->Hk : 1) * tc_attention_query_blocks(p); }

/* The share of the scores (B,H,Tq,Tk) that exist: packed sequences may be shorter than the longest one. */
static double filled(const tc_attention_problem *p)
{
    if (!p->sequences || p->B * p->Tq == 0) return 1;
    double scores = 0;
    for (int64_t b = 0; b < p->B; b++) {
        const double length = (double)(p->sequences[b + 1] - p->sequences[b]);
        scores += length * length;
    }
    return scores / ((double)p->B * (double)p->Tq * (double)p->Tk);
}

/* Work of one block of queries, in multiply-adds: the mean. */
static double block_cost(const tc_attention_problem *p)
{
    const double queries = p->Tq < TC_ATTENTION_QUERIES ? (double)p->Tq : TC_ATTENTION_QUERIES;
    return queries * (double)p->Tk * (double)(p->D + p->Dv + 16) * filled(p);
}

void tc_cpu_plan_attention_forward(tc_plan *plan, void *args)
{
    const tc_attention_problem *p = &((tc_attention_forward_args *)args)->problem;
    plan->variant = "tiled";
    plan->items = tc_attention_forward_items(p);
    plan->cost = block_cost(p);
    plan->scratch = tc_attention_scratch(p, tc_dtype_size(plan->compute), false);
}

static int64_t choose_splits(const tc_attention_problem *p, size_t size)
{
    const int64_t heads = p->B * p->Hk, bytes = heads * p->Tk * (p->D + p->Dv) * (int64_t)size;
    if (p->sequences || heads == 0 || heads >= SPLIT_HEADS || bytes == 0) return 1;
    int64_t splits = tc_divide_up(SPLIT_HEADS, heads);
    if (splits > blocks_per_key_head(p) / SPLIT_BLOCKS) splits = blocks_per_key_head(p) / SPLIT_BLOCKS;
    if (splits > 1 + SPLIT_BYTES / bytes) splits = 1 + SPLIT_BYTES / bytes;
    return splits > 1 ? splits : 1;
}

void tc_cpu_plan_attention_backward(tc_plan *plan, void *args)
{
    tc_attention_backward_args *a = args;
    const tc_attention_problem *p = &a->problem;
    a->splits = choose_splits(p, tc_dtype_size(plan->compute));
    plan->variant = a->splits > 1 ? "shares of queries" : "tiled";
    plan->splits = a->splits;
    plan->items = tc_attention_backward_items(a);
    plan->cost = 2.5 * ((double)blocks_per_key_head(p) / (double)a->splits) * block_cost(p);
    plan->scratch = tc_attention_scratch(p, tc_dtype_size(plan->compute), true);
}

void tc_cpu_plan_attention_dbias(tc_plan *plan, void *args)
{
    const tc_attention_dbias_args *a = args;
    const tc_attention_problem *p = &a->backward.problem;
    const double blocks = (double)tc_attention_forward_items(p);
    plan->variant = "tiled";
    plan->items = blocks > 0 ? tc_attention_dbias_items(a) : 0;
    plan->cost = plan->items > 0 ? block_cost(p) * blocks / (double)plan->items : 0;
    plan->scratch = tc_attention_scratch(p, tc_dtype_size(plan->compute), true);
}
