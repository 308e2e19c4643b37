/* attention_backward.c: gradients of attention, the weights recomputed from the saved shift and sum (Dao et al. 2022, section B.2).
 *
 * With P the attention, dP = dvalues v^T + dmap and delta[i] = sum_j P[i][j] dP[i][j] - dlse[i]:
 *     dS = P (dP - delta),  dbias = dS,  dq = scale dS k,  dk = scale dS^T q,  dv = P^T dvalues.
 * Dropout multiplies P in dv and dvalues v^T in dP by the same numbers.
 */
#include "attention_block.h"

/* Values per query of a block, one lane per query. */
typedef struct query_gradients {
    real base[QUERIES];    /* subtracted from the scores */
    real inverse[QUERIES]; /* 1 / sum; 0 in empty rows and beyond the queries */
    real delta[QUERIES];
    bool whole; /* all keys within reach are in one block: delta is computed from the tile itself */
} query_gradients;

TC_INLINE real dot(const real *a, const real *b, int64_t n)
{
    vreal sum = v_zero();
    for (int64_t i = 0; i < n; i += TC_LANES) sum = v_fma(v_load_some(a + i, v_left(n, i)), v_load_some(b + i, v_left(n, i)), sum);
    return v_sum(sum);
}

/* The same for weights and their gradients, which are ignored where a weight is 0. */
TC_INLINE real weighted_sum(const real *weights, const real *gradients, int64_t n)
{
    vreal sum = v_zero();
    for (int64_t i = 0; i < n; i += TC_LANES) {
        const vreal w = v_load_some(weights + i, v_left(n, i)), g = v_load_some(gradients + i, v_left(n, i));
        sum = v_fma(w, v_select(v_eq(w, v_zero()), v_zero(), g), sum);
    }
    return v_sum(sum);
}

static void load_gradients(const tc_attention_backward_args *a, const query_block *x, query_gradients *g)
{
    const tc_attention_problem *p = x->problem;
    const int64_t row = statistic_at(x), at = a->dmap ? map_at(x) : 0;
    const real *shift = (const real *)a->shift + row, *sum = (const real *)a->sum + row;
    const real *dlse = a->dlse ? (const real *)a->dlse + row : NULL;
    const real *map = (const real *)a->map + at, *dmap = (const real *)a->dmap + at;
    transpose(x->dvalues_t, QUERIES, query_at(x, &a->dvalues, 0), a->dvalues.row, x->nq, p->Dv, R(1.0), true);
    g->whole = x->last_key - x->first_key <= KEYS;
    for (int i = 0; i < QUERIES; i++) {
        const bool empty = i >= x->nq || sum[i] == R(0.0);
        g->base[i] = empty ? R(0.0) : shift[i];
        g->inverse[i] = empty ? R(0.0) : R(1.0) / sum[i];
        g->delta[i] = empty || !dlse ? R(0.0) : -dlse[i];
        if (g->whole || empty) continue;
        g->delta[i] += dot(query_at(x, &a->dvalues, i), query_at(x, &a->values, i), p->Dv);
        if (a->dmap) g->delta[i] += weighted_sum(map + i * p->Tk, dmap + i * p->Tk, x->Tk);
    }
}

/* x->scores = P and x->gradient = dP (of the weights before dropout) for the keys of y; where P is 0, dP is 0. */
static void weights_and_gradients(const tc_attention_backward_args *a, const query_block *x, const key_block *y, const query_gradients *g)
{
    const tc_attention_problem *p = x->problem;
    const vreal none = v_set1(-INFINITE);
    make_scores(x, y);
    if (p->dropout > 0) choose_kept(x, y);
    product_along_rows(&(product){.c = x->gradient,
                                  .c_row = QUERIES,
                                  .a = y->v,
                                  .a_stride = y->v_row,
                                  .b = x->dvalues_t,
                                  .b_row = QUERIES,
                                  .M = y->nk,
                                  .N = x->groups * TC_LANES,
                                  .K = p->Dv,
                                  .accumulate = false});
    if (p->dropout > 0) drop(x, y, x->gradient);
    if (a->dmap) {
        const real *dmap = (const real *)a->dmap + map_at(x) + y->k0;
        transpose(x->added, QUERIES, dmap, p->Tk, x->nq, y->nk, R(1.0), true);
    }
    for (int i = 0; i < x->groups * TC_LANES; i += TC_LANES) {
        const vreal base = v_load(g->base + i), inverse = v_load(g->inverse + i);
        const vmask live = v_lt(v_zero(), inverse);
        for (int j = 0; j < y->nk; j++) {
            const int64_t at = j * QUERIES + i;
            const vreal score = v_load(x->scores + at);
            vreal w = v_exp_weight(score - base) * inverse, dp = v_load(x->gradient + at);
            if (a->dmap) dp = dp + v_load(x->added + at);
            /* scores of empty rows may be NaN, and so may base and sum of a row that also has hidden keys */
            w = v_select(v_and(v_or(live, v_isnan(inverse)), v_not(v_eq(score, none))), w, v_zero());
            v_store(x->scores + at, w);
            v_store(x->gradient + at, v_select(v_eq(w, v_zero()), v_zero(), dp));
        }
    }
}

