/* check_index.h: arguments of the kernel that looks for indices outside their range. */
#ifndef TC_KERNELS_CHECK_INDEX_H
#define TC_KERNELS_CHECK_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

/* What is written when an index is outside, else nothing. */
enum { TC_ALARM_VALUE, TC_ALARM_POSITION, TC_ALARM_TICKET, TC_ALARM_WORDS };

/* One item. The first of n indices that is not from 0 to length - 1, nor `ignored` where `ignores` is set, goes to the alarm, with the
 * ticket. total, one number, or NULL: the sum of weight (length; NULL: ones) at the indices that are neither. */
typedef struct tc_check_index_args {
    int64_t *alarm; /* (TC_ALARM_WORDS); it may be page-locked memory of the host */
    void *total;
    const int64_t *indices;
    const void *weight;
    int64_t n, length, ignored, ticket;
    bool ignores;
} tc_check_index_args;
extern const tc_kernel tc_kernel_check_index;

#endif
