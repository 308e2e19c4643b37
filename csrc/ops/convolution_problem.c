/* convolution_problem.c: checks of a convolution, the lengths of its windows, and zeros around them. */
#include <inttypes.h>
#include <string.h>

#include "convolution.h"

typedef tc_convolution_problem problem;

/* ---- checks ---------------------------------------------------------------------------------------------------------------- */

tc_status tc_check_convolution_option(const char *name, int count, const int64_t *values, int axes, int64_t least, tc_error *err)
{
    if (count != axes)
        return tc_fail(err, TC_ERROR_VALUE, "%s has %d numbers; expected one for each of the %d axes of the kernel", name, count, axes);
    for (int i = 0; i < count; i++)
        if (values[i] < least || values[i] > INT64_MAX / 4)
            return tc_fail(err, TC_ERROR_VALUE, "%s must be from %" PRId64 " to 2^61, got %" PRId64, name, least, values[i]);
    return TC_OK;
}

tc_status tc_read_convolution_options(tc_convolution_attributes *a, const tc_tensor *weight, int strides, const int64_t *stride,
                                      int paddings, const int64_t *padding, int dilations, const int64_t *dilation, int64_t groups,
                                      tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    const int axes = weight->ndim - 2;
    if (axes < 1 || axes > TC_CONVOLUTION_AXES)
        return tc_fail(err, TC_ERROR_VALUE, "weight has shape %s; expected two axes of channels, and one to three of the kernel",
                       tc_tensor_text(text, weight));
    TC_TRY(tc_check_convolution_option("stride", strides, stride, axes, 1, err));
    TC_TRY(tc_check_convolution_option("padding", paddings, padding, axes, 0, err));
    TC_TRY(tc_check_convolution_option("dilation", dilations, dilation, axes, 1, err));
    *a = (tc_convolution_attributes){.axes = axes, .groups = groups};
    memcpy(a->stride, stride, sizeof *stride * (size_t)axes);
    memcpy(a->padding, padding, sizeof *padding * (size_t)axes);
    memcpy(a->dilation, dilation, sizeof *dilation * (size_t)axes);
    return TC_OK;
}

static tc_status check_channels(const problem *p, int ndim, const int64_t *shape, const tc_tensor *weight, const tc_tensor *bias,
                                tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (p->G < 1 || p->C % p->G || p->O % p->G)
        return tc_fail(err, TC_ERROR_VALUE,
                       "groups is %" PRId64 "; it must divide the %" PRId64 " channels of input and the %" PRId64 " of the result", p->G,
                       p->C, p->O);
    const int last = ndim - 1;
    if (weight->shape[1] != p->C / p->G && weight->shape[1] == shape[last] / p->G && shape[last] % p->G == 0)
        return tc_fail(err, TC_ERROR_VALUE,
                       "input has shape %s and weight %s, so the channels seem to be on the last axis; they belong on axis 1: pass "
                       "%s",
                       tc_shape_text(a, ndim, shape), tc_tensor_text(b, weight),
                       p->axes == 1 ? "input.swapaxes(1, 2)" : "input.permute(0, 3, 1, 2)");
    if (weight->shape[1] != p->C / p->G)
        return tc_fail(err, TC_ERROR_VALUE,
                       "input has %" PRId64 " channels in %" PRId64 " groups, but weight takes %" PRId64
                       " channels; they must be equal (input %s: samples, channels, ...; weight %s: channels of the result, channels of a "
                       "group, ...)",
                       p->C, p->G, weight->shape[1], tc_shape_text(a, ndim, shape), tc_tensor_text(b, weight));
    if (bias && (bias->ndim != 1 || bias->shape[0] != p->O))
        return tc_fail(err, TC_ERROR_VALUE, "bias has shape %s but weight %s gives %" PRId64 " channels; expected (%" PRId64 ",)",
                       tc_tensor_text(a, bias), tc_tensor_text(b, weight), p->O, p->O);
    return TC_OK;
}

/* Terms of a window of dy, zeros between them included, for which these cost less than phases, whose results are brought to their places.
 */
#define FEW_TERMS 16

