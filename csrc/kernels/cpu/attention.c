/* attention.c: values = softmax(scores) v by blocks of queries and keys (Milakov and Gimelshein 2018; Dao et al. 2022). */
#include "attention_block.h"

/* A running maximum is replaced only by one larger by this much: the weights stay below e^8, and the sums so far rarely have to be
 * rescaled. The first maximum is used as it is, so a row within one block of keys is shifted by its own maximum. */
#define LAZINESS R(8.0)

/* Per query: weights are exp(score - shift) and add up to sum. */
typedef struct running_softmax {
    real shift[QUERIES], sum[QUERIES], rescale[QUERIES];
} running_softmax;

/* The largest of the scores of nk keys, in each lane. Several at a time, because a maximum waits for the one before it. */
TC_INLINE vreal column_largest(const real *s, int nk)
{
    vreal most[4];
    TC_UNROLL
    for (int i = 0; i < 4; i++) most[i] = v_set1(-INFINITE);
    int j = 0;
    for (; j + 4 <= nk; j += 4) TC_UNROLL
    for (int i = 0; i < 4; i++) most[i] = v_max(most[i], v_load(s + (j + i) * QUERIES));
    for (; j < nk; j++) most[0] = v_max(most[0], v_load(s + j * QUERIES));
    return v_max(v_max(most[0], most[1]), v_max(most[2], most[3]));
}

/* Adds the scores of a block to the running sums; they become weights. True: the values summed so far must be multiplied by rescale. */
static inline bool weigh(const query_block *x, int nk, bool first, running_softmax *run)
{
    bool rescaled = false;
    for (int g = 0; g < x->groups; g++) {
        real *s = x->scores + g * TC_LANES;
        const vreal largest = column_largest(s, nk);
        vreal shift = v_load(run->shift + g * TC_LANES), sum = v_load(run->sum + g * TC_LANES);
        const vmask grows = v_lt(shift + v_set1(LAZINESS), largest);
        if (first) {
            shift = largest;
        } else if (v_any(grows)) {
            const vreal factor = v_select(grows, v_exp_weight(shift - largest), v_set1(R(1.0)));
            shift = v_select(grows, largest, shift);
            sum = sum * factor;
            v_store(run->rescale + g * TC_LANES, factor);
            rescaled = true;
        } else {
            v_store(run->rescale + g * TC_LANES, v_set1(R(1.0)));
        }
        const vreal base = finite_shift(shift);
        vreal block = v_zero(); /* summed separately: in a long sum of similar numbers all roundings have the same sign */
        for (int j = 0; j < nk; j++) {
            const vreal w = v_exp_weight(v_load(s + j * QUERIES) - base);
            v_store(s + j * QUERIES, w);
            block = block + w;
        }
        v_store(run->shift + g * TC_LANES, shift);
        v_store(run->sum + g * TC_LANES, sum + block);
    }
    return rescaled;
}

/* values[i][:] *= factor[i] */
static inline void scale_rows(real *values, int64_t row, int rows, int64_t columns, const real *factor)
{
    for (int i = 0; i < rows; i++) {
        if (factor[i] == R(1.0)) continue;
        const vreal f = v_set1(factor[i]);
        for (int64_t c = 0; c < columns; c += TC_LANES) {
            const int lanes = v_left(columns, c);
            real *at = values + i * row + c;
            v_store_some(at, v_load_some(at, lanes) * f, lanes);
        }
    }
}

/* Columns from c on of the values of key j. */
TC_INLINE vreal load_values(const query_block *x, int64_t j, int64_t c, int lanes)
{
    const tc_stored stored = x->problem->stored;
    return v_load_stored(stored_at(stored_key_at(x, &x->problem->v, j), stored, c), stored, lanes);
}

