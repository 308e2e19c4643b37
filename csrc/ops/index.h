/* index.h: NumPy's index expressions, worked out for one tensor. Nothing here is recorded.
 *
 * An index selects a window (the axes that slices keep) at a list of points (the elements of integer and boolean arrays); a basic index is
 * one window at one point. A plan describes this by axes, a place by strides: for the tensor as it is in memory, and for a contiguous one
 * of its shape, as gradients are.
 */
#ifndef TC_OPS_INDEX_H
#define TC_OPS_INDEX_H

#include "../kernels/index.h"
#include "op.h"

typedef struct tc_index_plan {
    tc_device device; /* of the base */
    int base_ndim;
    int64_t base_shape[TC_MAX_DIMS];
    int64_t start[TC_MAX_DIMS]; /* the first element, one number per axis of the base; 0 on axes with a pointer */
    int kept;                   /* axes of the window */
    int kept_axis[TC_MAX_DIMS]; /* of the base, or -1: a new axis */
    int64_t kept_shape[TC_MAX_DIMS], kept_step[TC_MAX_DIMS];
    bool advanced; /* there are points */
    int before;    /* how many axes of the window come before those of the points in the selection */
    int points_ndim;
    int64_t points_shape[TC_MAX_DIMS], points;
    int pointers, pointer_axis[TC_MAX_DIMS];
    bool stays;                      /* one of them is on the base's GPU, where the host does not read it */
    tc_tensor *pointer[TC_MAX_DIMS]; /* otherwise of the scope: int64 on the CPU, contiguous, of points_shape, in range */
} tc_index_plan;

TC_CHECKED tc_status tc_index_out_of_range(int64_t wanted, int axis, int64_t length, tc_error *err);
/* The scope owns what these make. */
TC_CHECKED tc_status tc_index_plan_make(tc_scope *s, tc_index_plan *plan, const tc_tensor *base, int count, const tc_index *indices);

typedef struct tc_index_place {
    int ndim, before;
    bool advanced;
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS], offset; /* the window at the origin; elements of the base */
    int64_t points;
    int selection_ndim;
    int64_t selection_shape[TC_MAX_DIMS];
    int base_ndim;
    int64_t base_shape[TC_MAX_DIMS];
} tc_index_place;

/* *mask, which the scope owns: where x is not zero, contiguous on the CPU in memory that nobody else changes, as bytes that are 0 or 1.
 * *count: how many there are. */
TC_CHECKED tc_status tc_index_truth(tc_scope *s, tc_tensor **mask, int64_t *count, const tc_tensor *x);

/* `strides` of the base. Fails only when the selection has too many axes. */
TC_CHECKED tc_status tc_index_place_at(tc_index_place *place, const tc_index_plan *plan, const int64_t *strides, tc_error *err);
/* The offsets of the points: as many int64, in elements of the base, on the CPU, or on the base's GPU if an array stays there. An index
 * that is out of range is then told later, and its point is TC_INDEX_NOWHERE. plain, or NULL, gets those on a contiguous tensor of the
 * base's shape: `offsets` itself where the base is contiguous. They may be the plan's own pointers, and so are not written to. */
TC_CHECKED tc_status tc_index_offsets(tc_scope *s, tc_tensor **offsets, tc_tensor **plain, const tc_index_plan *plan,
                                      const tc_tensor *base);
/* The same, of a tensor of numel elements, with TC_INDEX_NOWHERE for points that a later one coincides with; *out is `offsets` itself when
 * there are none. */
TC_CHECKED tc_status tc_index_last_points(tc_scope *s, tc_tensor **out, tc_tensor *offsets, int64_t numel);

/* Moves them to the device of the scope, each tensor once; NULL stays. */
TC_CHECKED tc_status tc_index_move_offsets(tc_scope *s, int count, tc_tensor **offsets);

/* selection = base at the points; `offsets` on the base's device. */
TC_CHECKED tc_status tc_index_gather(tc_tensor *selection, tc_tensor *base, const tc_index_place *place, const tc_tensor *offsets,
                                     tc_error *err);
/* The same where an array stays on the GPU, by one kernel, which checks the indices as well. plain, or NULL, gets the offsets of the points
 * on a contiguous tensor of the base's shape. */
TC_CHECKED tc_status tc_index_take(tc_scope *s, tc_tensor *selection, tc_tensor *plain, tc_tensor *base, const tc_index_place *place,
                                   const tc_index_plan *plan);
/* index_put or index_add over a selection and the base, as in tc_index_gather. The selection is contiguous, or one element used for all. */
TC_CHECKED tc_status tc_index_run(const tc_kernel *kernel, tc_tensor *selection, tc_tensor *base, const tc_index_place *place,
                                  const tc_tensor *offsets, tc_error *err);

#endif
