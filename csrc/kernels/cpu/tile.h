/* tile.h: the register tile, the inner loop of every product.
 *
 * A tile is rows x vectors of C kept in registers while k runs:
 *     c[i][j lanes] += a[i * a_row + k * a_col] * b[k * b_row + j * b_vector + lanes],   k = 0 .. K-1 in order.
 * The product (gemm_tiles.h) and attention inline it with compile-time `rows` and `vectors`; c is a local array that the
 * compiler keeps in registers, so every loop over it is unrolled and its indices are constants:
 *
 *     tc_tile c;
 *     tile_zero(6, 2, c);
 *     tile_multiply_add(6, 2, c, K, a, lda, 1, b, ldb, TC_LANES, lanes);
 *     tile_store(6, 2, c, out, ldc, lanes);
 *
 * `lanes` (1 .. TC_LANES) is the number of lanes of the last vector that exist; the others are neither read nor written. An element's
 * value depends on its own row of a and column of b alone, in the order of k: not on the tile that contains it. A NaN or
 * infinity in a or b reaches the elements that use it and no others.
 */
#ifndef TC_KERNELS_CPU_TILE_H
#define TC_KERNELS_CPU_TILE_H

#include "simd.h"

/* The most rows of two vectors that fit in the registers: rows * vectors accumulators, one row of b, one broadcast. */
#if defined(__AVX512F__) /* 32 registers */
#define TC_TILE_ROWS 14
#elif defined(__AVX2__) /* 16 registers */
#define TC_TILE_ROWS 6
#elif defined(TC_NEON) /* 32 registers, of which the elements of a take up to 8: more rows in place spill */
#define TC_TILE_ROWS 8
#else /* 16 registers, and the product of a multiply without fused add takes one */
#define TC_TILE_ROWS 4
#endif
#define TC_TILE_VECTORS 4    /* of tiles of very few rows */
#define TC_TILE_SHORT_ROWS 8 /* up to which steps of k are so short that several of them are unrolled */

/* Steps of k that are unrolled. Counting them takes time where a step has few products, or fewer instructions can begin at a time than
 * a step of short vectors has. */
#define tile_steps_together(rows, vectors) ((rows) > TC_TILE_SHORT_ROWS ? 1 : TC_TILE_ROWS == 14 && (rows) * (vectors) > 6 ? 2 : 4)

typedef vreal tc_tile[TC_TILE_ROWS][TC_TILE_VECTORS];

TC_INLINE vreal tile_load_vector(const real *p, const int vectors, int j, int lanes)
{
    return j == vectors - 1 ? v_load_some(p, lanes) : v_load(p);
}

TC_INLINE void tile_zero(const int rows, const int vectors, tc_tile c)
{
    TC_UNROLL
    for (int i = 0; i < rows; i++) TC_UNROLL
    for (int j = 0; j < vectors; j++) c[i][j] = v_zero();
}

/* Every row of c becomes the vectors at p: a bias. */
TC_INLINE void tile_set_row(const int rows, const int vectors, tc_tile c, const real *p, int lanes)
{
    TC_UNROLL
    for (int j = 0; j < vectors; j++) {
        const vreal v = tile_load_vector(p + j * TC_LANES, vectors, j, lanes);
        TC_UNROLL
        for (int i = 0; i < rows; i++) c[i][j] = v;
    }
}

/* Sums that were left in scratch, where there is room for whole vectors. */
TC_INLINE void tile_load(const int rows, const int vectors, tc_tile c, const real *p, int64_t row)
{
    TC_UNROLL
    for (int i = 0; i < rows; i++) TC_UNROLL
    for (int j = 0; j < vectors; j++) c[i][j] = v_load(p + i * row + j * TC_LANES);
}

TC_INLINE void tile_add(const int rows, const int vectors, tc_tile c, const real *p, int64_t row, int lanes)
{
    TC_UNROLL
    for (int i = 0; i < rows; i++) TC_UNROLL
    for (int j = 0; j < vectors; j++) c[i][j] = c[i][j] + tile_load_vector(p + i * row + j * TC_LANES, vectors, j, lanes);
}

TC_INLINE void tile_store(const int rows, const int vectors, tc_tile c, real *p, int64_t row, int lanes)
{
    TC_UNROLL
    for (int i = 0; i < rows; i++) TC_UNROLL
    for (int j = 0; j < vectors; j++) {
        if (j == vectors - 1)
            v_store_some(p + i * row + j * TC_LANES, c[i][j], lanes);
        else
            v_store(p + i * row + j * TC_LANES, c[i][j]);
    }
}

