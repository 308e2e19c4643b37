/* block_of_tiles.h: sums of up to 32 x 32 by tile instructions, four tiles of them. Included by gemm.c only. */
#ifndef TC_KERNELS_CPU_BLOCK_OF_TILES_H
#define TC_KERNELS_CPU_BLOCK_OF_TILES_H

#include "split.h"
#include "tiles.h"

TC_INLINE void begin_blocks(int rows) { tiles_begin(rows); }
TC_INLINE void end_blocks(void) { tiles_end(); }
TC_INLINE int add_in_place(float *sums, int rows, int64_t cols, bool first, const float *bias, int64_t steps, const char *a, lines_of b)
{
    (void)sums, (void)rows, (void)cols, (void)first, (void)bias, (void)steps, (void)a, (void)b;
    return 0;
}

/* Next to tile instructions, which take longer, not all at once. */
TC_INLINE void prefetch_tile(const char *tile)
{
    __asm__("" : "+r"(tile)); /* or gcc holds the address of every line in a register */
    TC_UNROLL
    for (int i = 0; i < TC_GEMM_TILE_BYTES; i += 64) __builtin_prefetch(tile + i);
}

#define A_PART(p)                                                                                                                          \
    do {                                                                                                                                   \
        TILE_LOAD(4, a + (p)*TC_GEMM_TILE_BYTES, 64);                                                                                      \
        if (a_groups == 2) {                                                                                                               \
            TILE_LOAD(5, a + a_group + (p)*TC_GEMM_TILE_BYTES, 64);                                                                        \
            prefetch_tile(next + (p)*TC_GEMM_TILE_BYTES);                                                                                  \
            prefetch_tile(next + a_group + (p)*TC_GEMM_TILE_BYTES);                                                                        \
        }                                                                                                                                  \
    } while (0)
#define B_PART(p)                                                                                                                          \
    do {                                                                                                                                   \
        TILE_LOAD(6, b + (p)*TC_GEMM_TILE_BYTES, 64);                                                                                      \
        if (b_groups == 2) TILE_LOAD(7, b + b_group + (p)*TC_GEMM_TILE_BYTES, 64);                                                         \
    } while (0)
#define PRODUCTS                                                                                                                           \
    do {                                                                                                                                   \
        TILE_PRODUCT(0, 4, 6);                                                                                                             \
        if (b_groups == 2) TILE_PRODUCT(1, 4, 7);                                                                                          \
        if (a_groups == 2) TILE_PRODUCT(2, 5, 6);                                                                                          \
        if (a_groups == 2 && b_groups == 2) TILE_PRODUCT(3, 5, 7);                                                                         \
    } while (0)

/* The products in this order, smaller ones first. */
TC_INLINE void add_steps(const int parts, const int a_groups, const int b_groups, int64_t steps, const char *a, int64_t a_group,
                         const char *b, int64_t b_group)
{
    const int64_t bytes = parts * TC_GEMM_TILE_BYTES;
    for (int64_t s = 0; s < steps; s++, a += bytes, b += bytes) {
        const char *next = s + 1 < steps ? a + bytes : a + 2 * a_group - (steps - 1) * bytes;
        B_PART(0);
        if (parts == 3) {
            A_PART(2);
            PRODUCTS;
        }
        if (parts >= 2) {
            A_PART(1);
            PRODUCTS;
            B_PART(1);
        }
        if (parts == 3) PRODUCTS;
        A_PART(0);
        PRODUCTS;
        if (parts == 3) {
            B_PART(2);
            PRODUCTS;
        }
        if (parts == 1) continue;
        if (parts == 3 || parts == 2) B_PART(0);
        PRODUCTS;
    }
}

#define EACH_SUM(action)                                                                                                                   \
    do {                                                                                                                                   \
        action(0, 0, 0);                                                                                                                   \
        if (b_groups == 2) action(1, 0, 1);                                                                                                \
        if (a_groups == 2) action(2, 1, 0);                                                                                                \
        if (a_groups == 2 && b_groups == 2) action(3, 1, 1);                                                                               \
    } while (0)
#define ZERO_SUM(tile, i, j) TILE_ZERO(tile)
#define LOAD_BIAS(tile, i, j) TILE_LOAD(tile, bias + (j)*GROUP, 0)
#define LOAD_SUM(tile, i, j) TILE_LOAD(tile, sums + (i)*SUMS_GROUP + (j)*GROUP, SUMS_ROW * 4)
#define STORE_SUM(tile, i, j) TILE_STORE(tile, to + (i)*SUMS_GROUP + (j)*GROUP, SUMS_ROW * 4)

/* The block of the first k begins with the bias. Others are summed apart, which is more accurate, and added; those of halves, whose results
 * are rounded to far less, go on with the sums. */
TC_INLINE void add_block_of(const int parts, const bool goes_on, const int a_groups, const int b_groups, float *sums, int rows, bool first,
                            const float *bias, int64_t steps, const char *a, int64_t a_group, const char *b, int64_t b_group)
{
    _Alignas(64) float block[2 * SUMS_GROUP];
    float *const to = first || goes_on ? sums : block;
    if (first && bias)
        EACH_SUM(LOAD_BIAS);
    else if (!first && goes_on)
        EACH_SUM(LOAD_SUM);
    else
        EACH_SUM(ZERO_SUM);
    add_steps(parts, a_groups, b_groups, steps, a, a_group, b, b_group);
    EACH_SUM(STORE_SUM);
    for (int i = to == sums ? rows : 0; i < rows; i++) TC_UNROLL
    for (int j = 0; j < b_groups * GROUP; j += TC_LANES)
        v_store(sums + i * SUMS_ROW + j, v_load(sums + i * SUMS_ROW + j) + v_load(block + i * SUMS_ROW + j));
}

#endif
