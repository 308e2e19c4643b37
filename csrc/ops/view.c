/* view.c: results that share their input's memory. Kinds, by what the gradient needs:
 *     reshape (also squeeze, unsqueeze, view)   the gradient reshaped back
 *     permute (also transpose, T)               the gradient permuted back
 *     expand                                    the gradient summed over the repeated axes
 *     window (slices, flips, unfold)            the gradient written into zeros through the same window
 *     split (also chunk, unbind)                the gradients joined
 */
#include "view.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "../core/accumulate.h"
#include "../core/allocator.h"
#include "../core/broadcast.h"
#include "../core/layout.h"
#include "../core/reduction.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"

/* Records `view` as made of `x` by `op`, and hands it out; releases it on failure. */
static tc_status finish(tc_tensor **out, tc_tensor *view, tc_tensor *x, const tc_op *op, const void *attributes, size_t bytes,
                        tc_error *err)
{
    const tc_record record = {
        .op = op, .input_count = 1, .inputs = &x, .output_count = 1, .outputs = &view, .attributes = attributes, .attribute_bytes = bytes};
    tc_status status = tc_tape_record(&record, err);
    if (status != TC_OK)
        tc_tensor_release(view);
    else
        *out = view;
    return status;
}

/* ---- reshape ------------------------------------------------------------------------------------------------------------ */

typedef struct shape_attributes {
    int ndim;
    int64_t shape[TC_MAX_DIMS]; /* of the input */
} shape_attributes;

static shape_attributes shape_of(const tc_tensor *x)
{
    shape_attributes a = {.ndim = x->ndim};
    memcpy(a.shape, x->shape, sizeof(int64_t) * (size_t)x->ndim);
    return a;
}

static tc_status reshape_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const shape_attributes *a = node->attributes;
    int64_t strides[TC_MAX_DIMS];
    tc_tensor *dy;
    tc_status status = tc_tensor_contiguous(&dy, grad_outputs[0], err);
    if (status != TC_OK) return status;
    tc_c_strides(strides, a->ndim, a->shape);
    status = tc_tensor_alias(&grad_inputs[0], dy, a->ndim, a->shape, strides, 0, err);
    tc_tensor_release(dy);
    return status;
}

static const tc_op reshape_op = {"reshape", reshape_backward, NULL};

/* Strides under which the memory of x reads as `shape`, or false when it would have to be copied. Walks groups of axes of equal size from
 * the last one: inside a group x must step as one axis. */
static bool view_strides(int64_t *strides, const tc_tensor *x, int ndim, const int64_t *shape)
{
    if (x->numel == 0 || x->contiguous) return tc_c_strides(strides, ndim, shape), true;
    int old = x->ndim - 1, new = ndim - 1;
    while (new >= 0) {
        while (old >= 0 && x->shape[old] == 1) old--;
        if (shape[new] == 1) {
            strides[new --] = 1;
            continue;
        }
        if (old < 0) return false;
        int64_t step = x->strides[old], have = x->shape[old], want = shape[new];
        strides[new --] = step;
        while (have != want) {
            if (have < want) { /* join the next old axis */
                int outer = old - 1;
                while (outer >= 0 && x->shape[outer] == 1) outer--;
                if (outer < 0 || x->strides[outer] != x->strides[old] * x->shape[old]) return false;
                old = outer;
                have *= x->shape[old];
            } else { /* split: the next new axis lies in the same group */
                if (new < 0) return false;
                strides[new] = step * want;
                want *= shape[new --];
            }
        }
        old--;
    }
    return true;
}

/* Fills in -1 and checks the number of elements. */
static tc_status resolve_shape(int64_t resolved[TC_MAX_DIMS], const tc_tensor *x, int ndim, const int64_t *shape, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int unknown = -1;
    int64_t known = 1;
    bool fits = ndim <= TC_MAX_DIMS;
    for (int i = 0; fits && i < ndim; i++) {
        resolved[i] = shape[i];
        if (shape[i] == -1 && unknown < 0)
            unknown = i;
        else
            fits = shape[i] >= 0 && tc_multiply_sizes(known, shape[i], &known);
    }
    if (fits && unknown >= 0) {
        fits = known > 0 && x->numel % known == 0;
        if (fits) resolved[unknown] = x->numel / known;
    } else if (fits) {
        fits = known == x->numel;
    }
    if (fits) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "a tensor of shape %s (%" PRId64 " elements) cannot be given the shape %s", tc_tensor_text(a, x),
                   x->numel, tc_shape_text(b, ndim < TC_MAX_DIMS ? ndim : TC_MAX_DIMS, shape));
}

