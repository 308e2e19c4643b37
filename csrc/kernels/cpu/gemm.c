/* gemm.c: the matrix product: panels of B, blocks of A, register tiles, epilogues while a tile is hot.
 *
 * For a block of k the tiles of a column group move down the rows of the item, so that the group's panels (at most
 * TC_GEMM_K_BLOCK rows of 128 bytes) stay in L1 and the block of A in L2 (Goto and van de Geijn 2008). */
#include "../gemm.h"
#include "activation.h"
#include "tile.h"
#include "transpose.h"

#define PANEL (TC_GEMM_PANEL_BYTES / (int)sizeof(real)) /* columns of a panel */
#define PANEL_VECTORS (PANEL / TC_LANES)
#define GROUP_VECTORS (PANEL_VECTORS > 2 ? PANEL_VECTORS : 2) /* vectors whose panels are packed together in scratch */

/* ---- packing --------------------------------------------------------------------------------------------------- */

/* out (K, PANEL) <- `cols` columns of b, the rest zeros. */
static void pack_panel(real *out, int64_t K, int cols, const real *b, int64_t b_row, int64_t b_col)
{
    for (int v = 0; v < PANEL_VECTORS; v++, out += TC_LANES, b += TC_LANES * b_col, cols -= TC_LANES) {
        const int lanes = cols <= 0 ? 0 : cols < TC_LANES ? cols : TC_LANES;
        if (b_col == 1) {
            for (int64_t k = 0; k < K; k++) v_store(out + k * PANEL, v_load_some(b + k * b_row, lanes));
        } else if (b_row == 1) {
            for (int64_t k = 0; k < K; k += TC_LANES) {
                const int rows = v_left(K, k);
                vreal block[TC_LANES];
                TC_UNROLL
                for (int i = 0; i < TC_LANES; i++) block[i] = i < lanes ? v_load_some(b + i * b_col + k, rows) : v_zero();
                v_transpose(block);
                for (int i = 0; i < rows; i++) v_store(out + (k + i) * PANEL, block[i]);
            }
        } else {
            for (int64_t k = 0; k < K; k++)
                for (int i = 0; i < TC_LANES; i++) out[k * PANEL + i] = i < lanes ? b[k * b_row + i * b_col] : R(0.0);
        }
    }
}

TC_DEFINE_KERNEL(gemm_pack)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_gemm_pack_args *a = args;
    const int64_t panels = tc_gemm_panels(a->N, sizeof(real));
    (void)scratch;
    for (int64_t item = begin; item < end; item++) {
        const int64_t n = item % panels * PANEL;
        const int cols = a->N - n < PANEL ? (int)(a->N - n) : PANEL;
        const real *b = a->b;
        int64_t batch = item / panels;
        for (int d = a->batch_dims - 1; d >= 0; batch /= a->batch_shape[d--]) b += batch % a->batch_shape[d] * a->b_batch[d];
        pack_panel((real *)a->panels + item * a->K * PANEL, a->K, cols, b + n * a->b_col, a->b_row, a->b_col);
    }
}

/* Columns [0, K) of `rows` <= TC_TILE_ROWS rows of a, to out[k * rows + i]. Stores full vectors, each over the excess of the one before,
 * and up to one vector beyond the end. */
static void pack_tile_rows(real *out, int rows, int64_t K, const real *a, int64_t a_row, int64_t a_col)
{
    enum { GROUPS = (TC_TILE_ROWS + TC_LANES - 1) / TC_LANES };
    if (a_row == 1) {
        for (int64_t k = 0; k < K; k++)
            for (int i = 0; i < rows; i += TC_LANES) v_store(out + k * rows + i, v_load_some(a + k * a_col + i, v_left(rows, i)));
    } else if (a_col == 1) {
        for (int64_t k = 0; k < K; k += TC_LANES) {
            const int left = v_left(K, k);
            vreal block[GROUPS][TC_LANES];
            TC_UNROLL
            for (int g = 0; g < GROUPS; g++) {
                TC_UNROLL
                for (int i = 0; i < TC_LANES; i++) {
                    const int row = g * TC_LANES + i;
                    block[g][i] = row < rows ? v_load_some(a + row * a_row + k, left) : v_zero();
                }
                v_transpose(block[g]);
            }
            for (int i = 0; i < left; i++)
                for (int g = 0; g * TC_LANES < rows; g++) v_store(out + (k + i) * rows + g * TC_LANES, block[g][i]);
        }
    } else {
        for (int64_t k = 0; k < K; k++)
            for (int i = 0; i < rows; i++) out[k * rows + i] = a[i * a_row + k * a_col];
    }
}

