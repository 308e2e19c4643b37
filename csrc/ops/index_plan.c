/* index_plan.c: from an index expression to a window and points; see index.h. */
#include <inttypes.h>
#include <string.h>

#include "../core/broadcast.h"
#include "index.h"

static const tc_device host = {TC_CPU, 0};

/* ---- pointers: integer arrays as they are used ----------------------------------------------------------------------------- */

static tc_status make_on_host(tc_scope *s, tc_tensor **out, int ndim, const int64_t *shape, tc_dtype dtype)
{
    TC_TRY(tc_tensor_empty(out, ndim, shape, dtype, host, s->err));
    return tc_own(s, *out);
}

/* A copy of an index array as int64 on the CPU, in range, negative entries counted from the end. Our own memory, so that nobody changes it
 * after the check. */
static tc_status integer_pointer(tc_scope *s, tc_tensor **out, const tc_tensor *given, int axis, int64_t length)
{
    TC_TRY(make_on_host(s, out, given->ndim, given->shape, TC_INT64));
    TC_TRY(tc_tensor_copy(*out, given, s->err));
    int64_t *index = (int64_t *)(void *)(*out)->data;
    const int64_t n = (*out)->numel;
    uint64_t odd = 0; /* its top bit is set where an index is negative or too large */
    for (int64_t i = 0; i < n; i++) odd |= (uint64_t)index[i] | ((uint64_t)length - 1 - (uint64_t)index[i]);
    if ((int64_t)odd >= 0) return TC_OK;
    bool outside = false;
    for (int64_t i = 0; i < n; i++) {
        index[i] += index[i] < 0 ? length : 0;
        outside |= (uint64_t)index[i] >= (uint64_t)length;
    }
    for (int64_t i = 0; outside; i++)
        if ((uint64_t)index[i] >= (uint64_t)length)
            return tc_index_out_of_range(index[i] - (index[i] < 0 ? length : 0), axis, length, s->err);
    return TC_OK;
}

tc_status tc_index_out_of_range(int64_t wanted, int axis, int64_t length, tc_error *err)
{
    return tc_fail(err, TC_ERROR_INDEX, "index %" PRId64 " is out of range for axis %d of length %" PRId64, wanted, axis, length);
}

tc_status tc_index_truth(tc_scope *s, tc_tensor **mask, int64_t *count, const tc_tensor *x)
{
    TC_TRY(make_on_host(s, mask, x->ndim, x->shape, TC_BOOL));
    TC_TRY(tc_tensor_copy(*mask, x, s->err));
    const uint8_t *truth = (const uint8_t *)(*mask)->data;
    *count = 0;
    for (int64_t i = 0; i < (*mask)->numel; i++) *count += truth[i];
    return TC_OK;
}

/* Writes the indices of the `count` elements that are set, in C order, to index[axis], `step` apart: of a row of the mask those along the
 * last axis, without a branch for each element, then those that all have in common. */
static void write_indices(int64_t *const *index, int64_t step, const tc_tensor *mask, int64_t count)
{
    const int last = mask->ndim - 1;
    const uint8_t *truth = (const uint8_t *)mask->data;
    int64_t at[TC_MAX_DIMS] = {0}, found = 0;
    for (; found < count && last >= 0; truth += mask->shape[last]) {
        const int64_t first = found, length = mask->shape[last];
        for (int64_t i = 0; i < length && found < count; i++) {
            uint64_t eight = 0;
            if (i + 8 <= length) memcpy(&eight, truth + i, sizeof eight);
            if (i + 8 <= length && eight == 0) {
                i += 7;
                continue;
            }
            index[last][found * step] = i;
            found += truth[i];
        }
        for (int axis = 0; axis < last; axis++)
            for (int64_t i = first; i < found; i++) index[axis][i * step] = at[axis]; /* NOLINT(clang-analyzer-core.*): one for each axis */
        for (int axis = last - 1; axis >= 0 && ++at[axis] == mask->shape[axis]; axis--) at[axis] = 0;
    }
}

