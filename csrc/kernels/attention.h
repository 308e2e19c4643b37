/* attention.h: arguments of the attention kernels.
 *
 *     scores = softcap(scale * q k^T) + bias, masked;  attention = softmax(scores);  values = attention v
 *
 * (Vaswani et al. 2017, eq. 1), by blocks of keys with a running sum (Milakov and Gimelshein 2018), so that nothing of
 * size Tq x Tk is stored. Shapes: B batch, H query heads, Hk key/value heads (H a multiple of Hk: query head h reads key head
 * h / (H / Hk)), Tq queries, Tk keys, D head size of q and k, Dv of v.
 */
#ifndef TC_KERNELS_ATTENTION_H
#define TC_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "divide_up.h"
#include "kernels.h"
#include "philox.h"
#include "types.h"

#define TC_ATTENTION_QUERIES 48                   /* queries in a block: a multiple of every vector width */
#define TC_ATTENTION_KEYS 128                     /* keys in a block */
#define TC_ATTENTION_UNBOUNDED (INT64_C(1) << 60) /* the sum of a few does not overflow */
#define TC_ATTENTION_FAR (INT64_C(1) << 59)       /* longer than any sequence, and so is UNBOUNDED minus it */

/* (B,H,T,D) with any strides (in elements; 0 where it is broadcast), but 1 along the last axis. */
typedef struct tc_attention_operand {
    void *data;
    int64_t batch, head, row;
} tc_attention_operand;

/* (B,H,Tq,Tk) with any strides (in elements; 0 where it is broadcast); data NULL: none. */
typedef struct tc_attention_plane {
    void *data;
    int64_t batch, head, row, column;
} tc_attention_plane;

typedef enum tc_attention_mask_kind {
    TC_ATTENTION_MASK_BOOLEAN, /* a score where the byte is 0 may not be attended to: never read, weight 0 */
    TC_ATTENTION_MASK_FILL     /* such a score becomes -9e15, as in the tutorial: weight 0 unless the whole row is masked */
} tc_attention_mask_kind;

typedef enum tc_attention_empty_rows {
    TC_ATTENTION_EMPTY_ZERO,   /* a row that may attend to no key has values, attention and gradients 0 */
    TC_ATTENTION_EMPTY_UNIFORM /* it attends equally to all Tk keys */
} tc_attention_empty_rows;

/* On GPUs: which kernel computes it. */
typedef enum tc_attention_variant {
    TC_ATTENTION_PLAIN, /* every dtype, shape and option, in the compute dtype */
    TC_ATTENTION_MMA,   /* halves and heads of tc_attention_fits_mma(), on tensor cores */
    TC_ATTENTION_FLOAT  /* float32 and heads of tc_attention_fits_float(), by multiply-adds with large tiles in registers */
} tc_attention_variant;

/* Shared by forward and backward. */
typedef struct tc_attention_problem {
    tc_attention_operand q, k, v; /* (B,H,Tq,D), (B,Hk,Tk,D), (B,Hk,Tk,Dv) */
    tc_stored stored;             /* of q, k, v and, in the forward, of the values */
    int64_t B, H, Hk, Tq, Tk, D, Dv;
    double scale, softcap;   /* softcap 0: none */
    tc_attention_plane mask; /* uint8 */
    tc_attention_mask_kind mask_kind;
    tc_attention_plane additive[2]; /* added to the scores; -inf: may not attend. On GPUs of the table's dtype, on CPUs the compute dtype */
    /* Query i sees keys i + offset - left <= j <= i + offset + right, j < key_lengths[b]. Causal: right is 0. */
    int64_t left, right;        /* from -TC_ATTENTION_UNBOUNDED to TC_ATTENTION_UNBOUNDED: no bound */
    int64_t offset;             /* when offsets is NULL; within TC_ATTENTION_FAR */
    const int64_t *offsets;     /* (B) or NULL; clamped to TC_ATTENTION_FAR */
    const int64_t *key_lengths; /* (B) or NULL; clamped to 0 .. Tk */
    /* Packed sequences, (B + 1) or NULL: batch element b is the rows [sequences[b], sequences[b + 1]) of q, k and v, and of all that has
     * their shape; their batch strides are 0, and arrays (B,H,Tq) become (H,tokens). Tq = Tk is the length of the longest, and arrays
     * (B,H,Tq,Tk) keep their shape. The op has checked the numbers. */
    const int64_t *sequences;
    int64_t tokens;
    tc_attention_empty_rows empty_rows;
    /* Before the product with the values, a weight is dropped with this probability and scaled by 1 / (1 - dropout) otherwise. philox.h
     * decides which, with element ((b * H + h) * Tq + i) * ceil64(Tk) + j: rows are padded to multiples of 64. So packed sequences keep
     * what they keep in a batch that is padded to the longest of them. */
    double dropout;
    uint64_t seed, call;
    const uint64_t *drawn; /* (TC_DRAWN_WORDS) or NULL, likewise */
    tc_places heads;       /* b * H + h in the whole batch, for dropout */
} tc_attention_problem;