tc_status tc_reshape(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, bool may_copy, tc_error *err)
{
    int64_t resolved[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_tensor *view;
    tc_old_scope scope = {0};
    tc_status status = TC_OK;
    const shape_attributes attributes = shape_of(x);
    tc_tensor *source = x;
    TC_TRY(resolve_shape(resolved, x, ndim, shape, err));
    if (!view_strides(strides, x, ndim, resolved)) {
        if (!may_copy)
            TC_TRY(tc_fail(err, TC_ERROR_VALUE,
                           "the memory of this tensor of shape %s cannot be read as %s without a copy; use reshape() or contiguous() first",
                           tc_tensor_text(a, x), tc_shape_text(b, ndim, resolved)));
        TC_TRY(tc_old_scope_contiguous(&scope, &source, err));
        tc_c_strides(strides, ndim, resolved);
    }
    TC_TRY(tc_tensor_alias(&view, source, ndim, resolved, strides, 0, err));
    TC_TRY(finish(out, view, x, &reshape_op, &attributes, sizeof attributes, err));
cleanup:
    tc_old_scope_end(&scope);
    return status;
}

tc_status tc_squeeze(tc_tensor **out, tc_tensor *x, int count, const int64_t *axes, tc_error *err)
{
    bool drop[TC_MAX_DIMS] = {false};
    int64_t shape[TC_MAX_DIMS];
    int kept = 0;
    for (int i = 0; i < count; i++) {
        int axis = 0;
        tc_status status = tc_normalize_axis(&axis, axes[i], x->ndim, "dim", err);
        if (status != TC_OK) return status;
        if (axis < x->ndim) drop[axis] = true;
    }
    for (int i = 0; i < x->ndim; i++)
        if (x->shape[i] != 1 || (count > 0 && !drop[i])) shape[kept++] = x->shape[i];
    return tc_reshape(out, x, kept, shape, false, err);
}

tc_status tc_unsqueeze(tc_tensor **out, tc_tensor *x, int64_t given, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS + 1];
    int axis;
    if (x->ndim == TC_MAX_DIMS) return tc_fail(err, TC_ERROR_VALUE, "a tensor has at most %d axes", TC_MAX_DIMS);
    tc_status status = tc_normalize_axis(&axis, given, x->ndim + 1, "dim", err);
    if (status != TC_OK) return status;
    for (int i = 0; i <= x->ndim; i++) shape[i] = i == axis ? 1 : x->shape[i - (i > axis)];
    return tc_reshape(out, x, x->ndim + 1, shape, false, err);
}

/* ---- permute ------------------------------------------------------------------------------------------------------------- */

typedef struct permute_attributes {
    int axes[TC_MAX_DIMS];
} permute_attributes;

static tc_status permuted(tc_tensor **out, tc_tensor *x, const int *axes, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        shape[i] = x->shape[axes[i]];
        strides[i] = x->strides[axes[i]];
    }
    return tc_tensor_alias(out, x, x->ndim, shape, strides, 0, err);
}

static tc_status permute_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const permute_attributes *a = node->attributes;
    int inverse[TC_MAX_DIMS];
    for (int i = 0; i < grad_outputs[0]->ndim; i++) inverse[a->axes[i]] = i;
    return permuted(&grad_inputs[0], grad_outputs[0], inverse, err);
}

static const tc_op permute_op = {"permute", permute_backward, NULL};

