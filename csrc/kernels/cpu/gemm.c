/* gemm.c: the matrix product: panels of B, blocks of A, register tiles, epilogues while a tile is hot.
 *
 * For a block of k the tiles of a column group move down the rows of the item, so that the group's panels (at most
 * TC_GEMM_K_BLOCK rows of 128 bytes) stay in L1 and the block of A in L2 (Goto and van de Geijn 2008). Few rows are bound by reading B: the
 * blocks of k of a column group then follow one another, and halves are widened in registers. Where rows of B lie pages apart they are read
 * by strips: some rows from end to end at a time, while sums wait in scratch. */
#include "activation.h"
#include "gemm_dots.h"
#include "gemm_pack.h"
#include "gemm_short.h"
#include "gemm_squares.h"
#include "gemm_tiles.h"
#include "gemm_windows.h"
#include "sum_rows.h"

TC_DEFINE_KERNEL(gemm_pack)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_gemm_pack_args *a = args;
    const int64_t panels = tc_gemm_panels(a->N, sizeof(real));
    (void)scratch;
    for (int64_t item = begin; item < end;) {
        const int64_t n = item % panels * PANEL;
        int64_t batch = item / panels, offset = n * a->b_col;
        for (int d = a->batch_dims - 1; d >= 0; batch /= a->batch_shape[d--]) offset += batch % a->batch_shape[d] * a->b_batch[d];
        const int64_t panel = tc_gemm_panel_rows(a->K, a->panels_stored) * PANEL;
        item +=
            pack_panels(stored_to(a->panels, a->panels_stored, item * panel), panel, a->panels_stored, a->K,
                        least_of(a->N - n, (end - item) * PANEL), stored_at(a->b, a->b_stored, offset), a->b_stored, a->b_row, a->b_col);
    }
}

/* ---- one item -------------------------------------------------------------------------------------------------- */

/* The rows and columns of C that an item computes, and where they begin in every operand. */
typedef struct gemm_item {
    const tc_gemm_args *args;
    const void *a, *b, *residual;
    const int64_t *b_rows, *b_cols; /* offsets of B's windows, or NULL */
    const real *bias;               /* of columns, or NULL */
    const real *row_bias;           /* (rows, bias_row): that of each row again and again, or NULL */
    int64_t bias_row;
    void *c;
    real *pre;
    int64_t rows, cols, K, k_block;
    int64_t cols_left;           /* of the matrix, from the first column of the item on */
    int64_t tiles, panel_stride; /* panel_stride: from one packed panel to the next */
    int height, higher;          /* rows of a tile; so many tiles, the first ones, have one more */
    real *a_scratch, *b_scratch;
    int64_t a_scratch_row;
    real *sums; /* where c is stored as halves: (rows, sums_row), the columns of a group, or all of the item */
    int64_t sums_row;
    int group;      /* vectors whose panels are packed together in scratch, a multiple of those of a panel; those of a strip */
    int widest;     /* tile, in vectors */
    bool has_a;     /* the item before copied the same rows of A */
    bool widen;     /* B is halves that are widened into scratch, where several tiles read them */
    int strip_rows; /* of B that are read from end to end of a group, or 0 */
    real *carried;  /* sums of the strips before */
    int64_t carried_row;
} gemm_item;

/* Rows of a strip: as many as are read side by side without loss, in tiles of four vectors and of two. */
#define STRIP_ROWS_WIDE 8
#define STRIP_ROWS 16

/* Tiles of nearly equal height: 16 rows are 8 + 8, not 14 + 2. */
TC_INLINE int64_t tile_count(int64_t rows) { return (rows + TC_TILE_ROWS - 1) / TC_TILE_ROWS; }
TC_INLINE int tile_height(const gemm_item *it, int64_t tile) { return it->height + (tile < it->higher); }
/* How many tiles from this one on are as high: the higher ones come first. */
TC_INLINE int64_t tiles_as_high(const gemm_item *it, int64_t tile) { return (tile < it->higher ? it->higher : it->tiles) - tile; }

/* Sums of the products: at (row, col) of the item. Where c is as computed and nothing else is asked for, c itself. */
typedef struct sums_place {
    real *first;
    int64_t row;
} sums_place;
TC_INLINE sums_place sums_at(const gemm_item *it, int64_t row, int64_t col)
{
    const tc_gemm_args *g = it->args;
    if (it->pre) return (sums_place){it->pre + row * g->pre_row + col, g->pre_row};
    if (g->c_stored == TC_STORED_AS_COMPUTED) return (sums_place){(real *)it->c + row * g->c_row + col, g->c_row};
    if (it->K <= it->k_block) return (sums_place){it->sums, it->sums_row}; /* finished at once */
    return (sums_place){it->sums + row * it->sums_row + (g->by_columns ? col % (it->group * TC_LANES) : col), it->sums_row};
}