/* Items are blocks of queries: (b * H + h) * ceil(Tq / TC_ATTENTION_QUERIES) + block; of packed sequences (h * B + b) * ... + block, so
 * that equal shares of the items are about equal work, whatever the lengths. shift,sum (B,H,Tq), in the compute dtype, are saved for the
 * backward: attention[i][j] = exp(score[i][j] - shift[i]) / sum[i]. They are separate because their log-sum-exp has too few digits for
 * large scores; sum is 0 in empty rows. lse (B,H,Tq) = shift + log(sum) and map (B,H,Tq,Tk), contiguous, or NULL. */
typedef struct tc_attention_forward_args {
    tc_attention_problem problem;
    tc_attention_operand values; /* (B,H,Tq,Dv) */
    void *shift, *sum, *lse, *map;
    bool splits_keys; /* on GPUs: each segment of the keys has blocks of its own, whose results are joined in scratch memory */
    tc_attention_variant variant;
    bool large_blocks; /* on tensor cores: a block may have TC_ATTENTION_LARGE_BLOCK bytes of shared memory, which changes no bit */
} tc_attention_forward_args;
extern const tc_kernel tc_kernel_attention_forward;

/* Items are (b * Hk + hk) * splits + split, of packed sequences (hk * B + b) * splits + split: the query blocks of a key/value head, in
 * `splits` shares, whose number depends on the shape. map and dmap (B,H,Tq,Tk) and dlse (B,H,Tq), contiguous: gradients of the other two
 * results, or NULL. Split 0 writes dk and dv; split s > 0 its own part of dk_partial (splits-1,B,Hk,Tk,D) and dv_partial
 * (splits-1,B,Hk,Tk,Dv), which attention_sum_splits adds up. The gradient of q is complete with any number of shares. */
typedef struct tc_attention_backward_args {
    tc_attention_problem problem;
    tc_attention_operand values, dvalues; /* (B,H,Tq,Dv) */
    const void *shift, *sum, *map, *dmap, *dlse;
    tc_attention_operand dq, dk, dv; /* shapes of q, k, v, with broadcast axes in full */
    void *dk_partial, *dv_partial;
    int64_t splits;
    int64_t shares[3]; /* on GPUs, where splits is 1: of the keys for dq, of the queries for dk and for dv, joined in scratch memory */
    tc_attention_variant variant; /* but for TC_ATTENTION_PLAIN dk and dv are computed together, in shares[1] */
    bool whole_heads;             /* TC_ATTENTION_MMA: one block computes all gradients of a key head, and nothing is shared */
} tc_attention_backward_args;
extern const tc_kernel tc_kernel_attention_backward;
extern const tc_kernel tc_kernel_attention_sum_splits;

/* attention_sum_splits has the same arguments; its items are rows of dk and dv in blocks:
 * (b * Hk + hk) * ceil(Tk / TC_ATTENTION_KEYS) + block. */

/* The gradient of an additive term, summed over the axes it is broadcast along. Items are the term's own (batch * heads + head) * blocks +
 * block: blocks of queries, or one when it has one row. An item computes all sums for its elements, in order. dbias starts as zeros. */
typedef struct tc_attention_dbias_args {
    tc_attention_backward_args backward;
    tc_attention_plane dbias;
    int64_t batches, heads, rows; /* of the term: 1 or B, 1 or H, 1 or Tq */
} tc_attention_dbias_args;
extern const tc_kernel tc_kernel_attention_dbias;

/* Which batch element and which of `heads` heads the number n of a pair of them stands for. */
static inline void tc_attention_pair(int64_t *b, int64_t *h, const tc_attention_problem *p, int64_t heads, int64_t n)
{
    *b = p->sequences ? n % p->B : n / heads;
    *h = p->sequences ? n / p->B : n % heads;
}

