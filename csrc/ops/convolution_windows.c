/* convolution_windows.c: products that read windows where they are, on CPUs.
 *
 * Element k of window n is at in_window[k] + of_window[n]: the product packs its panels by these offsets (tc_gemm_args.b_rows), so that no
 * columns are made. All samples are a batch of one product. The gradient of x is the convolution of dy, with zeros around it, and between
 * its elements where x has strides, by weight with its channels exchanged and its positions reversed; that of weight sums over the windows:
 *
 *     y = weight (O/G,K) windows (K,n)      dweight = sum over samples of dy (O/G,n) windows^T (n,K) */
#include "../kernels/sum_partials.h"
#include "convolution.h"

typedef tc_convolution_problem problem;

/* Samples with fewer windows are taken together, until they are as many: columns of a forward's product, and terms of a sum. */
#define LEAST_COLUMNS 64
#define LEAST_COLUMNS_OF_ELEMENTS 32
#define LEAST_TERMS 512
/* Sums of some samples at a time, each of which is as large as weight: the least and the largest number of them, and the most elements. */
#define LEAST_PARTIALS 4
#define MOST_PARTIALS 32
#define PARTIAL_ELEMENTS (4 * 1048576)

/* Bytes of samples with zeros around them that are made at a time: what caches near the core contain. */
#define ROOM 2097152

typedef struct windows {
    tc_surrounded of;               /* (B,channels,...) */
    int64_t first;                  /* element of a sample's first channel from which offsets count */
    int64_t *in_window, *of_window; /* (K), (together n); NULL where windows are single elements that follow one another: */
    int64_t row, col;               /* strides between their channels, and between them */
    int64_t K, n, channels;         /* of a group; windows of a sample */
    int64_t together, most;         /* samples whose windows belong to one matrix; matrices at a time */
} windows;

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

static const void *element(const tc_tensor *x, int64_t i) { return (const char *)x->data + i * (int64_t)tc_dtype_size(x->dtype); }

/* *out: the offsets of all elements of an array, in C order. */
static tc_status list_offsets(tc_scope *s, int64_t **out, int64_t *count, int ndim, const int64_t *shape, const int64_t *strides)
{
    void *memory;
    int64_t all = 1;
    for (int d = 0; d < ndim; d++) all *= shape[d];
    TC_TRY(tc_make_memory(s, &memory, (size_t)(all > 0 ? all : 1) * sizeof(int64_t)));
    int64_t *offset = *out = memory, before = 1;
    *count = all;
    offset[0] = 0;
    for (int d = 0; d < ndim && all; before *= shape[d++])
        for (int64_t i = before; i-- > 0;) {
            const int64_t start = offset[i];
            for (int64_t j = shape[d]; j-- > 0;) offset[i * shape[d] + j] = start + j * strides[d];
        }
    return TC_OK;
}

/* Are windows single elements of each channel, of samples of their own, whose steps are those of one axis? Then nothing else needs to be
 * found. */
static bool are_elements(windows *w, const problem *p, const int64_t *result, const int64_t *stride)
{
    int64_t count = 1, col = 1;
    for (int i = p->axes - 1; i >= 0; i--) {
        const int64_t step = stride[i] * w->of.room->strides[2 + i];
        if (p->kernel[i] != 1) return false;
        if (result[i] == 1) continue;
        if (count == 1) col = step;
        if (step != col * count) return false;
        count *= result[i];
    }
    if (w->together > 1) return false;
    w->K = w->channels, w->n = count;
    w->row = w->of.room->strides[1], w->col = col;
    return true;
}

