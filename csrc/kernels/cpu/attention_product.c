/* attention_product.c: the products of attention. Columns are taken in panels of up to four vectors, so that a panel of b stays in L1 for
 * all rows of a. */
#include "attention_product.h"
#include "tile.h"

/* Rows [m, m + rows) of the panel of `vectors` vectors at column n. */
TC_INLINE void product_tile(const product_order order, const int rows, const int vectors, const product *x, int64_t m, int64_t n, int lanes)
{
    real *c = x->c + m * x->c_row + n;
    const real *a = order == ALONG_ROWS ? x->a + m * x->a_stride : x->a + m;
    const int64_t a_row = order == ALONG_ROWS ? x->a_stride : 1, a_col = order == ALONG_ROWS ? 1 : x->a_stride;
    tc_tile t;
    tile_zero(rows, vectors, t);
    tile_multiply_add(rows, vectors, t, x->K, a, a_row, a_col, x->b + n, x->b_row, TC_LANES, lanes);
    if (x->accumulate) tile_add(rows, vectors, t, c, x->c_row, lanes); /* last: sums of sums lose fewer digits than one long sum */
    tile_store(rows, vectors, t, c, x->c_row, lanes);
}

TC_INLINE void product_panel(const product_order order, const int rows, const int vectors, const product *x, int64_t n, int lanes)
{
    int64_t m = 0;
    for (; m + rows <= x->M; m += rows) product_tile(order, rows, vectors, x, m, n, lanes);
    if (rows > 8 && m + 8 <= x->M) product_tile(order, 8, vectors, x, m, n, lanes), m += 8;
    if (rows > 4 && m + 4 <= x->M) product_tile(order, 4, vectors, x, m, n, lanes), m += 4;
    for (; m + 2 <= x->M; m += 2) product_tile(order, 2, vectors, x, m, n, lanes);
    if (m < x->M) product_tile(order, 1, vectors, x, m, n, lanes);
}

/* Rows of a tile by its vectors: enough accumulators to hide the latency of a multiply-add, few enough for the registers. */
#if defined(__AVX512F__)
#define PRODUCT_ROWS_1 8
#define PRODUCT_ROWS_2 12
#define PRODUCT_ROWS_3 8
#define PRODUCT_ROWS_4 6
#elif defined(TC_NEON)
#define PRODUCT_ROWS_1 8
#define PRODUCT_ROWS_2 8
#elif defined(__AVX2__)
#define PRODUCT_ROWS_1 6
#define PRODUCT_ROWS_2 6
#else
#define PRODUCT_ROWS_1 4
#define PRODUCT_ROWS_2 4
#endif

TC_INLINE void product_panels(const product_order order, const product *x)
{
    for (int64_t n = 0; n < x->N;) {
        const int64_t vectors = (x->N - n + TC_LANES - 1) / TC_LANES; /* still to do */
#ifdef PRODUCT_ROWS_3
        const int take = vectors <= 4 ? (int)vectors : 3;
#else
        const int take = vectors == 1 ? 1 : 2;
#endif
        const int lanes = v_left(x->N, n + (take - 1) * TC_LANES);
        if (take == 1) product_panel(order, PRODUCT_ROWS_1, 1, x, n, lanes);
        if (take == 2) product_panel(order, PRODUCT_ROWS_2, 2, x, n, lanes);
#ifdef PRODUCT_ROWS_3
        if (take == 3) product_panel(order, PRODUCT_ROWS_3, 3, x, n, lanes);
        if (take == 4) product_panel(order, PRODUCT_ROWS_4, 4, x, n, lanes);
#endif
        n += take * TC_LANES;
    }
}

void product_along_rows(const product *x) { product_panels(ALONG_ROWS, x); }
void product_along_columns(const product *x) { product_panels(ALONG_COLUMNS, x); }
