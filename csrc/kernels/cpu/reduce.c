/* reduce.c: reductions. Sums are pairwise over blocks of REDUCE_BLOCK elements, each added up in a few vectors: accurate, and in an order
 * that depends on shape and strides alone. */
#include <string.h>

#include "columns.h"
#include "half.h"
#include "lane_sums.h"
#include "reduced.h"
#include "simd_math.h"

#define REDUCE_BLOCK 1024

/* `step` is a constant wherever these are inlined. */
TC_INLINE vreal identity(int step)
{
    switch (step) {
    case TC_STEP_max: return v_set1(-(real)INFINITY);
    case TC_STEP_min: return v_set1((real)INFINITY);
    case TC_STEP_all: return v_set1(R(1.0));
    default: return v_zero();
    }
}

TC_INLINE vreal prepare(int step, vreal x, vreal center)
{
    switch (step) {
    case TC_STEP_any:
    case TC_STEP_all: return v_truth(v_nonzero(x));
    case TC_STEP_square_difference: return (x - center) * (x - center);
    default: return x;
    }
}

TC_INLINE vreal combine(int step, vreal a, vreal b)
{
    switch (step) {
    case TC_STEP_any:
    case TC_STEP_max: return v_maximum(a, b);
    case TC_STEP_all:
    case TC_STEP_min: return v_minimum(a, b);
    default: return a + b;
    }
}

/* Combines the lanes as a balanced tree. */
TC_INLINE real combine_lanes(int step, vreal x)
{
    if (step == TC_STEP_sum || step == TC_STEP_square_difference) return v_sum(x);
    if (v_any(v_isnan(x))) return (real)NAN;
    return step == TC_STEP_max || step == TC_STEP_any ? v_hmax(x) : -v_hmax(-x);
}

TC_INLINE void store_result(const tc_reduce_args *a, int64_t at, real x)
{
    const real result = x / (real)a->divisor;
    if (a->out_dtype == ELEMENT_DTYPE)
        ((real *)a->out)[at] = result;
    else if (a->out_dtype == TC_BOOL)
        ((boolean *)a->out)[at] = x != 0;
    else if (a->out_dtype == TC_FLOAT16)
        ((float16 *)a->out)[at] = tc_to_float16((float)result);
    else
        ((bfloat16 *)a->out)[at] = tc_to_bfloat16((float)result);
}

TC_INLINE void store_results(const tc_reduce_args *a, int64_t at, const real *x, int64_t n)
{
    if (a->out_dtype != ELEMENT_DTYPE) {
        for (int64_t j = 0; j < n; j++) store_result(a, at + j, x[j]);
        return;
    }
    real *const out = (real *)a->out + at;
    const vreal divisor = v_set1((real)a->divisor);
    for (int64_t j = 0; j < n; j += TC_LANES) {
        const int lanes = v_left(n, j);
        const vreal total = v_load_some(x + j, lanes);
        v_store_some(out + j, a->divisor == 1 ? total : total / divisor, lanes);
    }
}

/* ---- one result at a time ------------------------------------------------------------------------------------------- */

/* Blocks combined pairwise, like the carries of a counter: at most one partial result for each bit of the count. */
typedef struct pairwise {
    uint64_t count;
    int top;
    vreal partial[64];
} pairwise;

TC_INLINE void pairwise_add(int step, pairwise *p, vreal x)
{
    for (uint64_t carry = p->count; carry & 1; carry >>= 1) x = combine(step, p->partial[--p->top], x);
    p->partial[p->top++] = x;
    p->count++;
}

TC_INLINE vreal pairwise_result(int step, pairwise *p)
{
    vreal x = p->partial[--p->top];
    while (p->top > 0) x = combine(step, p->partial[--p->top], x);
    return x;
}

