/* lines.h: arguments of the kernels along the lines of one axis: elements taken and written by an index per element, and running sums. */
#ifndef TC_KERNELS_LINES_H
#define TC_KERNELS_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

#define TC_LINES_DIMS 16
#define TC_CUMSUM_TILE 64 /* columns per item of cumsum */

/* Items are lines: the axis runs along a line, the other axes (shape, strides in elements) number the lines. `index` has K places on each,
 * and `taken` (gathered, or to be written) K elements that belong to them; `whole` is the tensor of L elements per line that the places
 * are of. For an index outside it nothing is written, and zero is gathered (read_index.h). Kernels on CPUs set *outside then: the op has
 * not read the index before. For GPUs a kernel before this one checks it, whose error comes later.
 *
 * - lines_gather: taken[k] = whole[index[k]].
 * - lines_put: whole[index[k]] = taken[k], in the order of k: of equal places the last stays.
 * - lines_combine: whole[index[k]] += taken[k], or *=, in the order of k, in the compute dtype, or with `integers` in int64. */
typedef struct tc_lines_args {
    void *whole, *taken;
    const int64_t *index;
    const char *before; /* on CPUs; or NULL: what `whole` is made of, line by line, which lie in memory there as here */
    int element_bytes;  /* of `whole`, of gather and put of both */
    bool integers, multiplies;
    bool *outside; /* on CPUs; or NULL */
    int ndim;
    int64_t K, L;
    int64_t index_step, taken_step, whole_step;
    int64_t shape[TC_LINES_DIMS], index_strides[TC_LINES_DIMS], taken_strides[TC_LINES_DIMS], whole_strides[TC_LINES_DIMS];
} tc_lines_args;
extern const tc_kernel tc_kernel_lines_gather;
extern const tc_kernel tc_kernel_lines_put;
extern const tc_kernel tc_kernel_lines_combine;

/* y,x (outer, length, inner), contiguous: y[k] = x[0] + ... + x[k] along `length`, or with `reverse` x[k] + ... + x[length - 1]. Items are
 * outer times tiles of TC_CUMSUM_TILE of inner. Floats are added up in float64; `integers`: int64, which wraps around. */
typedef struct tc_cumsum_args {
    void *y;
    const void *x;
    int64_t length, inner;
    bool reverse, integers;
} tc_cumsum_args;
extern const tc_kernel tc_kernel_cumsum;

#endif
