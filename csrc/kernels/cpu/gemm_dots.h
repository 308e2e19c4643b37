/* gemm_dots.h: rows by columns that lie along memory, several sums at a time, one per lane: batches of few rows by few columns, blocks of k
 * of one row by one column, and one row by many columns. Squares are transposed in registers, and each sum is over k in order in blocks, as
 * tiles add it up. Included by gemm.c only. */
#ifndef TC_KERNELS_CPU_GEMM_DOTS_H
#define TC_KERNELS_CPU_GEMM_DOTS_H

#include "../gemm.h"
#include "gemm_pack.h"

/* Rows and columns of the products of a batch that are computed side by side. */
#define MOST_DOTS 4

/* The elements of the batch that lie at even steps: those along the last axis, and along the ones before it that are walked with it as one
 * axis; `outer` gets the first of these. */
static int64_t width_of_batch(const tc_gemm_args *g, int *outer)
{
    int axis = g->batch_dims - 1;
    int64_t width = g->batch_shape[axis];
    const int64_t a_step = g->a_batch[axis], b_step = g->b_batch[axis];
    while (axis > 0 && g->a_batch[axis - 1] == width * a_step && g->b_batch[axis - 1] == width * b_step) width *= g->batch_shape[--axis];
    *outer = axis;
    return width;
}

/* Would a third of the lanes have an element of the batch? With fewer, tiles take less, but for two products or one. */
static bool are_lanes_used(const tc_gemm_args *g)
{
    int outer;
    return g->batch >= TC_LANES && (g->M * g->N <= 2 || 3 * width_of_batch(g, &outer) > TC_LANES);
}

/* Are the products of the batch small, do they lie next to one another, and both operands along memory, and is nothing else asked for? */
static bool is_dots(const tc_gemm_args *g)
{
    int64_t step = g->M * g->N;
    for (int d = g->batch_dims - 1; d >= 0; step *= g->batch_shape[d--])
        if (g->c_batch[d] != step && g->batch_shape[d] != 1) return false;
    if (g->batch_dims == 0) return false;
    const bool one = g->M == 1 && g->N == 1, few = g->M <= MOST_DOTS && g->N <= MOST_DOTS && are_lanes_used(g);
    const bool plain = g->a_stored == TC_STORED_AS_COMPUTED && g->c_stored == TC_STORED_AS_COMPUTED;
    return ((one && plain) || few) && g->K > 0 && g->a_col == 1 && g->b_row == 1 && g->c_row == g->N && g->b_form != TC_GEMM_B_PANELS &&
           !g->b_rows && g->k_chunks == 1 && g->a_stored == g->b_stored && g->activation == TC_ACTIVATION_NONE && !g->bias &&
           !g->residual && !g->pre && !g->a_sum;
}

/* Rows that begin a multiple of so many bytes apart have the same few places in the first cache: more of them than there are places are
 * read from end to end of a line. */
static bool are_in_conflict(int64_t step)
{
    const int64_t bytes = step * (int64_t)sizeof(real);
    return bytes % 2048 == 0 || bytes == 1024;
}

/* add_dots() of few lanes, without transposing. */
#define FEW_DOTS 4
TC_INLINE vreal add_few_dots(const int lanes, vreal sums, const real *a, int64_t a_step, const real *b, int64_t b_step, int64_t K)
{
    real lane[TC_LANES];
    vreal sum[FEW_DOTS];
    v_store(lane, sums);
    TC_UNROLL
    for (int i = 0; i < lanes; i++) sum[i] = v_load_n(lane + i, 1);
    for (int64_t k = 0; k < K; k++) {
        TC_UNROLL
        for (int i = 0; i < lanes; i++) sum[i] = v_fma(v_load_n(a + i * a_step + k, 1), v_load_n(b + i * b_step + k, 1), sum[i]);
    }
    for (int i = 0; i < lanes; i++) v_store_n(lane + i, sum[i], 1);
    return v_load(lane);
}

