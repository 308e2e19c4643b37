/* attention_problem.c: see attention_problem.h. All checks are here. */
#include "attention_problem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../core/broadcast.h"
#include "../core/random.h"

typedef struct names {
    const char *q, *k, *v, *mask;
} names;

static names names_of(const tc_attention_options *o)
{
    return o->long_names ? (names){"query", "key", "value", "attn_mask"} : (names){"q", "k", "v", "mask"};
}

static bool is_added(const tc_attention_options *o)
{
    return o->mask && o->mask_kind == TC_MASK_ATTEND && tc_dtype_is_float(o->mask->dtype);
}

void attention_inputs(tc_input *in, tc_tensor *q, tc_tensor *k, tc_tensor *v, const tc_attention_options *o)
{
    const names n = names_of(o);
    in[ATTENTION_Q] = (tc_input){n.q, q, .strided = true};
    in[ATTENTION_K] = (tc_input){n.k, k, .strided = true};
    in[ATTENTION_V] = (tc_input){n.v, v, .strided = true};
    in[ATTENTION_BIAS] = (tc_input){"bias", o->bias, .strided = true};
    in[ATTENTION_MASK] = (tc_input){n.mask, is_added(o) ? o->mask : NULL, .strided = true};
}

/* ---- shapes ------------------------------------------------------------------------------------------------------------- */

static int64_t size_from_end(const tc_tensor *x, int axis) { return axis <= x->ndim ? x->shape[x->ndim - axis] : 1; }

static tc_status check_matrices(const tc_tensor *q, const tc_tensor *k, const tc_tensor *v, names n, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    const tc_tensor *const operands[] = {q, k, v};
    const char *const called[] = {n.q, n.k, n.v};
    for (int i = 0; i < 3; i++)
        if (operands[i]->ndim < 2)
            return tc_fail(err, TC_ERROR_VALUE, "%s has shape %s; it needs at least two axes: (..., positions, head size)", called[i],
                           tc_tensor_text(a, operands[i]));
    const int64_t D = size_from_end(q, 1), Dk = size_from_end(k, 1), Tk = size_from_end(k, 2), Tv = size_from_end(v, 2);
    if (D != Dk)
        return tc_fail(err, TC_ERROR_VALUE, "%s has head size %" PRId64 " but %s has %" PRId64 "; they must be equal (%s %s, %s %s)", n.q,
                       D, n.k, Dk, n.q, tc_tensor_text(a, q), n.k, tc_tensor_text(b, k));
    if (Tk != Tv)
        return tc_fail(err, TC_ERROR_VALUE, "%s has %" PRId64 " positions but %s has %" PRId64 "; they must be equal (%s %s, %s %s)", n.k,
                       Tk, n.v, Tv, n.k, tc_tensor_text(a, k), n.v, tc_tensor_text(b, v));
    return TC_OK;
}

/* Heads of keys and values. When leading axes are broadcast they count as H, because each serves H / Hk query heads. */
static tc_status share_heads(attention_problem *x, const tc_tensor *q, const tc_tensor *k, const tc_tensor *v, names n,
                             int64_t k_lead[TC_MAX_DIMS], int64_t v_lead[TC_MAX_DIMS], tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT], c[TC_SHAPE_TEXT];
    if (q->ndim < 3 || k->ndim < 3 || v->ndim < 3)
        return tc_fail(err, TC_ERROR_VALUE,
                       "shared heads (enable_gqa) need a head axis: %s %s, %s %s and %s %s must have at least three axes", n.q,
                       tc_tensor_text(a, q), n.k, tc_tensor_text(b, k), n.v, tc_tensor_text(c, v));
    const int64_t H = size_from_end(q, 3), Hk = size_from_end(k, 3), Hv = size_from_end(v, 3);
    if (Hk != Hv || (Hk == 0 ? H != 0 : H % Hk != 0))
        return tc_fail(err, TC_ERROR_VALUE,
                       "%s has %" PRId64 " heads, %s has %" PRId64 " and %s has %" PRId64
                       "; with shared heads (enable_gqa) the last two must be equal and divide "
                       "the first (%s %s, %s %s, %s %s)",
                       n.q, H, n.k, Hk, n.v, Hv, n.q, tc_tensor_text(a, q), n.k, tc_tensor_text(b, k), n.v, tc_tensor_text(c, v));
    k_lead[k->ndim - 3] = v_lead[v->ndim - 3] = H;
    x->kernel.Hk = Hk;
    return TC_OK;
}

