/* gemm_tiles.h: the register tiles of the product: what one tile computes, and a function for each shape and form of its operands.
 * Included by gemm.c only. */
#ifndef TC_KERNELS_CPU_GEMM_TILES_H
#define TC_KERNELS_CPU_GEMM_TILES_H

#include "gemm_pack.h"

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* The vectors of a group, in pairs: vector j of b begins (j & 1) * b_vector + (j >> 1) * b_pair elements after b. */
typedef struct tile_work {
    int64_t K;
    const real *a, *bias, *carried, *residual; /* all but a: NULL unless the sums begin with it, or it is added here */
    const void *b;
    real *c;
    int64_t a_row, a_col, b_row, b_vector, b_pair, c_row, carried_row, residual_row;
    int64_t tiles;      /* one below the other, for functions that compute several */
    int lanes, b_lanes; /* of the last vector: columns of C that exist, and that b has */
    bool add_c, relu;
    const char *fetch;   /* what to prefetch meanwhile, or NULL: fetch_lines cache lines of each panel for every FETCH_ROWS rows of b */
    int64_t fetch_panel; /* bytes from one panel to the next */
    int fetch_lines;
} tile_work;

TC_INLINE int panels_of(int vectors) { return (vectors + PANEL_VECTORS - 1) / PANEL_VECTORS; }

/* At most FETCH_TILES tiles a panel share in prefetching the next panels. */
#define FETCH_ROWS 8
#define FETCH_TILES 4
/* The lines of C are prefetched for writing by tiles of at least so many rows of b: shorter ones would lose more than they gain. */
#define FETCH_C_ROWS 128
#define CACHE_LINE_VECTORS (64 / (int)sizeof(vreal))

/* How b is stored: as tc_stored, or in pairs of bfloat16. */
typedef enum b_kind {
    B_REAL = TC_STORED_AS_COMPUTED,
    B_FLOAT16 = TC_STORED_FLOAT16,
    B_BFLOAT16 = TC_STORED_BFLOAT16,
    B_PAIRS,
    B_KINDS
} b_kind;
TC_INLINE tc_stored stored_of(const b_kind kind) { return kind == B_PAIRS ? TC_STORED_BFLOAT16 : (tc_stored)kind; }

typedef void (*tile_function)(tile_work *w);

/* One step of k, b widened in registers. */
TC_INLINE void tile_step_stored(const int rows, const int vectors, const tc_stored stored, tc_tile c, const real *a, int64_t a_row,
                                const char *b, int64_t vector, int64_t pair, const int lanes)
{
    vreal bk[TC_TILE_VECTORS];
    TC_UNROLL
    for (int j = 0; j < vectors; j++)
        bk[j] = v_load_stored(b + (j & 1) * vector + (j >> 1) * pair, stored, j == vectors - 1 ? lanes : TC_LANES);
    TC_UNROLL
    for (int i = 0; i < rows; i++) {
        const vreal x = v_set1(a[i * a_row]);
        TC_UNROLL
        for (int j = 0; j < vectors; j++) c[i][j] = v_fma(x, bk[j], c[i][j]);
    }
}

/* Any b, widened in registers. Steps of one k are unrolled where they are short: not in tall tiles, nor where the baseline widens. */
TC_INLINE void tile_of_stored(const int rows, const int vectors, const tc_stored stored, tc_tile c, int64_t K, const real *a, int64_t a_row,
                              int64_t a_col, const char *b, const tile_work *w, const int lanes)
{
    const bool is_long = rows > TC_TILE_SHORT_ROWS || (TC_TILE_ROWS == 4 && stored == TC_STORED_FLOAT16);
    const int64_t size = stored_size(stored), step = w->b_row * size, vector = w->b_vector * size, pair = w->b_pair * size;
    const int together = is_long ? 1 : tile_steps_together(rows, vectors);
    if (lanes == TC_LANES && together == 4) {
        TC_UNROLL_BY(4)
        for (int64_t k = 0; k < K; k++, b += step, a += a_col)
            tile_step_stored(rows, vectors, stored, c, a, a_row, b, vector, pair, TC_LANES);
    } else if (lanes == TC_LANES && together == 2) {
        TC_UNROLL_BY(2)
        for (int64_t k = 0; k < K; k++, b += step, a += a_col)
            tile_step_stored(rows, vectors, stored, c, a, a_row, b, vector, pair, TC_LANES);
    } else if (lanes == TC_LANES) {
        for (int64_t k = 0; k < K; k++, b += step, a += a_col)
            tile_step_stored(rows, vectors, stored, c, a, a_row, b, vector, pair, TC_LANES);
    } else {
        for (int64_t k = 0; k < K; k++, b += step, a += a_col) tile_step_stored(rows, vectors, stored, c, a, a_row, b, vector, pair, lanes);
    }
}

