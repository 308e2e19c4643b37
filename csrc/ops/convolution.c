/* convolution.c: products over windows, of one to three spatial axes (a cross-correlation, as in PyTorch).
 *
 *     y[b,o,p] = bias[o] + sum_{c,k} weight[o,c,k] x[b,c, stride p + dilation k - padding]
 *
 * The windows of some samples at a time are copied into columns (G,K,n): K = channels of a group times positions of the kernel, n = windows
 * of all these samples. Then it is one product per group: (O/G,K) times (K,n). Columns are of bounded size, and reused; a sample whose
 * columns would be too large is computed by parts of its first axis.
 *
 * Saved for the backward: x and weight. The columns are made again there. */
#include <inttypes.h>
#include <string.h>

#include "../core/elementwise.h"
#include "gemm.h"

enum { X, WEIGHT, BIAS, INPUTS }; /* of the op; the first two are saved */

#define TC_CONVOLUTION_AXES 3

typedef struct problem {
    int axes;                                                                 /* spatial ones */
    int64_t B, C, O, G;                                                       /* samples, channels of x and y, groups */
    int64_t kernel[TC_CONVOLUTION_AXES], stride[TC_CONVOLUTION_AXES];         /* windows */
    int64_t padding[TC_CONVOLUTION_AXES], dilation[TC_CONVOLUTION_AXES];      /* of each side */
    int64_t padded[2 + TC_CONVOLUTION_AXES], result[2 + TC_CONVOLUTION_AXES]; /* shapes of the padded x, and of y */
    int64_t K, row, N;     /* of the product: its sum; windows of an index of the first spatial axis, and of a sample */
    int64_t samples, rows; /* in the columns at most: samples, and indices of the first spatial axis */
    bool is_padded, overlaps;
} problem;

typedef struct convolution_attributes {
    int64_t stride[TC_CONVOLUTION_AXES], padding[TC_CONVOLUTION_AXES], dilation[TC_CONVOLUTION_AXES], groups;
    int axes;
} convolution_attributes;

/* ---- checks ---------------------------------------------------------------------------------------------------------------- */

static tc_status check_option(const char *name, int count, const int64_t *values, int axes, int64_t least, tc_error *err)
{
    if (count != axes)
        return tc_fail(err, TC_ERROR_VALUE, "%s has %d numbers; expected one for each of the %d axes of the kernel", name, count, axes);
    for (int i = 0; i < count; i++)
        if (values[i] < least || values[i] > INT64_MAX / 4)
            return tc_fail(err, TC_ERROR_VALUE, "%s must be from %" PRId64 " to 2^61, got %" PRId64, name, least, values[i]);
    return TC_OK;
}

static tc_status check_channels(const problem *p, const tc_tensor *x, const tc_tensor *weight, const tc_tensor *bias, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (p->G < 1 || p->C % p->G || p->O % p->G)
        return tc_fail(err, TC_ERROR_VALUE,
                       "groups is %" PRId64 "; it must divide the %" PRId64 " channels of input and the %" PRId64 " of the result", p->G,
                       p->C, p->O);
    const int last = x->ndim - 1;
    if (weight->shape[1] != p->C / p->G && weight->shape[1] == x->shape[last] / p->G && x->shape[last] % p->G == 0)
        return tc_fail(err, TC_ERROR_VALUE,
                       "input has shape %s and weight %s, so the channels seem to be on the last axis; they belong on axis 1: pass "
                       "%s",
                       tc_tensor_text(a, x), tc_tensor_text(b, weight),
                       p->axes == 1 ? "input.swapaxes(1, 2)" : "input.permute(0, 3, 1, 2)");
    if (weight->shape[1] != p->C / p->G)
        return tc_fail(err, TC_ERROR_VALUE,
                       "input has %" PRId64 " channels in %" PRId64 " groups, but weight takes %" PRId64
                       " channels; they must be equal (input %s: samples, channels, ...; weight %s: channels of the result, channels of a "
                       "group, ...)",
                       p->C, p->G, weight->shape[1], tc_tensor_text(a, x), tc_tensor_text(b, weight));
    if (bias && (bias->ndim != 1 || bias->shape[0] != p->O))
        return tc_fail(err, TC_ERROR_VALUE, "bias has shape %s but weight %s gives %" PRId64 " channels; expected (%" PRId64 ",)",
                       tc_tensor_text(a, bias), tc_tensor_text(b, weight), p->O, p->O);
    return TC_OK;
}

