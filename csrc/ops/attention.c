/* attention.c: scaled dot-product attention, forward and backward, tiled: the (Tq, Tk) map is made only when asked for.
 *
 * Saved for the backward: q, k, v, values, masks and bias as they are, and shift and sum of each row (2 B H Tq numbers); the map
 * when it was asked for. */
#include "../core/backend.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "attention_problem.h"
#include "view.h"

#include <string.h>

static int64_t blocks_of(int64_t length, int64_t block) { return (length + block - 1) / block; }

/* ---- forward --------------------------------------------------------------------------------------------------------------- */

/* (lead..., Tq) or, with `columns` >= 0, (lead..., Tq, columns). Returns how many axes. */
static int row_shape(int64_t shape[TC_MAX_DIMS], const attention_problem *x, int64_t columns)
{
    const int n = x->lead_ndim;
    memcpy(shape, x->lead, sizeof(int64_t) * (size_t)n);
    shape[n] = x->kernel.Tq;
    if (columns >= 0) shape[n + 1] = columns;
    return columns >= 0 ? n + 2 : n + 1;
}

static tc_status row_tensor(tc_tensor **out, const attention_problem *x, int64_t columns, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS];
    const int ndim = row_shape(shape, x, columns);
    return tc_tensor_empty(out, ndim, shape, x->compute, x->device, err);
}

enum { INPUT_Q, INPUT_K, INPUT_V, INPUT_BIAS, INPUT_MASK, INPUTS };

/* Casts what is computed with, recorded, so that gradients come back in the dtypes given. Masks that are not added stay. */
static tc_status cast_inputs(tc_old_scope *scope, tc_tensor *inputs[INPUTS], tc_dtype compute, tc_mask_kind mask_kind, tc_error *err)
{
    for (int i = 0; i < INPUTS; i++) {
        if (!inputs[i] || (i == INPUT_MASK && (mask_kind == TC_MASK_FILL || !tc_dtype_is_float(inputs[i]->dtype)))) continue;
        const tc_status status = tc_old_scope_cast(scope, &inputs[i], compute, err);
        if (status != TC_OK) return status;
    }
    return TC_OK;
}

/* An error when a sum is 0: that row may attend to nothing. */
static tc_status refuse_empty_rows(tc_tensor *sum, tc_error *err)
{
    tc_tensor *host, *wide = NULL;
    tc_status status = tc_to_device(&host, sum, (tc_device){TC_CPU, 0}, err);
    if (status != TC_OK) return status;
    status = tc_tensor_as(&wide, host, TC_FLOAT64, err);
    for (int64_t i = 0; status == TC_OK && i < wide->numel; i++)
        if (((const double *)wide->data)[i] == 0.0)
            status =
                tc_fail(err, TC_ERROR_VALUE,
                        "a query may attend to no key at all; with empty_rows \"zero\" or \"uniform\" such rows have a defined result");
    tc_tensor_release(host);
    tc_tensor_release(wide);
    return status;
}

/* In the compute dtype. */
static tc_status forward(tc_tensor **values, tc_tensor **attention, tc_tensor **lse, tc_tensor **shift, tc_tensor **sum, tc_tensor *q,
                         tc_tensor *k, tc_tensor *v, const tc_attention_options *options, tc_error *err)
{
    TC_PLAN(plan);
    attention_problem x;
    tc_tensor *out = NULL, *map = NULL, *log_sum = NULL, *shifts = NULL, *sums = NULL;
    tc_attention_forward_args args = {0};
    tc_status status = TC_OK;
    TC_TRY(attention_problem_begin(&x, q, k, v, options, err));
    const tc_attention_problem *p = &x.kernel;
    TC_TRY(attention_result(&out, &args.values, &x, x.lead, p->Tq, p->Dv, q, err));
    TC_TRY(row_tensor(&shifts, &x, -1, err));
    TC_TRY(row_tensor(&sums, &x, -1, err));
    if (lse) TC_TRY(row_tensor(&log_sum, &x, -1, err));
    if (attention) TC_TRY(row_tensor(&map, &x, p->Tk, err));
    args.problem = *p;
    args.shift = shifts->data;
    args.sum = sums->data;
    args.lse = log_sum ? log_sum->data : NULL;
    args.map = map ? map->data : NULL;
    TC_TRY(tc_plan_begin(&plan, x.device, x.compute, &tc_kernel_attention_forward, &args, NULL, err));
    TC_TRY(tc_plan_run(&plan, &args, err));
    if (options->empty_rows == TC_EMPTY_ROWS_RAISE) TC_TRY(refuse_empty_rows(sums, err));
    *values = tc_tensor_retain(out);
    *shift = tc_tensor_retain(shifts);
    *sum = tc_tensor_retain(sums);
    if (lse) *lse = tc_tensor_retain(log_sum);
    if (attention) *attention = tc_tensor_retain(map);
cleanup:
    attention_problem_end(&x);
    tc_tensor_release(out);
    tc_tensor_release(map);
    tc_tensor_release(log_sum);
    tc_tensor_release(shifts);
    tc_tensor_release(sums);
    return status;
}

