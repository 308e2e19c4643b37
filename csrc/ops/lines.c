/* lines.c: along the lines of one axis: elements taken and written by an index per element, and running sums.
 *
 * Saved for the backward of gather and scatter: the places (8 bytes each). Nothing for cumsum. */
#include "../kernels/lines.h"

#include <inttypes.h>
#include <string.h>

#include "check_index.h"
#include "view.h"

/* ---- gather, scatter --------------------------------------------------------------------------------------------------------- */

typedef struct lines_attributes {
    int axis;
    tc_combination combination;
    int ndim, taken_ndim;
    int64_t shape[TC_MAX_DIMS], taken_shape[TC_MAX_DIMS]; /* of the whole, and of what was written; other ranks if no place is written */
} lines_attributes;

static tc_status fail_place(const tc_index_check *check, int64_t position, int64_t place, tc_error *err)
{
    char a[TC_SHAPE_TEXT];
    return tc_fail(err, TC_ERROR_INDEX,
                   "index %" PRId64 " (element %" PRId64 " of index, shape %s) is out of range for axis %d of length %" PRId64, place,
                   position, tc_shape_text(a, check->ndim, check->shape), check->axis, check->length);
}

/* Is an index outside a line of x? The first of them is named. */
static tc_status check_places(tc_tensor *places, const tc_tensor *x, int axis, tc_error *err)
{
    TC_OWNED tc_tensor *dense = NULL;
    TC_TRY(tc_tensor_contiguous(&dense, places, err));
    tc_index_check check = tc_index_check_of(dense, x->ndim ? x->shape[axis] : 1, fail_place);
    check.axis = axis;
    return tc_check_indices(&check, dense, err);
}

/* The same of places that may repeat along an axis, of which one is looked at; the error names its position among all. */
static tc_status check_once(tc_tensor *places, const tc_tensor *x, int axis, tc_error *err)
{
    TC_OWNED tc_tensor *once = NULL;
    int64_t shape[TC_MAX_DIMS];
    for (int i = 0; i < places->ndim; i++) shape[i] = places->strides[i] == 0 && places->shape[i] > 1 ? 1 : places->shape[i];
    TC_TRY(tc_tensor_alias(&once, places, places->ndim, shape, places->strides, 0, err));
    return check_places(once, x, axis, err) == TC_OK ? TC_OK : check_places(places, x, axis, err);
}

/* Is it int64 on the CPU, and the same along an axis, as the index of index_add is? */
static bool is_repeated(const tc_tensor *index)
{
    bool repeated = false;
    for (int i = 0; i < index->ndim; i++) repeated |= index->strides[i] == 0 && index->shape[i] > 1;
    return repeated && index->dtype == TC_INT64 && tc_tensor_on_cpu(index);
}

/* `index` as int64, contiguous but for axes along which it repeats, of a shape that fits: as many axes as x, nowhere longer than x, except
 * along the axis, and than src, where there is one; its places on x, which are checked here on GPUs and by the kernel on CPUs. */
static tc_status read_places(tc_scope *s, tc_tensor **places, tc_tensor *index, const tc_tensor *x, int axis, const tc_tensor *src)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (tc_dtype_is_float(index->dtype) || index->dtype == TC_BOOL)
        return tc_fail(s->err, TC_ERROR_TYPE, "index is %s; integers are needed: convert it with .long() or np.int64",
                       tc_dtype_name(index->dtype));
    if (index->ndim != x->ndim && index->numel)
        return tc_fail(s->err, TC_ERROR_VALUE, "index has shape %s but input has %s; they must have as many axes", tc_tensor_text(a, index),
                       tc_tensor_text(b, x));
    if (src && src->ndim != x->ndim && index->numel)
        return tc_fail(s->err, TC_ERROR_VALUE, "src has shape %s but input has %s; they must have as many axes", tc_tensor_text(a, src),
                       tc_tensor_text(b, x));
    for (int i = 0; i < x->ndim && index->numel; i++) {
        if (i != axis && index->shape[i] > x->shape[i])
            return tc_fail(s->err, TC_ERROR_VALUE, "index has shape %s but input has %s; only along axis %d may it be longer",
                           tc_tensor_text(a, index), tc_tensor_text(b, x), axis);
        if (src && index->shape[i] > src->shape[i])
            return tc_fail(s->err, TC_ERROR_VALUE, "index has shape %s but src has %s; it may not be longer along any axis",
                           tc_tensor_text(a, index), tc_tensor_text(b, src));
    }
    TC_TRY(is_repeated(index) ? tc_tensor_copy_of(places, index, s->err) : tc_tensor_as(places, index, TC_INT64, s->err));
    TC_TRY(tc_own(s, *places));
    return (*places)->storage->device.type == TC_CPU ? TC_OK : check_places(*places, x, axis, s->err);
}

