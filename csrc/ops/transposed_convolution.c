/* transposed_convolution.c: each element of x times the kernel, added up where the windows overlap. See convolution.h.
 *
 *     y[b,o, stride p + dilation k - padding] = bias[o] + sum over c, and all (p,k) that lead there, of weight[c,o,k] x[b,c,p]
 *
 * This is the gradient of the input of a convolution from y's shape to x's, with x in the place of dy; its gradients are that convolution
 * of dy, and its gradient of weight. The problem is that convolution's.
 *
 * Saved for the backward: x if the weight wants a gradient, and weight. */
#include <inttypes.h>

#include "convolution.h"

enum { X, WEIGHT, BIAS, INPUTS }; /* of the op; the first two are saved */

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_convolution_attributes *a = node->attributes;
    return tc_transposed_convolution_backward(
        tc_wanted(node, grad_inputs, X), tc_wanted(node, grad_inputs, WEIGHT), tc_wanted(node, grad_inputs, BIAS), grad_outputs[0],
        tc_node_saved(node, X), tc_node_saved(node, WEIGHT), a->axes, a->stride, a->axes, a->padding, a->axes, a->dilation, a->groups, err);
}

static const tc_op transposed_op = {"transposed_convolution", backward, .attribute_bytes = sizeof(tc_convolution_attributes)};

static tc_status check_channels(const tc_tensor *x, const tc_tensor *weight, const tc_tensor *bias, int64_t groups, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int64_t channels;
    if (x->ndim != weight->ndim)
        return tc_fail(err, TC_ERROR_VALUE,
                       "input has shape %s and weight %s; expected (samples, channels, ...) and (channels of input, channels of a group of "
                       "the result, ...) with as many axes each",
                       tc_tensor_text(a, x), tc_tensor_text(b, weight));
    if (x->shape[1] != weight->shape[0])
        return tc_fail(err, TC_ERROR_VALUE,
                       "input has %" PRId64 " channels but weight takes %" PRId64
                       "; they must be equal (input %s: samples, channels, ...; weight %s: channels of input, channels of a group of the "
                       "result, ...)",
                       x->shape[1], weight->shape[0], tc_tensor_text(a, x), tc_tensor_text(b, weight));
    if (groups < 1 || x->shape[1] % groups || !tc_multiply_sizes(weight->shape[1], groups, &channels))
        return tc_fail(err, TC_ERROR_VALUE, "groups is %" PRId64 "; it must divide the %" PRId64 " channels of input", groups, x->shape[1]);
    if (bias && (bias->ndim != 1 || bias->shape[0] != channels))
        return tc_fail(err, TC_ERROR_VALUE,
                       "bias has shape %s but weight %s in %" PRId64 " groups gives %" PRId64 " channels; expected (%" PRId64 ",)",
                       tc_tensor_text(a, bias), tc_tensor_text(b, weight), groups, channels, channels);
    return TC_OK;
}

/* *length: of axis i of y, from the first to the last element that a window reaches, less padding. */
static tc_status measure_axis(int64_t *length, int i, const tc_tensor *x, const tc_tensor *weight, const tc_convolution_attributes *at,
                              int64_t output_padding, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int64_t apart, reach;
    if (output_padding >= at->stride[i])
        return tc_fail(err, TC_ERROR_VALUE, "output_padding must be less than stride, got %" PRId64 " with stride %" PRId64, output_padding,
                       at->stride[i]);
    if (x->shape[2 + i] < 1 || weight->shape[2 + i] < 1)
        return tc_fail(err, TC_ERROR_VALUE, "axis %d of input and weight must have elements, got input %s and weight %s", 2 + i,
                       tc_tensor_text(a, x), tc_tensor_text(b, weight));
    if (!tc_multiply_sizes(at->stride[i], x->shape[2 + i] - 1, &apart) || apart > INT64_MAX / 8 ||
        !tc_multiply_sizes(at->dilation[i], weight->shape[2 + i] - 1, &reach) || reach > INT64_MAX / 8)
        return tc_fail(err, TC_ERROR_VALUE, "axis %d of the result would have more than 2^60 elements (input %s, weight %s)", 2 + i,
                       tc_tensor_text(a, x), tc_tensor_text(b, weight));
    const int64_t whole = apart + reach + 1 + output_padding;
    *length = whole - 2 * at->padding[i];
    if (*length < 1)
        return tc_fail(err, TC_ERROR_VALUE,
                       "padding of %" PRId64 " on both sides leaves nothing of the %" PRId64
                       " elements of axis %d of the result (input %s, "
                       "weight %s)",
                       at->padding[i], whole, 2 + i, tc_tensor_text(a, x), tc_tensor_text(b, weight));
    return TC_OK;
}