tc_status tc_attention_forward(tc_tensor **values, tc_tensor **attention, tc_tensor **lse, tc_tensor **shift, tc_tensor **sum, tc_tensor *q,
                               tc_tensor *k, tc_tensor *v, const tc_attention_options *given, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_attention_options options = *given;
    tc_tensor *inputs[INPUTS] = {q, k, v, options.bias, options.mask}, *out[5] = {NULL}, *results[3] = {NULL};
    tc_status status = TC_OK;
    TC_TRY(attention_check_dtypes(q, k, v, given, err));
    TC_TRY(cast_inputs(&scope, inputs, tc_compute_dtype(q->dtype), options.mask_kind, err));
    options.bias = inputs[INPUT_BIAS];
    options.mask = inputs[INPUT_MASK];
    TC_TRY(forward(&out[0], attention ? &out[1] : NULL, lse ? &out[2] : NULL, &out[3], &out[4], inputs[0], inputs[1], inputs[2], &options,
                   err));
    for (int i = 0; i < 3; i++)
        if (out[i] && out[i]->dtype == q->dtype)
            results[i] = tc_tensor_retain(out[i]); /* as laid out */
        else if (out[i])
            TC_TRY(tc_tensor_as(&results[i], out[i], q->dtype, err));
    *values = tc_tensor_retain(results[0]);
    if (attention) *attention = tc_tensor_retain(results[1]);
    if (lse) *lse = tc_tensor_retain(results[2]);
    *shift = tc_tensor_retain(out[3]);
    *sum = tc_tensor_retain(out[4]);
cleanup:
    tc_old_scope_end(&scope);
    for (int i = 0; i < 5; i++) tc_tensor_release(out[i]);
    for (int i = 0; i < 3; i++) tc_tensor_release(results[i]);
    return status;
}

/* ---- backward ---------------------------------------------------------------------------------------------------------------- */

/* Are q, k, v the three parts of one buffer, rows [q_h | k_h | v_h] or [Q | K | V]? Then `offsets` are where each lies, in
 * elements from the first in memory. */
static bool is_packed(const attention_problem *x, const tc_tensor *const parts[3], int64_t offsets[3])
{
    const tc_tensor *q = parts[0];
    const int n = q->ndim;
    if (x->lead_ndim != n - 2 || n < 3 || n > 4) return false;
    const int64_t D = q->shape[n - 1], T = q->shape[n - 2], H = n == 4 ? q->shape[1] : 1;
    const char *first = q->data;
    for (int i = 0; i < 3; i++) {
        if (parts[i]->storage != q->storage || !tc_tensor_same_shape(parts[i], q)) return false;
        if (memcmp(parts[i]->strides, q->strides, sizeof(int64_t) * (size_t)n) != 0) return false;
        if (parts[i]->data < first) first = parts[i]->data;
    }
    if (q->numel == 0 || memcmp(q->shape, x->lead, sizeof(int64_t) * (size_t)x->lead_ndim) != 0) return false;
    if (q->strides[n - 1] != 1 || q->strides[n - 2] != 3 * H * D || q->strides[0] != 3 * H * D * T) return false;
    const int64_t head = n == 4 ? q->strides[1] : 3 * D, step = head == 3 * D ? D : H * D;
    if (head != 3 * D && head != D) return false;
    bool seen[3] = {false, false, false};
    for (int i = 0; i < 3; i++) {
        offsets[i] = (parts[i]->data - first) / (int64_t)tc_dtype_size(q->dtype);
        if (offsets[i] % step != 0 || offsets[i] / step > 2 || seen[offsets[i] / step]) return false;
        seen[offsets[i] / step] = true;
    }
    return true;
}

