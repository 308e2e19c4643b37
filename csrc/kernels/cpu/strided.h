/* strided.h: operands of any strides and dtypes as streams of dense chunks, for the element-wise kernels and the reductions.
 *
 * Included after `element`, the type of the arithmetic (real or int64_t), is defined. An operand that is dense in memory and
 * in that type is used in place; any other is gathered into a buffer of STRIDED_CHUNK elements and converted. */
#ifndef TC_STRIDED_H
#define TC_STRIDED_H

#include "../elementwise.h"
#include "../kernels.h"
#include "../types.h"
#include "half.h"
#include "simd.h"

#define STRIDED_CHUNK 512
#define STRIDED_LONG 32  /* runs of this length along the innermost axis are worth reading one by one */
#define STRIDED_SHORT 16 /* shorter ones are not, where there are many of them */

typedef uint8_t boolean; /* written as 0 or 1; memory from outside may have any other byte for true */
typedef uint16_t float16, bfloat16;

/* to[i * to_step] = from[i * step], i < n; one of both sides is of `element` */
typedef void (*element_run)(void *to, int64_t to_step, const void *from, int64_t step, int64_t n);

/* Of floats in strided.c, of integers in integer.c. */
#ifdef STRIDED_INTEGERS
#define ELEMENT_DTYPE TC_INT64
#define element_loads TC_KERNEL(integer_loads)
#define element_stores TC_KERNEL(integer_stores)
#define gather TC_KERNEL(integer_gather)
#define scatter TC_KERNEL(integer_scatter)
#define repeat_row TC_KERNEL(integer_repeat_row)
#define spread_column TC_KERNEL(integer_spread_column)
#else
#define ELEMENT_DTYPE (TC_PRECISION == 32 ? TC_FLOAT32 : TC_FLOAT64)
#define element_loads TC_KERNEL(element_loads)
#define element_stores TC_KERNEL(element_stores)
#define gather TC_KERNEL(gather_elements)
#define scatter TC_KERNEL(scatter_elements)
#define repeat_row TC_KERNEL(repeat_row)
#define spread_column TC_KERNEL(spread_column)
#endif
extern const element_run element_loads[TC_DTYPE_COUNT]; /* in the order of tc_dtype */
extern const element_run element_stores[TC_DTYPE_COUNT];

static const int8_t element_bytes[TC_DTYPE_COUNT] = {4, 8, 2, 2, 8, 4, 1, 1};

/* A place in a nest of loops. */
typedef struct position {
    int64_t index[TC_ELEMENT_DIMS];
} position;

/* Where element i of a shape, counted in C order, is. */
TC_INLINE position position_of(int64_t i, int ndim, const int64_t *shape)
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
TC_INLINE void position_advance(position *at, int64_t n, int ndim, const int64_t *shape)
{
    int axis = ndim - 1;
    if (axis < 0) return;
    at->index[axis] += n;
    for (; axis > 0 && at->index[axis] == shape[axis]; axis--) {
        at->index[axis] = 0;
        at->index[axis - 1]++;
    }
}

TC_INLINE int64_t position_offset(const position *at, int ndim, const int64_t *strides)
{
    int64_t offset = 0;
    for (int axis = 0; axis < ndim; axis++) offset += at->index[axis] * strides[axis];
    return offset;
}

/* n elements from `at` on, over several runs along the innermost axis. */
void gather(element *to, const void *data, int dtype, const int64_t *strides, position at, int64_t n, int ndim, const int64_t *shape);
void scatter(const tc_operand *operand, const element *from, position at, int64_t n, int ndim, const int64_t *shape);
/* Operands of two axes, the last of `length` elements, that repeat along one of them. repeat_row: their only row, over and over, to n
 * elements or STRIDED_CHUNK. spread_column: n elements from `at` on, each row of which is one value of their only column. */
void repeat_row(element *to, const tc_operand *operand, int64_t length, int64_t n);
void spread_column(element *to, const tc_operand *operand, position at, int64_t n, int64_t length);

#endif