#if TC_PRECISION == 32
/* Hides from the compiler what it would otherwise hold in more registers than there are: addresses of later rows, the words of b, a mask.
 */
#if TC_TILE_ROWS <= 6
#define FEW_REGISTERS(a, b, mask) __asm__("" : "+r"(a), "+r"(b), "+m"(mask))
#else
#define FEW_REGISTERS(a, b, mask) __asm__("" : "+r"(a), "+r"(b))
#endif
#define PAIRS_TOGETHER (TC_TILE_ROWS > TC_TILE_SHORT_ROWS ? 1 : 2)

/* One step of k with b as words of two bfloat16, their lower halves or those that `upper` masks. */
TC_INLINE void tile_of_halves(const int rows, const int vectors, const vwords *upper, tc_tile c, const real *a, int64_t a_row,
                              const float *b, const tile_work *w)
{
    vreal bk[TC_TILE_VECTORS];
    TC_UNROLL
    for (int j = 0; j < vectors; j++) {
        const vreal words = v_load(b + (j & 1) * (w->b_vector / 2) + (j >> 1) * (w->b_pair / 2));
        bk[j] = upper ? (vreal)((vwords)words & *upper) : v_lower_bfloat16(words);
    }
    TC_UNROLL
    for (int i = 0; i < rows; i++) {
        const vreal x = v_set1(a[i * a_row]);
        TC_UNROLL
        for (int j = 0; j < vectors; j++) c[i][j] = v_fma(x, bk[j], c[i][j]);
    }
}

/* Panels of bfloat16, from the first row of a pair on. */
TC_INLINE void tile_of_pairs(const int rows, const int vectors, tc_tile c, int64_t K, const real *a, int64_t a_row, int64_t a_col,
                             const float *b, const tile_work *w)
{
    vwords upper = {0};
    upper = ~upper << 16;
    TC_UNROLL_BY(PAIRS_TOGETHER)
    for (int64_t k = 0; k + 1 < K; k += 2, b += PANEL) {
        tile_of_halves(rows, vectors, NULL, c, a, a_row, b, w);
        a += a_col;
        FEW_REGISTERS(a, b, upper);
        tile_of_halves(rows, vectors, &upper, c, a, a_row, b, w);
        a += a_col;
        FEW_REGISTERS(a, b, upper);
    }
    if (K % 2) tile_of_halves(rows, vectors, NULL, c, a, a_row, b, w);
}
#endif

/* K rows of b, whose last vector has `lanes`. */
TC_INLINE void tile_of_rows(const int rows, const int vectors, const b_kind kind, tc_tile c, int64_t K, const real *a, int64_t a_row,
                            int64_t a_col, const char *b, const tile_work *w, const int lanes)
{
    const tc_stored stored = stored_of(kind);
#if TC_PRECISION == 32
    if (kind == B_PAIRS) {
        tile_of_pairs(rows, vectors, c, K, a, a_row, a_col, (const float *)(const void *)b, w);
        return;
    }
#endif
    if (stored == TC_STORED_AS_COMPUTED && vectors <= 2)
        tile_multiply_add(rows, vectors, c, K, a, a_row, a_col, (const real *)(const void *)b, w->b_row, w->b_vector, lanes);
    else
        tile_of_stored(rows, vectors, stored, c, K, a, a_row, a_col, b, w, lanes);
}

TC_INLINE void tile_begin(const int rows, const int vectors, tc_tile c, const tile_work *w)
{
    if (w->add_c || w->K >= FETCH_C_ROWS) {
        TC_UNROLL
        for (int i = 0; i < rows; i++) TC_UNROLL
        for (int j = 0; j < vectors; j += CACHE_LINE_VECTORS) __builtin_prefetch(w->c + i * w->c_row + j * TC_LANES, 1);
    }
    if (w->carried)
        tile_load(rows, vectors, c, w->carried, w->carried_row);
    else if (w->bias)
        tile_set_row(rows, vectors, c, w->bias, w->lanes);
    else
        tile_zero(rows, vectors, c);
}

