/* gemm.h: arguments of the matrix product kernels.
 *
 *     C (M,N) = activation(A (M,K) B (K,N) + bias (N)) + residual (M,N),    for every element of a batch.
 *
 * On GPUs a dropout may come before the residual is added, in products without a batch.
 *
 * An element of C is the sum over k in order, in blocks whose length depends on K alone (on tensor cores of GPUs in one, or, of two parts,
 * in blocks of 64); block sums are added in order. So its bits depend neither on the tile that contains it nor on how items are cut into
 * ranges, nor on whether the blocks are computed by one item or by several: a row of C has the same bits however many rows there are.
 */
#ifndef TC_KERNELS_GEMM_H
#define TC_KERNELS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "divide_up.h"
#include "dropout.h"
#include "kernels.h"
#include "types.h"

#define TC_GEMM_BATCH_DIMS 14 /* TC_MAX_DIMS minus the axes of the matrix */

/* B for the product, in panels of 64 bytes: panel p contains columns p * W .. p * W + W - 1 (W = 64 / sizeof(real)), row by row, zeros
 * beyond N. One layout for every instruction set. */
#define TC_GEMM_PANEL_BYTES 64
static inline int64_t tc_gemm_panel_width(size_t element) { return (int64_t)(TC_GEMM_PANEL_BYTES / element); }
static inline int64_t tc_gemm_panels(int64_t N, size_t element)
{
    return (N + tc_gemm_panel_width(element) - 1) / tc_gemm_panel_width(element);
}

/* Panels of bfloat16 contain pairs of rows: word c of pair i is element (2 i, c) in its lower half and (2 i + 1, c) in its upper one, which
 * one instruction each widens. The last row is followed by zeros where K is odd. */
static inline int64_t tc_gemm_panel_rows(int64_t K, tc_stored stored) { return stored == TC_STORED_BFLOAT16 ? K + K % 2 : K; }

/* Items are panels of all batch elements.  panels (batch, panels, rows of a panel, W); b element (k,n) at k * b_row + n * b_col. Panels are
 * stored as b is, or as computed. */
typedef struct tc_gemm_pack_args {
    void *panels;
    const void *b;
    tc_stored b_stored, panels_stored;
    int64_t K, N, b_row, b_col;
    int batch_dims;
    int64_t batch_shape[TC_GEMM_BATCH_DIMS], b_batch[TC_GEMM_BATCH_DIMS];
    int parts; /* 0, or the panels are groups of columns split into so many parts */
} tc_gemm_pack_args;
extern const tc_kernel tc_kernel_gemm_pack;

typedef enum tc_gemm_b_form {
    TC_GEMM_B_PANELS, /* b was packed by gemm_pack; b_row and b_col are not used, b_batch counts elements of the panels */
    TC_GEMM_B_ROWS,   /* b_col is 1: the rows are read in place */
    TC_GEMM_B_STRIDED /* any strides, or offsets: each item packs the panels it uses into its scratch */
} tc_gemm_b_form;

typedef enum tc_gemm_a_form {
    TC_GEMM_A_IN_PLACE,
    TC_GEMM_A_BLOCKS, /* copied into scratch, the rows of a tile beside one another: long rows, large strides, or neither stride 1 */
    TC_GEMM_A_ROWS    /* copied into scratch row by row: halves, and few rows */
} tc_gemm_a_form;

/* On GPUs: which kernel computes it. */
typedef enum tc_gemm_variant {
    TC_GEMM_PLAIN,        /* every dtype, shape and stride, in the compute dtype */
    TC_GEMM_TENSOR_CORES, /* halves, where tc_gemm_on_tensor_cores() */
    TC_GEMM_TF32,         /* likewise float32 rounded to tf32 */
    TC_GEMM_TF32_X3       /* likewise the sum of two tf32, by three products: an error of some 2e-6 */
} tc_gemm_variant;

