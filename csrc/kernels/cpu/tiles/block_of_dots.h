/* block_of_dots.h: sums of up to 32 x 32 by dot products of two, 8 x 32 of them in registers at a time. Included by gemm.c only. */
#ifndef TC_KERNELS_CPU_BLOCK_OF_DOTS_H
#define TC_KERNELS_CPU_BLOCK_OF_DOTS_H

#include "dots.h"
#include "split.h"

TC_INLINE void begin_blocks(int rows) { (void)rows; }
TC_INLINE void end_blocks(void) {}

#define DOT_ROWS 8 /* divides a group */
#define DOT_STEPS                                                                                                                          \
    4 /* whose products are summed apart: it is more accurate, and what follows need not wait. They divide those of a block. */
#define LINE_BYTES 64
#define MOST_SUMS 16
#define MOST_GROUPS 8

/* Where pairs of rows of B are: in two tiles, or in place, whose columns become out of order as in store_joined(). */
typedef struct dot_columns {
    const char *tile;
    int64_t group; /* bytes to the other tile */
    const uint16_t *row;
    int64_t next_row;
} dot_columns;

/* `groups` of 16 columns, of tiles at most two. The sums of 32 columns lie SUMS_GROUP after those of the 32 before. */
TC_INLINE void add_rows_of(const int rows, const int groups, const bool in_place, float *sums, int64_t steps, const char *a, dot_columns b)
{
    while (steps > 0) {
        dot_sums some[MOST_SUMS];
        TC_UNROLL
        for (int i = 0; i < rows * groups; i++) some[i] = dot_zero();
        for (int step = 0; step < DOT_STEPS && steps > 0; step++, steps--, a += TC_GEMM_TILE_BYTES - LINE_BYTES)
            for (int pair = 0; pair < STEP / 2; pair++, a += 4) {
                dot_pairs columns[MOST_GROUPS];
                TC_UNROLL
                for (int j = 0; j < groups && in_place; j += 2) {
                    const uint16_t *even = b.row + j * GROUP, *odd = even + b.next_row;
                    dot_join_rows(columns + j, even, odd);
                    if (groups > 2) __builtin_prefetch(even + groups * GROUP, 0, 2), __builtin_prefetch(odd + groups * GROUP, 0, 2);
                }
                TC_UNROLL
                for (int j = 0; j < groups && !in_place; j++) columns[j] = dot_load_pairs(b.tile + j * b.group);
                b.row += 2 * b.next_row;
                b.tile += LINE_BYTES;
                TC_UNROLL
                for (int i = 0; i < rows; i++) {
                    const dot_pairs row = dot_repeat(a + i * LINE_BYTES);
                    TC_UNROLL
                    for (int j = 0; j < groups; j++) some[i * groups + j] = dot_add(some[i * groups + j], row, columns[j]);
                }
            }
        TC_UNROLL
        for (int i = 0; i < rows; i++) TC_UNROLL
        for (int j = 0; j < groups; j++) dot_add_to(sums + j / 2 * SUMS_GROUP + i * SUMS_ROW + j % 2 * GROUP, some[i * groups + j]);
    }
}

/* Few rows are bound by reading B, which is faster several lines of memory at a time, the next ones fetched meanwhile. */
#define GROUPS_IN_PLACE(rows) ((rows) <= 2 ? 8 : (rows) <= 4 ? 4 : 2)

typedef void (*rows_function)(float *sums, int64_t steps, const char *a, dot_columns b);
#define ROWS_FUNCTION(rows, kind, groups, in_place)                                                                                        \
    static void add_rows_##rows##_##kind(float *sums, int64_t steps, const char *a, dot_columns b)                                         \
    {                                                                                                                                      \
        add_rows_of(rows, groups, in_place, sums, steps, a, b);                                                                            \
    }
#define ROWS_FUNCTIONS(rows)                                                                                                               \
    ROWS_FUNCTION(rows, of_one, 1, false)                                                                                                  \
    ROWS_FUNCTION(rows, of_two, 2, false)                                                                                                  \
    ROWS_FUNCTION(rows, in_place, GROUPS_IN_PLACE(rows), true)
ROWS_FUNCTIONS(1)
ROWS_FUNCTIONS(2)
ROWS_FUNCTIONS(4)
ROWS_FUNCTIONS(8)
#define ROWS_ROW(rows)                                                                                                                     \
    {                                                                                                                                      \
        add_rows_##rows##_of_one, add_rows_##rows##_of_two, add_rows_##rows##_in_place                                                     \
    }

/* For so many rows, or a few more, for which a group of A has zeros and room in the sums. */
static const rows_function *functions_of(int rows)
{
    static const rows_function functions[][3] = {ROWS_ROW(1), ROWS_ROW(2), ROWS_ROW(4), ROWS_ROW(8)};
    return functions[rows > 4 ? 3 : rows > 2 ? 2 : rows - 1];
}

/* The block of the first k begins with the bias, the others go on with the sums. */
TC_INLINE void begin_sums(float *sums, int rows, int cols, const float *bias)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) sums[j / SUMS_ROW * SUMS_GROUP + i * SUMS_ROW + j % SUMS_ROW] = bias ? bias[j] : 0;
}

TC_INLINE void add_block_of(const int parts, const bool goes_on, const int a_groups, const int b_groups, float *sums, int rows, bool first,
                            const float *bias, int64_t steps, const char *a, int64_t a_group, const char *b, int64_t b_group)
{
    (void)parts, (void)goes_on, (void)a_groups;
    if (first) begin_sums(sums, rows, b_groups * GROUP, bias);
    for (int row = 0; row < rows; row += DOT_ROWS, sums += (int64_t)DOT_ROWS * SUMS_ROW) {
        const char *lines = a + row / GROUP * a_group + row % GROUP * LINE_BYTES;
        functions_of(rows - row)[b_groups - 1](sums, steps, lines, (dot_columns){.tile = b, .group = b_group});
    }
}

/* Up to a group of rows by the first columns of B, whose rows are read where they are; returns how many columns, of which there are `cols`,
 * or 0: too few, or too many rows. */
TC_INLINE int add_in_place(float *sums, int rows, int64_t cols, bool first, const float *bias, int64_t steps, const char *a, lines_of b)
{
    const int some = GROUPS_IN_PLACE(rows) * GROUP;
    if (cols < some || rows > GROUP) return 0;
    if (first) begin_sums(sums, rows, some, bias);
    for (int row = 0; row < rows; row += DOT_ROWS)
        functions_of(rows)[2](sums + row * SUMS_ROW, steps, a + row * LINE_BYTES, (dot_columns){.row = b.first, .next_row = b.k});
    return some;
}

#endif
