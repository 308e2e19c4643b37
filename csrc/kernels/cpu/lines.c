/* lines.c: elements taken and written along the lines of one axis, and running sums. */
#include "../lines.h"
#include "../read_index.h"

#include <string.h>

#include "transpose.h"

/* Places to be visited one after the other: those of one line, or one place each of neighbouring lines. Where they begin, in elements;
 * and their steps. */
typedef struct run {
    int64_t count, index, taken, whole;
    int64_t index_step, taken_step, whole_step;
} run;

/* Visits the places of a run; false if one of them is outside. */
typedef bool (*run_visitor)(const tc_lines_args *a, const run *r);

TC_INLINE run run_at(const tc_lines_args *a, int64_t line)
{
    run r = {.count = a->K, .index_step = a->index_step, .taken_step = a->taken_step};
    for (int axis = a->ndim - 1; axis >= 0; axis--) {
        const int64_t at = line % a->shape[axis];
        line /= a->shape[axis];
        r.index += at * a->index_strides[axis];
        r.taken += at * a->taken_strides[axis];
        r.whole += at * a->whole_strides[axis];
    }
    return r;
}

#define SHORT_LINE 8      /* places: lines of at most so many are visited across */
#define LINES_ACROSS 4096 /* of which so many at a time, whose elements stay in the cache */

/* Visits the places of lines [begin, end), those of a line in their order; along memory: line after line, or place after place of
 * neighbouring lines. */
TC_INLINE void visit_lines(const tc_lines_args *a, int64_t begin, int64_t end, run_visitor visit)
{
    const int inner = a->ndim - 1;
    const bool along = a->ndim == 0 || (a->K > 1 && a->index_step <= a->index_strides[inner]);
    const bool is_short = a->ndim > 0 && a->K <= SHORT_LINE && a->shape[inner] > a->K, across = is_short || (!along && !a->before);
    const int64_t line_bytes = a->L * a->element_bytes;
    bool inside = true;
    for (int64_t n = begin, lines = 1; n < end; n += lines) {
        run r = run_at(a, n);
        lines = a->ndim == 0 ? 1 : a->shape[inner] - n % a->shape[inner];
        if (lines > end - n) lines = end - n;
        if (across && lines > LINES_ACROSS) lines = LINES_ACROSS;
        char *const whole = (char *)a->whole + r.whole * a->element_bytes;
        const char *const before = a->before ? a->before + r.whole * a->element_bytes : NULL;
        if (!across) {
            for (int64_t j = 0; j < lines; j++) {
                if (before) memcpy(whole + j * line_bytes, before + j * line_bytes, (size_t)line_bytes);
                inside &= visit(a, &r);
                if (a->ndim == 0) break;
                r.index += a->index_strides[inner], r.taken += a->taken_strides[inner], r.whole += a->whole_strides[inner];
            }
            continue;
        }
        if (before) memcpy(whole, before, (size_t)(lines * line_bytes));
        r.count = lines;
        r.index_step = a->index_strides[inner];
        r.taken_step = a->taken_strides[inner];
        r.whole_step = a->whole_strides[inner];
        for (int64_t k = 0; k < a->K; k++, r.index += a->index_step, r.taken += a->taken_step) inside &= visit(a, &r);
    }
    if (!inside && a->outside) __atomic_store_n(a->outside, true, __ATOMIC_RELAXED);
}

/* A run_visitor `name`: INSIDE is done with the elements `*whole` and `*taken`, OUTSIDE where there is no element of the whole. The steps
 * of elements that lie side by side are constants. Places of one line, the common case, are visited some in a row, as most of the
 * instructions for one are those of a loop. */