/* Where the columns of a piece begin: one of which there are not enough has columns of the piece before as well. */
TC_INLINE int64_t first_of_piece(int64_t count, int64_t first, int piece)
{
    const int64_t n = first + piece * TC_IN_PIECE, last = count - TC_IN_PIECE;
    return n < last ? n : last;
}

/* add_dots() by pieces, as far as K goes in steps of them. */
TC_INLINE vreal add_dots_by_pieces(vreal sum, const real *a, int64_t a_step, const real *b, int64_t b_step, int64_t K, int lanes)
{
    const real *of_a[TC_PIECES], *of_b[TC_PIECES];
    real lane[TC_LANES], in_pieces[TC_LANES];
    v_store(lane, sum);
    for (int j = 0; j < TC_PIECES; j++) {
        const int64_t first = first_of_piece(lanes, 0, j);
        of_a[j] = a + first * a_step, of_b[j] = b + first * b_step;
        for (int i = 0; i < TC_IN_PIECE; i++) in_pieces[j * TC_IN_PIECE + i] = lane[first + i];
    }
    sum = v_load(in_pieces);
    for (int64_t k = 0; k + TC_IN_PIECE <= K; k += TC_IN_PIECE) {
        vreal x[TC_IN_PIECE], y[TC_IN_PIECE];
        v_load_pieces_transposed(x, of_a, a_step);
        v_load_pieces_transposed(y, of_b, b_step);
        TC_UNROLL
        for (int i = 0; i < TC_IN_PIECE; i++) sum = v_fma(x[i], y[i], sum);
        for (int j = 0; j < TC_PIECES; j++) of_a[j] += TC_IN_PIECE, of_b[j] += TC_IN_PIECE;
    }
    v_store(in_pieces, sum);
    for (int j = 0; j < TC_PIECES; j++)
        for (int i = 0; i < TC_IN_PIECE; i++) lane[first_of_piece(lanes, 0, j) + i] = in_pieces[j * TC_IN_PIECE + i];
    return v_load(lane);
}

/* Lane i of sum += the products of a[i * a_step + k] and b[i * b_step + k], k < K, i < lanes; the other lanes mean nothing. */
static __attribute__((noinline)) vreal add_dots(vreal sum, const real *a, int64_t a_step, const real *b, int64_t b_step, int64_t K,
                                                int lanes)
{
    int64_t k = 0;
    if (TC_LANES > FEW_DOTS && lanes <= FEW_DOTS) {
        switch (lanes) {
        case 1: return add_few_dots(1, sum, a, a_step, b, b_step, K);
        case 2: return add_few_dots(2, sum, a, a_step, b, b_step, K);
        case 3: return add_few_dots(3, sum, a, a_step, b, b_step, K);
        default: return add_few_dots(4, sum, a, a_step, b, b_step, K);
        }
    }
    if (TC_PIECES > 2 && !are_in_conflict(a_step) && !are_in_conflict(b_step)) {
        sum = add_dots_by_pieces(sum, a, a_step, b, b_step, K, lanes);
        k = K - K % TC_IN_PIECE;
    }
    for (; k < K; k += TC_LANES) {
        const int width = v_left(K, k);
        vreal x[TC_LANES], y[TC_LANES];
        v_load_transposed(x, a + k, a_step, lanes, width);
        v_load_transposed(y, b + k, b_step, lanes, width);
        TC_UNROLL
        for (int i = 0; i < TC_LANES; i++)
            if (i < width) sum = v_fma(x[i], y[i], sum);
    }
    return sum;
}

static void dots(real *c, const real *a, int64_t a_step, const real *b, int64_t b_step, int64_t K, int64_t k_block, int lanes)
{
    vreal total = v_zero();
    for (int64_t k = 0; k < K; k += k_block) {
        const vreal sum = add_dots(v_zero(), a + k, a_step, b + k, b_step, K - k < k_block ? K - k : k_block, lanes);
        total = k == 0 ? sum : total + sum;
    }
    v_store_some(c, total, lanes);
}

