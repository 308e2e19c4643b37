/* gemm.h: the matrix product as ops use it. The kernel's struct describes the product; the backend chooses how to compute it. */
#ifndef TC_OPS_GEMM_H
#define TC_OPS_GEMM_H

#include "../kernels/gemm.h"
#include "op.h"

/* C (M,N) = activation(A (M,K) B (K,N) + bias (N)) + residual (M,N), for every element of a batch.
 *
 * Operands are of s->compute or, where their `stored` says so, halves, and so is c; pre is of s->compute. a_sum (M) is the sums of the rows
 * of A. It and c are of s->compute too, unless the product is `wide`: then they are of s->statistics. a_sum is written when N > 0. Strides
 * are of any size and sign. A residual that `accumulates` has rows of N. Members left 0 are not used: no epilogue and no batch.
 * An epilogue and a batch exclude each other, but for a bias of rows. Windows (b_rows, b_cols) and a bias of rows are for CPUs alone. C
 * overlaps none of the operands. `keep`: the storage of B when its prepared form may be kept
 * for later calls, otherwise NULL. */
TC_CHECKED tc_status tc_product(tc_scope *s, tc_gemm_args *product, tc_storage *keep);

/* *own: what is given, checked, with lengths of int64 that the scope owns; NULL: nothing is known. On GPUs nothing is taken, as no
 * product depends on it there; nor are the values of lengths looked at. */
TC_CHECKED tc_status tc_take_sequences(tc_scope *s, tc_sequences *own, const tc_sequences *given, const tc_tensor *x);

/* The same for rows of sequences. Where the backend computes long sequences in another way than short ones, each run of either among packed
 * ones is a product of its own. */
TC_CHECKED tc_status tc_product_of_sequences(tc_scope *s, tc_gemm_args *product, tc_storage *keep, const tc_sequences *sequences);

/* The last axis of *x as columns and all others as rows of one matrix. Where the strides of *x do not allow that, it becomes a copy, which
 * the scope owns. */
TC_CHECKED tc_status tc_fold_rows(tc_scope *s, tc_tensor **x, int64_t *rows, int64_t *row_stride);

/* On a CPU a result of one column is computed as a row, that of the transposed product, in full vectors. The order of its sums stays: the
 * number of columns would decide it where float32 or halves go through tiles, so may_split is off. False: it is left as it is. */
bool tc_turn_column(const tc_scope *s, tc_gemm_args *p);

#endif
