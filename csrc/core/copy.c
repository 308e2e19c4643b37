/* copy.c: see copy.h. */
#include "copy.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../kernels/copy.h"
#include "backend.h"
#include "broadcast.h"
#include "graph.h"
#include "layout.h"
#include "own.h"

/* Where the last axis is contiguous in the result, but another one in the source: moves that one next to the last. */
static void bring_columns(tc_copy_args *args)
{
    const int last = args->ndim - 1;
    if (last < 2 || args->to_strides[last] != 1 || args->from_strides[last] == 1 || args->shape[last] < TC_COPY_LEAST) return;
    for (int axis = 0; axis < last - 1; axis++) {
        if (args->from_strides[axis] != 1 || args->shape[axis] < TC_COPY_LEAST) continue;
        int64_t *const lists[3] = {args->shape, args->to_strides, args->from_strides};
        for (int k = 0; k < 3; k++) {
            const int64_t moved = lists[k][axis];
            memmove(&lists[k][axis], &lists[k][axis + 1], sizeof(int64_t) * (size_t)(last - 1 - axis));
            lists[k][last - 1] = moved;
        }
        return;
    }
}

/* Runs the kernel; `args` has what is read: `from`, from_dtype and from_strides, along the axes of `to`, or a number. */
static tc_status run_copy(tc_tensor *to, tc_copy_args *args, tc_error *err)
{
    int64_t *const strides[2] = {args->to_strides, args->from_strides};
    /* Of elements that are written to the same memory, the last one in C order stays: one thread writes them, axis by axis. */
    const bool in_order = !to->contiguous && !tc_layout_is_distinct(to->ndim, to->shape, to->strides);
    args->to = to->data;
    args->to_dtype = to->dtype;
    args->numel = to->numel;
    memcpy(args->shape, to->shape, sizeof(int64_t) * (size_t)to->ndim);
    memcpy(args->to_strides, to->strides, sizeof(int64_t) * (size_t)to->ndim);
    args->ndim = tc_layout_merge(to->ndim, args->shape, 2, strides, !in_order);
    int64_t items = tc_divide_up(to->numel, TC_COPY_BLOCK), down, across;
    if (to->storage->device.type == TC_CPU) {
        if (!in_order) bring_columns(args);
        if (tc_copy_by_tiles(args)) items = tc_copy_tiles(args, &down, &across);
    }
    return tc_run(to->storage->device, TC_FLOAT32, &tc_kernel_copy, args, items, in_order ? 0 : TC_COPY_BLOCK, 0, err);
}

/* Same device: one strided, casting kernel, or the bytes as they are, except bools: memory from outside may have any byte for true, and
 * what we write is 0 or 1. The shapes are equal up to broadcasting, which has been checked. */
static tc_status copy_on_device(tc_tensor *to, const tc_tensor *from, tc_error *err)
{
    if (to->contiguous && from->contiguous && to->dtype == from->dtype && to->numel == from->numel && to->dtype != TC_BOOL) {
        const tc_backend *backend;
        TC_TRY(tc_backend_for(&backend, to->storage->device, err));
        return backend->copy(to->storage->device.index, to->data, to->storage->device.type == TC_CPU, from->data,
                             from->storage->device.type == TC_CPU, (size_t)to->numel * tc_dtype_size(to->dtype), err);
    }
    tc_copy_args args = {.from = from->data, .from_dtype = from->dtype};
    tc_broadcast_strides(args.from_strides, from, to->ndim, to->shape);
    return run_copy(to, &args, err);
}

/* From one GPU to another: through the host, which waits, because streams are ordered within one device only. */
static tc_status copy_by_host(tc_tensor *to, const tc_tensor *from, tc_error *err)
{
    TC_OWNED tc_tensor *host = NULL;
    TC_TRY(tc_tensor_empty(&host, from->ndim, from->shape, from->dtype, (tc_device){TC_CPU, 0}, err));
    TC_TRY(tc_tensor_copy(host, from, err));
    return tc_tensor_copy(to, host, err);
}

/* One number of the host, of to's dtype, to every element of a GPU's tensor: in the arguments of a kernel, so that nothing is copied. */
static tc_status write_number(tc_tensor *to, const void *number, tc_error *err)
{
    tc_copy_args args = {.from_dtype = to->dtype};
    memcpy(&args.number, number, tc_dtype_size(to->dtype));
    return run_copy(to, &args, err);
}

