/* encoder_block.c: a whole encoder block (Vaswani et al. 2017, section 3.1; with norm_first Xiong et al. 2020) of short sequences.
 *
 * Saved for the backward, on GPUs: x, the parameters and the mask; everything between is computed again (encoder_block_backward.c). On CPUs
 * it is not recorded: it keeps nothing but its result, and where gradients are recorded the parts run one by one.
 *
 * A sequence has the same bits with any others, on any number of threads. On CPUs they are those of the parts; on GPUs, where it is one
 * launch, halves are not rounded between the parts, and sums are added in another order. */
#include "encoder_block.h"

#include <inttypes.h>
#include <math.h>

const char *const tc_block_names[TC_BLOCK_INPUTS] = {"x",         "qkv_weight", "qkv_bias",    "out_weight", "out_bias",
                                                     "up_weight", "up_bias",    "down_weight", "down_bias",  "gamma1",
                                                     "beta1",     "gamma2",     "beta2"};

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

bool tc_encoder_block_takes_gradients(const tc_tensor *x, int64_t hidden, int64_t num_heads, tc_activation activation)
{
    const tc_backend *backend;
    tc_error err;
    if (!tc_encoder_block_takes(x, hidden) || tc_backend_for(&backend, x->storage->device, &err) != TC_OK) return false;
    if (!backend->block_shared_bytes) return false;
    const size_t element = tc_dtype_size(tc_compute_dtype(x->dtype));
    const bool keeps_before = tc_encoder_block_keeps_before(activation);
    const int64_t needed = tc_encoder_block_areas_of(x->shape[1], x->shape[2], hidden, num_heads, element, keeps_before).end;
    return needed * (int64_t)element <= backend->block_shared_bytes(x->storage->device.index);
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
    const tc_tensor *x = s->in[TC_BLOCK_X].given, *up = s->in[TC_BLOCK_UP].given;
    if (x->ndim != 3)
        return tc_fail(s->err, TC_ERROR_VALUE, "x has shape %s; expected (batch, sequence, features)", tc_tensor_text(text, x));
    const int64_t E = x->shape[2];
    if (num_heads < 1 || E < 1 || E % num_heads != 0)
        return tc_fail(s->err, TC_ERROR_VALUE, "num_heads is %" PRId64 "; it must divide the %" PRId64 " features of x", num_heads, E);
    if (up->ndim != 2 || up->shape[0] < 1)
        return tc_fail(s->err, TC_ERROR_VALUE, "%s has shape %s; expected (hidden, features)", s->in[TC_BLOCK_UP].name,
                       tc_tensor_text(text, up));
    const int64_t F = up->shape[0];
    const int64_t shapes[TC_BLOCK_INPUTS][2] = {
        [TC_BLOCK_QKV] = {3 * E, E}, [TC_BLOCK_QKV_BIAS] = {3 * E}, [TC_BLOCK_OUT] = {E, E},  [TC_BLOCK_OUT_BIAS] = {E},
        [TC_BLOCK_UP] = {F, E},      [TC_BLOCK_UP_BIAS] = {F},      [TC_BLOCK_DOWN] = {E, F}, [TC_BLOCK_DOWN_BIAS] = {E},
        [TC_BLOCK_GAMMA1] = {E},     [TC_BLOCK_BETA1] = {E},        [TC_BLOCK_GAMMA2] = {E},  [TC_BLOCK_BETA2] = {E}};
    for (int i = TC_BLOCK_QKV; i < TC_BLOCK_INPUTS; i++) TC_TRY(check(s, i, shapes[i][0], shapes[i][1]));
    if (s->device.type == TC_CPU || tc_encoder_block_takes(x, F)) return TC_OK;
    return tc_fail(
        s->err, TC_ERROR_VALUE,
        "x has shape %s, and %s %" PRId64 " rows; on a GPU encoder_block takes sequences of at most %d, %d features and %d rows, "
        "as far as a block's shared memory has room for them: run the parts one by one",
        tc_tensor_text(text, x), s->in[TC_BLOCK_UP].name, F, TC_ENCODER_BLOCK_LENGTH, TC_ENCODER_BLOCK_WIDTH, TC_ENCODER_BLOCK_HIDDEN);
}