/* The lengths of axis i of the windows, padded and counted. */
static tc_status measure_axis(problem *p, int i, const tc_tensor *x, const tc_tensor *weight, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int64_t reach;
    const int64_t k = p->kernel[i], length = x->shape[2 + i];
    const bool fits = k > 0 && tc_multiply_sizes(p->dilation[i], k - 1, &reach) && length <= INT64_MAX / 4;
    if (!fits || reach >= length + 2 * p->padding[i])
        return tc_fail(err, TC_ERROR_VALUE,
                       "a kernel of length %" PRId64 " with dilation %" PRId64 " does not fit axis %d of input, padded by %" PRId64
                       " on both sides (input %s, weight %s)",
                       k, p->dilation[i], 2 + i, p->padding[i], tc_tensor_text(a, x), tc_tensor_text(b, weight));
    p->padded[2 + i] = length + 2 * p->padding[i];
    p->result[2 + i] = (p->padded[2 + i] - reach - 1) / p->stride[i] + 1;
    p->is_padded = p->is_padded || p->padding[i];
    p->overlaps = p->overlaps || (k > 1 && p->result[2 + i] > 1 && p->stride[i] <= reach);
    return TC_OK;
}

static tc_status understand(problem *p, tc_scope *s, const tc_tensor *x, const tc_tensor *weight, const tc_tensor *bias,
                            const convolution_attributes *at)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    memset(p, 0, sizeof *p);
    p->axes = weight->ndim - 2;
    if (x->ndim != weight->ndim)
        return tc_fail(s->err, TC_ERROR_VALUE,
                       "input has shape %s and weight %s; expected (samples, channels, ...) and (channels of the result, channels of a "
                       "group, ...) with %d more axes each",
                       tc_tensor_text(a, x), tc_tensor_text(b, weight), at->axes);
    p->B = x->shape[0], p->C = x->shape[1], p->O = weight->shape[0], p->G = at->groups;
    TC_TRY(check_channels(p, x, weight, bias, s->err));
    p->padded[0] = p->B, p->padded[1] = p->C;
    p->result[0] = p->B, p->result[1] = p->O;
    p->K = p->C / p->G, p->row = 1;
    int64_t columns[1 + 2 * TC_CONVOLUTION_AXES] = {p->C};
    for (int i = 0; i < p->axes; i++) {
        p->kernel[i] = weight->shape[2 + i];
        p->stride[i] = at->stride[i], p->padding[i] = at->padding[i], p->dilation[i] = at->dilation[i];
        TC_TRY(measure_axis(p, i, x, weight, s->err));
        p->K *= p->kernel[i];
        if (i > 0) p->row *= p->result[2 + i];
        columns[1 + 2 * i] = p->kernel[i], columns[2 + 2 * i] = p->result[2 + i];
    }
    TC_TRY(tc_check_lengths(2 + p->axes, p->padded, s->err));
    TC_TRY(tc_check_lengths(2 + p->axes, p->result, s->err));
    TC_TRY(tc_check_lengths(1 + 2 * p->axes, columns, s->err));
    p->N = p->row * p->result[2];
    const int64_t limit = (s->device.type == TC_CPU ? 1 : 64) << 20; /* bytes: a cache of a core, or worth a launch */
    const double bytes =
        (double)p->G * (double)p->K * (double)p->row * (double)tc_dtype_size(s->compute); /* of an index of the first axis */
    const double fit = bytes > 0 ? (double)limit / bytes : 1e18;
    p->rows = fit >= (double)p->result[2] ? p->result[2] : fit > 1 ? (int64_t)fit : 1;
    const double more = fit / (double)p->result[2];
    p->samples = more >= (double)p->B ? p->B : more > 1 ? (int64_t)more : 1;
    return TC_OK;
}