/* fill_empty_rows() with dropout: each row uses the keys that it keeps. */
static void fill_empty_rows_dropped(const query_block *x, const real *sum, real *values, int64_t row)
{
    const tc_attention_problem *p = x->problem;
    const vreal share = v_set1(uniform_weight(x));
    for (int i = 0; i < x->nq; i++)
        if (sum[i] == R(0.0)) memset(values + i * row, 0, sizeof(real) * (size_t)p->Dv);
    for (int64_t k0 = 0; k0 < x->Tk; k0 += KEYS) {
        const key_block y = {.k0 = k0, .nk = (int)(x->Tk - k0 < KEYS ? x->Tk - k0 : KEYS)};
        choose_kept(x, &y);
        for (int i = 0; i < x->nq; i++)
            for (int64_t c = 0; sum[i] == R(0.0) && c < p->Dv; c += TC_LANES) {
                const int lanes = v_left(p->Dv, c);
                vreal mean = v_load_some(values + i * row + c, lanes);
                for (int j = 0; j < y.nk; j++)
                    if (x->kept[j * QUERIES + i]) mean = v_fma(share, load_values(x, k0 + j, c, lanes), mean);
                v_store_some(values + i * row + c, mean, lanes);
            }
    }
}

/* values[i][:], for all i with sum[i] == 0: the mean of all values, masked or not. */
static void fill_empty_rows(const query_block *x, const real *sum, real *values, int64_t row)
{
    const tc_attention_problem *p = x->problem;
    const vreal share = v_set1(uniform_weight(x));
    bool any = false;
    for (int i = 0; i < x->nq; i++) any = any || sum[i] == R(0.0);
    if (!any) return;
    if (p->dropout > 0) {
        fill_empty_rows_dropped(x, sum, values, row);
        return;
    }
    for (int64_t c = 0; c < p->Dv; c += TC_LANES) {
        const int lanes = v_left(p->Dv, c);
        vreal mean = v_zero();
        for (int64_t j = 0; j < x->Tk; j++) mean = v_fma(share, load_values(x, j, c, lanes), mean);
        for (int i = 0; i < x->nq; i++)
            if (sum[i] == R(0.0)) v_store_some(values + i * row + c, mean, lanes);
    }
}

static void fill(real *row, int64_t first, int64_t last, real x)
{
    for (int64_t j = first; j < last; j++) row[j] = x;
}

/* The weights of a block of keys into the map, where the scores are still in a cache: as they are, to be multiplied when more is known.
 * `map` is the row of query q0, or NULL. */
static void write_map_block(const query_block *x, const key_block *y, bool any, real *map)
{
    if (!map) return;
    const int64_t Tk = x->problem->Tk;
    if (any) transpose(map + y->k0, Tk, x->scores, QUERIES, y->nk, x->nq, R(1.0), false);
    for (int i = 0; !any && i < x->nq; i++) fill(map + i * Tk, y->k0, y->k0 + y->nk, R(0.0));
}

/* The weights of the keys up to `last` in the map, each row times its factor. */
static void scale_map(const query_block *x, real *map, int64_t last, const real *factor)
{
    if (map) scale_rows(map + x->first_key, x->problem->Tk, x->nq, last - x->first_key, factor);
}

/* Writes the rest of the map: 0 for keys out of reach, and rows that attend uniformly. */
static void complete_map(const query_block *x, const running_softmax *run, real *map)
{
    const int64_t Tk = x->problem->Tk, first = x->first_key < x->last_key ? x->first_key : Tk;
    const bool uniform = x->problem->empty_rows == TC_ATTENTION_EMPTY_UNIFORM;
    for (int i = 0; i < x->nq; i++) {
        fill(map + i * Tk, 0, first, R(0.0));
        fill(map + i * Tk, x->last_key > first ? x->last_key : first, Tk, R(0.0));
        if (uniform && run->sum[i] == R(0.0)) fill(map + i * Tk, 0, x->Tk, R(1.0) / (real)x->Tk);
    }
}

/* The rows of the map that a packed sequence does not have: those of the longest, from the end of this one. */
static void clear_rest_of_map(const query_block *x, real *map)
{
    const tc_attention_problem *p = x->problem;
    const int64_t rows = p->Tq - x->q0 < QUERIES ? p->Tq - x->q0 : QUERIES;
    for (int64_t i = x->nq; i < rows; i++) memset(map + map_at(x) + i * p->Tk, 0, sizeof(real) * (size_t)p->Tk);
}