/* The mask as bytes, broadcast to (B,H,T,T). */
static tc_status take_mask(tc_scope *s, const tc_input *in, tc_attention_problem *p, tc_tensor *mask)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    const int64_t scores[4] = {p->B, p->H, p->Tq, p->Tk};
    int64_t strides[4] = {0, 0, 0, 0};
    if (!mask) return TC_OK;
    TC_TRY(tc_check_same_device(in[TC_BLOCK_X].given, "x", mask, "mask", s->err));
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

static tc_gemm_args product_of(const tc_input *in, int weight, int64_t rows, tc_activation activation)
{
    const tc_tensor *w = in[weight].tensor;
    tc_gemm_args g = {.b = w->data, .bias = in[weight + 1].data, .activation = activation, .batch = 1};
    g.M = rows, g.N = g.c_row = g.pre_row = g.residual_row = w->shape[0];
    g.K = g.a_row = g.b_col = w->shape[1];
    g.a_col = g.b_row = 1;
    return g;
}

static tc_layer_norm_forward_args norm_of(const tc_input *in, int gamma, double eps)
{
    return (tc_layer_norm_forward_args){
        .gamma = in[gamma].data, .beta = in[gamma + 1].data, .C = in[TC_BLOCK_X].tensor->shape[2], .eps = eps};
}

tc_status tc_block_describe(tc_scope *s, tc_encoder_block_args *args, const tc_input *in, const tc_block_attributes *attributes,
                            tc_tensor *mask)
{
    const tc_tensor *x = in[TC_BLOCK_X].tensor;
    const int64_t B = x->shape[0], T = x->shape[1], E = x->shape[2], H = attributes->num_heads, D = E / H;
    *args = (tc_encoder_block_args){.x = in[TC_BLOCK_X].data, .B = B, .T = T, .E = E, .norm_first = attributes->norm_first};
    args->qkv = product_of(in, TC_BLOCK_QKV, B * T, TC_ACTIVATION_NONE);
    args->out = product_of(in, TC_BLOCK_OUT, B * T, TC_ACTIVATION_NONE);
    args->up = product_of(in, TC_BLOCK_UP, B * T, attributes->activation);
    args->down = product_of(in, TC_BLOCK_DOWN, B * T, TC_ACTIVATION_NONE);
    args->norm1 = norm_of(in, TC_BLOCK_GAMMA1, attributes->eps[0]);
    args->norm2 = norm_of(in, TC_BLOCK_GAMMA2, attributes->eps[1]);
    for (int i = 0; i < TC_ENCODER_BLOCK_MASKS; i++) args->mask[i] = attributes->dropped[i].kept;
    args->attention.problem = (tc_attention_problem){.B = B,
                                                     .H = H,
                                                     .Hk = H,
                                                     .Tq = T,
                                                     .Tk = T,
                                                     .D = D,
                                                     .Dv = D,
                                                     .scale = 1.0 / sqrt((double)D),
                                                     .left = TC_ATTENTION_UNBOUNDED,
                                                     .right = TC_ATTENTION_UNBOUNDED,
                                                     .empty_rows = TC_ATTENTION_EMPTY_UNIFORM};
    return take_mask(s, in, &args->attention.problem, mask);
}

