/* index_points.c: from a plan to the offsets of its points, and the kernels that run over them; see index.h. */
#include <string.h>

#include "check_index.h"
#include "index.h"
#include "sort_positions.h"

static const tc_device host = {TC_CPU, 0};

/* ---- the points ------------------------------------------------------------------------------------------------------------------- */

/* The device where the kernel reads the pointers. */
static tc_device device_of(const tc_index_plan *plan) { return plan->stays ? plan->device : host; }

/* The args of index_points, without what it writes. `strides` of the base. */
static tc_status points_args(tc_scope *s, tc_index_points_args *args, const tc_index_plan *plan, const int64_t *strides)
{
    int64_t plain[TC_MAX_DIMS], *walked[TC_INDEX_DIMS];
    *args = (tc_index_points_args){.points = plan->points, .pointers = plan->pointers};
    memcpy(args->shape, plan->points_shape, sizeof(int64_t) * (size_t)plan->points_ndim);
    tc_c_strides(plain, plan->base_ndim, plan->base_shape);
    for (int i = 0; i < plan->pointers; i++) {
        tc_tensor *given = plan->pointer[i], *pointer;
        const int axis = plan->pointer_axis[i], lead = plan->points_ndim - given->ndim;
        TC_TRY(tc_tensor_on(&pointer, given, device_of(plan), s->err));
        TC_TRY(tc_own(s, pointer));
        args->pointer[i] = (tc_index_pointer){.indices = pointer->data,
                                              .length = plan->base_shape[axis],
                                              .step = strides[axis],
                                              .plain_step = plain[axis],
                                              .dtype = (int)pointer->dtype,
                                              .axis = axis};
        walked[i] = args->pointer[i].strides;
        for (int j = 0; j < pointer->ndim; j++) walked[i][lead + j] = pointer->shape[j] == 1 ? 0 : pointer->strides[j];
    }
    args->ndim = tc_layout_merge(plan->points_ndim, args->shape, plan->pointers, walked, false);
    return TC_OK;
}

/* The position of the alarm is the axis. */
static tc_status fail_later(const tc_index_check *check, int64_t axis, int64_t wanted, tc_error *err)
{
    return tc_index_out_of_range(wanted, (int)axis, check->shape[axis], err);
}

/* Runs a kernel that finds points: on a GPU it raises the alarm when an index is out of range. */
static tc_status find_points(const tc_index_plan *plan, tc_dtype compute, const tc_kernel *kernel, tc_index_points_args *points,
                             const void *args, int64_t items, tc_error *err)
{
    tc_index_check check = {.fail = fail_later, .ndim = plan->base_ndim};
    tc_index_alarm alarm;
    const tc_device device = device_of(plan);
    if (!plan->stays) return tc_run(device, compute, kernel, args, items, TC_INDEX_BLOCK, 0, err);
    memcpy(check.shape, plan->base_shape, sizeof check.shape);
    TC_TRY(tc_index_alarm_begin(&alarm, device, &check, err));
    points->alarm = alarm.alarm;
    points->ticket = alarm.ticket;
    return tc_index_alarm_end(&alarm, tc_run(device, compute, kernel, args, items, TC_INDEX_BLOCK, 0, err), err);
}

/* Are the places along the only axis with an index, a copy of the op's own, the offsets of the points? */
static bool are_offsets(const tc_index_plan *plan, const tc_tensor *base)
{
    return !plan->stays && plan->pointers == 1 && base->strides[plan->pointer_axis[0]] == 1;
}

tc_status tc_index_offsets(tc_scope *s, tc_tensor **offsets, tc_tensor **plain, const tc_index_plan *plan, const tc_tensor *base)
{
    tc_index_points_args args;
    if (are_offsets(plan, base) && (!plain || base->contiguous)) {
        *offsets = plan->pointer[0];
        if (plain) *plain = *offsets;
        return TC_OK;
    }
    TC_TRY(points_args(s, &args, plan, base->strides));
    TC_TRY(tc_tensor_empty(offsets, 1, &plan->points, TC_INT64, device_of(plan), s->err));
    TC_TRY(tc_own(s, *offsets));
    args.offsets = tc_data(*offsets);
    if (plain) *plain = *offsets;
    if (plain && !base->contiguous) {
        TC_TRY(tc_tensor_empty(plain, 1, &plan->points, TC_INT64, device_of(plan), s->err));
        TC_TRY(tc_own(s, *plain));
        args.plain = tc_data(*plain);
    }
    if (plan->points == 0) return TC_OK;
    return find_points(plan, TC_FLOAT32, &tc_kernel_index_points, &args, &args, tc_divide_up(plan->points, TC_INDEX_BLOCK), s->err);
}

tc_status tc_index_move_offsets(tc_scope *s, int count, tc_tensor **offsets)
{
    for (int i = 0; i < count; i++) {
        tc_tensor *const from = offsets[i];
        if (!from || tc_same_device(from->storage->device, s->device)) continue;
        TC_TRY(tc_tensor_on(&offsets[i], from, s->device, s->err));
        TC_TRY(tc_own(s, offsets[i]));
        for (int j = i + 1; j < count; j++)
            if (offsets[j] == from) offsets[j] = offsets[i];
    }
    return TC_OK;
}