/* Whole vectors, for each of which nothing else is decided. The function is a constant of the caller, so it is inlined. */
TC_INLINE void activate_rows(vreal (*function)(vreal), real *out, int64_t out_row, sums_place sums, int rows, int64_t cols)
{
    for (int i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += TC_LANES) v_store(out + i * out_row + j, function(v_load(sums.first + i * sums.row + j)));
}

/* The same without a function, stored as c is. */
TC_INLINE void round_rows(const tc_stored stored, void *out, int64_t out_row, sums_place sums, int rows, int64_t cols)
{
    for (int i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += TC_LANES)
            v_store_stored(stored_to(out, stored, i * out_row + j), stored, v_load(sums.first + i * sums.row + j), TC_LANES);
}

static void finish_tile(const gemm_item *it, int rows, int64_t row, int64_t col, int64_t cols)
{
    const tc_gemm_args *g = it->args;
    const sums_place sums = sums_at(it, row, col);
    if (!it->residual && g->c_stored == TC_STORED_AS_COMPUTED && cols % TC_LANES == 0) {
        real *out = (real *)it->c + row * g->c_row + col;
        if (g->activation == TC_ACTIVATION_GELU) return activate_rows(v_gelu, out, g->c_row, sums, rows, cols);
        if (g->activation == TC_ACTIVATION_GELU_TANH) return activate_rows(v_gelu_tanh, out, g->c_row, sums, rows, cols);
    }
    const bool plain = g->activation == TC_ACTIVATION_NONE && !it->residual;
    if (plain && cols % TC_LANES == 0) {
        void *out = stored_to(it->c, g->c_stored, row * g->c_row + col);
        WITH_STORED(g->c_stored, round_rows, out, g->c_row, sums, rows, cols);
        return;
    }
    for (int i = 0; i < rows; i++) {
        void *out = stored_to(it->c, g->c_stored, (row + i) * g->c_row + col);
        if (plain) {
            write_stored(out, sums.first + i * sums.row, g->c_stored, cols);
            continue;
        }
        const void *residual = stored_at(it->residual, g->residual_stored, (row + i) * g->residual_row + col);
        for (int64_t j = 0; j < cols; j += TC_LANES) {
            const int lanes = v_left(cols, j);
            vreal y = v_activate(g->activation, v_load_some(sums.first + i * sums.row + j, lanes));
            if (it->residual) y = y + v_load_stored(stored_at(residual, g->residual_stored, j), g->residual_stored, lanes);
            v_store_stored(stored_to(out, g->c_stored, j), g->c_stored, y, lanes);
        }
    }
}

/* Some vectors of B, for a block of k. */
typedef struct group_of_b {
    const void *data;
    b_kind kind;
    int64_t row, vector, pair; /* elements from one row, vector and pair of vectors to the next */
} group_of_b;

/* The panels that are read after these, or NULL where there are none or prefetching them does not pay. */
static const char *next_panels(const gemm_item *it, const group_of_b *b, int64_t col, int vectors, int64_t k0, int64_t kc)
{
    const tc_gemm_args *g = it->args;
    if (!g->fetch_b || it->widen || (it->widest > 2 && b->kind == B_REAL)) return NULL;
    const bool down = g->by_columns && k0 + kc < it->K;
    const int64_t cols = g->by_columns ? it->cols_left : it->cols, up = g->by_columns ? k0 : 0;
    if (!down && col + panels_of(vectors) * PANEL >= cols) return NULL;
    return stored_at(b->data, stored_of(b->kind), down ? kc * PANEL : panels_of(vectors) * it->panel_stride - up * PANEL);
}

/* Points a tile to rows of A from `row` on, for k0 .. k0 + kc. `a`: the copy of A for these k, if there is one. */
static void point_to_a(tile_work *w, const gemm_item *it, const real *a, int64_t row, int height, int64_t k0, int64_t kc)
{
    const tc_gemm_args *g = it->args;
    if (g->a_form == TC_GEMM_A_BLOCKS)
        w->a = a + row * kc, w->a_row = 1, w->a_col = height;
    else if (g->a_form == TC_GEMM_A_ROWS)
        w->a = a + row * it->a_scratch_row, w->a_row = it->a_scratch_row, w->a_col = 1;
    else
        w->a = (const real *)it->a + row * g->a_row + k0 * g->a_col, w->a_row = g->a_row, w->a_col = g->a_col;
}

/* A column group of 1, 2, 4 or 8 vectors, down all rows, for k0 .. k0 + kc. `carried`: how many k of the block come before these; their
 * sums wait in it->carried. */
