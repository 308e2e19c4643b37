/* pad.c: axes made longer by one value or by parts of themselves, or shorter. Nothing is saved: the gradient is dy with the opposite
 * padding. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "op.h"

typedef struct pad_attributes {
    int count;
    int64_t pads[TC_MAX_DIMS];
} pad_attributes;

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const pad_attributes *a = node->attributes;
    return tc_pad_backward(&grad_inputs[0], grad_outputs[0], a->count, a->pads, err);
}

static const tc_op pad_op = {"pad", backward, .attribute_bytes = sizeof(pad_attributes)};

/* The part of x that is in the result of `shape`: `length` elements of each axis, from `first` of x to `place` of the result. */
typedef struct part {
    int64_t shape[TC_MAX_DIMS], length[TC_MAX_DIMS], first[TC_MAX_DIMS], place[TC_MAX_DIMS];
    bool empty;
} part;

static tc_status find_part(part *p, const tc_tensor *x, int count, const int64_t *pads, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    *p = (part){.empty = false};
    for (int i = 0; i < x->ndim; i++) {
        const int pair = 2 * (x->ndim - 1 - i);
        const int64_t before = pair < count ? pads[pair] : 0, after = pair < count ? pads[pair + 1] : 0, largest = INT64_MAX / 4;
        const bool far = before > largest || before < -largest || after > largest || after < -largest;
        const int64_t first = before < 0 && !far ? -before : 0, cut = after < 0 && !far ? -after : 0;
        p->shape[i] = x->shape[i] + (far ? 0 : before + after);
        if (far || x->shape[i] - first - cut < 0)
            return tc_fail(err, TC_ERROR_VALUE,
                           "pad by %" PRId64 " and %" PRId64 " does not fit axis %d of input, whose shape is %s: an axis loses at most "
                           "its length, and the result has one up to 2^62",
                           before, after, i, tc_tensor_text(text, x));
        p->first[i] = first;
        p->place[i] = before > 0 ? before : 0;
        p->length[i] = x->shape[i] - first - cut;
        if (p->length[i] <= 0) p->empty = true;
    }
    return tc_check_lengths(x->ndim, p->shape, err);
}

static tc_status make_part(tc_scope *s, tc_tensor **out, tc_tensor *of, const part *p, const int64_t *start)
{
    int64_t offset = 0;
    for (int i = 0; i < of->ndim; i++) offset += start[i] * of->strides[i];
    return tc_make_view(s, out, of, of->ndim, p->length, of->strides, offset);
}

tc_status tc_pad(tc_tensor **y, tc_tensor *x, int count, const int64_t *pads, double value, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"input", x, .strided = true}};
    tc_tensor *out, *from, *to;
    part p;
    char text[TC_SHAPE_TEXT];
    TC_TRY(tc_begin_moving(&s, in, 1));
    if (count % 2 || count > 2 * x->ndim || count > TC_MAX_DIMS)
        return tc_fail(err, TC_ERROR_VALUE,
                       "pad has %d numbers; expected two for each padded axis of input, whose shape is %s, the last first", count,
                       tc_tensor_text(text, x));
    if (!tc_dtype_is_float(x->dtype) && value != trunc(value))
        return tc_fail(err, TC_ERROR_TYPE, "value %g cannot be written to a tensor of %s; convert the tensor with .float()", value,
                       tc_dtype_name(x->dtype));
    TC_TRY(tc_check_number_fits(tc_scalar_real(value), x->dtype, err));
    TC_TRY(find_part(&p, x, count, pads, err));
    TC_TRY(tc_tensor_full(&out, x->ndim, p.shape, value, x->dtype, s.device, err));
    TC_TRY(tc_own(&s, out));
    if (!p.empty) {
        TC_TRY(make_part(&s, &from, x, &p, p.first));
        TC_TRY(make_part(&s, &to, out, &p, p.place));
        TC_TRY(tc_tensor_copy(to, from, err));
    }
    TC_TRY(tc_tensor_settle_bools(out, err));
    pad_attributes a = {.count = count};
    memcpy(a.pads, pads, sizeof *pads * (size_t)count);
    return tc_finish(&s, y, out, &(tc_record){.op = &pad_op, .attributes = &a});
}

