/* gemm.c: products of bfloat16, and of float32 that is split, by the tile instructions of AMX, which multiply bfloat16.
 *
 * With x = h + m + l, each a bfloat16, the sums of l h, m h, m m, h m, h l and h h for 32 k at a time are added in float32: what is left
 * out is below half a unit in the last place of a product. The order of the sums depends on nothing but K. What tiles cannot represent,
 * lines of small numbers alone, too large ones, infinities and NaN, is computed by the float32 kernel: by the row of A and the 16 columns
 * of B alone. */
#include "../activation.h"
#include "../sum_rows.h"
#include "halves.h"
#include "split.h"
#include "tiles.h"

#define BESIDE(name) TC_PASTE4(tc_, name, _f32_, TC_TILES_BESIDE) /* of the instruction set that has everything else */
void BESIDE(gemm)(const void *args, int64_t begin, int64_t end, void *scratch);
void BESIDE(gemm_pack)(const void *args, int64_t begin, int64_t end, void *scratch);

static void make_group(int parts, void *out, lines_of from, int lines, int64_t K, bool pairs_down, tc_gemm_range *range)
{
    if (from.stored == TC_STORED_BFLOAT16)
        move_group(out, from, lines, K, pairs_down);
    else
        split_group(parts, out, from, lines, K, pairs_down, range);
}

TC_DEFINE_KERNEL(gemm_pack)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_gemm_pack_args *a = args;
    if (!a->parts) {
        BESIDE(gemm_pack)(args, begin, end, scratch);
        return;
    }
    const int64_t groups = tc_divide_up(a->N, GROUP), bytes = tc_gemm_group_bytes(a->K, a->parts);
    for (int64_t item = begin; item < end; item++) {
        const int64_t n = item % groups * GROUP, left = a->N - n;
        int64_t batch = item / groups, offset = n * a->b_col;
        for (int d = a->batch_dims - 1; d >= 0; batch /= a->batch_shape[d--]) offset += batch % a->batch_shape[d] * a->b_batch[d];
        char *out = (char *)a->panels + item * bytes;
        tc_gemm_range range = {{0}};
        const lines_of columns = {stored_at(a->b, a->b_stored, offset), a->b_col, a->b_row, a->b_stored};
        make_group(a->parts, out, columns, left < GROUP ? (int)left : GROUP, a->K, true, &range);
        memcpy(out + bytes - sizeof range, &range, sizeof range);
    }
}

/* ---- 32 x 32 sums -------------------------------------------------------------------------------------------------------- */

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

#define SUMS_ROW 32                            /* floats */
#define SUMS_GROUP ((int64_t)GROUP * SUMS_ROW) /* floats of 16 rows */
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

typedef void (*block_function)(float *sums, int rows, bool first, const float *bias, int64_t steps, const char *a, int64_t a_group,
                               const char *b, int64_t b_group);
#define BLOCK_FUNCTION(kind, parts, goes_on, a_groups, b_groups)                                                                           \
    static void add_##kind##_##a_groups##_##b_groups(float *sums, int rows, bool first, const float *bias, int64_t steps, const char *a,   \
                                                     int64_t a_group, const char *b, int64_t b_group)                                      \
    {                                                                                                                                      \
        add_block_of(parts, goes_on, a_groups, b_groups, sums, rows, first, bias, steps, a, a_group, b, b_group);                          \
    }
#define BLOCK_FUNCTIONS(kind, parts, goes_on)                                                                                              \
    BLOCK_FUNCTION(kind, parts, goes_on, 1, 1)                                                                                             \
    BLOCK_FUNCTION(kind, parts, goes_on, 1, 2) BLOCK_FUNCTION(kind, parts, goes_on, 2, 1) BLOCK_FUNCTION(kind, parts, goes_on, 2, 2)
