/* gemm_squares.h: few vectors by many that all lie along memory, as x @ w.T of few rows, or of many rows by few columns. What is read of
 * the many is transposed in registers, once for all of the few, and each sum is a lane: over k in order, in blocks, as tiles add it up.
 * With several blocks of k the lanes are those of some vectors, one for each block: fewer vectors at a time, which then do not drive one
 * another out of the cache where they begin pages apart. Included by gemm.c only. */
#ifndef TC_KERNELS_CPU_GEMM_SQUARES_H
#define TC_KERNELS_CPU_GEMM_SQUARES_H

#include "../gemm.h"
#include "gemm_dots.h"

#define MOST_FEW 4    /* of the few that are multiplied at a time, */
#define MANY_PART 128 /* and of the many, whose sums wait until all blocks of k are added */
/* Vectors of lanes at a time, as each addition waits for the one before. Four take longer, as more of the many are in the first cache. */
#define MOST_UNITS 2

/* c[i * c_few + n * c_many] = the sum over k of few[i * few_row + k] many[n * many_row + k], begun with bias[i * bias_few + n * bias_many].
 */
typedef struct few_by_many {
    const real *few, *many, *bias; /* bias: or NULL */
    void *c;
    tc_stored c_stored;
    int64_t few_count, few_row, many_count, many_row, bias_few, bias_many, c_few, c_many, K, k_block;
} few_by_many;

/* How lanes read the many: lane j * TC_IN_PIECE + i of unit u at piece[u][j] + lane[i]. `spread`: lanes i are blocks of k, and the few have
 * an element for each, side by side. ahead: from what is read to what will be, or 0. */
typedef struct square_lanes {
    const real *piece[MOST_UNITS][TC_PIECES];
    int64_t lane[TC_IN_PIECE], ahead;
} square_lanes;

TC_INLINE void add_square(const int rows, const int units, const bool spread, vreal sum[MOST_FEW][MOST_UNITS], const square_lanes *from,
                          const real *few, int64_t few_row, int64_t k, const int first)
{
    TC_UNROLL
    for (int u = 0; u < units; u++) { /* one after the other, for few registers */
        const real *p[TC_PIECES];
        vreal x[TC_IN_PIECE];
        TC_UNROLL
        for (int j = 0; j < TC_PIECES; j++) p[j] = from->piece[u][j] + k;
        v_load_squares(x, p, from->lane);
        TC_UNROLL
        for (int i = 0; i < TC_IN_PIECE; i++) {
            if (i < first) continue;
            TC_UNROLL
            for (int r = 0; r < rows; r++) {
                const real *y = few + r * few_row + (k + i) * (spread ? TC_IN_PIECE : 1);
                sum[r][u] = v_fma(spread ? v_repeat_piece(y) : v_set1(*y), x[i], sum[r][u]);
            }
        }
    }
}

/* sum[r][u] += the products for k in [first, last), of which there are at least TC_IN_PIECE. */
TC_INLINE void add_squares(const int rows, const int units, const bool spread, vreal sum[MOST_FEW][MOST_UNITS], const square_lanes *from,
                           const real *few, int64_t few_row, int64_t first, int64_t last)
{
    int64_t k = first;
    while (k + TC_IN_PIECE <= last) {
        const int64_t all = last - (last - first) % TC_IN_PIECE, until = from->ahead && all - k > LINE ? k + LINE : all;
        if (from->ahead) TC_UNROLL
        for (int u = 0; u < units; u++) TC_UNROLL
        for (int j = 0; j < TC_PIECES; j++) TC_UNROLL
        for (int i = 0; i < TC_IN_PIECE; i++) __builtin_prefetch(from->piece[u][j] + from->lane[i] + k + from->ahead, 0, 2);
        for (; k < until; k += TC_IN_PIECE) add_square(rows, units, spread, sum, from, few, few_row, k, 0);
    }
    /* The rest: the end of the last square, so that nothing beyond it is read. */
    if (k < last) add_square(rows, units, spread, sum, from, few, few_row, last - TC_IN_PIECE, TC_IN_PIECE - (int)(last - k));
}

typedef void (*squares_function)(vreal sum[MOST_FEW][MOST_UNITS], const square_lanes *from, const real *few, int64_t few_row, int64_t first,
                                 int64_t last);