static void column_of_tiles(const gemm_item *it, const group_of_b *b, const real *a, int64_t col, int vectors, int64_t k0, int64_t kc,
                            int64_t carried)
{
    const tc_gemm_args *g = it->args;
    const bool first = k0 == carried, last = k0 + kc == it->K;
    const bool halves = g->c_stored != TC_STORED_AS_COMPUTED || (it->residual && g->residual_stored != TC_STORED_AS_COMPUTED);
    const bool two_steps = it->pre || halves || g->activation > TC_ACTIVATION_RELU; /* the activation follows the store */
    const int64_t cols = it->cols - col < vectors * TC_LANES ? it->cols - col : vectors * TC_LANES;
    tile_work w; /* of which each member is set here or below: clearing them takes as long as a short tile */
    w.K = kc, w.b = b->data, w.b_row = b->row, w.b_vector = b->vector, w.b_pair = b->pair;
    w.lanes = (int)(cols - (vectors - 1) * TC_LANES);
    w.b_lanes = g->b_form == TC_GEMM_B_ROWS && !it->widen ? w.lanes : TC_LANES;
    w.add_c = !first;
    w.bias = w.carried = NULL;
    w.carried_row = 0;
    if (carried)
        w.carried = it->carried + col % (it->group * TC_LANES), w.carried_row = it->carried_row;
    else if (first && it->row_bias)
        w.carried = it->row_bias, w.carried_row = it->bias_row;
    else if (first && it->bias)
        w.bias = it->bias + col;
    w.relu = last && !two_steps && g->activation == TC_ACTIVATION_RELU;
    w.residual_row = g->residual_row;
    const char *next = next_panels(it, b, col, vectors, k0, kc);
    int64_t row_bytes = 0, fetchers = 1;
    w.fetch_panel = w.fetch_lines = 0;
    if (next) {
        row_bytes = PANEL * stored_size(stored_of(b->kind)), fetchers = least_of(it->tiles, (int64_t)FETCH_TILES * panels_of(vectors));
        w.fetch_panel = it->panel_stride * stored_size(stored_of(b->kind));
        w.fetch_lines = (int)((FETCH_ROWS * row_bytes / TC_GEMM_PANEL_BYTES + fetchers - 1) / fetchers);
    }
    const bool finishes = last && two_steps, adds = last && !two_steps && it->residual;
    const real *const carried_sums = w.carried;
    int64_t row = 0;
    for (int64_t tile = 0, count; tile < it->tiles; tile += count) {
        const int height = tile_height(it, tile);
        const sums_place sums = sums_at(it, row, col);
        point_to_a(&w, it, a, row, height, k0, kc);
        w.c = sums.first;
        w.c_row = sums.row;
        w.residual = adds ? (const real *)it->residual + row * g->residual_row + col : NULL;
        if (carried_sums) w.carried = carried_sums + row * w.carried_row;
        w.fetch = next && tile < fetchers ? next + kc * tile / fetchers * row_bytes : NULL;
        count = !finishes && !w.fetch && computes_several(height, vectors, b->kind, w.a_row != 1) ? tiles_as_high(it, tile) : 1;
        w.tiles = count;
        choose_tile(height, vectors, b->kind, w.a_row != 1)(&w);
        if (finishes) finish_tile(it, height, row, col, cols);
        row += count * height;
    }
}

/* The k that copy_a() takes of all tiles before the next k, where a k is a row of memory: rows may lie pages apart, and two tiles share the
 * lines at their border. */
#define COPIED_ROWS 32

/* All rows of the item for k0 .. k0 + kc, into scratch, unless the item before left them there. */
static void copy_a(const gemm_item *it, int64_t k0, int64_t kc)
{
    const tc_gemm_args *g = it->args;
    if (it->has_a) return;
    const void *from = stored_at(it->a, g->a_stored, k0 * g->a_col);
    if (g->a_form == TC_GEMM_A_ROWS) copy_rows(it->a_scratch, it->a_scratch_row, it->rows, kc, from, g->a_stored, g->a_row, g->a_col);
    if (g->a_form != TC_GEMM_A_BLOCKS) return;
    const int64_t step = g->a_row == 1 && g->a_col >= COLUMNS_APART ? COPIED_ROWS : kc;
    for (int64_t k = 0; k < kc; k += step) {
        int64_t row = 0;
        for (int64_t tile = 0; tile < it->tiles; tile++) {
            const int height = tile_height(it, tile);
            pack_tile_rows(it->a_scratch + row * kc + k * height, height, (int)least_of(it->rows - row, TC_TILE_ROWS + TC_LANES),
                           least_of(kc - k, step), stored_at(from, g->a_stored, row * g->a_row + k * g->a_col), g->a_stored, g->a_row,
                           g->a_col);
            row += height;
        }
    }
}

