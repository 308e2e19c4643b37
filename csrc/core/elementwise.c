/* elementwise.c: see elementwise.h. */
#include "elementwise.h"

#include <string.h>

#include "../kernels/copy.h"
#include "backend.h"
#include "broadcast.h"
#include "copy.h"
#include "layout.h"
#include "own.h"

static void set_operand(tc_operand *operand, const tc_argument *input, int ndim, const int64_t *shape)
{
    const tc_tensor *tensor = input->tensor;
    if (tensor) {
        operand->data = tensor->data;
        operand->dtype = tensor->dtype;
        tc_broadcast_strides(operand->strides, tensor, ndim, shape);
    } else {
        operand->data = NULL;
        operand->value = input->scalar.real;
        operand->integer = input->scalar.integer;
        memset(operand->strides, 0, sizeof(int64_t) * (size_t)ndim);
    }
}

/* Can all operands be walked along a single axis? Each has the result's elements in the same order, or is one number. */
static bool is_flat(const tc_tensor *out, int inputs, const tc_argument *in)
{
    if (!out->contiguous) return false;
    for (int k = 0; k < inputs; k++)
        if (in[k].tensor && !(in[k].tensor->contiguous && in[k].tensor->numel == out->numel)) return false;
    return true;
}

/* The arguments of the kernel, in as few axes as possible. */
static void describe(tc_elementwise_args *args, const tc_tensor *out, int inputs, const tc_argument *in)
{
    const tc_argument result = {.tensor = (tc_tensor *)out};
    if (is_flat(out, inputs, in)) {
        args->ndim = 1;
        args->shape[0] = out->numel;
        set_operand(&args->out, &result, 0, NULL);
        args->out.strides[0] = 1;
        for (int k = 0; k < inputs; k++) {
            set_operand(&args->in[k], &in[k], 0, NULL);
            args->in[k].strides[0] = in[k].tensor ? 1 : 0;
        }
        return;
    }
    int64_t *strides[TC_ELEMENT_INPUTS + 1] = {args->out.strides};
    memcpy(args->shape, out->shape, sizeof(int64_t) * (size_t)out->ndim);
    set_operand(&args->out, &result, out->ndim, out->shape);
    for (int k = 0; k < inputs; k++) {
        set_operand(&args->in[k], &in[k], out->ndim, out->shape);
        strides[k + 1] = args->in[k].strides;
    }
    args->ndim = tc_layout_merge(out->ndim, args->shape, inputs + 1, strides, true);
}

/* Operands with runs shorter than this, in elements, that are permuted alike are computed in the order of their memory, and the result is
 * copied: SHORT for operands that the kernel reads in place, the other for those that it casts, and for bytes, which are copied fast. */
#define SHORT 48
#define SHORT_OF_OTHERS 512
static int64_t short_run(const tc_tensor *out, const tc_tensor *x)
{
    return x->dtype == out->dtype && tc_dtype_size(x->dtype) >= 4 ? SHORT : SHORT_OF_OTHERS;
}

/* Where the result is written in the order of its memory: is an operand read across its own, with a line of the cache for each element, or
 * are halves read in short runs, for which it is faster to cast a copy from end to end? */
static bool wants_copy(const tc_elementwise_args *args, const tc_operand *operand)
{
    const int last = args->ndim - 1;
    const int64_t step = operand->strides[last];
    const bool short_halves = step == 1 && tc_dtype_size((tc_dtype)operand->dtype) == 2 && args->shape[last] < SHORT_OF_OTHERS;
    if (args->out.strides[last] != 1 || args->shape[last] < TC_COPY_LEAST) return false;
    if (step == 0 || (step == 1 && !short_halves)) return false;
    bool wanted = short_halves;
    for (int axis = 0; axis < last; axis++) {
        if (operand->strides[axis] == 0) return false; /* repeated: less memory than its copy */
        wanted |= operand->strides[axis] == 1 && args->shape[axis] >= TC_COPY_LEAST;
    }
    return wanted;
}

/* Gives the kernel copies of the operands that want one: dense[k], references, or NULL. */
static tc_status straighten(tc_elementwise_args *args, tc_tensor **dense, const tc_tensor *out, int inputs, const tc_argument *in,
                            tc_error *err)
{
    tc_argument along[TC_ELEMENT_INPUTS];
    bool any = false;
    for (int k = 0; k < inputs; k++) {
        along[k] = in[k];
        if (!in[k].tensor || in[k].tensor->contiguous || !wants_copy(args, &args->in[k])) continue;
        TC_TRY(tc_tensor_contiguous(&dense[k], in[k].tensor, err));
        along[k].tensor = dense[k];
        any = true;
    }
    if (any) describe(args, out, inputs, along);
    return TC_OK;
}