/* The lengths of axis i of the windows, padded and counted. */
static tc_status measure_axis(problem *p, int i, int ndim, const int64_t *shape, const tc_tensor *weight, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int64_t reach;
    const int64_t k = p->kernel[i], length = shape[2 + i];
    const bool fits = k > 0 && tc_multiply_sizes(p->dilation[i], k - 1, &reach) && length <= INT64_MAX / 4;
    if (!fits || reach >= length + 2 * p->padding[i])
        return tc_fail(err, TC_ERROR_VALUE,
                       "a kernel of length %" PRId64 " with dilation %" PRId64 " does not fit axis %d of input, padded by %" PRId64
                       " on both sides (input %s, weight %s)",
                       k, p->dilation[i], 2 + i, p->padding[i], tc_shape_text(a, ndim, shape), tc_tensor_text(b, weight));
    p->padded[2 + i] = length + 2 * p->padding[i];
    p->result[2 + i] = (p->padded[2 + i] - reach - 1) / p->stride[i] + 1;
    p->is_padded = p->is_padded || p->padding[i];
    p->overlaps = p->overlaps || (k > 1 && p->result[2 + i] > 1 && p->stride[i] <= reach);
    return TC_OK;
}

tc_status tc_understand_convolution(problem *p, tc_scope *s, int ndim, const int64_t *shape, const tc_tensor *weight, const tc_tensor *bias,
                                    const tc_convolution_attributes *at)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    memset(p, 0, sizeof *p);
    p->axes = weight->ndim - 2;
    if (ndim != weight->ndim)
        return tc_fail(s->err, TC_ERROR_VALUE,
                       "input has shape %s and weight %s; expected (samples, channels, ...) and (channels of the result, channels of a "
                       "group, ...) with %d more axes each",
                       tc_shape_text(a, ndim, shape), tc_tensor_text(b, weight), at->axes);
    p->B = shape[0], p->C = shape[1], p->O = weight->shape[0], p->G = at->groups;
    TC_TRY(check_channels(p, ndim, shape, weight, bias, s->err));
    p->padded[0] = p->B, p->padded[1] = p->C;
    p->result[0] = p->B, p->result[1] = p->O;
    p->K = p->C / p->G, p->row = 1;
    double apart = 1;
    int64_t columns[1 + 2 * TC_CONVOLUTION_AXES] = {p->C};
    for (int i = 0; i < p->axes; i++) {
        p->kernel[i] = weight->shape[2 + i];
        p->stride[i] = at->stride[i], p->padding[i] = at->padding[i], p->dilation[i] = at->dilation[i];
        TC_TRY(measure_axis(p, i, ndim, shape, weight, s->err));
        p->K *= p->kernel[i];
        p->ones[i] = 1;
        apart *= (double)p->stride[i];
        if (i > 0) p->row *= p->result[2 + i];
        columns[1 + 2 * i] = p->kernel[i], columns[2 + 2 * i] = p->result[2 + i];
    }
    const bool few = apart * (double)p->O / (double)p->G <= FEW_TERMS;
    for (int i = 0; i < p->axes; i++) {
        p->apart[i] = few ? p->stride[i] : 1;
        p->phases[i] = few ? 1 : p->stride[i];
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

/* ---- padding --------------------------------------------------------------------------------------------------------------- */

tc_status tc_surround(tc_scope *s, tc_surrounded *out, tc_tensor *x, const int64_t *padding, const int64_t *apart, int64_t samples)
{
    int64_t shape[2 + TC_CONVOLUTION_AXES] = {samples < x->shape[0] ? samples : x->shape[0], x->shape[1]}, all = 0;
    for (int i = 2; i < x->ndim; i++) shape[i] = apart[i - 2] * x->shape[i] + 2 * padding[i - 2], all += padding[i - 2] + apart[i - 2] - 1;
    *out = (tc_surrounded){.x = x, .room = x};
    if (!all) return TC_OK;
    TC_TRY(tc_tensor_zeros(&out->room, x->ndim, shape, s->compute, s->device, s->err));
    TC_TRY(tc_own(s, out->room));
    for (int i = 0; i < x->ndim; i++) out->strides[i] = out->room->strides[i] * (i < 2 ? 1 : apart[i - 2]);
    for (int i = 2; i < x->ndim; i++) out->first += padding[i - 2] * out->room->strides[i];
    return TC_OK;
}

tc_status tc_bring_samples(const tc_surrounded *r, int64_t sample, int64_t count, int64_t *offset, tc_error *err)
{
    TC_OWNED tc_tensor *inner = NULL, *from = NULL;
    int64_t shape[2 + TC_CONVOLUTION_AXES] = {count};
    *offset = r->room == r->x ? sample * r->x->strides[0] : 0;
    if (r->room == r->x) return TC_OK;
    for (int i = 1; i < r->x->ndim; i++) shape[i] = r->x->shape[i];
    TC_TRY(tc_tensor_alias(&inner, r->room, r->x->ndim, shape, r->strides, r->first, err));
    TC_TRY(tc_tensor_alias(&from, r->x, r->x->ndim, shape, r->x->strides, sample * r->x->strides[0], err));
    return tc_tensor_copy(inner, from, err);
}