/* The group from column `col` on, for a block of k: in place, or packed into scratch. */
static group_of_b choose_group(const gemm_item *it, int64_t col, int64_t k0, int64_t kc)
{
    const tc_gemm_args *g = it->args;
    const bool panels = g->b_form == TC_GEMM_B_PANELS, pairs = panels && g->b_stored == TC_STORED_BFLOAT16;
    int64_t stride = it->panel_stride;
    const void *b = stored_at(it->b, g->b_stored, panels ? col / PANEL * stride + k0 * PANEL : k0 * g->b_row + col * g->b_col);
    if (g->b_form == TC_GEMM_B_ROWS && !it->widen) return (group_of_b){b, (b_kind)g->b_stored, g->b_row, TC_LANES, 2 * TC_LANES};
    b_kind kind = pairs ? B_PAIRS : (b_kind)g->b_stored;
    if (it->b_rows) {
        for (int64_t i = 0; i < it->group * TC_LANES && col + i < it->cols; i += PANEL)
            pack_windows(it->b_scratch + i * kc, kc, (int)least_of(it->cols - col - i, PANEL), it->b, it->b_rows + k0,
                         it->b_cols + col + i);
        b = it->b_scratch;
        stride = kc * PANEL;
    } else if (g->b_form == TC_GEMM_B_STRIDED || it->widen) {
        const int64_t b_row = panels ? PANEL : g->b_row, b_col = panels ? 1 : g->b_col, next = panels ? stride : PANEL * b_col;
        const int64_t cols = least_of(it->cols - col, it->group * TC_LANES);
        for (int64_t i = 0; i * PANEL < cols;) {
            const void *from = stored_at(b, g->b_stored, i * next);
            real *to = it->b_scratch + i * PANEL * kc;
#if TC_PRECISION == 32
            if (pairs) {
                widen_pairs(to, kc, from);
                i++;
                continue;
            }
#endif
            i += pack_panels(to, kc * PANEL, TC_STORED_AS_COMPUTED, kc, cols - i * PANEL, from, g->b_stored, b_row, b_col);
        }
        b = it->b_scratch;
        stride = kc * PANEL;
        kind = B_REAL;
    }
    const int64_t vector = kind == B_PAIRS ? 2 * TC_LANES : TC_LANES; /* beside one another in a panel */
    group_of_b group = {b, kind, PANEL, vector, 2 * vector};
    if (PANEL_VECTORS == 1) group.vector = stride;
    if (PANEL_VECTORS <= 2) group.pair = 2 / PANEL_VECTORS * stride;
    return group;
}

/* How many vectors of C a tile contains, of the columns that are left. */
TC_INLINE int tile_vectors(const gemm_item *it, int64_t left)
{
    int vectors = it->widest;
    while (vectors > 1 && left <= (vectors > 2 ? vectors - 1 : 1) * TC_LANES) vectors /= 2;
    return vectors;
}

/* Adds it->strip_rows rows of B, from k on, to the sums in it->carried, from end to end of the rows: of a block of k, before which come
 * `carried` others. The same sums in the same order as straight down. */
static void carry_strip(const gemm_item *it, const group_of_b *b, const real *a, int64_t col, int64_t k, int64_t carried)
{
    const int64_t cols = least_of(it->cols - col, it->group * TC_LANES);
    const char *rows_of_b = stored_at(b->data, stored_of(b->kind), carried * b->row);
    tile_work w = {.K = it->strip_rows, .b_row = b->row, .b_vector = b->vector, .b_pair = b->pair, .c_row = it->carried_row};
    int64_t row = 0;
    for (int64_t tile = 0; tile < it->tiles; tile++) {
        const int height = tile_height(it, tile);
        point_to_a(&w, it, a + carried, row, height, k, w.K);
        real *sums = it->carried + row * it->carried_row;
        int vectors;
        for (int64_t c = 0; c < cols; c += vectors * TC_LANES) {
            vectors = tile_vectors(it, cols - c);
            w.lanes = w.b_lanes = (int)least_of(cols - c - (vectors - 1) * TC_LANES, TC_LANES);
            w.b = stored_at(rows_of_b, stored_of(b->kind), c);
            w.c = sums + c;
            if (carried)
                w.carried = w.c, w.carried_row = it->carried_row;
            else if (k == 0 && it->bias)
                w.bias = it->bias + col + c;
            choose_tile(height, vectors, b->kind, w.a_row != 1)(&w);
        }
        row += height;
    }
}