/* One step of k. a and b point at column and row k. */
TC_INLINE void tile_step(const int rows, const int vectors, tc_tile c, const real *a, int64_t a_row, const real *b, int64_t b_vector,
                         const bool full, int lanes)
{
    vreal bk[TC_TILE_VECTORS];
    TC_UNROLL
    for (int j = 0; j < vectors; j++) bk[j] = full || j < vectors - 1 ? v_load(b + j * b_vector) : v_load_n(b + j * b_vector, lanes);
    TC_UNROLL
    for (int i = 0; i < rows; i++) {
        const vreal x = v_set1(a[i * a_row]);
        TC_UNROLL
        for (int j = 0; j < vectors; j++) c[i][j] = v_fma(x, bk[j], c[i][j]);
    }
}

#ifdef V_FMA_TAKES_A_LANE
/* tile_step for adjacent rows of a: their elements are lanes of vectors. */
TC_INLINE void tile_step_down(const int rows, const int vectors, tc_tile c, const real *a, const real *b, int64_t b_vector)
{
    vreal ak[(TC_TILE_ROWS + TC_LANES - 1) / TC_LANES], bk[TC_TILE_VECTORS];
    TC_UNROLL
    for (int i = 0; i < rows; i += TC_LANES) ak[i / TC_LANES] = v_load_n(a + i, v_left(rows, i));
    TC_UNROLL
    for (int j = 0; j < vectors; j++) bk[j] = v_load(b + j * b_vector);
    TC_UNROLL
    for (int i = 0; i < rows; i++) TC_UNROLL
    for (int j = 0; j < vectors; j++) c[i][j] = v_fma(v_set_lane(ak[i / TC_LANES], i % TC_LANES), bk[j], c[i][j]);
}

/* TC_LANES steps for adjacent elements of a row of a. */
TC_INLINE void tile_steps_along(const int rows, const int vectors, tc_tile c, const real *a, int64_t a_row, const real *b, int64_t b_row,
                                int64_t b_vector)
{
    vreal bk[TC_LANES][TC_TILE_VECTORS];
    TC_UNROLL
    for (int k = 0; k < TC_LANES; k++) TC_UNROLL
    for (int j = 0; j < vectors; j++) bk[k][j] = v_load(b + k * b_row + j * b_vector);
    TC_UNROLL
    for (int i = 0; i < rows; i++) {
        const vreal x = v_load(a + i * a_row);
        TC_UNROLL
        for (int k = 0; k < TC_LANES; k++) TC_UNROLL
        for (int j = 0; j < vectors; j++) c[i][j] = v_fma(v_set_lane(x, k), bk[k][j], c[i][j]);
    }
}
#endif

/* b is plain rows (b_row its leading dimension, b_vector = TC_LANES) or packed panels (see ../gemm.h). Pass a_row or a_col as the constant
 * 1 where it is 1: then the addresses of the rows need no registers. */
TC_INLINE void tile_multiply_add(const int rows, const int vectors, tc_tile c, int64_t K, const real *a, int64_t a_row, int64_t a_col,
                                 const real *b, int64_t b_row, int64_t b_vector, int lanes)
{
#ifdef V_FMA_TAKES_A_LANE
    if (lanes == TC_LANES && __builtin_constant_p(a_row) && a_row == 1) {
        TC_UNROLL_BY(4)
        for (int64_t k = 0; k < K; k++) tile_step_down(rows, vectors, c, a + k * a_col, b + k * b_row, b_vector);
        return;
    }
    if (lanes == TC_LANES && __builtin_constant_p(a_col) && a_col == 1) {
        for (; K >= TC_LANES; K -= TC_LANES, a += TC_LANES, b += TC_LANES * b_row)
            tile_steps_along(rows, vectors, c, a, a_row, b, b_row, b_vector);
    }
#endif
    const int together = tile_steps_together(rows, vectors);
    if (lanes == TC_LANES && together == 4) {
        TC_UNROLL_BY(4)
        for (int64_t k = 0; k < K; k++) tile_step(rows, vectors, c, a + k * a_col, a_row, b + k * b_row, b_vector, true, lanes);
    } else if (lanes == TC_LANES && together == 2) {
        TC_UNROLL_BY(2)
        for (int64_t k = 0; k < K; k++) tile_step(rows, vectors, c, a + k * a_col, a_row, b + k * b_row, b_vector, true, lanes);
    } else if (lanes == TC_LANES) {
        for (int64_t k = 0; k < K; k++) tile_step(rows, vectors, c, a + k * a_col, a_row, b + k * b_row, b_vector, true, lanes);
    } else {
        for (int64_t k = 0; k < K; k++) tile_step(rows, vectors, c, a + k * a_col, a_row, b + k * b_row, b_vector, false, lanes);
    }
}

#endif