/* All that kernels multiply fits: rows of queries with their scores, and the bytes of keys and values, for all heads. */
static tc_status check_products(const attention_problem *x, tc_error *err)
{
    const tc_attention_problem *p = &x->kernel;
    int64_t shape[TC_MAX_DIMS + 2];
    const int n = x->lead_ndim;
    memcpy(shape, x->lead, sizeof *shape * (size_t)n);
    shape[n] = p->Tq, shape[n + 1] = p->Tk;
    TC_TRY(tc_check_lengths(n + 2, shape, err));
    shape[n] = p->Tk, shape[n + 1] = p->D + p->Dv, shape[n + 2] = sizeof(double);
    TC_TRY(tc_check_lengths(n + 3, shape, err));
    shape[n] = p->Tq;
    return tc_check_lengths(n + 3, shape, err);
}

/* Leading axes of the results, and B, H, Hk. */
static tc_status find_leading(attention_problem *x, const tc_tensor *q, const tc_tensor *k, const tc_tensor *v,
                              const tc_attention_options *o, tc_error *err)
{
    const names n = names_of(o);
    tc_attention_problem *p = &x->kernel;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT], c[TC_SHAPE_TEXT];
    int64_t k_lead[TC_MAX_DIMS], v_lead[TC_MAX_DIMS], pair[TC_MAX_DIMS];
    int pair_ndim;
    tc_error ignored;
    memcpy(k_lead, k->shape, sizeof k_lead);
    memcpy(v_lead, v->shape, sizeof v_lead);
    if (o->shared_heads) TC_TRY(share_heads(x, q, k, v, n, k_lead, v_lead, err));
    if (tc_broadcast_shape(&pair_ndim, pair, q->ndim - 2, q->shape, k->ndim - 2, k_lead, &ignored) != TC_OK ||
        tc_broadcast_shape(&x->lead_ndim, x->lead, pair_ndim, pair, v->ndim - 2, v_lead, &ignored) != TC_OK)
        return tc_fail(err, TC_ERROR_VALUE, "the leading axes of %s %s, %s %s and %s %s do not broadcast%s", n.q, tc_tensor_text(a, q), n.k,
                       tc_tensor_text(b, k), n.v, tc_tensor_text(c, v),
                       o->shared_heads ? "" : "; fewer key and value heads than query heads need enable_gqa");
    x->batch_axes = x->lead_ndim > 1 || o->shared_heads ? x->lead_ndim - 1 : x->lead_ndim;
    TC_TRY(check_products(x, err));
    p->B = p->H = 1;
    for (int i = 0; i < x->lead_ndim; i++) *(i < x->batch_axes ? &p->B : &p->H) *= x->lead[i];
    /* keys and values without heads of their own serve all of them: the same as sharing */
    if (!o->shared_heads) p->Hk = x->batch_axes < x->lead_ndim && size_from_end(k, 3) == 1 && size_from_end(v, 3) == 1 ? 1 : p->H;
    memcpy(x->key_lead, x->lead, sizeof x->lead);
    if (x->batch_axes < x->lead_ndim) x->key_lead[x->lead_ndim - 1] = p->Hk;
    memcpy(x->score_lead, x->lead, sizeof x->lead);
    return TC_OK;
}

int attention_shape(int64_t shape[TC_MAX_DIMS], const attention_problem *x, const int64_t *lead, int64_t rows, int64_t columns)
{
    const int n = x->lead_ndim;
    memcpy(shape, lead, sizeof *shape * (size_t)n);
    shape[n] = rows;
    if (columns >= 0) shape[n + 1] = columns;
    return columns >= 0 ? n + 2 : n + 1;
}

/* ---- strides ------------------------------------------------------------------------------------------------------------- */

/* Axes of `shape` [0, count) as one axis: its stride, or false when there is none. */
static bool merge_axes(int count, const int64_t *shape, const int64_t *strides, int64_t *merged)
{
    int64_t length = 1, stride = 0;
    for (int i = count - 1; i >= 0; i--) {
        if (shape[i] == 1) continue;
        if (length > 1 && strides[i] != stride * length) return false;
        if (length == 1) stride = strides[i];
        length *= shape[i];
    }
    *merged = stride;
    return true;
}