/* n <= REDUCE_BLOCK elements. */
TC_INLINE vreal block(int step, const real *x, int64_t n, vreal center)
{
    vreal a = identity(step), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * TC_LANES <= n; i += 4 * TC_LANES) {
        a = combine(step, a, prepare(step, v_load(x + i), center));
        b = combine(step, b, prepare(step, v_load(x + i + TC_LANES), center));
        c = combine(step, c, prepare(step, v_load(x + i + 2 * TC_LANES), center));
        d = combine(step, d, prepare(step, v_load(x + i + 3 * TC_LANES), center));
    }
    for (; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        const vreal v = prepare(step, v_load_some(x + i, lanes), center);
        a = combine(step, a, lanes == TC_LANES ? v : v_select(v_first(lanes), v, identity(step)));
    }
    return combine(step, combine(step, a, b), combine(step, c, d));
}

/* Memory for a row, outside the loop over rows. */
typedef struct row_space {
    pairwise sum;
    real chunk[REDUCE_BLOCK] __attribute__((aligned(64)));
} row_space;

TC_INLINE void pairwise_begin(pairwise *p)
{
    p->count = 0; /* the partial results need no initial values */
    p->top = 0;
}

/* Are rows read where they are? */
TC_INLINE bool has_direct_rows(const tc_reduce_args *a)
{
    return a->x_dtype == ELEMENT_DTYPE && a->reduced_ndim == 1 && a->reduced_strides[0] == 1;
}

#define GROUP (4 * TC_LANES) /* elements that block() adds up at a time */

/* Can groups be read where they are? Shorter runs are copied sooner than the groups in which they meet. */
TC_INLINE bool has_groups(const tc_reduce_args *a)
{
    const int inner = a->reduced_ndim - 1;
    const int64_t length = a->reduced_shape[inner > 0 ? inner : 0];
    return a->x_dtype == ELEMENT_DTYPE && inner > 0 && a->reduced_strides[inner] == 1 && (length % GROUP == 0 || length >= 4 * GROUP);
}

/* The n <= GROUP elements from `at` on, which it moves behind them: in place, or, where two runs meet, in `copy`. A run has a group at
 * least, so that whole vectors are read up to the end of the one and from the beginning of the other. */
TC_INLINE const real *next_group(real copy[2 * GROUP], const tc_reduce_args *a, const real *x, position *at, int64_t n)
{
    const int inner = a->reduced_ndim - 1;
    const int64_t there = a->reduced_shape[inner] - at->index[inner];
    const real *const from = x + position_offset(at, a->reduced_ndim, a->reduced_strides);
    position_advance(at, n < there ? n : there, a->reduced_ndim, a->reduced_shape);
    if (n <= there) return from;
    const real *const end = from + there, *const next = x + position_offset(at, a->reduced_ndim, a->reduced_strides);
    TC_UNROLL
    for (int i = 0; i < GROUP; i += TC_LANES) {
        v_store(copy + i, v_load(end - GROUP + i));
        v_store(copy + GROUP + i, v_load(next + i));
    }
    position_advance(at, n - there, a->reduced_ndim, a->reduced_shape);
    return copy + GROUP - there;
}