/* The windows of `of`: of w->channels channels and p's kernel, whose positions are `dilation` apart; `result` of them, `stride` apart. */
static tc_status find_windows(tc_scope *s, windows *w, const problem *p, const int64_t *dilation, const int64_t *result,
                              const int64_t *stride)
{
    const tc_tensor *of = w->of.room;
    int64_t shape[1 + TC_CONVOLUTION_AXES] = {w->channels}, strides[1 + TC_CONVOLUTION_AXES] = {of->strides[1]}, all;
    for (int i = 0; i < p->axes; i++) shape[1 + i] = p->kernel[i], strides[1 + i] = dilation[i] * of->strides[2 + i];
    TC_TRY(list_offsets(s, &w->in_window, &w->K, 1 + p->axes, shape, strides));
    shape[0] = w->together, strides[0] = of->strides[0];
    w->n = 1;
    for (int i = 0; i < p->axes; i++) {
        shape[1 + i] = result[i], strides[1 + i] = stride[i] * of->strides[2 + i];
        w->n *= result[i];
    }
    return list_offsets(s, &w->of_window, &all, 1 + p->axes, shape, strides);
}

/* Windows of one element need no offsets where samples are not taken together, which then pays for fewer. */
static int64_t columns_for(const problem *p)
{
    for (int i = 0; i < p->axes; i++)
        if (p->kernel[i] > 1) return LEAST_COLUMNS;
    return LEAST_COLUMNS_OF_ELEMENTS;
}

/* How many samples are taken together for `least` windows of them. */
static int64_t samples_for(const problem *p, int64_t n, int64_t least)
{
    return n >= least || n == 0 ? 1 : least_of(p->B > 0 ? p->B : 1, tc_divide_up(least, n));
}

/* Makes room for samples of x with zeros around and between its elements: for so many matrices of windows at least. */
static tc_status surround(tc_scope *s, windows *w, const problem *p, tc_tensor *x, const int64_t *padding, const int64_t *apart,
                          int64_t least)
{
    double bytes = (double)tc_dtype_size(s->compute) * (double)x->shape[1] * (double)w->together;
    for (int i = 0; i < p->axes; i++) bytes *= (double)(apart[i] * x->shape[2 + i] + 2 * padding[i]);
    const double fit = bytes > 0 ? ROOM / bytes : (double)p->B;
    w->most = fit < (double)least ? least : fit < (double)p->B ? (int64_t)fit : p->B;
    TC_TRY(tc_surround(s, &w->of, x, padding, apart, w->most * w->together));
    if (w->of.room == x) w->most = p->B;
    return TC_OK;
}

/* y (B,G M,n), contiguous, = weight (G,M,K) by windows + bias (G M). */
static tc_status convolve(tc_scope *s, const problem *p, tc_tensor *y, const windows *w, int64_t M, const tc_tensor *weight,
                          const tc_tensor *bias)
{
    const int64_t channels = p->G * M, matrix = channels * w->together * w->n * (int64_t)tc_dtype_size(y->dtype);
    const int64_t fitting = matrix > 0 && matrix < ROOM ? ROOM / matrix : 1; /* results of samples together, which are then moved to y */
    for (int64_t sample = 0, samples, count; sample < p->B; sample += samples * count) {
        TC_SCOPE(part, s->err); /* what one turn makes does not outlive it */
        tc_share_scope(&part, s);
        samples = least_of(w->together, p->B - sample);
        count = samples < w->together ? 1 : least_of(w->most, (p->B - sample) / samples);
        if (samples > 1) count = least_of(count, fitting);
        const int64_t N = samples * w->n, start = sample * channels * w->n, *step = w->of.room->strides;
        tc_tensor *to = y, *from;
        int64_t offset;
        TC_TRY(tc_bring_samples(&w->of, sample, samples * count, &offset, s->err));
        if (samples > 1) TC_TRY(tc_make(&part, &to, 3, (int64_t[]){count, channels, N}));
        tc_gemm_args g = {.M = M, .N = N, .K = w->K, .a = weight->data, .bias = tc_data(bias), .bias_of_rows = true, .bias_batch = M};
        g.b = element(w->of.room, w->first + offset);
        g.b_rows = w->in_window, g.b_cols = w->of_window, g.b_row = w->row, g.b_col = w->col;
        g.c = (char *)to->data + (samples > 1 ? 0 : start) * (int64_t)tc_dtype_size(to->dtype);
        g.a_row = w->K, g.a_col = 1, g.c_row = N;
        g.batch_dims = 2, g.batch_shape[0] = count, g.batch_shape[1] = p->G;
        g.a_batch[1] = M * w->K;
        g.b_batch[0] = samples * step[0], g.b_batch[1] = w->channels * step[1];
        g.c_batch[0] = channels * N, g.c_batch[1] = M * N;
        TC_TRY(tc_product(&part, &g, NULL));
        if (samples == 1) continue;
        const int64_t shape[] = {count, samples, channels, w->n};
        TC_TRY(tc_make_view(&part, &from, to, 4, shape, (int64_t[]){channels * N, w->n, N, 1}, 0));
        TC_TRY(tc_make_view(&part, &to, y, 4, shape, (int64_t[]){channels * N, channels * w->n, w->n, 1}, start));
        TC_TRY(tc_tensor_copy(to, from, s->err));
    }
    return TC_OK;
}