/* dq, dk, dv in full: as parts of one buffer when q, k, v are, so that what made them can go on with the whole. */
static tc_status new_gradients(tc_tensor *out[3], tc_attention_operand *operands[3], const attention_problem *x,
                               const tc_attention_saved *saved, tc_error *err)
{
    const tc_attention_problem *p = &x->kernel;
    const tc_tensor *const parts[3] = {saved->q, saved->k, saved->v};
    int64_t offsets[3];
    if (!is_packed(x, parts, offsets)) {
        tc_status status = attention_result(&out[0], operands[0], x, x->lead, p->Tq, p->D, saved->q, err);
        if (status == TC_OK) status = attention_result(&out[1], operands[1], x, x->key_lead, p->Tk, p->D, saved->k, err);
        if (status == TC_OK) status = attention_result(&out[2], operands[2], x, x->key_lead, p->Tk, p->Dv, saved->v, err);
        return status;
    }
    const tc_tensor *q = saved->q;
    tc_tensor *whole;
    tc_status status = tc_tensor_empty(&whole, 1, (int64_t[]){3 * q->numel}, x->compute, x->device, err);
    if (status != TC_OK) return status;
    for (int i = 0; status == TC_OK && i < 3; i++) {
        status = tc_tensor_alias(&out[i], whole, q->ndim, q->shape, q->strides, offsets[i], err);
        if (status == TC_OK) *operands[i] = (tc_attention_operand){out[i]->data, p->q.batch, p->q.head, p->q.row};
    }
    tc_tensor_release(whole);
    return status;
}

static tc_status run_backward(attention_problem *x, tc_attention_backward_args *args, tc_error *err)
{
    TC_PLAN(plan);
    const tc_attention_problem *p = &x->kernel;
    tc_tensor *dk_partial = NULL, *dv_partial = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_plan_begin(&plan, x->device, x->compute, &tc_kernel_attention_backward, args, NULL, err));
    const int64_t heads = p->B * p->Hk, rest = plan.splits - 1;
    if (rest > 0) TC_TRY(tc_tensor_empty(&dk_partial, 3, (int64_t[]){rest, heads * p->Tk, p->D}, x->compute, x->device, err));
    if (rest > 0) TC_TRY(tc_tensor_empty(&dv_partial, 3, (int64_t[]){rest, heads * p->Tk, p->Dv}, x->compute, x->device, err));
    args->dk_partial = dk_partial ? dk_partial->data : NULL;
    args->dv_partial = dv_partial ? dv_partial->data : NULL;
    TC_TRY(tc_plan_run(&plan, args, err));
    if (rest > 0)
        TC_TRY(tc_run(x->device, x->compute, &tc_kernel_attention_sum_splits, args, heads * blocks_of(p->Tk, TC_ATTENTION_KEYS),
                      (double)(TC_ATTENTION_KEYS * (p->D + p->Dv) * rest), 0, err));
cleanup:
    tc_tensor_release(dk_partial);
    tc_tensor_release(dv_partial);
    return status;
}

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
static tc_status run_dbias(tc_tensor **out, attention_problem *x, const tc_attention_backward_args *args, tc_tensor *term, tc_error *err)
{
    TC_PLAN(plan);
    const tc_attention_problem *p = &x->kernel;
    const own_axes own = axes_of(x, term);
    int64_t shape[TC_MAX_DIMS];
    tc_tensor *dbias = NULL;
    tc_status status = TC_OK;
    for (int i = 0; i < x->lead_ndim; i++) shape[i] = (i < x->batch_axes ? own.batch : own.head) ? x->lead[i] : 1;
    shape[x->lead_ndim] = own.row ? p->Tq : 1;
    shape[x->lead_ndim + 1] = own.column ? p->Tk : 1;
    TC_TRY(tc_tensor_zeros(&dbias, x->lead_ndim + 2, shape, x->compute, x->device, err));
    tc_attention_dbias_args a = {.backward = *args};
    TC_TRY(attention_plane(x, &a.dbias, dbias, err));
    a.batches = own.batch ? p->B : 1;
    a.heads = own.head ? p->H : 1;
    a.rows = own.row ? p->Tq : 1;
    TC_TRY(tc_plan_begin(&plan, x->device, x->compute, &tc_kernel_attention_dbias, &a, NULL, err));
    TC_TRY(tc_plan_run(&plan, &a, err));
    TC_TRY(tc_sum_to_shape(out, dbias, term->ndim, term->shape, err));
cleanup:
    tc_tensor_release(dbias);
    return status;
}

