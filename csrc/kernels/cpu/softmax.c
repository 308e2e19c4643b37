/* softmax.c: y = e^(x - max x) / sum e^(x - max x) over rows, its logarithm, the fused cross-entropy, and their gradients. */
#include "../read_index.h"
#include "../softmax.h"
#include "ahead.h"
#include "softmax_rows.h"

/* ---- one row ---------------------------------------------------------------------------------------------------------------- */

typedef struct logarithm_row {
    vreal top, log_sum;
    real *y;
    const real *x;
} logarithm_row;

TC_INLINE void write_logarithm(void *row, int64_t i, int lanes)
{
    const logarithm_row *r = row;
    v_store_some(r->y + i, (v_load_some(r->x + i, lanes) - r->top) - r->log_sum, lanes);
}

typedef struct scaled_row {
    vreal by;
    real *y;
} scaled_row;

TC_INLINE void scale(void *row, int64_t i, int lanes)
{
    const scaled_row *r = row;
    v_store_some(r->y + i, v_load_some(r->y + i, lanes) * r->by, lanes);
}

static void forward_row(real *y, const real *x, int64_t C, bool logarithm)
{
    const real top = row_top(x, C);
    if (logarithm) { /* the difference first, which is exact for values near `top`: top + log(sum) would lose digits */
        logarithm_row row = {v_set1(top), v_set1(real_log(row_exp_sum(NULL, x, C, top))), y, x};
        each_vector(write_logarithm, &row, &(vectors_ahead){sizeof(real), rows_ahead(C), .writes = y}, 0, C);
        return;
    }
    scaled_row row = {v_set1(R(1.0) / row_exp_sum(y, x, C, top)), y};
    each_vector(scale, &row, &(vectors_ahead){0}, 0, C);
}

typedef struct gradient_row {
    vreal sum;
    real *dx;
    const real *dy, *y;
    bool logarithm;
} gradient_row;

TC_INLINE vreal add_gradient(vreal sum, const void *row, int64_t i, int lanes)
{
    const gradient_row *r = row;
    const vreal d = v_load_some(r->dy + i, lanes);
    return r->logarithm ? sum + d : v_fma(d, v_load_some(r->y + i, lanes), sum);
}

/* softmax: dx = y (dy - sum dy y);  log softmax: dx = dy - e^y sum dy. */
TC_INLINE void write_gradient(void *row, int64_t i, int lanes)
{
    const gradient_row *r = row;
    const vreal d = v_load_some(r->dy + i, lanes), v = v_load_some(r->y + i, lanes);
    v_store_some(r->dx + i, r->logarithm ? v_fnma(v_exp_weight(v), r->sum, d) : v * (d - r->sum), lanes);
}

static void backward_row(real *dx, const real *dy, const real *y, int64_t C, bool logarithm)
{
    gradient_row row = {.dx = dx, .dy = dy, .y = y, .logarithm = logarithm};
    row.sum = v_set1(row_sum_in_blocks(add_gradient, &row, C));
    each_vector(write_gradient, &row, &(vectors_ahead){sizeof(real), rows_ahead(C), {dy, y}, dx}, 0, C);
}

/* ---- rows side by side --------------------------------------------------------------------------------------------------------- */

static void forward_columns(real *y, const real *x, int64_t C, int64_t stride, int lanes, bool logarithm)
{
    const vreal top = column_top(x, C, stride, lanes);
    if (logarithm) {
        const vreal log_sum = v_log(column_exp_sum(NULL, x, C, stride, lanes, top));
        for (int64_t c = 0; c < C; c++) v_store_some(y + c * stride, (v_load_some(x + c * stride, lanes) - top) - log_sum, lanes);
        return;
    }
    const vreal scale = v_set1(R(1.0)) / column_exp_sum(y, x, C, stride, lanes, top);
    for (int64_t c = 0; c < C; c++) v_store_some(y + c * stride, v_load_some(y + c * stride, lanes) * scale, lanes);
}

