/* strided.h: operands of any strides and dtypes, as streams of dense chunks for the element-wise kernels and the reductions.
 *
 * An operand that is dense in memory and in the type of the arithmetic is used in place; any other is gathered into a buffer of
 * STRIDED_CHUNK elements and converted. */
#ifndef TC_STRIDED_H
#define TC_STRIDED_H

#include "../elementwise.h"
#include "../kernels.h"
#include "../position.h"
#include "cast.h"
#include "simd.h"

#define STRIDED_CHUNK 512
#define STRIDED_LONG 32  /* runs of this length along the innermost axis are worth reading one by one */
#define STRIDED_SHORT 16 /* shorter ones are not, where there are many of them */

/* Of the type `element` of the arithmetic. */
#ifdef INTEGER_DTYPE
#define ELEMENT_DTYPE INTEGER_DTYPE
#else
#define ELEMENT_DTYPE (TC_PRECISION == 32 ? TC_FLOAT32 : TC_FLOAT64)
#endif

#define STRIDED_F32(name, isa) TC_PASTE4(tc_##name, _f32_, isa, ) /* which the kernels of float64 share */
#define move_elements STRIDED_F32(move_elements, TC_ISA)
#define gather STRIDED_F32(gather_elements, TC_ISA)
#define scatter STRIDED_F32(scatter_elements, TC_ISA)
#define repeat_row STRIDED_F32(repeat_row, TC_ISA)
#define spread_column STRIDED_F32(spread_column, TC_ISA)

/* An array, or one side of a move. */
typedef struct strided {
    void *data;
    int dtype;
    const int64_t *strides; /* in elements, any sign, 0 to repeat */
} strided;

/* n elements of `shape`, from `at` on in C order. Of both sides of move_elements, data is at the first of them; of what gather reads and
 * scatter writes, at the first of all. */
void move_elements(strided to, strided from, const position *at, int64_t n, int ndim, const int64_t *shape);
void gather(void *to, int to_dtype, strided from, const position *at, int64_t n, int ndim, const int64_t *shape);
void scatter(strided to, void *from, int from_dtype, const position *at, int64_t n, int ndim, const int64_t *shape);

TC_INLINE strided strided_from(strided array, const position *at, int ndim)
{
    array.data = (char *)array.data + position_offset(at, ndim, array.strides) * element_bytes[array.dtype];
    return array;
}

/* Operands of two axes, the last of `length` elements, that repeat along one of them. repeat_row: their only row, over and over, to n
 * elements or STRIDED_CHUNK. spread_column: n elements from `at` on, each row of which is one value of their only column. */
void repeat_row(void *to, int to_dtype, strided from, int64_t length, int64_t n);
void spread_column(void *to, int to_dtype, strided from, const position *at, int64_t n, int64_t length);

#endif