#define IN_A_ROW 4
#define VISITOR(name, TYPE, INSIDE, OUTSIDE)                                                                                               \
    TC_INLINE bool name##_one(const int64_t *index, int64_t length, TYPE *taken, TYPE *first_whole, int64_t place_step)                    \
    {                                                                                                                                      \
        const int64_t place = tc_read_index_below(index, length);                                                                          \
        if (place != TC_NO_INDEX) {                                                                                                        \
            TYPE *const whole = first_whole + place * place_step;                                                                          \
            INSIDE;                                                                                                                        \
            return true;                                                                                                                   \
        }                                                                                                                                  \
        (void)taken;                                                                                                                       \
        OUTSIDE;                                                                                                                           \
        return false;                                                                                                                      \
    }                                                                                                                                      \
    TC_INLINE bool name##_by(const tc_lines_args *a, const run *r, const bool line, int64_t index_step, int64_t taken_step,                \
                             int64_t place_step, int64_t whole_step)                                                                       \
    {                                                                                                                                      \
        const int64_t *const index = a->index + r->index, count = r->count, length = a->L;                                                 \
        TYPE *const first_taken = (TYPE *)a->taken + r->taken, *const first_whole = (TYPE *)a->whole + r->whole;                           \
        bool inside = true;                                                                                                                \
        int64_t i = 0;                                                                                                                     \
        for (; line && i + IN_A_ROW <= count; i += IN_A_ROW) {                                                                             \
            TC_UNROLL                                                                                                                      \
            for (int k = 0; k < IN_A_ROW; k++) inside &= name##_one(index + i + k, length, first_taken + i + k, first_whole, 1);           \
        }                                                                                                                                  \
        for (; i < count; i++)                                                                                                             \
            inside &= name##_one(index + i * index_step, length, first_taken + i * taken_step, first_whole + i * whole_step, place_step);  \
        return inside;                                                                                                                     \
    }                                                                                                                                      \
    /* One place for the whole run, whose elements lie side by side. */                                                                    \
    TC_INLINE bool name##_row(const tc_lines_args *a, const run *r)                                                                        \
    {                                                                                                                                      \
        const int64_t place = tc_read_index_below(a->index + r->index, a->L);                                                              \
        if (place == TC_NO_INDEX) return name##_by(a, r, false, 0, 1, a->whole_step, 1);                                                   \
        TYPE *const first_taken = (TYPE *)a->taken + r->taken, *const first_whole = (TYPE *)a->whole + r->whole + place * a->whole_step;   \
        for (int64_t i = 0; i < r->count; i++) {                                                                                           \
            TYPE *const taken = first_taken + i, *const whole = first_whole + i;                                                           \
            INSIDE;                                                                                                                        \
        }                                                                                                                                  \
        return true;                                                                                                                       \
    }                                                                                                                                      \
    static bool name(const tc_lines_args *a, const run *r)                                                                                 \
    {                                                                                                                                      \
        if (r->index_step == 0 && r->taken_step == 1 && r->whole_step == 1) return name##_row(a, r);                                       \
        const bool dense = r->index_step == 1 && r->taken_step == 1;                                                                       \
        if (dense && r->whole_step == 0 && a->whole_step == 1) return name##_by(a, r, true, 1, 1, 1, 0);                                   \
        if (dense && r->whole_step == 1) return name##_by(a, r, false, 1, 1, a->whole_step, 1);                                            \
        return name##_by(a, r, false, r->index_step, r->taken_step, a->whole_step, r->whole_step);                                         \
    }

