/* attention_backward.c: the gradients of attention; the weights are recomputed, block by block, from the values saved by the forward. */
#include <string.h>

#include "../core/reduction.h"
#include "attention_problem.h"

enum { VALUES = ATTENTION_INPUTS, DVALUES, SHIFT, SUM, MAP, DMAP, DLSE, INPUTS }; /* after those of the op */

/* Results of the forward and their gradients have the forward's shapes. */
static tc_status check_saved(const attention_problem *x)
{
    const tc_attention_problem *p = &x->kernel;
    const int64_t columns[INPUTS] = {
        [VALUES] = p->Dv, [DVALUES] = p->Dv, [SHIFT] = -1, [SUM] = -1, [MAP] = p->Tk, [DMAP] = p->Tk, [DLSE] = -1};
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    for (int i = ATTENTION_INPUTS; i < INPUTS; i++) {
        const tc_input *in = &x->scope->in[i];
        int64_t shape[TC_MAX_DIMS];
        const bool map = i == MAP || i == DMAP;
        const int ndim = attention_shape(shape, x, map ? x->score_lead : x->lead, map ? p->Tq : x->queries, columns[i]);
        if (in->given && !tc_has_shape(in->given, ndim, shape))
            return tc_fail(x->scope->err, TC_ERROR_VALUE, "%s has shape %s; the forward gives %s", in->name, tc_tensor_text(a, in->given),
                           tc_shape_text(b, ndim, shape));
    }
    return TC_OK;
}

static tc_status take_saved(tc_attention_backward_args *args, attention_problem *x)
{
    const tc_input *in = x->scope->in;
    tc_tensor *dvalues = in[DVALUES].tensor;
    if (!dvalues) { /* the values were not used */
        const tc_tensor *values = in[VALUES].tensor;
        TC_TRY(tc_tensor_zeros(&dvalues, values->ndim, values->shape, values->dtype, x->scope->device, x->scope->err));
        TC_TRY(tc_own(x->scope, dvalues));
    }
    *args = (tc_attention_backward_args){.problem = x->kernel,
                                         .shift = in[SHIFT].data,
                                         .sum = in[SUM].data,
                                         .map = in[MAP].data,
                                         .dmap = in[DMAP].data,
                                         .dlse = in[DLSE].data};
    TC_TRY(attention_operand(x, &args->values, in[VALUES].tensor, x->lead));
    return attention_operand(x, &args->dvalues, dvalues, x->lead);
}

/* ---- dq, dk, dv ---------------------------------------------------------------------------------------------------------------- */

/* Are q, k, v the three parts of one buffer, rows [q_h | k_h | v_h] or [Q | K | V]? Then `offsets` says where each begins, in
 * elements from the first in memory. */
static bool is_packed(const attention_problem *x, int64_t offsets[3])
{
    const tc_input *in = x->scope->in;
    const tc_tensor *q = in[ATTENTION_Q].tensor;
    const int n = q->ndim;
    if (x->lead_ndim != n - 2 || n < 3 || n > 4) return false;
    const int64_t D = q->shape[n - 1], T = q->shape[n - 2], H = n == 4 ? q->shape[1] : 1;
    const char *first = q->data;
    for (int i = 0; i < 3; i++) {
        const tc_tensor *part = in[i].tensor;
        if (part->storage != q->storage || !tc_tensor_same_shape(part, q)) return false;
        if (memcmp(part->strides, q->strides, sizeof(int64_t) * (size_t)n) != 0) return false;
        if (part->data < first) first = part->data;
    }
    if (q->numel == 0 || memcmp(q->shape, x->lead, sizeof(int64_t) * (size_t)x->lead_ndim) != 0) return false;
    if (q->strides[n - 1] != 1 || q->strides[n - 2] != 3 * H * D || q->strides[0] != 3 * H * D * T) return false;
    const int64_t head = n == 4 ? q->strides[1] : 3 * D, step = head == 3 * D ? D : H * D;
    if (head != 3 * D && head != D) return false;
    bool seen[3] = {false, false, false};
    for (int i = 0; i < 3; i++) {
        offsets[i] = (in[i].tensor->data - first) / (int64_t)tc_dtype_size(q->dtype);
        if (offsets[i] % step != 0 || offsets[i] / step > 2 || seen[offsets[i] / step]) return false;
        seen[offsets[i] / step] = true;
    }
    return true;
}