TC_INLINE void tile_end(const int rows, const int vectors, tc_tile c, const tile_work *w)
{
    for (int step = 0; step < (w->residual ? 2 : 1); step++) { /* a loop, for the code of one addition */
        const real *add = step ? w->residual : w->add_c ? w->c : NULL;
        if (add) tile_add(rows, vectors, c, add, step ? w->residual_row : w->c_row, w->lanes);
        if (step || !w->relu) continue;
        TC_UNROLL
        for (int i = 0; i < rows; i++) TC_UNROLL
        for (int j = 0; j < vectors; j++) c[i][j] = v_max(v_zero(), c[i][j]);
    }
    tile_store(rows, vectors, c, w->c, w->c_row, w->lanes);
}

/* Prefetches for FETCH_ROWS rows of b. */
TC_INLINE const char *fetch_panels(const int vectors, const char *fetch, const tile_work *w)
{
    for (int i = 0; i < w->fetch_lines; i++, fetch += TC_GEMM_PANEL_BYTES) {
        TC_UNROLL
        for (int p = 0; p < panels_of(vectors); p++) __builtin_prefetch(fetch + p * w->fetch_panel, 0, 2);
    }
    return fetch;
}

/* Are the steps between prefetches in the loop of the others? It takes half the room, which is much in tall tiles; short ones gain a few
 * percent by a loop of a constant length. */
enum { ONE_LOOP = TC_TILE_ROWS > TC_TILE_SHORT_ROWS };

TC_INLINE void tile_product(const int rows, const int vectors, const b_kind kind, int64_t a_row, int64_t a_col, const tile_work *w)
{
    tc_tile c;
    tile_begin(rows, vectors, c, w);
    const real *a = w->a;
    const char *b = w->b;
    int64_t K = w->K;
    const bool fetches = kind == B_REAL ? vectors <= 2 : kind != B_BFLOAT16; /* of whole panels, in which bfloat16 are pairs */
    const char *fetch = fetches ? w->fetch : NULL;
    for (; !ONE_LOOP && fetch && K >= FETCH_ROWS; K -= FETCH_ROWS) {
        fetch = fetch_panels(vectors, fetch, w);
        tile_of_rows(rows, vectors, kind, c, FETCH_ROWS, a, a_row, a_col, b, w, TC_LANES);
        a += FETCH_ROWS * a_col;
        b += FETCH_ROWS * w->b_row * stored_size(stored_of(kind));
    }
    do {
        const bool whole = ONE_LOOP && fetch && K >= FETCH_ROWS;
        const int64_t steps = whole ? FETCH_ROWS : K;
        if (whole) fetch = fetch_panels(vectors, fetch, w);
        tile_of_rows(rows, vectors, kind, c, steps, a, a_row, a_col, b, w, w->b_lanes);
        a += steps * a_col;
        b += steps * w->b_row * stored_size(stored_of(kind));
        K -= steps;
    } while (K > 0);
    tile_end(rows, vectors, c, w);
}

/* The highest tiles of most products: one call computes w->tiles of them and changes *w. A call for each takes as long as a few rows of
 * b, which matters where K is small. GCC would spill for Arm. */
#if defined(__AVX2__)
enum { ROWS_OF_SEVERAL = TC_TILE_ROWS };
#else
enum { ROWS_OF_SEVERAL = 0 };
#endif
TC_INLINE bool computes_several(int rows, int vectors, b_kind kind, bool plain)
{
    return rows == ROWS_OF_SEVERAL && vectors == 2 && kind == B_REAL && plain;
}
TC_INLINE void plain_tiles(const int rows, tile_work *w)
{
    for (;;) {
        tile_product(rows, 2, B_REAL, w->a_row, 1, w);
        if (!computes_several(rows, 2, B_REAL, true) || --w->tiles <= 0) return;
        w->a += rows * w->a_row;
        w->c += rows * w->c_row;
        if (w->carried) w->carried += rows * w->carried_row;
        if (w->residual) w->residual += rows * w->residual_row;
    }
}

/* A tile function for every number of rows, for one and two vectors, and for A with adjacent rows (packed blocks, a transposed A) or with
 * adjacent elements of a row. */
#define TILE_FUNCTION(name, rows, vectors, kind, a_row, a_col)                                                                             \
    static void tile_##rows##x##vectors##name(tile_work *w) { tile_product(rows, vectors, kind, a_row, a_col, w); }
