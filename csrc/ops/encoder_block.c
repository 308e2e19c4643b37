/* encoder_block.c: a whole encoder block (Vaswani et al. 2017, section 3.1; with norm_first Xiong et al. 2020) of short sequences, without
 * dropout. Not recorded: it keeps nothing but its result, and where gradients are recorded the parts run one by one.
 *
 * A sequence has the same bits with any others, on any number of threads. On CPUs they are those of the parts; on GPUs, where it is one
 * launch, halves are not rounded between the parts, and sums are added in another order. */
#include "../kernels/encoder_block.h"

#include <inttypes.h>
#include <math.h>

#include "op.h"

enum { X, QKV, QKV_BIAS, OUT, OUT_BIAS, UP, UP_BIAS, DOWN, DOWN_BIAS, GAMMA1, BETA1, GAMMA2, BETA2, INPUTS };

/* What a group of sequences has between the parts, in bytes: most of a second-level cache remains for weights. */
#define GROUP_BYTES 262144
/* Threads share groups of at least so many rows: products of fewer are slower. */
#define LEAST_ROWS 168

bool tc_encoder_block_takes(const tc_tensor *x, int64_t hidden)
{
    const tc_backend *backend;
    const tc_device device = x->storage->device;
    tc_error err; /* of a device that cannot be used */
    if (x->ndim != 3 || !tc_dtype_is_float(x->dtype) || tc_backend_for(&backend, device, &err) != TC_OK) return false;
    const int64_t B = x->shape[0], T = x->shape[1], E = x->shape[2];
    const tc_dtype compute = tc_compute_dtype(x->dtype);
    if (!backend->block_shared_bytes) return compute == x->dtype && T <= TC_ENCODER_BLOCK_CPU_LENGTH && E <= TC_ENCODER_BLOCK_CPU_WIDTH;
    return B <= INT32_MAX && tc_encoder_block_fits(T, E, hidden, tc_dtype_size(compute), backend->block_shared_bytes(device.index));
}

/* Is it of this shape? columns 0: one axis. */
static tc_status check(tc_scope *s, int input, int64_t rows, int64_t columns)
{
    char text[TC_SHAPE_TEXT], expected[TC_SHAPE_TEXT];
    const tc_tensor *tensor = s->in[input].given;
    const int64_t shape[2] = {rows, columns};
    const int ndim = columns ? 2 : 1;
    if (tc_has_shape(tensor, ndim, shape)) return TC_OK;
    return tc_fail(s->err, TC_ERROR_VALUE, "%s has shape %s; with the other arguments it must have %s", s->in[input].name,
                   tc_tensor_text(text, tensor), tc_shape_text(expected, ndim, shape));
}

static tc_status check_shapes(tc_scope *s, int64_t num_heads)
{
    char text[TC_SHAPE_TEXT];
    const tc_tensor *x = s->in[X].given, *up = s->in[UP].given;
    if (x->ndim != 3)
        return tc_fail(s->err, TC_ERROR_VALUE, "x has shape %s; expected (batch, sequence, features)", tc_tensor_text(text, x));
    const int64_t E = x->shape[2];
    if (num_heads < 1 || E < 1 || E % num_heads != 0)
        return tc_fail(s->err, TC_ERROR_VALUE, "num_heads is %" PRId64 "; it must divide the %" PRId64 " features of x", num_heads, E);
    if (up->ndim != 2 || up->shape[0] < 1)
        return tc_fail(s->err, TC_ERROR_VALUE, "%s has shape %s; expected (hidden, features)", s->in[UP].name, tc_tensor_text(text, up));
    const int64_t F = up->shape[0];
    const int64_t shapes[INPUTS][2] = {
        [QKV] = {3 * E, E}, [QKV_BIAS] = {3 * E}, [OUT] = {E, E}, [OUT_BIAS] = {E}, [UP] = {F, E},  [UP_BIAS] = {F},
        [DOWN] = {E, F},    [DOWN_BIAS] = {E},    [GAMMA1] = {E}, [BETA1] = {E},    [GAMMA2] = {E}, [BETA2] = {E}};
    for (int i = QKV; i < INPUTS; i++) TC_TRY(check(s, i, shapes[i][0], shapes[i][1]));
    if (s->device.type == TC_CPU || tc_encoder_block_takes(x, F)) return TC_OK;
    return tc_fail(s->err, TC_ERROR_VALUE,
                   "x has shape %s, and %s %" PRId64
                   " rows; on a GPU encoder_block takes sequences of at most %d, %d features and %d rows, "
                   "as far as a block's shared memory has room for them: run the parts one by one",
                   tc_tensor_text(text, x), s->in[UP].name, F, TC_ENCODER_BLOCK_LENGTH, TC_ENCODER_BLOCK_WIDTH, TC_ENCODER_BLOCK_HIDDEN);
}