tc_status tc_convolve_windows(tc_scope *op, const problem *p, tc_tensor *y, tc_tensor *x, const tc_tensor *weight, tc_tensor *bias)
{
    TC_SCOPE(s, op->err);
    windows w = {.channels = p->C / p->G, .together = samples_for(p, p->N, columns_for(p))};
    tc_share_scope(&s, op);
    TC_TRY(surround(&s, &w, p, x, p->padding, p->ones, 1));
    if (p->O == p->G || !are_elements(&w, p, p->result + 2, p->stride))
        TC_TRY(find_windows(&s, &w, p, p->dilation, p->result + 2, p->stride));
    return convolve(&s, p, y, &w, p->O / p->G, weight, bias);
}

/* ---- the gradient of x ----------------------------------------------------------------------------------------------------- */

/* Element s q + r of an axis of the padded x, with s the stride and r < s, is read by windows q - j, each at position s j + r of the
 * kernel. So the elements of one r are a convolution of dy by every s-th position; those of several r are rows of one product where these
 * are as many, which gives two phases for each axis. With s = 1 there is one, and positions are `dilation` apart. */
typedef struct phase {
    int64_t first[TC_CONVOLUTION_AXES], count[TC_CONVOLUTION_AXES]; /* of the r of each axis */
    int64_t positions[TC_CONVOLUTION_AXES];
    int64_t counts; /* their product */
    bool is_whole;  /* all elements of dx, in their order */
} phase;

/* False: phase `number` has no elements, or no window reads them. */
static bool find_phase(phase *f, const problem *p, int number)
{
    bool is_read = true;
    f->counts = 1;
    f->is_whole = true;
    for (int i = 0; i < p->axes; i++) {
        const int64_t with_one_more = p->kernel[i] % p->phases[i];
        const bool rest = number >> i & 1;
        f->first[i] = rest ? with_one_more : 0;
        f->count[i] = rest ? p->phases[i] - with_one_more : with_one_more;
        f->positions[i] = p->kernel[i] / p->phases[i] + !rest;
        f->counts *= f->count[i];
        is_read = is_read && f->positions[i] > 0;
        f->is_whole = f->is_whole && p->phases[i] == 1;
    }
    return is_read && f->counts > 0;
}

/* *out (G,C/G,count...,O/G,positions...): weight's part for a phase, with the channels of a group exchanged. */
static tc_status take_weight(tc_scope *s, tc_tensor **out, const problem *p, const phase *f, tc_tensor *weight)
{
    const int n = p->axes;
    const int64_t C = p->C / p->G, O = p->O / p->G, *step = weight->strides;
    int64_t shape[TC_MAX_DIMS] = {p->G, C}, strides[TC_MAX_DIMS] = {O * step[0], step[1]}, offset = 0;
    tc_tensor *view;
    shape[2 + n] = O, strides[2 + n] = step[0];
    for (int i = 0; i < n; i++) {
        shape[2 + i] = f->count[i], strides[2 + i] = step[2 + i];
        shape[3 + n + i] = f->positions[i], strides[3 + n + i] = p->phases[i] * step[2 + i];
        offset += f->first[i] * step[2 + i];
    }
    TC_TRY(tc_make(s, out, 3 + 2 * n, shape));
    TC_TRY(tc_make_view(s, &view, weight, 3 + 2 * n, shape, strides, offset));
    return tc_tensor_copy(*out, view, s->err);
}

