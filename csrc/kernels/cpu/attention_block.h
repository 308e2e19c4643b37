/* attention_block.h: the scores of one block of queries against one block of keys, for the forward and the backward.
 *
 * Queries are across the lanes: a tile is S^T [keys][TC_ATTENTION_QUERIES], so that maxima, sums and exponentials over keys
 * are vertical, and a query's numbers do not depend on its neighbours.
 */
#ifndef TC_KERNELS_CPU_ATTENTION_BLOCK_H
#define TC_KERNELS_CPU_ATTENTION_BLOCK_H

#include <float.h>
#include <string.h>

#include "../attention.h"
#include "attention_product.h"
#include "philox.h"
#include "simd_math.h"
#include "stored.h"
#include "transpose.h"

#define QUERIES TC_ATTENTION_QUERIES
#define KEYS TC_ATTENTION_KEYS
#define TILE (KEYS * QUERIES)
#define INFINITE ((real)INFINITY)
#define FILL R(-9e15) /* the tutorial's score where mask is 0 */

/* A block of queries: rows [q0, q0 + nq) of head h. */
typedef struct query_block {
    const tc_attention_problem *problem;
    int64_t b, h, hk, q0;
    int64_t first, Tq, Tk;       /* of the batch element: its first row, its queries and keys */
    int nq, groups;              /* number of queries; of vectors for them */
    int64_t first_key, last_key; /* keys that any of them may attend to: [first, last) */
    int64_t low_first, low_last; /* query i sees keys [low, high), both growing with i: of the first and the last query */
    int64_t high_first, high_last;
    int64_t slope_low, slope_high;      /* low = clamp(slope_low + i), high = clamp(slope_high + i) */
    int64_t keys;                       /* keys of this batch element within its key length */
    real *qt;                           /* [D][QUERIES]: scale * q, transposed */
    real *scores;                       /* [KEYS][QUERIES] */
    real *added;                        /* [KEYS][QUERIES]: additive terms; free once they are in the scores */
    uint8_t *mask;                      /* [KEYS][QUERIES] */
    uint8_t *kept, *kept_rows;          /* dropout: [KEYS][QUERIES] and [QUERIES][KEYS] */
    real *values, *k, *v;               /* where these are stored as halves: [QUERIES][Dv]; [KEYS][D] and [KEYS][Dv] of a block of keys */
    real *dvalues_t, *gradient, *slope; /* backward: [Dv][QUERIES]; [KEYS][QUERIES]; the same, derivative of softcap, or NULL */
} query_block;

/* A block of keys [k0, k0 + nk) as a query block sees it. */
typedef struct key_block {
    int64_t k0;
    int nk;
    const real *k, *v; /* its rows, widened where they are stored as halves */
    int64_t k_row, v_row;
    bool bounded, masked, added; /* which modifications the scores need */
    bool guarded;                /* some scores may not be attended to: their values must not reach the result */
} key_block;

TC_INLINE int64_t operand_offset(const tc_attention_operand *x, int64_t b, int64_t h, int64_t row)
{
    return b * x->batch + h * x->head + row * x->row;
}
TC_INLINE real *operand_at(const tc_attention_operand *x, int64_t b, int64_t h, int64_t row)
{
    return (real *)x->data + operand_offset(x, b, h, row);
}

/* The row of the block's query number i. */
TC_INLINE real *query_at(const query_block *x, const tc_attention_operand *operand, int64_t i)
{
    return operand_at(operand, x->b, x->h, x->first + x->q0 + i);
}

/* That of the key j of its batch element, in an operand that may be stored as halves. */
TC_INLINE const void *stored_key_at(const query_block *x, const tc_attention_operand *operand, int64_t j)
{
    return stored_at(operand->data, x->problem->stored, operand_offset(operand, x->b, x->hk, x->first + j));
}

