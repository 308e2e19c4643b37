/* view.c: results that share their input's memory. Kinds, by what the gradient needs:
 *     reshape (also squeeze, unsqueeze, view)   the gradient reshaped back
 *     permute (also transpose, T)               the gradient permuted back
 *     expand                                    the gradient summed over the repeated axes
 *     window (slices, unfold)                   the gradient written into zeros through the same window
 *     split (also chunk, unbind)                the gradients joined
 */
#include "view.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "../core/accumulate.h"
#include "../core/broadcast.h"
#include "../core/reduction.h"
#include "../core/tape_view.h"
#include "op.h"

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
    TC_OWNED tc_tensor *dy = NULL;
    TC_TRY(tc_tensor_contiguous(&dy, grad_outputs[0], err));
    tc_c_strides(strides, a->ndim, a->shape);
    return tc_tensor_alias(&grad_inputs[0], dy, a->ndim, a->shape, strides, 0, err);
}

static const tc_op reshape_op = {"reshape", reshape_backward, .attribute_bytes = sizeof(shape_attributes)};

/* Strides under which the memory of x reads as `shape`, of as many elements, or false when it would have to be copied. Walks groups of axes
 * of equal size from the last one: inside a group x must be walkable as one axis. As long as a size is not reached, axes are left. */
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
        TC_ASSERT(old >= 0);
        int64_t step = x->strides[old], have = x->shape[old], want = shape[new];
        strides[new --] = step;
        while (have != want) {
            if (have < want) { /* join the next old axis */
                int outer = old - 1;
                while (x->shape[outer] == 1) outer--;
                if (x->strides[outer] != x->strides[old] * x->shape[old]) return false;
                old = outer;
                have *= x->shape[old];
            } else { /* split: the next new axis is in the same group */
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
    if (fits) return known ? TC_OK : tc_check_lengths(ndim, resolved, err);
    return tc_fail(err, TC_ERROR_VALUE, "a tensor of shape %s (%" PRId64 " elements) cannot be given the shape %s", tc_tensor_text(a, x),
                   x->numel, tc_shape_text(b, ndim < TC_MAX_DIMS ? ndim : TC_MAX_DIMS, shape));
}

tc_status tc_reshape(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, bool may_copy, tc_error *err)
{
    int64_t resolved[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    TC_OWNED tc_tensor *copy = NULL;
    tc_tensor *view;
    TC_TRY(resolve_shape(resolved, x, ndim, shape, err));
    if (!view_strides(strides, x, ndim, resolved)) {
        if (!may_copy)
            return tc_fail(err, TC_ERROR_VALUE,
                           "the memory of this tensor of shape %s cannot be read as %s without a copy; use reshape() or contiguous() first",
                           tc_tensor_text(a, x), tc_shape_text(b, ndim, resolved));
        TC_TRY(tc_tensor_contiguous(&copy, x, err));
        tc_c_strides(strides, ndim, resolved);
    }
    TC_TRY(tc_tensor_alias(&view, copy ? copy : x, ndim, resolved, strides, 0, err));
    const shape_attributes attributes = shape_of(x);
    return tc_finish_alone(out, view, x, &reshape_op, &attributes, err);
}

tc_status tc_squeeze(tc_tensor **out, tc_tensor *x, int count, const int64_t *axes, tc_error *err)
{
    bool drop[TC_MAX_DIMS] = {false};
    int64_t shape[TC_MAX_DIMS];
    int kept = 0;
    for (int i = 0; i < count; i++) {
        int axis;
        TC_TRY(tc_normalize_axis(&axis, axes[i], x->ndim, "dim", err));
        if (axis < x->ndim) drop[axis] = true;
    }
    for (int i = 0; i < x->ndim; i++)
        if (x->shape[i] != 1 || (count >= 0 && !drop[i])) shape[kept++] = x->shape[i];
    return tc_reshape(out, x, kept, shape, false, err);
}

tc_status tc_unsqueeze(tc_tensor **out, tc_tensor *x, int64_t given, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS + 1];
    int axis;
    if (x->ndim == TC_MAX_DIMS) return tc_fail(err, TC_ERROR_VALUE, "a tensor has at most %d axes", TC_MAX_DIMS);
    TC_TRY(tc_normalize_axis(&axis, given, x->ndim + 1, "dim", err));
    for (int i = 0; i <= x->ndim; i++) shape[i] = i == axis ? 1 : x->shape[i - (i > axis)];
    return tc_reshape(out, x, x->ndim + 1, shape, false, err);
}

tc_status tc_flatten(tc_tensor **out, tc_tensor *x, int64_t start, int64_t end, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS + 1];
    int first, last, ndim = 0;
    TC_TRY(tc_normalize_axis(&first, start, x->ndim, "start_dim", err));
    TC_TRY(tc_normalize_axis(&last, end, x->ndim, "end_dim", err));
    if (first > last) return tc_fail(err, TC_ERROR_VALUE, "start_dim %d comes after end_dim %d", first, last);
    for (int i = 0; i < first; i++) shape[ndim++] = x->shape[i];
    shape[ndim] = 1;
    for (int i = first; i <= last && i < x->ndim; i++) shape[ndim] *= x->shape[i];
    ndim++;
    for (int i = last + 1; i < x->ndim; i++) shape[ndim++] = x->shape[i];
    return tc_reshape(out, x, ndim, shape, true, err);
}

