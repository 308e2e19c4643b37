/* reduction.c: see reduction.h. */
#include "reduction.h"

#include <inttypes.h>
#include <string.h>

#include "../kernels/sum_partials.h"
#include "backend.h"
#include "copy.h"
#include "dtype.h"
#include "layout.h"
#include "own.h"

/* ---- axes --------------------------------------------------------------------------------------------------------------- */

tc_status tc_read_axes(tc_axis_set *set, const tc_tensor *x, int count, const int64_t *axes, tc_error *err)
{
    memset(set, 0, sizeof *set);
    set->all = count < 0;
    for (int i = 0; set->all && i < x->ndim; i++) set->reduced[i] = true;
    for (int i = 0; i < count; i++) {
        int axis;
        TC_TRY(tc_normalize_axis(&axis, axes[i], x->ndim, "axis", err)); /* 0 of a single element, which has none */
        if (set->reduced[axis]) return tc_fail(err, TC_ERROR_VALUE, "axis %" PRId64 " is given twice", axes[i]);
        set->reduced[axis] = true;
    }
    for (int i = 0; i < x->ndim; i++) set->count += set->reduced[i];
    return TC_OK;
}

void tc_reduced_shape(const tc_axis_set *set, const tc_tensor *x, bool keepdims, int *ndim, int64_t shape[TC_MAX_DIMS])
{
    *ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (!set->reduced[i])
            shape[(*ndim)++] = x->shape[i];
        else if (keepdims)
            shape[(*ndim)++] = 1;
    }
}

int64_t tc_reduced_count(const tc_axis_set *set, const tc_tensor *x)
{
    int64_t count = 1;
    for (int i = 0; i < x->ndim; i++)
        if (set->reduced[i]) count *= x->shape[i];
    return count;
}

/* ---- running ------------------------------------------------------------------------------------------------------------ */

/* Splits the axes of x into the two groups of the kernel, with as few axes as possible. `ordered`: the reduced axes keep their order. */
static void describe(tc_reduce_args *args, const tc_tensor *x, const tc_axis_set *set, bool ordered)
{
    args->x = x->data;
    args->x_dtype = x->dtype;
    args->kept_ndim = args->reduced_ndim = 0;
    args->kept = args->reduced = 1;
    for (int i = 0; i < x->ndim; i++) {
        int *ndim = set->reduced[i] ? &args->reduced_ndim : &args->kept_ndim;
        (set->reduced[i] ? args->reduced_shape : args->kept_shape)[*ndim] = x->shape[i];
        (set->reduced[i] ? args->reduced_strides : args->kept_strides)[(*ndim)++] = x->strides[i];
        *(set->reduced[i] ? &args->reduced : &args->kept) *= x->shape[i];
    }
    if (args->reduced == 0) { /* nothing to walk over: kernels expect one axis without elements */
        args->reduced_ndim = 1;
        args->reduced_shape[0] = args->reduced_strides[0] = 0;
    }
    int64_t *const kept[1] = {args->kept_strides}, *const reduced[1] = {args->reduced_strides};
    args->kept_ndim = tc_layout_merge(args->kept_ndim, args->kept_shape, 1, kept, false);
    args->reduced_ndim = tc_layout_merge(args->reduced_ndim, args->reduced_shape, 1, reduced, !ordered);
}

/* With fewer results (or tiles of them), the segments of a long reduction are items; on GPUs those of rows always are. */
#define FEW_RESULTS 64

/* Elements of a segment. On a GPU a block of threads reads these in a few steps. */
static int64_t row_segment(tc_device device) { return device.type == TC_CUDA ? 4096 : 16384; }

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Kernels that walk along the results expect an axis of them: a single column has one of length 1. */
static void keep_one_column(tc_reduce_args *args)
{
    args->kept_shape[args->kept_ndim] = 1;
    args->kept_strides[args->kept_ndim++] = 0;
}

/* tc_reduce_by_columns for sums, whose bits depend on it: the last kept axis decides whatever its length, so that a result has the same
 * bits however many come with it. An axis with a stride of 0 does not say where results are. */
