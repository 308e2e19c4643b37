/* gemm_short.h: sums of few k, row by row of C from end to end. Such a product is bound by writing C: tiles, which go down its rows, would
 * write a few lines of each, and rows may lie pages apart. Each sum is over k in order, as tiles add it up. Included by gemm.c only. */
#ifndef TC_KERNELS_CPU_GEMM_SHORT_H
#define TC_KERNELS_CPU_GEMM_SHORT_H

#include "gemm_pack.h"

#define MOST_SHORT_K 8
/* B of the columns that are computed for all rows before the next ones: it stays in the first cache. */
#define SHORT_B (16384 / (int)sizeof(real))
#define SHORT_ROWS 2
#define SHORT_VECTORS 4 /* of whole panels in every instruction set */

/* C (rows, cols) = A (rows, K) B (K, cols) + bias (cols) + residual (rows, cols); the last two or NULL. */
typedef struct short_sums {
    const void *a, *b;
    const real *bias, *residual;
    void *c;
    tc_stored a_stored, b_stored, c_stored;
    int64_t rows, cols, K, a_row, a_col, b_row, b_col, c_row, residual_row;
} short_sums;

/* B of some columns: element (k,n) at rows[n / PANEL * panel + k * row + n % PANEL]. */
typedef struct short_b {
    const real *rows;
    int64_t row, panel;
} short_b;

/* Some vectors of `rows` rows of C from row m and column n on, the last one of `lanes`. x (rows, MOST_SHORT_K): the rows of A. */
TC_INLINE void short_vectors(const int rows, const int vectors, const tc_stored stored, const short_sums *w, const short_b *b,
                             const real (*x)[MOST_SHORT_K], int64_t m, int64_t col, int64_t n, const int lanes)
{
    vreal sum[SHORT_ROWS][SHORT_VECTORS];
    const int64_t at = col + n;
    TC_UNROLL
    for (int v = 0; v < vectors; v++) {
        const vreal first = w->bias ? v_load_some(w->bias + at + v * TC_LANES, lanes) : v_zero();
        TC_UNROLL
        for (int i = 0; i < rows; i++) sum[i][v] = first;
    }
    const real *row = b->rows + n / PANEL * b->panel + n % PANEL;
    for (int64_t k = 0; k < w->K; k++, row += b->row) {
        TC_UNROLL
        for (int v = 0; v < vectors; v++) {
            const vreal y = v_load_some(row + v * TC_LANES / PANEL * b->panel + v * TC_LANES % PANEL, lanes);
            TC_UNROLL
            for (int i = 0; i < rows; i++) sum[i][v] = v_fma(v_set1(x[i][k]), y, sum[i][v]);
        }
    }
    TC_UNROLL
    for (int i = 0; i < rows; i++) TC_UNROLL
    for (int v = 0; v < vectors; v++) {
        if (w->residual) sum[i][v] = sum[i][v] + v_load_some(w->residual + (m + i) * w->residual_row + at + v * TC_LANES, lanes);
        v_store_stored(stored_to(w->c, stored, (m + i) * w->c_row + at + v * TC_LANES), stored, sum[i][v], lanes);
    }
}

/* The rows of A from m on. */
static __attribute__((noinline)) void read_short_rows(int rows, real x[SHORT_ROWS][MOST_SHORT_K], const short_sums *w, int64_t m)
{
    for (int i = 0; i < rows; i++)
        for (int64_t k = 0; k < w->K; k++)
            x[i][k] = load_stored(stored_at(w->a, w->a_stored, (m + i) * w->a_row + k * w->a_col), w->a_stored);
}

TC_INLINE void short_rows(const int rows, const tc_stored stored, const short_sums *w, const short_b *b, int64_t m, int64_t col,
                          int64_t cols)
{
    real x[SHORT_ROWS][MOST_SHORT_K];
    read_short_rows(rows, x, w, m);
    int64_t n = 0;
    for (; n + SHORT_VECTORS * TC_LANES <= cols; n += SHORT_VECTORS * TC_LANES) {
        if (w->K == 1) write_ahead(stored_to(w->c, stored, m * w->c_row + col + n + array_ahead()));
        short_vectors(rows, SHORT_VECTORS, stored, w, b, (const real(*)[MOST_SHORT_K])x, m, col, n, TC_LANES);
    }
    for (; n < cols; n += TC_LANES) short_vectors(rows, 1, stored, w, b, (const real(*)[MOST_SHORT_K])x, m, col, n, v_left(cols, n));
}

/* The columns [col, col + cols) of all rows: pairs of rows, but for one k, where nothing is read twice. */
TC_INLINE void short_columns(const tc_stored stored, const short_sums *w, const short_b *b, int64_t col, int64_t cols)
{
    int64_t m = 0;
    for (; w->K > 1 && m + SHORT_ROWS <= w->rows; m += SHORT_ROWS) short_rows(SHORT_ROWS, stored, w, b, m, col, cols);
    for (; m < w->rows; m++) short_rows(1, stored, w, b, m, col, cols);
}

/* K is at least 1 and at most MOST_SHORT_K. */
static __attribute__((noinline)) void add_short_sums(const short_sums *w)
{
    real copy[SHORT_B];
    const int64_t most = SHORT_B / w->K / (SHORT_VECTORS * TC_LANES) * (SHORT_VECTORS * TC_LANES);
    for (int64_t col = 0, cols; col < w->cols; col += cols) {
        cols = w->cols - col < most ? w->cols - col : most;
        const void *from = stored_at(w->b, w->b_stored, col * w->b_col);
        short_b b = {from, w->b_row, PANEL};
        if (w->b_col != 1 || w->b_stored != TC_STORED_AS_COMPUTED) {
            b = (short_b){copy, PANEL, w->K * PANEL};
            for (int64_t n = 0; n < cols;)
                n += PANEL * pack_panels(copy + n * w->K, b.panel, TC_STORED_AS_COMPUTED, w->K, cols - n,
                                         stored_at(from, w->b_stored, n * w->b_col), w->b_stored, w->b_row, w->b_col);
        }
        WITH_STORED(w->c_stored, short_columns, w, &b, col, cols);
    }
}

#endif