/* The columns of a group, for a block of k. */
static void column_group(const gemm_item *it, const real *a, int64_t col, int64_t k0, int64_t kc)
{
    const group_of_b b = choose_group(it, col, k0, kc);
    int64_t carried = 0;
    if (it->strip_rows)
        for (; kc - carried > it->strip_rows; carried += it->strip_rows) carry_strip(it, &b, a, col, k0 + carried, carried);
    for (int v = 0, vectors; v < it->group && col + v * TC_LANES < it->cols; v += vectors) {
        vectors = tile_vectors(it, it->cols - col - v * TC_LANES);
        group_of_b part = b;
        part.data = stored_at(b.data, stored_of(b.kind), carried * b.row + v / 2 * b.pair);
        column_of_tiles(it, &part, a + carried, col + v * TC_LANES, vectors, k0 + carried, kc - carried, carried);
    }
}

/* Each block of k for all columns; once where K is 0. */
static void by_blocks(const gemm_item *it)
{
    int64_t k0 = 0;
    do {
        const int64_t kc = least_of(it->K - k0, it->k_block);
        copy_a(it, k0, kc);
        for (int64_t col = 0; col < it->cols; col += it->group * TC_LANES) column_group(it, it->a_scratch, col, k0, kc);
        k0 += kc;
    } while (k0 < it->K);
}

/* Each column group for all blocks of k. */
static void by_columns(const gemm_item *it)
{
    copy_a(it, 0, it->K);
    for (int64_t col = 0; col < it->cols; col += it->group * TC_LANES) {
        int64_t k0 = 0;
        do {
            const int64_t kc = least_of(it->K - k0, it->k_block);
            column_group(it, it->a_scratch + k0, col, k0, kc);
            k0 += kc;
        } while (k0 < it->K);
    }
}

/* Has C a single row, of windows of B that are not transposed, and nothing else than a bias? The last item of many rows may have one, too:
 * it is computed as the others, whose number depends on that of threads. What is not computed by columns is a gradient, without a bias. */
static bool is_row_of_windows(const gemm_item *it)
{
    const tc_gemm_args *g = it->args;
    return it->b_rows && g->M == 1 && g->a_stored == TC_STORED_AS_COMPUTED && g->c_stored == TC_STORED_AS_COMPUTED &&
           g->activation == TC_ACTIVATION_NONE && !it->pre && !it->residual && (!g->bias || g->bias_of_rows) &&
           (g->by_columns ? !are_transposed(it->b_rows, it->K, it->b_cols, it->cols) : are_along(it->b_rows, it->K, g->a_col));
}

/* Three columns that would be summed one after the other, without several sums at a time: a tile has them side by side. */
static bool waits_less_in_tiles(const gemm_item *it)
{
    if (it->cols != 3 || TC_IN_PIECE <= 3) return false;
    return it->args->b_stored != TC_STORED_AS_COMPUTED || it->K <= it->k_block;
}

/* Do the columns of B lie along memory, or apart but near the core? */
static bool are_columns_of_dots(const gemm_item *it)
{
    const tc_gemm_args *g = it->args;
    return g->b_row == 1 || (g->b_col != 1 && it->cols * it->K * stored_size(g->b_stored) <= FAR_BYTES);
}

/* Has C a single row, of such columns of B, and nothing else than a bias? */
static bool is_row_of_dots(const gemm_item *it)
{
    const tc_gemm_args *g = it->args;
    return g->M == 1 && g->by_columns && are_columns_of_dots(it) && g->b_form == TC_GEMM_B_STRIDED && !g->b_rows && it->K > 0 &&
           g->activation == TC_ACTIVATION_NONE && !it->pre && !it->residual && !waits_less_in_tiles(it);
}

/* Rows by so few columns are computed in groups that read the columns again. */
#define FEW_BY_FEW 8

/* One by many, in a cache: lanes without a block of k cost more than is gained, but for vectors that begin pages apart. */
#define FAR_MANY (INT64_C(1) << 24)                /* bytes */
#define LEAST_K_OF_FEW (TC_LANES >= 16 ? 48 : 256) /* of more than two */
static bool gains_by_spread_blocks(const gemm_item *it, int64_t many)
{
    const int64_t blocks = tc_divide_up(it->K, it->k_block), lanes = tc_divide_up(blocks, TC_IN_PIECE) * TC_IN_PIECE;
    const int64_t apart = (it->rows > 1 ? it->args->a_row : it->args->b_col) * (int64_t)sizeof(real);
    return 8 * blocks > 7 * lanes || apart % 1024 == 0 || many * it->K * (int64_t)sizeof(real) > FAR_MANY;
}

/* The same with one block of k, or two. Short sums take longer to begin, and smaller vectors gain nothing where the many begin a power of
 * two apart. */
