/* norm.c: see norm.h. */
#include "norm.h"

#include "../core/reduction.h"
#include "../kernels/layer_norm.h"

tc_status tc_norm_rows(tc_scope *s, const tc_tensor *x, int axes, const int64_t *told, int64_t *N, int64_t *C)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    bool fits = axes <= x->ndim;
    for (int i = 0; told && fits && i < axes; i++) fits = told[i] == x->shape[x->ndim - axes + i];
    if (told && !fits)
        return tc_fail(s->err, TC_ERROR_VALUE, "normalized_shape is %s, but x has shape %s: its last axes must have exactly these lengths",
                       tc_shape_text(a, axes, told), tc_tensor_text(b, x));
    if (told && axes < 1)
        return tc_fail(s->err, TC_ERROR_VALUE, "normalized_shape is (); it must have the lengths of the last axes of x, whose shape is %s",
                       tc_tensor_text(b, x));
    if (axes < 1 || !fits)
        return tc_fail(s->err, TC_ERROR_VALUE, "x has shape %s; %d axes cannot be normalised over, from 1 to %d can", tc_tensor_text(b, x),
                       axes, x->ndim);
    *N = *C = 1;
    for (int i = 0; i < x->ndim; i++) *(i < x->ndim - axes ? N : C) *= x->shape[i];
    return TC_OK;
}

tc_status tc_norm_backward(const tc_kernel *kernel, tc_tensor **dx, tc_tensor **ddropped, const tc_mask *mask, tc_tensor **dgamma,
                           tc_tensor **dbeta, tc_tensor *dy, tc_tensor *x, tc_tensor *gamma, tc_tensor *mean, tc_tensor *rstd,
                           tc_error *err)
{
    TC_SCOPE(s, err);
    enum { DY, OF_X, OF_GAMMA, MEAN, RSTD };
    tc_input in[] = {[DY] = {"dy", dy},
                     [OF_X] = {"x", x},
                     [OF_GAMMA] = {"gamma", gamma},
                     [MEAN] = {"mean", mean, .statistic = true},
                     [RSTD] = {"rstd", rstd, .statistic = true}};
    tc_tensor *out = NULL, *dropped = NULL, *gamma_partial = NULL, *beta_partial = NULL, *sum_gamma = NULL, *sum_beta = NULL;
    const int lead = rstd->ndim, axes = x->ndim - lead;
    const int64_t *row = x->shape + lead;
    int64_t N, C;
    TC_TRY(tc_begin_backward(&s, in, 5));
    TC_TRY(tc_norm_rows(&s, x, axes, NULL, &N, &C));
    TC_TRY(tc_check_follows(&s, dy, "dy", x, x->ndim, x->shape));
    TC_TRY(tc_check_follows(&s, gamma, "gamma", x, axes, row));
    TC_TRY(tc_check_follows(&s, mean, "mean", x, lead, x->shape));
    TC_TRY(tc_check_follows(&s, rstd, "rstd", x, lead, x->shape));
    TC_TRY(tc_prepare(&s));
    const int64_t rows = s.device.type == TC_CPU ? tc_reduction_chunk(N) : tc_norm_chunk_of_gpu(N, C);
    const int64_t chunks = tc_divide_up(N, rows), partial_shape[2] = {chunks, C};
    if (dx) TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    if (ddropped) TC_TRY(tc_make(&s, &dropped, x->ndim, x->shape));
    if (dgamma) TC_TRY(tc_make_statistic(&s, &gamma_partial, 2, partial_shape));
    if (dbeta) TC_TRY(tc_make_statistic(&s, &beta_partial, 2, partial_shape));
    const tc_layer_norm_backward_args args = {.dx = tc_data(out),
                                              .ddropped = tc_data(dropped),
                                              .dgamma_partial = tc_data(gamma_partial),
                                              .dbeta_partial = tc_data(beta_partial),
                                              .dy = in[DY].data,
                                              .x = in[OF_X].data,
                                              .gamma = in[OF_GAMMA].data,
                                              .mean = in[MEAN].data,
                                              .rstd = in[RSTD].data,
                                              .mask = mask ? *mask : (tc_mask){0},
                                              .N = N,
                                              .C = C,
                                              .rows_per_chunk = rows};
    TC_TRY(tc_compute(&s, kernel, &args, chunks, 8.0 * (double)(C * rows)));
    const tc_dtype of_weights = tc_weight_gradient_dtype(&s, gamma);
    const bool wide = of_weights != s.compute;
    if (dgamma) TC_TRY(tc_sum_rows(&s, &sum_gamma, gamma_partial, axes, row, of_weights));
    if (dbeta) TC_TRY(tc_sum_rows(&s, &sum_beta, beta_partial, axes, row, of_weights));
    return tc_give_rounded(
        &s, 4, (tc_result[]){{dx, out}, {ddropped, dropped}, {dgamma, sum_gamma, .wide = wide}, {dbeta, sum_beta, .wide = wide}});
}