/* The positions where `given` is not zero: an index array for each of its axes, in C order. */
static tc_status mask_pointers(tc_scope *s, tc_tensor **out, int64_t *count, const tc_tensor *given)
{
    tc_tensor *mask;
    int64_t *index[TC_MAX_DIMS];
    TC_TRY(tc_index_truth(s, &mask, count, given));
    for (int axis = 0; axis < mask->ndim; axis++) {
        TC_TRY(make_on_host(s, &out[axis], 1, count, TC_INT64));
        index[axis] = (int64_t *)(void *)out[axis]->data;
    }
    write_indices(index, 1, mask, *count);
    return TC_OK;
}

tc_status tc_nonzero(tc_tensor **out, tc_tensor *x, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_tensor *mask, *rows;
    int64_t shape[2] = {0, x->ndim}, *index[TC_MAX_DIMS];
    TC_TRY(tc_index_truth(&s, &mask, &shape[0], x));
    TC_TRY(make_on_host(&s, &rows, 2, shape, TC_INT64));
    for (int axis = 0; axis < x->ndim; axis++) index[axis] = (int64_t *)(void *)rows->data + axis;
    write_indices(index, x->ndim, mask, shape[0]);
    tc_give(&s, out, rows);
    return TC_OK;
}

/* ---- walking the expression -------------------------------------------------------------------------------------------------- */

static bool is_array(const tc_index *index)
{
    return index->kind == TC_INDEX_TENSOR && (index->tensor->dtype == TC_BOOL || index->tensor->ndim > 0);
}

/* Number of axes of the base that an entry indexes. */
static int consumed(const tc_index *index)
{
    switch (index->kind) {
    case TC_INDEX_NEW_AXIS:
    case TC_INDEX_ELLIPSIS: return 0;
    case TC_INDEX_TENSOR: return index->tensor->dtype == TC_BOOL ? index->tensor->ndim : 1;
    default: return 1;
    }
}

/* `axis` is the base's next one. */
typedef struct walk {
    tc_scope *s;
    tc_index_plan *plan;
    int axis;
    enum { NOT_YET, AMONG, AFTER } arrays; /* arrays with something between them put the points first */
} walk;

static tc_status keep(walk *w, int axis, int64_t length, int64_t step)
{
    tc_index_plan *plan = w->plan;
    if (plan->kept == TC_MAX_DIMS) return tc_fail(w->s->err, TC_ERROR_INDEX, "the selection has more than %d axes", TC_MAX_DIMS);
    plan->kept_axis[plan->kept] = axis;
    plan->kept_shape[plan->kept] = length;
    plan->kept_step[plan->kept++] = step;
    if (w->arrays == AMONG) w->arrays = AFTER;
    return TC_OK;
}

/* Python's rules: start and stop are as written (INT64_MAX and INT64_MIN where left out), counted from the end when negative, clipped. */
static tc_status take_slice(walk *w, const tc_index *index)
{
    const int64_t length = w->plan->base_shape[w->axis], step = index->step;
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    if (step == 0) return tc_fail(w->s->err, TC_ERROR_VALUE, "a slice cannot have a step of 0");
    int64_t ends[2] = {index->start, index->stop};
    for (int i = 0; i < 2; i++) {
        if (ends[i] < 0) ends[i] += length;
        if (ends[i] < low) ends[i] = low;
        if (ends[i] > high) ends[i] = high;
    }
    const uint64_t stride = step < 0 ? -(uint64_t)step : (uint64_t)step;
    const int64_t way = step < 0 ? ends[0] - ends[1] : ends[1] - ends[0];
    const int64_t count = way > 0 ? (int64_t)(((uint64_t)way - 1) / stride) + 1 : 0;
    w->plan->start[w->axis] = count ? ends[0] : 0;
    return keep(w, w->axis++, count, count > 1 ? step : 1);
}

static void join_arrays(walk *w)
{
    if (w->arrays == NOT_YET) w->plan->before = w->plan->kept;
    if (w->arrays == AFTER) w->plan->before = 0;
    w->arrays = w->arrays == AFTER ? AFTER : AMONG;
}

static tc_status take_integer(walk *w, int64_t wanted)
{
    const int axis = w->axis++;
    const int64_t length = w->plan->base_shape[axis], index = wanted < 0 ? wanted + length : wanted;
    if (index < 0 || index >= length) return tc_index_out_of_range(wanted, axis, length, w->s->err);
    w->plan->start[axis] = index;
    if (w->plan->advanced) join_arrays(w);
    return TC_OK;
}