/* What block() makes of elements [r, r + n) of such a row. */
static __attribute__((noinline)) vreal sum_of_groups(const tc_reduce_args *a, const real *x, int64_t r, int64_t n)
{
    const int inner = a->reduced_ndim - 1;
    vreal sum[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    real copy[2 * GROUP];
    position at = position_of(r, a->reduced_ndim, a->reduced_shape);
    const int64_t whole = n - n % GROUP;
    for (int64_t i = 0, more; i < whole; i += more) {
        const int64_t there = (a->reduced_shape[inner] - at.index[inner]) / GROUP * GROUP, left = whole - i;
        more = there == 0 ? GROUP : there < left ? there : left;
        const real *from = x + position_offset(&at, a->reduced_ndim, a->reduced_strides);
        if (there == 0)
            from = next_group(copy, a, x, &at, GROUP);
        else
            position_advance(&at, more, a->reduced_ndim, a->reduced_shape);
        for (int64_t j = 0; j < more; j += GROUP) {
            TC_UNROLL
            for (int k = 0; k < 4; k++) sum[k] = sum[k] + v_load(from + j + k * TC_LANES);
        }
    }
    const real *const rest = n > whole ? next_group(copy, a, x, &at, n - whole) : NULL;
    for (int64_t j = whole; j < n; j += TC_LANES) {
        const int lanes = v_left(n, j);
        const vreal v = v_load_some(rest + (j - whole), lanes);
        sum[0] = sum[0] + (lanes == TC_LANES ? v : v_select(v_first(lanes), v, v_zero()));
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Elements [first, last) of the row x. */
TC_INLINE real segment_of_row(int step, const tc_reduce_args *a, const char *x, int64_t first, int64_t last, vreal center, row_space *space)
{
    const bool direct = has_direct_rows(a), in_groups = step == TC_STEP_sum && !direct && has_groups(a);
    const bool is_block = last - first <= REDUCE_BLOCK; /* as most are */
    vreal total = identity(step);
    pairwise_begin(&space->sum);
    for (int64_t r = first, n; r < last; r += n) {
        n = last - r < REDUCE_BLOCK ? last - r : REDUCE_BLOCK;
        const real *chunk = (const real *)(const void *)x + r;
        if (!direct && !in_groups) {
            gather_reduced(space->chunk, a, x, r, n);
            chunk = space->chunk;
        }
        total = in_groups ? sum_of_groups(a, (const real *)(const void *)x, r, n) : block(step, chunk, n, center);
        if (!is_block) pairwise_add(step, &space->sum, total);
    }
    if (!is_block) total = pairwise_result(step, &space->sum);
    return combine_lanes(step, total);
}

/* All of a long row: its segments, and what a second pass over their results would make of them. */
TC_INLINE real segments_of_row(int step, const tc_reduce_args *a, const char *x, vreal center, row_space *space, row_space *results)
{
    const int second = step == TC_STEP_square_difference ? TC_STEP_sum : step;
    int64_t count = 0;
    pairwise_begin(&results->sum);
    for (int64_t r = 0, last; r < a->reduced; r = last) {
        last = a->reduced - r < a->segment ? a->reduced : r + a->segment;
        results->chunk[count++] = segment_of_row(step, a, x, r, last, center, space);
        if (count < REDUCE_BLOCK && last < a->reduced) continue;
        pairwise_add(second, &results->sum, block(second, results->chunk, count, v_zero()));
        count = 0;
    }
    return combine_lanes(second, pairwise_result(second, &results->sum));
}

#define SHORT_ROW 256

/* Lane i is combine_lanes() of row[i], of extremes: the same tree, so that zeros have the same sign. */
TC_INLINE vreal extremes_of_lanes(int step, vreal row[TC_LANES])
{
    v_transpose(row);
    vmask nan = v_isnan(row[0]);
    TC_UNROLL
    for (int i = 1; i < TC_LANES; i++) nan = v_or(nan, v_isnan(row[i]));
    TC_UNROLL
    for (int i = 0; i < TC_LANES && step == TC_STEP_min; i++) row[i] = -row[i];
    TC_UNROLL
    for (int width = TC_LANES / 2; width > 0; width /= 2) TC_UNROLL
    for (int i = 0; i < width; i++) row[i] = v_max(row[i], row[i + width]);
    return v_select(nan, v_set1((real)NAN), step == TC_STEP_min ? -row[0] : row[0]);
}

/* Short rows, as many at a time as a vector has lanes: returns the first item of [begin, end) that is left. The same bits. */
TC_INLINE int64_t short_rows(int step, const tc_reduce_args *a, int64_t begin, int64_t end)
{
    const bool is_extreme = step == TC_STEP_max || step == TC_STEP_min;
    const bool is_sum = step == TC_STEP_sum || step == TC_STEP_square_difference;
    if ((!is_sum && !is_extreme) || a->reduced > SHORT_ROW || a->kept_ndim != 1 || !has_direct_rows(a)) return begin;
    const int64_t apart = a->kept_strides[0];
    for (; begin + TC_LANES <= end; begin += TC_LANES) {
        const real *x = (const real *)a->x + begin * apart;
        vreal row[TC_LANES];
        real sums[TC_LANES];
        TC_UNROLL
        for (int i = 0; i < TC_LANES; i++, x += apart)
            row[i] = block(step, x, a->reduced, a->center ? v_set1(((const real *)a->center)[begin + i]) : v_zero());
        v_store(sums, is_extreme ? extremes_of_lanes(step, row) : v_sums(row));
        store_results(a, begin, sums, TC_LANES);
    }
    return begin;
}

TC_INLINE void rows(int step, const tc_reduce_args *a, int64_t begin, int64_t end)
{
    row_space space, results;
    begin = short_rows(step, a, begin, end);
    position kept = position_of(begin / a->segments, a->kept_ndim, a->kept_shape);
    for (int64_t item = begin; item < end; item++) {
        const int64_t k = a->segments == 1 ? item : item / a->segments, first = (item - k * a->segments) * a->segment;
        const int64_t last = first + a->segment < a->reduced ? first + a->segment : a->reduced;
        if (first == 0 && item > begin) position_advance(&kept, 1, a->kept_ndim, a->kept_shape);
        const char *x = (const char *)a->x + position_offset(&kept, a->kept_ndim, a->kept_strides) * element_bytes[a->x_dtype];
        const vreal center = a->center ? v_set1(((const real *)a->center)[k]) : v_zero();
        const bool whole = a->segments == 1 && last < a->reduced;
        store_result(a, item,
                     whole ? segments_of_row(step, a, x, center, &space, &results)
                           : segment_of_row(step, a, x, first, last, center, &space));
    }
}

#define EACH_STEP(call)                                                                                                                    \
    switch (a->step) {                                                                                                                     \
    case TC_STEP_sum: call(TC_STEP_sum, a, begin, end); break;                                                                             \
    case TC_STEP_max: call(TC_STEP_max, a, begin, end); break;                                                                             \
    case TC_STEP_min: call(TC_STEP_min, a, begin, end); break;                                                                             \
    case TC_STEP_any: call(TC_STEP_any, a, begin, end); break;                                                                             \
    case TC_STEP_all: call(TC_STEP_all, a, begin, end); break;                                                                             \
    default: call(TC_STEP_square_difference, a, begin, end); break;                                                                        \
    }

TC_DEFINE_KERNEL(reduce_rows)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_reduce_args *a = args;
    (void)scratch;
    EACH_STEP(rows)
}

/* ---- many neighbouring results at once ------------------------------------------------------------------------------ */

/* So many columns are added up in registers at most, for a block of rows one vector after the other. */
#define NARROW_TILE (4 * TC_LANES)
#define FEW_COLUMNS 4 /* the same of columns that are not next to one another, or in another dtype: they are copied there first */

/* The first `lanes` columns of rows that are `apart` elements apart. */
TC_INLINE vreal block_of_columns(int step, const real *x, int64_t apart, int64_t rows, int lanes, vreal center)
{
    vreal sum = identity(step);
    for (; rows >= 4; rows -= 4, x += 4 * apart) {
        const vreal x0 = prepare(step, v_load_some(x, lanes), center), x1 = prepare(step, v_load_some(x + apart, lanes), center);
        const vreal x2 = prepare(step, v_load_some(x + 2 * apart, lanes), center);
        const vreal x3 = prepare(step, v_load_some(x + 3 * apart, lanes), center);
        sum = combine(step, sum, combine(step, combine(step, x0, x1), combine(step, x2, x3)));
    }
    if (rows == 0) return sum;
    vreal rest = prepare(step, v_load_some(x, lanes), center);
    for (x += apart; --rows > 0; x += apart) rest = combine(step, rest, prepare(step, v_load_some(x, lanes), center));
    return combine(step, sum, rest);
}

/* What columns_tile makes of few columns in rows evenly apart, or of a single one; in the same order. */
TC_INLINE void narrow_tile(int step, const tc_reduce_args *a, const char *x, int64_t column_step, int64_t first, int64_t last, int64_t n,
                           const real *center, real *total)
{
    const bool direct = a->x_dtype == ELEMENT_DTYPE && a->reduced_ndim == 1 && (n == 1 || column_step == 1);
    const int64_t block = a->segment < TC_REDUCE_ROWS ? a->segment : TC_REDUCE_ROWS, apart = direct ? a->reduced_strides[0] : n;
    real buffer[TC_REDUCE_ROWS * FEW_COLUMNS];
    for (int64_t j = 0; j < n; j += TC_LANES) v_store_some(total + j, identity(step), v_left(n, j));
    for (int64_t r = first, rows; r < last; r += rows) {
        const real *row = direct ? (const real *)(const void *)x + r * apart : buffer;
        rows = last - r < block ? last - r : block;
        if (!direct && n == 1) gather_reduced(buffer, a, x, r, rows);
        for (int64_t j = 0; !direct && n > 1 && j < n; j++) {
            const char *column = x + (r * a->reduced_strides[0] + j * column_step) * element_bytes[a->x_dtype];
            cast_runs[a->x_dtype][ELEMENT_DTYPE](buffer + j, n, column, a->reduced_strides[0], rows);
        }
        for (int64_t j = 0; j < n; j += TC_LANES) {
            const int lanes = v_left(n, j);
            const vreal c = center ? v_load_some(center + j, lanes) : v_zero();
            const vreal sum = block_of_columns(step, row + j, apart, rows, lanes, c);
            v_store_some(total + j, combine(step, v_load_some(total + j, lanes), sum), lanes);
        }
    }
}

/* total[j] = combination over rows [first, last) of x[row][j], j < n.  x: the tile's first column in the first of all rows. */
TC_INLINE void columns_tile(int step, const tc_reduce_args *a, const char *x, int64_t column_step, int64_t first, int64_t last, int64_t n,
                            const real *center, real *total)
{
    const int64_t block = a->segment < TC_REDUCE_ROWS ? a->segment : TC_REDUCE_ROWS;
    real sum[TC_REDUCE_TILE + TC_LANES], buffer[4][TC_REDUCE_TILE + TC_LANES];
    const bool direct = a->x_dtype == ELEMENT_DTYPE && column_step == 1;
    const cast_run load = cast_runs[a->x_dtype][ELEMENT_DTYPE];
    position at = position_of(first, a->reduced_ndim, a->reduced_shape);
    if (n == 1 || (a->reduced_ndim == 1 && n <= (direct ? NARROW_TILE : FEW_COLUMNS))) {
        narrow_tile(step, a, x, column_step, first, last, n, center, total);
        return;
    }
    for (int64_t j = 0; j < n; j += TC_LANES) v_store_some(total + j, identity(step), v_left(n, j));
    for (int64_t r = first; r < last;) {
        const int64_t until = r + block < last ? r + block : last;
        for (int64_t j = 0; j < n; j += TC_LANES) v_store_some(sum + j, identity(step), v_left(n, j));
        while (r < until) {
            const real *row[4];
            const int count = until - r < 4 ? (int)(until - r) : 4;
            for (int k = 0; k < count; k++, r++) {
                const char *data = x + position_offset(&at, a->reduced_ndim, a->reduced_strides) * element_bytes[a->x_dtype];
                row[k] = direct ? (const real *)(const void *)data : buffer[k];
                if (!direct) load(buffer[k], 1, data, column_step, n);
                position_advance(&at, 1, a->reduced_ndim, a->reduced_shape);
            }
            for (int64_t j = 0; j < n; j += TC_LANES) {
                const int lanes = v_left(n, j);
                const vreal c = center ? v_load_some(center + j, lanes) : v_zero();
                vreal x0 = prepare(step, v_load_some(row[0] + j, lanes), c);
                if (count == 4) {
                    const vreal x1 = prepare(step, v_load_some(row[1] + j, lanes), c);
                    const vreal x2 = prepare(step, v_load_some(row[2] + j, lanes), c);
                    const vreal x3 = prepare(step, v_load_some(row[3] + j, lanes), c);
                    x0 = combine(step, combine(step, x0, x1), combine(step, x2, x3));
                } else {
                    for (int k = 1; k < count; k++) x0 = combine(step, x0, prepare(step, v_load_some(row[k] + j, lanes), c));
                }
                v_store_some(sum + j, combine(step, v_load_some(sum + j, lanes), x0), lanes);
            }
        }
        for (int64_t j = 0; j < n; j += TC_LANES) {
            const int lanes = v_left(n, j);
            v_store_some(total + j, combine(step, v_load_some(total + j, lanes), v_load_some(sum + j, lanes)), lanes);
        }
    }
}

TC_INLINE void columns(int step, const tc_reduce_args *a, int64_t begin, int64_t end)
{
    real total[TC_REDUCE_TILE + TC_LANES], part[TC_REDUCE_TILE + TC_LANES];
    const int outer_ndim = a->kept_ndim - 1;
    const int64_t width = a->kept_shape[outer_ndim], column_step = a->kept_strides[outer_ndim];
    const int64_t tiles = (width + TC_REDUCE_TILE - 1) / TC_REDUCE_TILE;
    /* Segments of one block are added to the total as blocks are. */
    const int64_t step_rows = a->segments == 1 && a->segment <= TC_REDUCE_ROWS ? a->reduced : a->segment;
    for (int64_t item = begin; item < end; item++) {
        const int64_t column = item % tiles * TC_REDUCE_TILE, s = item / tiles % a->segments, o = item / tiles / a->segments;
        const int64_t n = width - column < TC_REDUCE_TILE ? width - column : TC_REDUCE_TILE;
        const int64_t first = s * a->segment, last = a->segments == 1 || a->reduced - first < a->segment ? a->reduced : first + a->segment;
        const position outer = position_of(o, outer_ndim, a->kept_shape);
        const int64_t offset = position_offset(&outer, outer_ndim, a->kept_strides) + column * column_step;
        const real *center = a->center ? (const real *)a->center + o * width + column : NULL;
        const char *x = (const char *)a->x + offset * element_bytes[a->x_dtype];
        int64_t r = first;
        do {
            const int64_t next = last - r < step_rows ? last : r + step_rows;
            columns_tile(step, a, x, column_step, r, next, n, center, r == first ? total : part);
            for (int64_t j = 0; r > first && j < n; j += TC_LANES) {
                const int lanes = v_left(n, j);
                v_store_some(total + j, combine(step, v_load_some(total + j, lanes), v_load_some(part + j, lanes)), lanes);
            }
            r = next;
        } while (r < last);
        store_results(a, (o * a->segments + s) * width + column, total, n);
    }
}

TC_DEFINE_KERNEL(reduce_columns)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_reduce_args *a = args;
    (void)scratch;
    EACH_STEP(columns)
}

/* ---- where the extreme is --------------------------------------------------------------------------------------------- */

/* The first i < n with x[i] == value, or with x[i] NaN when value is NaN; n when there is none. */
TC_INLINE int64_t find_first(const real *x, int64_t n, real value)
{
    const vreal wanted = v_set1(value);
    const bool nan = value != value;
    for (int64_t i = 0; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        const vreal v = v_load_some(x + i, lanes);
        const vmask hit = v_and(nan ? v_isnan(v) : v_eq(v, wanted), v_first(lanes));
        if (v_any(hit)) return i + v_first_set(hit);
    }
    return n;
}

TC_INLINE int64_t arg_of_row(int step, const tc_reduce_args *a, const char *x, real *buffer)
{
    const bool direct = a->x_dtype == ELEMENT_DTYPE && a->reduced_ndim == 1 && a->reduced_strides[0] == 1;
    int64_t best_chunk = 0;
    real value = 0;
    for (int64_t r = 0, n; r < a->reduced; r += n) {
        n = a->reduced - r < REDUCE_BLOCK ? a->reduced - r : REDUCE_BLOCK;
        const real *chunk = (const real *)(const void *)x + r;
        if (!direct) {
            gather_reduced(buffer, a, x, r, n);
            chunk = buffer;
        }
        const real here = combine_lanes(step, block(step, chunk, n, v_zero()));
        if (r == 0 || here != here || (step == TC_STEP_max ? here > value : here < value)) {
            value = here;
            best_chunk = r;
            if (here != here) break;
        }
    }
    const int64_t n = a->reduced - best_chunk < REDUCE_BLOCK ? a->reduced - best_chunk : REDUCE_BLOCK;
    const real *chunk = (const real *)(const void *)x + best_chunk;
    if (!direct) {
        gather_reduced(buffer, a, x, best_chunk, n);
        chunk = buffer;
    }
    return best_chunk + find_first(chunk, n, value);
}

/* Looks at one more element of each row, number `here`: it replaces `best` where it is larger (smaller, for step min), or the first NaN. */
TC_INLINE void arg_step(int step, vreal x, vreal here, vreal *best, vreal *index)
{
    const vmask beats = step == TC_STEP_max ? v_lt(*best, x) : v_lt(x, *best);
    const vmask wins = v_and(v_or(beats, v_isnan(x)), v_not(v_isnan(*best)));
    *best = v_select(wins, x, *best);
    *index = v_select(wins, here, *index);
}

/* The results of `lanes` rows of `length` <= NARROW_ROW elements, `stride` apart. */
TC_INLINE void arg_of_narrow_rows(int step, int64_t *out, const real *x, int64_t stride, int64_t length, int lanes)
{
    real side[NARROW_ROW * TC_LANES], at[TC_LANES];
    rows_to_columns(side, x, stride, length, lanes);
    vreal best = v_load(side), index = v_zero();
    for (int64_t r = 1; r < length; r++) arg_step(step, v_load(side + r * TC_LANES), v_set1((real)r), &best, &index);
    v_store(at, index);
    for (int lane = 0; lane < lanes; lane++) out[lane] = (int64_t)at[lane];
}

/* Rows of more than a few vectors take less time alone. */
TC_INLINE bool has_narrow_rows(const tc_reduce_args *a)
{
    return a->x_dtype == ELEMENT_DTYPE && a->kept_ndim == 1 && a->reduced_ndim == 1 && a->reduced_strides[0] == 1 &&
           is_narrow_row(a->reduced) && a->reduced <= 4 * TC_LANES;
}

TC_DEFINE_KERNEL(reduce_arg)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_reduce_args *a = args;
    real buffer[REDUCE_BLOCK] __attribute__((aligned(64)));
    int64_t *const out = a->out;
    (void)scratch;
    if (has_narrow_rows(a)) {
        const int64_t stride = a->kept_strides[0];
        for (int64_t k = begin; k < end; k += TC_LANES) {
            const real *x = (const real *)a->x + k * stride;
            if (a->step == TC_STEP_max)
                arg_of_narrow_rows(TC_STEP_max, out + k, x, stride, a->reduced, v_left(end, k));
            else
                arg_of_narrow_rows(TC_STEP_min, out + k, x, stride, a->reduced, v_left(end, k));
        }
        return;
    }
    position kept = position_of(begin, a->kept_ndim, a->kept_shape);
    for (int64_t k = begin; k < end; k++) {
        const char *x = (const char *)a->x + position_offset(&kept, a->kept_ndim, a->kept_strides) * element_bytes[a->x_dtype];
        position_advance(&kept, 1, a->kept_ndim, a->kept_shape);
        out[k] = a->step == TC_STEP_max ? arg_of_row(TC_STEP_max, a, x, buffer) : arg_of_row(TC_STEP_min, a, x, buffer);
    }
}