/* r[i] lane j = p[j * row + i] for j < lanes and i < width, as v_load_transposed(). */
TC_INLINE void load_transposed_stored(const tc_stored stored, vreal r[TC_LANES], const void *p, int64_t row, int lanes, int width)
{
    if (stored == TC_STORED_AS_COMPUTED) {
        v_load_transposed(r, p, row, lanes, width);
        return;
    }
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i++) r[i] = i < lanes ? v_load_stored(stored_at(p, stored, i * row), stored, width) : v_zero();
    v_transpose(r);
}

/* Lane i of sums[m * N + n] += the products of row m of a and column n of b, of element i of the batch. */
TC_INLINE void add_small_products(const tc_stored stored, vreal *sums, const tc_gemm_args *g, const void *a, int64_t a_step, const void *b,
                                  int64_t b_step, int64_t K, int lanes)
{
    for (int64_t k = 0; k < K; k += TC_LANES) {
        const int width = v_left(K, k);
        vreal x[MOST_DOTS][TC_LANES], y[TC_LANES];
        for (int m = 0; m < g->M; m++) load_transposed_stored(stored, x[m], stored_at(a, stored, m * g->a_row + k), a_step, lanes, width);
        for (int n = 0; n < g->N; n++) {
            load_transposed_stored(stored, y, stored_at(b, stored, n * g->b_col + k), b_step, lanes, width);
            for (int m = 0; m < g->M; m++) {
                vreal sum = sums[m * g->N + n];
                TC_UNROLL
                for (int i = 0; i < TC_LANES; i++)
                    if (i < width) sum = v_fma(x[m][i], y[i], sum);
                sums[m * g->N + n] = sum;
            }
        }
    }
}

/* c (lanes, M, N) */
static __attribute__((noinline)) void small_products(void *c, const tc_gemm_args *g, const void *a, int64_t a_step, const void *b,
                                                     int64_t b_step, int64_t k_block, int lanes)
{
    vreal totals[MOST_DOTS * MOST_DOTS], sums[MOST_DOTS * MOST_DOTS];
    real lane[TC_LANES], products[TC_LANES * MOST_DOTS * MOST_DOTS];
    const int count = (int)(g->M * g->N);
    for (int64_t k = 0; k < g->K; k += k_block) {
        const void *of_a = stored_at(a, g->a_stored, k), *of_b = stored_at(b, g->b_stored, k);
        for (int i = 0; i < count; i++) sums[i] = v_zero();
        WITH_STORED(g->a_stored, add_small_products, sums, g, of_a, a_step, of_b, b_step, g->K - k < k_block ? g->K - k : k_block, lanes);
        for (int i = 0; i < count; i++) totals[i] = k == 0 ? sums[i] : totals[i] + sums[i];
    }
    for (int i = 0; i < count; i++) {
        v_store(lane, totals[i]);
        for (int l = 0; l < lanes; l++) products[l * count + i] = lane[l];
    }
    write_stored(c, products, g->c_stored, (int64_t)lanes * count);
}