/* Strides of `tensor` along batch, head and its own last two axes, the leading ones broadcast to `lead`. */
static bool four_strides(const attention_problem *x, const tc_tensor *tensor, const int64_t *lead, int64_t strides[4])
{
    int64_t shape[TC_MAX_DIMS], all[TC_MAX_DIMS];
    const int n = x->lead_ndim;
    tc_broadcast_strides(all, tensor, attention_shape(shape, x, lead, size_from_end(tensor, 2), size_from_end(tensor, 1)), shape);
    strides[1] = x->batch_axes < n ? all[n - 1] : 0;
    strides[2] = shape[n] == 1 ? 0 : all[n];
    strides[3] = shape[n + 1] == 1 ? 0 : all[n + 1];
    return merge_axes(x->batch_axes, lead, all, &strides[0]);
}

/* The four strides of *tensor. It is replaced by a contiguous copy, with all leading axes in full, when no such strides exist, or when
 * `rows` asks for rows without gaps and these have some. */
static tc_status readable(attention_problem *x, tc_tensor **tensor, const int64_t *lead, bool rows, int64_t strides[4])
{
    int64_t shape[TC_MAX_DIMS];
    const tc_tensor *given = *tensor;
    if (four_strides(x, given, lead, strides) && (!rows || strides[3] == 1 || size_from_end(given, 1) <= 1)) return TC_OK;
    const int ndim = attention_shape(shape, x, lead, size_from_end(given, 2), size_from_end(given, 1));
    TC_TRY(tc_tensor_empty(tensor, ndim, shape, given->dtype, x->scope->device, x->scope->err));
    TC_TRY(tc_own(x->scope, *tensor));
    (void)four_strides(x, *tensor, lead, strides);
    return tc_tensor_copy(*tensor, given, x->scope->err);
}

tc_status attention_operand(attention_problem *x, tc_attention_operand *out, tc_tensor *tensor, const int64_t *lead)
{
    int64_t s[4];
    TC_TRY(readable(x, &tensor, lead, true, s));
    *out = (tc_attention_operand){.data = tensor->data, .batch = s[0], .head = s[1], .row = s[2]};
    return TC_OK;
}

tc_status attention_plane(attention_problem *x, tc_attention_plane *out, tc_tensor *term)
{
    int64_t s[4];
    TC_TRY(readable(x, &term, x->score_lead, false, s));
    *out = (tc_attention_plane){.data = term->data, .batch = s[0], .head = s[1], .row = s[2], .column = s[3]};
    return TC_OK;
}

tc_status attention_result(tc_tensor **out, tc_attention_operand *operand, attention_problem *x, const int64_t *lead, int64_t T, int64_t D,
                           const tc_tensor *like)
{
    int64_t shape[TC_MAX_DIMS];
    const int ndim = attention_shape(shape, x, lead, T, D);
    const tc_dtype dtype = x->kernel.stored == TC_STORED_AS_COMPUTED ? x->scope->compute : x->scope->result;
    if (ndim == 4 && like->ndim == 4 && lead[1] > 1 && like->strides[1] < like->strides[2]) {
        tc_tensor *rows;
        TC_TRY(tc_make_as(x->scope, &rows, 4, (int64_t[]){lead[0], T, lead[1], D}, dtype));
        TC_TRY(tc_tensor_alias(out, rows, 4, shape, (int64_t[]){rows->strides[0], D, rows->strides[1], 1}, 0, x->scope->err));
        TC_TRY(tc_own(x->scope, *out));
    } else {
        TC_TRY(tc_make_as(x->scope, out, ndim, shape, dtype));
    }
    return attention_operand(x, operand, *out, lead); /* where it is */
}

/* ---- masks ---------------------------------------------------------------------------------------------------------------- */

/* `mask` may be broadcast to the scores, not the other way round. */
static tc_status check_fits_scores(const attention_problem *x, const tc_tensor *mask, const char *name, tc_error *err)
{
    if (!mask) return TC_OK;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int64_t scores[TC_MAX_DIMS];
    const int n = attention_shape(scores, x, x->score_lead, x->kernel.Tq, x->kernel.Tk);
    bool fits = mask->ndim <= n;
    for (int i = 1; fits && i <= mask->ndim; i++) fits = mask->shape[mask->ndim - i] == 1 || mask->shape[mask->ndim - i] == scores[n - i];
    if (fits) return TC_OK;
    /* The shape of a key-padding mask, one row per batch element. */
    const bool padding = mask->ndim == 2 && n == 4 && mask->shape[0] == scores[0] && mask->shape[1] == scores[3];
    return tc_fail(err, TC_ERROR_VALUE, "%s has shape %s, which does not broadcast to the scores (..., queries, keys) = %s%s", name,
                   tc_tensor_text(a, mask), tc_shape_text(b, n, scores),
                   padding ? "; as key padding (batch, keys) write mask[:, None, None, :]" : "");
}