tc_status tc_transposed_convolution(tc_tensor **y, tc_tensor *x, tc_tensor *weight, tc_tensor *bias, int strides, const int64_t *stride,
                                    int paddings, const int64_t *padding, int output_paddings, const int64_t *output_padding, int dilations,
                                    const int64_t *dilation, int64_t groups, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {[X] = {"input", x, .strided = true}, [WEIGHT] = {"weight", weight}, [BIAS] = {"bias", bias}};
    int64_t shape[2 + TC_CONVOLUTION_AXES];
    tc_tensor *out, *kept;
    tc_convolution_attributes a;
    tc_convolution_problem p;
    TC_TRY(tc_begin(&s, in, INPUTS));
    TC_TRY(tc_read_convolution_options(&a, weight, strides, stride, paddings, padding, dilations, dilation, groups, err));
    TC_TRY(tc_check_convolution_option("output_padding", output_paddings, output_padding, a.axes, 0, err));
    TC_TRY(check_channels(x, weight, bias, groups, err));
    shape[0] = x->shape[0], shape[1] = weight->shape[1] * groups;
    for (int i = 0; i < a.axes; i++) TC_TRY(measure_axis(&shape[2 + i], i, x, weight, &a, output_padding[i], err));
    TC_TRY(tc_understand_convolution(&p, &s, x->ndim, shape, weight, NULL, &a));
    TC_TRY(tc_prepare(&s));
    if (s.device.type == TC_CPU && tc_has_windows_of_dy(&p)) {
        TC_TRY(tc_make(&s, &out, x->ndim, shape));
        TC_TRY(tc_window_gradient_of_x(&s, &p, out, in[X].tensor, in[WEIGHT].tensor, in[BIAS].tensor));
    } else {
        TC_TRY(tc_column_gradients(&s, &p, &out, NULL, in[X].tensor, NULL, in[WEIGHT].tensor));
        TC_TRY(tc_add_channel_bias(&s, out, in[BIAS].tensor));
    }
    TC_TRY(tc_keep_for(&s, &kept, x, weight));
    return tc_finish(&s, y, out, &(tc_record){.op = &transposed_op, TC_SAVED(kept, weight), .attributes = &a});
}

tc_status tc_transposed_convolution_backward(tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dy, tc_tensor *x,
                                             tc_tensor *weight, int strides, const int64_t *stride, int paddings, const int64_t *padding,
                                             int dilations, const int64_t *dilation, int64_t groups, tc_error *err)
{
    TC_SCOPE(s, err);
    enum { DY, OF_X, OF_WEIGHT };
    tc_input in[] = {[DY] = {"dy", dy, .strided = true},
                     [OF_X] = {"input", x, .strided = true, .halves = !dweight}, /* which alone reads x */
                     [OF_WEIGHT] = {"weight", weight}};
    tc_tensor *out_x = NULL, *out_weight = NULL, *out_bias = NULL;
    tc_convolution_attributes a;
    tc_convolution_problem p;
    TC_TRY(tc_begin_backward(&s, in, 3));
    TC_TRY(tc_read_convolution_options(&a, weight, strides, stride, paddings, padding, dilations, dilation, groups, err));
    TC_TRY(tc_understand_convolution(&p, &s, dy->ndim, dy->shape, weight, NULL, &a));
    TC_TRY(tc_check_shape(&s, x, "input", "what dy, weight and the options lead to has", dy->ndim, p.result));
    TC_TRY(tc_prepare(&s));
    const bool by_windows = s.device.type == TC_CPU;
    if (dx) {
        TC_TRY(tc_make(&s, &out_x, x->ndim, x->shape));
        if (out_x->numel)
            TC_TRY((by_windows ? tc_convolve_windows : tc_convolve_columns)(&s, &p, out_x, in[DY].tensor, in[OF_WEIGHT].tensor, NULL));
    }
    if (dweight && by_windows) {
        TC_TRY(tc_make(&s, &out_weight, weight->ndim, weight->shape));
        TC_TRY(tc_window_gradient_of_weight(&s, &p, out_weight, in[OF_X].tensor, in[DY].tensor));
    } else if (dweight) {
        TC_TRY(tc_column_gradients(&s, &p, NULL, &out_weight, in[OF_X].tensor, in[DY].tensor, in[OF_WEIGHT].tensor));
    }
    TC_TRY(tc_sum_channels(&s, dbias ? &out_bias : NULL, p.axes, in[DY].tensor));
    return tc_give_rounded(&s, 3, (tc_result[]){{dx, out_x}, {dweight, out_weight}, {dbias, out_bias}});
}