/* Items [begin, end) of the batch. */
static void batch_of_dots(const tc_gemm_args *g, int64_t begin, int64_t end)
{
    const int64_t k_block = tc_gemm_item_k_block(g);
    const int64_t a_step = g->a_batch[g->batch_dims - 1], b_step = g->b_batch[g->batch_dims - 1];
    int outer;
    const int64_t width = width_of_batch(g, &outer);
    for (int64_t item = begin, lanes; item < end; item += lanes) {
        const int64_t first = item % width, left = width - first < end - item ? width - first : end - item;
        int64_t batch = item / width, of_a = first * a_step, of_b = first * b_step;
        for (int d = outer - 1; d >= 0; batch /= g->batch_shape[d--]) {
            const int64_t index = batch % g->batch_shape[d];
            of_a += index * g->a_batch[d], of_b += index * g->b_batch[d];
        }
        const void *a = stored_at(g->a, g->a_stored, of_a), *b = stored_at(g->b, g->b_stored, of_b);
        void *c = stored_to(g->c, g->c_stored, item * g->M * g->N);
        lanes = left < TC_LANES ? left : TC_LANES;
        if (g->M * g->N == 1 && g->a_stored == TC_STORED_AS_COMPUTED && g->c_stored == TC_STORED_AS_COMPUTED)
            dots(c, a, a_step, b, b_step, g->K, k_block, (int)lanes);
        else
            small_products(c, g, a, a_step, b, b_step, k_block, (int)lanes);
    }
}

/* ---- one row by one column ------------------------------------------------------------------------------------------------ */

/* out[i], i < lanes: the sums of a[k] b[k] over the first blocks of k, of which the last may be shorter; K: where they end. The first one
 * begins with `first`. */
static void block_sums(real *out, real first, const real *a, const real *b, int64_t K, int64_t block, int lanes)
{
    const int64_t last = K - (lanes - 1) * block, rest = block - last;
    vreal sum = add_dots(v_load_n(&first, 1), a, block, b, block, last, lanes);
    if (rest && lanes > 1) sum = v_select(v_first(lanes - 1), add_dots(sum, a + last, block, b + last, block, rest, lanes - 1), sum);
    v_store_some(out, sum, lanes);
}

/* Is each item a block of k of such a product? */
static bool is_split_dot(const tc_gemm_args *g)
{
    return g->k_chunks > 1 && g->M == 1 && g->N == 1 && g->a_col == 1 && g->b_row == 1 && g->b_form == TC_GEMM_B_STRIDED && !g->b_rows &&
           g->a_stored == TC_STORED_AS_COMPUTED && g->b_stored == TC_STORED_AS_COMPUTED && g->k_chunk <= tc_gemm_item_k_block(g) &&
           !g->a_sum;
}

static void chunks_of_dot(const tc_gemm_args *g, int64_t begin, int64_t end)
{
    for (int64_t item = begin, lanes; item < end; item += lanes) {
        lanes = end - item < TC_LANES ? end - item : TC_LANES;
        const int64_t k = item * g->k_chunk, K = lanes * g->k_chunk;
        block_sums((real *)g->c + item, R(0.0), (const real *)g->a + k, (const real *)g->b + k, K < g->K - k ? K : g->K - k, g->k_chunk,
                   (int)lanes);
    }
}

/* b is copied, some blocks at a time, where it is halves or its elements lie apart. */
static real dot(real first, const real *a, const void *b, tc_stored stored, int64_t b_row, int64_t K, int64_t block)
{
    real total = R(0.0), sum[TC_LANES], copy[TC_LANES * TC_GEMM_K_BLOCK];
    const bool copies = stored != TC_STORED_AS_COMPUTED || b_row != 1;
    for (int64_t k = 0; k < K; k += TC_LANES * block) {
        const int64_t left = K - k < TC_LANES * block ? K - k : TC_LANES * block, lanes = tc_divide_up(left, block);
        const void *from = stored_at(b, stored, k * b_row);
        if (copies) WITH_STORED(stored, copy_row, copy, left, from, b_row);
        block_sums(sum, k == 0 ? first : R(0.0), a + k, copies ? copy : from, left, block, (int)lanes);
        for (int i = 0; i < lanes; i++) total = k == 0 && i == 0 ? sum[0] : sum[i] + total;
    }
    return total;
}

/* ---- one row by columns --------------------------------------------------------------------------------------------------- */

typedef struct row_of_dots {
    const real *a, *bias;
    bool biases; /* one for each column; otherwise `bias`, unless NULL, is that of all */
    const void *b;
    tc_stored b_stored, c_stored;
    int64_t b_row, b_col, N, K, k_block;
    void *c;
} row_of_dots;