/* to (rows, columns) <- rows of an operand that is stored as halves. */
static inline void widen_rows(real *to, const void *from, tc_stored stored, int64_t from_row, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++) read_stored(to + i * columns, stored_at(from, stored, i * from_row), stored, columns);
}

/* The keys and values of the block, whose k0 and nk are set. */
static inline void take_keys(const query_block *x, key_block *y)
{
    const tc_attention_problem *p = x->problem;
    const void *k = stored_key_at(x, &p->k, y->k0), *v = stored_key_at(x, &p->v, y->k0);
    if (p->stored == TC_STORED_AS_COMPUTED) {
        y->k = k, y->k_row = p->k.row;
        y->v = v, y->v_row = p->v.row;
        return;
    }
    widen_rows(x->k, k, p->stored, p->k.row, y->nk, p->D);
    widen_rows(x->v, v, p->stored, p->v.row, y->nk, p->Dv);
    y->k = x->k, y->k_row = p->D;
    y->v = x->v, y->v_row = p->Dv;
}

/* The place of the block's first query in an array (B,H,Tq), or (H,tokens). */
TC_INLINE int64_t statistic_at(const query_block *x)
{
    const tc_attention_problem *p = x->problem;
    return p->sequences ? x->h * p->tokens + x->first + x->q0 : (x->b * p->H + x->h) * p->Tq + x->q0;
}
/* That of its row in an array (B,H,Tq,Tk). */
TC_INLINE int64_t map_at(const query_block *x)
{
    const tc_attention_problem *p = x->problem;
    return ((x->b * p->H + x->h) * p->Tq + x->q0) * p->Tk;
}

TC_INLINE int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* to[c][r] = from[r][c] * factor for r < rows, c < columns. With `pad`, the lanes of `to` from `rows` up to the next multiple of TC_LANES
 * become 0 (there is room for them); without, they are unchanged. */
TC_INLINE void transpose(real *to, int64_t to_row, const real *from, int64_t from_row, int64_t rows, int64_t columns, real factor,
                         const bool pad)
{
    const vreal f = v_set1(factor);
    for (int64_t r = 0; r < rows; r += TC_LANES) {
        const int height = v_left(rows, r);
        for (int64_t c = 0; c < columns; c += TC_LANES) {
            const int width = v_left(columns, c);
            const real *p = from + r * from_row + c;
            vreal square[TC_LANES];
            TC_UNROLL
            for (int i = 0; i < TC_LANES; i++) square[i] = i < height ? v_load_some(p + i * from_row, width) : v_zero();
            v_transpose(square);
            TC_UNROLL
            for (int i = 0; i < TC_LANES; i++)
                if (i < width) v_store_some(to + (c + i) * to_row + r, square[i] * f, pad ? TC_LANES : height);
        }
    }
}

/* ---- which keys ---------------------------------------------------------------------------------------------------------- */

/* Fills in the bounds from window, causality and key lengths. b, h, q0 and nq are set. */
static inline void find_bounds(query_block *x)
{
    const tc_attention_problem *p = x->problem;
    const int64_t offset = p->offsets ? clamp(p->offsets[x->b], -TC_ATTENTION_FAR, TC_ATTENTION_FAR) : p->offset;
    x->keys = p->key_lengths ? clamp(p->key_lengths[x->b], 0, x->Tk) : x->Tk;
    x->slope_low = x->q0 + offset - p->left;
    x->slope_high = x->q0 + offset + p->right + 1;
    x->low_first = clamp(x->slope_low, 0, x->keys);
    x->low_last = clamp(x->slope_low + x->nq - 1, 0, x->keys);
    x->high_first = clamp(x->slope_high, 0, x->keys);
    x->high_last = clamp(x->slope_high + x->nq - 1, 0, x->keys);
    x->first_key = x->low_first / KEYS * KEYS;
    x->last_key = x->high_last;
}

/* ---- masks ---------------------------------------------------------------------------------------------------------------- */