/* Adds row r of a tile. */
TC_INLINE void arg_row(int step, const real *row, int64_t r, int64_t n, real *best, real *index)
{
    for (int64_t j = 0; j < n; j += TC_LANES) {
        const int lanes = v_left(n, j);
        const vreal x = v_load_some(row + j, lanes);
        vreal b = r == 0 ? x : v_load_some(best + j, lanes), i = r == 0 ? v_zero() : v_load_some(index + j, lanes);
        arg_step(step, x, v_set1((real)r), &b, &i);
        v_store_some(best + j, b, lanes);
        v_store_some(index + j, i, lanes);
    }
}

/* index[j] of the n <= TC_LANES columns next to one another of `rows` rows that are `apart` elements apart. */
TC_INLINE void arg_of_few_columns(int step, const real *x, int64_t apart, int64_t rows, int n, real *index)
{
    vreal best = v_load_some(x, n), at = v_zero();
    for (int64_t r = 1; r < rows; r++) arg_step(step, v_load_some(x + r * apart, n), v_set1((real)r), &best, &at);
    v_store_some(index, at, n);
}

TC_DEFINE_KERNEL(reduce_arg_columns)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_reduce_args *a = args;
    real best[TC_REDUCE_TILE + TC_LANES] = {0}, index[TC_REDUCE_TILE + TC_LANES] = {0}, buffer[TC_REDUCE_TILE + TC_LANES];
    const int outer_ndim = a->kept_ndim - 1;
    const int64_t width = a->kept_shape[outer_ndim], column_step = a->kept_strides[outer_ndim];
    const int64_t tiles = (width + TC_REDUCE_TILE - 1) / TC_REDUCE_TILE;
    const bool direct = a->x_dtype == ELEMENT_DTYPE && column_step == 1;
    (void)scratch;
    for (int64_t item = begin; item < end; item++) {
        const int64_t column = item % tiles * TC_REDUCE_TILE, o = item / tiles;
        const int64_t n = width - column < TC_REDUCE_TILE ? width - column : TC_REDUCE_TILE;
        const position outer = position_of(o, outer_ndim, a->kept_shape);
        const int64_t offset = position_offset(&outer, outer_ndim, a->kept_strides) + column * column_step;
        position at = position_of(0, a->reduced_ndim, a->reduced_shape);
        const bool few = direct && a->reduced_ndim == 1 && n <= TC_LANES;
        if (few) {
            const real *columns = (const real *)a->x + offset;
            if (a->step == TC_STEP_max)
                arg_of_few_columns(TC_STEP_max, columns, a->reduced_strides[0], a->reduced, (int)n, index);
            else
                arg_of_few_columns(TC_STEP_min, columns, a->reduced_strides[0], a->reduced, (int)n, index);
        }
        for (int64_t r = 0; r < a->reduced && !few; r++) {
            const char *data =
                (const char *)a->x + (offset + position_offset(&at, a->reduced_ndim, a->reduced_strides)) * element_bytes[a->x_dtype];
            if (!direct) cast_runs[a->x_dtype][ELEMENT_DTYPE](buffer, 1, data, column_step, n);
            const real *row = direct ? (const real *)(const void *)data : buffer;
            if (a->step == TC_STEP_max)
                arg_row(TC_STEP_max, row, r, n, best, index);
            else
                arg_row(TC_STEP_min, row, r, n, best, index);
            position_advance(&at, 1, a->reduced_ndim, a->reduced_shape);
        }
        for (int64_t j = 0; j < n; j++) ((int64_t *)a->out)[o * width + column + j] = (int64_t)index[j];
    }
}