static void backward_columns(real *dx, const real *dy, const real *y, int64_t C, int64_t stride, int lanes, bool logarithm)
{
    vreal total = v_zero();
    for (int64_t first = 0; first < C; first += COLUMN_BLOCK) {
        const int64_t last = first + COLUMN_BLOCK < C ? first + COLUMN_BLOCK : C;
        vreal sum = v_zero();
        for (int64_t c = first; c < last; c++) {
            const vreal d = v_load_some(dy + c * stride, lanes);
            sum = logarithm ? sum + d : v_fma(d, v_load_some(y + c * stride, lanes), sum);
        }
        total = total + sum;
    }
    for (int64_t c = 0; c < C; c++) {
        const vreal d = v_load_some(dy + c * stride, lanes), v = v_load_some(y + c * stride, lanes);
        v_store_some(dx + c * stride, logarithm ? v_fnma(v_exp_weight(v), total, d) : v * (d - total), lanes);
    }
}

/* ---- ranges ------------------------------------------------------------------------------------------------------------------------ */

static void forward_rows(const tc_softmax_forward_args *a, int64_t first, int64_t last)
{
    const real *x = a->x;
    real *y = a->y;
    const int64_t C = a->C;
    if (C > NARROW_ROW) {
        for (int64_t n = first; n < last; n++) forward_row(y + n * C, x + n * C, C, a->logarithm);
        return;
    }
    real side[NARROW_ROW * TC_LANES];
    for (int64_t n = first; n < last; n += TC_LANES) {
        const int lanes = v_left(last, n);
        rows_to_columns(side, x + n * C, C, C, lanes);
        forward_columns(side, side, C, TC_LANES, TC_LANES, a->logarithm);
        columns_to_rows(y + n * C, side, C, C, lanes);
    }
}

static void backward_rows(const tc_softmax_backward_args *a, int64_t first, int64_t last)
{
    const real *dy = a->dy, *y = a->y;
    real *dx = a->dx;
    const int64_t C = a->C;
    if (C > NARROW_ROW) {
        for (int64_t n = first; n < last; n++) backward_row(dx + n * C, dy + n * C, y + n * C, C, a->logarithm);
        return;
    }
    real side_dy[NARROW_ROW * TC_LANES], side_y[NARROW_ROW * TC_LANES];
    for (int64_t n = first; n < last; n += TC_LANES) {
        const int lanes = v_left(last, n);
        rows_to_columns(side_dy, dy + n * C, C, C, lanes);
        rows_to_columns(side_y, y + n * C, C, C, lanes);
        backward_columns(side_dy, side_dy, side_y, C, TC_LANES, TC_LANES, a->logarithm);
        columns_to_rows(dx + n * C, side_dy, C, C, lanes);
    }
}

TC_DEFINE_KERNEL(softmax_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_softmax_forward_args *a = args;
    const int64_t groups = (a->inner + TC_SOFTMAX_ROWS - 1) / TC_SOFTMAX_ROWS;
    (void)scratch;
    for (int64_t item = begin; item < end; item++) {
        if (a->inner == 1) {
            const item_range rows = range_of_items(item, item + 1, TC_SOFTMAX_ROWS, a->outer);
            forward_rows(a, rows.first, rows.last);
            continue;
        }
        const int64_t at = item / groups * a->C * a->inner;
        const item_range side = range_of_items(item % groups, item % groups + 1, TC_SOFTMAX_ROWS, a->inner);
        for (int64_t i = side.first; i < side.last; i += TC_LANES)
            forward_columns((real *)a->y + at + i, (const real *)a->x + at + i, a->C, a->inner, v_left(side.last, i), a->logarithm);
    }
}

TC_DEFINE_KERNEL(softmax_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_softmax_backward_args *a = args;
    const int64_t groups = (a->inner + TC_SOFTMAX_ROWS - 1) / TC_SOFTMAX_ROWS;
    (void)scratch;
    for (int64_t item = begin; item < end; item++) {
        if (a->inner == 1) {
            const item_range rows = range_of_items(item, item + 1, TC_SOFTMAX_ROWS, a->outer);
            backward_rows(a, rows.first, rows.last);
            continue;
        }
        const int64_t at = item / groups * a->C * a->inner;
        const item_range side = range_of_items(item % groups, item % groups + 1, TC_SOFTMAX_ROWS, a->inner);
        for (int64_t i = side.first; i < side.last; i += TC_LANES)
            backward_columns((real *)a->dx + at + i, (const real *)a->dy + at + i, (const real *)a->y + at + i, a->C, a->inner,
                             v_left(side.last, i), a->logarithm);
    }
}