/* x->gradient: dP becomes dS, the gradient of the softmax's input; with `through`, that of q k^T: times scale and the slope of the soft
 * cap. */
TC_INLINE void gradients_of_scores(const query_block *x, const key_block *y, const query_gradients *g, const bool through)
{
    const bool filled = y->masked && x->problem->mask_kind == TC_ATTENTION_MASK_FILL; /* a constant: no gradient */
    const vreal factor = v_set1(through ? (real)x->problem->scale : R(1.0));
    for (int i = 0; i < x->groups * TC_LANES; i += TC_LANES) {
        const real *w = x->scores + i;
        real *d = x->gradient + i;
        vreal delta = v_load(g->delta + i);
        if (g->whole)
            for (int j = 0; j < y->nk; j++) delta = v_fma(v_load(w + j * QUERIES), v_load(d + j * QUERIES), delta);
        for (int j = 0; j < y->nk; j++) {
            const vreal p = v_load(w + j * QUERIES);
            vreal ds = p * (v_load(d + j * QUERIES) - delta) * factor;
            if (through && x->slope) ds = ds * v_load(x->slope + j * QUERIES + i);
            ds = v_select(v_eq(p, v_zero()), v_zero(), ds);
            if (filled) ds = v_select(v_mask_bytes(x->mask + j * QUERIES + i, TC_LANES), ds, v_zero());
            v_store(d + j * QUERIES, ds);
        }
    }
}

/* Where the gradients of keys and values of the item are added up: rows of [Tk][D] and [Tk][Dv]. */
typedef struct key_gradients {
    real *dk, *dv;
    int64_t dk_row, dv_row;
    bool written; /* else the next block of queries writes all of them */
} key_gradients;

static void zero_rows(real *p, int64_t row, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++) memset(p + i * row, 0, (size_t)columns * sizeof(real));
}

/* Keys [first, last), to which no query of the block may attend. */
static __attribute__((noinline)) void skip_keys(const tc_attention_problem *p, const key_gradients *to, int64_t first, int64_t last)
{
    if (to->written) return;
    zero_rows(to->dk + first * to->dk_row, to->dk_row, last - first, p->D);
    zero_rows(to->dv + first * to->dv_row, to->dv_row, last - first, p->Dv);
}

/* One tile's part of dq (its rows at `dq`), dk and dv. */
static void add_products(const tc_attention_backward_args *a, const query_block *x, const key_block *y, real *dq, bool first,
                         const key_gradients *to)
{
    const tc_attention_problem *p = x->problem;
    const real *q = query_at(x, &p->q, 0);
    const product for_v = {.c = to->dv + y->k0 * to->dv_row,
                           .c_row = to->dv_row,
                           .a = x->scores,
                           .a_stride = QUERIES,
                           .b = query_at(x, &a->dvalues, 0),
                           .b_row = a->dvalues.row,
                           .M = y->nk,
                           .N = p->Dv,
                           .K = x->nq,
                           .accumulate = to->written};
    const product for_k = {.c = to->dk + y->k0 * to->dk_row,
                           .c_row = to->dk_row,
                           .a = x->gradient,
                           .a_stride = QUERIES,
                           .b = q,
                           .b_row = p->q.row,
                           .M = y->nk,
                           .N = p->D,
                           .K = x->nq,
                           .accumulate = to->written};
    const product for_q = {.c = dq,
                           .c_row = a->dq.row,
                           .a = x->gradient,
                           .a_stride = QUERIES,
                           .b = y->k,
                           .b_row = y->k_row,
                           .M = x->nq,
                           .N = p->D,
                           .K = y->nk,
                           .accumulate = !first};
    if (y->guarded && !all_finite(for_v.b, for_v.b_row, x->nq, p->Dv))
        sum_guarded(ALONG_ROWS, &for_v);
    else
        product_along_rows(&for_v);
    if (y->guarded && !all_finite(q, p->q.row, x->nq, p->D))
        sum_guarded(ALONG_ROWS, &for_k);
    else
        product_along_rows(&for_k);
    if (y->guarded && !all_finite(y->k, y->k_row, y->nk, p->D))
        sum_guarded(ALONG_COLUMNS, &for_q);
    else
        product_along_columns(&for_q);
}