/* A gradient of the lead shape, contiguous; the scope owns it. */
static tc_status take_contiguous(attention_problem *x, const void **data, tc_tensor *gradient, tc_error *err)
{
    tc_status status = tc_old_scope_contiguous(&x->scope, &gradient, err);
    if (status == TC_OK && gradient) *data = gradient->data;
    return status;
}

/* What the forward made, and gradients of it, are of its shapes. */
static tc_status check_saved(const attention_problem *x, const tc_attention_saved *saved, const tc_tensor *dvalues,
                             const tc_tensor *dattention, const tc_tensor *dlse, tc_error *err)
{
    const tc_attention_problem *p = &x->kernel;
    const struct {
        const tc_tensor *tensor;
        const char *name;
        int64_t columns; /* -1: one number a row */
    } all[] = {{saved->values, "values", p->Dv}, {dvalues, "dvalues", p->Dv},       {saved->shift, "shift", -1},
               {saved->sum, "sum", -1},          {dattention, "dattention", p->Tk}, {dlse, "dlse", -1}};
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    for (int i = 0; i < 6; i++) {
        int64_t shape[TC_MAX_DIMS];
        const tc_tensor *tensor = all[i].tensor;
        if (!tensor) continue;
        const int ndim = row_shape(shape, x, all[i].columns);
        bool same = tensor->ndim == ndim;
        for (int k = 0; same && k < ndim; k++) same = tensor->shape[k] == shape[k];
        if (!same)
            return tc_fail(err, TC_ERROR_VALUE, "%s has shape %s; the forward gives %s", all[i].name, tc_tensor_text(a, tensor),
                           tc_shape_text(b, ndim, shape));
    }
    return TC_OK;
}

static tc_status take_gradients(attention_problem *x, tc_attention_backward_args *args, tc_tensor *dvalues, tc_tensor *dattention,
                                tc_tensor *dlse, const tc_attention_saved *saved, tc_error *err)
{
    tc_status status = TC_OK;
    TC_TRY(check_saved(x, saved, dvalues, dattention, dlse, err));
    if (!dvalues) { /* the values were not used */
        TC_TRY(tc_tensor_zeros(&dvalues, saved->values->ndim, saved->values->shape, x->compute, x->device, err));
        tc_old_scope_own(&x->scope, dvalues);
    }
    TC_TRY(attention_operand(x, &args->values, saved->values, x->lead, err));
    TC_TRY(attention_operand(x, &args->dvalues, dvalues, x->lead, err));
    TC_TRY(take_contiguous(x, &args->shift, saved->shift, err));
    TC_TRY(take_contiguous(x, &args->sum, saved->sum, err));
    TC_TRY(take_contiguous(x, &args->dlse, dlse, err));
    if (dattention) TC_TRY(take_contiguous(x, &args->dmap, dattention, err));
    if (dattention) TC_TRY(take_contiguous(x, &args->map, saved->attention, err));
    args->problem = x->kernel;
cleanup:
    return status;
}