/* ---- parts ----------------------------------------------------------------------------------------------------------------- */

/* `samples` samples from number `sample`, of each `rows` indices of the first spatial axis of y from number `row`. */
typedef struct part {
    int64_t sample, samples, row, rows;
} part;

static int64_t windows_of(const problem *p, const part *at) { return at->samples * at->rows * p->row; }

/* The part after *at; all zeros: the first one. False after the last one. */
static bool next_part(const problem *p, part *at)
{
    if (at->rows == 0) {
        *at = (part){0, 0, 0, 0};
    } else if (at->row + at->rows < p->result[2]) {
        at->row += at->rows;
    } else {
        at->row = 0;
        at->sample += at->samples;
    }
    at->samples = p->B - at->sample < p->samples ? p->B - at->sample : p->samples;
    at->rows = p->result[2] - at->row < p->rows ? p->result[2] - at->row : p->rows;
    return at->samples > 0;
}

static bool is_whole(const problem *p, const part *at) { return at->samples == p->B && at->rows == p->result[2]; }

/* A part has a scope of its own, so that the temporaries of its products do not outlive it. */
static void share(tc_scope *s, const tc_scope *op)
{
    s->device = op->device, s->compute = op->compute, s->statistics = op->statistics, s->kernels = op->kernels, s->result = op->result;
    s->widens = op->widens;
}

/* The windows of a part of x (B,C,...), padded:  (G, C/G, kernel..., samples, rows, ...), where elements repeat. */
static tc_status alias_windows(tc_tensor **out, const problem *p, tc_tensor *x, const part *at, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS] = {p->G, p->C / p->G}, strides[TC_MAX_DIMS] = {p->C / p->G * x->strides[1], x->strides[1]};
    const int n = p->axes;
    shape[2 + n] = at->samples, strides[2 + n] = x->strides[0];
    for (int i = 0; i < n; i++) {
        shape[2 + i] = p->kernel[i], strides[2 + i] = p->dilation[i] * x->strides[2 + i];
        shape[3 + n + i] = i ? p->result[2 + i] : at->rows, strides[3 + n + i] = p->stride[i] * x->strides[2 + i];
    }
    for (int i = 0; i < 3 + 2 * n; i++)
        if (shape[i] == 1) strides[i] = 0; /* a stride of an axis without steps may be anything */
    return tc_tensor_alias(out, x, 3 + 2 * n, shape, strides, at->sample * x->strides[0] + at->row * p->stride[0] * x->strides[2], err);
}

/* A part of y (B,O,...) as (O, samples, rows, ...). */
static tc_status alias_result(tc_tensor **out, const problem *p, tc_tensor *y, const part *at, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS] = {p->O, at->samples}, strides[TC_MAX_DIMS] = {y->strides[1], y->strides[0]};
    for (int i = 0; i < p->axes; i++) shape[2 + i] = i ? p->result[2 + i] : at->rows, strides[2 + i] = y->strides[2 + i];
    return tc_tensor_alias(out, y, 2 + p->axes, shape, strides, at->sample * y->strides[0] + at->row * y->strides[2], err);
}

/* The shape of `like` in the memory of `room`, without gaps. */
static tc_status alias_room(tc_tensor **out, tc_tensor *room, const tc_tensor *like, tc_error *err)
{
    int64_t strides[TC_MAX_DIMS];
    tc_c_strides(strides, like->ndim, like->shape);
    return tc_tensor_alias(out, room, like->ndim, like->shape, strides, 0, err);
}

