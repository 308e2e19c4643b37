/* cuda_plan.c: the planners of GPUs, and TRANSFORMER_C_CUDA_VARIANT, which forces one of several variants. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/attention.h"
#include "../kernels/gemm.h"
#include "cuda.h"
#include "status.h"

#define VARIANT_VARIABLE "TRANSFORMER_C_CUDA_VARIANT"

static char forced[64]; /* empty: none */
static void read_forced(void)
{
    const char *named = getenv(VARIANT_VARIABLE);
    if (named) snprintf(forced, sizeof forced, "%s", named);
}

/* ---- planners --------------------------------------------------------------------------------------------------------------- */

static int64_t tiles_of(const tc_gemm_args *g, int64_t rows, int64_t columns)
{
    return tc_divide_up(g->M, rows) * tc_divide_up(g->N, columns);
}

/* Are there large tiles for all multiprocessors, chunks of a sum that may be split counted? */
static bool fill_large_tiles(const tc_gemm_args *g, int64_t multiprocessors)
{
    const int64_t chunks = g->k_is_rows && g->K > TC_GEMM_SPLIT_LEAST ? g->K / TC_GEMM_SPLIT_LEAST : 1;
    return g->M > 64 && g->N > 64 && tiles_of(g, 128, 128) * chunks * g->batch >= multiprocessors;
}

/* B is read in place, and a block of threads computes a tile of C; items and packed blocks exist only on the CPU. A sum over k is split
 * where there are fewer tiles than multiprocessors, into as many chunks as these can compute at a time. So the gradients of weights depend
 * on the number of multiprocessors, as those of attention do, and nothing else does. */
static void split_plain_gemm(tc_gemm_args *g, tc_dtype compute, int64_t multiprocessors)
{
    const bool small = compute == TC_FLOAT64 || g->M <= 32 || g->N <= 32;
    g->tile = compute == TC_FLOAT32 && fill_large_tiles(g, multiprocessors) ? 128 : small ? 32 : 64;
    const int64_t resident = compute == TC_FLOAT32 ? (g->tile == 128 ? 1 : 4) : compute == TC_FLOAT64 ? 1 : 2;
    const int64_t tiles = tiles_of(g, g->tile, g->tile);
    tc_gemm_split_k(g, tiles < multiprocessors ? multiprocessors * resident / tiles : 1);
}

/* Few rows that wait for a weight, whose rows run along k: small tiles, whose blocks read it on all multiprocessors at a time. */
static bool has_few_rows(const tc_gemm_args *g, int64_t multiprocessors)
{
    return g->M <= (tiles_of(g, 64, 64) * g->batch < multiprocessors ? 32 : 16) && g->a_col == 1 && g->b_row == 1 && !g->a_sum;
}

/* On tensor cores a sum is in one order in every tile, and there are no blocks of k: a forward is never split. */
static void split_tensor_gemm(tc_gemm_args *g, int64_t multiprocessors)
{
    g->tile = has_few_rows(g, multiprocessors) ? 16 : fill_large_tiles(g, multiprocessors) ? 128 : 64;
    const int64_t tiles = tiles_of(g, g->tile, g->tile == 16 ? 32 : g->tile);
    tc_gemm_split_k(g, g->k_is_rows && tiles < multiprocessors ? 2 * multiprocessors / tiles : 1);
}

static void plan_gemm(tc_plan *plan, void *args)
{
    tc_gemm_args *g = args;
    g->b_form = TC_GEMM_B_STRIDED;
    if (g->variant == TC_GEMM_PLAIN)
        split_plain_gemm(g, plan->compute, tc_cuda_multiprocessors(plan->device.index));
    else
        split_tensor_gemm(g, tc_cuda_multiprocessors(plan->device.index));
    plan->splits = g->k_chunks;
    plan->items = g->M * g->N * g->k_chunks * g->batch;
}

static void plan_attention_forward(tc_plan *plan, void *args)
{
    tc_attention_forward_args *a = args;
    const int64_t multiprocessors = tc_cuda_multiprocessors(plan->device.index);
    a->splits_keys = a->variant == TC_ATTENTION_MMA ? tc_attention_mma_splits_keys(&a->problem)
                                                    : tc_attention_splits_keys(&a->problem, plan->compute == TC_FLOAT64, multiprocessors);
    a->large_blocks = tc_cuda_block_shared_bytes(plan->device.index) >= TC_ATTENTION_LARGE_BLOCK;
    if (a->splits_keys) plan->splits = tc_attention_segments(&a->problem);
    plan->items = tc_attention_forward_items(&a->problem);
}