/* Of all rows: an item's are computed in the same way. On GPUs the kernel leaves nothing to plan. */
static tc_status plan_product(tc_scope *s, tc_plan *plan, tc_gemm_args *g, int weight)
{
    tc_tensor *w = s->in[weight].tensor;
    const bool keep = w == s->in[weight].given && !w->storage->shared && !tc_tape_wants(1, &w);
    if (s->device.type != TC_CPU) return TC_OK;
    return tc_plan_begin(plan, s->device, s->compute, &tc_kernel_gemm, g, keep ? w->storage : NULL, s->err);
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

/* What dropout keeps of each of its three places; those without it draw nothing. */
static tc_status draw(tc_scope *s, tc_block_attributes *attributes, const tc_encoder_block_options *options)
{
    const tc_tensor *x = s->in[TC_BLOCK_X].given;
    const int64_t rows = x->shape[0] * x->shape[1], hidden = rows * s->in[TC_BLOCK_UP].given->shape[0];
    const double p[TC_ENCODER_BLOCK_MASKS] = {options->dropout, options->hidden_dropout, options->dropout};
    uint64_t call = options->call;
    for (int i = 0; i < TC_ENCODER_BLOCK_MASKS; i++) {
        TC_TRY(tc_check_dropout(p[i], s->err));
        if (p[i] > 0.0) attributes->dropped[i] = tc_mask_of_rows(x, 1, i == 1 ? hidden : x->numel, p[i], options->seed, call++);
    }
    return TC_OK;
}

/* On a CPU, and for gradients of sizes that have no room on the GPU, the parts must run. */
static tc_status check_place(tc_scope *s, const tc_encoder_block_options *options)
{
    char text[TC_SHAPE_TEXT];
    tc_tensor *given[TC_BLOCK_INPUTS];
    for (int i = 0; i < TC_BLOCK_INPUTS; i++) given[i] = s->in[i].given;
    const bool recorded = tc_tape_wants(TC_BLOCK_INPUTS, given), drops = options->dropout > 0.0 || options->hidden_dropout > 0.0;
    if (s->device.type == TC_CPU && (recorded || drops))
        return tc_fail(s->err, TC_ERROR_VALUE, "%s: on a CPU encoder_block has no dropout and no gradients; run the parts one by one",
                       recorded ? "an input requires a gradient" : "dropout is above 0");
    const int64_t F = s->in[TC_BLOCK_UP].given->shape[0];
    if (!recorded || tc_encoder_block_takes_gradients(given[TC_BLOCK_X], F, options->num_heads, options->activation)) return TC_OK;
    return tc_fail(s->err, TC_ERROR_VALUE,
                   "x has shape %s, and %s %" PRId64 " rows: a block of this GPU does not have enough shared memory for their gradients; "
                   "run the parts one by one, or without gradients (tc.no_grad)",
                   tc_tensor_text(text, given[TC_BLOCK_X]), tc_block_names[TC_BLOCK_UP], F);
}

tc_status tc_encoder_block(tc_tensor **y, tc_tensor *x, const tc_encoder_block_parts *parts, const tc_encoder_block_options *options,
                           tc_error *err)
{
    TC_SCOPE(s, err);
    TC_PLAN(qkv);
    TC_PLAN(out);
    TC_PLAN(up);
    TC_PLAN(down);
    tc_tensor *const given[TC_BLOCK_INPUTS] = {x,
                                               parts->qkv_weight,
                                               parts->qkv_bias,
                                               parts->out_weight,
                                               parts->out_bias,
                                               parts->up_weight,
                                               parts->up_bias,
                                               parts->down_weight,
                                               parts->down_bias,
                                               parts->gamma1,
                                               parts->beta1,
                                               parts->gamma2,
                                               parts->beta2};
    tc_input in[TC_BLOCK_INPUTS];
    tc_tensor *result, *saved[TC_BLOCK_INPUTS + 1];
    tc_encoder_block_args a;
    tc_block_attributes attributes = {
        options->num_heads, options->activation, options->norm_first, {options->eps1, options->eps2}, {{{0}}}};
    for (int i = 0; i < TC_BLOCK_INPUTS; i++) in[i] = (tc_input){tc_block_names[i], saved[i] = given[i]};
    saved[TC_BLOCK_MASK] = options->mask;
    TC_TRY(tc_begin(&s, in, TC_BLOCK_INPUTS));
    TC_TRY(check_shapes(&s, options->num_heads));
    TC_TRY(check_place(&s, options));
    TC_TRY(draw(&s, &attributes, options));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_block_describe(&s, &a, in, &attributes, options->mask));
    TC_TRY(tc_make(&s, &result, 3, x->shape));
    if (x->numel > 0) {
        TC_TRY(plan_product(&s, &qkv, &a.qkv, TC_BLOCK_QKV));
        TC_TRY(plan_product(&s, &out, &a.out, TC_BLOCK_OUT));
        TC_TRY(plan_product(&s, &up, &a.up, TC_BLOCK_UP));
        TC_TRY(plan_product(&s, &down, &a.down, TC_BLOCK_DOWN));
        a.y = result->data;
        TC_TRY(run(&s, &a));
    }
    return tc_finish(
        &s, y, result,
        &(tc_record){.op = &tc_encoder_block_op, .saved = saved, .saved_count = TC_BLOCK_INPUTS + 1, .attributes = &attributes});
}