static bool walk_columns(tc_reduce_args *args, const tc_tensor *x, const tc_axis_set *set)
{
    int last = x->ndim - 1;
    while (last >= 0 && (set->reduced[last] || x->strides[last] == 0)) last--;
    if (args->reduced_ndim == 0) return args->kept_ndim > 0; /* only axes of length 1 are reduced: a copy */
    const int64_t step = magnitude(args->reduced_strides[args->reduced_ndim - 1]);
    if (last < 0 || magnitude(x->strides[last]) >= step) return false;
    const bool has_others = args->kept_ndim > 0 && magnitude(args->kept_strides[args->kept_ndim - 1]) < step; /* that lie closer, too */
    if (x->shape[last] == 1 && !has_others) keep_one_column(args);
    return true;
}

/* Does it change nothing when elements are taken several times, and in any order? */
static bool is_idempotent(int step) { return step == TC_STEP_max || step == TC_STEP_min || step == TC_STEP_any || step == TC_STEP_all; }

/* Rows shorter than a vector of the processor are reduced side by side, where the order does not matter: extremes and truth values. */
static bool across_short_rows(const tc_reduce_args *args, tc_device device)
{
    const bool ordered = !is_idempotent(args->step);
    return device.type == TC_CPU && !ordered && args->kept_ndim > 0 && args->reduced < 16;
}

/* Runs the kernel on `args`; writes (kept, segments), or (outer, segments, columns). */
static tc_status run_segments(const tc_reduce_args *args, bool columns, tc_device device, tc_dtype compute, tc_error *err)
{
    const double segment = (double)(args->segments > 1 && args->segment < args->reduced ? args->segment : args->reduced);
    if (!columns)
        return tc_run_interruptible(device, compute, &tc_kernel_reduce_rows, args, args->kept * args->segments, segment + 8.0, err);
    const int64_t width = args->kept_shape[args->kept_ndim - 1], tiles = tc_divide_up(width, TC_REDUCE_TILE);
    const double tile = (double)(width < TC_REDUCE_TILE ? width : TC_REDUCE_TILE);
    return tc_run_interruptible(device, compute, &tc_kernel_reduce_columns, args, args->kept / width * args->segments * tiles,
                                segment * tile + 8.0, err);
}

static void choose_segments(tc_reduce_args *args, bool columns, tc_device device)
{
    int64_t length = columns ? TC_REDUCE_ROWS : row_segment(device), results = args->kept;
    args->segment = args->reduced;
    args->segments = 1;
    if (args->reduced <= 2 * length) return;
    if (columns) {
        const int64_t width = args->kept_shape[args->kept_ndim - 1], chunk = tc_reduction_chunk(args->reduced);
        results = args->kept / width * tc_divide_up(width, TC_REDUCE_TILE);
        if (length < chunk) length = chunk;
    }
    args->segment = length;
    if (results < FEW_RESULTS || (device.type == TC_CUDA && !columns)) args->segments = tc_divide_up(args->reduced, length);
}

/* Reduces the segments into `partial` (outer, segments, width), and that, along its middle axis, into out. */
static tc_status reduce_twice(tc_tensor *out, tc_tensor *partial, tc_reduce_args *args, bool columns, tc_error *err)
{
    static const tc_axis_set middle = {.reduced = {false, true, false}, .count = 1};
    const tc_device device = partial->storage->device;
    tc_reduce_args second = {.step = args->step == TC_STEP_square_difference ? TC_STEP_sum : args->step,
                             .out = out->data,
                             .out_dtype = out->dtype,
                             .divisor = args->divisor};
    args->out = partial->data;
    args->out_dtype = partial->dtype;
    args->divisor = 1.0;
    TC_TRY(run_segments(args, columns, device, partial->dtype, err));
    describe(&second, partial, &middle, false);
    if (columns && partial->shape[2] == 1) keep_one_column(&second);
    second.segment = columns ? 1 : second.reduced; /* in order, as an item adds up its own */
    second.segments = 1;
    return run_segments(&second, columns, device, partial->dtype, err);
}

static tc_status reduce_floats(tc_tensor *out, const tc_tensor *x, const tc_axis_set *set, tc_reduce_step step, const tc_tensor *center,
                               double divisor, tc_error *err)
{
    tc_reduce_args args = {
        .step = step, .out = out->data, .out_dtype = out->dtype, .center = center ? center->data : NULL, .divisor = divisor};
    const tc_dtype compute = tc_compute_dtype(x->dtype);
    const tc_device device = x->storage->device;
    if (out->numel == 0) return TC_OK;
    describe(&args, x, set, false);
    const bool columns = walk_columns(&args, x, set) || across_short_rows(&args, device);
    choose_segments(&args, columns, device);
    if (args.segments == 1) return run_segments(&args, columns, device, compute, err);
    const int64_t width = columns ? args.kept_shape[args.kept_ndim - 1] : 1, shape[3] = {args.kept / width, args.segments, width};
    TC_OWNED tc_tensor *partial = NULL;
    TC_TRY(tc_tensor_empty(&partial, 3, shape, compute, device, err));
    return reduce_twice(out, partial, &args, columns, err);
}