/* A kernel over the lines; strides of zero for `taken` without axes: one element for all. All on one device. `before`: NULL, or what
 * `whole` is made of, for is_made_by_lines. */
static tc_status run_lines(const tc_kernel *kernel, tc_tensor *whole, const tc_tensor *before, tc_tensor *taken, tc_tensor *places,
                           int axis, bool multiplies, tc_error *err)
{
    bool outside = false;
    tc_lines_args args = {.whole = whole->data,
                          .taken = taken->data,
                          .index = tc_data(places),
                          .before = before ? tc_data(before) : NULL,
                          .element_bytes = (int)tc_dtype_size(whole->dtype),
                          .integers = !tc_dtype_is_float(whole->dtype),
                          .multiplies = multiplies,
                          .outside = &outside,
                          .K = 1,
                          .L = 1};
    int64_t lines = 1;
    const bool one = taken->ndim == 0;
    if (places->numel == 0) return TC_OK;
    for (int i = 0; i < places->ndim; i++) {
        if (i == axis) {
            args.K = places->shape[i];
            args.L = whole->shape[i];
            args.index_step = places->strides[i];
            args.taken_step = one ? 0 : taken->strides[i];
            args.whole_step = whole->strides[i];
            continue;
        }
        args.shape[args.ndim] = places->shape[i];
        args.index_strides[args.ndim] = places->strides[i];
        args.taken_strides[args.ndim] = one ? 0 : taken->strides[i];
        args.whole_strides[args.ndim++] = whole->strides[i];
        lines *= places->shape[i];
    }
    int64_t *const strides[] = {args.index_strides, args.taken_strides, args.whole_strides};
    args.ndim = tc_layout_merge(args.ndim, args.shape, 3, strides, false);
    const tc_dtype table = tc_dtype_is_float(whole->dtype) ? tc_compute_dtype(whole->dtype) : TC_FLOAT32;
    TC_TRY(tc_run(whole->storage->device, table, kernel, &args, lines, 4.0 * (double)args.K, 0, err));
    return outside ? check_places(places, whole, axis, err) : TC_OK;
}

/* Can the kernel of a scatter copy x to y, each line before it writes to it? Then every line has places, and is one piece of memory. */
static bool is_made_by_lines(const tc_tensor *y, const tc_tensor *x, const tc_tensor *places, int axis)
{
    if (y->storage->device.type != TC_CPU || x->dtype != y->dtype || !x->contiguous || axis != x->ndim - 1 || places->numel == 0)
        return false;
    for (int i = 0; i < axis; i++)
        if (places->shape[i] != x->shape[i]) return false;
    return true;
}

/* taken = the elements of `whole` at the places, in the first corner of `taken`, which may be larger. */
static tc_status gather(tc_tensor *taken, tc_tensor *whole, tc_tensor *places, int axis, tc_error *err)
{
    return run_lines(&tc_kernel_lines_gather, whole, NULL, taken, places, axis, false, err);
}

/* *dx (shape) = the sums of the elements of dy at the places. */
static tc_status add_up(tc_tensor **dx, tc_tensor *dy, tc_tensor *places, const lines_attributes *at, tc_error *err)
{
    TC_OWNED tc_tensor *ready = NULL, *sums = NULL;
    const tc_dtype compute = tc_compute_dtype(dy->dtype); /* half types add up in float32 */
    TC_TRY(tc_tensor_as(&ready, dy, compute, err));
    TC_TRY(tc_tensor_zeros(&sums, at->ndim, at->shape, compute, dy->storage->device, err));
    TC_TRY(run_lines(&tc_kernel_lines_combine, sums, NULL, ready, places, at->axis, false, err));
    return tc_tensor_as(dx, sums, dy->dtype, err);
}