tc_status tc_permute(tc_tensor **out, tc_tensor *x, int count, const int64_t *axes, tc_error *err)
{
    permute_attributes a;
    bool seen[TC_MAX_DIMS] = {false};
    tc_tensor *view;
    char text[TC_SHAPE_TEXT];
    if (count != x->ndim)
        return tc_fail(err, TC_ERROR_VALUE, "%d axes were given for a tensor of %d axes; each must be named once: %s", count, x->ndim,
                       tc_shape_text(text, count, axes));
    for (int i = 0; i < count; i++) {
        tc_status status = tc_normalize_axis(&a.axes[i], axes[i], x->ndim, "axis", err);
        if (status != TC_OK) return status;
        if (seen[a.axes[i]])
            return tc_fail(err, TC_ERROR_VALUE, "axis %" PRId64 " is named twice in %s", axes[i], tc_shape_text(text, count, axes));
        seen[a.axes[i]] = true;
    }
    tc_status status = permuted(&view, x, a.axes, err);
    return status == TC_OK ? finish(out, view, x, &permute_op, &a, sizeof a, err) : status;
}

tc_status tc_transpose(tc_tensor **out, tc_tensor *x, int64_t first, int64_t second, tc_error *err)
{
    int64_t axes[TC_MAX_DIMS];
    int a, b;
    tc_status status = tc_normalize_axis(&a, first, x->ndim, "axis", err);
    if (status == TC_OK) status = tc_normalize_axis(&b, second, x->ndim, "axis", err);
    if (status != TC_OK) return status;
    for (int i = 0; i < x->ndim; i++) axes[i] = i == a ? b : i == b ? a : i;
    return tc_permute(out, x, x->ndim, axes, err);
}

/* ---- expand ---------------------------------------------------------------------------------------------------------------- */

static tc_status expand_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const shape_attributes *a = node->attributes;
    return tc_sum_to_shape(&grad_inputs[0], grad_outputs[0], a->ndim, a->shape, err);
}

static const tc_op expand_op = {"expand", expand_backward, NULL};

tc_status tc_expand(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, tc_error *err)
{
    int64_t full[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_tensor *view;
    const int lead = ndim - x->ndim;
    bool fits = lead >= 0 && ndim <= TC_MAX_DIMS;
    for (int i = 0; fits && i < ndim; i++) {
        full[i] = shape[i] == -1 && i >= lead ? x->shape[i - lead] : shape[i];
        fits = full[i] >= 0 && (i < lead || x->shape[i - lead] == full[i] || x->shape[i - lead] == 1);
    }
    if (!fits)
        return tc_fail(err, TC_ERROR_VALUE,
                       "a tensor of shape %s cannot be expanded to %s: axes of length 1 can grow, and new ones come first",
                       tc_tensor_text(a, x), tc_shape_text(b, ndim < TC_MAX_DIMS ? ndim : TC_MAX_DIMS, shape));
    tc_broadcast_strides(strides, x, ndim, full);
    const shape_attributes attributes = shape_of(x);
    tc_status status = tc_tensor_alias(&view, x, ndim, full, strides, 0, err);
    return status == TC_OK ? finish(out, view, x, &expand_op, &attributes, sizeof attributes, err) : status;
}

/* ---- windows: slices, flips, unfold ------------------------------------------------------------------------------------------- */

typedef struct window_attributes {
    shape_attributes input;
    int ndim;
    bool overlaps;
    int64_t offset; /* on a contiguous input */
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
} window_attributes;

/* Adds one layer of the gradient, that of index i along the last axis, where no element is seen twice. */
static tc_status add_layer(tc_tensor *dx, const window_attributes *a, tc_tensor *dy, int64_t i, tc_error *err)
{
    const int last = a->ndim - 1;
    tc_tensor *to = NULL, *from = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_tensor_alias(&to, dx, last, a->shape, a->strides, a->offset + i * a->strides[last], err));
    TC_TRY(tc_tensor_alias(&from, dy, last, a->shape, dy->strides, i * dy->strides[last], err));
    TC_TRY(tc_add_in_place(to, from, err));
cleanup:
    tc_tensor_release(to);
    tc_tensor_release(from);
    return status;
}

