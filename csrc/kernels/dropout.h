/* dropout.h: arguments of the dropout kernel. */
#ifndef TC_KERNELS_DROPOUT_H
#define TC_KERNELS_DROPOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "divide_up.h"
#include "kernels.h"
#include "philox.h"

/* Which elements of an array a dropout keeps (philox.h).  0 <= p <= 1; 0 keeps all of them. */
typedef struct tc_mask {
    double p;
    uint64_t seed, call;
    const uint64_t *drawn; /* (TC_DRAWN_WORDS) or NULL */
    tc_places places;
} tc_mask;

/* y = x / (1 - p) where the element is kept, 0 elsewhere, whatever the value of x. The backward is the same kernel on dy with the same
 * mask.  Items are groups of TC_PHILOX_GROUP elements: tc_dropout_groups() for each row of `places`, of which those beyond its end have no
 * elements.  y,x (n), contiguous, n a multiple of places.row; y may be x. */
typedef struct tc_dropout_forward_args {
    void *y;
    const void *x;
    int64_t n;
    tc_mask mask;
} tc_dropout_forward_args;

/* Does every row of `places` begin with a group? */
static inline bool tc_dropout_is_aligned(const tc_dropout_forward_args *a)
{
    const tc_places *places = &a->mask.places;
    return places->row % TC_PHILOX_GROUP == 0 || (places->first == 0 && a->n <= places->row);
}
/* The groups that a row may touch: one more where it need not begin with a group. */
static inline int64_t tc_dropout_groups(const tc_dropout_forward_args *a)
{
    return tc_divide_up(a->mask.places.row, TC_PHILOX_GROUP) + !tc_dropout_is_aligned(a);
}
static inline int64_t tc_dropout_items(const tc_dropout_forward_args *a) { return a->n / a->mask.places.row * tc_dropout_groups(a); }
extern const tc_kernel tc_kernel_dropout_forward;

#endif