/* values[query][:] (+)= weights of a block of keys times its values; weights[key * stride + query]. */
static void add_values(const query_block *x, const key_block *y, const real *weights, int64_t stride, real *values, int64_t row,
                       bool accumulate)
{
    const tc_attention_problem *p = x->problem;
    const product weighted = {.c = values,
                              .c_row = row,
                              .a = weights,
                              .a_stride = stride,
                              .b = y->v,
                              .b_row = y->v_row,
                              .M = x->nq,
                              .N = p->Dv,
                              .K = y->nk,
                              .accumulate = accumulate};
    if (y->guarded && !all_finite(y->v, y->v_row, y->nk, p->Dv))
        sum_guarded(ALONG_COLUMNS, &weighted);
    else
        product_along_columns(&weighted);
}

/* Writes the values of the block, and the weights to the map, not yet divided by the sums, directly to their rows. */
static void sum_values(const query_block *x, running_softmax *run, real *values, int64_t row, real *map)
{
    const tc_attention_problem *p = x->problem;
    bool first = true;
    for (int64_t k0 = x->first_key; k0 < x->last_key; k0 += KEYS) {
        key_block y;
        const bool any = look_at_keys(x, k0, &y);
        if (any) make_scores(x, &y);
        if (any && weigh(x, y.nk, first, run)) {
            scale_rows(values, row, x->nq, p->Dv, run->rescale);
            scale_map(x, map, k0, run->rescale);
        }
        write_map_block(x, &y, any, map);
        if (!any) continue;
        if (p->dropout > 0) {
            choose_kept(x, &y);
            drop(x, &y, x->scores);
        }
        add_values(x, &y, x->scores, QUERIES, values, row, !first);
        first = false;
    }
    for (int i = 0; first && i < x->nq; i++) memset(values + i * row, 0, sizeof(real) * (size_t)p->Dv);
}

/* ---- one query: decoding ---------------------------------------------------------------------------------------------------- */

/* The rows of keys or values that lie a page ahead of a block, to be asked for while it is read: the processor's own streams end with a
 * page, and the two operands are read in turn. */
#define AHEAD 4096
typedef struct rows_ahead {
    const char *first;
    int64_t row, bytes, rows; /* the step from one to the next, the size of one, their number */
} rows_ahead;

static inline rows_ahead look_ahead(const query_block *x, const tc_attention_operand *operand, int64_t columns, int64_t k0)
{
    const tc_stored stored = x->problem->stored;
    const int64_t element = stored == TC_STORED_AS_COMPUTED ? sizeof(real) : sizeof(uint16_t), bytes = columns * element;
    const int64_t ahead = bytes > 0 && bytes < AHEAD ? AHEAD / bytes : 1, first = clamp(k0 + ahead, k0, x->last_key);
    return (rows_ahead){stored_key_at(x, operand, first), operand->row * element, bytes, x->last_key - first};
}

TC_INLINE void prefetch(const rows_ahead *soon, int64_t row)
{
    if (row >= soon->rows) return;
    for (int64_t c = 0; c < soon->bytes; c += 64) __builtin_prefetch(soon->first + row * soon->row + c);
}

/* The scores of `groups` vectors of keys, side by side, as a sum waits for itself at each step. D is a multiple of TC_IN_PIECE. */
TC_INLINE void score_keys(const int groups, real *s, const real *k, int64_t row, const real *qt, int64_t D)
{
    vreal sum[2];
    TC_UNROLL
    for (int g = 0; g < groups; g++) sum[g] = v_zero();
    for (int64_t d = 0; d < D; d += TC_IN_PIECE, k += TC_IN_PIECE) {
        vreal x[2][TC_IN_PIECE];
        TC_UNROLL
        for (int g = 0; g < groups; g++) {
            const real *from[TC_PIECES];
            TC_UNROLL
            for (int i = 0; i < TC_PIECES; i++) from[i] = k + (g * TC_LANES + i * TC_IN_PIECE) * row;
            v_load_pieces_transposed(x[g], from, row);
        }
        TC_UNROLL
        for (int i = 0; i < TC_IN_PIECE; i++) TC_UNROLL
        for (int g = 0; g < groups; g++) sum[g] = v_fma(x[g][i], v_set1(qt[(d + i) * QUERIES]), sum[g]);
    }
    TC_UNROLL
    for (int g = 0; g < groups; g++) v_store(s + g * TC_LANES, sum[g]);
}