/* *out: each element of bias, if there is one, for so many rows of a product. */
static tc_status repeat_bias(tc_scope *s, const tc_tensor **out, tc_tensor *bias, int64_t times)
{
    tc_tensor *view, *repeated;
    *out = bias;
    if (!bias || times == 1) return TC_OK;
    const int64_t shape[] = {bias->shape[0], times};
    TC_TRY(tc_make(s, &repeated, 2, shape));
    TC_TRY(tc_make_view(s, &view, bias, 2, shape, (int64_t[]){1, 0}, 0));
    *out = repeated;
    return tc_tensor_copy(repeated, view, s->err);
}

/* Brings the results of a phase, (samples,C,count...,q...) from q = padding / stride on, to their places in dx. */
static tc_status spread(const problem *p, const phase *f, tc_tensor *dx, int64_t sample, tc_tensor *results, tc_error *err)
{
    const int n = p->axes;
    for (int64_t number = 0; number < f->counts; number++) {
        TC_OWNED tc_tensor *to = NULL, *from = NULL;
        int64_t shape[TC_MAX_DIMS] = {results->shape[0], p->C}, to_strides[TC_MAX_DIMS] = {dx->strides[0], dx->strides[1]};
        int64_t from_strides[TC_MAX_DIMS] = {results->strides[0], results->strides[1]};
        int64_t to_offset = sample * dx->strides[0], from_offset = 0, rest = number;
        bool any = true;
        for (int i = n - 1; i >= 0; rest /= f->count[i--]) {
            const int64_t stride = p->phases[i], r = f->first[i] + rest % f->count[i], q = p->padding[i] / stride;
            const int64_t start =
                q * stride + r < p->padding[i] ? (q + 1) * stride + r : q * stride + r; /* the first that is not padding */
            const int64_t at = start - p->padding[i];
            any = any && at < dx->shape[2 + i];
            shape[2 + i] = tc_divide_up(dx->shape[2 + i] - at, stride);
            to_offset += at * dx->strides[2 + i], to_strides[2 + i] = stride * dx->strides[2 + i];
            from_offset += rest % f->count[i] * results->strides[2 + i] + (start / stride - q) * results->strides[2 + n + i];
            from_strides[2 + i] = results->strides[2 + n + i];
        }
        if (!any) continue;
        TC_TRY(tc_tensor_alias(&to, dx, 2 + n, shape, to_strides, to_offset, err));
        TC_TRY(tc_tensor_alias(&from, results, 2 + n, shape, from_strides, from_offset, err));
        TC_TRY(tc_tensor_copy(to, from, err));
    }
    return TC_OK;
}

