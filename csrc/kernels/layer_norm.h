/* layer_norm.h: arguments of the layer normalisation kernels. */
#ifndef TC_KERNELS_LAYER_NORM_H
#define TC_KERNELS_LAYER_NORM_H

#include <stdint.h>

#include "divide_up.h"
#include "dropout.h"
#include "kernels.h"
#include "types.h"

/* Items are rows.  y,x (N,C); gamma,beta (C) or NULL; mean,rstd (N) are saved for the backward. With a residual (N,C), x + residual is
 * normalised and written to sum (N,C), which may be y; otherwise sum is not used. Then `mask` may say what dropout keeps of x, whose rows
 * lie in those of its places.  `stored`: of y, x, residual, gamma and beta. */
typedef struct tc_layer_norm_forward_args {
    void *y, *mean, *rstd, *sum;
    const void *x, *residual, *gamma, *beta;
    tc_mask mask;
    tc_stored stored;
    int64_t C;
    double eps;
} tc_layer_norm_forward_args;
extern const tc_kernel tc_kernel_layer_norm_forward;

/* Items are chunks of `rows_per_chunk` rows.  dx,dy,x (N,C); gamma (C) or NULL; mean,rstd (N). Each chunk writes one row of dgamma_partial
 * and dbeta_partial (chunks,C), which sum_partials adds up. dx and the partials may be NULL. Norms that do not centre their rows have no
 * mean and no dbeta_partial. Where x is the sum with what dropout kept, ddropped (N,C) or NULL is what the same dropout makes of dx. */
typedef struct tc_layer_norm_backward_args {
    void *dx, *ddropped, *dgamma_partial, *dbeta_partial;
    const void *dy, *x, *gamma, *mean, *rstd;
    tc_mask mask;
    int64_t N, C, rows_per_chunk;
} tc_layer_norm_backward_args;
extern const tc_kernel tc_kernel_layer_norm_backward;

/* Rows per chunk on a GPU, where a block of threads takes a chunk: enough blocks to fill it, and so many rows that the sums of each are
 * little beside them. */
static inline int64_t tc_norm_chunk_of_gpu(int64_t N, int64_t C)
{
    const int64_t most_chunks = 256, least = C <= 64 ? 32 : 8, rows = tc_divide_up(N, most_chunks);
    return rows > least ? rows : least;
}

#endif
