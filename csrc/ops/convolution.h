/* convolution.h: what the files of the convolution share.
 *
 *     y[b,o,p] = bias[o] + sum_{c,k} weight[o,c,k] x[b,c, stride p + dilation k - padding]
 *
 * convolution.c             the ops
 * transposed_convolution.c  its gradient of x, as ops
 * convolution_problem.c     checks; lengths of windows, padding
 * convolution_windows.c     on CPUs: products that read windows where they are
 * convolution_columns.c     windows copied into columns: on GPUs, and where gradients of windows are added up */
#ifndef TC_OPS_CONVOLUTION_H
#define TC_OPS_CONVOLUTION_H

#include "gemm.h"

#define TC_CONVOLUTION_AXES 3

typedef struct tc_convolution_attributes {
    int64_t stride[TC_CONVOLUTION_AXES], padding[TC_CONVOLUTION_AXES], dilation[TC_CONVOLUTION_AXES], groups;
    int axes;
} tc_convolution_attributes;

typedef struct tc_convolution_problem {
    int axes;                                                                 /* spatial ones */
    int64_t B, C, O, G;                                                       /* samples, channels of x and y, groups */
    int64_t kernel[TC_CONVOLUTION_AXES], stride[TC_CONVOLUTION_AXES];         /* windows */
    int64_t padding[TC_CONVOLUTION_AXES], dilation[TC_CONVOLUTION_AXES];      /* of each side */
    int64_t padded[2 + TC_CONVOLUTION_AXES], result[2 + TC_CONVOLUTION_AXES]; /* shapes of the padded x, and of y */
    int64_t K, row, N;     /* of the product: its sum; windows of an index of the first spatial axis, and of a sample */
    int64_t samples, rows; /* in the columns at most: samples, and indices of the first spatial axis */
    bool is_padded, overlaps;
    int64_t ones[TC_CONVOLUTION_AXES]; /* strides of neighbours */
    /* Of windows of dy, by which dx is computed: with strides either dy's elements are so far apart, with zeros between them, or dx has so
     * many phases. Their product is the stride. */
    int64_t apart[TC_CONVOLUTION_AXES], phases[TC_CONVOLUTION_AXES];
} tc_convolution_problem;

/* *a: the options of a call, of one number for each axis of weight's kernel. */
TC_CHECKED tc_status tc_read_convolution_options(tc_convolution_attributes *a, const tc_tensor *weight, int strides, const int64_t *stride,
                                                 int paddings, const int64_t *padding, int dilations, const int64_t *dilation,
                                                 int64_t groups, tc_error *err);
/* `count` numbers from `least` to 2^61, one for each of the axes. */
TC_CHECKED tc_status tc_check_convolution_option(const char *name, int count, const int64_t *values, int axes, int64_t least,
                                                 tc_error *err);
/* The lengths of everything, after all checks; `ndim` and `shape` are those of x. Nothing is allocated. */
TC_CHECKED tc_status tc_understand_convolution(tc_convolution_problem *p, tc_scope *s, int ndim, const int64_t *shape,
                                               const tc_tensor *weight, const tc_tensor *bias, const tc_convolution_attributes *at);

/* *out: the sums of dy for each channel, unless `out` is NULL. */
TC_CHECKED tc_status tc_sum_channels(tc_scope *s, tc_tensor **out, int axes, tc_tensor *dy);

/* A part of a problem has a scope of its own, so that the temporaries of its products do not outlive it. */
static inline void tc_share_scope(tc_scope *s, const tc_scope *op)
{
    s->device = op->device, s->compute = op->compute, s->statistics = op->statistics, s->kernels = op->kernels, s->result = op->result;
    s->widens = op->widens;
}

/* Some samples at a time of x, with zeros around each spatial axis, and apart - 1 zeros after each element. */
typedef struct tc_surrounded {
    tc_tensor *x, *room;                      /* room: x itself where there are no zeros */
    int64_t first;                            /* element of the room where the first of a sample's belongs */
    int64_t strides[2 + TC_CONVOLUTION_AXES]; /* between the elements of x there */
} tc_surrounded;
TC_CHECKED tc_status tc_surround(tc_scope *s, tc_surrounded *out, tc_tensor *x, const int64_t *padding, const int64_t *apart,
                                 int64_t samples);
/* Brings samples into the room. *offset: where the first of them begins there. */
TC_CHECKED tc_status tc_bring_samples(const tc_surrounded *r, int64_t sample, int64_t count, int64_t *offset, tc_error *err);

/* ---- by windows: CPUs. Each function has a scope of its own ---- */

/* y, contiguous. */
TC_CHECKED tc_status tc_convolve_windows(tc_scope *op, const tc_convolution_problem *p, tc_tensor *y, tc_tensor *x, const tc_tensor *weight,
                                         tc_tensor *bias);
/* Is dx computed by windows of dy? They take less time than adding up columns unless y has far more channels than x, most of what the
 * windows contain is zeros around dy, as with a kernel as large as x, or there is nothing to add. */
static inline bool tc_has_windows_of_dy(const tc_convolution_problem *p)
{
    double longer = 1;
    bool strided = false;
    for (int i = 0; i < p->axes; i++) {
        if (p->phases[i] > 1 && p->dilation[i] > 1) return false;
        strided = strided || p->stride[i] > 1;
        longer *= (double)(p->padded[2 + i] - 2 * p->padding[i]) / ((double)p->result[2 + i] * (double)p->stride[i]);
    }
    return p->O <= 2 * p->C && longer <= 4 && (p->overlaps || !strided);
}
/* dx, contiguous, where tc_has_windows_of_dy(); plus `bias`, one for each channel, unless NULL. */
TC_CHECKED tc_status tc_window_gradient_of_x(tc_scope *op, const tc_convolution_problem *p, tc_tensor *dx, tc_tensor *dy, tc_tensor *weight,
                                             tc_tensor *bias);
/* dweight, contiguous. */
TC_CHECKED tc_status tc_window_gradient_of_weight(const tc_scope *op, const tc_convolution_problem *p, tc_tensor *dweight, tc_tensor *dy,
                                                  tc_tensor *x);

/* ---- by columns ---- */

TC_CHECKED tc_status tc_convolve_columns(tc_scope *s, const tc_convolution_problem *p, tc_tensor *y, tc_tensor *x, const tc_tensor *weight,
                                         tc_tensor *bias);
/* *dx and *dweight, unless NULL: of the shapes of x and weight. x is read for dweight alone. */
TC_CHECKED tc_status tc_column_gradients(tc_scope *s, const tc_convolution_problem *p, tc_tensor **dx, tc_tensor **dweight, tc_tensor *dy,
                                         tc_tensor *x, tc_tensor *weight);
/* y += bias, one for each channel, unless NULL. */
TC_CHECKED tc_status tc_add_channel_bias(tc_scope *s, tc_tensor *y, tc_tensor *bias);

#endif