/* Has it a Tensor of Python, to which other code may write? Then a capture must not take its number for a constant. */
static bool is_of_the_host_language(const tc_tensor *tensor) { return (tensor->of ? tensor->of : tensor)->wrapper; }

/* Whether its bytes can be moved as they are, as values of this dtype. */
static bool is_packed(const tc_tensor *tensor, tc_dtype dtype) { return tensor->contiguous && tensor->dtype == dtype && dtype != TC_BOOL; }

/* Between the host and a GPU: made contiguous and cast on the source, moved, then given the strides of the target, unless the copy has
 * them already. A copy to the host is moved into memory of its own first: the error of an earlier call may come with it, and leaves the
 * target as it was. */
static tc_status copy_across(tc_tensor *to, const tc_tensor *from, tc_error *err)
{
    TC_OWNED tc_tensor *packed = NULL, *landed = NULL;
    const tc_tensor *source = from;
    const tc_backend *backend;
    if (!is_packed(from, to->dtype)) {
        TC_TRY(tc_tensor_empty(&packed, from->ndim, from->shape, to->dtype, from->storage->device, err));
        TC_TRY(copy_on_device(packed, from, err));
        source = packed;
    }
    const bool to_host = to->storage->device.type == TC_CPU, from_host = from->storage->device.type == TC_CPU;
    if (from_host && from->numel == 1 && !(tc_graph_number() && is_of_the_host_language(from))) return write_number(to, source->data, err);
    const bool is_direct = from_host && is_packed(to, to->dtype) && to->numel == from->numel;
    if (!is_direct) TC_TRY(tc_tensor_empty(&landed, from->ndim, from->shape, to->dtype, to->storage->device, err));
    const tc_device device = to_host ? from->storage->device : to->storage->device;
    TC_TRY(tc_backend_for(&backend, device, err));
    TC_TRY(backend->copy(device.index, is_direct ? to->data : landed->data, to_host, source->data, from_host,
                         (size_t)from->numel * tc_dtype_size(to->dtype), err));
    return is_direct ? TC_OK : copy_on_device(to, landed, err);
}

tc_status tc_tensor_copy(tc_tensor *to, const tc_tensor *from, tc_error *err)
{
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_status status = tc_broadcast_shape(&ndim, shape, to->ndim, to->shape, from->ndim, from->shape, err);
    if (status != TC_OK || ndim != to->ndim || memcmp(shape, to->shape, sizeof(int64_t) * (size_t)ndim) != 0)
        return tc_fail(err, TC_ERROR_VALUE, "a value of shape %s cannot be written to shape %s: it must broadcast to it",
                       tc_shape_text(a, from->ndim, from->shape), tc_shape_text(b, to->ndim, to->shape));
    if (to->numel == 0) return TC_OK;
    const tc_device x = to->storage->device, y = from->storage->device;
    if (tc_same_device(x, y)) return copy_on_device(to, from, err);
    return x.type == y.type ? copy_by_host(to, from, err) : copy_across(to, from, err);
}

/* *out: a contiguous copy. */
static tc_status copied(tc_tensor **out, const tc_tensor *tensor, tc_dtype dtype, tc_device device, tc_error *err)
{
    TC_OWNED tc_tensor *copy = NULL;
    TC_TRY(tc_tensor_empty(&copy, tensor->ndim, tensor->shape, dtype, device, err));
    TC_TRY(tc_tensor_copy(copy, tensor, err));
    *out = tc_take(&copy);
    return TC_OK;
}

tc_status tc_tensor_as(tc_tensor **out, tc_tensor *tensor, tc_dtype dtype, tc_error *err)
{
    if (!tensor->contiguous || tensor->dtype != dtype) return copied(out, tensor, dtype, tensor->storage->device, err);
    *out = tc_tensor_retain(tensor);
    return TC_OK;
}

tc_status tc_tensor_contiguous(tc_tensor **out, tc_tensor *tensor, tc_error *err) { return tc_tensor_as(out, tensor, tensor->dtype, err); }

tc_status tc_tensor_on(tc_tensor **out, tc_tensor *tensor, tc_device device, tc_error *err)
{
    if (!tc_same_device(tensor->storage->device, device)) return copied(out, tensor, tensor->dtype, device, err);
    *out = tc_tensor_retain(tensor);
    return TC_OK;
}