/* ---- one tile -------------------------------------------------------------------------------------------------- */

typedef struct tile_work {
    int64_t K;
    const real *a, *b, *bias, *residual; /* bias, residual: NULL unless they are added here */
    real *c;
    int64_t a_row, a_col, b_row, b_vector, c_row, residual_row;
    int lanes, b_lanes; /* of the last vector: columns of C that exist, and that b has */
    bool add_c, relu;
    const char *fetch; /* cache lines to prefetch meanwhile, or NULL */
} tile_work;

/* For every FETCH_ROWS rows of b a tile prefetches FETCH_LINES cache lines of the next panels: four tiles fetch a panel. */
#define FETCH_ROWS 8
#define FETCH_LINES (FETCH_ROWS / 4)
#define FETCH_TILES 4

typedef void (*tile_function)(const tile_work *w);

TC_INLINE void tile_product(const int rows, const int vectors, int64_t a_row, int64_t a_col, const tile_work *w)
{
    tc_tile c;
    if (w->add_c) {
        TC_UNROLL
        for (int i = 0; i < rows; i++) __builtin_prefetch(w->c + i * w->c_row, 1);
    }
    if (w->bias)
        tile_set_row(rows, vectors, c, w->bias, w->lanes);
    else
        tile_zero(rows, vectors, c);
    const real *a = w->a, *b = w->b;
    int64_t K = w->K;
    if (w->fetch) {
        const char *fetch = w->fetch;
        for (; K >= FETCH_ROWS; K -= FETCH_ROWS) {
            TC_UNROLL
            for (int i = 0; i < FETCH_LINES; i++, fetch += TC_GEMM_PANEL_BYTES) __builtin_prefetch(fetch, 0, 2);
            tile_multiply_add(rows, vectors, c, FETCH_ROWS, a, a_row, a_col, b, w->b_row, w->b_vector, TC_LANES);
            a += FETCH_ROWS * a_col;
            b += FETCH_ROWS * w->b_row;
        }
    }
    tile_multiply_add(rows, vectors, c, K, a, a_row, a_col, b, w->b_row, w->b_vector, w->b_lanes);
    if (w->add_c) tile_add(rows, vectors, c, w->c, w->c_row, w->lanes);
    if (w->relu) {
        TC_UNROLL
        for (int i = 0; i < rows; i++) TC_UNROLL
        for (int j = 0; j < vectors; j++) c[i][j] = v_max(v_zero(), c[i][j]);
    }
    if (w->residual) tile_add(rows, vectors, c, w->residual, w->residual_row, w->lanes);
    tile_store(rows, vectors, c, w->c, w->c_row, w->lanes);
}

/* A tile function for every number of rows, for one and two vectors, and for A with adjacent rows (packed blocks, a transposed A) or with
 * adjacent elements of a row. */
#define TILE_FUNCTIONS(rows)                                                                                                               \
    static void tile_##rows##x1_packed(const tile_work *w) { tile_product(rows, 1, 1, w->a_col, w); }                                      \
    static void tile_##rows##x2_packed(const tile_work *w) { tile_product(rows, 2, 1, w->a_col, w); }                                      \
    static void tile_##rows##x1_plain(const tile_work *w) { tile_product(rows, 1, w->a_row, 1, w); }                                       \
    static void tile_##rows##x2_plain(const tile_work *w) { tile_product(rows, 2, w->a_row, 1, w); }
#define TILE_ROW(rows) {{tile_##rows##x1_packed, tile_##rows##x2_packed}, {tile_##rows##x1_plain, tile_##rows##x2_plain}},

#define FOUR_ROWS(x) x(1) x(2) x(3) x(4)
#if TC_TILE_ROWS == 14
#define ALL_ROWS(x) FOUR_ROWS(x) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13) x(14)
#elif TC_TILE_ROWS == 6
#define ALL_ROWS(x) FOUR_ROWS(x) x(5) x(6)
#else
#define ALL_ROWS(x) FOUR_ROWS(x)
#endif
ALL_ROWS(TILE_FUNCTIONS)
static const tile_function tile_functions[TC_TILE_ROWS][2][2] = {ALL_ROWS(TILE_ROW)}; /* [rows - 1][plain][vectors - 1] */

/* ---- one item -------------------------------------------------------------------------------------------------- */

/* The rows and columns of C that an item computes, and where they begin in every operand. */
typedef struct gemm_item {
    const tc_gemm_args *args;
    const real *a, *b, *bias, *residual;
    real *c, *pre;
    int64_t rows, cols, K, panel_stride; /* panel_stride: from one packed panel to the next */
    real *a_scratch, *b_scratch;
} gemm_item;