/* add_uniform_rows() with dropout: each row uses the keys that it keeps. */
static void add_uniform_rows_dropped(const tc_attention_backward_args *a, const query_block *x, const real *sum, const key_gradients *to)
{
    const tc_attention_problem *p = x->problem;
    const vreal share = v_set1(uniform_weight(x));
    for (int64_t k0 = 0; k0 < x->Tk; k0 += KEYS) {
        const key_block y = {.k0 = k0, .nk = (int)(x->Tk - k0 < KEYS ? x->Tk - k0 : KEYS)};
        choose_kept(x, &y);
        for (int j = 0; j < y.nk; j++)
            for (int64_t n = 0; n < p->Dv; n += TC_LANES) {
                const int lanes = v_left(p->Dv, n);
                real *at = to->dv + (k0 + j) * to->dv_row + n;
                vreal total = v_load_some(at, lanes);
                for (int i = 0; i < x->nq; i++)
                    if (sum[i] == R(0.0) && x->kept[j * QUERIES + i])
                        total = v_fma(share, v_load_some(query_at(x, &a->dvalues, i) + n, lanes), total);
                v_store_some(at, total, lanes);
            }
    }
}

/* Empty rows that attend uniformly: adds their dvalues / Tk to every row of dv. */
static void add_uniform_rows(const tc_attention_backward_args *a, const query_block *x, const key_gradients *to)
{
    const tc_attention_problem *p = x->problem;
    const real *sum = (const real *)a->sum + statistic_at(x);
    bool any = false;
    for (int i = 0; i < x->nq; i++) any = any || sum[i] == R(0.0);
    if (any && p->dropout > 0) {
        add_uniform_rows_dropped(a, x, sum, to);
        return;
    }
    for (int64_t n = 0; any && n < p->Dv; n += TC_LANES) {
        const int lanes = v_left(p->Dv, n);
        vreal total = v_zero();
        for (int i = 0; i < x->nq; i++)
            if (sum[i] == R(0.0)) total = total + v_load_some(query_at(x, &a->dvalues, i) + n, lanes);
        total = total * v_set1(uniform_weight(x));
        for (int64_t j = 0; j < x->Tk; j++) {
            real *at = to->dv + j * to->dv_row + n;
            v_store_some(at, v_load_some(at, lanes) + total, lanes);
        }
    }
}

static void backward_block(const tc_attention_backward_args *a, const query_block *x, key_gradients *to)
{
    const tc_attention_problem *p = x->problem;
    const int64_t first_key = x->first_key < x->last_key ? x->first_key : x->Tk;
    real *dq = query_at(x, &a->dq, 0);
    query_gradients g;
    bool first = true;
    load_queries(x);
    load_gradients(a, x, &g);
    skip_keys(p, to, 0, first_key);
    for (int64_t k0 = x->first_key; k0 < x->last_key; k0 += KEYS) {
        key_block y;
        if (!look_at_keys(x, k0, &y)) {
            skip_keys(p, to, k0, k0 + y.nk);
            continue;
        }
        weights_and_gradients(a, x, &y, &g);
        gradients_of_scores(x, &y, &g, true);
        if (p->dropout > 0) drop(x, &y, x->scores);
        add_products(a, x, &y, dq, first, to);
        first = false;
    }
    if (first_key < x->Tk) skip_keys(p, to, x->last_key, x->Tk);
    to->written = true;
    if (first) zero_rows(dq, a->dq.row, x->nq, p->D);
    if (p->empty_rows == TC_ATTENTION_EMPTY_UNIFORM) add_uniform_rows(a, x, to);
}

TC_DEFINE_KERNEL(attention_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_attention_backward_args *a = args;
    const tc_attention_problem *p = &a->problem;
    const int64_t blocks = (p->Tq + QUERIES - 1) / QUERIES, group = p->H / p->Hk;
    query_block x;
    lay_out_scratch(&x, p, scratch, true);
    for (int64_t item = begin; item < end; item++) {
        const int64_t split = item % a->splits, head = item / a->splits;
        int64_t b, hk;
        tc_attention_pair(&b, &hk, p, p->Hk, head);
        choose_batch(&x, b);
        key_gradients to = {operand_at(&a->dk, b, hk, x.first), operand_at(&a->dv, b, hk, x.first), a->dk.row, a->dv.row, false};
        if (split > 0) {
            const int64_t part = (split - 1) * p->B * p->Hk + head;
            to = (key_gradients){(real *)a->dk_partial + part * p->Tk * p->D, (real *)a->dv_partial + part * p->Tk * p->Dv, p->D, p->Dv,
                                 false};
        }
        const int64_t total = group * blocks, last = total * (split + 1) / a->splits;
        for (int64_t n = total * split / a->splits; n < last; n++) {
            if (choose_queries(&x, hk * group + n / blocks, n % blocks)) backward_block(a, &x, &to);
        }
        skip_keys(p, &to, 0, x.Tk); /* where there are no queries */
    }
}

