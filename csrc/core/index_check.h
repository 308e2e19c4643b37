/* index_check.h: what is known about a check of indices when it has failed, which on GPUs the host learns later. */
#ifndef TC_CORE_INDEX_CHECK_H
#define TC_CORE_INDEX_CHECK_H

#include "../transformer_c.h"

typedef struct tc_index_check {
    /* The error for the index at this position. */
    tc_status (*fail)(const struct tc_index_check *check, int64_t position, int64_t value, tc_error *err);
    int64_t length;  /* indices are from 0 to length - 1, */
    int64_t ignored; /* or this, where `ignores` is set */
    bool ignores;
    int axis, ndim; /* the rest is for the message: an axis; the shape of the indices */
    int64_t shape[TC_MAX_DIMS];
} tc_index_check;

#endif