/* Tiles of nearly equal height: 16 rows are 8 + 8, not 14 + 2. */
TC_INLINE int64_t tile_count(int64_t rows) { return (rows + TC_TILE_ROWS - 1) / TC_TILE_ROWS; }
TC_INLINE int tile_height(int64_t rows, int64_t tiles, int64_t tile) { return (int)(rows / tiles + (tile < rows % tiles)); }

static void finish_tile(const gemm_item *it, int rows, int64_t row, int64_t col, int64_t cols)
{
    const tc_gemm_args *g = it->args;
    const bool from_pre = it->pre != NULL;
    const real *source = from_pre ? it->pre + row * g->pre_row + col : it->c + row * g->c_row + col;
    const int64_t source_row = from_pre ? g->pre_row : g->c_row;
    for (int i = 0; i < rows; i++) {
        real *out = it->c + (row + i) * g->c_row + col;
        for (int64_t j = 0; j < cols; j += TC_LANES) {
            const int lanes = v_left(cols, j);
            vreal y = v_activate(g->activation, v_load_some(source + i * source_row + j, lanes));
            if (it->residual) y = y + v_load_some(it->residual + (row + i) * g->residual_row + col + j, lanes);
            v_store_some(out + j, y, lanes);
        }
    }
}

/* A column group of 1 or 2 vectors, down all rows, for k0 .. k0 + kc. */
static void column_of_tiles(const gemm_item *it, const real *b, int64_t b_row, int64_t b_vector, int64_t col, int vectors, int64_t k0,
                            int64_t kc)
{
    const tc_gemm_args *g = it->args;
    const bool first = k0 == 0, last = k0 + kc == it->K;
    const bool two_steps = it->pre || g->activation > TC_ACTIVATION_RELU; /* the activation follows the store */
    const int64_t cols = it->cols - col < vectors * TC_LANES ? it->cols - col : vectors * TC_LANES;
    const int64_t tiles = tile_count(it->rows);
    tile_work w = {.K = kc, .b = b, .b_row = b_row, .b_vector = b_vector, .lanes = (int)(cols - (vectors - 1) * TC_LANES)};
    w.b_lanes = g->b_form == TC_GEMM_B_ROWS ? w.lanes : TC_LANES;
    w.add_c = !first;
    w.bias = first && it->bias ? it->bias + col : NULL;
    w.relu = last && !two_steps && g->activation == TC_ACTIVATION_RELU;
    w.c_row = it->pre ? g->pre_row : g->c_row;
    w.residual_row = g->residual_row;
    real *out = (it->pre ? it->pre : it->c) + col;
    const real *packed = it->a_scratch;
    const int panels = PANEL_VECTORS == 1 ? 2 : 1; /* that this group uses */
    const real *next = g->fetch_b && col + panels * PANEL < it->cols ? b + panels * it->panel_stride : NULL;
    int64_t row = 0;
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int height = tile_height(it->rows, tiles, tile);
        w.a = g->pack_a ? packed : it->a + row * g->a_row + k0 * g->a_col;
        w.a_row = g->pack_a ? 1 : g->a_row;
        w.a_col = g->pack_a ? height : g->a_col;
        w.c = out + row * w.c_row;
        w.residual = last && !two_steps && it->residual ? it->residual + row * g->residual_row + col : NULL;
        w.fetch = next && tile < FETCH_TILES * panels
                      ? (const char *)(next + tile / FETCH_TILES * it->panel_stride + tile % FETCH_TILES * (kc / FETCH_TILES) * PANEL)
                      : NULL;
        tile_functions[height - 1][w.a_row != 1][vectors - 1](&w);
        if (last && two_steps) finish_tile(it, height, row, col, cols);
        packed += height * kc;
        row += height;
    }
}

static void pack_rows(const gemm_item *it, int64_t k0, int64_t kc)
{
    const tc_gemm_args *g = it->args;
    const int64_t tiles = tile_count(it->rows);
    real *out = it->a_scratch;
    int64_t row = 0;
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int height = tile_height(it->rows, tiles, tile);
        pack_tile_rows(out, height, kc, it->a + row * g->a_row + k0 * g->a_col, g->a_row, g->a_col);
        out += height * kc;
        row += height;
    }
}