#define SQUARES_FUNCTION(rows, units, kind, spread)                                                                                        \
    static __attribute__((noinline)) void add_squares_##rows##_##units##_##kind(                                                           \
        vreal sum[MOST_FEW][MOST_UNITS], const square_lanes *from, const real *few, int64_t few_row, int64_t first, int64_t last)          \
    {                                                                                                                                      \
        const square_lanes lanes = *from; /* in registers, as the sums, whatever is read meanwhile */                                      \
        vreal own[MOST_FEW][MOST_UNITS];                                                                                                   \
        TC_UNROLL                                                                                                                          \
        for (int i = 0; i < rows * units; i++) own[i / units][i % units] = sum[i / units][i % units];                                      \
        add_squares(rows, units, spread, own, &lanes, few, few_row, first, last);                                                          \
        TC_UNROLL                                                                                                                          \
        for (int i = 0; i < rows * units; i++) sum[i / units][i % units] = own[i / units][i % units];                                      \
    }
#define SQUARES_FUNCTIONS(rows, units) SQUARES_FUNCTION(rows, units, whole, false) SQUARES_FUNCTION(rows, units, spread, true)
SQUARES_FUNCTIONS(1, 1)
SQUARES_FUNCTIONS(1, 2)
SQUARES_FUNCTIONS(2, 1)
SQUARES_FUNCTIONS(2, 2)
SQUARES_FUNCTIONS(3, 1)
SQUARES_FUNCTIONS(4, 1)
#define SQUARES(rows, units)                                                                                                               \
    {                                                                                                                                      \
        add_squares_##rows##_##units##_whole, add_squares_##rows##_##units##_spread                                                        \
    }
/* By rows - 1, units - 1 and whether blocks are spread. */
static const squares_function squares_functions[MOST_FEW][MOST_UNITS][2] = {
    {SQUARES(1, 1), SQUARES(1, 2)}, {SQUARES(2, 1), SQUARES(2, 2)}, {SQUARES(3, 1)}, {SQUARES(4, 1)}};

/* out (rows, k_block, TC_IN_PIECE) <- the blocks of k from k on, of which there are `blocks`, side by side; those that are missing are the
 * first one again. */
static __attribute__((noinline)) void spread_few(real *out, const few_by_many *w, int64_t i, int rows, int64_t k, int blocks)
{
    const int64_t left = w->K - k, last = left - (blocks - 1) * w->k_block, common = last < w->k_block ? last : w->k_block;
    int64_t lane[TC_IN_PIECE];
    for (int l = 0; l < TC_IN_PIECE; l++) lane[l] = (l < blocks ? l : 0) * w->k_block;
    for (int r = 0; r < rows; r++, out += w->k_block * TC_IN_PIECE) {
        const real *from = w->few + (i + r) * w->few_row + k;
        int64_t n = 0;
        for (; n + TC_LANES <= common; n += TC_LANES) {
            const real *p[TC_PIECES];
            vreal x[TC_IN_PIECE];
            real pieces[TC_LANES];
            for (int j = 0; j < TC_PIECES; j++) p[j] = from + n + j * TC_IN_PIECE;
            v_load_squares(x, p, lane);
            TC_UNROLL
            for (int m = 0; m < TC_IN_PIECE; m++) {
                v_store(pieces, x[m]);
                for (int j = 0; j < TC_PIECES; j++) memcpy(out + (n + j * TC_IN_PIECE + m) * TC_IN_PIECE, pieces + j * TC_IN_PIECE, 16);
            }
        }
        for (; n < w->k_block; n++)
            for (int l = 0; l < TC_IN_PIECE; l++) out[n * TC_IN_PIECE + l] = lane[l] + n < left ? from[lane[l] + n] : R(0.0);
    }
}

/* The vector of the many that a lane belongs to: the last ones again where there are not enough. */
TC_INLINE int64_t many_of_piece(const few_by_many *w, bool spread, int64_t n, int piece)
{
    if (!spread) return first_of_piece(w->many_count, n, piece);
    return n + piece < w->many_count ? n + piece : w->many_count - 1;
}

