/* convolution.c: the ops of products over windows, of one to three spatial axes (a cross-correlation, as in PyTorch). See convolution.h.
 *
 * Saved for the backward: x if the weight wants a gradient, and weight. */
#include "convolution.h"

enum { X, WEIGHT, BIAS, INPUTS }; /* of the op; the first two are saved */

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_convolution_attributes *a = node->attributes;
    return tc_convolution_backward(tc_wanted(node, grad_inputs, X), tc_wanted(node, grad_inputs, WEIGHT),
                                   tc_wanted(node, grad_inputs, BIAS), grad_outputs[0], tc_node_saved(node, X), tc_node_saved(node, WEIGHT),
                                   a->axes, a->stride, a->axes, a->padding, a->axes, a->dilation, a->groups, err);
}

static const tc_op convolution_op = {"convolution", backward, .attribute_bytes = sizeof(tc_convolution_attributes)};

tc_status tc_convolution(tc_tensor **y, tc_tensor *x, tc_tensor *weight, tc_tensor *bias, int strides, const int64_t *stride, int paddings,
                         const int64_t *padding, int dilations, const int64_t *dilation, int64_t groups, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {[X] = {"input", x, .strided = true}, [WEIGHT] = {"weight", weight}, [BIAS] = {"bias", bias}};
    tc_tensor *out, *kept;
    tc_convolution_attributes a;
    tc_convolution_problem p;
    TC_TRY(tc_begin(&s, in, INPUTS));
    TC_TRY(tc_read_convolution_options(&a, weight, strides, stride, paddings, padding, dilations, dilation, groups, err));
    TC_TRY(tc_understand_convolution(&p, &s, x->ndim, x->shape, weight, bias, &a));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &out, x->ndim, p.result));
    if (out->numel)
        TC_TRY((s.device.type == TC_CPU ? tc_convolve_windows : tc_convolve_columns)(&s, &p, out, in[X].tensor, in[WEIGHT].tensor,
                                                                                     in[BIAS].tensor));
    TC_TRY(tc_keep_for(&s, &kept, x, weight));
    return tc_finish(&s, y, out, &(tc_record){.op = &convolution_op, TC_SAVED(kept, weight), .attributes = &a});
}

/* ---- backward -------------------------------------------------------------------------------------------------------------- */

tc_status tc_sum_channels(tc_scope *s, tc_tensor **out, int axes, tc_tensor *dy)
{
    const int64_t but_channels[1 + TC_CONVOLUTION_AXES] = {0, 2, 3, 4};
    TC_OWNED tc_tensor *detached = NULL;
    if (!out) return TC_OK;
    TC_TRY(tc_tensor_detach(&detached, dy, s->err));
    TC_TRY(tc_reduce(out, detached, TC_REDUCE_sum, 1 + axes, but_channels, false, s->err));
    return tc_own(s, *out);
}

tc_status tc_convolution_backward(tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dy, tc_tensor *x, tc_tensor *weight,
                                  int strides, const int64_t *stride, int paddings, const int64_t *padding, int dilations,
                                  const int64_t *dilation, int64_t groups, tc_error *err)
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
    TC_TRY(tc_understand_convolution(&p, &s, x->ndim, x->shape, weight, NULL, &a));
    TC_TRY(tc_check_shape(&s, dy, "dy", "the result has", x->ndim, p.result));
    TC_TRY(tc_prepare(&s));
    const bool by_windows = s.device.type == TC_CPU, windows_of_dy = by_windows && tc_has_windows_of_dy(&p);
    if (dx && windows_of_dy) TC_TRY(tc_make(&s, &out_x, x->ndim, x->shape));
    if (dweight && by_windows) TC_TRY(tc_make(&s, &out_weight, weight->ndim, weight->shape));
    if (out_x) TC_TRY(tc_window_gradient_of_x(&s, &p, out_x, in[DY].tensor, in[OF_WEIGHT].tensor, NULL));
    if (out_weight) TC_TRY(tc_window_gradient_of_weight(&s, &p, out_weight, in[DY].tensor, in[OF_X].tensor));
    if ((dx && !out_x) || (dweight && !out_weight))
        TC_TRY(tc_column_gradients(&s, &p, dx && !out_x ? &out_x : NULL, dweight && !out_weight ? &out_weight : NULL, in[DY].tensor,
                                   in[OF_X].tensor, in[OF_WEIGHT].tensor));
    TC_TRY(tc_sum_channels(&s, dbias ? &out_bias : NULL, p.axes, in[DY].tensor));
    return tc_give_rounded(&s, 3, (tc_result[]){{dx, out_x}, {dweight, out_weight}, {dbias, out_bias}});
}