/* dq, dk, dv in full: as parts of one buffer when q, k, v are, so that the op that made them can use the whole buffer. */
static tc_status new_gradients(tc_tensor *out[3], tc_attention_operand *const operands[3], attention_problem *x)
{
    const tc_attention_problem *p = &x->kernel;
    const tc_input *in = x->scope->in;
    int64_t offsets[3];
    if (!is_packed(x, offsets)) {
        TC_TRY(attention_result(&out[0], operands[0], x, x->lead, x->queries, p->D, in[ATTENTION_Q].tensor));
        TC_TRY(attention_result(&out[1], operands[1], x, x->key_lead, x->keys, p->D, in[ATTENTION_K].tensor));
        return attention_result(&out[2], operands[2], x, x->key_lead, x->keys, p->Dv, in[ATTENTION_V].tensor);
    }
    const tc_tensor *q = in[ATTENTION_Q].tensor;
    tc_tensor *whole;
    TC_TRY(tc_make(x->scope, &whole, 1, (int64_t[]){3 * q->numel}));
    for (int i = 0; i < 3; i++) {
        TC_TRY(tc_tensor_alias(&out[i], whole, q->ndim, q->shape, q->strides, offsets[i], x->scope->err));
        TC_TRY(tc_own(x->scope, out[i]));
        *operands[i] = (tc_attention_operand){out[i]->data, p->q.batch, p->q.head, p->q.row};
    }
    return TC_OK;
}

static tc_status run_backward(tc_attention_backward_args *args, attention_problem *x)
{
    TC_PLAN(plan);
    tc_scope *s = x->scope;
    const tc_attention_problem *p = &x->kernel;
    TC_TRY(tc_plan_begin(&plan, s->device, s->compute, &tc_kernel_attention_backward, args, NULL, s->err));
    const int64_t heads = p->B * p->Hk, rest = args->splits - 1, key_blocks = tc_divide_up(p->Tk, TC_ATTENTION_KEYS);
    if (rest > 0) {
        tc_tensor *dk, *dv;
        TC_TRY(tc_make_statistic(s, &dk, 3, (int64_t[]){rest, heads * p->Tk, p->D}));
        TC_TRY(tc_make_statistic(s, &dv, 3, (int64_t[]){rest, heads * p->Tk, p->Dv}));
        args->dk_partial = dk->data;
        args->dv_partial = dv->data;
    }
    plan.interruptible = true;
    TC_TRY(tc_plan_run(&plan, args, s->err));
    if (rest == 0) return TC_OK;
    return tc_compute(s, &tc_kernel_attention_sum_splits, args, heads * key_blocks, (double)(TC_ATTENTION_KEYS * (p->D + p->Dv) * rest));
}

/* ---- additive terms -------------------------------------------------------------------------------------------------------------- */

/* Which axes of the scores the term has in full, by its shape: its strides are 0 along those of an expanded tensor as well. */
typedef struct own_axes {
    bool batch, head, row, column;
} own_axes;

static own_axes axes_of(const attention_problem *x, const tc_tensor *term)
{
    own_axes own = {false, false, false, false};
    const int n = x->lead_ndim;
    for (int i = 0; i < term->ndim; i++) {
        const int axis = n + 2 - term->ndim + i; /* of the scores */
        if (term->shape[i] == 1) continue;
        *(axis == n + 1 ? &own.column : axis == n ? &own.row : axis < x->batch_axes ? &own.batch : &own.head) = true;
    }
    return own;
}