static inline int64_t tc_attention_query_blocks(const tc_attention_problem *p) { return tc_divide_up(p->Tq, TC_ATTENTION_QUERIES); }
static inline int64_t tc_attention_forward_items(const tc_attention_problem *p) { return p->B * p->H * tc_attention_query_blocks(p); }
static inline int64_t tc_attention_backward_items(const tc_attention_backward_args *a) { return a->problem.B * a->problem.Hk * a->splits; }
static inline int64_t tc_attention_dbias_items(const tc_attention_dbias_args *a)
{
    return a->batches * a->heads * (a->rows == 1 ? 1 : tc_attention_query_blocks(&a->backward.problem));
}

/* On GPUs: the side of the tiles of queries and keys, small for short sequences and for float64, whose operands take twice the memory; and
 * how many columns of the result a block of threads computes. */
static inline int64_t tc_attention_tile(const tc_attention_problem *p, bool is_float64)
{
    return !is_float64 && (p->Tq > 32 || p->Tk > 32) ? 64 : 32;
}
static inline int64_t tc_attention_columns(int64_t tile, int64_t width) { return tile == 64 && width > 64 ? 128 : 64; }

/* On GPUs: a forward sums up the weights and values of each segment of the keys by itself, and joins the segments in order. Where it has at
 * most half as many blocks as the GPU has multiprocessors, each segment has blocks of its own, which changes no bit. Rows that take the
 * mean of all values are not known before the end: with TC_ATTENTION_EMPTY_UNIFORM nothing is split. */
#define TC_ATTENTION_SEGMENT 256          /* keys: a multiple of every tile */
#define TC_ATTENTION_PARTS (16 * 1048576) /* elements of the values of all segments, at most */
static inline int64_t tc_attention_segments(const tc_attention_problem *p) { return tc_divide_up(p->Tk, TC_ATTENTION_SEGMENT); }
static inline int64_t tc_attention_forward_blocks(const tc_attention_problem *p, bool is_float64)
{
    const int64_t tile = tc_attention_tile(p, is_float64), groups = p->Dv ? tc_divide_up(p->Dv, tc_attention_columns(tile, p->Dv)) : 1;
    return p->B * p->H * tc_divide_up(p->Tq, tile) * groups;
}
static inline bool tc_attention_splits_keys(const tc_attention_problem *p, bool is_float64, int64_t multiprocessors)
{
    const int64_t segments = tc_attention_segments(p), rows = p->B * p->H * p->Tq;
    return segments > 1 && 2 * tc_attention_forward_blocks(p, is_float64) <= multiprocessors &&
           rows * p->Dv <= TC_ATTENTION_PARTS / segments && p->empty_rows != TC_ATTENTION_EMPTY_UNIFORM;
}

/* On tensor cores: for heads of this size, odd ones as well, whose features are filled up to 64, 96, 128 or 256. The keys of few queries
 * are always split, whatever the GPU and the number of sequences. */
#define TC_ATTENTION_MMA_SIZE 256
#define TC_ATTENTION_LARGE_BLOCK (132 * 1024)
#define TC_ATTENTION_FEW_QUERIES 16 /* of a warp */
static inline bool tc_attention_fits_mma(const tc_attention_problem *p)
{
    const bool fits = p->D <= TC_ATTENTION_MMA_SIZE && p->Dv <= TC_ATTENTION_MMA_SIZE;
    return fits && p->H > 0 && p->Tq <= INT32_MAX / 2 && p->Tk <= INT32_MAX / 2; /* H: queries without heads leave gradients of zeros */
}
/* Query heads that read the same key head are taken together where a head has few queries: each fills as many rows of a block. Not of
 * packed sequences, of which each may be short or long. */
#define TC_ATTENTION_TOGETHER 64
static inline int64_t tc_attention_mma_group(const tc_attention_problem *p)
{
    return p->Tq <= TC_ATTENTION_TOGETHER && !p->sequences ? p->H / p->Hk : 1;
}
static inline bool tc_attention_mma_splits_keys(const tc_attention_problem *p)
{
    return p->Tq <= TC_ATTENTION_FEW_QUERIES && tc_attention_segments(p) > 1;
}

/* In float32: heads of this size, filled up to 64 or 128 features, by tiles of so many keys (or, for dk and dv, queries). */
#define TC_ATTENTION_FLOAT_SIZE 128
#define TC_ATTENTION_FLOAT_BACKWARD_SIZE 128 /* beyond 64, where a block may have TC_ATTENTION_LARGE_BLOCK bytes of shared memory */
#define TC_ATTENTION_FLOAT_OTHERS 32
static inline bool tc_attention_fits_float(const tc_attention_problem *p)
{
    const bool fits = p->D <= TC_ATTENTION_FLOAT_SIZE && p->Dv <= TC_ATTENTION_FLOAT_SIZE;
    return fits && p->H > 0 && p->Tq <= INT32_MAX / 4 && p->Tk <= INT32_MAX / 4;
}