/* The mask of the keys into x->mask, one after the other, as load_mask(); likewise the additive terms into x->added, as load_additive(). */
static void load_mask_of_one(const query_block *x, int64_t k0, int nk, bool *any, bool *all)
{
    const tc_attention_plane *m = &x->problem->mask;
    const uint8_t *from = (const uint8_t *)m->data + x->b * m->batch + x->h * m->head + k0 * m->column;
    if (m->column == 1)
        memcpy(x->mask, from, (size_t)nk);
    else
        for (int j = 0; j < nk; j++) x->mask[j] = from[j * m->column];
    *any = false;
    *all = true;
    look_at_bytes(x->mask, nk, any, all);
}

static bool load_additive_of_one(const query_block *x, int64_t k0, int nk)
{
    const tc_attention_plane *terms = x->problem->additive;
    bool has = false, any = false;
    for (int n = 0; n < 2; n++) {
        const tc_attention_plane *m = &terms[n];
        if (!m->data) continue;
        const real *const from = plane_at(x, m, k0);
        any = false;
        for (int j = 0; j < nk; j += TC_LANES) {
            const int lanes = v_left(nk, j);
            vreal t = v_zero();
            if (m->column == 1)
                t = v_load_some(from + j, lanes);
            else
                for (int i = 0; i < lanes; i++) t[i] = from[(j + i) * m->column];
            if (has) t = add_term(v_load(x->added + j), t);
            v_store(x->added + j, t);
            any = any || v_any(v_and(v_not(v_eq(t, v_set1(-INFINITE))), v_first(lanes)));
        }
        has = true;
    }
    return any;
}

/* modify_scores() of a query alone, whose masks and additive terms are one after the other, those of a key for each lane. */
static void modify_single(const query_block *x, const key_block *y, real s[KEYS])
{
    const modification m = modification_of(x, y);
    real number[TC_LANES], low[TC_LANES], high[TC_LANES];
    v_store(low, v_set1((real)(x->low_first - y->k0)));
    v_store(high, v_set1((real)(x->high_first - y->k0)));
    for (int i = 0; i < TC_LANES; i++) number[i] = (real)i;
    for (int j = 0; j < y->nk; j += TC_LANES)
        v_store(s + j, modified(&m, v_load(s + j), j, v_left(y->nk, j), v_load(number) + v_set1((real)j), low, high));
}

/* s[key] = the score of the block's only query, with keys across the lanes, because the tile would use only one lane. The same sums in the
 * same order, so the same bits. */
static void single_scores(const query_block *x, const key_block *y, real s[KEYS])
{
    const tc_attention_problem *p = x->problem;
    const real *k = y->k;
    const rows_ahead soon = look_ahead(x, &p->k, p->D, y->k0);
    const int64_t whole = p->D % TC_IN_PIECE == 0 ? y->nk - y->nk % TC_LANES : 0;
    for (int j = 0; j < whole;) {
        const int groups = j + 2 * TC_LANES <= whole ? 2 : 1;
        for (int i = 0; i < groups * TC_LANES; i++) prefetch(&soon, j + i);
        if (groups == 2)
            score_keys(2, s + j, k + j * y->k_row, y->k_row, x->qt, p->D);
        else
            score_keys(1, s + j, k + j * y->k_row, y->k_row, x->qt, p->D);
        j += groups * TC_LANES;
    }
    for (int j = (int)whole; j < y->nk; j += TC_LANES) {
        const int keys = v_left(y->nk, j);
        vreal sum = v_zero();
        for (int i = 0; i < TC_LANES; i++) prefetch(&soon, j + i);
        for (int64_t d = 0; d < p->D; d += TC_LANES) {
            const int width = v_left(p->D, d);
            vreal square[TC_LANES];
            v_load_transposed(square, k + j * y->k_row + d, y->k_row, keys, width);
            TC_UNROLL
            for (int i = 0; i < TC_LANES; i++)
                if (i < width) sum = v_fma(square[i], v_set1(x->qt[(d + i) * QUERIES]), sum);
        }
        v_store(s + j, sum);
    }
    if (p->softcap > 0 || y->added || y->masked || y->bounded) modify_single(x, y, s);
}