/* What the lanes of unit u begin with. */
static vreal begin_lanes(const few_by_many *w, bool spread, int64_t i, int64_t n)
{
    real lane[TC_LANES] = {0};
    for (int l = 0; l < TC_LANES; l += spread ? TC_IN_PIECE : 1) {
        const int64_t of = many_of_piece(w, spread, n, l / TC_IN_PIECE) + (spread ? 0 : l % TC_IN_PIECE);
        lane[l] = w->bias[i * w->bias_few + of * w->bias_many];
    }
    return v_load(lane);
}

/* Points the lanes of some units to `blocks` blocks of k, or to one block, of the many from n on. */
static void begin_units(square_lanes *from, vreal sum[MOST_FEW][MOST_UNITS], int rows, int units, bool spread, const few_by_many *w,
                        int64_t i, int64_t n, int64_t block, int blocks, bool far)
{
    const int step = spread ? TC_PIECES : TC_LANES;
    from->ahead = far ? units * step * w->many_row : 0;
    for (int l = 0; l < TC_IN_PIECE; l++) from->lane[l] = spread ? (l < blocks ? l : 0) * w->k_block : l * w->many_row;
    for (int u = 0; u < units; u++) {
        for (int j = 0; j < TC_PIECES; j++)
            from->piece[u][j] = w->many + many_of_piece(w, spread, n + u * step, j) * w->many_row + block * w->k_block;
        for (int r = 0; r < rows; r++) sum[r][u] = block == 0 && w->bias ? begin_lanes(w, spread, i + r, n + u * step) : v_zero();
    }
}

/* total (rows, MANY_PART) of the many from n on, TC_PIECES for each unit, <- with the sums of some blocks of k. few: of these k, spread. */
static void add_blocks(int rows, int units, real (*total)[MANY_PART], const few_by_many *w, const real *few, int64_t few_row, int64_t i,
                       int64_t begin, int64_t n, int64_t block, int blocks, bool far)
{
    const int64_t last = w->K - (block + blocks - 1) * w->k_block, common = last < w->k_block ? last : w->k_block;
    square_lanes from;
    vreal sum[MOST_FEW][MOST_UNITS];
    real lane[TC_LANES], shorter[MOST_FEW][MOST_UNITS][TC_PIECES];
    begin_units(&from, sum, rows, units, true, w, i, n, block, blocks, far);
    const squares_function add = squares_functions[rows - 1][units - 1][true];
    add(sum, &from, few, few_row, 0, common);
    const bool differ = blocks > 1 && common < w->k_block;
    if (differ) {
        for (int r = 0; r < rows; r++)
            for (int u = 0; u < units; u++) {
                v_store(lane, sum[r][u]);
                for (int j = 0; j < TC_PIECES; j++) shorter[r][u][j] = lane[j * TC_IN_PIECE + blocks - 1];
            }
        from.lane[blocks - 1] = from.ahead = 0;
        add(sum, &from, few, few_row, common, w->k_block);
    }
    for (int r = 0; r < rows; r++)
        for (int u = 0; u < units; u++) {
            v_store(lane, sum[r][u]);
            for (int j = 0; j < TC_PIECES && n + u * TC_PIECES + j < w->many_count; j++) {
                real *of = lane + j * TC_IN_PIECE, *to = total[r] + (n + u * TC_PIECES + j - begin);
                if (differ) of[blocks - 1] = shorter[r][u][j];
                real sums = block == 0 ? of[0] : of[0] + *to;
                for (int l = 1; l < blocks; l++) sums = of[l] + sums;
                *to = sums;
            }
        }
}

/* total (rows, MANY_PART) of the many from n on, TC_LANES for each unit, <- their sums. */
static void sum_lanes_of_many(int rows, int units, real (*total)[MANY_PART], const few_by_many *w, int64_t i, int64_t begin, int64_t n,
                              bool far)
{
    vreal all[MOST_FEW][MOST_UNITS] = {{v_zero()}};
    for (int64_t block = 0; block * w->k_block < w->K; block++) {
        const int64_t k = block * w->k_block, left = w->K - k;
        square_lanes from;
        vreal sum[MOST_FEW][MOST_UNITS];
        begin_units(&from, sum, rows, units, false, w, i, n, block, 1, far);
        squares_functions[rows - 1][units - 1][false](sum, &from, w->few + i * w->few_row + k, w->few_row, 0,
                                                      left < w->k_block ? left : w->k_block);
        for (int r = 0; r < rows; r++)
            for (int u = 0; u < units; u++) all[r][u] = block == 0 ? sum[r][u] : sum[r][u] + all[r][u];
    }
    for (int r = 0; r < rows; r++)
        for (int u = 0; u < units; u++) {
            real lane[TC_LANES];
            v_store(lane, all[r][u]);
            for (int j = 0; j < TC_PIECES; j++)
                memcpy(total[r] + (many_of_piece(w, false, n + u * TC_LANES, j) - begin), lane + j * TC_IN_PIECE, 16);
        }
}