tc_status tc_pad_backward(tc_tensor **dx, tc_tensor *dy, int count, const int64_t *pads, tc_error *err)
{
    int64_t opposite[TC_MAX_DIMS];
    if (count > TC_MAX_DIMS) return tc_fail(err, TC_ERROR_VALUE, "pad has %d numbers, at most %d are possible", count, TC_MAX_DIMS);
    for (int i = 0; i < count; i++) opposite[i] = pads[i] == INT64_MIN ? INT64_MAX : -pads[i];
    return tc_pad(dx, dy, count, opposite, 0, err);
}

/* Copies n places of an axis, each `step` from the one before it, to the places from `to` on; of the other axes the given part. */
static tc_status copy_places(tc_tensor *y, const int64_t *start, const int64_t *length, int axis, int64_t to, int64_t n, int64_t first,
                             int64_t step, tc_error *err)
{
    TC_OWNED tc_tensor *target = NULL, *source = NULL;
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS], offset = 0;
    if (n <= 0) return TC_OK;
    for (int i = 0; i < y->ndim; i++) {
        shape[i] = i == axis ? n : length[i];
        strides[i] = i == axis ? step * y->strides[i] : y->strides[i];
        if (i != axis) offset += start[i] * y->strides[i];
    }
    TC_TRY(tc_tensor_alias(&target, y, y->ndim, shape, y->strides, offset + to * y->strides[axis], err));
    TC_TRY(tc_tensor_alias(&source, y, y->ndim, shape, strides, offset + first * y->strides[axis], err));
    return tc_tensor_copy(target, source, err);
}

#define FARTHEST (1 << 30) /* beyond it the sizes are left to others */

/* Has each axis the elements, among those that stay, by which it is made longer? */
static bool has_ends(const tc_tensor *x, tc_pad_mode mode, int count, const int64_t *pads)
{
    if (count % 2 || count > 2 * x->ndim) return false;
    for (int k = 0; k < count; k += 2) {
        const int64_t before = pads[k], after = pads[k + 1], longer = before > after ? before : after;
        if (before > FARTHEST || before < -FARTHEST || after > FARTHEST || after < -FARTHEST) return false;
        const int64_t kept = x->shape[x->ndim - 1 - k / 2] + (before < 0 ? before : 0) + (after < 0 ? after : 0);
        const int64_t needed = mode == TC_PAD_REPLICATE ? 1 : mode == TC_PAD_CIRCULAR ? longer : longer + 1;
        if (kept < 1 || kept < needed) return false;
    }
    return true;
}

tc_status tc_pad_by_itself(tc_tensor **y, tc_tensor *x, tc_pad_mode mode, int count, const int64_t *pads, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"input", x, .strided = true}};
    tc_tensor *out, *from, *to;
    part p;
    *y = NULL;
    if (!tc_tensor_on_cpu(x) || tc_tape_wants(1, &x) || x->numel == 0 || !has_ends(x, mode, count, pads)) return TC_OK;
    TC_TRY(tc_begin_moving(&s, in, 1));
    TC_TRY(find_part(&p, x, count, pads, err));
    TC_TRY(tc_make(&s, &out, x->ndim, p.shape));
    TC_TRY(make_part(&s, &from, x, &p, p.first));
    TC_TRY(make_part(&s, &to, out, &p, p.place));
    TC_TRY(tc_tensor_copy(to, from, err));
    for (int axis = x->ndim - 1; axis >= 0; axis--) { /* what is there grows along one axis after the other */
        const int64_t before = p.place[axis], length = p.length[axis], end = before + length, after = p.shape[axis] - end;
        const int64_t firsts[][2] = {
            [TC_PAD_REFLECT] = {2 * before, end - 2}, [TC_PAD_REPLICATE] = {before, end - 1}, [TC_PAD_CIRCULAR] = {length, before}};
        const int64_t step = mode == TC_PAD_REFLECT ? -1 : mode == TC_PAD_CIRCULAR;
        TC_TRY(copy_places(out, p.place, p.length, axis, 0, before, firsts[mode][0], step, err));
        TC_TRY(copy_places(out, p.place, p.length, axis, end, after, firsts[mode][1], step, err));
        p.place[axis] = 0;
        p.length[axis] = p.shape[axis];
    }
    tc_give(&s, y, out);
    return TC_OK;
}
