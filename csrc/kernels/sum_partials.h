/* sum_partials.h: the second step of every reduction over rows. */
#ifndef TC_KERNELS_SUM_PARTIALS_H
#define TC_KERNELS_SUM_PARTIALS_H

#include <stdint.h>

#include "kernels.h"
#include "types.h"

/* Items are columns in groups of TC_SUM_PARTIALS_GROUP.  out (C) = sum over chunks of partial (chunks,C), in order, + before (C). */
#define TC_SUM_PARTIALS_GROUP 64
typedef struct tc_sum_partials_args {
    void *out;
    tc_stored out_stored, before_stored;
    const void *partial, *before; /* before: NULL, or what the sums are added to */
    int64_t chunks, C;
} tc_sum_partials_args;
extern const tc_kernel tc_kernel_sum_partials;

#endif
