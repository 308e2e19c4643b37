/* gemm.h: the matrix product as ops use it: sizes, addresses and strides in, packing and splitting decided here. */
#ifndef TC_OPS_GEMM_H
#define TC_OPS_GEMM_H

#include "../core/tensor.h"
#include "../kernels/gemm.h"

/* C (M,N) = activation(A (M,K) B (K,N) + bias (N)) + residual (M,N), for every element of a batch.
 *
 * Strides in elements, of any size and sign; columns of C, pre and residual lie side by side. Fields left 0 are not used:
 * there is no epilogue then, and no batch. An epilogue and a batch do not go together. C overlaps none of the operands. */
typedef struct tc_product {
    tc_device device;
    tc_dtype compute;
    int64_t M, N, K;
    const void *a, *b, *bias, *residual;
    void *c, *pre; /* pre (M,N): what the activation is applied to */
    void *a_sum;   /* (M): the sums of the rows of A; written when N > 0 */
    int64_t a_row, a_col, b_row, b_col, c_row, residual_row, pre_row;
    tc_activation activation;
    int batch_dims;
    int64_t batch_shape[TC_GEMM_BATCH_DIMS], a_batch[TC_GEMM_BATCH_DIMS], b_batch[TC_GEMM_BATCH_DIMS], c_batch[TC_GEMM_BATCH_DIMS];
    tc_storage *b_storage; /* where the packed form of B may be kept from call to call; NULL: nowhere */
} tc_product;

TC_CHECKED tc_status tc_product_run(const tc_product *product, tc_error *err);

/* The last axis of x as columns and all others as rows of one matrix, when its strides allow that. */
bool tc_fold_rows(const tc_tensor *x, int64_t *rows, int64_t *row_stride);

#endif
