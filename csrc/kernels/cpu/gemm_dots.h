/* gemm_dots.h: batches of products of one row by one column, several at a time, one per lane. Included by gemm.c only. */
#ifndef TC_KERNELS_CPU_GEMM_DOTS_H
#define TC_KERNELS_CPU_GEMM_DOTS_H

#include "../gemm.h"
#include "transpose.h"

/* Both operands lie along memory, and nothing else is asked for than the products, which lie next to one another. */
static bool is_dots(const tc_gemm_args *g)
{
    const int last = g->batch_dims - 1;
    return last >= 0 && g->M == 1 && g->N == 1 && g->K > 0 && g->a_col == 1 && g->b_row == 1 && g->b_form != TC_GEMM_B_PANELS &&
           !g->b_rows && g->k_chunks == 1 && g->c_batch[last] == 1 && g->a_stored == TC_STORED_AS_COMPUTED &&
           g->b_stored == TC_STORED_AS_COMPUTED && g->c_stored == TC_STORED_AS_COMPUTED && g->activation == TC_ACTIVATION_NONE &&
           !g->bias && !g->residual && !g->pre && !g->a_sum;
}

/* c[i] = the sum of a[i * a_step + k] b[i * b_step + k], i < lanes, over k in order in blocks, as tiles add it up: squares of both operands
 * are transposed. */
static __attribute__((noinline)) void dots(real *c, const real *a, int64_t a_step, const real *b, int64_t b_step, int64_t K,
                                           int64_t k_block, int lanes)
{
    vreal total = v_zero();
    for (int64_t k0 = 0; k0 < K; k0 += k_block) {
        const int64_t until = K - k0 < k_block ? K : k0 + k_block;
        vreal sum = v_zero();
        for (int64_t k = k0; k < until; k += TC_LANES) {
            const int width = v_left(until, k);
            vreal x[TC_LANES], y[TC_LANES];
            v_load_transposed(x, a + k, a_step, lanes, width);
            v_load_transposed(y, b + k, b_step, lanes, width);
            TC_UNROLL
            for (int i = 0; i < TC_LANES; i++)
                if (i < width) sum = v_fma(x[i], y[i], sum);
        }
        total = k0 == 0 ? sum : total + sum;
    }
    v_store_some(c, total, lanes);
}

/* Items [begin, end) of the batch. */
static void batch_of_dots(const tc_gemm_args *g, int64_t begin, int64_t end)
{
    const int64_t k_block = tc_gemm_item_k_block(g);
    int outer = g->batch_dims - 1;
    int64_t width = g->batch_shape[outer];
    const int64_t a_step = g->a_batch[outer], b_step = g->b_batch[outer];
    while (outer > 0 && g->a_batch[outer - 1] == width * a_step && g->b_batch[outer - 1] == width * b_step) /* is walked as one axis */
        width *= g->batch_shape[--outer];
    for (int64_t item = begin, lanes; item < end; item += lanes) {
        const int64_t first = item % width, left = width - first < end - item ? width - first : end - item;
        const real *a = (const real *)g->a + first * a_step, *b = (const real *)g->b + first * b_step;
        int64_t batch = item / width;
        for (int d = outer - 1; d >= 0; batch /= g->batch_shape[d--]) {
            const int64_t index = batch % g->batch_shape[d];
            a += index * g->a_batch[d], b += index * g->b_batch[d];
        }
        lanes = left < TC_LANES ? left : TC_LANES;
        dots((real *)g->c + item, a, a_step, b, b_step, g->K, k_block, (int)lanes);
    }
}

#endif