/* Transposes the 8 x 8 bytes of w, one word per row, byte 0 the lowest, by halves, quarters and eighths. */
TC_INLINE void transpose_bytes(uint64_t w[8])
{
    static const uint64_t low[5] = {0, 0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0, 0x00000000ffffffff};
    TC_UNROLL
    for (int s = 4; s > 0; s /= 2) TC_UNROLL
    for (int i = 0; i < 8; i++)
        if (!(i & s)) {
            const uint64_t t = ((w[i] >> (8 * s)) ^ w[i + s]) & low[s];
            w[i] ^= t << (8 * s);
            w[i + s] ^= t;
        }
}

#define BYTES_01 UINT64_C(0x0101010101010101)
#define BYTES_80 UINT64_C(0x8080808080808080)

/* Copies eight queries by eight keys at `from` (row stride `row`, keys adjacent) to tile[key][query]. */
TC_INLINE void mask_square(uint8_t *tile, const uint8_t *from, int64_t row, int64_t queries, int64_t keys)
{
    const int height = queries < 8 ? (int)queries : 8, width = keys < 8 ? (int)keys : 8;
    uint64_t w[8] = {0};
    for (int i = 0; i < height; i++) {
        if (width == 8)
            memcpy(&w[i], from + i * row, 8);
        else
            for (int j = 0; j < width; j++) w[i] |= (uint64_t)from[i * row + j] << (8 * j);
    }
    transpose_bytes(w);
    for (int j = 0; j < width; j++) memcpy(tile + j * QUERIES, &w[j], 8);
}

/* Updates for n bytes: *any becomes true when one is set, *all false when one is 0. */
TC_INLINE void look_at_bytes(const uint8_t *p, int64_t n, bool *any, bool *all)
{
    uint64_t set = 0, zero = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, p + i, 8);
        set |= w;
        zero |= (w - BYTES_01) & ~w & BYTES_80; /* a byte of w is 0 */
    }
    for (; i < n; i++) {
        set |= p[i];
        zero |= p[i] == 0;
    }
    *any |= set != 0;
    *all &= zero == 0;
}

/* Reads the block's part of the mask and writes it as tile[key][query], unless it is the same everywhere and so not needed. */
static inline void load_mask(const query_block *x, int64_t k0, int nk, bool *any, bool *all)
{
    const tc_attention_plane *m = &x->problem->mask;
    const uint8_t *from = (const uint8_t *)m->data + x->b * m->batch + x->h * m->head + x->q0 * m->row + k0 * m->column;
    const int rows = m->row == 0 ? 1 : x->nq;
    *any = false;
    *all = true;
    if (m->column == 1) {
        for (int i = 0; i < rows && (*all || !*any); i++) look_at_bytes(from + i * m->row, nk, any, all);
    } else {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < nk; j++) look_at_bytes(from + i * m->row + j * m->column, 1, any, all);
    }
    if (*all || (!*any && x->problem->mask_kind == TC_ATTENTION_MASK_BOOLEAN)) return;
    if (m->row == 0) { /* every query sees the same keys */
        for (int j = 0; j < nk; j++) memset(x->mask + j * QUERIES, from[j * m->column], QUERIES);
    } else if (m->column == 1) {
        for (int i = 0; i < x->nq; i += 8)
            for (int j = 0; j < nk; j += 8) mask_square(x->mask + j * QUERIES + i, from + i * m->row + j, m->row, x->nq - i, nk - j);
    } else {
        for (int j = 0; j < nk; j++)
            for (int i = 0; i < x->nq; i++) x->mask[j * QUERIES + i] = from[i * m->row + j * m->column];
    }
}

/* The block's part of an additive term, from its first query and key. */
TC_INLINE const real *plane_at(const query_block *x, const tc_attention_plane *m, int64_t k0)
{
    return (const real *)m->data + x->b * m->batch + x->h * m->head + x->q0 * m->row + k0 * m->column;
}