/* In the compute dtype. */
static tc_status all_gradients(tc_tensor **const wanted[INPUTS], tc_tensor *dvalues, tc_tensor *dattention, tc_tensor *dlse,
                               const tc_attention_saved *saved, const tc_attention_options *options, tc_error *err)
{
    attention_problem x;
    tc_attention_backward_args args = {0};
    tc_tensor *full[3] = {NULL, NULL, NULL}, *results[INPUTS] = {NULL, NULL, NULL, NULL, NULL};
    tc_tensor *const inputs[3] = {saved->q, saved->k, saved->v};
    tc_attention_operand *operands[3] = {&args.dq, &args.dk, &args.dv};
    tc_status status = TC_OK;
    TC_TRY(attention_problem_begin(&x, saved->q, saved->k, saved->v, options, err));
    TC_TRY(take_gradients(&x, &args, dvalues, dattention, dlse, saved, err));
    if (wanted[INPUT_Q] || wanted[INPUT_K] || wanted[INPUT_V]) {
        TC_TRY(new_gradients(full, operands, &x, saved, err));
        TC_TRY(run_backward(&x, &args, err));
    }
    for (int i = 0; i < 3; i++)
        if (wanted[i]) TC_TRY(tc_sum_to_shape(&results[i], full[i], inputs[i]->ndim, inputs[i]->shape, err));
    if (wanted[INPUT_BIAS]) TC_TRY(run_dbias(&results[INPUT_BIAS], &x, &args, options->bias, err));
    if (wanted[INPUT_MASK]) TC_TRY(run_dbias(&results[INPUT_MASK], &x, &args, options->mask, err));
    for (int i = 0; i < INPUTS; i++)
        if (wanted[i]) *wanted[i] = tc_tensor_retain(results[i]);
cleanup:
    attention_problem_end(&x);
    for (int i = 0; i < 3; i++) tc_tensor_release(full[i]);
    for (int i = 0; i < INPUTS; i++) tc_tensor_release(results[i]);
    return status;
}

/* Any floating dtype: cast, computed, and each gradient back in the dtype of what it belongs to. */
tc_status tc_attention_backward(tc_tensor **dq, tc_tensor **dk, tc_tensor **dv, tc_tensor **dbias, tc_tensor **dmask, tc_tensor *dvalues,
                                tc_tensor *dattention, tc_tensor *dlse, const tc_attention_saved *given,
                                const tc_attention_options *given_options, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_attention_saved saved = *given;
    tc_attention_options options = *given_options;
    tc_tensor *inputs[INPUTS] = {saved.q, saved.k, saved.v, options.bias, options.mask}, *found[INPUTS] = {NULL}, *results[INPUTS] = {NULL};
    tc_tensor **const wanted[INPUTS] = {dq, dk, dv, dbias, dmask}, **asked[INPUTS];
    tc_tensor **const others[] = {&dvalues, &dattention, &dlse, &saved.values, &saved.attention, &saved.shift, &saved.sum};
    tc_status status = TC_OK;
    TC_TRY(attention_check_dtypes(saved.q, saved.k, saved.v, given_options, err));
    const tc_dtype result = saved.q->dtype, compute = tc_compute_dtype(result);
    TC_TRY(cast_inputs(&scope, inputs, compute, options.mask_kind, err));
    saved.q = inputs[INPUT_Q], saved.k = inputs[INPUT_K], saved.v = inputs[INPUT_V];
    options.bias = inputs[INPUT_BIAS], options.mask = inputs[INPUT_MASK];
    for (int i = 0; i < 7; i++) {
        TC_TRY(tc_check_float(*others[i], "what the forward gave, or its gradient,", err));
        TC_TRY(tc_old_scope_cast(&scope, others[i], compute, err));
    }
    for (int i = 0; i < INPUTS; i++) asked[i] = wanted[i] ? &found[i] : NULL;
    TC_TRY(all_gradients(asked, dvalues, dattention, dlse, &saved, &options, err));
    for (int i = 0; i < INPUTS; i++) {
        if (!found[i] || result == compute)
            results[i] = tc_tensor_retain(found[i]); /* as laid out: parts of one buffer stay that */
        else
            TC_TRY(tc_tensor_as(&results[i], found[i], result, err));
    }
    for (int i = 0; i < INPUTS; i++)
        if (wanted[i]) *wanted[i] = tc_tensor_retain(results[i]);
cleanup:
    tc_old_scope_end(&scope);
    for (int i = 0; i < INPUTS; i++) tc_tensor_release(found[i]), tc_tensor_release(results[i]);
    return status;
}