static tc_status window_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const window_attributes *a = node->attributes;
    tc_tensor *dy = grad_outputs[0], *dx = NULL, *window = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_tensor_zeros(&dx, a->input.ndim, a->input.shape, dy->dtype, dy->storage->device, err));
    if (a->overlaps) {
        for (int64_t i = 0; i < a->shape[a->ndim - 1]; i++) TC_TRY(add_layer(dx, a, dy, i, err));
    } else {
        TC_TRY(tc_tensor_alias(&window, dx, a->ndim, a->shape, a->strides, a->offset, err));
        TC_TRY(tc_tensor_copy(window, dy, err));
    }
    grad_inputs[0] = tc_tensor_retain(dx);
cleanup:
    tc_tensor_release(window);
    tc_tensor_release(dx);
    return status;
}

static const tc_op window_op = {"slice", window_backward, NULL};

tc_status tc_window(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, const int *axis, const int64_t *step,
                    const int64_t *start, bool overlaps, tc_error *err)
{
    window_attributes a = {.input = shape_of(x), .ndim = ndim, .overlaps = overlaps};
    int64_t strides[TC_MAX_DIMS], plain[TC_MAX_DIMS], offset = 0;
    tc_tensor *view;
    if (ndim > TC_MAX_DIMS) return tc_fail(err, TC_ERROR_VALUE, "a tensor has at most %d axes, the index makes %d", TC_MAX_DIMS, ndim);
    tc_c_strides(plain, x->ndim, x->shape);
    for (int i = 0; i < x->ndim; i++) {
        offset += start[i] * x->strides[i];
        a.offset += start[i] * plain[i];
    }
    for (int i = 0; i < ndim; i++) {
        a.shape[i] = shape[i];
        strides[i] = axis[i] < 0 ? 0 : step[i] * x->strides[axis[i]];
        a.strides[i] = axis[i] < 0 ? 0 : step[i] * plain[axis[i]];
    }
    tc_status status = tc_tensor_alias(&view, x, ndim, shape, strides, offset, err);
    return status == TC_OK ? finish(out, view, x, &window_op, &a, sizeof a, err) : status;
}

tc_status tc_slice(tc_tensor **out, tc_tensor *x, int axis, int64_t start, int64_t step, int64_t length, tc_error *err)
{
    int axes[TC_MAX_DIMS];
    int64_t shape[TC_MAX_DIMS], steps[TC_MAX_DIMS], starts[TC_MAX_DIMS] = {0};
    for (int i = 0; i < x->ndim; i++) axes[i] = i, steps[i] = 1, shape[i] = x->shape[i];
    starts[axis] = length ? start : 0;
    steps[axis] = step;
    shape[axis] = length;
    return tc_window(out, x, x->ndim, shape, axes, steps, starts, false, err);
}

tc_status tc_flip(tc_tensor **out, tc_tensor *x, int count, const int64_t *given, tc_error *err)
{
    int axes[TC_MAX_DIMS];
    int64_t steps[TC_MAX_DIMS], starts[TC_MAX_DIMS] = {0};
    for (int i = 0; i < x->ndim; i++) axes[i] = i, steps[i] = 1;
    for (int i = 0; i < count; i++) {
        int axis;
        tc_status status = tc_normalize_axis(&axis, given[i], x->ndim, "dim", err);
        if (status != TC_OK) return status;
        if (axis >= x->ndim) continue;
        if (steps[axis] < 0) return tc_fail(err, TC_ERROR_VALUE, "dim %" PRId64 " is named twice", given[i]);
        steps[axis] = -1;
        starts[axis] = x->shape[axis] ? x->shape[axis] - 1 : 0;
    }
    return tc_window(out, x, x->ndim, x->shape, axes, steps, starts, false, err);
}

tc_status tc_unfold(tc_tensor **out, tc_tensor *x, int64_t given, int64_t size, int64_t step, tc_error *err)
{
    int axis, axes[TC_MAX_DIMS + 1];
    int64_t shape[TC_MAX_DIMS + 1], steps[TC_MAX_DIMS + 1], starts[TC_MAX_DIMS] = {0};
    tc_status status = tc_normalize_axis(&axis, given, x->ndim, "dimension", err);
    if (status != TC_OK) return status;
    if (x->ndim == 0 || size < 0 || size > x->shape[axis] || step < 1)
        return tc_fail(err, TC_ERROR_VALUE,
                       "unfold of windows of %" PRId64 " every %" PRId64 " along an axis of length %" PRId64
                       "; expected 0 <= size <= length and step >= 1",
                       size, step, x->ndim ? x->shape[axis] : 1);
    for (int i = 0; i < x->ndim; i++) axes[i] = i, steps[i] = 1, shape[i] = x->shape[i];
    shape[axis] = (x->shape[axis] - size) / step + 1;
    steps[axis] = step;
    axes[x->ndim] = axis;
    steps[x->ndim] = 1;
    shape[x->ndim] = size;
    return tc_window(out, x, x->ndim + 1, shape, axes, steps, starts, step < size, err);
}

