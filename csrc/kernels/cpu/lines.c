/* lines.c: elements taken and written along the lines of one axis, and running sums. */
#include "../lines.h"
#include "../read_index.h"

#include "simd.h"

/* Where a line begins on each side. */
typedef struct line {
    int64_t index, taken, whole;
} line;

TC_INLINE line line_at(const tc_lines_args *a, int64_t number)
{
    line l = {0, 0, 0};
    for (int axis = a->ndim - 1; axis >= 0; axis--) {
        const int64_t at = number % a->shape[axis];
        number /= a->shape[axis];
        l.index += at * a->index_strides[axis];
        l.taken += at * a->taken_strides[axis];
        l.whole += at * a->whole_strides[axis];
    }
    return l;
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

#define EACH_PLACE(statement)                                                                                                              \
    for (int64_t k = 0; k < a->K; k++) {                                                                                                   \
        const int64_t place = tc_read_index_below(&a->index[at.index + k * a->index_step], a->L);                                          \
        const int64_t one = at.taken + k * a->taken_step, other = at.whole + place * a->whole_step;                                        \
        statement;                                                                                                                         \
    }
#define GATHER(TYPE) EACH_PLACE(((TYPE *)a->taken)[one] = place != TC_NO_INDEX ? ((const TYPE *)a->whole)[other] : 0)
#define PUT(TYPE) EACH_PLACE(if (place != TC_NO_INDEX)((TYPE *)a->whole)[other] = ((const TYPE *)a->taken)[one])
#define BY_BYTES(MOVE)                                                                                                                     \
    switch (a->element_bytes) {                                                                                                            \
    case 1: MOVE(uint8_t) break;                                                                                                           \
    case 2: MOVE(uint16_t) break;                                                                                                          \
    case 4: MOVE(uint32_t) break;                                                                                                          \
    default: MOVE(uint64_t) break;                                                                                                         \
    }

TC_DEFINE_KERNEL(lines_gather)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_lines_args *a = args;
    (void)scratch;
    for (int64_t n = begin; n < end; n++) {
        const line at = line_at(a, n);
        BY_BYTES(GATHER)
    }
}

TC_DEFINE_KERNEL(lines_put)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_lines_args *a = args;
    (void)scratch;
    for (int64_t n = begin; n < end; n++) {
        const line at = line_at(a, n);
        BY_BYTES(PUT)
    }
}
#endif

/* Unsigned numbers wrap around. */
#define COMBINE(TYPE)                                                                                                                      \
    do {                                                                                                                                   \
        TYPE *to = (TYPE *)a->whole + at.whole;                                                                                            \
        const TYPE *from = (const TYPE *)a->taken + at.taken;                                                                              \
        for (int64_t k = 0; k < a->K; k++) {                                                                                               \
            const int64_t place = tc_read_index_below(&a->index[at.index + k * a->index_step], a->L);                                      \
            if (place == TC_NO_INDEX) continue;                                                                                            \
            TYPE *own = to + place * a->whole_step;                                                                                        \
            *own = a->multiplies ? *own * from[k * a->taken_step] : *own + from[k * a->taken_step];                                        \
        }                                                                                                                                  \
    } while (0)

TC_DEFINE_KERNEL(lines_combine)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_lines_args *a = args;
    (void)scratch;
    for (int64_t n = begin; n < end; n++) {
        const line at = line_at(a, n);
        if (a->integers)
            COMBINE(uint64_t);
        else
            COMBINE(real);
    }
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

#define LINES_AT_ONCE 4

/* Lines whose elements are neighbours, several at a time: an addition of one line does not wait for that of another. */
static void run_along_memory(const tc_cumsum_args *a, int64_t begin, int64_t end)
{
    const int64_t n = a->length, step = a->reverse ? -1 : 1;
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

TC_DEFINE_KERNEL(cumsum)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_cumsum_args *a = args;
    (void)scratch;
    if (a->inner == 1 && !a->integers) {
        run_along_memory(a, begin, end);
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