static tc_status compute_phase(const tc_scope *op, const problem *p, const phase *f, tc_tensor *dx, tc_tensor *dy, tc_tensor *weight,
                               tc_tensor *bias)
{
    TC_SCOPE(s, op->err);
    const int n = p->axes;
    int64_t around[TC_CONVOLUTION_AXES], back[TC_CONVOLUTION_AXES], lead[TC_CONVOLUTION_AXES], columns = 1;
    int64_t shape[TC_MAX_DIMS] = {0, p->C}, of_dy[TC_MAX_DIMS];
    problem part = *p;
    tc_tensor *weights;
    const tc_tensor *biases;
    tc_share_scope(&s, op);
    for (int i = 0; i < n; i++) {
        const int64_t first = p->padding[i] / p->phases[i], last = (p->padding[i] + dx->shape[2 + i] - 1) / p->phases[i];
        const int64_t step = p->phases[i] == 1 ? p->dilation[i] : 1, before = step * (f->positions[i] - 1) - first;
        const int64_t after = last - p->apart[i] * p->result[2 + i] + 1, more = before > after ? before : after;
        part.kernel[i] = f->positions[i];
        around[i] = more > 0 ? more : 0, back[i] = -step, lead[i] = around[i] + first;
        shape[2 + i] = f->count[i], shape[2 + n + i] = last - first + 1;
        columns *= shape[2 + n + i];
    }
    TC_TRY(take_weight(&s, &weights, p, f, weight));
    TC_TRY(repeat_bias(&s, &biases, bias, f->counts));
    windows w = {.channels = p->O / p->G, .together = samples_for(p, columns, columns_for(&part))};
    const int64_t bytes = p->C * f->counts * columns * (int64_t)tc_dtype_size(s.compute), fit = f->is_whole ? p->B : ROOM / bytes;
    const int64_t most = fit > w.together ? fit : w.together;
    for (int64_t sample = 0; sample < p->B; sample += most) {
        TC_SCOPE(turn, s.err);
        tc_tensor *some, *results = dx;
        tc_share_scope(&turn, &s);
        part.B = of_dy[0] = shape[0] = least_of(most, p->B - sample);
        w.first = 0;
        for (int i = 1; i < dy->ndim; i++) of_dy[i] = dy->shape[i];
        TC_TRY(tc_make_view(&turn, &some, dy, dy->ndim, of_dy, dy->strides, sample * dy->strides[0]));
        TC_TRY(surround(&turn, &w, &part, some, around, p->apart, 1));
        for (int i = 0; i < n; i++) w.first += lead[i] * w.of.room->strides[2 + i];
        if (p->C == p->G || !are_elements(&w, &part, shape + 2 + n, p->ones))
            TC_TRY(find_windows(&turn, &w, &part, back, shape + 2 + n, p->ones));
        if (!f->is_whole) TC_TRY(tc_make(&turn, &results, 2 + 2 * n, shape));
        TC_TRY(convolve(&turn, &part, results, &w, p->C / p->G * f->counts, weights, biases));
        if (!f->is_whole) TC_TRY(spread(p, f, dx, sample, results, s.err));
    }
    return TC_OK;
}

/* dx = bias, or 0, everywhere: where strides are longer than the kernel, no window reads some elements. */
static tc_status fill_gaps(tc_scope *s, const problem *p, tc_tensor *dx, tc_tensor *bias)
{
    const int64_t strides[TC_MAX_DIMS] = {0, bias ? 1 : 0};
    TC_OWNED tc_tensor *value = NULL, *spread = NULL;
    bool gaps = false;
    for (int i = 0; i < p->axes; i++) gaps = gaps || p->kernel[i] < p->phases[i];
    if (!gaps) return TC_OK;
    if (!bias) TC_TRY(tc_tensor_zeros(&value, 0, NULL, dx->dtype, s->device, s->err));
    TC_TRY(tc_tensor_alias(&spread, bias ? bias : value, dx->ndim, dx->shape, strides, 0, s->err));
    return tc_tensor_copy(dx, spread, s->err);
}

tc_status tc_window_gradient_of_x(tc_scope *op, const problem *p, tc_tensor *dx, tc_tensor *dy, tc_tensor *weight, tc_tensor *bias)
{
    phase f;
    if (dx->numel) TC_TRY(fill_gaps(op, p, dx, bias));
    for (int number = 0; number < 1 << p->axes && dx->numel; number++)
        if (find_phase(&f, p, number)) TC_TRY(compute_phase(op, p, &f, dx, dy, weight, bias));
    return TC_OK;
}

/* ---- the gradient of weight ------------------------------------------------------------------------------------------------ */

/* *stride: between neighbours of x's spatial axes, if they lie as those of one axis do. */
static bool is_one_axis(const tc_tensor *x, int64_t *stride)
{
    int64_t count = 1;
    *stride = 1;
    for (int i = x->ndim - 1; i >= 2; i--) {
        if (x->shape[i] == 1) continue;
        if (count == 1) *stride = x->strides[i];
        if (x->strides[i] != *stride * count) return false;
        count *= x->shape[i];
    }
    return true;
}

