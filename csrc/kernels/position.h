/* position.h: a place in a nest of loops over the axes of a shape. */
#ifndef TC_KERNELS_POSITION_H
#define TC_KERNELS_POSITION_H

#include "elementwise.h"

typedef struct position {
    int64_t index[TC_ELEMENT_DIMS];
} position;

#define POSITION_INLINE static inline __attribute__((always_inline))

/* Where element i, counted in C order, is. */
POSITION_INLINE position position_of(int64_t i, int ndim, const int64_t *shape)
{
    position at;
    for (int axis = ndim - 1; axis > 0; axis--) {
        at.index[axis] = i % shape[axis];
        i /= shape[axis];
    }
    at.index[0] = i;
    return at;
}

/* Moves n elements along the innermost axis, at most to its end. */
POSITION_INLINE void position_advance(position *at, int64_t n, int ndim, const int64_t *shape)
{
    int axis = ndim - 1;
    if (axis < 0) return;
    at->index[axis] += n;
    for (; axis > 0 && at->index[axis] == shape[axis]; axis--) {
        at->index[axis] = 0;
        at->index[axis - 1]++;
    }
}

POSITION_INLINE int64_t position_offset(const position *at, int ndim, const int64_t *strides)
{
    int64_t offset = 0;
    for (int axis = 0; axis < ndim; axis++) offset += at->index[axis] * strides[axis];
    return offset;
}

#endif