/* The block's part of an additive term as tile[key][query]; 0 in lanes beyond the queries. */
static inline void load_plane(const query_block *x, const tc_attention_plane *m, int64_t k0, int nk, real *tile)
{
    const real *from = plane_at(x, m, k0);
    if (m->column == 1 && m->row != 0) {
        transpose(tile, QUERIES, from, m->row, x->nq, nk, R(1.0), true);
        return;
    }
    for (int j = 0; j < nk; j++)
        for (int i = 0; i < x->groups * TC_LANES; i++) tile[j * QUERIES + i] = i < x->nq ? from[i * m->row + j * m->column] : R(0.0);
}

/* Is the block's whole part of a term -infinity? Reads memory in place; false when keys are not adjacent. */
static inline bool plane_hides_all(const query_block *x, const tc_attention_plane *m, int64_t k0, int nk)
{
    const real *from = plane_at(x, m, k0);
    if (m->column != 1) return false;
    for (int i = 0; i < (m->row == 0 ? 1 : x->nq); i++) {
        bool any = false;
        for (int j = 0; j < nk && !any; j += TC_LANES) {
            const int lanes = v_left(nk, j);
            any = v_any(v_and(v_not(v_eq(v_load_some(from + i * m->row + j, lanes), v_set1(-INFINITE))), v_first(lanes)));
        }
        if (any) return false;
    }
    return true;
}

/* a + b, where -infinity in either wins over everything else, and finite numbers never become -infinity: they hide nothing. */
TC_INLINE vreal add_term(vreal a, vreal b)
{
    const vreal none = v_set1(-INFINITE), lowest = v_set1(sizeof(real) == sizeof(float) ? (real)-FLT_MAX : (real)-DBL_MAX);
    return v_select(v_or(v_eq(a, none), v_eq(b, none)), none, v_max(lowest, a + b)); /* this order of arguments keeps NaN */
}

/* The additive terms of the block into x->added. False when all of it is -infinity. Uses x->scores, which are not computed yet, as
 * scratch. */
static inline bool load_additive(const query_block *x, int64_t k0, int nk)
{
    const tc_attention_plane *terms = x->problem->additive;
    const bool two = terms[0].data && terms[1].data;
    for (int n = 0; n < 2; n++)
        if (terms[n].data && plane_hides_all(x, &terms[n], k0, nk)) return false;
    load_plane(x, &terms[terms[0].data ? 0 : 1], k0, nk, x->added);
    if (two) load_plane(x, &terms[1], k0, nk, x->scores);
    bool any = false;
    for (int j = 0; j < nk; j++)
        for (int i = 0; i < x->nq; i += TC_LANES) {
            real *at = x->added + j * QUERIES + i;
            vreal t = v_load(at);
            if (two) v_store(at, t = add_term(t, v_load(x->scores + j * QUERIES + i)));
            any = any || v_any(v_and(v_not(v_eq(t, v_set1(-INFINITE))), v_first(v_left(x->nq, i))));
        }
    return any;
}

/* ---- scores ---------------------------------------------------------------------------------------------------------------- */

/* How the masks and the additive terms are read: load_mask() and load_additive(), or as a query alone has them. */
typedef void (*mask_reader)(const query_block *x, int64_t k0, int nk, bool *any, bool *all);
typedef bool (*additive_reader)(const query_block *x, int64_t k0, int nk);

/* Reads the masks for keys [k0, k0 + nk), and finds the keys. False: no query of the block may attend to any of them. The readers are
 * constants of the caller, so they are inlined. */