/* One block of threads per tile of a gradient, or several where there are few, which depends on the number of multiprocessors. */
static void share_plain_gradients(tc_attention_backward_args *a, bool is_float64, int64_t multiprocessors)
{
    const tc_attention_problem *p = &a->problem;
    a->shares[0] = tc_attention_plain_shares(p, p->H, p->Tq, p->D, p->Tk, is_float64, multiprocessors);
    a->shares[1] = tc_attention_plain_shares(p, p->Hk, p->Tk, p->D, p->Tq, is_float64, multiprocessors);
    a->shares[2] = tc_attention_plain_shares(p, p->Hk, p->Tk, p->Dv, p->Tq, is_float64, multiprocessors);
}
static void share_joint_gradients(tc_attention_backward_args *a, int64_t multiprocessors)
{
    const tc_attention_problem *p = &a->problem;
    a->whole_heads = a->variant == TC_ATTENTION_MMA && tc_attention_backward_takes_heads(p);
    if (a->whole_heads) {
        for (int i = 0; i < 3; i++) a->shares[i] = 1;
        return;
    }
    a->shares[0] = tc_attention_mma_shares(p, p->H, p->Tq, p->Tk, multiprocessors);
    a->shares[1] = a->shares[2] = tc_attention_mma_shares(p, p->Hk, p->Tk, p->Tq, multiprocessors);
}

static void plan_attention_backward(tc_plan *plan, void *args)
{
    tc_attention_backward_args *a = args;
    const int64_t multiprocessors = tc_cuda_multiprocessors(plan->device.index);
    a->splits = 1;
    if (a->variant != TC_ATTENTION_PLAIN)
        share_joint_gradients(a, multiprocessors);
    else
        share_plain_gradients(a, plan->compute == TC_FLOAT64, multiprocessors);
    for (int i = 0; i < 3; i++)
        if (a->shares[i] > plan->splits) plan->splits = a->shares[i];
    plan->items = tc_attention_backward_items(a);
}

static void plan_attention_dbias(tc_plan *plan, void *args)
{
    const tc_attention_dbias_args *a = args;
    plan->items = tc_attention_forward_items(&a->backward.problem) > 0 ? tc_attention_dbias_items(a) : 0;
}

/* ---- variants: the first one that can be used runs, unless another one is forced ---------------------------------------------- */

typedef struct variant {
    const char *name;
    int number;                                            /* in the args, by which the launcher chooses the kernel */
    bool (*usable)(const tc_plan *plan, const void *args); /* NULL: always. By shapes, strides and dtype, plan->precision and the device */
    const char *needs;                                     /* to be usable */
} variant;

static bool are_halves_for_tensor_cores(const tc_plan *plan)
{
    return (plan->compute == TC_BFLOAT16 || plan->compute == TC_FLOAT16) && tc_cuda_capability(plan->device.index) >= 80;
}

static bool tensor_gemm_is_usable(const tc_plan *plan, const void *args)
{
    return are_halves_for_tensor_cores(plan) && tc_gemm_on_tensor_cores(args, sizeof(uint16_t));
}

static bool may_use_tf32(const tc_plan *plan, const void *args, tc_float32_precision precision)
{
    return plan->compute == TC_FLOAT32 && plan->precision == precision && tc_cuda_capability(plan->device.index) >= 80 &&
           tc_gemm_on_tensor_cores(args, sizeof(float));
}
static bool tf32_is_usable(const tc_plan *plan, const void *args) { return may_use_tf32(plan, args, TC_FLOAT32_MEDIUM); }
static bool tf32_x3_is_usable(const tc_plan *plan, const void *args) { return may_use_tf32(plan, args, TC_FLOAT32_HIGH); }

static const variant gemm_variants[] = {
    {"tensor_cores", TC_GEMM_TENSOR_CORES, tensor_gemm_is_usable, "halves whose rows begin at multiples of 16 bytes, and capability 8.0"},
    {"tf32", TC_GEMM_TF32, tf32_is_usable,
     "float32 whose rows begin at multiples of 16 bytes, set_float32_precision(\"medium\"), and capability 8.0"},
    {"tf32 x 3", TC_GEMM_TF32_X3, tf32_x3_is_usable,
     "float32 whose rows begin at multiples of 16 bytes, set_float32_precision(\"high\"), and capability 8.0"},
    {"plain", TC_GEMM_PLAIN, NULL, NULL},
    {NULL}};