tc_status tc_index_last_points(tc_scope *s, tc_tensor **out, tc_tensor *offsets, int64_t numel)
{
    tc_tensor *read, *last;
    void *memory;
    bool repeated = false;
    *out = offsets;
    if (numel == 0) return TC_OK; /* points that have a place, but no elements */
    TC_TRY(tc_tensor_on(&read, offsets, host, s->err));
    TC_TRY(tc_own(s, read));
    const int64_t n = read->numel, *offset = (const int64_t *)(void *)read->data;
    const size_t bytes = (size_t)numel / 8 + 1; /* a bit for each element: does a later point have this place? */
    TC_TRY(tc_make_memory(s, &memory, bytes));
    memset(memory, 0, bytes);
    uint8_t *taken = memory;
    TC_TRY(tc_tensor_empty(&last, 1, &n, TC_INT64, host, s->err));
    TC_TRY(tc_own(s, last));
    int64_t *mark = (int64_t *)(void *)last->data;
    for (int64_t i = n - 1; i >= 0; i--) {
        const int64_t at = mark[i] = offset[i];
        if (at == TC_INDEX_NOWHERE) continue; /* out of range on a GPU, which another thread is told */
        const bool seen = taken[at / 8] >> at % 8 & 1;
        if (seen) mark[i] = TC_INDEX_NOWHERE;
        taken[at / 8] |= (uint8_t)(1 << at % 8);
        repeated |= seen;
    }
    if (repeated) *out = last;
    return TC_OK;
}

/* ---- running a kernel ----------------------------------------------------------------------------------------------------- */

static tc_index_args args_of(tc_tensor *selection, tc_tensor *base, const tc_index_place *place)
{
    const size_t bytes = tc_dtype_size(base->dtype);
    tc_index_args args = {.selection = selection->data,
                          .base = base->data + place->offset * (int64_t)bytes,
                          .element_bytes = (int)bytes,
                          .points = place->points,
                          .numel = 1};
    const bool one = selection->ndim == 0 && place->selection_ndim > 0; /* used for all */
    int64_t step = 1;
    for (int i = place->ndim; i >= 0; i--) {
        if (i == place->before) {
            args.point_stride = one ? 0 : step;
            step *= place->points;
        }
        if (i == 0) break;
        args.shape[i - 1] = place->shape[i - 1];
        args.base_strides[i - 1] = place->strides[i - 1];
        args.selection_strides[i - 1] = one ? 0 : step;
        step *= place->shape[i - 1];
        args.numel *= place->shape[i - 1];
    }
    int64_t *const strides[2] = {args.base_strides, args.selection_strides};
    if (args.points * args.numel > 0) args.ndim = tc_layout_merge(place->ndim, args.shape, 2, strides, false);
    return args;
}

static int64_t gather_items(const tc_index_args *args) { return tc_divide_up(args->points * args->numel, TC_INDEX_BLOCK); }

tc_status tc_index_gather(tc_tensor *selection, tc_tensor *base, const tc_index_place *place, const tc_tensor *offsets, tc_error *err)
{
    tc_index_gather_args args = {.window = args_of(selection, base, place)};
    args.window.offsets = tc_data(offsets);
    if (args.window.points * args.window.numel == 0) return TC_OK;
    return tc_run(base->storage->device, tc_compute_dtype(base->dtype), &tc_kernel_index_gather, &args, gather_items(&args.window),
                  TC_INDEX_BLOCK, 0, err);
}

tc_status tc_index_take(tc_scope *s, tc_tensor *selection, tc_tensor *plain, tc_tensor *base, const tc_index_place *place,
                        const tc_index_plan *plan)
{
    tc_index_gather_args args = {.window = args_of(selection, base, place)};
    const bool nothing = args.window.numel == 0;
    if (plan->points == 0) return TC_OK;
    TC_TRY(points_args(s, &args.points, plan, base->strides));
    args.points.plain = plain ? tc_data(plain) : NULL;
    return find_points(plan, tc_compute_dtype(base->dtype), nothing ? &tc_kernel_index_points : &tc_kernel_index_gather, &args.points,
                       nothing ? (const void *)&args.points : &args, gather_items(&args.window) + nothing, s->err);
}

static tc_status order_points(tc_tensor **order, tc_index_args *args, tc_device device, tc_error *err)
{
    if (!tc_sorts_first(device, args->points)) return TC_OK;
    TC_TRY(tc_tensor_empty(order, 1, &args->points, TC_INT64, device, err));
    args->order = tc_data(*order);
    return tc_sort_positions(tc_data(*order), args->offsets, args->points, device, err);
}

tc_status tc_index_run(const tc_kernel *kernel, tc_tensor *selection, tc_tensor *base, const tc_index_place *place,
                       const tc_tensor *offsets, tc_error *err)
{
    TC_OWNED tc_tensor *order = NULL;
    tc_index_args args = args_of(selection, base, place);
    if (args.points == 0 || args.numel == 0) return TC_OK;
    args.offsets = tc_data(offsets);
    TC_TRY(order_points(&order, &args, base->storage->device, err));
    const double columns = args.numel < TC_INDEX_COLUMNS ? (double)args.numel : TC_INDEX_COLUMNS;
    return tc_run(base->storage->device, tc_compute_dtype(base->dtype), kernel, &args, tc_divide_up(args.numel, TC_INDEX_COLUMNS),
                  (double)args.points * columns, 0, err);
}
