/* reduced.h: what one result is made of, as dense chunks. Included after INTEGER_DTYPE is or is not defined. */
#ifndef TC_REDUCED_H
#define TC_REDUCED_H

#include "../reduce.h"
#include "strided.h"

/* Elements [r, r + n) of those that are reduced to the result whose first element is at x. */
TC_INLINE void gather_reduced(void *to, const tc_reduce_args *a, const char *x, int64_t r, int64_t n)
{
    if (a->reduced_ndim == 1) { /* as most have */
        const int64_t step = a->reduced_strides[0];
        cast_runs[a->x_dtype][ELEMENT_DTYPE](to, 1, x + r * step * element_bytes[a->x_dtype], step, n);
        return;
    }
    const position at = position_of(r, a->reduced_ndim, a->reduced_shape);
    gather(to, ELEMENT_DTYPE, (strided){(char *)x, a->x_dtype, a->reduced_strides}, &at, n, a->reduced_ndim, a->reduced_shape);
}

#endif
