/* strided.h: operands of any strides and dtypes as streams of dense chunks, for the element-wise kernels and the reductions.
 *
 * Included after `element`, the type of the arithmetic (real or int64_t), is defined. An operand that is dense in memory and
 * in that type is used in place; any other is gathered into a buffer of STRIDED_CHUNK elements and converted. */
#ifndef TC_STRIDED_H
#define TC_STRIDED_H

#include <string.h>

#include "../elementwise.h"
#include "../kernels.h"
#include "../types.h"
#include "half.h"
#include "simd.h"

#define STRIDED_CHUNK 512
#define STRIDED_LONG 32 /* runs of this length along the innermost axis are worth reading one by one */

typedef uint8_t boolean; /* written as 0 or 1; memory from outside may have any other byte for true */
typedef uint16_t float16, bfloat16;

typedef void (*element_load)(element *to, const void *from, int64_t step, int64_t n); /* to[i] = from[i * step] */

#define STRIDED_LOAD(TYPE, VALUE)                                                                                                          \
    static void load_##TYPE(element *to, const void *from_, int64_t step, int64_t n)                                                       \
    {                                                                                                                                      \
        const TYPE *from = from_;                                                                                                          \
        if (step == 1)                                                                                                                     \
            for (int64_t i = 0; i < n; i++) to[i] = (element)VALUE(from[i]);                                                               \
        else                                                                                                                               \
            for (int64_t i = 0; i < n; i++) to[i] = (element)VALUE(from[i * step]);                                                        \
    }
#define AS_IT_IS(x) (x)
#define NOT_ZERO(x) ((x) != 0)
STRIDED_LOAD(int64_t, AS_IT_IS)
STRIDED_LOAD(int32_t, AS_IT_IS)
STRIDED_LOAD(uint8_t, AS_IT_IS)
STRIDED_LOAD(boolean, NOT_ZERO)
#ifdef STRIDED_INTEGERS
/* In the order of tc_dtype. The ops ensure that integer kernels get integers. */
static const element_load element_loads[TC_DTYPE_COUNT] = {NULL, NULL, NULL, NULL, load_int64_t, load_int32_t, load_uint8_t, load_boolean};
#define ELEMENT_DTYPE TC_INT64
#else
STRIDED_LOAD(float, AS_IT_IS)
STRIDED_LOAD(double, AS_IT_IS)
STRIDED_LOAD(float16, tc_from_float16)
STRIDED_LOAD(bfloat16, tc_from_bfloat16)
static const element_load element_loads[TC_DTYPE_COUNT] = {load_float,   load_double,  load_float16, load_bfloat16,
                                                           load_int64_t, load_int32_t, load_uint8_t, load_boolean};
#define ELEMENT_DTYPE (TC_PRECISION == 32 ? TC_FLOAT32 : TC_FLOAT64)
#endif

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
static void gather(element *to, const void *data, int dtype, const int64_t *strides, position at, int64_t n, int ndim, const int64_t *shape)
{
    const element_load load = element_loads[dtype];
    const int64_t length = ndim ? shape[ndim - 1] : 1, step = ndim ? strides[ndim - 1] : 0;
    while (n > 0) {
        const int64_t left = length - at.index[ndim ? ndim - 1 : 0], run = left < n ? left : n;
        load(to, (const char *)data + position_offset(&at, ndim, strides) * element_bytes[dtype], step, run);
        position_advance(&at, run, ndim, shape);
        to += run;
        n -= run;
    }
}

#endif