#define LEAST_K_OF_ONE (TC_LANES >= 16 ? 128 : 192)
static bool gains_by_squares(const gemm_item *it)
{
    return it->K >= LEAST_K_OF_ONE && (TC_LANES >= 16 || !are_in_conflict(it->rows > 1 ? it->args->a_row : it->args->b_col));
}

/* Has C few rows, or few columns, of operands along memory, and nothing else than a bias? */
static bool is_few_by_many(const gemm_item *it)
{
    const tc_gemm_args *g = it->args;
    if (g->a_col != 1 || g->b_row != 1 || g->b_form != TC_GEMM_B_STRIDED || g->b_rows || it->K < TC_IN_PIECE) return false;
    if (g->a_stored != TC_STORED_AS_COMPUTED || g->b_stored != TC_STORED_AS_COMPUTED || g->k_is_rows) return false;
    if (g->activation != TC_ACTIVATION_NONE || it->pre || it->residual || (it->row_bias && g->M > 1)) return false;
    const int64_t few = least_of(it->rows, it->cols), many = it->rows + it->cols - few;
    if (few > MOST_FEW && many > FEW_BY_FEW) return false;
    if (few > 2 && (TC_LANES <= 4 || it->K < LEAST_K_OF_FEW)) return false;
    if (are_blocks_spread(it->K, it->k_block)) return many > 1 && (few > 1 || gains_by_spread_blocks(it, many));
    return (few > 1 || gains_by_squares(it)) && many >= TC_IN_PIECE && 2 * many >= TC_LANES;
}

static void by_squares(const gemm_item *it)
{
    const tc_gemm_args *g = it->args;
    few_by_many w = {.c = it->c, .c_stored = g->c_stored, .K = it->K, .k_block = it->k_block};
    w.bias = it->row_bias ? it->row_bias : it->bias;
    if (it->rows <= it->cols) {
        w.few = it->a, w.few_row = g->a_row, w.few_count = it->rows, w.c_few = g->c_row;
        w.many = it->b, w.many_row = g->b_col, w.many_count = it->cols, w.c_many = 1, w.bias_many = !it->row_bias;
    } else {
        w.few = it->b, w.few_row = g->b_col, w.few_count = it->cols, w.c_few = 1, w.bias_few = 1;
        w.many = it->a, w.many_row = g->a_row, w.many_count = it->rows, w.c_many = g->c_row;
    }
    multiply_few_by_many(&w);
}

static void by_dots(const gemm_item *it)
{
    const tc_gemm_args *g = it->args;
    copy_a(it, 0, it->K);
    const real *const a = g->a_form == TC_GEMM_A_IN_PLACE ? it->a : it->a_scratch;
    const real *const bias = it->row_bias ? it->row_bias : it->bias;
    row_by_columns(
        &(row_of_dots){a, bias, !it->row_bias, it->b, g->b_stored, g->c_stored, g->b_row, g->b_col, it->cols, it->K, it->k_block, it->c});
}

/* Many rows of several k take less time in tiles, which read B once for all of them, but for halves, which tiles copy. */
#define FEW_SHORT_ROWS 16
static bool pays_by_rows(const gemm_item *it)
{
    const tc_gemm_args *g = it->args;
    return (it->K == 1 && it->cols >= 256) || g->M <= FEW_SHORT_ROWS || g->b_stored != TC_STORED_AS_COMPUTED ||
           g->c_stored != TC_STORED_AS_COMPUTED;
}

/* Are the sums of few k, and is B not in panels that are kept? */
static bool is_short(const gemm_item *it)
{
    const tc_gemm_args *g = it->args;
    return it->K > 0 && it->K <= MOST_SHORT_K && it->cols >= SHORT_VECTORS * TC_LANES && pays_by_rows(it) &&
           g->b_form != TC_GEMM_B_PANELS && !g->b_rows && !it->row_bias && g->activation == TC_ACTIVATION_NONE && !it->pre &&
           (!it->residual || g->residual_stored == TC_STORED_AS_COMPUTED);
}

static void by_short_sums(const gemm_item *it)
{
    const tc_gemm_args *g = it->args;
    add_short_sums(&(short_sums){it->a, it->b, it->bias, it->residual, it->c, g->a_stored, g->b_stored, g->c_stored, it->rows, it->cols,
                                 it->K, g->a_row, g->a_col, g->b_row, g->b_col, g->c_row, g->residual_row});
}

/* out (rows, bias_row) <- bias (rows), for the first vectors of a tile. */
static const real *repeat_bias(real *out, int64_t rows, int64_t bias_row, const real *bias)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < bias_row; j += TC_LANES) v_store(out + i * bias_row + j, v_set1(bias[i]));
    return out;
}