/* The gradients on tensor cores: a block has so many queries, of which it computes dq, or keys, and tiles of the others. */
#define TC_ATTENTION_MMA_BACKWARD_SIZE 128
#define TC_ATTENTION_MMA_OWN 64
#define TC_ATTENTION_MMA_OTHERS 32
static inline bool tc_attention_backward_fits_mma(const tc_attention_problem *p)
{
    return tc_attention_fits_mma(p) && p->D <= TC_ATTENTION_MMA_BACKWARD_SIZE && p->Dv <= TC_ATTENTION_MMA_BACKWARD_SIZE;
}

/* Where heads are short, by shapes alone: one block computes all gradients of a key head, of as many rows as shared memory has room for
 * beside the gradients of their scores. With more query heads to a key head there would be too few blocks. */
#define TC_ATTENTION_HEAD_QUERY_HEADS 8
#define TC_ATTENTION_HEAD_ROWS 128     /* of at most 64 features */
#define TC_ATTENTION_WIDE_HEAD_ROWS 64 /* of more */
static inline bool tc_attention_backward_takes_heads(const tc_attention_problem *p)
{
    const int64_t rows = p->D <= 64 && p->Dv <= 64 ? TC_ATTENTION_HEAD_ROWS : TC_ATTENTION_WIDE_HEAD_ROWS;
    return tc_attention_backward_fits_mma(p) && p->Tq <= rows && p->Tk <= rows && p->H <= TC_ATTENTION_HEAD_QUERY_HEADS * p->Hk;
}

/* On GPUs: among how many blocks the `tiles` tiles of each block of a gradient are shared, two each at least, where it has at most half as
 * many blocks as the GPU has multiprocessors. */
static inline int64_t tc_attention_shares(int64_t blocks, int64_t tiles, int64_t multiprocessors)
{
    const int64_t most = tiles / 2, wanted = blocks ? multiprocessors / blocks : 1, shares = wanted < most ? wanted : most;
    return shares < 1 ? 1 : shares;
}
/* Of the gradient of `heads` heads with `rows` rows of `width`, each row a sum over `others` rows, by the plain kernel and on tensor cores.
 */
static inline int64_t tc_attention_plain_shares(const tc_attention_problem *p, int64_t heads, int64_t rows, int64_t width, int64_t others,
                                                bool is_float64, int64_t multiprocessors)
{
    const int64_t tile = tc_attention_tile(p, is_float64), columns = tc_attention_columns(tile, width);
    const int64_t blocks = p->B * heads * tc_divide_up(rows, tile) * tc_divide_up(width, columns);
    return tc_attention_shares(blocks, tc_divide_up(others, tile), multiprocessors);
}
static inline int64_t tc_attention_mma_shares(const tc_attention_problem *p, int64_t heads, int64_t rows, int64_t others,
                                              int64_t multiprocessors)
{
    const int64_t blocks = p->B * heads * tc_divide_up(rows, TC_ATTENTION_MMA_OWN);
    return tc_attention_shares(blocks, tc_divide_up(others, TC_ATTENTION_MMA_OTHERS), multiprocessors);
}

/* Bytes of scratch per participant for elements of `size` bytes: transposed queries, a tile of scores, and whatever else the problem needs;
 * cpu/attention_block.h lays it out. */
static inline size_t tc_attention_scratch(const tc_attention_problem *p, size_t size, bool backward)
{
    const size_t rows = TC_ATTENTION_QUERIES * size, tile = TC_ATTENTION_KEYS * rows;
    size_t bytes = (size_t)p->D * rows + tile;
    if (backward || p->additive[0].data || p->additive[1].data) bytes += tile;
    if (backward) bytes += (size_t)p->Dv * rows + tile;
    if (backward && p->softcap > 0) bytes += tile;
    if (p->mask.data) bytes += TC_ATTENTION_KEYS * TC_ATTENTION_QUERIES;
    if (p->dropout > 0) bytes += 2 * TC_ATTENTION_KEYS * TC_ATTENTION_QUERIES;
    if (p->stored != TC_STORED_AS_COMPUTED) bytes += (size_t)p->Dv * rows + (size_t)(p->D + p->Dv) * TC_ATTENTION_KEYS * size;
    return bytes;
}

#endif