TC_INLINE bool look_at_keys_by(mask_reader read_mask, additive_reader read_additive, const query_block *x, int64_t k0, key_block *y)
{
    const tc_attention_problem *p = x->problem;
    y->k0 = k0;
    y->nk = (int)(x->last_key - k0 < KEYS ? x->last_key - k0 : KEYS);
    y->bounded = x->low_last > k0 || x->high_first < k0 + y->nk;
    y->masked = y->added = false;
    y->guarded = y->bounded;
    if (p->mask.data) {
        bool any, all;
        read_mask(x, k0, y->nk, &any, &all);
        if (!any && p->mask_kind == TC_ATTENTION_MASK_BOOLEAN) return false;
        y->masked = !all;
        y->guarded |= y->masked && p->mask_kind == TC_ATTENTION_MASK_BOOLEAN;
    }
    if (p->additive[0].data || p->additive[1].data) {
        if (!read_additive(x, k0, y->nk)) return false;
        y->added = y->guarded = true;
    }
    take_keys(x, y);
    return true;
}
static inline bool look_at_keys(const query_block *x, int64_t k0, key_block *y)
{
    return look_at_keys_by(load_mask, load_additive, x, k0, y);
}

/* Query i sees keys low[i] <= j < high[i], counted from k0. */
static inline void relative_bounds(const query_block *x, const key_block *y, real low[QUERIES], real high[QUERIES])
{
    for (int i = 0; i < QUERIES; i++) {
        low[i] = (real)clamp(clamp(x->slope_low + i, 0, x->keys) - y->k0, 0, y->nk);
        high[i] = (real)clamp(clamp(x->slope_high + i, 0, x->keys) - y->k0, 0, y->nk);
    }
}

/* What becomes of the scores of a block. A local variable, so that it stays in registers. */
typedef struct modification {
    vreal cap, fill;
    const real *terms;
    const uint8_t *mask;
    real *slope;
    bool capped, added, masked, bounded;
} modification;

TC_INLINE modification modification_of(const query_block *x, const key_block *y)
{
    const tc_attention_problem *p = x->problem;
    return (modification){.capped = p->softcap > 0,
                          .added = y->added,
                          .masked = y->masked,
                          .bounded = y->bounded,
                          .cap = v_set1((real)p->softcap),
                          .fill = v_set1(p->mask_kind == TC_ATTENTION_MASK_FILL ? FILL : -INFINITE),
                          .terms = x->added,
                          .mask = x->mask,
                          .slope = x->slope};
}

/* Soft cap, additive terms, mask and bounds, in this order, of scores whose terms are at `at`. Those of keys low <= key < high are seen. */
TC_INLINE vreal modified(const modification *m, vreal s, int64_t at, int lanes, vreal key, const real *low, const real *high)
{
    if (m->capped) {
        const vreal t = v_tanh(s / m->cap);
        s = m->cap * t;
        if (m->slope) v_store(m->slope + at, v_fnma(t, t, v_set1(R(1.0))));
    }
    if (m->added) s = add_term(s, v_load(m->terms + at));
    if (m->masked) s = v_select(v_mask_bytes(m->mask + at, lanes), s, m->fill);
    if (m->bounded) s = v_select(v_and(v_le(v_load(low), key), v_lt(key, v_load(high))), s, v_set1(-INFINITE));
    return s;
}

static inline void modify_scores(const query_block *x, const key_block *y)
{
    const modification m = modification_of(x, y);
    real low[QUERIES], high[QUERIES];
    relative_bounds(x, y, low, high);
    for (int j = 0; j < y->nk; j++)
        for (int i = 0; i < x->groups * TC_LANES; i += TC_LANES) {
            real *const s = x->scores + j * QUERIES + i;
            v_store(s, modified(&m, v_load(s), j * QUERIES + i, TC_LANES, v_set1((real)j), low + i, high + i));
        }
}

/* x->scores = S^T for the keys of y: tile[key][query] = sum over d of k[key][d] * qt[d][query]. */
static inline void make_scores(const query_block *x, const key_block *y)
{
    const tc_attention_problem *p = x->problem;
    product_along_rows(&(product){.c = x->scores,
                                  .c_row = QUERIES,
                                  .a = y->k,
                                  .a_stride = y->k_row,
                                  .b = x->qt,
                                  .b_row = QUERIES,
                                  .M = y->nk,
                                  .N = x->groups * TC_LANES,
                                  .K = p->D,
                                  .accumulate = false});
    if (p->softcap > 0 || y->added || y->masked || y->bounded) modify_scores(x, y);
}