/* ---- permute ------------------------------------------------------------------------------------------------------------- */

typedef struct permute_attributes {
    int axes[TC_MAX_DIMS];
} permute_attributes;

static tc_status permute_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const permute_attributes *a = node->attributes;
    const tc_tensor *dy = grad_outputs[0];
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    for (int i = 0; i < dy->ndim; i++) {
        shape[a->axes[i]] = dy->shape[i];
        strides[a->axes[i]] = dy->strides[i];
    }
    return tc_tensor_alias(&grad_inputs[0], grad_outputs[0], dy->ndim, shape, strides, 0, err);
}

static const tc_op permute_op = {"permute", permute_backward, .attribute_bytes = sizeof(permute_attributes)};

tc_status tc_permute(tc_tensor **out, tc_tensor *x, int count, const int64_t *axes, tc_error *err)
{
    permute_attributes a;
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    bool seen[TC_MAX_DIMS] = {false};
    tc_tensor *view;
    char text[TC_SHAPE_TEXT];
    if (count != x->ndim)
        return tc_fail(err, TC_ERROR_VALUE, "%d axes were given for a tensor of %d axes; each must be named once: %s", count, x->ndim,
                       tc_shape_text(text, count, axes));
    for (int i = 0; i < count; i++) {
        int axis;
        TC_TRY(tc_normalize_axis(&axis, axes[i], x->ndim, "axis", err));
        if (seen[axis])
            return tc_fail(err, TC_ERROR_VALUE, "axis %" PRId64 " is named twice in %s", axes[i], tc_shape_text(text, count, axes));
        seen[axis] = true;
        a.axes[i] = axis;
        shape[i] = x->shape[axis];
        strides[i] = x->strides[axis];
    }
    TC_TRY(tc_tensor_alias(&view, x, x->ndim, shape, strides, 0, err));
    return tc_finish_alone(out, view, x, &permute_op, &a, err);
}

tc_status tc_transpose(tc_tensor **out, tc_tensor *x, int64_t first, int64_t second, tc_error *err)
{
    int64_t axes[TC_MAX_DIMS];
    int a, b;
    TC_TRY(tc_normalize_axis(&a, first, x->ndim, "axis", err));
    TC_TRY(tc_normalize_axis(&b, second, x->ndim, "axis", err));
    for (int i = 0; i < x->ndim; i++) axes[i] = i == a ? b : i == b ? a : i;
    return tc_permute(out, x, x->ndim, axes, err);
}

/* ---- expand ---------------------------------------------------------------------------------------------------------------- */

static tc_status expand_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const shape_attributes *a = node->attributes;
    return tc_sum_to_shape(&grad_inputs[0], grad_outputs[0], a->ndim, a->shape, err);
}

static const tc_op expand_op = {"expand", expand_backward, .attribute_bytes = sizeof(shape_attributes)};

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
    TC_TRY(tc_tensor_alias(&view, x, ndim, full, strides, 0, err));
    const shape_attributes attributes = shape_of(x);
    return tc_finish_alone(out, view, x, &expand_op, &attributes, err);
}

/* ---- windows: slices, unfold; flips, which are copied ------------------------------------------------------------------------------- */

typedef struct window_attributes {
    shape_attributes input;
    int ndim;
    bool overlaps;
    int64_t offset; /* on a contiguous input */
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
} window_attributes;