static bool tensor_attention_is_usable(const tc_plan *plan, const void *args)
{
    const tc_attention_forward_args *a = args;
    return are_halves_for_tensor_cores(plan) && tc_attention_fits_mma(&a->problem);
}
static bool is_float32_for_copies(const tc_plan *plan)
{
    return plan->compute == TC_FLOAT32 && tc_cuda_capability(plan->device.index) >= 80;
}
static bool float_attention_is_usable(const tc_plan *plan, const void *args)
{
    const tc_attention_forward_args *a = args;
    return is_float32_for_copies(plan) && tc_attention_fits_float(&a->problem);
}
static const variant attention_variants[] = {
    {"tensor_cores", TC_ATTENTION_MMA, tensor_attention_is_usable, "halves, heads of at most 256 features, and capability 8.0"},
    {"float32", TC_ATTENTION_FLOAT, float_attention_is_usable, "float32, heads of at most 128 features, and capability 8.0"},
    {"plain", TC_ATTENTION_PLAIN, NULL, NULL},
    {NULL},
};
static bool tensor_attention_backward_is_usable(const tc_plan *plan, const void *args)
{
    const tc_attention_backward_args *a = args;
    return are_halves_for_tensor_cores(plan) && tc_attention_backward_fits_mma(&a->problem);
}
static bool float_attention_backward_is_usable(const tc_plan *plan, const void *args)
{
    const tc_attention_problem *p = &((const tc_attention_backward_args *)args)->problem;
    const bool is_small = p->D <= 64 && p->Dv <= 64;
    return is_float32_for_copies(plan) && tc_attention_fits_float(p) &&
           (is_small || tc_cuda_block_shared_bytes(plan->device.index) >= TC_ATTENTION_LARGE_BLOCK);
}
static const variant attention_backward_variants[] = {
    {"tensor_cores", TC_ATTENTION_MMA, tensor_attention_backward_is_usable, "halves, heads of at most 128 features, and capability 8.0"},
    {"float32", TC_ATTENTION_FLOAT, float_attention_backward_is_usable,
     "float32, heads of at most 64 features, or of 128 and 132 KiB of shared memory for a block, and capability 8.0"},
    {"plain", TC_ATTENTION_PLAIN, NULL, NULL},
    {NULL},
};
static const variant plain_alone[] = {{"plain", 0, NULL, NULL}, {NULL}};

/* `member`: where in the args the variant's number is; 0: nowhere. */
static const struct {
    void (*plan)(tc_plan *plan, void *args); /* knows the variant from the args */
    const variant *variants;
    size_t member;
} planners[TC_KERNEL_COUNT] = {
    [TC_K_gemm] = {plan_gemm, gemm_variants, offsetof(tc_gemm_args, variant)},
    [TC_K_attention_forward] = {plan_attention_forward, attention_variants, offsetof(tc_attention_forward_args, variant)},
    [TC_K_attention_backward] = {plan_attention_backward, attention_backward_variants, offsetof(tc_attention_backward_args, variant)},
    [TC_K_attention_dbias] = {plan_attention_dbias, plain_alone, 0},
};

static bool is_usable(const variant *v, const tc_plan *plan, const void *args) { return !v->usable || v->usable(plan, args); }

static tc_status forced_variant(const variant **out, const tc_plan *plan, const variant *variants, const void *args, tc_error *err)
{
    char names[256];
    size_t used = 0;
    for (const variant *v = variants; v->name; v++) {
        if (strcmp(forced, v->name) == 0) {
            *out = v;
            if (is_usable(v, plan, args)) return TC_OK;
            return tc_fail(err, TC_ERROR_VALUE, VARIANT_VARIABLE ": this call of %s cannot use '%s', which needs %s", plan->kernel->name,
                           forced, v->needs);
        }
        if (used < sizeof names) used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", v->name);
    }
    return tc_fail(err, TC_ERROR_VALUE, VARIANT_VARIABLE ": '%s' is not a variant of %s; expected one of: %s", forced, plan->kernel->name,
                   names);
}

static tc_status choose_variant(const variant **out, const tc_plan *plan, const variant *variants, const void *args, tc_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_forced);
    if (forced[0]) return forced_variant(out, plan, variants, args, err);
    for (*out = variants; !is_usable(*out, plan, args);) ++*out; /* the last one can always be used */
    return TC_OK;
}

tc_status tc_cuda_plan(tc_plan *plan, void *args, tc_error *err)
{
    const int id = plan->kernel->id;
    if (!planners[id].plan) return tc_fail(err, TC_ERROR_STATE, "%s leaves nothing to plan: run it with tc_run()", plan->kernel->name);
    const variant *chosen = NULL;
    TC_TRY(choose_variant(&chosen, plan, planners[id].variants, args, err));
    plan->variant = chosen->name;
    if (planners[id].member) memcpy((char *)args + planners[id].member, &chosen->number, sizeof chosen->number);
    planners[id].plan(plan, args);
    return TC_OK;
}