static void add_parts(real *to, int64_t to_row, const real *parts, int64_t count, int64_t step, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += TC_LANES) {
            const int lanes = v_left(columns, j);
            vreal sum = v_load_some(to + i * to_row + j, lanes);
            for (int64_t s = 0; s < count; s++) sum = sum + v_load_some(parts + s * step + i * columns + j, lanes);
            v_store_some(to + i * to_row + j, sum, lanes);
        }
}

TC_DEFINE_KERNEL(attention_sum_splits)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_attention_backward_args *a = args;
    const tc_attention_problem *p = &a->problem;
    const int64_t blocks = (p->Tk + KEYS - 1) / KEYS, heads = p->B * p->Hk;
    (void)scratch;
    for (int64_t item = begin; item < end; item++) {
        const int64_t head = item / blocks, k0 = item % blocks * KEYS, rows = p->Tk - k0 < KEYS ? p->Tk - k0 : KEYS;
        const int64_t b = head / p->Hk, hk = head % p->Hk, at = head * p->Tk + k0;
        add_parts(operand_at(&a->dk, b, hk, k0), a->dk.row, (const real *)a->dk_partial + at * p->D, a->splits - 1, heads * p->Tk * p->D,
                  rows, p->D);
        add_parts(operand_at(&a->dv, b, hk, k0), a->dv.row, (const real *)a->dv_partial + at * p->Dv, a->splits - 1, heads * p->Tk * p->Dv,
                  rows, p->Dv);
    }
}

/* ---- bias -------------------------------------------------------------------------------------------------------------------- */

/* Adds dS of a tile to the part of dbias at `to`, the element of the block's first query and key. */
static void add_tile(const query_block *x, const key_block *y, real *to, int64_t row, int64_t column)
{
    if (row == 0) { /* one row for all queries; lanes beyond them are 0 */
        for (int j = 0; j < y->nk; j++) {
            vreal sum = v_zero();
            for (int i = 0; i < x->groups * TC_LANES; i += TC_LANES) sum = sum + v_load(x->gradient + j * QUERIES + i);
            to[j * column] += v_sum(sum);
        }
        return;
    }
    if (column == 0) { /* one column for all keys */
        for (int i = 0; i < x->nq; i++)
            for (int j = 0; j < y->nk; j++) to[i * row] += x->gradient[j * QUERIES + i];
        return;
    }
    transpose(x->scores, KEYS, x->gradient, QUERIES, y->nk, x->nq, R(1.0), true);
    for (int i = 0; i < x->nq; i++)
        for (int j = 0; j < y->nk; j++) to[i * row + j * column] += x->scores[i * KEYS + j];
}

static void dbias_block(const tc_attention_dbias_args *a, const query_block *x)
{
    const tc_attention_plane *plane = &a->dbias;
    real *to = (real *)plane->data + x->b * plane->batch + x->h * plane->head + x->q0 * plane->row;
    query_gradients g;
    load_queries(x);
    load_gradients(&a->backward, x, &g);
    for (int64_t k0 = x->first_key; k0 < x->last_key; k0 += KEYS) {
        key_block y;
        if (!look_at_keys(x, k0, &y)) continue;
        weights_and_gradients(&a->backward, x, &y, &g);
        gradients_of_scores(x, &y, &g, false);
        add_tile(x, &y, to + k0 * plane->column, plane->row, plane->column);
    }
}

TC_DEFINE_KERNEL(attention_dbias)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_attention_dbias_args *a = args;
    const tc_attention_problem *p = &a->backward.problem;
    const int64_t blocks = (p->Tq + QUERIES - 1) / QUERIES, own_blocks = a->rows == 1 ? 1 : blocks;
    query_block x;
    lay_out_scratch(&x, p, scratch, true);
    for (int64_t item = begin; item < end; item++) {
        const int64_t block = item % own_blocks, head = item / own_blocks % a->heads, batch = item / own_blocks / a->heads;
        for (int64_t b = batch; b < (a->batches == 1 ? p->B : batch + 1); b++) {
            choose_batch(&x, b);
            for (int64_t h = head; h < (a->heads == 1 ? p->H : head + 1); h++)
                for (int64_t n = block; n < (a->rows == 1 ? blocks : block + 1); n++)
                    if (choose_queries(&x, h, n)) dbias_block(a, &x);
        }
    }
}