static tc_status check_mask(const attention_problem *x, const tc_attention_options *o, tc_error *err)
{
    const char *name = names_of(o).mask;
    TC_TRY(check_fits_scores(x, o->mask, name, err));
    if (!o->mask || is_added(o) || o->mask_kind == TC_MASK_FILL || o->mask->dtype == TC_BOOL) return TC_OK;
    return tc_fail(
        err, TC_ERROR_TYPE,
        "%s is %s; pass a boolean one, True where a key may be attended to (%s != 0), or a floating one to be added to the scores", name,
        tc_dtype_name(o->mask->dtype), name);
}

/* The mask as bytes. */
static tc_status take_mask(attention_problem *x, tc_tensor *mask, tc_mask_kind kind)
{
    if (mask->dtype != TC_BOOL && mask->dtype != TC_UINT8) {
        TC_TRY(tc_tensor_as(&mask, mask, TC_BOOL, x->scope->err));
        TC_TRY(tc_own(x->scope, mask));
    }
    x->kernel.mask_kind = kind == TC_MASK_FILL ? TC_ATTENTION_MASK_FILL : TC_ATTENTION_MASK_BOOLEAN;
    return attention_plane(x, &x->kernel.mask, mask);
}

/* ---- integers, one for each batch element ------------------------------------------------------------------------------------ */

static int64_t batch_of(const attention_problem *x) { return x->batch_axes ? x->score_lead[0] : 1; }

static tc_status check_integers(const attention_problem *x, const tc_tensor *integers, const char *name, tc_error *err)
{
    char a[TC_SHAPE_TEXT];
    if (!integers) return TC_OK;
    if (!tc_tensor_on_cpu(integers))
        TC_TRY(tc_check_same_device(x->scope->in[ATTENTION_Q].given, x->scope->in[ATTENTION_Q].name, integers, name, err));
    if (tc_dtype_is_float(integers->dtype) || integers->dtype == TC_BOOL)
        return tc_fail(err, TC_ERROR_TYPE, "%s is %s; integers are needed", name, tc_dtype_name(integers->dtype));
    if (integers->ndim == 1 && integers->shape[0] == batch_of(x)) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "%s has shape %s; it needs one integer for each batch element: (%" PRId64 ")", name,
                   tc_tensor_text(a, integers), batch_of(x));
}

/* *own: integers (B), B the first axis, for each of the kernel's batch elements, where they are. */
static tc_status repeat_integers(attention_problem *x, tc_tensor **own, tc_tensor *integers)
{
    tc_scope *s = x->scope;
    tc_tensor *column;
    const int64_t batch = batch_of(x), inner = batch ? x->kernel.B / batch : 1;
    TC_TRY(tc_tensor_alias(&column, integers, 2, (int64_t[]){batch, 1}, (int64_t[]){integers->strides[0], 0}, 0, s->err));
    TC_TRY(tc_own(s, column));
    TC_TRY(tc_tensor_empty(own, 2, (int64_t[]){batch, inner}, TC_INT64, integers->storage->device, s->err));
    TC_TRY(tc_own(s, *own));
    return tc_tensor_copy(*own, column, s->err);
}

/* Only where the host can read them: elsewhere the check would wait for the device, and kernels clamp a length to 0 .. Tk. */
static tc_status check_key_lengths(const attention_problem *x, const tc_tensor *lengths)
{
    const int64_t keys = x->kernel.Tk, *length = (const int64_t *)lengths->data;
    for (int64_t b = 0; tc_tensor_on_cpu(lengths) && b < lengths->numel; b++)
        if (length[b] < 0 || length[b] > keys)
            return tc_fail(x->scope->err, TC_ERROR_VALUE,
                           "key_lengths holds %" PRId64 "; with %" PRId64 " keys they are from 0 to %" PRId64, length[b], keys, keys);
    return TC_OK;
}

/* For the kernel, which reads them on the device of the queries: lists and arrays are on the CPU. */
static tc_status take_integers(attention_problem *x, const int64_t **out, tc_tensor *integers, bool are_lengths)
{
    tc_tensor *own, *there;
    TC_TRY(repeat_integers(x, &own, integers));
    if (are_lengths) TC_TRY(check_key_lengths(x, own));
    TC_TRY(tc_tensor_on(&there, own, x->scope->device, x->scope->err));
    *out = (const int64_t *)there->data;
    return tc_own(x->scope, there);
}