/* weigh() of one query, but for the sum: s becomes weights. Returns the factor for the sums so far. */
static real weigh_single(real s[KEYS], int nk, running_softmax *run)
{
    real factor = R(1.0);
    vreal largest = v_set1(-INFINITE);
    for (int j = nk; j % TC_LANES; j++) s[j] = -INFINITE;
    for (int j = 0; j < nk; j += TC_LANES) largest = v_max(largest, v_load(s + j));
    const real most = v_hmax(largest);
    if (run->shift[0] + LAZINESS < most) {
        real lanes[TC_LANES];
        v_store(lanes, v_exp_weight(v_set1(run->shift[0]) - v_set1(most)));
        factor = lanes[0];
        run->shift[0] = most;
    }
    const vreal base = finite_shift(v_set1(run->shift[0]));
    for (int j = 0; j < nk; j += TC_LANES) v_store(s + j, v_exp_weight(v_load(s + j) - base));
    return factor;
}

/* values (+)= the weights of a block of keys times `vectors` vectors of its values from v on. Returns the sum of the weights, added one by
 * one as in weigh(), which costs nothing beside the product. */
#define VALUE_VECTORS 8 /* of values at most: each sum waits for itself at each step, so several are computed side by side */
TC_INLINE real add_panel(const int vectors, const key_block *y, const real s[KEYS], const real *v, int lanes, real *values, bool accumulate,
                         const rows_ahead *soon)
{
    vreal t[VALUE_VECTORS];
    real sum = R(0.0);
    TC_UNROLL
    for (int i = 0; i < vectors; i++) t[i] = v_zero();
    for (int j = 0; j < y->nk; j++) {
        const vreal weight = v_set1(s[j]);
        const real *const row = v + j * y->v_row;
        TC_UNROLL
        for (int i = 0; i < vectors; i++) t[i] = v_fma(weight, vectors > 1 ? v_load(row + i * TC_LANES) : v_load_some(row, lanes), t[i]);
        sum += s[j];
        prefetch(soon, j);
    }
    TC_UNROLL
    for (int i = 0; i < vectors; i++) {
        real *const to = values + i * TC_LANES;
        if (accumulate) t[i] = t[i] + (vectors > 1 ? v_load(to) : v_load_some(to, lanes));
        v_store_some(to, t[i], vectors > 1 ? TC_LANES : lanes);
    }
    return sum;
}

/* add_values() of one query. Returns the sum of the weights. */
static real add_values_single(const query_block *x, const key_block *y, const real s[KEYS], real *values, bool accumulate)
{
    const int64_t Dv = x->problem->Dv;
    real sum = R(0.0);
    if (Dv == 0 || (y->guarded && !all_finite(y->v, y->v_row, y->nk, Dv))) {
        add_values(x, y, s, 1, values, 0, accumulate);
        for (int j = 0; j < y->nk; j++) sum += s[j];
        return sum;
    }
    rows_ahead soon = look_ahead(x, &x->problem->v, Dv, y->k0);
    for (int64_t c = 0, vectors; c < Dv; c += vectors * TC_LANES, soon.rows = 0) {
        const int64_t whole = (Dv - c) / TC_LANES;
        vectors = whole >= 8 ? 8 : whole >= 4 ? 4 : whole >= 2 ? 2 : 1;
        switch (vectors) {
        case 8: sum = add_panel(8, y, s, y->v + c, TC_LANES, values + c, accumulate, &soon); break;
        case 4: sum = add_panel(4, y, s, y->v + c, TC_LANES, values + c, accumulate, &soon); break;
        case 2: sum = add_panel(2, y, s, y->v + c, TC_LANES, values + c, accumulate, &soon); break;
        default: sum = add_panel(1, y, s, y->v + c, v_left(Dv, c), values + c, accumulate, &soon);
        }
    }
    return sum;
}