/* Have all inputs the result's elements in one order that has no gaps, but is not the result's? *like: the first of them. */
static bool is_permuted(const tc_elementwise_args *args, const tc_tensor *out, int inputs, const tc_argument *in, const tc_tensor **like)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS], *const one[1] = {strides};
    const int last = args->ndim - 1;
    *like = NULL;
    for (int k = 0; k < inputs; k++) {
        const tc_tensor *const x = in[k].tensor;
        if (!x) continue;
        if (!*like) *like = x;
        if (!tc_tensor_same_shape(x, out) || memcmp(x->strides, (*like)->strides, sizeof *x->strides * (size_t)x->ndim) != 0) return false;
        if (args->in[k].strides[last] == 1 && args->shape[last] >= short_run(out, x)) return false;
    }
    if (!*like || !out->contiguous) return false;
    memcpy(shape, out->shape, sizeof *shape * (size_t)out->ndim);
    memcpy(strides, (*like)->strides, sizeof *strides * (size_t)out->ndim);
    return tc_layout_merge(out->ndim, shape, 1, one, true) == 1 && strides[0] == 1;
}

#define FEW 1024 /* elements that take no longer than a tensor for some of them */

/* Along which axes do all inputs repeat their elements? shape: one place of each of those. Is it at most half of the result? */
static bool is_repeated(const tc_elementwise_args *args, int64_t *shape)
{
    int64_t once = 1;
    for (int axis = 0; axis < args->ndim; axis++) {
        bool repeats = true;
        for (int k = 0; k < args->inputs; k++) repeats &= !args->in[k].data || args->in[k].strides[axis] == 0;
        shape[axis] = repeats ? 1 : args->shape[axis];
        once *= shape[axis];
    }
    return args->numel >= FEW && once <= args->numel / 2;
}

/* Computes each element once, and copies it to where the result has it. */
static tc_status run_once(tc_tensor *out, tc_elementwise_args *args, const int64_t *shape, const tc_kernel *kernel, tc_dtype compute,
                          double cost, tc_error *err)
{
    TC_OWNED tc_tensor *once = NULL, *view = NULL;
    int64_t *strides[TC_ELEMENT_INPUTS + 1] = {args->out.strides};
    TC_TRY(tc_tensor_alias(&view, out, args->ndim, args->shape, args->out.strides, 0, err));
    TC_TRY(tc_tensor_empty(&once, args->ndim, shape, out->dtype, out->storage->device, err));
    args->out.data = once->data;
    args->numel = once->numel;
    memcpy(args->shape, shape, sizeof *shape * (size_t)args->ndim);
    memcpy(args->out.strides, once->strides, sizeof *shape * (size_t)args->ndim);
    for (int k = 0; k < args->inputs; k++) strides[k + 1] = args->in[k].strides;
    args->ndim = tc_layout_merge(args->ndim, args->shape, args->inputs + 1, strides, true);
    const int64_t items = tc_divide_up(args->numel, TC_ELEMENT_BLOCK);
    TC_TRY(tc_run(out->storage->device, compute, kernel, args, items, cost * (double)(args->numel / items), 0, err));
    return tc_tensor_copy(view, once, err);
}

static tc_status run(tc_tensor *out, bool in_place, int inputs, const tc_argument *in, const tc_kernel *kernel, int function,
                     tc_dtype compute, double cost, tc_error *err);

#define BAND (1 << 18) /* bytes of the result for each thread that are in its cache still after they are copied */

/* The first input that is a tensor, if no other tensor is read and its elements fit into the memory of the result; otherwise -1. */
static int only_tensor(const tc_tensor *out, int inputs, const tc_argument *in)
{
    int of = -1;
    for (int k = 0; k < inputs; k++) {
        if (of >= 0 && in[k].tensor && in[k].tensor != in[of].tensor) return -1;
        if (of < 0 && in[k].tensor) of = k;
    }
    if (of < 0 || !out->contiguous) return -1;
    const tc_tensor *const x = in[of].tensor;
    return x->dtype == out->dtype && x->storage != out->storage && tc_tensor_same_shape(x, out) ? of : -1;
}