/* As floats, but only long sums in segments: integers may be added in any order. */
static tc_status reduce_integers(tc_tensor *out, const tc_tensor *x, const tc_axis_set *set, tc_reduce_step step, bool arg, tc_error *err)
{
    static const tc_axis_set last = {.reduced = {false, true}, .count = 1};
    tc_reduce_args args = {.step = step, .arg = arg, .out = out->data, .out_dtype = out->dtype};
    describe(&args, x, set, arg);
    args.segments = 1;
    if (!arg && out->numel > 0 && args.reduced > 2 * row_segment(x->storage->device))
        choose_segments(&args, tc_reduce_by_columns(&args), x->storage->device);
    if (args.segments == 1) {
        args.segment = args.reduced;
        return tc_run_interruptible(x->storage->device, TC_FLOAT32, &tc_kernel_integer_reduce, &args, out->numel,
                                    (double)args.reduced + 8.0, err);
    }
    TC_OWNED tc_tensor *partial = NULL;
    TC_TRY(tc_tensor_empty(&partial, 2, (int64_t[]){out->numel, args.segments}, TC_INT64, x->storage->device, err));
    args.out = partial->data;
    args.out_dtype = TC_INT64;
    TC_TRY(tc_run_interruptible(x->storage->device, TC_FLOAT32, &tc_kernel_integer_reduce, &args, partial->numel,
                                (double)args.segment + 8.0, err));
    return reduce_integers(out, partial, &last, step, false, err);
}

/* Each result of an idempotent step is one element of x, on the CPU. */
static tc_status copy_elements(tc_tensor *out, const tc_tensor *x, tc_error *err)
{
    TC_OWNED tc_tensor *as_x = NULL;
    int64_t strides[TC_MAX_DIMS];
    tc_c_strides(strides, x->ndim, x->shape);
    TC_TRY(tc_tensor_alias(&as_x, out, x->ndim, x->shape, strides, 0, err));
    return tc_tensor_copy(as_x, x, err);
}

/* *once: x with length 1 for the reduced axes along which it repeats its elements; x itself where there is none. */
static tc_status without_repeats(tc_tensor **once, const tc_tensor *x, const tc_axis_set *set, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS];
    bool repeats = false;
    for (int i = 0; i < x->ndim; i++) {
        const bool repeated = set->reduced[i] && x->strides[i] == 0 && x->shape[i] > 1;
        shape[i] = repeated ? 1 : x->shape[i];
        repeats |= repeated;
    }
    if (repeats) return tc_tensor_alias(once, (tc_tensor *)x, x->ndim, shape, x->strides, 0, err);
    *once = tc_tensor_retain((tc_tensor *)x);
    return TC_OK;
}

tc_status tc_run_reduction(tc_tensor *out, const tc_tensor *x, const tc_axis_set *set, tc_reduce_step step, const tc_tensor *center,
                           double divisor, tc_error *err)
{
    TC_OWNED tc_tensor *once = NULL;
    if (x->storage->device.type == TC_CPU && is_idempotent(step) && x->numel > 0) {
        TC_TRY(without_repeats(&once, x, set, err));
        x = once;
        if (tc_reduced_count(set, x) == 1) return copy_elements(out, x, err);
    }
    return tc_dtype_is_float(x->dtype) ? reduce_floats(out, x, set, step, center, divisor, err)
                                       : reduce_integers(out, x, set, step, false, err);
}

/* Are rows contiguous, and of the compute dtype? The kernel has a loop for those. */
static bool has_plain_rows(const tc_reduce_args *args, tc_dtype compute)
{
    return args->x_dtype == (int)compute && args->kept_ndim == 1 && args->reduced_ndim == 1 && args->reduced_strides[0] == 1;
}