/* Either product for a tile with positions that may not be attended to: where a weight is zero the other factor is not read, because 0
 * times NaN or infinity is NaN. */
static __attribute__((noinline)) void sum_guarded(product_order order, const product *x)
{
    const int64_t a_row = order == ALONG_ROWS ? x->a_stride : 1, a_column = order == ALONG_ROWS ? 1 : x->a_stride;
    for (int64_t m = 0; m < x->M; m++)
        for (int64_t n = 0; n < x->N; n += TC_LANES) {
            const int lanes = v_left(x->N, n);
            real *c = x->c + m * x->c_row + n;
            vreal sum = x->accumulate ? v_load_some(c, lanes) : v_zero();
            for (int64_t k = 0; k < x->K; k++) {
                const real w = x->a[m * a_row + k * a_column];
                if (w != R(0.0)) sum = v_fma(v_set1(w), v_load_some(x->b + k * x->b_row + n, lanes), sum);
            }
            v_store_some(c, sum, lanes);
        }
}

/* True without NaN and infinity in `rows` rows of `columns`. */
static inline bool all_finite(const real *p, int64_t row, int64_t rows, int64_t columns)
{
    vreal sum[4]; /* of 0 * x: 0 for finite x, NaN otherwise. Of several rows at a time: each waits for itself */
    TC_UNROLL
    for (int t = 0; t < 4; t++) sum[t] = v_zero();
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4, p += 4 * row)
        for (int64_t j = 0; j < columns; j += TC_LANES) {
            const int lanes = v_left(columns, j);
            TC_UNROLL
            for (int t = 0; t < 4; t++) sum[t] = v_fma(v_load_some(p + t * row + j, lanes), v_zero(), sum[t]);
        }
    for (; i < rows; i++, p += row)
        for (int64_t j = 0; j < columns; j += TC_LANES) sum[0] = v_fma(v_load_some(p + j, v_left(columns, j)), v_zero(), sum[0]);
    return !v_any(v_isnan((sum[0] + sum[1]) + (sum[2] + sum[3])));
}

/* ---- dropout ---------------------------------------------------------------------------------------------------------------- */

/* Which weights of the tile are kept, into x->kept. */
static inline void choose_kept(const query_block *x, const key_block *y)
{
    const tc_attention_problem *p = x->problem;
    const uint32_t threshold = tc_keep_threshold(p->dropout);
    const int64_t row_groups = (p->Tk + TC_PHILOX_GROUP - 1) / TC_PHILOX_GROUP;
    const int64_t head = tc_place(&p->heads, x->b * p->H + x->h);
    const philox_call call = philox_begin(p->seed, p->call);
    for (int i = 0; i < x->nq; i++) {
        const int64_t first = (head * p->Tq + x->q0 + i) * row_groups + y->k0 / TC_PHILOX_GROUP;
        for (int j = 0; j < y->nk; j += TC_PHILOX_GROUP) {
            uint32_t words[TC_PHILOX_GROUP];
            philox_group(words, &call, (uint64_t)(first + j / TC_PHILOX_GROUP));
            uint8_t *row = x->kept_rows + i * KEYS + j;
            for (int w = 0; w < TC_PHILOX_GROUP; w++) row[w] = words[w] >= threshold;
        }
    }
    for (int i = 0; i < x->nq; i += 8)
        for (int j = 0; j < y->nk; j += 8) mask_square(x->kept + j * QUERIES + i, x->kept_rows + i * KEYS + j, KEYS, x->nq - i, y->nk - j);
}

