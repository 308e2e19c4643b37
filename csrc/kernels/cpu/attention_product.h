/* attention_product.h: the small products of attention over the register tile of tile.h, with operands read in place.
 *
 *     c[m][n] = (accumulate ? c[m][n] : 0) + sum over k of a(m, k) * b[k][n]
 *
 * a(m, k) is a[m * a_stride + k] (ALONG_ROWS) or a[m + k * a_stride] (ALONG_COLUMNS: a is used as its transpose).
 */
#ifndef TC_KERNELS_CPU_ATTENTION_PRODUCT_H
#define TC_KERNELS_CPU_ATTENTION_PRODUCT_H

#include "simd.h"

typedef enum { ALONG_ROWS, ALONG_COLUMNS } product_order;

typedef struct product {
    real *c;
    const real *a, *b;
    int64_t c_row, a_stride, b_row, M, N, K;
    bool accumulate;
} product;

/* Of attention_product.c, for the forward and the backward: much code, once. */
#define product_along_rows TC_KERNEL(product_along_rows)
#define product_along_columns TC_KERNEL(product_along_columns)
void product_along_rows(const product *x);
void product_along_columns(const product *x);

#endif
