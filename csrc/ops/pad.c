/* pad.c: axes made longer by one value, or shorter. Nothing is saved: the gradient is dy with the opposite padding. */
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