/* ---- on the tape --------------------------------------------------------------------------------------------------------------- */

enum { SAVED_VALUES = INPUTS, SAVED_ATTENTION, SAVED_SHIFT, SAVED_SUM, SAVED_LENGTHS, SAVED_OFFSETS, SAVED };

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    tc_attention_options options = *(const tc_attention_options *)node->attributes;
    options.bias = tc_node_saved(node, INPUT_BIAS);
    options.mask = tc_node_saved(node, INPUT_MASK);
    options.key_lengths = tc_node_saved(node, SAVED_LENGTHS);
    options.causal_offsets = tc_node_saved(node, SAVED_OFFSETS);
    const tc_attention_saved saved = {.q = tc_node_saved(node, INPUT_Q),
                                      .k = tc_node_saved(node, INPUT_K),
                                      .v = tc_node_saved(node, INPUT_V),
                                      .values = tc_node_saved(node, SAVED_VALUES),
                                      .attention = tc_node_saved(node, SAVED_ATTENTION),
                                      .shift = tc_node_saved(node, SAVED_SHIFT),
                                      .sum = tc_node_saved(node, SAVED_SUM)};
    tc_tensor **wanted[INPUTS];
    for (int i = 0; i < INPUTS; i++) wanted[i] = tc_node_needs(node, i) ? &grad_inputs[i] : NULL;
    return tc_attention_backward(wanted[INPUT_Q], wanted[INPUT_K], wanted[INPUT_V], wanted[INPUT_BIAS], wanted[INPUT_MASK], grad_outputs[0],
                                 grad_outputs[1], grad_outputs[2], &saved, &options, err);
}

static const tc_op attention_op = {"attention", backward, NULL};

tc_status tc_attention(tc_tensor **values, tc_tensor **attention, tc_tensor **lse, tc_tensor *q, tc_tensor *k, tc_tensor *v,
                       const tc_attention_options *given, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_attention_options options = *given;
    tc_tensor *out[3] = {NULL, NULL, NULL}, *shift = NULL, *sum = NULL, *results[3] = {NULL, NULL, NULL},
              **const wanted[3] = {values, attention, lse};
    tc_tensor *inputs[INPUTS] = {q, k, v, options.bias, options.mask};
    tc_status status = TC_OK;
    TC_TRY(attention_check_dtypes(q, k, v, given, err));
    const tc_dtype result = q->dtype;
    TC_TRY(cast_inputs(&scope, inputs, tc_compute_dtype(result), options.mask_kind, err));
    options.bias = inputs[INPUT_BIAS];
    options.mask = inputs[INPUT_MASK];
    TC_TRY(
        forward(&out[0], attention ? &out[1] : NULL, lse ? &out[2] : NULL, &shift, &sum, inputs[0], inputs[1], inputs[2], &options, err));
    tc_tensor *const saved[SAVED] = {inputs[0], inputs[1], inputs[2], options.bias,        options.mask,          out[0],
                                     out[1],    shift,     sum,       options.key_lengths, options.causal_offsets};
    if (options.mask_kind == TC_MASK_FILL || !options.mask || !tc_dtype_is_float(options.mask->dtype))
        inputs[INPUT_MASK] = NULL; /* no gradient */
    options.bias = options.mask = options.key_lengths = options.causal_offsets = NULL;
    const tc_record record = {.op = &attention_op,
                              .input_count = INPUTS,
                              .inputs = inputs,
                              .output_count = 3,
                              .outputs = out,
                              .saved_count = SAVED,
                              .saved = saved,
                              .attributes = &options,
                              .attribute_bytes = sizeof options};
    TC_TRY(tc_tape_record(&record, err));
    for (int i = 0; i < 3; i++)
        if (out[i]) TC_TRY(tc_cast(&results[i], out[i], result, err));
    for (int i = 0; i < 3; i++)
        if (wanted[i]) *wanted[i] = tc_tensor_retain(results[i]);
cleanup:
    tc_old_scope_end(&scope);
    for (int i = 0; i < 3; i++) tc_tensor_release(out[i]), tc_tensor_release(results[i]);
    tc_tensor_release(shift);
    tc_tensor_release(sum);
    return status;
}