/* ---- cross-entropy -------------------------------------------------------------------------------------------------------------- */

/* The class of a row, or TC_NO_INDEX for a row that does not count. */
TC_INLINE int64_t read_class(const int64_t *target, int64_t C, int64_t ignore_index)
{
    const int64_t t = tc_read_index_below(target, C);
    return t == ignore_index ? TC_NO_INDEX : t;
}

/* top and log_sum of rows [first, last), one step for all of them before the next, so that no row waits for its own. */
static void normalise_rows(const tc_cross_entropy_forward_args *a, int64_t first, int64_t last)
{
    const real *x = a->x;
    real *top = a->top, *log_sum = a->log_sum;
    const int64_t C = a->C;
    if (is_narrow_row(C)) {
        real side[NARROW_ROW * TC_LANES];
        for (int64_t n = first; n < last; n += TC_LANES) {
            const int lanes = v_left(last, n);
            rows_to_columns(side, x + n * C, C, C, lanes);
            const vreal tops = column_top(side, C, TC_LANES, TC_LANES);
            v_store_some(top + n, tops, lanes);
            v_store_some(log_sum + n, v_log(column_exp_sum(NULL, side, C, TC_LANES, TC_LANES, tops)), lanes);
        }
        return;
    }
    for (int64_t n = first; n < last; n++) top[n] = row_top(x + n * C, C);
    for (int64_t n = first; n < last; n++) log_sum[n] = row_exp_sum(NULL, x + n * C, C, top[n]);
    for (int64_t n = first; n < last; n++) log_sum[n] = real_log(log_sum[n]);
}

TC_INLINE real class_loss(const tc_cross_entropy_forward_args *a, const real *x, int64_t t, real top, real log_sum)
{
    const int64_t C = a->C;
    const real *weight = a->weight, smoothing = (real)a->smoothing;
    const real loss = (R(1.0) - smoothing) * (weight ? weight[t] : R(1.0)) * ((top - x[t]) + log_sum);
    if (smoothing == 0) return loss;
    real spread = R(0.0);
    for (int64_t c = 0; c < C; c++) spread += (weight ? weight[c] : R(1.0)) * ((top - x[c]) + log_sum);
    return loss + smoothing / (real)C * spread;
}

TC_DEFINE_KERNEL(cross_entropy_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_cross_entropy_forward_args *a = args;
    const int64_t C = a->C, block = rows_of_block(C);
    const real *top = a->top, *log_sum = a->log_sum;
    (void)scratch;
    for (int64_t first = begin; first < end; first += block) {
        const int64_t last = end - first < block ? end : first + block;
        if (!a->logarithms) normalise_rows(a, first, last);
        for (int64_t n = first; n < last; n++) {
            const real *x = (const real *)a->x + n * C;
            const int64_t t = read_class(a->target + n, C, a->ignore_index);
            const real of_top = a->logarithms ? R(0.0) : top[n], of_sum = a->logarithms ? R(0.0) : log_sum[n];
            ((real *)a->loss)[n] = t == TC_NO_INDEX ? R(0.0) : class_loss(a, x, t, of_top, of_sum);
        }
    }
}

/* p scale - even w with p = e^((x - top) - log_sum), less at_target for the class of the row; 0 of a row that does not count. */
typedef struct class_factors {
    int64_t target; /* or TC_NO_INDEX */
    real at_target, scale, even;
} class_factors;

/* `weights`: the sum of those of all classes. */
TC_INLINE class_factors class_factors_of(const tc_cross_entropy_backward_args *a, int64_t n, real weights)
{
    const int64_t t = read_class(a->target + n, a->C, a->ignore_index);
    if (t == TC_NO_INDEX) return (class_factors){t, R(0.0), R(0.0), R(0.0)};
    const real *weight = a->weight, dloss = ((const real *)a->dloss)[n], smoothing = (real)a->smoothing;
    const real at_target = dloss * (R(1.0) - smoothing) * (weight ? weight[t] : R(1.0)), even = dloss * smoothing / (real)a->C;
    return (class_factors){t, at_target, at_target + even * weights, even};
}