static tc_status broadcast_points(walk *w, int ndim, const int64_t *shape)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_error ignored;
    tc_index_plan *plan = w->plan;
    int64_t joint[TC_MAX_DIMS];
    int joint_ndim;
    if (tc_broadcast_shape(&joint_ndim, joint, plan->points_ndim, plan->points_shape, ndim, shape, &ignored) != TC_OK)
        return tc_fail(w->s->err, TC_ERROR_INDEX, "index arrays of shapes %s and %s do not broadcast together",
                       tc_shape_text(a, plan->points_ndim, plan->points_shape), tc_shape_text(b, ndim, shape));
    plan->points_ndim = joint_ndim;
    memcpy(plan->points_shape, joint, sizeof(int64_t) * (size_t)joint_ndim);
    return TC_OK;
}

static tc_status take_mask(walk *w, const tc_tensor *given)
{
    tc_index_plan *plan = w->plan;
    int64_t count = 0;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    for (int i = 0; i < given->ndim; i++)
        if (given->shape[i] != plan->base_shape[w->axis + i])
            return tc_fail(w->s->err, TC_ERROR_INDEX,
                           "a boolean index of shape %s has length %" PRId64 " where axis %d of the tensor %s has length %" PRId64,
                           tc_shape_text(a, given->ndim, given->shape), given->shape[i], w->axis + i,
                           tc_shape_text(b, plan->base_ndim, plan->base_shape), plan->base_shape[w->axis + i]);
    join_arrays(w);
    TC_TRY(mask_pointers(w->s, plan->pointer + plan->pointers, &count, given));
    for (int i = 0; i < given->ndim; i++) plan->pointer_axis[plan->pointers++] = w->axis++;
    return broadcast_points(w, 1, &count);
}

/* Does the array stay on the GPU of the base? A number in a tensor chooses a window, whose place the host has to know. */
static bool stays(const walk *w, const tc_tensor *given)
{
    const tc_device device = given->storage->device;
    return device.type != TC_CPU && tc_same_device(device, w->plan->device) && given->ndim > 0 && w->plan->base_shape[w->axis] > 0;
}

static tc_status take_array(walk *w, tc_tensor *given)
{
    tc_index_plan *plan = w->plan;
    const int64_t length = plan->base_shape[w->axis];
    tc_tensor *pointer = given;
    if (given->dtype == TC_BOOL) return take_mask(w, given);
    if (given->ndim > 0) join_arrays(w);
    if (stays(w, given))
        plan->stays = true;
    else
        TC_TRY(integer_pointer(w->s, &pointer, given, w->axis, length));
    if (given->ndim == 0) return take_integer(w, *(int64_t *)(void *)pointer->data); /* a number in a tensor */
    plan->pointer[plan->pointers] = pointer;
    plan->pointer_axis[plan->pointers++] = w->axis++;
    return broadcast_points(w, given->ndim, given->shape);
}

static tc_status take(walk *w, const tc_index *index, int hidden)
{
    switch (index->kind) {
    case TC_INDEX_INTEGER: return take_integer(w, index->start);
    case TC_INDEX_SLICE: return take_slice(w, index);
    case TC_INDEX_NEW_AXIS: return keep(w, -1, 1, 0);
    case TC_INDEX_TENSOR: return take_array(w, index->tensor);
    case TC_INDEX_ELLIPSIS:
        if (w->arrays == AMONG) w->arrays = AFTER;
        for (int i = 0; i < hidden; i++, w->axis++) TC_TRY(keep(w, w->axis, w->plan->base_shape[w->axis], 1));
    }
    return TC_OK;
}

/* Every pointer in the shape of the points, unless one is on a GPU: then the kernel reads them all as they are. */
static tc_status spread_pointers(tc_scope *s, tc_index_plan *plan)
{
    plan->points = 1;
    for (int i = 0; i < plan->points_ndim; i++)
        if (!tc_multiply_sizes(plan->points, plan->points_shape[i], &plan->points))
            return tc_fail(s->err, TC_ERROR_VALUE, "the index arrays select too many elements");
    for (int i = 0; i < plan->pointers && !plan->stays; i++) {
        const tc_tensor *pointer = plan->pointer[i];
        if (pointer->ndim == plan->points_ndim && memcmp(pointer->shape, plan->points_shape, sizeof(int64_t) * (size_t)pointer->ndim) == 0)
            continue;
        TC_TRY(tc_tensor_empty(&plan->pointer[i], plan->points_ndim, plan->points_shape, TC_INT64, pointer->storage->device, s->err));
        TC_TRY(tc_own(s, plan->pointer[i]));
        TC_TRY(tc_tensor_copy(plan->pointer[i], pointer, s->err));
    }
    return TC_OK;
}