/* *out: what `from` shows, without gaps: itself, or a copy in `room`. */
static tc_status gather(tc_tensor **out, tc_tensor *from, tc_tensor *room, tc_error *err)
{
    if (from->contiguous) {
        *out = tc_tensor_retain(from);
        return TC_OK;
    }
    TC_TRY(alias_room(out, room, from, err));
    return tc_tensor_copy(*out, from, err);
}

/* to += from, of one shape, any strides and floating dtypes. */
static tc_status add(tc_scope *s, tc_tensor *to, tc_tensor *from)
{
    return tc_run_elementwise(to, 2, (tc_argument[]){{.tensor = to}, {.tensor = from}}, &tc_kernel_binary_forward, TC_BINARY_add,
                              tc_compute_dtype(to->dtype), 2.0, s->err);
}

/* *out: x with zeros around it, or x itself. */
static tc_status add_padding(tc_scope *s, tc_tensor **out, const problem *p, tc_tensor *x)
{
    int64_t offset = 0;
    tc_tensor *inner;
    *out = x;
    if (!p->is_padded) return TC_OK;
    TC_TRY(tc_tensor_zeros(out, x->ndim, p->padded, s->compute, s->device, s->err));
    TC_TRY(tc_own(s, *out));
    for (int i = 0; i < p->axes; i++) offset += p->padding[i] * (*out)->strides[2 + i];
    TC_TRY(tc_make_view(s, &inner, *out, x->ndim, x->shape, (*out)->strides, offset));
    return tc_tensor_copy(inner, x, s->err);
}

/* Room for the columns of a part, (G K n), and for a part of y, (O n). */
static tc_status make_room(tc_scope *s, tc_tensor **columns, tc_tensor **result, const problem *p)
{
    const int64_t n = p->samples * p->rows * p->row, column_count = p->G * p->K * n, result_count = p->O * n;
    TC_TRY(tc_make(s, columns, 1, &column_count));
    return tc_make(s, result, 1, &result_count);
}

/* ---- forward --------------------------------------------------------------------------------------------------------------- */

/* The part of y, from the windows of xp. */
static tc_status compute_part(const tc_scope *op, const problem *p, const part *at, tc_tensor *y, tc_tensor *xp, const tc_tensor *weight,
                              tc_tensor *column_room, tc_tensor *result_room)
{
    TC_SCOPE(s, op->err);
    TC_OWNED tc_tensor *windows = NULL, *columns = NULL, *to = NULL, *result = NULL;
    const int64_t n = windows_of(p, at), M = p->O / p->G;
    share(&s, op);
    TC_TRY(alias_windows(&windows, p, xp, at, s.err));
    TC_TRY(gather(&columns, windows, column_room, s.err));
    TC_TRY(alias_result(&to, p, y, at, s.err));
    if (at->samples == 1) /* the part is a matrix of y itself */
        result = tc_tensor_retain(to);
    else
        TC_TRY(alias_room(&result, result_room, to, s.err));
    tc_gemm_args g = {.M = M, .N = n, .K = p->K, .a = weight->data, .b = columns->data, .c = result->data};
    g.a_row = p->K, g.a_col = 1, g.b_row = n, g.b_col = 1, g.c_row = at->samples == 1 ? p->N : n;
    g.batch_dims = 1, g.batch_shape[0] = p->G;
    g.a_batch[0] = M * p->K, g.b_batch[0] = p->K * n, g.c_batch[0] = M * g.c_row;
    TC_TRY(tc_product(&s, &g, NULL));
    return result->data == to->data ? TC_OK : tc_tensor_copy(to, result, s.err);
}

static tc_status add_bias(tc_scope *s, const problem *p, tc_tensor *y, tc_tensor *bias)
{
    int64_t shape[2 + TC_CONVOLUTION_AXES] = {1, p->O, 1, 1, 1}, strides[2 + TC_CONVOLUTION_AXES] = {0, 1, 0, 0, 0};
    tc_tensor *view;
    if (!bias) return TC_OK;
    TC_TRY(tc_make_view(s, &view, bias, 2 + p->axes, shape, strides, 0));
    return add(s, y, view);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const convolution_attributes *a = node->attributes;
    return tc_convolution_backward(tc_wanted(node, grad_inputs, X), tc_wanted(node, grad_inputs, WEIGHT),
                                   tc_wanted(node, grad_inputs, BIAS), grad_outputs[0], tc_node_saved(node, X), tc_node_saved(node, WEIGHT),
                                   a->axes, a->stride, a->axes, a->padding, a->axes, a->dilation, a->groups, err);
}

