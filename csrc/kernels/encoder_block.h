/* encoder_block.h: arguments of the kernel that takes some sequences at a time through a whole encoder block. */
#ifndef TC_KERNELS_ENCODER_BLOCK_H
#define TC_KERNELS_ENCODER_BLOCK_H

#include <stdbool.h>

#include "attention.h"
#include "gemm.h"
#include "layer_norm.h"

/* y, x (B,T,E). On CPUs items are groups of `group` sequences, the last of which may be smaller, and the parts are as they are planned for
 * all rows, with weights, biases, mask, scale and eps; each group adds where it reads and writes. On GPUs an item is a sequence, the
 * products are not planned, and all weights are read in place. Nothing between the parts depends on other sequences, and no part's bits
 * depend on how many rows it has. */
typedef struct tc_encoder_block_args {
    void *y;
    const void *x;
    int64_t B, T, E, group;
    bool norm_first;
    tc_gemm_args qkv, out, up, down; /* of E to 3E, head by head, E to E, E to F, F to E */
    tc_attention_forward_args attention;
    tc_layer_norm_forward_args norm1, norm2;
} tc_encoder_block_args;
extern const tc_kernel tc_kernel_encoder_block_forward;

/* ---- on GPUs: a block of threads takes a sequence, which stays in its shared memory ---------------------------------------------- */

#define TC_ENCODER_BLOCK_LENGTH 64 /* T, at most */
#define TC_ENCODER_BLOCK_WIDTH 64  /* E */
#define TC_ENCODER_BLOCK_HIDDEN 256
/* Of a weight, a block has two panels at a time: so many of its rows, of which so many elements. */
#define TC_ENCODER_BLOCK_PANEL 64
#define TC_ENCODER_BLOCK_DEPTH 32

/* Elements from one row to the next in shared memory: an odd number of 16 bytes, so that eight neighbouring rows are in different banks. */
static inline int64_t tc_encoder_block_row(int64_t columns, size_t element)
{
    const int64_t lanes = (int64_t)(16 / element);
    return (tc_divide_up(columns, lanes) | 1) * lanes;
}
/* The stream (T,E) and what a branch makes of it, (T,3E) or (T,F), and the panels; element: of the compute dtype. */
static inline int64_t tc_encoder_block_wide_row(int64_t E, int64_t F, size_t element)
{
    return tc_encoder_block_row(3 * E > F ? 3 * E : F, element);
}
static inline size_t tc_encoder_block_shared_bytes(int64_t T, int64_t E, int64_t F, size_t element)
{
    const int64_t rows = T * (2 * tc_encoder_block_row(E, element) + tc_encoder_block_wide_row(E, F, element));
    return (size_t)(rows + 2 * TC_ENCODER_BLOCK_PANEL * tc_encoder_block_row(TC_ENCODER_BLOCK_DEPTH, element)) * element;
}
static inline bool tc_encoder_block_fits(int64_t T, int64_t E, int64_t F, size_t element, int64_t shared_bytes)
{
    return T <= TC_ENCODER_BLOCK_LENGTH && E <= TC_ENCODER_BLOCK_WIDTH && F <= TC_ENCODER_BLOCK_HIDDEN &&
           tc_encoder_block_shared_bytes(T, E, F, element) <= (size_t)shared_bytes;
}

/* ---- on CPUs ---------------------------------------------------------------------------------------------------------------------- */

#define TC_ENCODER_BLOCK_CPU_LENGTH 64
#define TC_ENCODER_BLOCK_CPU_WIDTH 256

/* Where in an item's scratch everything lies, in bytes: (rows,3E) or (rows,F), three of (rows,E), statistics, scratch of the parts. */
typedef struct tc_encoder_block_scratch {
    size_t wide, values, update, stream, mean, rstd, shift, sum, part, bytes;
} tc_encoder_block_scratch;

static inline size_t tc_encoder_block_place(size_t *end, int64_t count, size_t element)
{
    const size_t begin = *end;
    *end += ((size_t)count * element + 63) / 64 * 64;
    return begin;
}

static inline tc_encoder_block_scratch tc_encoder_block_scratch_of(const tc_encoder_block_args *a, size_t element)
{
    const int64_t rows = a->group * a->T, wide = 3 * a->E > a->up.N ? 3 * a->E : a->up.N, heads = a->attention.problem.H;
    const tc_gemm_args *const products[] = {&a->qkv, &a->out, &a->up, &a->down};
    size_t end = 0, part = tc_attention_scratch(&a->attention.problem, element, false);
    tc_encoder_block_scratch s;
    for (int i = 0; i < 4; i++) {
        const size_t bytes = tc_gemm_scratch_of(products[i], element).bytes;
        if (bytes > part) part = bytes;
    }
    s.wide = tc_encoder_block_place(&end, rows * wide, element);
    s.values = tc_encoder_block_place(&end, rows * a->E, element);
    s.update = tc_encoder_block_place(&end, rows * a->E, element);
    s.stream = tc_encoder_block_place(&end, rows * a->E, element);
    s.mean = tc_encoder_block_place(&end, rows, element);
    s.rstd = tc_encoder_block_place(&end, rows, element);
    s.shift = tc_encoder_block_place(&end, rows * heads, element);
    s.sum = tc_encoder_block_place(&end, rows * heads, element);
    s.part = tc_encoder_block_place(&end, (int64_t)part, 1);
    s.bytes = end;
    return s;
}

#endif