BLOCK_FUNCTIONS(halves, 1, true)
BLOCK_FUNCTIONS(one, 1, false)
BLOCK_FUNCTIONS(two, 2, false)
BLOCK_FUNCTIONS(three, 3, false)
#define BLOCK_ROW(kind)                                                                                                                    \
    {                                                                                                                                      \
        {add_##kind##_1_1, add_##kind##_1_2}, { add_##kind##_2_1, add_##kind##_2_2 }                                                       \
    }
static const block_function block_functions[4][2][2] = {BLOCK_ROW(halves), BLOCK_ROW(one), BLOCK_ROW(two), BLOCK_ROW(three)};

/* ---- an item --------------------------------------------------------------------------------------------------------------- */

typedef struct split_item { /* of halves as well, which are not split */
    const tc_gemm_args *args;
    lines_of a, b;
    const void *residual;
    const void *bias_given;
    const float *bias; /* with zeros up to the last group */
    char *c;
    float *pre;
    int64_t rows, cols, K, row_groups, steps; /* steps: of k at a time */
    const char *b_parts;                      /* split in advance, or NULL: all k, of which this item's begin at first_step */
    int64_t first_step;
    bool moves_rows; /* of B, halves, whose columns are out of order until they are finished */
    bool panels;     /* b is panels of float32 */
    char *a_parts, *b_scratch;
    float *sums;
    tc_gemm_range *a_ranges, *b_ranges;
    void *plain_scratch;
} split_item;

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* The group of 16 columns from `col` on; a panel is such a group. */
static lines_of group_of_columns(const split_item *it, int64_t col)
{
    lines_of columns = it->b;
    columns.first = stored_at(columns.first, columns.stored, it->panels ? col * it->args->K : col * columns.line);
    return columns;
}

/* Up to 16 rows and columns by the float32 kernel. */
static void plain_group(const split_item *it, int64_t row, int64_t col)
{
    tc_gemm_args g = *it->args;
    const lines_of b = group_of_columns(it, col);
    g.M = least_of(it->rows - row, GROUP), g.N = least_of(it->cols - col, GROUP);
    g.K = g.k_chunk = it->K, g.k_chunks = g.batch = 1, g.batch_dims = 0;
    tc_gemm_make_plain(&g);
    g.a = line_at(&it->a, row, 0);
    g.b = b.first, g.b_row = b.k, g.b_col = b.line;
    g.c = stored_to(it->c, g.c_stored, row * g.c_row + col);
    g.pre = it->pre ? it->pre + row * g.pre_row + col : NULL;
    g.a_sum = NULL;
    g.bias = it->bias_given ? stored_at(it->bias_given, g.bias_stored, col) : NULL;
    g.residual = it->residual ? stored_at(it->residual, g.residual_stored, row * g.residual_row + col) : NULL;
    BESIDE(gemm)(&g, 0, 1, it->plain_scratch);
}

/* Rows [row, row + rows) of C, columns [col, col + cols) with cols <= 32. */
static void finish_rows(const split_item *it, const float *sums, int64_t row, int64_t rows, int64_t col, int cols)
{
    const tc_gemm_args *g = it->args;
    const bool simple = !it->pre && !it->residual && g->activation == TC_ACTIVATION_NONE && g->c_stored == TC_STORED_AS_COMPUTED;
    if (simple) {
        float *c = (float *)(void *)it->c + row * g->c_row + col;
        for (int64_t i = 0; i < rows; i++, c += g->c_row, sums += SUMS_ROW)
            for (int j = 0; j < cols; j += TC_LANES) v_store_some(c + j, v_load(sums + j), v_left(cols, j));
        return;
    }
    for (int64_t i = row; i < row + rows; i++, sums += SUMS_ROW) {
        void *c = stored_to(it->c, g->c_stored, i * g->c_row + col);
        const void *residual = it->residual ? stored_at(it->residual, g->residual_stored, i * g->residual_row + col) : NULL;
        for (int j = 0; j < cols; j += TC_LANES) {
            const int lanes = v_left(cols, j);
            vreal y = v_load(sums + j);
            if (it->pre) v_store_some(it->pre + i * g->pre_row + col + j, y, lanes);
            y = v_activate(g->activation, y);
            if (residual) y = y + v_load_stored(stored_at(residual, g->residual_stored, j), g->residual_stored, lanes);
            v_store_stored(stored_to(c, g->c_stored, j), g->c_stored, y, lanes);
        }
    }
}

static group_magnitudes magnitudes_of_rows(const split_item *it, int64_t row, int64_t rows)
{
    return magnitudes_of((const uint32_t *)(const void *)it->a_ranges + row, (int)rows);
}

static group_magnitudes magnitudes_of_columns(const split_item *it, int64_t col)
{
    tc_gemm_range range = {{0}};
    if (col < it->cols) {
        const int64_t bytes = tc_gemm_group_bytes(it->args->K, it->args->parts);
        memcpy(&range, it->b_parts ? it->b_parts + (col / GROUP + 1) * bytes - sizeof range : (const char *)&it->b_ranges[col / GROUP],
               sizeof range);
    }
    return magnitudes_of(range.largest, GROUP);
}

/* A group of rows and one of columns. What may not be split the float32 kernel computes first, with its neighbours. */
static void finish_group(const split_item *it, const float *sums, int64_t row, int64_t col, group_magnitudes columns)
{
    const int64_t rows = least_of(it->rows - row, GROUP);
    const int cols = (int)least_of(it->cols - col, GROUP);
    if (may_split(magnitudes_of_rows(it, row, GROUP), columns)) {
        finish_rows(it, sums, row, rows, col, cols);
        return;
    }
    plain_group(it, row, col);
    for (int64_t i = 0; i < rows; i++)
        if (may_split(magnitudes_of_rows(it, row + i, 1), columns)) finish_rows(it, sums + i * SUMS_ROW, row + i, 1, col, cols);
}

/* 32 columns from `col` on; `all`: the magnitudes of all rows. */
static void finish_columns(const split_item *it, const float *sums, int64_t col, group_magnitudes all)
{
    const group_magnitudes first = magnitudes_of_columns(it, col), second = magnitudes_of_columns(it, col + GROUP);
    const int cols = (int)least_of(it->cols - col, SUMS_ROW);
    if (may_split(all, first) && may_split(all, second)) {
        finish_rows(it, sums, 0, it->rows, col, cols);
        return;
    }
    for (int64_t row = 0; row < it->rows; row += GROUP, sums += SUMS_GROUP) {
        finish_group(it, sums, row, col, first);
        if (cols > GROUP) finish_group(it, sums + GROUP, row, col + GROUP, second);
    }
}

/* Of up to 32 columns from `col` on. Those that are out of order are in both. */
static int groups_of_columns(const split_item *it, int64_t col) { return it->moves_rows || it->cols - col > GROUP ? 2 : 1; }

/* 32 columns of halves that are adjacent, [k, k + most) of K. */
static void move_columns(const split_item *it, char *out, int64_t col, int64_t k, int64_t most)
{
    float *tiles = (float *)(void *)out, *second = tiles + most / STEP * TILE_WORDS;
    for (int64_t end = k + most; k < end; k += STEP, tiles += TILE_WORDS, second += TILE_WORDS)
        move_rows(tiles, second, lines_at(it->b, col, k), (int)least_of(it->cols - col, 2 * GROUP), (int)least_of(it->K - k, STEP), STEP);
}

/* 16 columns from `col` on, [k, k + most) of K. */
static void split_columns(const split_item *it, char *out, int64_t col, int64_t k, int64_t most)
{
    const int64_t K = least_of(it->K - k, most);
    const lines_of columns = lines_at(group_of_columns(it, col), 0, k);
    make_group(it->args->parts, out, columns, (int)least_of(it->cols - col, GROUP), K, true, &it->b_ranges[col / GROUP]);
}

/* 32 columns from `col` on, for steps of k from k0 on. */
static void add_columns(const split_item *it, float *sums, int64_t col, int64_t k0, int64_t steps)
{
    const tc_gemm_args *g = it->args;
    const int groups = groups_of_columns(it, col);
    const int64_t step = g->parts * TC_GEMM_TILE_BYTES, a_group = it->steps * step;
    const block_function(*functions)[2] = block_functions[tc_gemm_of_halves(g) ? 0 : g->parts];
    int64_t some;
    for (int64_t s = 0; s < steps; s += some) {
        some = least_of(steps - s, tc_gemm_block_steps(g));
        const char *b;
        int64_t b_group;
        if (it->b_parts) {
            b_group = tc_gemm_group_bytes(g->K, g->parts);
            b = it->b_parts + col / GROUP * b_group + (it->first_step + k0 / STEP + s) * step;
        } else {
            b_group = some * step;
            b = it->b_scratch;
            if (it->moves_rows)
                move_columns(it, it->b_scratch, col, k0 + s * STEP, some * STEP);
            else
                for (int j = 0; j < groups; j++)
                    split_columns(it, it->b_scratch + j * b_group, col + j * GROUP, k0 + s * STEP, some * STEP);
        }
        for (int64_t i = 0; i < it->row_groups; i += 2)
            functions[it->row_groups - i > 1][groups - 1](sums + i * SUMS_GROUP, (int)least_of(it->rows - i * GROUP, 2 * GROUP),
                                                          k0 + s == 0, it->bias ? it->bias + col : NULL, some,
                                                          it->a_parts + i * a_group + s * step, a_group, b, b_group);
    }
}

/* Steps of k for all columns, one after the other: rows of B that lie pages apart are read from end to end, half a step at a time. */
#define STRIP_ROWS (STEP / 2)
static void add_strips(const split_item *it, int64_t k0, int64_t steps)
{
    const int64_t a_group = it->steps * TC_GEMM_TILE_BYTES;
    for (int64_t s = 0; s < steps; s++) {
        for (int64_t half = 0; half < STEP; half += STRIP_ROWS) {
            const int64_t k = k0 + s * STEP + half;
            float *tiles = (float *)(void *)it->b_scratch + half / 2 * GROUP;
            for (int64_t col = 0; col < it->cols; col += 2 * GROUP, tiles += 2 * TILE_WORDS)
                move_rows(tiles, tiles + TILE_WORDS, lines_at(it->b, col, k), (int)least_of(it->cols - col, 2 * GROUP),
                          (int)least_of(it->K - k, STRIP_ROWS), STRIP_ROWS);
        }
        for (int64_t col = 0; col < it->cols; col += SUMS_ROW)
            block_functions[0][0][groups_of_columns(it, col) - 1](
                it->sums + col / SUMS_ROW * SUMS_GROUP, (int)it->rows, k0 + s == 0, it->bias ? it->bias + col : NULL, 1,
                it->a_parts + s * TC_GEMM_TILE_BYTES, a_group, it->b_scratch + col / GROUP * TC_GEMM_TILE_BYTES, TC_GEMM_TILE_BYTES);
    }
}

static void compute(const split_item *it)
{
    const tc_gemm_args *g = it->args;
    const int64_t block = it->steps * STEP, step = g->parts * TC_GEMM_TILE_BYTES;
    for (int64_t i = 0; i < it->row_groups; i++) it->a_ranges[i] = (tc_gemm_range){{0}};
    for (int64_t j = 0; j < it->cols && !it->b_parts; j += GROUP) it->b_ranges[j / GROUP] = (tc_gemm_range){{0}};
    for (int64_t k0 = 0; k0 < it->K; k0 += block) {
        const int64_t kc = least_of(it->K - k0, block);
        for (int64_t i = 0; i < it->row_groups; i++) {
            make_group(g->parts, it->a_parts + i * it->steps * step, lines_at(it->a, i * GROUP, k0),
                       (int)least_of(it->rows - i * GROUP, GROUP), kc, false, &it->a_ranges[i]);
        }
        if (g->by_strips) add_strips(it, k0, tc_gemm_steps(kc));
        const group_magnitudes all = magnitudes_of_rows(it, 0, (int64_t)it->row_groups * GROUP);
        for (int64_t col = 0; col < it->cols; col += SUMS_ROW) {
            float *sums = it->sums + (g->by_strips || it->K > block ? col / SUMS_ROW * it->row_groups * SUMS_GROUP : 0);
            if (!g->by_strips) add_columns(it, sums, col, k0, tc_gemm_steps(kc));
            if (k0 + kc < it->K) continue;
            if (it->moves_rows) order_columns(sums, it->rows);
            finish_columns(it, sums, col, all);
        }
    }
}

TC_DEFINE_KERNEL(gemm)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_gemm_args *g = args;
    if (!g->parts) {
        BESIDE(gemm)(args, begin, end, scratch);
        return;
    }
    const tc_gemm_split_scratch places = tc_gemm_split_scratch_of(g);
    const int64_t row_blocks = tc_gemm_row_blocks(g), col_blocks = tc_gemm_col_blocks(g);
    tiles_begin(g->M < GROUP ? (int)g->M : GROUP);
    for (int64_t item = begin; item < end; item++) {
        const int64_t row = item % row_blocks * g->row_block, col = item / row_blocks % col_blocks * g->col_block;
        const int64_t chunk = item / row_blocks / col_blocks % g->k_chunks, first_k = chunk * g->k_chunk;
        int64_t batch = item / row_blocks / col_blocks / g->k_chunks, a_batch = 0, b_batch = 0, c_batch = 0, parts_batch = 0;
        for (int d = g->batch_dims - 1; d >= 0; d--) {
            const int64_t index = batch % g->batch_shape[d];
            batch /= g->batch_shape[d];
            a_batch += index * g->a_batch[d], b_batch += index * g->b_batch[d], c_batch += index * g->c_batch[d];
            parts_batch += index * g->b_parts_batch[d];
        }
        split_item it = {.args = g, .rows = least_of(g->M - row, g->row_block), .cols = least_of(g->N - col, g->col_block)};
        it.K = least_of(g->K - first_k, g->k_chunk);
        it.row_groups = tc_divide_up(it.rows, GROUP);
        it.steps = places.steps;
        it.panels = g->b_form == TC_GEMM_B_PANELS && !g->b_parts;
        it.a = (lines_of){g->a, g->a_row, g->a_col, g->a_stored};
        it.b = it.panels ? (lines_of){g->b, 1, GROUP, g->b_stored} : (lines_of){g->b, g->b_col, g->b_row, g->b_stored};
        it.a.first = stored_at(g->a, g->a_stored, a_batch + row * g->a_row + first_k * g->a_col);
        it.b.first = stored_at(g->b, g->b_stored, b_batch + (it.panels ? col * g->K : col * it.b.line) + first_k * it.b.k);
        it.b_ranges = (tc_gemm_range *)(void *)((char *)scratch + places.b_ranges);
        if (g->b_parts) it.b_parts = (const char *)g->b_parts + parts_batch + col / GROUP * tc_gemm_group_bytes(g->K, g->parts);
        it.first_step = first_k / STEP;
        it.c = stored_to(g->c, g->c_stored, c_batch + chunk * g->c_chunk + row * g->c_row + col);
        if (g->pre) it.pre = (float *)g->pre + row * g->pre_row + col;
        if (g->residual) it.residual = stored_at(g->residual, g->residual_stored, row * g->residual_row + col);
        char *own = scratch;
        it.a_parts = own + places.a, it.b_scratch = own + places.b, it.plain_scratch = own + places.bytes;
        it.sums = (float *)(void *)(own + places.sums);
        it.a_ranges = (tc_gemm_range *)(void *)(own + places.a_ranges);
        it.moves_rows = tc_gemm_of_halves(g) && g->b_col == 1 && !g->b_parts;
        if (g->bias) {
            float *bias = (float *)(void *)(own + places.bias);
            it.bias_given = stored_at(g->bias, g->bias_stored, col);
            read_stored(bias, it.bias_given, g->bias_stored, it.cols);
            for (int64_t n = it.cols; n % SUMS_ROW; n++) bias[n] = 0;
            for (int64_t n = 0; it.moves_rows && n < it.cols; n += SUMS_ROW) disorder_columns(bias + n);
            it.bias = bias;
        }
        if (g->a_sum && col == 0)
            sum_rows((float *)g->a_sum + chunk * g->M + row, it.rows, it.K, it.a.first, g->a_stored, g->a_row, g->a_col);
        compute(&it);
    }
    tiles_end();
}