static const tc_op convolution_op = {"convolution", backward, .attribute_bytes = sizeof(convolution_attributes)};

static tc_status read_options(convolution_attributes *a, const tc_tensor *weight, int strides, const int64_t *stride, int paddings,
                              const int64_t *padding, int dilations, const int64_t *dilation, int64_t groups, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    const int axes = weight->ndim - 2;
    if (axes < 1 || axes > TC_CONVOLUTION_AXES)
        return tc_fail(
            err, TC_ERROR_VALUE,
            "weight has shape %s; expected (channels of the result, channels of a group, ...) with one to three axes of the kernel",
            tc_tensor_text(text, weight));
    TC_TRY(check_option("stride", strides, stride, axes, 1, err));
    TC_TRY(check_option("padding", paddings, padding, axes, 0, err));
    TC_TRY(check_option("dilation", dilations, dilation, axes, 1, err));
    *a = (convolution_attributes){.axes = axes, .groups = groups};
    memcpy(a->stride, stride, sizeof *stride * (size_t)axes);
    memcpy(a->padding, padding, sizeof *padding * (size_t)axes);
    memcpy(a->dilation, dilation, sizeof *dilation * (size_t)axes);
    return TC_OK;
}

tc_status tc_convolution(tc_tensor **y, tc_tensor *x, tc_tensor *weight, tc_tensor *bias, int strides, const int64_t *stride, int paddings,
                         const int64_t *padding, int dilations, const int64_t *dilation, int64_t groups, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {[X] = {"input", x, .strided = true}, [WEIGHT] = {"weight", weight}, [BIAS] = {"bias", bias}};
    tc_tensor *out, *padded, *columns, *result;
    convolution_attributes a;
    problem p;
    TC_TRY(tc_begin(&s, in, INPUTS));
    TC_TRY(read_options(&a, weight, strides, stride, paddings, padding, dilations, dilation, groups, err));
    TC_TRY(understand(&p, &s, x, weight, bias, &a));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &out, x->ndim, p.result));
    if (out->numel) {
        TC_TRY(add_padding(&s, &padded, &p, in[X].tensor));
        TC_TRY(make_room(&s, &columns, &result, &p));
        for (part at = {0}; next_part(&p, &at);) TC_TRY(compute_part(&s, &p, &at, out, padded, in[WEIGHT].tensor, columns, result));
        TC_TRY(add_bias(&s, &p, out, in[BIAS].tensor));
    }
    return tc_finish(&s, y, out, &(tc_record){.op = &convolution_op, TC_SAVED(x, weight), .attributes = &a});
}

/* ---- backward -------------------------------------------------------------------------------------------------------------- */

/* What the backward of every part writes to and reads. */
typedef struct gradients {
    tc_tensor *dy, *xp, *weight;
    tc_tensor *dxp;              /* of the padded x, zeros at first, or NULL */
    tc_tensor *dweight;          /* (O,C/G,...), or NULL: the sum over the parts, a statistic where there are several */
    tc_tensor *one;              /* where there are several: of one part */
    tc_tensor *columns, *result; /* room */
} gradients;

/* Adds the columns (G,C/G,kernel...,samples,rows,...) to the windows where they come from: for each position of the kernel at once, where
 * no element occurs twice; or for all, where windows do not overlap. */