#if TC_PRECISION == 64 /* moving elements does not depend on the compute dtype */
#define LINES_F32(name, isa) TC_PASTE4(tc_##name, _f32_, isa, )
void LINES_F32(lines_gather, TC_ISA)(const void *args, int64_t begin, int64_t end, void *scratch);
void LINES_F32(lines_put, TC_ISA)(const void *args, int64_t begin, int64_t end, void *scratch);
TC_DEFINE_KERNEL(lines_gather)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    LINES_F32(lines_gather, TC_ISA)(args, begin, end, scratch);
}
TC_DEFINE_KERNEL(lines_put)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    LINES_F32(lines_put, TC_ISA)(args, begin, end, scratch);
}
#else
#define MOVERS(bytes, TYPE)                                                                                                                \
    VISITOR(get_##bytes, TYPE, *taken = *whole, *taken = 0)                                                                                \
    VISITOR(put_##bytes, TYPE, *whole = *taken, )
MOVERS(1, uint8_t)
MOVERS(2, uint16_t)
MOVERS(4, uint32_t)
MOVERS(8, uint64_t)

TC_DEFINE_KERNEL(lines_gather)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_lines_args *a = args;
    (void)scratch;
    visit_lines(a, begin, end, a->element_bytes == 1 ? get_1 : a->element_bytes == 2 ? get_2 : a->element_bytes == 4 ? get_4 : get_8);
}

TC_DEFINE_KERNEL(lines_put)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_lines_args *a = args;
    (void)scratch;
    visit_lines(a, begin, end, a->element_bytes == 1 ? put_1 : a->element_bytes == 2 ? put_2 : a->element_bytes == 4 ? put_4 : put_8);
}
#endif

VISITOR(add, real, *whole += *taken, )
VISITOR(multiply, real, *whole *= *taken, )
VISITOR(add_integers, uint64_t, *whole += *taken, ) /* unsigned numbers wrap around */
VISITOR(multiply_integers, uint64_t, *whole *= *taken, )

TC_DEFINE_KERNEL(lines_combine)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_lines_args *a = args;
    (void)scratch;
    if (a->integers)
        visit_lines(a, begin, end, a->multiplies ? multiply_integers : add_integers);
    else
        visit_lines(a, begin, end, a->multiplies ? multiply : add);
}

/* The columns of an item, one step of the axis after the other. */
#define RUNNING_SUM(TYPE, TOTAL)                                                                                                           \
    do {                                                                                                                                   \
        TYPE *y = (TYPE *)a->y + start;                                                                                                    \
        const TYPE *x = (const TYPE *)a->x + start;                                                                                        \
        TOTAL total[TC_CUMSUM_TILE] = {0};                                                                                                 \
        for (int64_t k = 0; k < a->length; k++) {                                                                                          \
            const int64_t row = (a->reverse ? a->length - 1 - k : k) * a->inner;                                                           \
            for (int64_t i = 0; i < columns; i++) {                                                                                        \
                total[i] += (TOTAL)x[row + i];                                                                                             \
                y[row + i] = (TYPE)total[i];                                                                                               \
            }                                                                                                                              \
        }                                                                                                                                  \
    } while (0)

/* to[i][j] = from[j][i] for i < TC_LANES and j < columns, rows of a square that has `width` columns in `from`. */
static __attribute__((noinline)) void transpose_square(real *to, int64_t to_row, const real *from, int64_t from_row, int width, int columns)
{
    vreal square[TC_LANES];
    v_load_transposed(square, from, from_row, TC_LANES, width);
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i++) v_store_some(to + i * to_row, square[i], columns);
}

/* TC_LANES lines whose elements are neighbours, across the lanes: squares are transposed, summed down and transposed back. */
static void run_across_lanes(const tc_cumsum_args *a, const real *x, real *y)
{
    const int64_t n = a->length, step = a->reverse ? -TC_LANES : TC_LANES;
    vwide total[TC_LANES / TC_WIDE_LANES] = {{0}};
    for (int64_t done = 0; done < n; done += TC_LANES) {
        const int width = v_left(n, done);
        const int64_t first = a->reverse ? n - done - width : done;
        real sums[TC_LANES * TC_LANES] __attribute__((aligned(64)));
        transpose_square(sums, TC_LANES, x + first, n, width, TC_LANES);
        real *column = sums + (a->reverse ? width - 1 : 0) * TC_LANES;
        TC_UNROLL_BY(1)
        for (int k = 0; k < width; k++, column += step) TC_UNROLL
        for (int i = 0; i < TC_LANES; i += TC_WIDE_LANES) {
            total[i / TC_WIDE_LANES] += v_wide_load(column + i);
            v_wide_store(column + i, total[i / TC_WIDE_LANES]);
        }
        transpose_square(y + first, n, sums, TC_LANES, TC_LANES, width);
    }
}