#define REAL_TILES(rows)                                                                                                                   \
    TILE_FUNCTION(_packed, rows, 1, B_REAL, 1, w->a_col)                                                                                   \
    TILE_FUNCTION(_packed, rows, 2, B_REAL, 1, w->a_col)                                                                                   \
    TILE_FUNCTION(_plain, rows, 1, B_REAL, w->a_row, 1)                                                                                    \
    static void tile_##rows##x2_plain(tile_work *w) { plain_tiles(rows, w); }
#define REAL_ROW(rows) {{tile_##rows##x1_packed, tile_##rows##x2_packed}, {tile_##rows##x1_plain, tile_##rows##x2_plain}},

/* With adjacent elements of a row of A: B of halves, for so few rows that widening it for each tile costs less than storing it widened; and
 * four vectors of B for very few rows, whose sums would otherwise wait for one another. */
#define HALF_TILES_OF(name, rows, kind)                                                                                                    \
    TILE_FUNCTION(name, rows, 1, kind, w->a_row, 1)                                                                                        \
    TILE_FUNCTION(name, rows, 2, kind, w->a_row, 1)
#define HALF_TILES(rows)                                                                                                                   \
    HALF_TILES_OF(_float16, rows, B_FLOAT16)                                                                                               \
    HALF_TILES_OF(_bfloat16, rows, B_BFLOAT16)                                                                                             \
    HALF_TILES_OF(_pairs, rows, B_PAIRS)