/* tile /= 1 - dropout where x->kept is set, 0 elsewhere. */
static inline void drop(const query_block *x, const key_block *y, real *tile)
{
    const double p = x->problem->dropout;
    const vreal factor = v_set1((real)tc_keep_scale(p));
    for (int j = 0; j < y->nk; j++)
        for (int i = 0; i < x->groups * TC_LANES; i += TC_LANES) {
            const int64_t at = j * QUERIES + i;
            v_store(tile + at, v_select(v_mask_bytes(x->kept + at, TC_LANES), v_load(tile + at) * factor, v_zero()));
        }
}

/* The weight of each kept key in an empty row that attends uniformly. */
TC_INLINE real uniform_weight(const query_block *x)
{
    const double keys = x->Tk > 0 ? (double)x->Tk : 1.0, dropout = x->problem->dropout;
    return (real)(dropout < 1.0 ? 1.0 / (keys * (1.0 - dropout)) : 0.0);
}

/* ---- a block of queries ------------------------------------------------------------------------------------------------------ */

/* The shift of the scores of a query: 0 where nothing was attended to, so that exp(-inf - 0) is a weight of 0. */
TC_INLINE vreal finite_shift(vreal shift) { return v_select(v_eq(shift, v_set1(-INFINITE)), v_zero(), shift); }

/* The parts of the scratch memory; tc_attention_scratch() is its size. */
static inline void lay_out_scratch(query_block *x, const tc_attention_problem *p, void *scratch, bool backward)
{
    real *at = scratch;
    x->problem = p;
    x->qt = at, at += p->D * QUERIES;
    x->scores = at, at += TILE;
    x->added = x->dvalues_t = x->gradient = x->slope = NULL;
    if (backward || p->additive[0].data || p->additive[1].data) x->added = at, at += TILE;
    if (backward) x->dvalues_t = at, at += p->Dv * QUERIES;
    if (backward) x->gradient = at, at += TILE;
    if (backward && p->softcap > 0) x->slope = at, at += TILE;
    x->values = x->k = x->v = at; /* of no size where nothing is stored as halves */
    if (p->stored != TC_STORED_AS_COMPUTED) {
        x->values = at, at += p->Dv * QUERIES;
        x->k = at, at += p->D * KEYS;
        x->v = at, at += p->Dv * KEYS;
    }
    x->mask = (uint8_t *)at;
    x->kept = x->mask + (p->mask.data ? TILE : 0);
    x->kept_rows = x->kept + TILE;
}

/* Batch element b: where it begins, and its length. */
static inline void choose_batch(query_block *x, int64_t b)
{
    const tc_attention_problem *p = x->problem;
    x->b = b;
    x->first = p->sequences ? p->sequences[b] : 0;
    x->Tq = p->sequences ? p->sequences[b + 1] - x->first : p->Tq;
    x->Tk = p->sequences ? x->Tq : p->Tk;
}

/* Block number `block` of the queries of head h of the batch element that was chosen. False: it has no such block. */
static inline bool choose_queries(query_block *x, int64_t h, int64_t block)
{
    const tc_attention_problem *p = x->problem;
    x->h = h;
    x->hk = h / (p->H / p->Hk);
    x->q0 = block * QUERIES;
    x->nq = (int)clamp(x->Tq - x->q0, 0, QUERIES);
    x->groups = (x->nq + TC_LANES - 1) / TC_LANES;
    find_bounds(x);
    return x->nq > 0;
}

/* The queries of the block, transposed and scaled. */
static inline void load_queries(const query_block *x)
{
    const tc_attention_problem *p = x->problem;
    const void *q = stored_at(p->q.data, p->stored, operand_offset(&p->q, x->b, x->h, x->first + x->q0));
    const bool widened = p->stored != TC_STORED_AS_COMPUTED;
    if (widened) widen_rows(x->k, q, p->stored, p->q.row, x->nq, p->D); /* before the keys */
    transpose(x->qt, QUERIES, widened ? x->k : q, widened ? p->D : p->q.row, x->nq, p->D, (real)p->scale, true);
}

#endif