static tc_status check_entries(const tc_tensor *base, int count, const tc_index *indices, int *used, bool *ellipsis, bool *advanced,
                               tc_error *err)
{
    for (int i = 0; i < count; i++) {
        if (indices[i].kind == TC_INDEX_ELLIPSIS && *ellipsis)
            return tc_fail(err, TC_ERROR_INDEX, "an index can have one ellipsis ('...') only");
        if (indices[i].kind == TC_INDEX_TENSOR && tc_dtype_is_float(indices[i].tensor->dtype))
            return tc_fail(err, TC_ERROR_INDEX,
                           "an array used as an index must be of integers or bools, this one is %s; convert it with .long() or .bool()",
                           tc_dtype_name(indices[i].tensor->dtype));
        *ellipsis |= indices[i].kind == TC_INDEX_ELLIPSIS;
        *advanced |= is_array(&indices[i]);
        *used += consumed(&indices[i]);
    }
    if (*used > base->ndim) {
        char text[TC_SHAPE_TEXT];
        return tc_fail(err, TC_ERROR_INDEX, "too many indices: %d for a tensor of %d axes, shape %s", *used, base->ndim,
                       tc_tensor_text(text, base));
    }
    return TC_OK;
}

tc_status tc_index_plan_make(tc_scope *s, tc_index_plan *plan, const tc_tensor *base, int count, const tc_index *indices)
{
    static const tc_index rest = {.kind = TC_INDEX_ELLIPSIS};
    int used = 0;
    bool ellipsis = false, advanced = false;
    memset(plan, 0, sizeof *plan);
    plan->device = base->storage->device;
    plan->base_ndim = base->ndim;
    memcpy(plan->base_shape, base->shape, sizeof(int64_t) * (size_t)base->ndim);
    walk w = {.s = s, .plan = plan, .arrays = NOT_YET};
    TC_TRY(check_entries(base, count, indices, &used, &ellipsis, &advanced, s->err));
    plan->advanced = advanced;
    for (int i = 0; i < count; i++) TC_TRY(take(&w, &indices[i], base->ndim - used));
    if (!ellipsis) TC_TRY(take(&w, &rest, base->ndim - used));
    return spread_pointers(s, plan);
}

/* ---- in terms of strides ---------------------------------------------------------------------------------------------------------- */

tc_status tc_index_place_at(tc_index_place *place, const tc_index_plan *plan, const int64_t *strides, tc_error *err)
{
    if (plan->kept + plan->points_ndim > TC_MAX_DIMS)
        return tc_fail(err, TC_ERROR_INDEX, "the selection has %d axes; at most %d are supported", plan->kept + plan->points_ndim,
                       TC_MAX_DIMS);
    memset(place, 0, sizeof *place);
    place->ndim = plan->kept;
    place->before = plan->before;
    place->advanced = plan->advanced;
    place->points = plan->points;
    place->base_ndim = plan->base_ndim;
    memcpy(place->base_shape, plan->base_shape, sizeof(int64_t) * (size_t)plan->base_ndim);
    for (int i = 0; i < plan->base_ndim; i++) place->offset += plan->start[i] * strides[i];
    int n = 0;
    for (int i = 0; i <= plan->kept; i++) {
        if (plan->advanced && i == plan->before)
            for (int j = 0; j < plan->points_ndim; j++) place->selection_shape[n++] = plan->points_shape[j];
        if (i == plan->kept) break;
        place->shape[i] = place->selection_shape[n++] = plan->kept_shape[i];
        place->strides[i] = plan->kept_axis[i] < 0 ? 0 : plan->kept_step[i] * strides[plan->kept_axis[i]];
    }
    place->selection_ndim = n;
    return TC_OK;
}
