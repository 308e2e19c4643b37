/* gemm_windows.h: one row of C from windows of B, as a channel by itself has. Nothing else reads what would be packed: the columns of a
 * vector are loaded from where they are. Included by gemm.c. */
#ifndef TC_KERNELS_CPU_GEMM_WINDOWS_H
#define TC_KERNELS_CPU_GEMM_WINDOWS_H

#include "gemm_pack.h"

#if TC_LANES == 2
#define EVERY_OTHER_OF_TWO 0, 3
#elif TC_LANES == 4
#define EVERY_OTHER_OF_TWO 0, 2, 5, 7
#elif TC_LANES == 8
#define EVERY_OTHER_OF_TWO 0, 2, 4, 6, 9, 11, 13, 15
#else
#define EVERY_OTHER_OF_TWO 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31
#endif

/* How the columns of a vector, or of WINDOW_VECTORS of them, follow one another. */
typedef enum columns_kind { READ_LONG_RUN, READ_RUN, READ_TWO_RUNS, READ_EVERY_OTHER, READ_ONE, READ_APART } columns_kind;
#define WINDOW_VECTORS 4

/* A row: sums of a[k] b[rows[k] + cols[n]]. */
typedef struct row_of_windows {
    const real *a, *b, *bias; /* bias: of the row, or NULL */
    int64_t a_col, K, k_block;
    const int64_t *rows;
    real *c;
} row_of_windows;

TC_INLINE bool is_every_other(const int64_t *offsets)
{
    int64_t differ = 0;
    TC_UNROLL
    for (int i = 1; i < TC_LANES; i++) differ |= offsets[i] - offsets[0] - 2 * i;
    return differ == 0;
}

/* *first: columns of the first of two runs. What is between the ends of a vector may be read. */
static columns_kind kind_of_columns(const int64_t *cols, int64_t left, int *first)
{
    const int64_t *const last = cols + TC_LANES - 1;
    *first = 0;
    if (left < TC_LANES) return left == 1 ? READ_ONE : READ_APART;
    if (is_whole_run(cols)) {
        for (int v = 1; v < WINDOW_VECTORS; v++)
            if (left < (v + 1) * TC_LANES || cols[v * TC_LANES] != cols[0] + v * TC_LANES || !is_whole_run(cols + v * TC_LANES))
                return READ_RUN;
        return READ_LONG_RUN;
    }
    if (is_every_other(cols)) return READ_EVERY_OTHER;
    *first = run_of(cols, TC_LANES);
    const bool two = *last - cols[0] >= TC_LANES - 1 && *first + run_of(cols + *first, TC_LANES - *first) == TC_LANES;
    return two ? READ_TWO_RUNS : READ_APART;
}

/* Are columns apart that pack_windows() transposes? It takes fewer instructions than loading elements one by one. */
static bool are_transposed(const int64_t *rows, int64_t K, const int64_t *cols, int64_t N)
{
    int first;
    return K >= TC_LANES && is_whole_run(rows) && N >= TC_LANES && kind_of_columns(cols, N, &first) == READ_APART;
}

TC_INLINE vreal load_columns(const columns_kind kind, const real *from, const int64_t *cols, vmask first)
{
    if (kind <= READ_RUN) return v_load(from + cols[0]);
    if (kind == READ_TWO_RUNS) return v_select(first, v_load(from + cols[0]), v_load(from + cols[TC_LANES - 1] - (TC_LANES - 1)));
    if (kind == READ_EVERY_OTHER) return TC_SHUFFLE(v_load(from + cols[0]), v_load(from + cols[0] + (TC_LANES - 1)), EVERY_OTHER_OF_TWO);
    if (kind == READ_ONE) return v_set1(from[cols[0]]);
    vreal x = v_zero(); /* not through memory: a vector of elements just stored cannot be loaded before they are in the cache */
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i++) x[i] = from[cols[i]];
    return x;
}

/* c[0 .. lanes - 1] of some vectors: sums over blocks of k, which are added in order, as those of tiles. */
TC_INLINE void sum_columns(const columns_kind kind, const row_of_windows *w, real *c, const int64_t *cols, int lanes, int first_run)
{
    enum { MOST = WINDOW_VECTORS };
    const int vectors = kind == READ_LONG_RUN ? MOST : 1;
    const vmask first = v_first(first_run);
    vreal sum[MOST], block[MOST];
    int64_t k = 0, apart[TC_LANES];
    if (kind == READ_APART) { /* lanes beyond the last repeat it */
        for (int i = 0; i < TC_LANES; i++) apart[i] = cols[i < lanes ? i : lanes - 1];
        cols = apart;
    }
    do {
        const int64_t end = w->K - k < w->k_block ? w->K : k + w->k_block;
        const bool begins = k == 0;
        TC_UNROLL
        for (int v = 0; v < vectors; v++) block[v] = begins && w->bias ? v_set1(*w->bias) : v_zero();
        for (; k < end; k++) {
            const vreal a = v_set1(w->a[k * w->a_col]);
            const real *const from = w->b + w->rows[k];
            TC_UNROLL
            for (int v = 0; v < vectors; v++) block[v] = v_fma(a, load_columns(kind, from + v * TC_LANES, cols, first), block[v]);
        }
        TC_UNROLL
        for (int v = 0; v < vectors; v++) sum[v] = begins ? block[v] : block[v] + sum[v];
    } while (k < w->K);
    TC_UNROLL
    for (int v = 0; v < vectors; v++) v_store_some(c + v * TC_LANES, sum[v], lanes);
}

/* The columns cols (N) of the row. */
static void sum_windows(const row_of_windows *w, const int64_t *cols, int64_t N)
{
    for (int64_t n = 0; n < N;) {
        const int lanes = v_left(N, n);
        int first;
        const columns_kind kind = kind_of_columns(cols + n, N - n, &first);
        switch (kind) {
        case READ_LONG_RUN: sum_columns(READ_LONG_RUN, w, w->c + n, cols + n, TC_LANES, 0); break;
        case READ_RUN: sum_columns(READ_RUN, w, w->c + n, cols + n, TC_LANES, 0); break;
        case READ_TWO_RUNS: sum_columns(READ_TWO_RUNS, w, w->c + n, cols + n, TC_LANES, first); break;
        case READ_EVERY_OTHER: sum_columns(READ_EVERY_OTHER, w, w->c + n, cols + n, TC_LANES, 0); break;
        case READ_ONE: sum_columns(READ_ONE, w, w->c + n, cols + n, 1, 0); break;
        default: sum_columns(READ_APART, w, w->c + n, cols + n, lanes, 0);
        }
        n += kind == READ_LONG_RUN ? WINDOW_VECTORS * TC_LANES : TC_LANES;
    }
}

#endif