/* ---- split: many slices, one node ----------------------------------------------------------------------------------------------- */

typedef struct split_attributes {
    shape_attributes input;
    int axis;
    bool drop;
    int64_t lengths[];
} split_attributes;

static tc_status piece_of(tc_tensor **out, tc_tensor *x, int axis, bool drop, int64_t start, int64_t length, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (drop && i == axis) continue;
        shape[ndim] = i == axis ? length : x->shape[i];
        strides[ndim++] = x->strides[i];
    }
    return tc_tensor_alias(out, x, ndim, shape, strides, start * x->strides[axis], err);
}

/* Every piece of dx is written once: with its gradient, or with zeros. */
static tc_status split_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const split_attributes *a = node->attributes;
    const tc_tensor *model = NULL;
    tc_tensor *dx = NULL, *zero = NULL;
    tc_status status = TC_OK;
    int64_t start = 0;
    for (int i = 0; i < node->output_count && !model; i++) model = grad_outputs[i];
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): backward is only called when a gradient has come */
    TC_TRY(tc_tensor_empty(&dx, a->input.ndim, a->input.shape, model->dtype, model->storage->device, err));
    TC_TRY(tc_tensor_zeros(&zero, 0, NULL, model->dtype, model->storage->device, err));
    for (int i = 0; i < node->output_count; i++) {
        tc_tensor *piece;
        TC_TRY(piece_of(&piece, dx, a->axis, a->drop, start, a->lengths[i], err));
        status = tc_tensor_copy(piece, grad_outputs[i] ? grad_outputs[i] : zero, err);
        tc_tensor_release(piece);
        if (status != TC_OK) goto cleanup;
        start += a->lengths[i];
    }
    grad_inputs[0] = tc_tensor_retain(dx);
cleanup:
    tc_tensor_release(dx);
    tc_tensor_release(zero);
    return status;
}

static const tc_op split_op = {"split", split_backward, NULL};

static tc_status record_split(tc_tensor *const *pieces, tc_tensor *x, int axis, int64_t count, const int64_t *lengths, bool drop,
                              tc_error *err)
{
    const size_t bytes = sizeof(split_attributes) + sizeof(int64_t) * (size_t)count;
    split_attributes *a = tc_allocate(bytes);
    if (!a) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: recording a split into %" PRId64 " pieces", count);
    a->input = shape_of(x);
    a->axis = axis;
    a->drop = drop;
    memcpy(a->lengths, lengths, sizeof(int64_t) * (size_t)count);
    const tc_record record = {.op = &split_op,
                              .input_count = 1,
                              .inputs = &x,
                              .output_count = (int)count,
                              .outputs = pieces,
                              .attributes = a,
                              .attribute_bytes = bytes};
    tc_status status = tc_tape_record(&record, err);
    tc_free(a, bytes);
    return status;
}

tc_status tc_split(tc_tensor **out, tc_tensor *x, int axis, int64_t count, const int64_t *lengths, bool drop, tc_error *err)
{
    int64_t made = 0, start = 0;
    tc_status status = TC_OK;
    if (count > INT_MAX) return tc_fail(err, TC_ERROR_VALUE, "%" PRId64 " pieces are too many", count);
    for (; made < count; start += lengths[made++]) TC_TRY(piece_of(&out[made], x, axis, drop, start, lengths[made], err));
    if (count) TC_TRY(record_split(out, x, axis, count, lengths, drop, err));
cleanup:
    while (status != TC_OK && made > 0) {
        tc_tensor_release(out[--made]);
        out[made] = NULL; /* the caller may release what it finds */
    }
    return status;
}
