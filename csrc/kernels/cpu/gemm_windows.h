/* gemm_windows.h: one row of C from windows of B, as a channel by itself has, and its gradients. Nothing else reads what would be packed:
 * vectors of windows are loaded from where they are. In the gradient of a weight each lane adds up its own terms of a block, whatever
 * threads there are; everywhere else the order of sums is that of gemm.h. Included by gemm.c. */
#ifndef TC_KERNELS_CPU_GEMM_WINDOWS_H
#define TC_KERNELS_CPU_GEMM_WINDOWS_H

#include "gemm_pack.h"
#include "lane_sums.h"

/* A row: sums of a[k] b[rows[k] + cols[n]]. */
typedef struct row_of_windows {
    const real *a, *b, *bias; /* bias: of the row, or NULL */
    int64_t a_col, K, k_block;
    const int64_t *rows;
    real *c;
} row_of_windows;

/* Offsets of which fewer follow one another are taken one by one. */
#define LEAST_RUN 3
#define WINDOW_VECTORS 4 /* whose sums are computed together, at most */

/* Runs that have been found among offsets: the items of a call read the same ones again and again. */
#define MOST_KNOWN_RUNS 512
typedef struct known_runs {
    const int64_t *of;
    int count;
    struct {
        uint8_t count, step;
    } run[MOST_KNOWN_RUNS];
} known_runs;

static bool are_apart(const int64_t *offsets, int64_t count)
{
    const int most = (int)(count < LEAST_RUN ? count : LEAST_RUN);
    return run_of(offsets, most).count < most;
}

/* Is the next vector of two runs, each of half of it? So it is in rows of so many results. What is between its ends may be read. */
#define TWO_HALVES 3 /* instead of a step */
static bool are_halves(const int64_t *offsets, int64_t left)
{
    enum { HALF = TC_LANES / 2 };
    if (left < TC_LANES || offsets[TC_LANES - 1] - offsets[0] < TC_LANES - 1) return false;
    const offset_run first = run_of(offsets, TC_LANES), second = run_of(offsets + HALF, HALF);
    return first.count == HALF && first.step == 1 && second.count == HALF && second.step == 1;
}

/* Run number `at` of those of known->of, which begins at `offsets`, of which `left` are left: of so many vectors at most, half as many
 * where elements are two apart. With `or_apart` two halves are one run, and too short ones are one with a step of 0. */
TC_INLINE offset_run find_run(known_runs *known, int64_t at, const int64_t *offsets, int64_t left, const int vectors, const bool or_apart)
{
    if (at < known->count) return (offset_run){known->run[at].count, known->run[at].step};
    offset_run run = {v_left(left, 0), 0};
    if (or_apart && are_halves(offsets, left))
        run.step = TWO_HALVES;
    else if (!or_apart || !are_apart(offsets, left))
        run = run_of(offsets, (int)(left < vectors * TC_LANES ? left : vectors * TC_LANES));
    if (vectors > 1 && run.step == 2 && run.count > vectors / 2 * TC_LANES) run.count = vectors / 2 * TC_LANES;
    if (at == known->count && at < MOST_KNOWN_RUNS) {
        known->run[at].count = (uint8_t)run.count, known->run[at].step = (uint8_t)run.step;
        known->count++;
    }
    return run;
}

static void begin_runs(known_runs *known, const int64_t *of)
{
    if (known->of != of) known->of = of, known->count = 0;
}

/* Are columns apart that pack_windows() transposes? It takes fewer instructions than loading elements one by one. */
static bool are_transposed(const int64_t *rows, int64_t K, const int64_t *cols, int64_t N)
{
    return K >= TC_LANES && N >= TC_LANES && run_of(rows, TC_LANES).count == TC_LANES && are_apart(cols, N) && !are_halves(cols, N);
}

/* Columns of a vector: elements of a run or of two halves, or with a step of 0 those at cols[0 .. TC_LANES - 1]. */
TC_INLINE vreal load_columns(const real *from, const int step, const int64_t *cols, int lanes)
{
    if (step == TWO_HALVES)
        return v_select(v_first(TC_LANES / 2), v_load(from + cols[0]), v_load(from + cols[TC_LANES - 1] - (TC_LANES - 1)));
    if (step) return load_run(from + cols[0], step, lanes);
    vreal x = v_zero(); /* not through memory: a vector of elements just stored cannot be loaded before they are in the cache */
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i++) x[i] = from[cols[i]];
    return x;
}

