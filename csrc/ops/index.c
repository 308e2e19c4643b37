/* index.c: x[...] with NumPy's index expressions. A basic index is a view; the rest is gathered.
 *
 * Saved for the backward of a gather: the offsets of its points on a contiguous tensor (8 bytes each). */
#include "index.h"

#include <string.h>

#include "view.h"

#define FEW_POINTS 8 /* where less than one element in FEW_POINTS was gathered, only those are added up in another dtype and cast */

static bool has_few_points(const tc_index_place *place)
{
    int64_t selected = 1, all = 1;
    for (int i = 0; i < place->selection_ndim; i++) selected *= place->selection_shape[i];
    for (int i = 0; i < place->base_ndim; i++) all *= place->base_shape[i];
    return selected < all / FEW_POINTS;
}

/* dx, zeros, = the sums of dy (of the dtype that halves are computed in) at the points. Other elements of the sums are not looked at. */
static tc_status add_apart(tc_tensor *dx, tc_tensor *dy, const tc_index_place *place, const tc_tensor *points, tc_error *err)
{
    TC_OWNED tc_tensor *sums = NULL, *zero = NULL, *taken = NULL, *cast = NULL;
    const tc_device device = dx->storage->device;
    TC_TRY(tc_tensor_empty(&sums, dx->ndim, dx->shape, dy->dtype, device, err));
    TC_TRY(tc_tensor_zeros(&zero, 0, NULL, dy->dtype, device, err));
    TC_TRY(tc_tensor_empty(&taken, place->selection_ndim, place->selection_shape, dy->dtype, device, err));
    TC_TRY(tc_index_run(&tc_kernel_index_put, zero, sums, place, points, err));
    TC_TRY(tc_index_run(&tc_kernel_index_add, dy, sums, place, points, err));
    TC_TRY(tc_index_gather(taken, sums, place, points, err));
    TC_TRY(tc_tensor_as(&cast, taken, dx->dtype, err));
    return tc_index_run(&tc_kernel_index_put, cast, dx, place, points, err);
}

/* The gradient of a gather is added to the gathered elements. */
static tc_status gather_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const tc_index_place *place = node->attributes;
    const tc_dtype dtype = grad_outputs[0]->dtype, compute = tc_compute_dtype(dtype); /* half types add up in float32 */
    const tc_device device = grad_outputs[0]->storage->device;
    const tc_tensor *points = tc_node_saved(node, 0);
    TC_OWNED tc_tensor *dy = NULL, *dx = NULL;
    TC_TRY(tc_tensor_as(&dy, grad_outputs[0], compute, err));
    const bool apart = dtype != compute && device.type == TC_CPU && has_few_points(place);
    TC_TRY(tc_tensor_zeros(&dx, place->base_ndim, place->base_shape, apart ? dtype : compute, device, err));
    TC_TRY(apart ? add_apart(dx, dy, place, points, err) : tc_index_run(&tc_kernel_index_add, dy, dx, place, points, err));
    return tc_tensor_as(&grad_inputs[0], dx, dtype, err);
}

static const tc_op gather_op = {"index", gather_backward, .attribute_bytes = sizeof(tc_index_place)};

static tc_status gather(tc_scope *s, tc_tensor **out, tc_tensor *x, const tc_index_plan *plan)
{
    tc_input in[] = {{"x", x}};
    int64_t strides[TC_MAX_DIMS];
    tc_index_place place, plain;                                     /* on x as it is in memory, and on a contiguous tensor, as dx is */
    tc_tensor *offsets[2] = {NULL}, **const saved = &offsets[1], *y; /* on x, and of a recorded gather on a contiguous tensor */
    TC_TRY(tc_begin_moving(s, in, 1));
    tc_c_strides(strides, x->ndim, x->shape);
    TC_TRY(tc_index_place_at(&place, plan, x->strides, s->err));
    TC_TRY(tc_index_place_at(&plain, plan, strides, s->err));
    TC_TRY(tc_make(s, &y, place.selection_ndim, place.selection_shape));
    if (plan->stays) {
        if (tc_tape_wants(1, &x)) TC_TRY(tc_make_as(s, saved, 1, &plan->points, TC_INT64));
        TC_TRY(tc_index_take(s, y, *saved, x, &place, plan));
    } else {
        TC_TRY(tc_index_offsets(s, &offsets[0], tc_tape_wants(1, &x) ? saved : NULL, plan, x));
        TC_TRY(tc_index_move_offsets(s, 2, offsets));
        TC_TRY(tc_index_gather(y, x, &place, offsets[0], s->err));
    }
    TC_TRY(tc_tensor_settle_bools(y, s->err));
    return tc_finish(s, out, y, &(tc_record){.op = &gather_op, TC_SAVED(*saved), .attributes = &plain});
}

/* Is it x[mask] of single elements in their order in memory, all on the CPU, and unrecorded? */
static bool is_selected(tc_tensor *x, int count, const tc_index *indices)
{
    const tc_tensor *mask = count == 1 && indices->kind == TC_INDEX_TENSOR ? indices->tensor : NULL;
    if (!mask || mask->dtype != TC_BOOL || mask->ndim == 0 || !tc_has_shape(mask, x->ndim, x->shape)) return false;
    return x->contiguous && tc_tensor_on_cpu(x) && tc_tensor_on_cpu(mask) && !tc_tape_wants(1, &x);
}

/* Without a branch: each element is written to the next place of the result, which counts only if the mask has it. Eight elements that
 * it does not have are skipped at once. */
#define SELECT(TYPE)                                                                                                                       \
    for (int64_t i = 0; found < n; i++) {                                                                                                  \
        uint64_t eight = 1;                                                                                                                \
        if (i + 8 <= mask->numel) memcpy(&eight, truth + i, sizeof eight);                                                                 \
        if (eight == 0) {                                                                                                                  \
            i += 7;                                                                                                                        \
            continue;                                                                                                                      \
        }                                                                                                                                  \
        ((TYPE *)(void *)y->data)[found] = ((const TYPE *)(const void *)x->data)[i];                                                       \
        found += truth[i];                                                                                                                 \
    }

/* The same without a list of the places, which takes several times the memory of the result. */
static tc_status select_elements(tc_scope *s, tc_tensor **out, tc_tensor *x, const tc_tensor *given)
{
    tc_input in[] = {{"x", x}};
    tc_tensor *mask, *y;
    int64_t n, found = 0;
    TC_TRY(tc_begin_moving(s, in, 1));
    TC_TRY(tc_index_truth(s, &mask, &n, given));
    TC_TRY(tc_make(s, &y, 1, &n));
    const uint8_t *truth = (const uint8_t *)mask->data;
    switch (tc_dtype_size(x->dtype)) {
    case 1: SELECT(uint8_t) break;
    case 2: SELECT(uint16_t) break;
    case 4: SELECT(uint32_t) break;
    default: SELECT(uint64_t)
    }
    TC_TRY(tc_tensor_settle_bools(y, s->err));
    tc_give(s, out, y);
    return TC_OK;
}

tc_status tc_index_get(tc_tensor **out, tc_tensor *x, int count, const tc_index *indices, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_index_plan plan;
    if (is_selected(x, count, indices)) return select_elements(&s, out, x, indices->tensor);
    TC_TRY(tc_index_plan_make(&s, &plan, x, count, indices));
    if (plan.advanced) return gather(&s, out, x, &plan);
    return tc_window(out, x, plan.kept, plan.kept_shape, plan.kept_axis, plan.kept_step, plan.start, false, err);
}