/* Items are blocks of C: tc_gemm_items() of them, row blocks varying fastest, then column blocks, chunks of K, batch.
 *
 * B of windows, on CPUs: with b_rows (K) and b_cols (N), element (k,n) is at b[b_rows[k] + b_cols[n]], so that windows that overlap are
 * read where they are. The same offsets apply to each element of a batch. b is as computed.
 *
 * With k_chunks > 1 the sum over k is split: chunk s sums k_chunk terms and writes its own C at c + s * c_chunk, for sum_partials to add
 * up in order; there is no epilogue then, and what is added is added by sum_partials. a_sum (k_chunks, M) or NULL receives the sums of the
 * rows of A over k: so the gradient of a bias is computed with that of its weight. On GPUs c and a_sum of halves are
 * halves, with several chunks or `wide` float32. */
typedef struct tc_gemm_args {
    void *c, *pre; /* pre (M,N) or NULL: A B + bias before the activation, saved for the backward */
    const void *a, *b, *bias, *residual;
    void *a_sum;
    int64_t M, N, K;
    int64_t a_row, a_col, b_row, b_col, c_row, pre_row, residual_row; /* strides in elements; columns of c, pre, residual have stride 1 */
    const int64_t *b_rows, *b_cols;                                   /* offsets, or NULL: b_row and b_col are used */
    tc_stored a_stored, b_stored, c_stored, bias_stored, residual_stored; /* pre and a_sum are as computed, and so is c when k is split */
    int64_t k_chunk, k_chunks, c_chunk;
    int64_t row_block, col_block; /* the shape of an item; col_block a multiple of 128 bytes of columns */
    int batch_dims;
    int64_t batch, batch_shape[TC_GEMM_BATCH_DIMS], a_batch[TC_GEMM_BATCH_DIMS], b_batch[TC_GEMM_BATCH_DIMS], c_batch[TC_GEMM_BATCH_DIMS];
    tc_gemm_a_form a_form;
    tc_gemm_b_form b_form;
    tc_gemm_variant variant;
    int64_t tile; /* on GPUs: rows of the tile of C that a block of threads computes: 16 (by 32 columns), 32, 64 or 128, as the kernel has
                     them */
    tc_activation activation;
    tc_mask mask;      /* on GPUs: of dropout after the activation, element (m,n) being number m N + n; p 0: none */
    bool bias_of_rows; /* on CPUs: bias (M), one for each row, as computed; bias_batch: from one to the next of the last batch axis */
    int64_t bias_batch;
    bool wide;        /* with no epilogue but a residual: c, a_sum and the residual in the compute dtype */
    bool accumulates; /* the residual is a sum of gradients, contiguous, and the only epilogue: the sum over k may be split all the same */
    bool by_columns;  /* few rows: an item computes its columns one after the other, so that each panel of B is read straight down */
    bool by_strips;   /* by columns, and rows of B are in place but far apart: an item reads some of them from end to end at a time */
    bool k_is_rows;   /* k are the rows of a batch: a weight's gradient, whose sum may be split in any way */
    bool is_gradient; /* of rows or of a weight: of many rows, so that smaller products of halves go through tiles on CPUs */
    bool fetch_b;     /* the panels may not be in the caches near the core: prefetch them */
    /* Float32 by tile instructions: see "split products" below. */
    bool may_split;      /* an op's permission: N is no number of samples, by which it must not be chosen */
    int64_t sequence;    /* the length of the sequence that each row belongs to, 0: not known */
    int parts;           /* of each float32, 0: none */
    const void *b_parts; /* B split in advance, or NULL; its batch strides are in bytes */
    int64_t b_parts_batch[TC_GEMM_BATCH_DIMS];
} tc_gemm_args;
extern const tc_kernel tc_kernel_gemm;

/* The longest run of k summed at once: the parts of A and B in use then fit in the caches. Blocks begin at pairs of rows. */
#define TC_GEMM_K_BLOCK 384
static inline int64_t tc_gemm_k_block(int64_t K)
{
    const int64_t blocks = K <= TC_GEMM_K_BLOCK ? 1 : tc_divide_up(K, TC_GEMM_K_BLOCK), block = tc_divide_up(K, blocks);
    return blocks > 1 ? block + block % 2 : block;
}