/* The mask as bytes, broadcast to (B,H,T,T). */
static tc_status take_mask(tc_scope *s, tc_attention_problem *p, tc_tensor *mask)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    const int64_t scores[4] = {p->B, p->H, p->Tq, p->Tk};
    int64_t strides[4] = {0, 0, 0, 0};
    if (!mask) return TC_OK;
    TC_TRY(tc_check_same_device(s->in[X].given, "x", mask, "mask", s->err));
    bool fits = mask->ndim <= 4;
    for (int i = 1; fits && i <= mask->ndim; i++) fits = mask->shape[mask->ndim - i] == 1 || mask->shape[mask->ndim - i] == scores[4 - i];
    if (!fits)
        return tc_fail(s->err, TC_ERROR_VALUE, "mask has shape %s, which does not broadcast to the scores (B, H, T, T) = %s",
                       tc_tensor_text(a, mask), tc_shape_text(b, 4, scores));
    if (mask->dtype != TC_BOOL && mask->dtype != TC_UINT8) {
        TC_TRY(tc_tensor_as(&mask, mask, TC_BOOL, s->err));
        TC_TRY(tc_own(s, mask));
    }
    for (int i = 1; i <= mask->ndim; i++) strides[4 - i] = mask->shape[mask->ndim - i] == 1 ? 0 : mask->strides[mask->ndim - i];
    p->mask = (tc_attention_plane){mask->data, strides[0], strides[1], strides[2], strides[3]};
    p->mask_kind = TC_ATTENTION_MASK_FILL;
    return TC_OK;
}

static tc_status plan_attention(tc_scope *s, tc_attention_forward_args *args, int64_t num_heads, tc_tensor *mask)
{
    const int64_t *shape = s->in[X].given->shape;
    const int64_t D = shape[2] / num_heads;
    args->problem = (tc_attention_problem){.B = shape[0],
                                           .H = num_heads,
                                           .Hk = num_heads,
                                           .Tq = shape[1],
                                           .Tk = shape[1],
                                           .D = D,
                                           .Dv = D,
                                           .scale = 1.0 / sqrt((double)D),
                                           .left = TC_ATTENTION_UNBOUNDED,
                                           .right = TC_ATTENTION_UNBOUNDED,
                                           .empty_rows = TC_ATTENTION_EMPTY_UNIFORM};
    return take_mask(s, &args->problem, mask);
}

/* Of all rows: an item's are computed in the same way. On GPUs the kernel leaves nothing to plan. */
static tc_status plan_product(tc_scope *s, tc_plan *plan, tc_gemm_args *g, int weight, tc_activation activation)
{
    const int64_t rows = s->in[X].given->shape[0] * s->in[X].given->shape[1];
    tc_tensor *w = s->in[weight].tensor;
    const bool keep = w == s->in[weight].given && !w->storage->shared && !tc_tape_wants(1, &w);
    *g = (tc_gemm_args){.b = w->data, .bias = s->in[weight + 1].data, .activation = activation, .batch = 1};
    g->M = rows, g->N = g->c_row = g->pre_row = g->residual_row = w->shape[0];
    g->K = g->a_row = g->b_col = w->shape[1];
    g->a_col = g->b_row = 1;
    return s->device.type != TC_CPU ? TC_OK
                                    : tc_plan_begin(plan, s->device, s->compute, &tc_kernel_gemm, g, keep ? w->storage : NULL, s->err);
}

static tc_layer_norm_forward_args norm_of(const tc_scope *s, int gamma, double eps)
{
    return (tc_layer_norm_forward_args){
        .gamma = s->in[gamma].data, .beta = s->in[gamma + 1].data, .C = s->in[X].given->shape[2], .eps = eps};
}