/* sum_values() of one query without dropout. */
static void sum_values_single(const query_block *x, running_softmax *run, real *values)
{
    const tc_attention_problem *p = x->problem;
    real s[KEYS];
    bool first = true;
    for (int64_t k0 = x->first_key; k0 < x->last_key; k0 += KEYS) {
        key_block y;
        if (!look_at_keys_by(load_mask_of_one, load_additive_of_one, x, k0, &y)) continue;
        single_scores(x, &y, s);
        const real factor = weigh_single(s, y.nk, run);
        if (!first) scale_rows(values, 0, 1, p->Dv, &factor);
        run->sum[0] = run->sum[0] * factor + add_values_single(x, &y, s, values, !first);
        first = false;
    }
    if (first) memset(values, 0, sizeof(real) * (size_t)p->Dv);
}

/* The values of the block, from scratch to where they go as halves. */
static void round_values(const tc_attention_forward_args *a, const query_block *x)
{
    const tc_attention_problem *p = x->problem;
    for (int i = 0; i < x->nq; i++) {
        void *to = stored_to(a->values.data, p->stored, operand_offset(&a->values, x->b, x->h, x->first + x->q0 + i));
        for (int64_t c = 0; c < p->Dv; c += TC_LANES) {
            const int lanes = v_left(p->Dv, c);
            v_store_stored(stored_to(to, p->stored, c), p->stored, v_load_some(x->values + i * p->Dv + c, lanes), lanes);
        }
    }
}

/* ---- a block of queries -------------------------------------------------------------------------------------------------------- */

static void forward_block(const tc_attention_forward_args *a, const query_block *x)
{
    const tc_attention_problem *p = x->problem;
    running_softmax run;
    real inverse[QUERIES] = {0};
    for (int i = 0; i < QUERIES; i++) run.shift[i] = -INFINITE, run.sum[i] = R(0.0);
    const bool halves = p->stored != TC_STORED_AS_COMPUTED;
    real *values = halves ? x->values : query_at(x, &a->values, 0);
    const int64_t values_row = halves ? p->Dv : a->values.row;
    real *map = a->map ? (real *)a->map + map_at(x) : NULL;
    if (x->Tq == 1 && !map && !(p->dropout > 0))
        sum_values_single(x, &run, values);
    else
        sum_values(x, &run, values, values_row, map);

    for (int i = 0; i < x->groups * TC_LANES; i += TC_LANES) {
        const vreal sum = v_load(run.sum + i);
        v_store(inverse + i, v_select(v_eq(sum, v_zero()), v_zero(), v_set1(R(1.0)) / sum));
    }
    scale_rows(values, values_row, x->nq, p->Dv, inverse);
    if (p->empty_rows == TC_ATTENTION_EMPTY_UNIFORM) fill_empty_rows(x, run.sum, values, values_row);
    if (halves) round_values(a, x);

    const int64_t row = statistic_at(x);
    for (int i = 0; i < x->nq; i += TC_LANES) { /* of few elements: faster than memcpy() */
        const int lanes = v_left(x->nq, i);
        v_store_some((real *)a->shift + row + i, v_load(run.shift + i), lanes);
        v_store_some((real *)a->sum + row + i, v_load(run.sum + i), lanes);
    }
    for (int i = 0; a->lse && i < x->nq; i++) ((real *)a->lse)[row + i] = run.shift[i] + real_log(run.sum[i]);
    scale_map(x, map, x->last_key, inverse);
    if (map) complete_map(x, &run, map);
}

TC_DEFINE_KERNEL(attention_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_attention_forward_args *a = args;
    const tc_attention_problem *p = &a->problem;
    const int64_t blocks = (p->Tq + QUERIES - 1) / QUERIES;
    query_block x;
    lay_out_scratch(&x, p, scratch, false);
    for (int64_t item = begin; item < end; item++) {
        int64_t b, h;
        tc_attention_pair(&b, &h, p, p->H, item / blocks);
        choose_batch(&x, b);
        const bool any = choose_queries(&x, h, item % blocks);
        if (a->map && p->sequences) clear_rest_of_map(&x, a->map);
        if (!any) continue;
        load_queries(&x);
        forward_block(a, &x);
    }
}
