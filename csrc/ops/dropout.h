/* dropout.h: shared by the ops that drop elements of an array. */
#ifndef TC_OPS_DROPOUT_H
#define TC_OPS_DROPOUT_H

#include "../core/graph.h"
#include "../kernels/dropout.h"
#include "op.h"

/* A mask and, where each start of a graph draws it anew, which graph's. Plain data: an attribute of what is recorded. */
typedef struct tc_drawn_mask {
    tc_mask kept;
    uint64_t graph;
} tc_drawn_mask;

/* The mask of an array like x. A batch that is shared (tc_batch_share) has its rows along the first axis, which is among the first `lead`
 * axes of x or is not shared. */
tc_drawn_mask tc_mask_of(const tc_tensor *x, int lead, double p, uint64_t seed, uint64_t call);
/* The same for `numel` elements of the rows of x, which may have other lengths. */
tc_drawn_mask tc_mask_of_rows(const tc_tensor *x, int lead, int64_t numel, double p, uint64_t seed, uint64_t call);
TC_CHECKED tc_status tc_check_dropout(double p, tc_error *err);
/* The op with a mask that was made before: y = x / (1 - p) where an element is kept, 0 elsewhere. */
TC_CHECKED tc_status tc_drop(tc_tensor **y, tc_tensor *x, const tc_drawn_mask *mask, tc_error *err);
/* For a backward: fails outside of the capture that recorded its forward. */
TC_CHECKED tc_status tc_check_mask(const tc_drawn_mask *mask, tc_error *err);

#endif
