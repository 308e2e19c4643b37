/* embedding.h: arguments of the kernels for embedding and one-hot. The ops have checked that indices are in range; see
 * read_index.h. */
#ifndef TC_KERNELS_EMBEDDING_H
#define TC_KERNELS_EMBEDDING_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"
#include "types.h"

#define TC_EMBEDDING_GROUP 16 /* indices per item */

/* Items are groups of indices.  y (n) rows, weight (V) rows of row_bytes each, of any dtype; indices (n). */
typedef struct tc_embedding_forward_args {
    void *y;
    const void *weight;
    const int64_t *indices;
    int64_t n, V, row_bytes;
} tc_embedding_forward_args;
extern const tc_kernel tc_kernel_embedding_forward;

/* One item. The positions of each index, in ascending order: order[start[v]] .. order[start[v + 1] - 1] are the positions of v.  order (n);
 * start (V+1). Where `sorted` is set, on GPUs alone, order has the positions of all indices already, by index. */
typedef struct tc_embedding_order_args {
    int64_t *order, *start;
    const int64_t *indices;
    int64_t n, V;
    bool sorted;
} tc_embedding_order_args;
extern const tc_kernel tc_kernel_embedding_order;

/* Items are rows of the table.  dweight (V,D) = sum of the rows of dy (n,D) that were taken from it; 0 for padding_idx. On CPUs `order` and
 * `start` may be of `rows` (count) alone, ascending, the only ones that any was taken from: order[start[r]] .. are the positions of
 * rows[r]. */
typedef struct tc_embedding_backward_args {
    void *dweight;
    const void *dy;
    const int64_t *order, *start, *rows; /* rows: NULL on GPUs */
    int64_t n, D, padding_idx, count;
    tc_stored stored; /* dy and dweight */
} tc_embedding_backward_args;
extern const tc_kernel tc_kernel_embedding_backward;

/* Items are groups of indices.  out (n,classes) int64. */
typedef struct tc_one_hot_args {
    int64_t *out;
    const int64_t *indices;
    int64_t n, classes;
} tc_one_hot_args;
extern const tc_kernel tc_kernel_one_hot;

#endif