/* Where C is small and k long, the sum is split so that there are items enough. A forward is split into its blocks of k: the same sums in
 * the same order as when it is left whole. The rows of a batch may be far more; they are split into at most `most` chunks of at least
 * TC_GEMM_SPLIT_LEAST, and their sum depends on the chunks. */
#define TC_GEMM_SPLIT_LEAST 256
#define TC_GEMM_SPLIT_PARTS (4 * 1048576) /* elements of all partial results */
static inline void tc_gemm_split_k(tc_gemm_args *a, int64_t most)
{
    a->k_chunk = a->K;
    a->k_chunks = 1;
    const bool plain = !a->bias && (!a->residual || a->accumulates) && !a->pre && a->activation == TC_ACTIVATION_NONE &&
                       !(a->mask.p > 0.0) && a->batch == 1;
    if (!plain || a->c_row != a->N || a->K < 2 * TC_GEMM_SPLIT_LEAST || most < 2) return;
    int64_t chunk = tc_gemm_k_block(a->K);
    if (a->k_is_rows) {
        const int64_t chunks = a->K / TC_GEMM_SPLIT_LEAST < most ? a->K / TC_GEMM_SPLIT_LEAST : most;
        chunk = tc_divide_up(tc_divide_up(a->K, chunks), 16) * 16;
    }
    if (tc_divide_up(a->K, chunk) * a->M * a->N > TC_GEMM_SPLIT_PARTS) return;
    a->k_chunk = chunk;
    a->k_chunks = tc_divide_up(a->K, chunk);
    a->c_chunk = a->M * a->N;
}

/* On GPUs: an operand whose chunks of 16 bytes can be copied, along k or across it. in_chunk: elements. */
typedef enum tc_gemm_operand_runs { TC_GEMM_NEITHER, TC_GEMM_ALONG, TC_GEMM_ACROSS } tc_gemm_operand_runs;
static inline tc_gemm_operand_runs tc_gemm_runs(int64_t across, int64_t along, int64_t in_chunk)
{
    if (along == 1 && across % in_chunk == 0) return TC_GEMM_ALONG;
    return across == 1 && along % in_chunk == 0 ? TC_GEMM_ACROSS : TC_GEMM_NEITHER;
}

/* May tensor cores compute a product of halves, or of float32 as tf32? Its operands and all their rows begin at multiples of 16 bytes. Sums
 * of the rows of A are those of a weight's gradient, which reads both operands across. */
static inline bool tc_gemm_on_tensor_cores(const tc_gemm_args *a, size_t element)
{
    const int64_t in_chunk = 16 / (int64_t)element;
    const tc_gemm_operand_runs left = tc_gemm_runs(a->a_row, a->a_col, in_chunk), right = tc_gemm_runs(a->b_col, a->b_row, in_chunk);
    if (left == TC_GEMM_NEITHER || right == TC_GEMM_NEITHER || (uintptr_t)a->a % 16 || (uintptr_t)a->b % 16) return false;
    if ((left == TC_GEMM_ALONG || right == TC_GEMM_ALONG) && a->K % in_chunk) return false;
    if (a->K > INT32_MAX - 128 || (a->a_sum && (left != TC_GEMM_ACROSS || right != TC_GEMM_ACROSS))) return false;
    for (int d = 0; d < a->batch_dims; d++)
        if (a->a_batch[d] % in_chunk || a->b_batch[d] % in_chunk) return false;
    return a->k_chunks <= 1 || a->k_chunk % in_chunk == 0;
}

static inline int64_t tc_gemm_row_blocks(const tc_gemm_args *a) { return tc_divide_up(a->M, a->row_block); }
static inline int64_t tc_gemm_col_blocks(const tc_gemm_args *a) { return tc_divide_up(a->N, a->col_block); }
static inline int64_t tc_gemm_items(const tc_gemm_args *a)
{
    return tc_gemm_row_blocks(a) * tc_gemm_col_blocks(a) * a->k_chunks * a->batch;
}

static inline int64_t tc_gemm_longest_item(const tc_gemm_args *a) { return a->k_chunks > 1 ? a->k_chunk : a->K; }

