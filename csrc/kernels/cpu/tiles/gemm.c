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

#define SUMS_ROW 32                            /* floats */
#define SUMS_GROUP ((int64_t)GROUP * SUMS_ROW) /* floats of 16 rows */

#ifdef TC_DOTS
#include "block_of_dots.h"
#else
#include "block_of_tiles.h"
#endif

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
#define BLOCK_ROW(kind)                                                                                                                    \
    {                                                                                                                                      \
        {add_##kind##_1_1, add_##kind##_1_2}, { add_##kind##_2_1, add_##kind##_2_2 }                                                       \
    }
#if MOST_PARTS == 1 /* three products of dots would take longer than float32's */
static const block_function block_functions[][2][2] = {BLOCK_ROW(halves), BLOCK_ROW(one)};
#else
BLOCK_FUNCTIONS(two, 2, false)
BLOCK_FUNCTIONS(three, 3, false)
static const block_function block_functions[][2][2] = {BLOCK_ROW(halves), BLOCK_ROW(one), BLOCK_ROW(two), BLOCK_ROW(three)};
#endif

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
    const int cols = (int)least_of(it->cols - col, SUMS_ROW);
    if (tc_gemm_of_halves(it->args)) {
        finish_rows(it, sums, 0, it->rows, col, cols);
        return;
    }
    const group_magnitudes first = magnitudes_of_columns(it, col), second = magnitudes_of_columns(it, col + GROUP);
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

/* 32 columns from `col` on, or more by strips, for `some` steps of k from k0 on, before which there are s in this block of A. Returns how
 * many columns. */
static int64_t add_columns(const split_item *it, float *sums, int64_t col, int64_t k0, int64_t s, int64_t some)
{
    const tc_gemm_args *g = it->args;
    const int groups = groups_of_columns(it, col);
    const int64_t step = g->parts * TC_GEMM_TILE_BYTES, a_group = it->steps * step, k = k0 + s * STEP;
    const block_function(*functions)[2] = block_functions[tc_gemm_of_halves(g) ? 0 : g->parts];
    const float *bias = it->bias ? it->bias + col : NULL;
    const char *b = it->b_scratch;
    int64_t b_group = some * step;
    if (it->b_parts) {
        b_group = tc_gemm_group_bytes(g->K, g->parts);
        b = it->b_parts + col / GROUP * b_group + (it->first_step + k / STEP) * step;
    } else if (it->moves_rows) {
        const int64_t cols = least_of(it->cols - col, g->by_strips ? it->cols : SUMS_ROW);
        const char *a = it->a_parts + s * step;
        const lines_of rows = lines_at(it->b, col, k);
        const int in_place = it->K - k < some * STEP ? 0 : add_in_place(sums, (int)it->rows, cols, k == 0, bias, some, a, rows);
        if (in_place) return in_place;
        move_columns(it, it->b_scratch, col, k, some * STEP);
    } else {
        for (int j = 0; j < groups; j++) split_columns(it, it->b_scratch + j * b_group, col + j * GROUP, k, some * STEP);
    }
    for (int64_t i = 0; i < it->row_groups; i += 2)
        functions[it->row_groups - i > 1][groups - 1](sums + i * SUMS_GROUP, (int)least_of(it->rows - i * GROUP, 2 * GROUP), k == 0, bias,
                                                      some, it->a_parts + i * a_group + s * step, a_group, b, b_group);
    return SUMS_ROW;
}

/* Steps of k for all columns, one after the other: rows of B that lie pages apart are read from end to end. */
#ifdef TC_DOTS
static void add_strips(const split_item *it, int64_t k0, int64_t steps)
{
    for (int64_t s = 0; s < steps; s += DOT_STEPS)
        for (int64_t col = 0; col < it->cols;)
            col += add_columns(it, it->sums + col / SUMS_ROW * SUMS_GROUP, col, k0, s, least_of(steps - s, DOT_STEPS));
}
#else
#define STRIP_ROWS (STEP / 2) /* that are moved to tiles at a time */
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
#endif

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
            const int64_t steps = g->by_strips ? 0 : tc_gemm_steps(kc), some = tc_gemm_block_steps(g);
            for (int64_t s = 0; s < steps; s += some) add_columns(it, sums, col, k0, s, least_of(steps - s, some));
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
    begin_blocks(g->M < GROUP ? (int)g->M : GROUP);
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
    end_blocks();
}