/* Adds one layer of the gradient, that of index i along the last axis, where no element occurs twice. */
static tc_status add_layer(tc_tensor *dx, const window_attributes *a, tc_tensor *dy, int64_t i, tc_error *err)
{
    const int last = a->ndim - 1;
    TC_OWNED tc_tensor *to = NULL, *from = NULL;
    TC_TRY(tc_tensor_alias(&to, dx, last, a->shape, a->strides, a->offset + i * a->strides[last], err));
    TC_TRY(tc_tensor_alias(&from, dy, last, a->shape, dy->strides, i * dy->strides[last], err));
    return tc_add_in_place(to, from, err);
}

static tc_status window_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const window_attributes *a = node->attributes;
    TC_OWNED tc_tensor *dx = NULL;
    tc_tensor *dy = grad_outputs[0];
    if (!a->overlaps) return tc_gradient_inside(&grad_inputs[0], dy, a->input.ndim, a->input.shape, a->strides, a->offset, err);
    TC_TRY(tc_tensor_zeros(&dx, a->input.ndim, a->input.shape, dy->dtype, dy->storage->device, err));
    for (int64_t i = 0; i < a->shape[a->ndim - 1]; i++) TC_TRY(add_layer(dx, a, dy, i, err));
    grad_inputs[0] = tc_take(&dx);
    return TC_OK;
}

static const tc_op window_op = {"slice", window_backward, .attribute_bytes = sizeof(window_attributes)};

tc_status tc_window(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, const int *axis, const int64_t *step,
                    const int64_t *start, bool overlaps, tc_error *err)
{
    window_attributes a = {.input = shape_of(x), .ndim = ndim, .overlaps = overlaps};
    int64_t strides[TC_MAX_DIMS], plain[TC_MAX_DIMS], offset = 0;
    tc_tensor *view;
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
    TC_TRY(tc_tensor_alias(&view, x, ndim, shape, strides, offset, err));
    return tc_finish_alone(out, view, x, &window_op, &a, err);
}

tc_status tc_narrow(tc_tensor **out, tc_tensor *x, int64_t given, int64_t first, int64_t length, tc_error *err)
{
    int axis, axes[TC_MAX_DIMS];
    int64_t shape[TC_MAX_DIMS], steps[TC_MAX_DIMS], starts[TC_MAX_DIMS] = {0};
    if (x->ndim == 0) return tc_fail(err, TC_ERROR_VALUE, "narrow needs a tensor of at least one axis");
    TC_TRY(tc_normalize_axis(&axis, given, x->ndim, "dim", err));
    const int64_t whole = x->shape[axis], start = first < 0 ? first + whole : first;
    if (start < 0 || length < 0 || start > whole || length > whole - start)
        return tc_fail(err, TC_ERROR_INDEX, "narrow from %" PRId64 " by %" PRId64 " is outside an axis of length %" PRId64, start, length,
                       whole);
    for (int i = 0; i < x->ndim; i++) axes[i] = i, steps[i] = 1, shape[i] = x->shape[i];
    starts[axis] = length ? start : 0;
    shape[axis] = length;
    return tc_window(out, x, x->ndim, shape, axes, steps, starts, false, err);
}

tc_status tc_flip(tc_tensor **out, tc_tensor *x, int count, const int64_t *given, tc_error *err)
{
    int axes[TC_MAX_DIMS];
    int64_t steps[TC_MAX_DIMS], starts[TC_MAX_DIMS] = {0};
    TC_OWNED tc_tensor *view = NULL;
    for (int i = 0; i < x->ndim; i++) axes[i] = i, steps[i] = 1;
    for (int i = 0; i < count; i++) {
        int axis;
        TC_TRY(tc_normalize_axis(&axis, given[i], x->ndim, "dim", err));
        if (axis >= x->ndim) continue;
        if (steps[axis] < 0) return tc_fail(err, TC_ERROR_VALUE, "dim %" PRId64 " is named twice", given[i]);
        steps[axis] = -1;
        starts[axis] = x->shape[axis] ? x->shape[axis] - 1 : 0;
    }
    TC_TRY(tc_window(&view, x, x->ndim, x->shape, axes, steps, starts, false, err));
    return tc_clone(out, view, err);
}

