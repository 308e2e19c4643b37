/* convolution_columns.c: windows copied into columns.
 *
 * The windows of some samples at a time are copied into columns (G,K,n): K = channels of a group times positions of the kernel, n = windows
 * of all these samples. Then it is one product per group: (O/G,K) times (K,n). Columns are of bounded size, and reused; a sample whose
 * columns would be too large is computed by parts of its first axis. */
#include <string.h>

#include "../core/elementwise.h"
#include "convolution.h"

typedef tc_convolution_problem problem;

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
    tc_share_scope(&s, op);
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

tc_status tc_add_channel_bias(tc_scope *s, tc_tensor *y, tc_tensor *bias)
{
    const int64_t shape[TC_MAX_DIMS] = {1, y->shape[1], 1, 1, 1}, strides[TC_MAX_DIMS] = {0, 1, 0, 0, 0};
    tc_tensor *view;
    if (!bias) return TC_OK;
    TC_TRY(tc_make_view(s, &view, bias, y->ndim, shape, strides, 0));
    return add(s, y, view);
}

tc_status tc_convolve_columns(tc_scope *s, const problem *p, tc_tensor *y, tc_tensor *x, const tc_tensor *weight, tc_tensor *bias)
{
    tc_tensor *columns, *result;
    tc_surrounded padded;
    int64_t offset;
    TC_TRY(tc_surround(s, &padded, x, p->padding, p->ones, p->B));
    TC_TRY(tc_bring_samples(&padded, 0, p->B, &offset, s->err));
    TC_TRY(make_room(s, &columns, &result, p));
    for (part at = {0}; next_part(p, &at);) TC_TRY(compute_part(s, p, &at, y, padded.room, weight, columns, result));
    return tc_add_channel_bias(s, y, bias);
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
    tc_share_scope(&s, op);
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
static tc_status remove_padding(tc_scope *s, tc_tensor **out, const problem *p, tc_tensor *dxp)
{
    int64_t shape[2 + TC_CONVOLUTION_AXES] = {p->B, p->C}, offset = 0;
    tc_tensor *inner;
    *out = dxp;
    if (!p->is_padded) return TC_OK;
    for (int i = 0; i < p->axes; i++) shape[2 + i] = p->padded[2 + i] - 2 * p->padding[i], offset += p->padding[i] * dxp->strides[2 + i];
    TC_TRY(tc_make_view(s, &inner, dxp, dxp->ndim, shape, dxp->strides, offset));
    TC_TRY(tc_make(s, out, dxp->ndim, shape));
    return tc_tensor_copy(*out, inner, s->err);
}

tc_status tc_column_gradients(tc_scope *s, const problem *p, tc_tensor **dx, tc_tensor **dweight, tc_tensor *dy, tc_tensor *x,
                              tc_tensor *weight)
{
    gradients of = {.dy = dy, .weight = weight};
    TC_TRY(make_gradients(s, &of, p, dx, dweight));
    if (dweight) {
        tc_surrounded padded;
        int64_t offset;
        TC_TRY(tc_surround(s, &padded, x, p->padding, p->ones, p->B));
        TC_TRY(tc_bring_samples(&padded, 0, p->B, &offset, s->err));
        of.xp = padded.room;
    }
    if (dy->numel == 0 && dweight && !of.one) { /* no part: nothing is written */
        TC_TRY(tc_tensor_zeros(&of.dweight, weight->ndim, weight->shape, s->compute, s->device, s->err));
        TC_TRY(tc_own(s, of.dweight));
    }
    if (dy->numel)
        for (part at = {0}; next_part(p, &at);) TC_TRY(backward_of_part(s, p, &at, &of));
    if (dx) TC_TRY(remove_padding(s, dx, p, of.dxp));
    if (dweight) *dweight = of.dweight;
    return TC_OK;
}