/* A vector of sums over a block of k: lane j * TC_IN_PIECE + i is that of the column which begins i * b_col elements after columns[j]. */
typedef struct dot_unit {
    const real *a;
    const void *columns[TC_PIECES];
    int64_t K;
} dot_unit;

/* Sums whose additions overlap, as each waits for the one before: of blocks of k, and then of the next columns. */
#define DOT_UNITS 4

/* r[i] = k + i of the columns, i < width. */
TC_INLINE void load_columns_stored(const tc_stored stored, vreal r[TC_LANES], const dot_unit *u, int64_t b_col, int64_t k, int width)
{
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i++)
        r[i] = v_load_stored(stored_at(u->columns[i / TC_IN_PIECE], stored, i % TC_IN_PIECE * b_col + k), stored, width);
    v_transpose(r);
}

/* sum[i] += the products of units[i] for k in [first, last). */
TC_INLINE void add_units_stored(const tc_stored stored, const int count, vreal *sum, const dot_unit *units, int64_t b_col, int64_t first,
                                int64_t last)
{
    vreal x[TC_LANES];
    int64_t k = first;
    for (; k + TC_LANES <= last; k += TC_LANES) {
        TC_UNROLL
        for (int u = 0; u < count; u++) {
            load_columns_stored(stored, x, &units[u], b_col, k, TC_LANES);
            TC_UNROLL
            for (int i = 0; i < TC_LANES; i++) sum[u] = v_fma(v_set1(units[u].a[k + i]), x[i], sum[u]);
        }
    }
    for (int u = 0; k < last && u < count; u++) {
        load_columns_stored(stored, x, &units[u], b_col, k, (int)(last - k));
        for (int i = 0; i < last - k; i++) sum[u] = v_fma(v_set1(units[u].a[k + i]), x[i], sum[u]);
    }
}

TC_INLINE void add_units_of_real(const int count, vreal *sum, const dot_unit *units, int64_t b_col, int64_t first, int64_t last)
{
    const int together = count < 2 ? 1 : 2; /* units whose columns fit in the registers */
    int64_t k = first;
    for (; k + TC_IN_PIECE <= last; k += TC_IN_PIECE) {
        TC_UNROLL
        for (int u = 0; u < count; u += together) {
            vreal x[2][TC_IN_PIECE];
            TC_UNROLL
            for (int t = 0; t < together; t++) {
                const real *from[TC_PIECES];
                TC_UNROLL
                for (int j = 0; j < TC_PIECES; j++) from[j] = (const real *)units[u + t].columns[j] + k;
                v_load_pieces_transposed(x[t], from, b_col);
            }
            TC_UNROLL
            for (int i = 0; i < TC_IN_PIECE; i++) TC_UNROLL
            for (int t = 0; t < together; t++) sum[u + t] = v_fma(v_set1(units[u + t].a[k + i]), x[t][i], sum[u + t]);
        }
    }
    for (; k < last; k++) {
        for (int u = 0; u < count; u++) {
            vreal x = v_zero();
            TC_UNROLL
            for (int i = 0; i < TC_LANES; i++) x[i] = ((const real *)units[u].columns[i / TC_IN_PIECE])[i % TC_IN_PIECE * b_col + k];
            sum[u] = v_fma(v_set1(units[u].a[k]), x, sum[u]);
        }
    }
}

TC_INLINE void add_units(const tc_stored stored, const int count, vreal *sum, const dot_unit *units, int64_t b_col, int64_t first,
                         int64_t last)
{
    if (stored == TC_STORED_AS_COMPUTED)
        add_units_of_real(count, sum, units, b_col, first, last);
    else
        add_units_stored(stored, count, sum, units, b_col, first, last);
}

static bool in_conflict(const tc_stored stored, const dot_unit *units, int64_t b_col)
{
    return TC_PIECES > 2 && stored == TC_STORED_AS_COMPUTED && are_in_conflict(b_col) && units->columns[TC_PIECES - 1] != units->columns[1];
}