/* *out (count,O,samples n): dy of so many samples from number `sample` on. */
static tc_status gather_dy(tc_scope *s, tc_tensor **out, const problem *p, tc_tensor *dy, int64_t sample, int64_t samples, int64_t count)
{
    int64_t shape[TC_MAX_DIMS] = {count, p->O, samples}, strides[TC_MAX_DIMS] = {samples * dy->strides[0], dy->strides[1], dy->strides[0]};
    tc_tensor *view;
    for (int i = 0; i < p->axes; i++) shape[3 + i] = dy->shape[2 + i], strides[3 + i] = dy->strides[2 + i];
    TC_TRY(tc_make(s, out, 3 + p->axes, shape));
    TC_TRY(tc_make_view(s, &view, dy, 3 + p->axes, shape, strides, sample * dy->strides[0]));
    return tc_tensor_copy(*out, view, s->err);
}

tc_status tc_window_gradient_of_weight(const tc_scope *op, const problem *p, tc_tensor *dweight, tc_tensor *dy, tc_tensor *x)
{
    TC_SCOPE(s, op->err);
    const int64_t M = p->O / p->G, size = p->O * p->K, fit = PARTIAL_ELEMENTS / (size > 0 ? size : 1);
    const int64_t most = fit < 1 ? 1 : least_of(fit, MOST_PARTIALS);
    tc_tensor *partial = NULL;
    int64_t along = 1;
    tc_share_scope(&s, op);
    if (dy->numel == 0 || size == 0) {
        TC_OWNED tc_tensor *zeros = NULL;
        TC_TRY(tc_tensor_zeros(&zeros, 0, NULL, s.compute, s.device, s.err));
        return tc_tensor_copy(dweight, zeros, s.err);
    }
    windows w = {.channels = p->C / p->G, .together = samples_for(p, p->N, LEAST_TERMS)};
    TC_TRY(surround(&s, &w, p, x, p->padding, p->ones, LEAST_PARTIALS));
    TC_TRY(find_windows(&s, &w, p, p->dilation, p->result + 2, p->stride));
    const bool in_place = w.together == 1 && is_one_axis(dy, &along);
    for (int64_t sample = 0, samples, count; sample < p->B; sample += samples * count) {
        TC_SCOPE(part, s.err);
        tc_share_scope(&part, &s);
        samples = least_of(w.together, p->B - sample);
        count = samples < w.together ? 1 : least_of((p->B - sample) / samples, least_of(w.most, most));
        tc_gemm_args g = {.M = M, .N = p->K, .K = samples * w.n, .c_row = p->K, .c = dweight->data, .k_is_rows = true};
        tc_tensor *d = dy;
        int64_t first = sample * dy->strides[0], offset;
        const int64_t *step = w.of.room->strides;
        TC_TRY(tc_bring_samples(&w.of, sample, samples * count, &offset, s.err));
        g.a_row = dy->strides[1], g.a_col = along, g.a_batch[0] = dy->strides[0];
        if (!in_place) {
            TC_TRY(gather_dy(&part, &d, p, dy, sample, samples, count));
            first = 0, g.a_row = g.K, g.a_col = 1, g.a_batch[0] = p->O * g.K;
        }
        g.a = element(d, first), g.a_batch[1] = M * g.a_row;
        g.b = element(w.of.room, offset), g.b_rows = w.of_window, g.b_cols = w.in_window;
        g.batch_dims = 2, g.batch_shape[0] = count, g.batch_shape[1] = p->G;
        g.b_batch[0] = samples * step[0], g.b_batch[1] = w.channels * step[1];
        g.c_batch[0] = size, g.c_batch[1] = M * p->K;
        if (samples * count < p->B && !partial) TC_TRY(tc_make_statistic(&s, &partial, 2, (int64_t[]){most, size}));
        if (count > 1 && !partial) TC_TRY(tc_make_statistic(&s, &partial, 2, (int64_t[]){count, size}));
        if (partial) g.c = partial->data;
        TC_TRY(tc_product(&part, &g, NULL));
        if (!partial) continue;
        const tc_sum_partials_args sum = {
            .out = dweight->data, .partial = partial->data, .before = sample ? dweight->data : NULL, .chunks = count, .C = size};
        TC_TRY(tc_compute(&s, &tc_kernel_sum_partials, &sum, tc_divide_up(size, TC_SUM_PARTIALS_GROUP),
                          (double)(count * TC_SUM_PARTIALS_GROUP)));
    }
    return TC_OK;
}