#define LINES_AT_ONCE 4

/* Lines of fewer elements, which do not fill vectors: while the sums of one wait for one another, the processor begins the next ones. */
#define SHORT_SUM 16
TC_INLINE void run_short_lines(const tc_cumsum_args *a, int64_t begin, int64_t end, const int64_t step)
{
    const int64_t n = a->length, first = step < 0 ? n - 1 : 0;
    const real *x = (const real *)a->x + begin * n + first;
    real *y = (real *)a->y + begin * n + first;
    for (int64_t item = begin; item < end; item++, x += n, y += n) {
        double total = 0;
        for (int64_t k = 0; k < n; k++) {
            total += (double)x[k * step];
            y[k * step] = (real)total;
        }
    }
}

/* Lines whose elements are neighbours, several at a time: an addition of one line does not wait for that of another. The same sums in each
 * way, so the same bits. */
static void run_along_memory(const tc_cumsum_args *a, int64_t begin, int64_t end)
{
    const int64_t n = a->length, step = a->reverse ? -1 : 1;
    if (n < SHORT_SUM && n % TC_LANES != 0) {
        if (a->reverse)
            run_short_lines(a, begin, end, -1);
        else
            run_short_lines(a, begin, end, 1);
        return;
    }
    for (; begin + TC_LANES <= end; begin += TC_LANES) run_across_lanes(a, (const real *)a->x + begin * n, (real *)a->y + begin * n);
    for (int64_t item = begin; item < end; item += LINES_AT_ONCE) {
        const int lines = end - item < LINES_AT_ONCE ? (int)(end - item) : LINES_AT_ONCE;
        const int64_t start = item * n + (a->reverse ? n - 1 : 0);
        const real *x = (const real *)a->x + start;
        real *y = (real *)a->y + start;
        double total[LINES_AT_ONCE] = {0};
        if (lines == LINES_AT_ONCE) {
            for (int64_t k = 0; k < n; k++)
                for (int j = 0; j < LINES_AT_ONCE; j++) {
                    total[j] += (double)x[j * n + k * step];
                    y[j * n + k * step] = (real)total[j];
                }
            continue;
        }
        for (int j = 0; j < lines; j++)
            for (int64_t k = 0; k < n; k++) {
                total[j] += (double)x[j * n + k * step];
                y[j * n + k * step] = (real)total[j];
            }
    }
}

/* The same of integers, which have no lanes to gain: one line after the other. */
TC_INLINE void run_integers_by(const tc_cumsum_args *a, int64_t begin, int64_t end, const int64_t step)
{
    for (int64_t item = begin; item < end; item++) {
        const int64_t start = item * a->length + (step < 0 ? a->length - 1 : 0);
        const uint64_t *x = (const uint64_t *)a->x + start;
        uint64_t *y = (uint64_t *)a->y + start, total = 0;
        for (int64_t k = 0; k < a->length; k++) y[k * step] = total += x[k * step];
    }
}

static void run_integers(const tc_cumsum_args *a, int64_t begin, int64_t end)
{
    if (a->reverse)
        run_integers_by(a, begin, end, -1);
    else
        run_integers_by(a, begin, end, 1);
}

TC_DEFINE_KERNEL(cumsum)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_cumsum_args *a = args;
    (void)scratch;
    if (a->inner == 1) {
        (a->integers ? run_integers : run_along_memory)(a, begin, end);
        return;
    }
    const int64_t tiles = (a->inner + TC_CUMSUM_TILE - 1) / TC_CUMSUM_TILE;
    for (int64_t item = begin; item < end; item++) {
        const int64_t first = item % tiles * TC_CUMSUM_TILE, left = a->inner - first;
        const int64_t start = item / tiles * a->length * a->inner + first, columns = left < TC_CUMSUM_TILE ? left : TC_CUMSUM_TILE;
        if (a->integers)
            RUNNING_SUM(uint64_t, uint64_t);
        else
            RUNNING_SUM(real, double);
    }
}