/* The same for every chunk of k: a shorter last chunk could otherwise be cut into fewer blocks that are too long for the scratch. */
static inline int64_t tc_gemm_item_k_block(const tc_gemm_args *a) { return tc_gemm_k_block(tc_gemm_longest_item(a)); }

/* Columns that are computed together, at most: of strips as many as have STRIP_BYTES of sums, which then stay in a cache near the core. */
#define TC_GEMM_GROUP_PANELS 4
#define TC_GEMM_WIDEST_PANELS 8 /* at most those of a tile of one row */
#define TC_GEMM_STRIP_BYTES 32768
static inline int64_t tc_gemm_group(const tc_gemm_args *a, size_t element)
{
    const int64_t group = TC_GEMM_GROUP_PANELS * tc_gemm_panel_width(element);
    if (!a->by_strips) return group;
    const int64_t most = TC_GEMM_STRIP_BYTES / (int64_t)element / a->M, cols = most < a->col_block ? most : a->col_block;
    return tc_divide_up(cols, group) * group;
}

/* Where in an item's scratch everything lies, in bytes: the copy of A (a block of k, or all k when computed by columns), whose rows do not
 * begin a power of two apart, nor do those of strips' sums; a group of B's panels, sums that become halves, sums of strips, the bias
 * widened or, one for each row, repeated along it. */
typedef struct tc_gemm_scratch {
    size_t b, sums, carried, bias, bytes;
    int64_t a_row, sums_row, carried_row, bias_row;
} tc_gemm_scratch;
static inline tc_gemm_scratch tc_gemm_scratch_of(const tc_gemm_args *a, size_t element)
{
    const int64_t kc = tc_gemm_item_k_block(a), rows = a->M < a->row_block ? a->M : a->row_block;
    const int64_t cols = a->N < a->col_block ? a->N : a->col_block, group = tc_gemm_group(a, element);
    tc_gemm_scratch s = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    s.a_row = a->by_columns ? tc_gemm_longest_item(a) : kc;
    if (a->a_form == TC_GEMM_A_ROWS) s.a_row = (tc_divide_up(s.a_row, 16) | 1) * 16;
    if (a->a_form != TC_GEMM_A_IN_PLACE) s.b = (size_t)(rows * s.a_row) * element + 2 * TC_GEMM_PANEL_BYTES;
    s.b = (s.b + TC_GEMM_PANEL_BYTES - 1) / TC_GEMM_PANEL_BYTES * TC_GEMM_PANEL_BYTES;
    s.sums = s.b;
    if (a->b_form == TC_GEMM_B_STRIDED || a->b_stored != TC_STORED_AS_COMPUTED) s.sums += (size_t)(kc * group) * element;
    s.carried = s.sums;
    if (a->c_stored != TC_STORED_AS_COMPUTED) {
        const int64_t widest = TC_GEMM_WIDEST_PANELS * tc_gemm_panel_width(element), together = group > widest ? group : widest;
        s.sums_row = a->by_columns || kc == tc_gemm_longest_item(a) ? together : tc_divide_up(cols, group) * group;
        s.carried += (size_t)(rows * s.sums_row) * element;
    }
    s.bias = s.carried;
    if (a->by_strips) {
        s.carried_row = group + tc_gemm_panel_width(element);
        s.bias += (size_t)(rows * s.carried_row) * element;
    }
    s.bytes = s.bias + (a->bias_stored != TC_STORED_AS_COMPUTED ? (size_t)cols * element : 0);
    if (a->bias && a->bias_of_rows) {
        s.bias_row = group;
        s.bytes = s.bias + (size_t)(rows * s.bias_row) * element;
    }
    return s;
}

/* ---- split products: float32 by tile instructions of bfloat16 ------------------------------------------------------------
 *
 * A bfloat16 is one part: itself.
 * A float32 is the sum of `parts` = 3 bfloat16, without an error, and nearly that of 2. Rows of A and columns of B are split in groups of
 * 16, in units of 32 k: [step of k][part][a tile of 16 x 64 bytes], and after the last step the range of a group of B. */