static tc_status gather_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    return add_up(&grad_inputs[0], grad_outputs[0], tc_node_saved(node, 0), node->attributes, err);
}

static const tc_op gather_op = {"gather", gather_backward, .attribute_bytes = sizeof(lines_attributes)};

static lines_attributes describe(const tc_tensor *x, int axis, const tc_tensor *taken, tc_combination combination)
{
    lines_attributes at = {.axis = axis, .combination = combination, .ndim = x->ndim};
    memcpy(at.shape, x->shape, sizeof(int64_t) * (size_t)x->ndim);
    if (taken) {
        at.taken_ndim = taken->ndim;
        memcpy(at.taken_shape, taken->shape, sizeof(int64_t) * (size_t)taken->ndim);
    }
    return at;
}

tc_status tc_gather(tc_tensor **out, tc_tensor *x, int64_t given, tc_tensor *index, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"input", x}};
    tc_tensor *places, *y;
    int axis;
    TC_TRY(tc_begin_moving(&s, in, 1));
    TC_TRY(tc_check_same_device(x, "input", index, "index", err));
    TC_TRY(tc_normalize_axis(&axis, given, x->ndim, "axis", err));
    TC_TRY(read_places(&s, &places, index, x, axis, NULL));
    TC_TRY(tc_make(&s, &y, index->ndim, index->shape));
    TC_TRY(gather(y, x, places, axis, err));
    TC_TRY(tc_tensor_settle_bools(y, err));
    const lines_attributes at = describe(x, axis, NULL, TC_COMBINATION_PUT);
    return tc_finish(&s, out, y, &(tc_record){.op = &gather_op, TC_SAVED(places), .attributes = &at});
}

enum { WHOLE, SRC, INPUTS };
#define FEW_PLACES 64 /* where less than one element in FEW_PLACES is written to, only those are cast to another dtype and back */

/* dsrc: what dy has at the places. */
static tc_status taken_gradient(tc_tensor **out, tc_tensor *dy, tc_tensor *places, const lines_attributes *at, tc_error *err)
{
    TC_OWNED tc_tensor *dsrc = NULL;
    TC_TRY(tc_tensor_zeros(&dsrc, at->taken_ndim, at->taken_shape, dy->dtype, dy->storage->device, err));
    TC_TRY(gather(dsrc, dy, places, at->axis, err));
    *out = tc_take(&dsrc);
    return TC_OK;
}

/* dx: dy, and zero where it was written over. */
static tc_status whole_gradient(tc_tensor **out, tc_tensor *dy, tc_tensor *places, const lines_attributes *at, tc_error *err)
{
    TC_OWNED tc_tensor *dx = NULL, *zero = NULL;
    if (at->combination == TC_COMBINATION_ADD) {
        *out = tc_tensor_retain(dy);
        return TC_OK;
    }
    TC_TRY(tc_tensor_like(&dx, dy, err));
    TC_TRY(tc_tensor_copy(dx, dy, err));
    TC_TRY(tc_tensor_zeros(&zero, 0, NULL, dy->dtype, dy->storage->device, err));
    TC_TRY(run_lines(&tc_kernel_lines_put, dx, NULL, zero, places, at->axis, false, err));
    *out = tc_take(&dx);
    return TC_OK;
}

static tc_status scatter_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const lines_attributes *at = node->attributes;
    tc_tensor *const places = tc_node_saved(node, 0);
    if (at->combination == TC_COMBINATION_MULTIPLY)
        return tc_fail(err, TC_ERROR_STATE, "scatter with reduce=\"multiply\" has no gradient, as in PyTorch");
    if (tc_node_needs(node, SRC)) TC_TRY(taken_gradient(&grad_inputs[SRC], grad_outputs[0], places, at, err));
    if (tc_node_needs(node, WHOLE)) TC_TRY(whole_gradient(&grad_inputs[WHOLE], grad_outputs[0], places, at, err));
    return TC_OK;
}

static const tc_op scatter_op = {"scatter", scatter_backward, .attribute_bytes = sizeof(lines_attributes)};

/* A scatter before it is computed: what has been checked and read. */
typedef struct scattering {
    tc_combination combination;
    int axis;
    tc_dtype dtype; /* that it is computed in */
    tc_tensor *places, *taken;
} scattering;