tc_status tc_run_arg_reduction(tc_tensor *out, const tc_tensor *x, const tc_axis_set *set, tc_reduce_step step, tc_error *err)
{
    if (tc_reduced_count(set, x) == 1 && out->numel && x->storage->device.type == TC_CPU) { /* the only element */
        memset(out->data, 0, (size_t)out->numel * sizeof(int64_t));
        return TC_OK;
    }
    if (!tc_dtype_is_float(x->dtype)) return reduce_integers(out, x, set, step, true, err);
    tc_reduce_args args = {.step = step, .arg = true, .out = out->data, .out_dtype = TC_INT64, .divisor = 1.0};
    const tc_device device = x->storage->device;
    const tc_dtype compute = tc_compute_dtype(x->dtype);
    describe(&args, x, set, true);
    args.segment = args.reduced;
    args.segments = 1;
    if (args.kept == 0) return TC_OK;
    const double reduced = (double)args.reduced;
    const bool columns = tc_reduce_by_columns(&args) || (across_short_rows(&args, device) && !has_plain_rows(&args, compute));
    if (!columns || args.reduced > TC_REDUCE_EXACT)
        return tc_run_interruptible(device, compute, &tc_kernel_reduce_arg, &args, args.kept, 2.0 * reduced + 8.0, err);
    const int64_t width = args.kept_shape[args.kept_ndim - 1], tiles = tc_divide_up(width, TC_REDUCE_TILE);
    const double tile = (double)(width < TC_REDUCE_TILE ? width : TC_REDUCE_TILE);
    return tc_run_interruptible(device, compute, &tc_kernel_reduce_arg_columns, &args, args.kept / width * tiles, 2.0 * reduced * tile,
                                err);
}

/* ---- the inverse of broadcasting ------------------------------------------------------------------------------------------- */

/* x summed over the set's axes, which are kept with length 1. */
static tc_status sum_keeping_axes(tc_tensor **out, tc_tensor *x, const tc_axis_set *set, tc_error *err)
{
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    TC_OWNED tc_tensor *sum = NULL;
    tc_reduced_shape(set, x, true, &ndim, shape);
    TC_TRY(tc_tensor_empty(&sum, ndim, shape, x->dtype, x->storage->device, err));
    TC_TRY(reduce_floats(sum, x, set, TC_STEP_sum, NULL, 1.0, err));
    *out = tc_take(&sum);
    return TC_OK;
}

tc_status tc_sum_to_shape(tc_tensor **out, tc_tensor *gradient, int ndim, const int64_t *shape, tc_error *err)
{
    tc_axis_set set = {.count = 0};
    TC_OWNED tc_tensor *sum = NULL;
    const int lead = gradient->ndim - ndim;
    for (int i = 0; i < gradient->ndim; i++) {
        set.reduced[i] = gradient->shape[i] != 1 && (i < lead || shape[i - lead] == 1);
        set.count += set.reduced[i];
    }
    if (set.count > 0)
        TC_TRY(sum_keeping_axes(&sum, gradient, &set, err));
    else
        sum = tc_tensor_retain(gradient);
    if (lead) return tc_tensor_alias(out, sum, ndim, shape, sum->strides + lead, 0, err); /* the leading axes have length 1 now */
    *out = tc_take(&sum);
    return TC_OK;
}

tc_status tc_sum_to(tc_tensor **out, tc_tensor *gradient, int ndim, const int64_t *shape, tc_dtype dtype, tc_error *err)
{
    TC_OWNED tc_tensor *sum = NULL;
    TC_TRY(tc_sum_to_shape(&sum, gradient, ndim, shape, err));
    if (sum->dtype != dtype) return tc_tensor_as(out, sum, dtype, err);
    *out = tc_take(&sum);
    return TC_OK;
}

/* ---- reductions over rows ------------------------------------------------------------------------------------------------ */

int64_t tc_reduction_chunk(int64_t rows)
{
    const int64_t least = 64, most_chunks = 64;
    const int64_t chunk = tc_divide_up(rows, most_chunks);
    return chunk > least ? chunk : least;
}

tc_status tc_sum_partials(tc_tensor *out, const tc_tensor *partial, int64_t chunks, int64_t columns, tc_error *err)
{
    const tc_sum_partials_args args = {.out = out->data, .partial = partial->data, .chunks = chunks, .C = columns};
    const int64_t groups = tc_divide_up(columns, TC_SUM_PARTIALS_GROUP);
    return tc_run(out->storage->device, out->dtype, &tc_kernel_sum_partials, &args, groups, (double)chunks * TC_SUM_PARTIALS_GROUP, 0, err);
}