/* Some vectors of c, of which the last has `lanes` columns: sums over blocks of k, which are added in order, as those of tiles. */
TC_INLINE void sum_columns(const row_of_windows *w, const int vectors, const int step, real *c, const int64_t *cols, int lanes)
{
    int64_t apart[TC_LANES]; /* lanes beyond the last repeat it */
    if (!step)
        for (int i = 0; i < TC_LANES; i++) apart[i] = cols[i < lanes ? i : lanes - 1];
    if (!step) cols = apart;
    vreal sum[WINDOW_VECTORS], block[WINDOW_VECTORS];
    int64_t k = 0;
    do {
        const int64_t end = w->K - k < w->k_block ? w->K : k + w->k_block;
        const bool begins = k == 0;
        TC_UNROLL
        for (int v = 0; v < vectors; v++) block[v] = begins && w->bias ? v_set1(*w->bias) : v_zero();
        for (; k < end; k++) {
            const vreal a = v_set1(w->a[k * w->a_col]);
            const real *const from = w->b + w->rows[k];
            TC_UNROLL
            for (int v = 0; v < vectors; v++) {
                const vreal b = load_columns(from + v * TC_LANES * step, step, cols, v < vectors - 1 ? TC_LANES : lanes);
                block[v] = v_fma(a, b, block[v]);
            }
        }
        TC_UNROLL
        for (int v = 0; v < vectors; v++) sum[v] = begins ? block[v] : block[v] + sum[v];
    } while (k < w->K);
    TC_UNROLL
    for (int v = 0; v < vectors; v++) v_store_some(c + v * TC_LANES, sum[v], v < vectors - 1 ? TC_LANES : lanes);
}

/* The columns cols (N) of the row. */
static void sum_windows(const row_of_windows *w, known_runs *known, const int64_t *cols, int64_t N)
{
    offset_run run;
    begin_runs(known, cols);
    for (int64_t n = 0, at = 0; n < N; n += run.count, at++) {
        const int64_t *const from = cols + n;
        real *const c = w->c + n;
        run = find_run(known, at, from, N - n, WINDOW_VECTORS, true);
        const int vectors = (run.count + TC_LANES - 1) / TC_LANES, lanes = run.count - (vectors - 1) * TC_LANES;
        switch (run.step * 8 + vectors) {
        case 8 + 1: sum_columns(w, 1, 1, c, from, lanes); break;
        case 8 + 2: sum_columns(w, 2, 1, c, from, lanes); break;
        case 8 + 3: sum_columns(w, 3, 1, c, from, lanes); break;
        case 8 + 4: sum_columns(w, 4, 1, c, from, lanes); break;
        case 8 * TWO_HALVES + 1: sum_columns(w, 1, TWO_HALVES, c, from, lanes); break;
        case 16 + 1: sum_columns(w, 1, 2, c, from, lanes); break;
        case 16 + 2: sum_columns(w, 2, 2, c, from, lanes); break;
        default: sum_columns(w, 1, 0, c, from, lanes);
        }
    }
}

#define MOST_TERMS 9 /* a window of 3 x 3 */
#define FEW_TERMS 3

/* c[0 .. terms - 1], `most` of them at most: the sums of the lanes of vectors of k. */
TC_INLINE void sum_along(const row_of_windows *w, known_runs *known, const int most, real *c, const int64_t *cols, int terms)
{
    vreal sum[MOST_TERMS + TC_LANES], block[MOST_TERMS];
    int64_t col[MOST_TERMS], k = 0, at = 0;
    for (int i = 0; i < most; i++) col[i] = cols[i < terms ? i : terms - 1], sum[i] = v_zero();
    while (k < w->K) {
        const int64_t end = w->K - k < w->k_block ? w->K : k + w->k_block;
        TC_UNROLL
        for (int i = 0; i < most; i++) block[i] = v_zero();
        for (offset_run run; k < end; k += run.count, at++) {
            const real *const from = w->b + w->rows[k];
            run = find_run(known, at, w->rows + k, end - k, 1, false);
            const vreal a = v_load_some(w->a + k, run.count);
            if (run.step == 1 && run.count == TC_LANES) TC_UNROLL
            for (int i = 0; i < most; i++) block[i] = v_fma(a, v_load(from + col[i]), block[i]);
            else if (run.step == 1) TC_UNROLL
            for (int i = 0; i < most; i++) block[i] = v_fma(a, v_load_n(from + col[i], run.count), block[i]);
            else TC_UNROLL
            for (int i = 0; i < most; i++) block[i] = v_fma(a, load_run(from + col[i], 2, run.count), block[i]);
        }
        TC_UNROLL
        for (int i = 0; i < most; i++) sum[i] = sum[i] + block[i];
    }
    sum_lanes(c, sum, terms);
}

/* Do elements of k lie side by side, as those of a weight's gradient do, so that vectors of them are multiplied? */
static bool are_along(const int64_t *rows, int64_t K, int64_t a_col) { return a_col == 1 && !are_apart(rows, K); }

/* The columns cols (N) of the row, where are_along(). */
static void sum_along_windows(const row_of_windows *w, known_runs *known, const int64_t *cols, int64_t N)
{
    begin_runs(known, w->rows);
    for (int64_t n = 0; n < N;) {
        if (N - n <= FEW_TERMS) {
            sum_along(w, known, FEW_TERMS, w->c + n, cols + n, (int)(N - n));
            n = N;
        } else {
            const int terms = N - n < MOST_TERMS ? (int)(N - n) : MOST_TERMS;
            sum_along(w, known, MOST_TERMS, w->c + n, cols + n, terms);
            n += terms;
        }
    }
}

#endif