static void add_dot_units(const tc_stored stored, int count, vreal *sum, const dot_unit *units, int64_t b_col, int64_t first, int64_t last)
{
    if (in_conflict(stored, units, b_col)) {
        if (count == DOT_UNITS)
            add_units_stored(stored, DOT_UNITS, sum, units, b_col, first, last);
        else
            for (int u = 0; u < count; u++) add_units_stored(stored, 1, sum + u, units + u, b_col, first, last);
        return;
    }
    if (count == DOT_UNITS)
        add_units(stored, DOT_UNITS, sum, units, b_col, first, last);
    else
        for (int u = 0; u < count; u++) add_units(stored, 1, sum + u, units + u, b_col, first, last);
}

/* B of more bytes is not in a cache near the core. So many elements of each column are asked for while as many before are computed with: a
 * processor does not read so many columns ahead by itself. */
#define FAR_BYTES 524288
#define FAR_STEP 64

static void add_far_units(const tc_stored stored, int count, vreal *sum, const dot_unit *units, int64_t b_col, int64_t first, int64_t last)
{
    for (int64_t k = first; k < last; k += FAR_STEP) {
        for (int u = 0; u < count; u++)
            for (int i = 0; i < TC_LANES; i++) {
                const void *column = units[u].columns[i / TC_IN_PIECE];
                for (int64_t l = 0; l < FAR_STEP; l += LINE)
                    __builtin_prefetch(stored_at(column, stored, i % TC_IN_PIECE * b_col + k + FAR_STEP + l), 0, 2);
            }
        const int64_t until = last - k < FAR_STEP ? last : k + FAR_STEP;
        WITH_STORED(stored, add_dot_units, count, sum, units, b_col, k, until);
    }
}

/* The k of all units that are copied together; from one copied column to the next, which is not a power of two. */
#define COPIED_K 64
#define COPIED_COLUMN (COPIED_K + TC_IN_PIECE)

static __attribute__((noinline)) void copy_unit(real *to, const row_of_dots *w, const dot_unit *u, int64_t k, int64_t count)
{
    for (int i = 0; i < TC_LANES; i++, to += COPIED_COLUMN) {
        const void *from = stored_at(u->columns[i / TC_IN_PIECE], w->b_stored, i % TC_IN_PIECE * w->b_col + k * w->b_row);
        WITH_STORED(w->b_stored, copy_row, to, count, from, w->b_row);
    }
}

/* The same for columns whose elements lie apart. */
static void add_copied_units(const row_of_dots *w, int count, vreal *sum, const dot_unit *units, int64_t first, int64_t last)
{
    real copy[DOT_UNITS][TC_LANES * COPIED_COLUMN];
    dot_unit of_copy[DOT_UNITS];
    for (int64_t k = first; k < last; k += COPIED_K) {
        const int64_t left = last - k < COPIED_K ? last - k : COPIED_K;
        for (int u = 0; u < count; u++) {
            copy_unit(copy[u], w, &units[u], k, left);
            of_copy[u].a = units[u].a + k;
            for (int j = 0; j < TC_PIECES; j++) of_copy[u].columns[j] = copy[u] + j * TC_IN_PIECE * COPIED_COLUMN;
        }
        if (count == DOT_UNITS)
            add_units_of_real(DOT_UNITS, sum, of_copy, COPIED_COLUMN, 0, left);
        else
            for (int u = 0; u < count; u++) add_units_of_real(1, sum + u, of_copy + u, COPIED_COLUMN, 0, left);
    }
}

