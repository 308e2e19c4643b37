/* encoder_block.h: arguments of the kernel that takes some sequences at a time through a whole encoder block. */
#ifndef TC_KERNELS_ENCODER_BLOCK_H
#define TC_KERNELS_ENCODER_BLOCK_H

#include <stdbool.h>

#include "attention.h"
#include "dropout.h"
#include "gemm.h"
#include "layer_norm.h"

#define TC_ENCODER_BLOCK_MASKS 3

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
    tc_mask mask[TC_ENCODER_BLOCK_MASKS]; /* on GPUs: what dropout keeps of attention's branch, of the hidden layer before its activation,
                                             and of its branch */
} tc_encoder_block_args;
extern const tc_kernel tc_kernel_encoder_block_forward;

/* Where the gradients of qkv_weight, qkv_bias, out_weight, ..., gamma1, beta1, gamma2 and beta2 begin, in elements, and their end. Each
 * begins at a multiple of 8; what is between them is not written. */
#define TC_ENCODER_BLOCK_PARAMETERS 12
typedef struct tc_encoder_block_places {
    int64_t begin[TC_ENCODER_BLOCK_PARAMETERS], size[TC_ENCODER_BLOCK_PARAMETERS], end;
} tc_encoder_block_places;
static inline tc_encoder_block_places tc_encoder_block_places_of(int64_t E, int64_t F)
{
    const int64_t sizes[TC_ENCODER_BLOCK_PARAMETERS] = {3 * E * E, 3 * E, E * E, E, F * E, F, E * F, E, E, E, E, E};
    tc_encoder_block_places places;
    places.end = 0;
    for (int i = 0; i < TC_ENCODER_BLOCK_PARAMETERS; i++) {
        places.begin[i] = places.end;
        places.size[i] = sizes[i];
        places.end += tc_divide_up(sizes[i], 8) * 8;
    }
    return places;
}

/* On GPUs alone.  dx,dy (B,T,E). What is between the parts is computed again. Items are chunks of `chunk` sequences, the last of which may
 * be smaller; each writes a row of partial (chunks, end of the places), the gradients of the parameters, as computed. */
typedef struct tc_encoder_block_backward_args {
    tc_encoder_block_args block; /* y is not used */
    void *dx, *partial;
    const void *dy;
    int64_t chunk;
} tc_encoder_block_backward_args;
extern const tc_kernel tc_kernel_encoder_block_backward;

/* Sequences of a chunk: partial has at most so many rows, and so many elements. */
#define TC_ENCODER_BLOCK_CHUNKS 256
#define TC_ENCODER_BLOCK_PARTIAL (4 * 1048576)
static inline int64_t tc_encoder_block_chunk(int64_t B, const tc_encoder_block_places *places)
{
    const int64_t fit = TC_ENCODER_BLOCK_PARTIAL / places->end;
    return tc_divide_up(B, fit < TC_ENCODER_BLOCK_CHUNKS ? fit : TC_ENCODER_BLOCK_CHUNKS);
}

/* On GPUs alone, the second step: out[i], unless it is NULL, = the sum of the gradients of parameter i over the rows of partial, in order.
 * One item. */
typedef struct tc_encoder_block_sums_args {
    void *out[TC_ENCODER_BLOCK_PARAMETERS];
    const void *partial;
    int64_t chunks;
    tc_encoder_block_places places;
} tc_encoder_block_sums_args;
extern const tc_kernel tc_kernel_encoder_block_sums;

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

/* Of the backward, in elements: where each area begins. (T,E): the sums that the norms take, or x and the second one; what attention gives;
 * the gradient; a branch's input; its result before dropout, or what dropout keeps of the gradient, or the gradient of the input. (T,3E):
 * queries, keys and values. (T,F) or (T,3E): the hidden layer, and the gradients of queries, keys and values. (T,F) or nothing: what the
 * activation was applied to. Then statistics and panels. While attention's gradients are computed, its weights and the gradients of scores
 * of some heads are where normal, branch and sum2 are at other times. */
typedef struct tc_encoder_block_areas {
    int64_t sum1, values, gradient, normal, branch, sum2, wide, hidden, before, statistics, panels, end;
} tc_encoder_block_areas;
/* From one row of weights to the next: an odd number. */
static inline int64_t tc_encoder_block_score_row(int64_t T) { return T | 1; }
/* Heads whose gradients are computed at a time: as many as give work to all threads of a block, if there are so many, and one at least. */
static inline int64_t tc_encoder_block_heads_at_once(int64_t T, int64_t H)
{
    const int64_t rows = T <= 16 ? 32 : 64, wanted = T < 1 ? 1 : rows / T; /* of queries, by two for each group of eight threads */
    return wanted < H ? wanted : H;
}
static inline tc_encoder_block_areas tc_encoder_block_areas_of(int64_t T, int64_t E, int64_t F, int64_t H, size_t element,
                                                               bool keeps_before)
{
    const int64_t rows = T * tc_encoder_block_row(E, element), wide = T * tc_encoder_block_wide_row(E, F, element);
    const int64_t lanes = (int64_t)(16 / element), pairs = tc_encoder_block_heads_at_once(T, H) * 2 * T * tc_encoder_block_score_row(T);
    const int64_t needed = 3 * rows > pairs ? 3 * rows : tc_divide_up(pairs, lanes) * lanes;
    tc_encoder_block_areas a;
    a.sum1 = 0;
    a.values = rows;
    a.gradient = 2 * rows;
    a.normal = 3 * rows;
    a.branch = a.normal + rows;
    a.sum2 = a.branch + rows;
    a.wide = a.normal + needed;
    a.hidden = a.wide + wide;
    a.before = a.hidden + wide;
    a.statistics = a.before + (keeps_before ? wide : 0);
    a.panels = a.statistics + tc_divide_up(4 * T, lanes) * lanes;
    a.end = a.panels + 2 * TC_ENCODER_BLOCK_PANEL * tc_encoder_block_row(TC_ENCODER_BLOCK_DEPTH, element);
    return a;
}
/* ReLU has the sign of its result; other activations need what they were applied to. */
static inline bool tc_encoder_block_keeps_before(tc_activation activation)
{
    return activation != TC_ACTIVATION_NONE && activation != TC_ACTIVATION_RELU;
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