static tc_status add_windows(tc_scope *s, const problem *p, tc_tensor *windows, tc_tensor *columns)
{
    const int n = p->axes;
    int64_t shape[TC_MAX_DIMS], to_strides[TC_MAX_DIMS], from_strides[TC_MAX_DIMS], positions = 1;
    if (!p->overlaps) return tc_tensor_copy(windows, columns, s->err);
    for (int i = 0; i < 3 + n; i++) {
        const int axis = i < 2 ? i : i + n;
        shape[i] = windows->shape[axis], to_strides[i] = windows->strides[axis], from_strides[i] = columns->strides[axis];
    }
    for (int i = 0; i < n; i++) positions *= p->kernel[i];
    for (int64_t k = 0; k < positions; k++) {
        TC_OWNED tc_tensor *to = NULL, *from = NULL;
        int64_t to_offset = 0, rest = k;
        for (int i = n - 1; i >= 0; rest /= p->kernel[i--]) to_offset += rest % p->kernel[i] * windows->strides[2 + i];
        TC_TRY(tc_tensor_alias(&to, windows, 3 + n, shape, to_strides, to_offset, s->err));
        TC_TRY(tc_tensor_alias(&from, columns, 3 + n, shape, from_strides, k * columns->strides[1 + n], s->err));
        TC_TRY(add(s, to, from));
    }
    return TC_OK;
}

/* With D (O,n), the gradient of a part's result:  dweight += D columns^T,  dcolumns = weight^T D. */
static tc_status backward_of_part(const tc_scope *op, const problem *p, const part *at, const gradients *of)
{
    TC_SCOPE(s, op->err);
    TC_OWNED tc_tensor *windows = NULL, *columns = NULL, *shown = NULL, *d = NULL;
    const int64_t n = windows_of(p, at), M = p->O / p->G;
    share(&s, op);
    TC_TRY(alias_result(&shown, p, of->dy, at, s.err));
    TC_TRY(gather(&d, shown, of->result, s.err));
    if (of->dweight) {
        tc_tensor *to = of->one ? of->one : of->dweight;
        TC_TRY(alias_windows(&windows, p, of->xp, at, s.err));
        TC_TRY(gather(&columns, windows, of->columns, s.err));
        tc_gemm_args g = {.M = M, .N = p->K, .K = n, .a = d->data, .b = columns->data, .c = to->data, .k_is_rows = true};
        g.a_row = n, g.a_col = 1, g.b_row = 1, g.b_col = n, g.c_row = p->K;
        g.batch_dims = 1, g.batch_shape[0] = p->G;
        g.a_batch[0] = M * n, g.b_batch[0] = p->K * n, g.c_batch[0] = M * p->K;
        TC_TRY(tc_product(&s, &g, NULL));
        if (of->one) TC_TRY(add(&s, of->dweight, of->one));
    }
    if (of->dxp) {
        TC_OWNED tc_tensor *to = NULL, *dcolumns = NULL;
        TC_TRY(alias_windows(&to, p, of->dxp, at, s.err));
        TC_TRY(alias_room(&dcolumns, of->columns, to, s.err));
        tc_gemm_args g = {.M = p->K, .N = n, .K = M, .a = of->weight->data, .b = d->data, .c = dcolumns->data};
        g.a_row = 1, g.a_col = p->K, g.b_row = n, g.b_col = 1, g.c_row = n;
        g.batch_dims = 1, g.batch_shape[0] = p->G;
        g.a_batch[0] = M * p->K, g.b_batch[0] = M * n, g.c_batch[0] = p->K * n;
        TC_TRY(tc_product(&s, &g, NULL));
        TC_TRY(add_windows(&s, p, to, dcolumns));
    }
    return TC_OK;
}