static tc_status prepare_scatter(tc_scope *s, tc_input *in, scattering *p, int64_t given, tc_tensor *index)
{
    const tc_tensor *const x = in[WHOLE].given;
    tc_tensor *const src = in[SRC].given;
    TC_TRY(tc_begin_moving(s, in, INPUTS));
    TC_TRY(tc_check_same_device(x, "input", index, "index", s->err));
    TC_TRY(tc_normalize_axis(&p->axis, given, x->ndim, "axis", s->err));
    TC_TRY(read_places(s, &p->places, index, x, p->axis, src));
    const bool moves = p->combination == TC_COMBINATION_PUT;
    p->dtype = moves ? x->dtype : tc_dtype_is_float(x->dtype) ? tc_compute_dtype(x->dtype) : TC_INT64;
    p->taken = src;
    if (src->dtype == p->dtype) return TC_OK;
    TC_TRY(tc_tensor_as(&p->taken, src, p->dtype, s->err));
    return tc_own(s, p->taken);
}

/* `whole`: of p->dtype. before: as in run_lines. */
static tc_status scatter(const scattering *p, tc_tensor *whole, const tc_tensor *before, tc_error *err)
{
    const bool moves = p->combination == TC_COMBINATION_PUT;
    return run_lines(moves ? &tc_kernel_lines_put : &tc_kernel_lines_combine, whole, before, p->taken, p->places, p->axis,
                     p->combination == TC_COMBINATION_MULTIPLY, err);
}

static bool has_few_places(const scattering *p, const tc_tensor *x) { return p->places->numel < x->numel / FEW_PLACES; }

/* *wide, of p->dtype: what x has at the places at least. */
static tc_status widen(tc_scope *s, tc_tensor **wide, const scattering *p, tc_tensor *x)
{
    tc_tensor *taken, *cast;
    TC_TRY(tc_make_as(s, wide, x->ndim, x->shape, p->dtype));
    if (!has_few_places(p, x)) return tc_tensor_copy(*wide, x, s->err);
    TC_TRY(tc_make_as(s, &taken, p->places->ndim, p->places->shape, x->dtype));
    TC_TRY(gather(taken, x, p->places, p->axis, s->err));
    TC_TRY(tc_tensor_as(&cast, taken, p->dtype, s->err));
    TC_TRY(tc_own(s, cast));
    return run_lines(&tc_kernel_lines_put, *wide, NULL, cast, p->places, p->axis, false, s->err);
}

/* What becomes of a scatter that is computed in another dtype than that of x: the elements at the places, to be put there. */
static tc_status compute_apart(tc_scope *s, scattering *p, tc_tensor *x)
{
    tc_tensor *wide, *taken;
    if (has_few_places(p, x)) { /* the same ones in every pass, whoever writes to the index meanwhile: `wide` has no others */
        TC_TRY(tc_tensor_copy_of(&p->places, p->places, s->err));
        TC_TRY(tc_own(s, p->places));
    }
    TC_TRY(widen(s, &wide, p, x));
    TC_TRY(scatter(p, wide, NULL, s->err));
    TC_TRY(tc_make_as(s, &taken, p->places->ndim, p->places->shape, p->dtype));
    TC_TRY(gather(taken, wide, p->places, p->axis, s->err));
    TC_TRY(tc_tensor_as(&p->taken, taken, x->dtype, s->err));
    TC_TRY(tc_own(s, p->taken));
    p->combination = TC_COMBINATION_PUT;
    return TC_OK;
}

tc_status tc_scatter(tc_tensor **out, tc_tensor *x, int64_t given, tc_tensor *index, tc_tensor *src, tc_combination combination,
                     tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[INPUTS] = {[WHOLE] = {"input", x}, [SRC] = {"src", src}};
    scattering p = {.combination = combination};
    tc_tensor *y;
    TC_TRY(prepare_scatter(&s, in, &p, given, index));
    const bool apart = p.dtype != x->dtype && has_few_places(&p, x);
    TC_TRY(tc_make_as(&s, &y, x->ndim, x->shape, apart ? x->dtype : p.dtype));
    if (apart) TC_TRY(compute_apart(&s, &p, x));
    const bool by_lines = is_made_by_lines(y, x, p.places, p.axis);
    if (!by_lines) TC_TRY(tc_tensor_copy(y, x, err));
    TC_TRY(scatter(&p, y, by_lines ? x : NULL, err));
    TC_TRY(tc_tensor_settle_bools(y, err));
    const lines_attributes at = describe(x, p.axis, src, combination);
    return tc_finish(&s, out, y, &(tc_record){.op = &scatter_op, TC_SAVED(p.places), .attributes = &at});
}