#define HALF_ROW(rows)                                                                                                                     \
    {{tile_##rows##x1_float16, tile_##rows##x2_float16},                                                                                   \
     {tile_##rows##x1_bfloat16, tile_##rows##x2_bfloat16},                                                                                 \
     {tile_##rows##x1_pairs, tile_##rows##x2_pairs}},
#define WIDE_TILE(rows) TILE_FUNCTION(_plain, rows, 4, B_REAL, w->a_row, 1)
#define WIDE_HALF_TILES(rows)                                                                                                              \
    TILE_FUNCTION(_float16, rows, 4, B_FLOAT16, w->a_row, 1)                                                                               \
    TILE_FUNCTION(_bfloat16, rows, 4, B_BFLOAT16, w->a_row, 1)                                                                             \
    TILE_FUNCTION(_pairs, rows, 4, B_PAIRS, w->a_row, 1)
#define WIDE_ROW(rows) {tile_##rows##x4_plain, tile_##rows##x4_float16, tile_##rows##x4_bfloat16, tile_##rows##x4_pairs},
#define WIDE_REAL_ROW(rows) {tile_##rows##x4_plain},

#define TWO_ROWS(x) x(1) x(2)
#define FOUR_ROWS(x) TWO_ROWS(x) x(3) x(4)
/* MOST_HALF_TILES: of an item, which widen B themselves. The baseline widens slowly. */
#if TC_TILE_ROWS == 14
#define ALL_ROWS(x) FOUR_ROWS(x) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13) x(14)
#define WIDE_ROWS(x) FOUR_ROWS(x)
enum { MOST_WIDE_ROWS = 4, MOST_HALF_TILES = 8 };
#elif TC_TILE_ROWS == 8
#define ALL_ROWS(x) FOUR_ROWS(x) x(5) x(6) x(7) x(8)
#define WIDE_ROWS(x) FOUR_ROWS(x)
enum { MOST_WIDE_ROWS = 4, MOST_HALF_TILES = 8 };
#elif TC_TILE_ROWS == 6
#define ALL_ROWS(x) FOUR_ROWS(x) x(5) x(6)
#define WIDE_ROWS(x) TWO_ROWS(x)
enum { MOST_WIDE_ROWS = 2, MOST_HALF_TILES = 8 };
#else
#define ALL_ROWS(x) FOUR_ROWS(x)
#define WIDE_ROWS(x) TWO_ROWS(x)
enum { MOST_WIDE_ROWS = 2, MOST_HALF_TILES = 3 };
#endif
ALL_ROWS(REAL_TILES)
WIDE_ROWS(WIDE_TILE)
static const tile_function real_tiles[TC_TILE_ROWS][2][2] = {ALL_ROWS(REAL_ROW)}; /* [rows - 1][plain][vectors - 1] */
#if TC_PRECISION == 32
ALL_ROWS(HALF_TILES)
WIDE_ROWS(WIDE_HALF_TILES)
static const tile_function half_tiles[TC_TILE_ROWS][3][2] = {ALL_ROWS(HALF_ROW)};       /* [rows - 1][kind - 1][vectors - 1] */
static const tile_function wide_tiles[MOST_WIDE_ROWS][B_KINDS] = {WIDE_ROWS(WIDE_ROW)}; /* [rows - 1][kind] */
#else
static const tile_function wide_tiles[MOST_WIDE_ROWS][B_KINDS] = {WIDE_ROWS(WIDE_REAL_ROW)};
#endif

#if TC_PRECISION == 32 && defined(__AVX2__) /* panels of one or two vectors */
/* tile_of_halves for one row and two tiles of four vectors, whose b are `apart` bytes from one another. */
TC_INLINE void two_of_halves(const vwords *upper, tc_tile c, tc_tile d, const real *a, const char *b, int64_t apart, const tile_work *w)
{
    tile_of_halves(1, 4, upper, c, a, 0, (const float *)(const void *)b, w);
    tile_of_halves(1, 4, upper, d, a, 0, (const float *)(const void *)(b + apart), w);
}

/* Eight vectors of b for one row, by panels of halves: two tiles of four beside one another. One alone takes longer for its sums, each of
 * which waits for the one before, than for widening and multiplying. Panels have no strips, so that no sums are carried. */
TC_INLINE void two_tiles(const b_kind kind, const tile_work *w)
{
    const int64_t apart = 2 * w->b_pair * stored_size(stored_of(kind)), row = w->b_row * stored_size(stored_of(kind));
    tile_work first = *w, second = *w;
    first.lanes = TC_LANES;
    second.c += 4 * TC_LANES;
    if (w->bias) second.bias += 4 * TC_LANES;
    if (w->residual) second.residual += 4 * TC_LANES;
    vwords upper = {0};
    upper = ~upper << 16;
    tc_tile c, d;
    tile_begin(1, 4, c, &first);
    tile_begin(1, 4, d, &second);
    const real *a = w->a;
    const char *b = w->b, *fetch = w->fetch;
    for (int64_t K = w->K, rows; K > 0; K -= rows, a += rows, b += rows * row) {
        rows = fetch ? least_of(K, FETCH_ROWS) : K;
        if (fetch) fetch = fetch_panels(8, fetch, w);
        const real *x = a;
        const char *p = b;
        int64_t k = rows;
        TC_UNROLL_BY(2)
        for (; kind == B_PAIRS && k >= 2; k -= 2, x += 2, p += 2 * row) {
            two_of_halves(NULL, c, d, x, p, apart, w);
            FEW_REGISTERS(x, p, upper);
            two_of_halves(&upper, c, d, x + 1, p, apart, w);
            FEW_REGISTERS(x, p, upper);
        }
        if (kind == B_PAIRS && k) two_of_halves(NULL, c, d, x, p, apart, w);
        TC_UNROLL_BY(2)
        for (; kind == B_FLOAT16 && k; k--, x++, p += row) {
            tile_step_stored(1, 4, TC_STORED_FLOAT16, c, x, 0, p, w->b_vector * 2, w->b_pair * 2, TC_LANES);
            FEW_REGISTERS(x, p, upper);
            tile_step_stored(1, 4, TC_STORED_FLOAT16, d, x, 0, p + apart, w->b_vector * 2, w->b_pair * 2, TC_LANES);
            FEW_REGISTERS(x, p, upper);
        }
    }
    tile_end(1, 4, c, &first);
    tile_end(1, 4, d, &second);
}

static void tile_1x8_float16(tile_work *w) { two_tiles(B_FLOAT16, w); }
static void tile_1x8_pairs(tile_work *w) { two_tiles(B_PAIRS, w); }
static const tile_function widest_tiles[B_KINDS] = {[B_FLOAT16] = tile_1x8_float16, [B_PAIRS] = tile_1x8_pairs};
TC_INLINE bool is_widest(int64_t rows, tc_stored stored) { return rows == 1 && stored != TC_STORED_AS_COMPUTED; }
#else
static const tile_function widest_tiles[B_KINDS];
TC_INLINE bool is_widest(int64_t rows, tc_stored stored) { return (void)rows, (void)stored, false; }
#endif

static tile_function choose_tile(int rows, int vectors, b_kind kind, bool plain)
{
    if (vectors > 4) return widest_tiles[kind];
    if (vectors > 2) return wide_tiles[rows - 1][kind];
#if TC_PRECISION == 32
    if (kind != B_REAL) return half_tiles[rows - 1][kind - 1][vectors - 1];
#endif
    return real_tiles[rows - 1][plain][vectors - 1];
}

#endif