/* Zeros for what is summed over parts. */
static tc_status make_gradients(tc_scope *s, gradients *of, const problem *p, bool for_x, bool for_weight)
{
    const tc_tensor *weight = of->weight;
    const part first = {0, p->samples, 0, p->rows};
    TC_TRY(make_room(s, &of->columns, &of->result, p));
    if (for_x) {
        TC_TRY(tc_tensor_zeros(&of->dxp, 2 + p->axes, p->padded, p->overlaps ? s->statistics : s->compute, s->device, s->err));
        TC_TRY(tc_own(s, of->dxp));
    }
    if (!for_weight) return TC_OK;
    if (is_whole(p, &first)) return tc_make(s, &of->dweight, weight->ndim, weight->shape);
    TC_TRY(tc_make(s, &of->one, weight->ndim, weight->shape));
    TC_TRY(tc_tensor_zeros(&of->dweight, weight->ndim, weight->shape, s->statistics, s->device, s->err));
    return tc_own(s, of->dweight);
}

/* *out: x's part of the gradient of the padded x. */
static tc_status remove_padding(tc_scope *s, tc_tensor **out, const problem *p, tc_tensor *dxp, const tc_tensor *x)
{
    int64_t offset = 0;
    tc_tensor *inner;
    *out = dxp;
    if (!p->is_padded) return TC_OK;
    for (int i = 0; i < p->axes; i++) offset += p->padding[i] * dxp->strides[2 + i];
    TC_TRY(tc_make_view(s, &inner, dxp, x->ndim, x->shape, dxp->strides, offset));
    TC_TRY(tc_make(s, out, x->ndim, x->shape));
    return tc_tensor_copy(*out, inner, s->err);
}

static tc_status sum_bias(tc_scope *s, tc_tensor **out, const problem *p, tc_tensor *dy)
{
    const int64_t axes[1 + TC_CONVOLUTION_AXES] = {0, 2, 3, 4};
    TC_OWNED tc_tensor *detached = NULL;
    TC_TRY(tc_tensor_detach(&detached, dy, s->err));
    TC_TRY(tc_reduce(out, detached, TC_REDUCE_sum, 1 + p->axes, axes, false, s->err));
    return tc_own(s, *out);
}

tc_status tc_convolution_backward(tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dy, tc_tensor *x, tc_tensor *weight,
                                  int strides, const int64_t *stride, int paddings, const int64_t *padding, int dilations,
                                  const int64_t *dilation, int64_t groups, tc_error *err)
{
    TC_SCOPE(s, err);
    enum { DY, OF_X, OF_WEIGHT };
    tc_input in[] = {[DY] = {"dy", dy, .strided = true}, [OF_X] = {"input", x, .strided = true}, [OF_WEIGHT] = {"weight", weight}};
    tc_tensor *out_x = NULL, *out_weight = NULL, *out_bias = NULL;
    gradients of = {0};
    convolution_attributes a;
    problem p;
    TC_TRY(tc_begin_backward(&s, in, 3));
    TC_TRY(read_options(&a, weight, strides, stride, paddings, padding, dilations, dilation, groups, err));
    TC_TRY(understand(&p, &s, x, weight, NULL, &a));
    TC_TRY(tc_check_shape(&s, dy, "dy", "the result has", x->ndim, p.result));
    TC_TRY(tc_prepare(&s));
    of.dy = in[DY].tensor, of.weight = in[OF_WEIGHT].tensor;
    TC_TRY(make_gradients(&s, &of, &p, dx, dweight));
    if (dweight) TC_TRY(add_padding(&s, &of.xp, &p, in[OF_X].tensor));
    if (dy->numel == 0 && dweight && !of.one) { /* no part: nothing is written */
        TC_TRY(tc_tensor_zeros(&of.dweight, weight->ndim, weight->shape, s.compute, s.device, err));
        TC_TRY(tc_own(&s, of.dweight));
    }
    if (dy->numel)
        for (part at = {0}; next_part(&p, &at);) TC_TRY(backward_of_part(&s, &p, &at, &of));
    if (dx) TC_TRY(remove_padding(&s, &out_x, &p, of.dxp, x));
    if (dweight) out_weight = of.dweight;
    if (dbias) TC_TRY(sum_bias(&s, &out_bias, &p, in[DY].tensor));
    return tc_give_rounded(&s, 3, (tc_result[]){{dx, out_x}, {dweight, out_weight}, {dbias, out_bias}});
}