#define TC_GEMM_GROUP 16
#define TC_GEMM_STEP 32
#define TC_GEMM_TILE_BYTES 1024
typedef struct tc_gemm_range {
    uint32_t
        largest[TC_GEMM_GROUP]; /* bits of the largest magnitude in each row of A or column of B; those of a NaN are the largest of all */
} tc_gemm_range;

static inline int64_t tc_gemm_steps(int64_t K) { return tc_divide_up(K, TC_GEMM_STEP); }
static inline int64_t tc_gemm_group_bytes(int64_t K, int parts) { return tc_gemm_steps(K) * parts * TC_GEMM_TILE_BYTES + 64; }

/* Are there rows enough in one sequence to pay for splitting a weight for it alone? Then it has the same bits in any batch. */
static inline bool tc_gemm_is_long(int64_t sequence) { return sequence >= 128; }

/* Bytes of A's parts that an item has at a time, at most. */
#define TC_GEMM_A_PARTS 1048576

/* The steps of k that are summed before they are added to those before: B's parts stay in L1 while those of A pass, if there is room for a
 * block of both, each of 32 lines. Halves that were prepared in advance are added in one sum, whatever the blocks: longer ones are begun
 * less often. */
static inline bool tc_gemm_of_halves(const tc_gemm_args *g) { return g->b_stored == TC_STORED_BFLOAT16; }
static inline int64_t tc_gemm_block_steps(const tc_gemm_args *g)
{
    if (tc_gemm_of_halves(g) && g->b_parts) return 16;
    return g->parts == 3 ? 3 : 4;
}

/* Makes `g`, of one item and without batches, one that the float32 kernel computes from operands of any strides. */
static inline void tc_gemm_make_plain(tc_gemm_args *g)
{
    g->parts = 0;
    g->a_form = TC_GEMM_A_BLOCKS;
    g->b_form = TC_GEMM_B_STRIDED;
    g->by_columns = g->by_strips = g->fetch_b = false;
    g->row_block = g->M;
    g->col_block = tc_divide_up(g->N, 64) * 64;
}

/* In bytes; after it comes the scratch of the float32 kernel, for what cannot be split. */
typedef struct tc_gemm_split_scratch {
    size_t a, b, sums, a_ranges, b_ranges, bias, bytes;
    int64_t steps; /* of k at a time */
} tc_gemm_split_scratch;
static inline tc_gemm_split_scratch tc_gemm_split_scratch_of(const tc_gemm_args *g)
{
    const int64_t rows = g->M < g->row_block ? g->M : g->row_block, cols = g->N < g->col_block ? g->N : g->col_block;
    const int64_t row_groups = tc_divide_up(rows, TC_GEMM_GROUP), col_pairs = tc_divide_up(cols, 2 * TC_GEMM_GROUP);
    const int64_t all = tc_gemm_steps(tc_gemm_longest_item(g)), most = TC_GEMM_A_PARTS / TC_GEMM_TILE_BYTES / g->parts / row_groups;
    const int64_t block = tc_gemm_block_steps(g);
    const size_t step = (size_t)g->parts * TC_GEMM_TILE_BYTES;
    tc_gemm_split_scratch s = {0, 0, 0, 0, 0, 0, 0, all < most ? all : most / block * block};
    s.b = s.a + (size_t)(row_groups * s.steps) * step;
    s.sums = s.b + (g->b_parts ? 0 : 2 * (size_t)(g->by_strips ? col_pairs : block) * step);
    s.a_ranges = s.sums + (size_t)((g->by_strips || all > s.steps ? col_pairs : 1) * row_groups) * 2 * TC_GEMM_TILE_BYTES;
    s.b_ranges = s.a_ranges + (size_t)row_groups * sizeof(tc_gemm_range);
    s.bias = (s.b_ranges + (size_t)(col_pairs * 2) * sizeof(tc_gemm_range) + 63) / 64 * 64;
    s.bytes = s.bias + (size_t)(col_pairs * 2 * TC_GEMM_GROUP) * sizeof(float);
    return s;
}

#endif