static void k_block(const gemm_item *it, int64_t k0, int64_t kc)
{
    const tc_gemm_args *g = it->args;
    if (g->pack_a) pack_rows(it, k0, kc);
    for (int64_t group = 0; group < it->cols; group += GROUP_VECTORS * TC_LANES) {
        const real *b;
        int64_t panel_stride = it->panel_stride;
        if (g->b_form == TC_GEMM_B_STRIDED) {
            panel_stride = kc * PANEL;
            for (int64_t n = group; n < it->cols && n < group + GROUP_VECTORS * TC_LANES; n += PANEL)
                pack_panel(it->b_scratch + (n - group) * kc, kc, it->cols - n < PANEL ? (int)(it->cols - n) : PANEL,
                           it->b + k0 * g->b_row + n * g->b_col, g->b_row, g->b_col);
            b = it->b_scratch;
        } else if (g->b_form == TC_GEMM_B_PANELS) {
            b = it->b + group / PANEL * panel_stride + k0 * PANEL;
        } else {
            b = it->b + k0 * g->b_row + group;
        }
        for (int v = 0; v < GROUP_VECTORS && group + v * TC_LANES < it->cols; v += 2) {
            const int64_t col = group + v * TC_LANES;
            const int vectors = it->cols - col > TC_LANES ? 2 : 1;
            if (g->b_form == TC_GEMM_B_ROWS)
                column_of_tiles(it, b + v * TC_LANES, g->b_row, TC_LANES, col, vectors, k0, kc);
            else
                column_of_tiles(it, b + v * TC_LANES, PANEL, PANEL_VECTORS == 1 ? panel_stride : TC_LANES, col, vectors, k0, kc);
        }
    }
}

/* out (rows) = sum over k of a (rows, K). */
static void sum_rows(real *out, int64_t rows, int64_t K, const real *a, int64_t a_row, int64_t a_col)
{
    for (int64_t i = 0; i < rows; i += TC_LANES) {
        const int lanes = v_left(rows, i);
        vreal sum = v_zero();
        if (a_row == 1) {
            for (int64_t k = 0; k < K; k++) sum = sum + v_load_some(a + k * a_col + i, lanes);
        } else {
            real value[TC_LANES] = {0};
            for (int64_t k = 0; k < K; k++)
                for (int l = 0; l < lanes; l++) value[l] += a[(i + l) * a_row + k * a_col];
            sum = v_load(value);
        }
        v_store_some(out + i, sum, lanes);
    }
}

TC_DEFINE_KERNEL(gemm)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_gemm_args *g = args;
    const int64_t row_blocks = tc_gemm_row_blocks(g), col_blocks = tc_gemm_col_blocks(g);
    for (int64_t item = begin; item < end; item++) {
        const int64_t row = item % row_blocks * g->row_block, col = item / row_blocks % col_blocks * g->col_block;
        const int64_t chunk = item / row_blocks / col_blocks % g->k_chunks, first_k = chunk * g->k_chunk;
        int64_t batch = item / row_blocks / col_blocks / g->k_chunks, a_batch = 0, b_batch = 0, c_batch = 0;
        for (int d = g->batch_dims - 1; d >= 0; d--) {
            const int64_t index = batch % g->batch_shape[d];
            batch /= g->batch_shape[d];
            a_batch += index * g->a_batch[d], b_batch += index * g->b_batch[d], c_batch += index * g->c_batch[d];
        }
        gemm_item it = {.args = g};
        it.rows = g->M - row < g->row_block ? g->M - row : g->row_block;
        it.cols = g->N - col < g->col_block ? g->N - col : g->col_block;
        it.K = g->K - first_k < g->k_chunk ? g->K - first_k : g->k_chunk;
        it.a = (const real *)g->a + a_batch + row * g->a_row + first_k * g->a_col;
        it.panel_stride = g->K * PANEL;
        it.b = (const real *)g->b + b_batch;
        it.b += g->b_form == TC_GEMM_B_PANELS ? col / PANEL * it.panel_stride + first_k * PANEL : first_k * g->b_row + col * g->b_col;
        it.c = (real *)g->c + c_batch + chunk * g->c_chunk + row * g->c_row + col;
        if (g->bias) it.bias = (const real *)g->bias + col;
        if (g->pre) it.pre = (real *)g->pre + row * g->pre_row + col;
        if (g->residual) it.residual = (const real *)g->residual + row * g->residual_row + col;
        it.b_scratch = scratch;
        const int64_t kc = tc_gemm_item_k_block(g);
        it.a_scratch = it.b_scratch + (g->b_form == TC_GEMM_B_STRIDED ? kc * GROUP_VECTORS * TC_LANES : 0);
        if (g->a_sum && col == 0) sum_rows((real *)g->a_sum + chunk * g->M + row, it.rows, it.K, it.a, g->a_row, g->a_col);
        int64_t k0 = 0;
        do {
            const int64_t left = it.K - k0 < kc ? it.K - k0 : kc;
            k_block(&it, k0, left);
            k0 += left;
        } while (k0 < it.K);
    }
}
