/* kept_half.h: copies of float32 weights in halves, for autocast on devices that compute on halves. A copy is kept with the storage it was
 * made from, until that is written to; an optimizer writes it together with the weight. */
#ifndef TC_CORE_KEPT_HALF_H
#define TC_CORE_KEPT_HALF_H

#include "tensor.h"

/* May a copy be kept? Not of memory that others may write to unnoticed. */
bool tc_may_keep_half(const tc_tensor *weight);

/* *out: the values in `dtype`, which is another, not on the tape, in memory that nobody may write to. */
TC_CHECKED tc_status tc_half_copy(tc_tensor **out, tc_tensor *weight, tc_dtype dtype, tc_error *err);
/* The same, kept. Any number of threads may call at once. */
TC_CHECKED tc_status tc_kept_half(tc_tensor **out, tc_tensor *weight, tc_dtype dtype, tc_error *err);

/* For whoever is about to write all of the weight: the copy, which is the caller's from then on, or NULL when there is none or others use
 * it. Graphs, which use it at their starts alone, do not count. */
tc_tensor *tc_take_kept_half(const tc_tensor *weight);
/* Gives it back (stolen) after it has got the same values. */
void tc_give_kept_half(const tc_tensor *weight, tc_tensor *copy);

/* For graphs, which read and write copies where they were in the capture. Is it the one that is kept, with the values of the weight? */
bool tc_kept_half_is(const tc_tensor *weight, const tc_tensor *copy);
/* If it is not: casts the weight to it, and keeps it. */
TC_CHECKED tc_status tc_renew_kept_half(tc_tensor *weight, tc_tensor *copy, tc_error *err);
/* Both have been written, with the same values: if it is still the one that is kept, it counts as such. */
void tc_kept_half_was_stepped(const tc_tensor *weight, const tc_tensor *copy);

#endif
