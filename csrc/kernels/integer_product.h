/* integer_product.h: arguments of the product of integer matrices. */
#ifndef TC_KERNELS_INTEGER_PRODUCT_H
#define TC_KERNELS_INTEGER_PRODUCT_H

#include "gemm.h"
#include "kernels.h"

/* Items are rows of C of all batch elements.  C (M,N) = A (M,K) B (K,N), all of `dtype`, an integer or bool; only the sizes, strides and
 * batch of `product` are used. Sums wrap around; for bools they are "any". */
typedef struct tc_integer_product_args {
    tc_gemm_args product;
    tc_dtype dtype;
} tc_integer_product_args;
extern const tc_kernel tc_kernel_integer_product;

#endif