/* ---- packed sequences --------------------------------------------------------------------------------------------------------- */

/* x->starts, and the longest length. The lengths are copied first: they are the caller's, who may change them. */
static tc_status find_starts(attention_problem *x, int64_t *longest, tc_tensor *lengths, tc_error *err)
{
    tc_tensor *own, *rest;
    const int64_t count = lengths->shape[0];
    TC_TRY(tc_tensor_empty(&own, 1, (int64_t[]){count + 1}, TC_INT64, (tc_device){TC_CPU, 0}, err));
    TC_TRY(tc_own(x->scope, own));
    int64_t *const found = (int64_t *)own->data;
    TC_TRY(tc_tensor_alias(&rest, own, 1, (int64_t[]){count}, (int64_t[]){1}, 1, err));
    TC_TRY(tc_own(x->scope, rest));
    TC_TRY(tc_tensor_copy(rest, lengths, err));
    found[0] = *longest = 0;
    for (int64_t b = 0; b < count; b++) {
        const int64_t length = found[b + 1];
        if (length < 0 || length > x->queries - found[b])
            return tc_fail(err, TC_ERROR_VALUE,
                           "sequence_lengths holds %" PRId64 " after %" PRId64 " tokens in %" PRId64 " sequences; lengths are not "
                           "negative, and together they are the %" PRId64 " positions of the arrays",
                           length, found[b], b, x->queries);
        if (length > *longest) *longest = length;
        found[b + 1] = found[b] + length;
    }
    if (found[count] != x->queries)
        return tc_fail(err, TC_ERROR_VALUE, "sequence_lengths add up to %" PRId64 "; the arrays have %" PRId64 " positions", found[count],
                       x->queries);
    x->starts = own;
    return TC_OK;
}

/* The batch elements are the sequences, one after the other along the axis of positions of (1,H,N,D). */
static tc_status pack_sequences(attention_problem *x, const tc_tensor *q, const tc_tensor *k, const tc_attention_options *o, tc_error *err)
{
    const names n = names_of(o);
    tc_attention_problem *p = &x->kernel;
    tc_tensor *lengths = o->sequence_lengths;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int64_t longest;
    if (lengths->ndim != 1 || tc_dtype_is_float(lengths->dtype) || lengths->dtype == TC_BOOL)
        return tc_fail(err, lengths->ndim == 1 ? TC_ERROR_TYPE : TC_ERROR_VALUE,
                       "sequence_lengths is %s of shape %s; it needs one integer for each sequence: (sequences)",
                       tc_dtype_name(lengths->dtype), tc_tensor_text(a, lengths));
    if (x->lead_ndim != 2 || x->lead[0] != 1 || x->queries != x->keys)
        return tc_fail(err, TC_ERROR_VALUE,
                       "packed sequences (sequence_lengths) are side by side along the axis of positions: %s and %s need shapes "
                       "(1, heads, positions, head size) with equal positions, got %s and %s",
                       n.q, n.k, tc_tensor_text(a, q), tc_tensor_text(b, k));
    TC_TRY(find_starts(x, &longest, lengths, err));
    x->score_lead[0] = p->B = lengths->shape[0];
    p->Tq = p->Tk = longest;
    p->tokens = x->queries;
    return tc_check_lengths(4, (int64_t[]){p->B, p->H, longest, longest}, err);
}