tc_status tc_unfold(tc_tensor **out, tc_tensor *x, int64_t given, int64_t size, int64_t step, tc_error *err)
{
    int axis, axes[TC_MAX_DIMS];
    int64_t shape[TC_MAX_DIMS], steps[TC_MAX_DIMS], starts[TC_MAX_DIMS] = {0};
    TC_TRY(tc_normalize_axis(&axis, given, x->ndim, "dimension", err));
    if (x->ndim == TC_MAX_DIMS) return tc_fail(err, TC_ERROR_VALUE, "a tensor has at most %d axes; unfold adds one", TC_MAX_DIMS);
    if (x->ndim == 0 || size < 0 || size > x->shape[axis] || step < 1)
        return tc_fail(err, TC_ERROR_VALUE,
                       "unfold of windows of %" PRId64 " every %" PRId64 " along an axis of length %" PRId64
                       "; expected 0 <= size <= length and step >= 1",
                       size, step, x->ndim ? x->shape[axis] : 1);
    for (int i = 0; i < x->ndim; i++) axes[i] = i, steps[i] = 1, shape[i] = x->shape[i];
    shape[axis] = (x->shape[axis] - size) / step + 1;
    steps[axis] = shape[axis] > 1 ? step : 1;
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

/* The part of x that is a piece. */
typedef struct piece {
    int ndim;
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS], offset;
} piece;

static void find_piece(piece *p, const tc_tensor *x, int axis, bool drop, int64_t start, int64_t length)
{
    p->ndim = 0;
    p->offset = start * x->strides[axis];
    for (int i = 0; i < x->ndim; i++) {
        if (drop && i == axis) continue;
        p->shape[p->ndim] = i == axis ? length : x->shape[i];
        p->strides[p->ndim++] = x->strides[i];
    }
}

/* Every piece of dx is written once: with its gradient, or with zeros. */
static tc_status split_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const split_attributes *a = node->attributes;
    const tc_tensor *model = NULL;
    TC_OWNED tc_tensor *dx = NULL, *zero = NULL;
    int64_t start = 0;
    for (int i = 0; i < node->output_count && !model; i++) model = grad_outputs[i];
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): backward is only called when a gradient has come */
    TC_TRY(tc_tensor_empty(&dx, a->input.ndim, a->input.shape, model->dtype, model->storage->device, err));
    TC_TRY(tc_tensor_zeros(&zero, 0, NULL, model->dtype, model->storage->device, err));
    for (int i = 0; i < node->output_count; start += a->lengths[i++]) {
        piece p;
        find_piece(&p, dx, a->axis, a->drop, start, a->lengths[i]);
        TC_OWNED tc_tensor *part = NULL;
        TC_TRY(tc_tensor_alias(&part, dx, p.ndim, p.shape, p.strides, p.offset, err));
        TC_TRY(tc_tensor_copy(part, grad_outputs[i] ? grad_outputs[i] : zero, err));
    }
    grad_inputs[0] = tc_take(&dx);
    return TC_OK;
}

static const tc_op split_op = {"split", split_backward};

#define FEW 8

tc_status tc_split(tc_tensor **out, tc_tensor *x, int axis, int64_t count, const int64_t *lengths, bool drop, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    union {
        split_attributes attributes;
        char room[sizeof(split_attributes) + FEW * sizeof(int64_t)];
    } few;
    tc_result few_results[FEW], *results = few_results;
    split_attributes *a = &few.attributes;
    const size_t bytes = sizeof *a + sizeof *lengths * (size_t)count;
    if (count > INT_MAX) return tc_fail(err, TC_ERROR_VALUE, "%" PRId64 " pieces are too many", count);
    if (count == 0) return TC_OK;
    TC_TRY(tc_begin_moving(&s, in, 1));
    if (count > FEW) {
        void *memory;
        TC_TRY(tc_make_memory(&s, &memory, sizeof *results * (size_t)count + bytes));
        results = memory;
        a = (split_attributes *)(void *)(results + count);
    }
    if (tc_tape_wants(1, &x)) {
        a->input = shape_of(x);
        a->axis = axis;
        a->drop = drop;
        memcpy(a->lengths, lengths, sizeof *lengths * (size_t)count);
    }
    for (int64_t i = 0, start = 0; i < count; start += lengths[i++]) {
        piece p;
        find_piece(&p, x, axis, drop, start, lengths[i]);
        results[i].out = &out[i];
        TC_TRY(tc_make_view(&s, &results[i].tensor, x, p.ndim, p.shape, p.strides, p.offset));
    }
    TC_TRY(tc_finish_all(&s, (int)count, results, &(tc_record){.op = &split_op, .attributes = a, .attribute_bytes = bytes}));
    for (int64_t i = 0; i < count; i++) tc_tape_note_view(out[i], x);
    return TC_OK;
}