/* total (rows, MANY_PART) <- the few [i, i + rows) by the many [begin, end). */
static void sum_part(int rows, real (*total)[MANY_PART], const few_by_many *w, int64_t i, int64_t begin, int64_t end, bool spread, bool far)
{
    /* More would wait on the stack, or, where the many begin a power of two apart, drive one another out of the first cache. */
    const int units = rows > 2 || (TC_LANES >= 16 && are_in_conflict(w->many_row)) ? 1 : MOST_UNITS;
    if (!spread) {
        int64_t n = begin;
        for (; n + (units - 1) * TC_LANES < end; n += units * TC_LANES) sum_lanes_of_many(rows, units, total, w, i, begin, n, far);
        for (; units > 1 && n < end; n += TC_LANES) sum_lanes_of_many(rows, 1, total, w, i, begin, n, far);
        return;
    }
    real few[MOST_FEW * TC_GEMM_K_BLOCK * TC_IN_PIECE];
    const int64_t all = tc_divide_up(w->K, w->k_block), few_row = w->k_block * TC_IN_PIECE;
    for (int64_t block = 0; block < all; block += TC_IN_PIECE) {
        const int blocks = (int)(all - block < TC_IN_PIECE ? all - block : TC_IN_PIECE);
        int64_t n = begin;
        spread_few(few, w, i, rows, block * w->k_block, blocks);
        for (; n + (units - 1) * TC_PIECES < end; n += units * TC_PIECES)
            add_blocks(rows, units, total, w, few, few_row, i, begin, n, block, blocks, far);
        for (; units > 1 && n < end; n += TC_PIECES) add_blocks(rows, 1, total, w, few, few_row, i, begin, n, block, blocks, far);
    }
}

/* Are there blocks of k for most lanes of a piece? */
static bool are_blocks_spread(int64_t K, int64_t k_block)
{
    const int64_t blocks = tc_divide_up(K, k_block);
    return blocks > 1 && 2 * blocks > TC_IN_PIECE;
}

/* K is at least TC_IN_PIECE, and so is many_count where the blocks are not spread. */
static __attribute__((noinline)) void multiply_few_by_many(const few_by_many *w)
{
    real total[MOST_FEW][MANY_PART];
    const bool spread = are_blocks_spread(w->K, w->k_block), far = w->many_count * w->K * (int64_t)sizeof(real) > FAR_BYTES;
    for (int64_t begin = 0, end; begin < w->many_count; begin = end) {
        end = w->many_count - begin <= MANY_PART ? w->many_count : begin + MANY_PART;
        if (!spread && end < w->many_count && w->many_count - end < TC_LANES)
            end -= TC_LANES; /* pieces of the last lanes begin in its part */
        for (int64_t i = 0, rows; i < w->few_count; i += rows) {
            const int64_t left = w->few_count - i;
            rows = left < MOST_FEW ? left : MOST_FEW;
            sum_part((int)rows, total, w, i, begin, end, spread, far);
            for (int r = 0; r < rows; r++) {
                if (w->c_many == 1) {
                    write_stored(stored_to(w->c, w->c_stored, (i + r) * w->c_few + begin), total[r], w->c_stored, end - begin);
                    continue;
                }
                if (w->c_stored == TC_STORED_AS_COMPUTED)
                    for (int64_t n = begin; n < end; n++) ((real *)w->c)[(i + r) * w->c_few + n * w->c_many] = total[r][n - begin];
                else
                    for (int64_t n = begin; n < end; n++)
                        write_stored(stored_to(w->c, w->c_stored, (i + r) * w->c_few + n * w->c_many), &total[r][n - begin], w->c_stored,
                                     1);
            }
        }
    }
}

#endif