static tc_status take_starts(attention_problem *x)
{
    tc_tensor *there;
    TC_TRY(tc_tensor_on(&there, x->starts, x->scope->device, x->scope->err));
    TC_TRY(tc_own(x->scope, there));
    x->kernel.sequences = (const int64_t *)there->data;
    return TC_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------- */

static int64_t limit(int64_t value, int64_t most) { return value > most ? most : value < -most ? -most : value; }

/* Is it a finite number of that dtype, and 0 only if it is 0? */
static bool is_representable(double value, tc_dtype dtype)
{
    const double rounded = dtype == TC_FLOAT64 ? value : (double)(float)value;
    return isfinite(rounded) && (rounded != 0.0) == (value != 0.0);
}

static tc_status take_options(attention_problem *x, const tc_attention_options *o, tc_error *err)
{
    tc_attention_problem *p = &x->kernel;
    const tc_dtype dtype = x->scope->statistics; /* of the scores */
    if (!(o->dropout >= 0.0 && o->dropout <= 1.0))
        return tc_fail(err, TC_ERROR_VALUE, "the dropout probability must be between 0 and 1, got %g", o->dropout);
    if (!(o->softcap >= 0.0 && o->softcap < INFINITY))
        return tc_fail(err, TC_ERROR_VALUE, "softcap is %g; it must be positive, or 0 for none", o->softcap);
    if (!is_representable(o->softcap, dtype))
        return tc_fail(err, TC_ERROR_VALUE, "softcap is %g, which %s does not hold", o->softcap, tc_dtype_name(dtype));
    if (o->scale && !isfinite(*o->scale))
        return tc_fail(err, TC_ERROR_VALUE, "scale is %s; it must be a finite number, or None for 1 / sqrt(head size)",
                       isnan(*o->scale) ? "nan" : "infinite");
    if (o->scale && dtype != TC_FLOAT64 && !isfinite((float)*o->scale))
        return tc_fail(err, TC_ERROR_VALUE, "scale is %g, which %s does not hold", *o->scale, tc_dtype_name(dtype));
    p->scale = o->scale ? *o->scale : p->D > 0 ? 1.0 / sqrt((double)p->D) : 1.0;
    p->softcap = o->softcap;
    p->left = limit(o->window_left, TC_ATTENTION_UNBOUNDED);
    p->right = limit(o->causal && o->window_right > 0 ? 0 : o->window_right, TC_ATTENTION_UNBOUNDED);
    p->offset = limit(o->causal_offset, TC_ATTENTION_FAR);
    p->empty_rows = o->empty_rows == TC_EMPTY_ROWS_UNIFORM ? TC_ATTENTION_EMPTY_UNIFORM : TC_ATTENTION_EMPTY_ZERO;
    p->dropout = o->dropout;
    p->seed = o->seed;
    p->call = o->call;
    p->drawn = o->drawn_at;
    p->heads = tc_places_of(o->share, p->B * p->H);
    return TC_OK;
}

tc_status attention_check(attention_problem *x, tc_scope *scope, const tc_attention_options *o)
{
    const names n = names_of(o);
    const tc_tensor *q = scope->in[ATTENTION_Q].given, *k = scope->in[ATTENTION_K].given, *v = scope->in[ATTENTION_V].given;
    tc_error *err = scope->err;
    x->scope = scope;
    x->kernel = (tc_attention_problem){0};
    TC_TRY(tc_check_same_device(q, n.q, o->mask, n.mask, err));
    TC_TRY(check_matrices(q, k, v, n, err));
    x->starts = NULL;
    x->kernel.Tq = x->queries = size_from_end(q, 2);
    x->kernel.Tk = x->keys = size_from_end(k, 2);
    x->kernel.D = size_from_end(q, 1);
    x->kernel.Dv = size_from_end(v, 1);
    TC_TRY(find_leading(x, q, k, v, o, err));
    if (o->sequence_lengths) TC_TRY(pack_sequences(x, q, k, o, err));
    TC_TRY(take_options(x, o, err));
    TC_TRY(check_mask(x, o, err));
    TC_TRY(check_fits_scores(x, o->bias, "bias", err));
    TC_TRY(check_integers(x, o->key_lengths, "key_lengths", err));
    return check_integers(x, o->causal_offsets, "causal_offset", err);
}

tc_status attention_operands(attention_problem *x, const tc_attention_options *o)
{
    tc_attention_problem *p = &x->kernel;
    const tc_input *in = x->scope->in;
    TC_TRY(attention_operand(x, &p->q, in[ATTENTION_Q].tensor, x->lead));
    TC_TRY(attention_operand(x, &p->k, in[ATTENTION_K].tensor, x->key_lead));
    TC_TRY(attention_operand(x, &p->v, in[ATTENTION_V].tensor, x->key_lead));
    p->stored = tc_stored_as(x->scope, in[ATTENTION_Q].tensor);
    if (is_added(o))
        TC_TRY(attention_plane(x, &p->additive[0], in[ATTENTION_MASK].tensor));
    else if (o->mask)
        TC_TRY(take_mask(x, o->mask, o->mask_kind));
    if (o->bias) TC_TRY(attention_plane(x, &p->additive[1], in[ATTENTION_BIAS].tensor));
    if (o->key_lengths) TC_TRY(take_integers(x, &p->key_lengths, o->key_lengths, true));
    if (o->causal_offsets) TC_TRY(take_integers(x, &p->offsets, o->causal_offsets, false));
    if (x->starts) TC_TRY(take_starts(x));
    return TC_OK;
}