/* How an item's tiles read A and B. */
static void choose_tiles(gemm_item *it)
{
    const tc_gemm_args *g = it->args;
    it->tiles = tile_count(it->rows);
    it->height = (int)(it->rows / it->tiles);
    it->higher = (int)(it->rows % it->tiles);
    const bool few = g->by_columns && it->tiles <= MOST_HALF_TILES, panels = g->b_form == TC_GEMM_B_PANELS;
    it->widest = !g->by_columns || it->rows > MOST_WIDE_ROWS ? 2 : panels && is_widest(it->rows, g->b_stored) ? 8 : 4;
    it->group = it->widest > 2 || PANEL_VECTORS <= 2 ? it->widest : 4;
    it->widen = g->b_stored != TC_STORED_AS_COMPUTED && g->b_form != TC_GEMM_B_STRIDED && !few;
    if (!g->by_strips || it->widen) return;
    it->strip_rows = it->widest > 2 ? STRIP_ROWS_WIDE : STRIP_ROWS;
    it->group = (int)(tc_gemm_group(g, sizeof(real)) / TC_LANES);
}

/* Which block of rows and columns, which chunk of k, of which element of the batch; the element's offsets in the operands. */
typedef struct item_place {
    int64_t row, col, chunk, row_blocks, col_blocks, a, b, c;
    int64_t batch[TC_GEMM_BATCH_DIMS];
} item_place;

static item_place place_of(const tc_gemm_args *g, int64_t item)
{
    item_place p = {.row_blocks = tc_gemm_row_blocks(g), .col_blocks = tc_gemm_col_blocks(g)};
    p.row = item % p.row_blocks;
    p.col = item / p.row_blocks % p.col_blocks;
    p.chunk = item / p.row_blocks / p.col_blocks % g->k_chunks;
    int64_t batch = item / p.row_blocks / p.col_blocks / g->k_chunks;
    for (int d = g->batch_dims - 1; d >= 0; batch /= g->batch_shape[d--]) {
        p.batch[d] = batch % g->batch_shape[d];
        p.a += p.batch[d] * g->a_batch[d], p.b += p.batch[d] * g->b_batch[d], p.c += p.batch[d] * g->c_batch[d];
    }
    return p;
}

/* By counting: there may be many items of a small product, and divisions take longer. */
static void next_place(item_place *p, const tc_gemm_args *g)
{
    if (++p->row < p->row_blocks) return;
    p->row = 0;
    if (++p->col < p->col_blocks) return;
    p->col = 0;
    if (++p->chunk < g->k_chunks) return;
    p->chunk = 0;
    for (int d = g->batch_dims - 1; d >= 0; d--) {
        p->a += g->a_batch[d], p->b += g->b_batch[d], p->c += g->c_batch[d];
        if (++p->batch[d] < g->batch_shape[d]) return;
        p->a -= p->batch[d] * g->a_batch[d], p->b -= p->batch[d] * g->b_batch[d], p->c -= p->batch[d] * g->c_batch[d];
        p->batch[d] = 0;
    }
}

/* Is C a row of B by a number, for each element of a batch, or a column of A, as the gradient of a vector is? */
static bool is_row_by_number(const tc_gemm_args *g) { return g->M == 1 && g->b_col == 1 && g->b_stored == TC_STORED_AS_COMPUTED; }
static bool are_scaled_rows(const tc_gemm_args *g)
{
    const bool column = g->N == 1 && g->a_row == 1 && g->c_row == 1 && g->a_stored == TC_STORED_AS_COMPUTED;
    return (is_row_by_number(g) || column) && g->K == 1 && g->batch_dims > 0 && g->M <= g->row_block && g->N <= g->col_block &&
           g->b_form != TC_GEMM_B_PANELS && !g->b_rows && g->c_stored == TC_STORED_AS_COMPUTED && g->activation == TC_ACTIVATION_NONE &&
           !g->bias && !g->residual && !g->pre && !g->a_sum;
}

static void scale_rows(const tc_gemm_args *g, int64_t begin, int64_t end)
{
    const bool row = is_row_by_number(g);
    const int64_t count = row ? g->N : g->M;
    item_place at = place_of(g, begin);
    for (int64_t item = begin; item < end; item++, next_place(&at, g)) {
        const void *const a = stored_at(g->a, g->a_stored, at.a), *const b = stored_at(g->b, g->b_stored, at.b);
        const vreal number = v_set1(row ? load_stored(a, g->a_stored) : load_stored(b, g->b_stored));
        const real *from = row ? b : a;
        real *c = (real *)g->c + at.c;
        for (int64_t n = 0; n < count; n += TC_LANES) {
            const int lanes = v_left(count, n);
            v_store_some(c + n, v_fma(number, v_load_some(from + n, lanes), v_zero()), lanes);
        }
    }
}