/* ---- the gradient of an extreme ------------------------------------------------------------------------------------------ */

static void extreme_row(real *dx, real dy, const real *x, real y, int64_t length)
{
    memset(dx, 0, (size_t)length * sizeof(real));
    const int64_t at = find_first(x, length, y);
    if (at < length) dx[at] = dy;
}

/* n neighbouring results; x and dx step by `inner` from element to element. */
static void extreme_tile(real *dx, const real *dy, const real *x, const real *y, int64_t length, int64_t inner, int64_t n)
{
    for (int64_t j = 0; j < n; j += TC_LANES) {
        const int lanes = v_left(n, j);
        const vreal wanted = v_load_some(y + j, lanes);
        vreal g = v_load_some(dy + j, lanes);
        for (int64_t r = 0; r < length; r++) {
            const vreal v = v_load_some(x + r * inner + j, lanes);
            const vmask hit = v_or(v_eq(v, wanted), v_and(v_isnan(v), v_isnan(wanted)));
            v_store_some(dx + r * inner + j, v_select(hit, g, v_zero()), lanes);
            g = v_select(hit, v_zero(), g); /* already given */
        }
    }
}

TC_DEFINE_KERNEL(extreme_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_extreme_backward_args *a = args;
    (void)scratch;
    const int64_t tiles = (a->inner + TC_REDUCE_TILE - 1) / TC_REDUCE_TILE, size = a->length * a->inner;
    for (int64_t item = begin; item < end; item++) {
        const int64_t o = item / tiles, column = item % tiles * TC_REDUCE_TILE;
        const int64_t n = a->inner - column < TC_REDUCE_TILE ? a->inner - column : TC_REDUCE_TILE;
        real *dx = (real *)a->dx + o * size + column;
        const real *x = (const real *)a->x + o * size + column;
        const real *dy = (const real *)a->dy + o * a->inner + column, *y = (const real *)a->y + o * a->inner + column;
        if (a->inner == 1)
            extreme_row(dx, dy[0], x, y[0], a->length);
        else
            extreme_tile(dx, dy, x, y, a->length, a->inner, n);
    }
}