/* How many sequences an item has. */
static int64_t group_of(const tc_scope *s, const tc_encoder_block_args *a)
{
    if (s->device.type != TC_CPU) return 1;
    const int64_t F = a->up.N, wide = 3 * a->E > F ? 3 * a->E : F;
    const int64_t sequence = a->T * (wide + 3 * a->E) * (int64_t)tc_dtype_size(s->compute);
    const int64_t most = GROUP_BYTES / sequence, share = tc_divide_up(a->B, 2 * (int64_t)tc_get_num_threads());
    const int64_t wanted = share * a->T < LEAST_ROWS ? tc_divide_up(LEAST_ROWS, a->T) : share;
    return most < 1 ? 1 : most < wanted ? most : wanted;
}

static tc_status run(tc_scope *s, tc_encoder_block_args *a)
{
    const size_t element = tc_dtype_size(s->compute);
    const int64_t F = a->up.N;
    a->group = group_of(s, a);
    const double products = (double)(a->E * (4 * a->E + 2 * F)), scores = 2.0 * (double)(a->E * a->T);
    const tc_plan plan = {.device = s->device,
                          .compute = s->compute,
                          .kernel = &tc_kernel_encoder_block_forward,
                          .interruptible = true,
                          .variant = "sequences",
                          .splits = 1,
                          .items = tc_divide_up(a->B, a->group),
                          .cost = (double)(a->group * a->T) * (products + scores) / 16.0, /* multiply-adds in elementary operations */
                          .scratch = tc_encoder_block_scratch_of(a, element).bytes};
    return tc_plan_run(&plan, a, s->err);
}

tc_status tc_encoder_block(tc_tensor **y, tc_tensor *x, const tc_encoder_block_parts *parts, tc_tensor *mask, int64_t num_heads,
                           tc_activation activation, bool norm_first, double eps1, double eps2, tc_error *err)
{
    TC_SCOPE(s, err);
    TC_PLAN(qkv);
    TC_PLAN(out);
    TC_PLAN(up);
    TC_PLAN(down);
    tc_input in[INPUTS] = {[X] = {"x", x},
                           [QKV] = {"qkv_weight", parts->qkv_weight},
                           [QKV_BIAS] = {"qkv_bias", parts->qkv_bias},
                           [OUT] = {"out_weight", parts->out_weight},
                           [OUT_BIAS] = {"out_bias", parts->out_bias},
                           [UP] = {"up_weight", parts->up_weight},
                           [UP_BIAS] = {"up_bias", parts->up_bias},
                           [DOWN] = {"down_weight", parts->down_weight},
                           [DOWN_BIAS] = {"down_bias", parts->down_bias},
                           [GAMMA1] = {"gamma1", parts->gamma1},
                           [BETA1] = {"beta1", parts->beta1},
                           [GAMMA2] = {"gamma2", parts->gamma2},
                           [BETA2] = {"beta2", parts->beta2}};
    tc_tensor *result;
    tc_encoder_block_args a = {.norm_first = norm_first};
    TC_TRY(tc_begin(&s, in, INPUTS));
    TC_TRY(check_shapes(&s, num_heads));
    TC_TRY(plan_attention(&s, &a.attention, num_heads, mask));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &result, 3, x->shape));
    if (x->numel > 0) {
        TC_TRY(plan_product(&s, &qkv, &a.qkv, QKV, TC_ACTIVATION_NONE));
        TC_TRY(plan_product(&s, &out, &a.out, OUT, TC_ACTIVATION_NONE));
        TC_TRY(plan_product(&s, &up, &a.up, UP, activation));
        TC_TRY(plan_product(&s, &down, &a.down, DOWN, TC_ACTIVATION_NONE));
        a.norm1 = norm_of(&s, GAMMA1, eps1);
        a.norm2 = norm_of(&s, GAMMA2, eps2);
        a.y = result->data;
        a.x = in[X].data;
        a.B = x->shape[0], a.T = x->shape[1], a.E = x->shape[2];
        TC_TRY(run(&s, &a));
    }
    return tc_give_rounded(&s, 1, (tc_result[]){{y, result}});
}