typedef struct class_gradient_row {
    vreal top, log_sum, scale, even;
    real *dx;
    const real *x, *weight;
    bool logarithms, ignored;
} class_gradient_row;

TC_INLINE void write_class_gradient(void *row, int64_t i, int lanes)
{
    const class_gradient_row *r = row;
    const vreal p = r->logarithms ? v_zero() : v_exp_weight((v_load_some(r->x + i, lanes) - r->top) - r->log_sum);
    const vreal w = r->weight ? v_load_some(r->weight + i, lanes) : v_set1(R(1.0));
    v_store_some(r->dx + i, r->ignored ? v_zero() : v_fnma(r->even, w, p * r->scale), lanes);
}

static void class_gradient(const tc_cross_entropy_backward_args *a, int64_t n, real weights)
{
    const int64_t C = a->C;
    const class_factors f = class_factors_of(a, n, weights);
    real *dx = (real *)a->dx + n * C;
    class_gradient_row row = {.dx = dx,
                              .x = (const real *)a->x + n * C,
                              .weight = a->weight,
                              .top = v_set1(a->logarithms ? R(0.0) : ((const real *)a->top)[n]),
                              .log_sum = v_set1(a->logarithms ? R(0.0) : ((const real *)a->log_sum)[n]),
                              .scale = v_set1(f.scale),
                              .even = v_set1(f.even),
                              .logarithms = a->logarithms,
                              .ignored = f.target == TC_NO_INDEX};
    each_vector(write_class_gradient, &row, &(vectors_ahead){sizeof(real), array_ahead(), {row.x}, dx}, 0, C);
    if (!row.ignored) dx[f.target] -= f.at_target;
}

/* The same of `lanes` rows that do not fill a vector, one per lane. */
static void class_gradient_columns(const tc_cross_entropy_backward_args *a, int64_t n, int lanes, real weights)
{
    const int64_t C = a->C;
    const real *weight = a->weight;
    real side[TC_LANES * TC_LANES], target[TC_LANES] = {0}, at_target[TC_LANES] = {0}, scale[TC_LANES] = {0}, even[TC_LANES] = {0};
    for (int lane = 0; lane < lanes; lane++) {
        const class_factors f = class_factors_of(a, n + lane, weights);
        target[lane] = (real)f.target, at_target[lane] = f.at_target, scale[lane] = f.scale, even[lane] = f.even;
    }
    rows_to_columns(side, (const real *)a->x + n * C, C, C, lanes);
    const vreal top = v_load_some((const real *)a->top + n, lanes), log_sum = v_load_some((const real *)a->log_sum + n, lanes);
    const vreal targets = v_load(target);
    const vmask ignored = v_eq(targets, v_set1((real)TC_NO_INDEX));
    for (int64_t c = 0; c < C; c++) {
        const vreal p = v_exp_weight((v_load(side + c * TC_LANES) - top) - log_sum), w = v_set1(weight ? weight[c] : R(1.0));
        const vreal others = v_fnma(v_load(even), w, p * v_load(scale));
        const vreal gradient = v_select(v_eq(targets, v_set1((real)c)), others - v_load(at_target), others);
        v_store(side + c * TC_LANES, v_select(ignored, v_zero(), gradient));
    }
    columns_to_rows((real *)a->dx + n * C, side, C, C, lanes);
}

/* dx[c] = dloss ((1 - s) w[t] (p[c] - [c = t]) + s / C (p[c] sum(w) - w[c])),  p = e^((x - top) - log_sum). */
TC_DEFINE_KERNEL(cross_entropy_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_cross_entropy_backward_args *a = args;
    const real *weight = a->weight;
    real weights = weight ? R(0.0) : (real)a->C;
    (void)scratch;
    for (int64_t c = 0; weight && c < a->C; c++) weights += weight[c];
    if (a->C < TC_LANES && !a->logarithms)
        for (int64_t n = begin; n < end; n += TC_LANES) class_gradient_columns(a, n, v_left(end, n), weights);
    else
        for (int64_t n = begin; n < end; n++) class_gradient(a, n, weights);
}