/* *tensor: in memory that a write to x does not touch, and of bools 0 or 1. */
static tc_status set_apart(tc_scope *s, tc_tensor **tensor, const tc_tensor *x)
{
    tc_tensor *const given = *tensor;
    if (given->dtype != TC_BOOL && !tc_may_overlap(x, given)) return TC_OK;
    TC_TRY(tc_make_as(s, tensor, given->ndim, given->shape, given->dtype));
    return tc_tensor_copy(*tensor, given, s->err);
}

tc_status tc_scatter_into(tc_tensor *x, int64_t given, tc_tensor *index, tc_tensor *src, tc_combination combination, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[INPUTS] = {[WHOLE] = {"input", x}, [SRC] = {"src", src}};
    scattering p = {.combination = combination};
    TC_OWNED tc_tensor *result = NULL;
    if (!tc_layout_is_distinct(x->ndim, x->shape, x->strides))
        return tc_fail(err, TC_ERROR_VALUE,
                       "this tensor repeats its elements (expand, unfold), so that what is scattered to one would be seen in others; write "
                       "to a clone()");
    if (tc_tape_wants(INPUTS, (tc_tensor *const[]){x, src})) {
        TC_TRY(tc_scatter(&result, x, given, index, src, combination, err));
        return tc_assign(x, result, err);
    }
    TC_TRY(prepare_scatter(&s, in, &p, given, index));
    TC_TRY(set_apart(&s, &p.places, x));
    TC_TRY(set_apart(&s, &p.taken, x));
    if (tc_tensor_on_cpu(x)) TC_TRY(check_once(p.places, x, p.axis, err));
    if (p.dtype != x->dtype) TC_TRY(compute_apart(&s, &p, x));
    TC_TRY(tc_tensor_begin_write(x, err));
    return scatter(&p, x, NULL, err);
}

/* ---- running sums ------------------------------------------------------------------------------------------------------------ */

typedef struct cumsum_attributes {
    int axis;
    bool reverse;
} cumsum_attributes;

static tc_status cumsum_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const cumsum_attributes *at = node->attributes;
    return tc_cumsum(&grad_inputs[0], grad_outputs[0], at->axis, !at->reverse, err);
}

static const tc_op cumsum_op = {"cumsum", cumsum_backward, .attribute_bytes = sizeof(cumsum_attributes)};

tc_status tc_cumsum(tc_tensor **y, tc_tensor *x, int64_t given, bool reverse, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *out;
    int axis;
    const bool floating = tc_dtype_is_float(x->dtype);
    TC_TRY(tc_begin_moving(&s, in, 1));
    TC_TRY(tc_normalize_axis(&axis, given, x->ndim, "axis", err));
    s.compute = floating ? tc_compute_dtype(x->dtype) : TC_INT64;
    if (floating)
        s.kernels = s.compute;
    else
        s.result = TC_INT64;
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    tc_cumsum_args args = {
        .y = out->data, .x = in[0].data, .length = x->ndim ? x->shape[axis] : 1, .inner = 1, .reverse = reverse, .integers = !floating};
    for (int i = axis + 1; i < x->ndim; i++) args.inner *= x->shape[i];
    if (args.length == 1) args.inner = x->numel; /* neighbours in whatever order */
    if (x->numel)
        TC_TRY(tc_compute(&s, &tc_kernel_cumsum, &args, x->numel / args.length / args.inner * tc_divide_up(args.inner, TC_CUMSUM_TILE),
                          2.0 * (double)args.length * (double)(args.inner < TC_CUMSUM_TILE ? args.inner : TC_CUMSUM_TILE)));
    const cumsum_attributes at = {axis, reverse};
    return tc_finish(&s, y, out, &(tc_record){.op = &cumsum_op, .attributes = &at});
}
