/* dropout.h: dropout of a part of an array, for kernels that go on with it. */
#ifndef TC_KERNELS_CPU_DROPOUT_H
#define TC_KERNELS_CPU_DROPOUT_H

#include "../dropout.h"
#include "simd.h"

/* Elements [begin, end) of the array: y and x are those of element begin; y may be x. Once in the library for each instruction set, not
 * inlined: the words take much code. */
void TC_KERNEL(drop)(const tc_mask *mask, real *y, const real *x, int64_t begin, int64_t end);

#endif