TC_DEFINE_KERNEL(gemm)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_gemm_args *g = args;
    const tc_gemm_scratch places = tc_gemm_scratch_of(g, sizeof(real));
    if (is_dots(g)) {
        batch_of_dots(g, begin, end);
        return;
    }
    if (are_scaled_rows(g)) {
        scale_rows(g, begin, end);
        return;
    }
    if (is_split_dot(g)) {
        chunks_of_dot(g, begin, end);
        return;
    }
    known_runs runs;
    runs.of = NULL;
    gemm_item it = {.args = g};
    it.k_block = tc_gemm_item_k_block(g);
    it.panel_stride = (g->b_form == TC_GEMM_B_PANELS ? tc_gemm_panel_rows(g->K, g->b_stored) : g->K) * PANEL;
    it.a_scratch = scratch;
    it.b_scratch = (real *)(void *)((char *)scratch + places.b);
    it.sums = (real *)(void *)((char *)scratch + places.sums);
    it.a_scratch_row = places.a_row;
    it.sums_row = places.sums_row;
    it.carried = (real *)(void *)((char *)scratch + places.carried);
    it.carried_row = places.carried_row;
    item_place at = place_of(g, begin);
    for (int64_t item = begin; item < end; item++, next_place(&at, g)) {
        const int64_t row = at.row * g->row_block, col = at.col * g->col_block, first_k = at.chunk * g->k_chunk;
        const int64_t rows_before = it.rows, K_before = it.K;
        const void *const a_before = it.a;
        it.rows = g->M - row < g->row_block ? g->M - row : g->row_block;
        it.cols = g->N - col < g->col_block ? g->N - col : g->col_block;
        it.cols_left = g->N - col;
        it.K = g->K - first_k < g->k_chunk ? g->K - first_k : g->k_chunk;
        it.a = stored_at(g->a, g->a_stored, at.a + row * g->a_row + first_k * g->a_col);
        const bool panels = g->b_form == TC_GEMM_B_PANELS;
        it.b = stored_at(g->b, g->b_stored,
                         at.b + (panels ? col / PANEL * it.panel_stride + first_k * PANEL : first_k * g->b_row + col * g->b_col));
        if (g->b_rows) it.b_rows = g->b_rows + first_k, it.b_cols = g->b_cols + col;
        it.c = stored_to(g->c, g->c_stored, at.c + at.chunk * g->c_chunk + row * g->c_row + col);
        if (g->pre) it.pre = (real *)g->pre + row * g->pre_row + col;
        if (g->residual) it.residual = stored_at(g->residual, g->residual_stored, row * g->residual_row + col);
        if (g->bias && g->bias_of_rows) {
            const int64_t last = g->batch_dims ? at.batch[g->batch_dims - 1] : 0;
            it.bias_row = places.bias_row;
            it.row_bias = repeat_bias((real *)(void *)((char *)scratch + places.bias), it.rows, it.bias_row,
                                      (const real *)g->bias + last * g->bias_batch + row);
        } else if (g->bias && g->bias_stored == TC_STORED_AS_COMPUTED) {
            it.bias = (const real *)g->bias + col;
        }
        if (g->bias && g->bias_stored != TC_STORED_AS_COMPUTED) {
            real *bias = (real *)(void *)((char *)scratch + places.bias);
            read_stored(bias, stored_at(g->bias, g->bias_stored, col), g->bias_stored, it.cols);
            it.bias = bias;
        }
        if (g->a_sum && col == 0) sum_rows((real *)g->a_sum + at.chunk * g->M + row, it.rows, it.K, it.a, g->a_stored, g->a_row, g->a_col);
        if (is_row_of_windows(&it)) {
            const row_of_windows w = {it.a, it.b, it.row_bias, g->a_col, it.K, it.k_block, it.b_rows, it.c};
            (g->by_columns ? sum_windows : sum_along_windows)(&w, &runs, it.b_cols, it.cols);
            continue;
        }
        const bool few_k = is_short(&it) && !is_row_of_dots(&it);
        if (few_k || is_few_by_many(&it)) {
            (few_k ? by_short_sums : by_squares)(&it);
            it.a = NULL; /* the next item finds no copy of A */
            continue;
        }
        choose_tiles(&it);
        const bool copies_all = g->by_columns || it.K <= it.k_block;
        it.has_a = item > begin && copies_all && it.a == a_before && it.rows == rows_before && it.K == K_before;
        (is_row_of_dots(&it) ? by_dots : g->by_columns ? by_columns : by_blocks)(&it);
    }
}
