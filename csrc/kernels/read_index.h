/* read_index.h: reads an index or a class from memory that another thread may write to meanwhile: the index that is checked is the one that
 * is used. */
#ifndef TC_KERNELS_READ_INDEX_H
#define TC_KERNELS_READ_INDEX_H

#include <stdint.h>

/* Ops check all indices (ops/check_index.h), on GPUs with an error that comes later, and the arrays belong to the caller. One that is out
 * of range, or no longer in it, does no harm, whatever the result: kernels take it for TC_NO_INDEX. */
#define TC_NO_INDEX (-1)

static inline int64_t tc_read_index(const int64_t *index) { return __atomic_load_n(index, __ATOMIC_RELAXED); }

/* The index, if 0 <= index < length, which is not negative. */
static inline int64_t tc_read_index_below(const int64_t *index, int64_t length)
{
    const int64_t read = tc_read_index(index);
    return (uint64_t)read < (uint64_t)length ? read : TC_NO_INDEX;
}

#endif