/* The gradient of an additive term, of its shape. */
static tc_status run_dbias(tc_tensor **out, attention_problem *x, const tc_attention_backward_args *args, const tc_tensor *term)
{
    TC_PLAN(plan);
    tc_scope *s = x->scope;
    const tc_attention_problem *p = &x->kernel;
    const own_axes own = axes_of(x, term);
    int64_t lead[TC_MAX_DIMS], shape[TC_MAX_DIMS];
    tc_tensor *dbias;
    for (int i = 0; i < x->lead_ndim; i++) lead[i] = (i < x->batch_axes ? own.batch : own.head) ? x->score_lead[i] : 1;
    const int ndim = attention_shape(shape, x, lead, own.row ? p->Tq : 1, own.column ? p->Tk : 1);
    TC_TRY(tc_tensor_zeros(&dbias, ndim, shape, s->compute, s->device, s->err));
    TC_TRY(tc_own(s, dbias));
    tc_attention_dbias_args a = {.backward = *args};
    TC_TRY(attention_plane(x, &a.dbias, dbias));
    a.batches = own.batch ? p->B : 1;
    a.heads = own.head ? p->H : 1;
    a.rows = own.row ? p->Tq : 1;
    TC_TRY(tc_plan_begin(&plan, s->device, s->compute, &tc_kernel_attention_dbias, &a, NULL, s->err));
    plan.interruptible = true;
    TC_TRY(tc_plan_run(&plan, &a, s->err));
    TC_TRY(tc_sum_to_shape(out, dbias, term->ndim, term->shape, s->err));
    return tc_own(s, *out);
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------------- */

tc_status tc_attention_backward(tc_tensor **dq, tc_tensor **dk, tc_tensor **dv, tc_tensor **dbias, tc_tensor **dmask, tc_tensor *dvalues,
                                tc_tensor *dattention, tc_tensor *dlse, const tc_attention_saved *saved,
                                const tc_attention_options *options, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[INPUTS] = {[VALUES] = {"values", saved->values, .strided = true},
                           [DVALUES] = {"dvalues", dvalues, .strided = true},
                           [SHIFT] = {"shift", saved->shift, .statistic = true},
                           [SUM] = {"sum", saved->sum, .statistic = true},
                           [MAP] = {"attention", dattention ? saved->attention : NULL},
                           [DMAP] = {"dattention", dattention},
                           [DLSE] = {"dlse", dlse, .statistic = true}};
    attention_problem x;
    tc_attention_backward_args args;
    tc_tensor *full[3] = {NULL, NULL, NULL};
    tc_result results[ATTENTION_INPUTS] = {{dq, NULL}, {dk, NULL}, {dv, NULL}, {dbias, NULL}, {dmask, NULL}};
    attention_inputs(in, saved->q, saved->k, saved->v, options);
    TC_TRY(tc_begin_backward(&s, in, INPUTS));
    TC_TRY(attention_check(&x, &s, options));
    TC_TRY(check_saved(&x));
    TC_TRY(tc_prepare(&s));
    TC_TRY(attention_operands(&x, options));
    TC_TRY(take_saved(&args, &x));
    if (dq || dk || dv) {
        TC_TRY(new_gradients(full, (tc_attention_operand *[]){&args.dq, &args.dk, &args.dv}, &x));
        TC_TRY(run_backward(&args, &x));
    }
    for (int i = ATTENTION_Q; i <= ATTENTION_V; i++) {
        if (!results[i].out) continue;
        TC_TRY(tc_sum_to_shape(&results[i].tensor, full[i], in[i].given->ndim, in[i].given->shape, err));
        TC_TRY(tc_own(&s, results[i].tensor));
    }
    for (int i = ATTENTION_BIAS; i <= ATTENTION_MASK; i++)
        if (results[i].out) TC_TRY(run_dbias(&results[i].tensor, &x, &args, in[i].given));
    return tc_give_rounded(&s, ATTENTION_INPUTS, results);
}