/* Copies x to where the result is, in the result's order, and computes it there: band by band along the first axis of `args`. */
static tc_status run_in_bands(tc_tensor *out, tc_elementwise_args *args, int of, tc_tensor *x, const tc_kernel *kernel, tc_dtype compute,
                              double cost, tc_error *err)
{
    const int64_t row = out->numel / args->shape[0], bytes = row * (int64_t)tc_dtype_size(out->dtype), rows = args->shape[0];
    const bool across = args->in[of].strides[0] == 1;
    const int64_t least = across ? 2 * TC_COPY_ROWS : 1, together = (int64_t)BAND * tc_get_num_threads();
    const int64_t most = (bytes * least < together ? together / bytes : least) / least * least;
    const int ndim = args->ndim;
    int64_t shape[TC_ELEMENT_DIMS], to[TC_ELEMENT_DIMS], from[TC_ELEMENT_DIMS], n;
    memcpy(shape, args->shape, sizeof *shape * (size_t)ndim);
    memcpy(to, args->out.strides, sizeof *to * (size_t)ndim);
    memcpy(from, args->in[of].strides, sizeof *from * (size_t)ndim);
    args->ndim = 1;
    args->out.strides[0] = 1;
    for (int64_t first = 0; first < rows; first += n) {
        TC_OWNED tc_tensor *band = NULL, *source = NULL;
        shape[0] = n = rows - first < most ? rows - first : most;
        TC_TRY(tc_tensor_alias(&band, out, ndim, shape, to, first * to[0], err));
        TC_TRY(tc_tensor_alias(&source, x, ndim, shape, from, first * from[0], err));
        TC_TRY(tc_tensor_copy(band, source, err));
        args->shape[0] = args->numel = band->numel;
        args->out.data = band->data;
        for (int k = 0; k < args->inputs; k++) {
            if (!args->in[k].data) continue;
            args->in[k].data = band->data;
            args->in[k].strides[0] = 1;
        }
        const int64_t items = tc_divide_up(args->numel, TC_ELEMENT_BLOCK);
        TC_TRY(tc_run(out->storage->device, compute, kernel, args, items, cost * (double)(args->numel / items), 0, err));
    }
    return TC_OK;
}

/* The same function in the order of the inputs, then a copy into the result's. */
static tc_status run_permuted(tc_tensor *out, bool in_place, const tc_tensor *like, int inputs, const tc_argument *in,
                              const tc_kernel *kernel, int function, tc_dtype compute, double cost, tc_error *err)
{
    TC_OWNED tc_tensor *memory = NULL, *view = NULL;
    TC_TRY(tc_tensor_empty(&memory, out->ndim, out->shape, out->dtype, out->storage->device, err));
    TC_TRY(tc_tensor_alias(&view, memory, out->ndim, out->shape, like->strides, 0, err));
    TC_TRY(run(view, false, inputs, in, kernel, function, compute, cost, err));
    if (in_place) TC_TRY(tc_tensor_begin_write(out, err));
    return tc_tensor_copy(out, view, err);
}

/* in_place: begins the write once nothing but the kernel can fail. */
static tc_status run(tc_tensor *out, bool in_place, int inputs, const tc_argument *in, const tc_kernel *kernel, int function,
                     tc_dtype compute, double cost, tc_error *err)
{
    if (out->numel == 0) return in_place ? tc_tensor_begin_write(out, err) : TC_OK;
    const bool on_cpu = out->storage->device.type == TC_CPU;
    tc_tensor *dense[TC_ELEMENT_INPUTS] = {NULL};
    tc_elementwise_args args;
    tc_status status = TC_OK;
    if (!on_cpu) memset(&args, 0, sizeof args); /* an address left there would be taken for an operand */
    args.function = function;
    args.inputs = inputs;
    args.numel = out->numel;
    describe(&args, out, inputs, in);
    int64_t shape[TC_ELEMENT_DIMS];
    if (on_cpu && !in_place && is_repeated(&args, shape)) return run_once(out, &args, shape, kernel, compute, cost, err);
    if (on_cpu && args.ndim > 1 && out->numel >= TC_ELEMENT_BLOCK) {
        const tc_tensor *like;
        const int of = in_place ? -1 : only_tensor(out, inputs, in);
        const bool permuted = is_permuted(&args, out, inputs, in, &like);
        if (of >= 0 && (permuted || wants_copy(&args, &args.in[of])))
            return run_in_bands(out, &args, of, in[of].tensor, kernel, compute, cost, err);
        if (permuted) return run_permuted(out, in_place, like, inputs, in, kernel, function, compute, cost, err);
        status = straighten(&args, dense, out, inputs, in, err);
    }
    const int64_t items = tc_divide_up(out->numel, TC_ELEMENT_BLOCK);
    const int64_t item = out->numel < TC_ELEMENT_BLOCK ? out->numel : TC_ELEMENT_BLOCK;
    if (status == TC_OK && in_place) status = tc_tensor_begin_write(out, err);
    if (status == TC_OK) status = tc_run(out->storage->device, compute, kernel, &args, items, cost * (double)item, 0, err);
    for (int k = 0; k < inputs; k++) tc_tensor_release(dense[k]);
    return status;
}

tc_status tc_run_elementwise(tc_tensor *out, int inputs, const tc_argument *in, const tc_kernel *kernel, int function, tc_dtype compute,
                             double cost, tc_error *err)
{
    return run(out, false, inputs, in, kernel, function, compute, cost, err);
}

tc_status tc_write_elementwise(tc_tensor *out, int inputs, const tc_argument *in, const tc_kernel *kernel, int function, tc_dtype compute,
                               double cost, tc_error *err)
{
    return run(out, true, inputs, in, kernel, function, compute, cost, err);
}