tc_status tc_tensor_copy_of(tc_tensor **out, tc_tensor *tensor, tc_error *err)
{
    TC_OWNED tc_tensor *once = NULL, *copy = NULL;
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    for (int i = 0; i < tensor->ndim; i++) shape[i] = tensor->strides[i] == 0 && tensor->shape[i] > 1 ? 1 : tensor->shape[i];
    TC_TRY(tc_tensor_alias(&once, tensor, tensor->ndim, shape, tensor->strides, 0, err));
    TC_TRY(copied(&copy, once, tensor->dtype, tensor->storage->device, err));
    for (int i = 0; i < tensor->ndim; i++) strides[i] = shape[i] == tensor->shape[i] ? copy->strides[i] : 0;
    TC_TRY(tc_tensor_alias(out, copy, tensor->ndim, tensor->shape, strides, 0, err));
    (*out)->version = TC_NEVER_STALE;
    return TC_OK;
}

tc_status tc_make_own(tc_tensor **tensor, const tc_tensor *source, tc_error *err)
{
    tc_tensor *copy;
    if ((*tensor)->contiguous && (*tensor)->storage != source->storage) return TC_OK;
    TC_TRY(copied(&copy, *tensor, (*tensor)->dtype, (*tensor)->storage->device, err));
    tc_tensor_release(*tensor);
    *tensor = copy;
    return TC_OK;
}

tc_status tc_tensor_settle_bools(tc_tensor *tensor, tc_error *err)
{
    return tensor->dtype == TC_BOOL ? tc_tensor_copy(tensor, tensor, err) : TC_OK;
}

/* ---- ranges of integers ------------------------------------------------------------------------------------------------ */

tc_status tc_check_number_fits(tc_scalar number, tc_dtype dtype, tc_error *err)
{
    const bool byte = dtype == TC_UINT8, word = dtype == TC_INT32;
    if (!byte && !word && dtype != TC_INT64) return TC_OK;
    const int64_t least = byte ? 0 : word ? INT32_MIN : INT64_MIN, most = byte ? UINT8_MAX : word ? INT32_MAX : INT64_MAX;
    if (tc_dtype_is_float(number.kind)) {
        if (trunc(number.real) >= (double)least && trunc(number.real) < (double)most + 1.0) return TC_OK;
        return tc_fail(err, TC_ERROR_VALUE, "value %.16g does not fit %s, whose numbers are %" PRId64 " to %" PRId64, number.real,
                       tc_dtype_name(dtype), least, most);
    }
    if (number.integer >= least && number.integer <= most) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE,
                   "value %" PRId64 " does not fit %s, whose numbers are %" PRId64 " to %" PRId64 "; int64 has room for it", number.integer,
                   tc_dtype_name(dtype), least, most);
}

tc_status tc_check_value_fits(tc_tensor *value, tc_dtype dtype, tc_error *err)
{
    const bool floating = tc_dtype_is_float(value->dtype);
    TC_OWNED tc_tensor *wide = NULL;
    if (tc_dtype_is_float(dtype) || dtype == TC_BOOL || value->dtype == dtype || value->numel != 1 || !tc_tensor_on_cpu(value))
        return TC_OK;
    TC_TRY(tc_tensor_as(&wide, value, floating ? TC_FLOAT64 : TC_INT64, err));
    const void *data = wide->data;
    return tc_check_number_fits(floating ? tc_scalar_real(*(const double *)data) : tc_scalar_integer(*(const int64_t *)data), dtype, err);
}

/* ---- filled ----------------------------------------------------------------------------------------------------------- */

tc_status tc_tensor_full(tc_tensor **out, int ndim, const int64_t *shape, double value, tc_dtype dtype, tc_device device, tc_error *err)
{
    TC_OWNED tc_tensor *number = NULL, *tensor = NULL;
    TC_TRY(tc_tensor_wrap(&number, &value, 0, NULL, NULL, TC_FLOAT64, false, NULL, NULL, err));
    TC_TRY(tc_tensor_empty(&tensor, ndim, shape, dtype, device, err));
    TC_TRY(tc_tensor_copy(tensor, number, err));
    *out = tc_take(&tensor);
    return TC_OK;
}

/* ---- numbers in equal steps ------------------------------------------------------------------------------------------------ */