/* Sets u to `block` of k of a group of columns; what its sum begins with. */
static vreal begin_unit(dot_unit *u, const row_of_dots *w, int64_t group, int64_t block)
{
    const int64_t k = block * w->k_block, N = w->N;
    real lane[TC_LANES];
    for (int j = 0; j < TC_PIECES; j++)
        u->columns[j] = stored_at(w->b, w->b_stored, first_of_piece(N, group * TC_LANES, j) * w->b_col + k * w->b_row);
    u->a = w->a + k;
    u->K = w->K - k < w->k_block ? w->K - k : w->k_block;
    if (block || !w->bias) return v_zero();
    for (int i = 0; i < TC_LANES; i++)
        lane[i] = w->bias[w->biases ? first_of_piece(N, group * TC_LANES, i / TC_IN_PIECE) + i % TC_IN_PIECE : 0];
    return v_load(lane);
}

static void end_group(const row_of_dots *w, int64_t group, vreal total)
{
    real lane[TC_LANES];
    if (w->N >= (group + 1) * TC_LANES) {
        v_store_stored(stored_to(w->c, w->c_stored, group * TC_LANES), w->c_stored, total, TC_LANES);
        return;
    }
    v_store(lane, total);
    for (int j = 0; j < TC_PIECES; j++)
        write_stored(stored_to(w->c, w->c_stored, first_of_piece(w->N, group * TC_LANES, j)), lane + j * TC_IN_PIECE, w->c_stored,
                     TC_IN_PIECE);
}

/* N is at least TC_IN_PIECE. */
static void columns_of_dots(const row_of_dots *w)
{
    const int64_t blocks = w->K > w->k_block ? tc_divide_up(w->K, w->k_block) : 1;
    const int64_t units = tc_divide_up(w->N, TC_LANES) * blocks;
    /* Where columns begin pages apart, those of the next group have the places of this one's. */
    const bool apart = w->b_col * stored_size(w->b_stored) % 4096 == 0;
    const bool far = w->N * w->K * stored_size(w->b_stored) > FAR_BYTES;
    int64_t group = 0, block = 0, finished = 0, blocks_finished = 0;
    vreal total = v_zero();
    for (int64_t unit = 0; unit < units;) {
        dot_unit u[DOT_UNITS];
        vreal sum[DOT_UNITS];
        const int64_t left = apart ? blocks - block : units - unit;
        const int count = (int)(left < DOT_UNITS ? left : DOT_UNITS);
        int64_t common = w->k_block;
        for (int i = 0; i < count; i++) {
            sum[i] = begin_unit(&u[i], w, group, block);
            common = u[i].K < common ? u[i].K : common;
            if (++block == blocks) block = 0, group++;
        }
        if (w->b_row != 1)
            add_copied_units(w, count, sum, u, 0, common);
        else if (far)
            add_far_units(w->b_stored, count, sum, u, w->b_col, 0, common);
        else
            WITH_STORED(w->b_stored, add_dot_units, count, sum, u, w->b_col, 0, common);
        unit += count;
        for (int i = 0; i < count; i++) {
            if (u[i].K > common) {
                if (w->b_row != 1)
                    add_copied_units(w, 1, sum + i, u + i, common, u[i].K);
                else
                    WITH_STORED(w->b_stored, add_dot_units, 1, sum + i, u + i, w->b_col, common, u[i].K);
            }
            total = blocks_finished == 0 ? sum[i] : sum[i] + total;
            if (++blocks_finished < blocks) continue;
            end_group(w, finished++, total);
            blocks_finished = 0;
        }
    }
}

static void row_by_columns(const row_of_dots *w)
{
    if (w->N >= TC_IN_PIECE) {
        columns_of_dots(w);
        return;
    }
    for (int64_t n = 0; n < w->N; n++) {
        const real first = w->bias ? w->bias[w->biases ? n : 0] : R(0.0);
        const real sum = dot(first, w->a, stored_at(w->b, w->b_stored, n * w->b_col), w->b_stored, w->b_row, w->K, w->k_block);
        write_stored(stored_to(w->c, w->c_stored, n), &sum, w->c_stored, 1);
    }
}

#endif