static int64_t whole_number(const tc_range *r, int64_t i)
{
    return (int64_t)((uint64_t)r->whole_first + (uint64_t)i * (uint64_t)r->whole_step);
}

static double real_number(const tc_range *r, int64_t i, int64_t length)
{
    if (i < r->turn) return r->first + r->step * (double)i;
    return i == length - 1 ? r->last : r->last - r->step * (double)(length - 1 - i);
}

/* *out (length): as tc_range says; on CPUs in int64 or float64, which are cast. */
static tc_status make_range(tc_tensor **out, const tc_range *range, int64_t length, tc_dtype dtype, tc_device device, tc_error *err)
{
    TC_OWNED tc_tensor *tensor = NULL;
    const bool on_cpu = device.type == TC_CPU;
    TC_TRY(tc_tensor_empty(&tensor, 1, &length, !on_cpu ? dtype : range->is_whole ? TC_INT64 : TC_FLOAT64, device, err));
    if (on_cpu) {
        void *to = tc_tensor_data(tensor);
        for (int64_t i = 0; i < length && range->is_whole; i++) ((int64_t *)to)[i] = whole_number(range, i);
        for (int64_t i = 0; i < length && !range->is_whole; i++) ((double *)to)[i] = real_number(range, i, length);
        return tc_tensor_as(out, tensor, dtype, err);
    }
    tc_copy_args args = {.from_dtype = dtype, .range = range};
    if (length > 0) TC_TRY(run_copy(tensor, &args, err));
    *out = tc_take(&tensor);
    return TC_OK;
}

tc_status tc_tensor_range(tc_tensor **out, int64_t first, int64_t step, int64_t length, tc_dtype dtype, tc_device device, tc_error *err)
{
    return make_range(out, &(tc_range){.is_whole = true, .unit = 1.0F, .whole_first = first, .whole_step = step}, length, dtype, device,
                      err);
}

#define MOST_HALVINGS 60 /* of the unit; the numbers stay normal in float32 */

static bool is_negative_zero(double x) { return x == 0.0 && signbit(x); }

/* Are all numbers multiples of a power of two, less than 2^53 times as large? Then no operation in float64 would round, and a GPU needs
 * none. For int32 they must fit: beyond, a cast from float64 and one from int64 give different numbers. */
static void find_whole(tc_range *range, int64_t length, tc_dtype dtype)
{
    const bool is_wide = tc_dtype_is_float(dtype) || dtype == TC_INT64;
    const double most = is_wide ? 9007199254740992.0 : (double)INT32_MAX; /* 2^53 */
    double first = range->first, step = range->step, last = range->last, unit = 1.0;
    for (int i = 0; i < MOST_HALVINGS && tc_dtype_is_float(dtype) && !(first == trunc(first) && step == trunc(step)); i++)
        first *= 2.0, step *= 2.0, last *= 2.0, unit /= 2.0;
    if (!(first == trunc(first) && step == trunc(step) && fabs(first) + fabs(step) * (double)length <= most)) return;
    if (range->turn < length && last != first + step * (double)(length - 1)) return;
    if (is_negative_zero(first) || is_negative_zero(last)) return; /* integers have no such zero */
    range->is_whole = true;
    range->unit = (float)unit;
    range->whole_first = (int64_t)first;
    range->whole_step = (int64_t)step;
}

tc_status tc_tensor_spaced(tc_tensor **out, double first, double step, double last, int64_t length, int64_t turn, tc_dtype dtype,
                           tc_device device, tc_error *err)
{
    tc_range range = {.first = first, .step = step, .last = last, .turn = turn};
    if (device.type != TC_CPU) find_whole(&range, length, dtype);
    return make_range(out, &range, length, dtype, device, err);
}

/* ---- zeros ------------------------------------------------------------------------------------------------------------------- */

tc_status tc_tensor_zeros(tc_tensor **out, int ndim, const int64_t *shape, tc_dtype dtype, tc_device device, tc_error *err)
{
    if (device.type != TC_CPU) return tc_tensor_full(out, ndim, shape, 0.0, dtype, device, err);
    TC_TRY(tc_tensor_empty(out, ndim, shape, dtype, device, err));
    if ((*out)->numel) memset((*out)->data, 0, (size_t)(*out)->numel * tc_dtype_size(dtype));
    return TC_OK;
}
