/* copy.c: strided copies with a cast. The work does not depend on the compute dtype, so the float64 table shares the float32
 * table's function. */
#include <string.h>

#include "../copy.h"
#include "strided.h"
#include "transpose.h"

/* A part of a tile, `rows` x `columns` <= TC_COPY_ROWS: columns of elements as wide as real, moved as they are. */
TC_INLINE void move_reals(real *to, int64_t to_row, const real *from, int64_t from_step, int rows, int columns)
{
    for (int c = 0; c < columns; c += TC_LANES) {
        const int height = v_left(columns, c);
        for (int r = 0; r < rows; r += TC_LANES) {
            const int width = v_left(rows, r);
            vreal square[TC_LANES];
            v_load_transposed(square, from + c * from_step + r, from_step, height, width);
            if (height == TC_LANES && width == TC_LANES) {
                TC_UNROLL
                for (int i = 0; i < TC_LANES; i++) v_store(to + (r + i) * to_row + c, square[i]);
            } else {
                for (int i = 0; i < width; i++) v_store_some(to + (r + i) * to_row + c, square[i], height);
            }
        }
    }
}

#define COPY_OF(name, isa) TC_PASTE4(tc_, name, isa, )
#define move_doubles COPY_OF(move_doubles_f64_, TC_ISA)
void move_doubles(double *to, int64_t to_row, const double *from, int64_t from_step, int rows, int columns);

#if TC_PRECISION == 64
#define copy_f32 COPY_OF(copy_f32_, TC_ISA)
void copy_f32(const void *args, int64_t begin, int64_t end, void *scratch);
TC_DEFINE_KERNEL(copy)(const void *args, int64_t begin, int64_t end, void *scratch) { copy_f32(args, begin, end, scratch); }

void move_doubles(double *to, int64_t to_row, const double *from, int64_t from_step, int rows, int columns)
{
    move_reals(to, to_row, from, from_step, rows, columns);
}
#else

/* The same cast: columns are read from end to end, into a square from which rows are cast. */
static void move_square(char *to, int64_t to_row, const char *from, int64_t from_step, int rows, int columns, cast_run run, int to_bytes,
                        int from_bytes)
{
    char square[TC_COPY_ROWS * TC_COPY_ROWS * sizeof(double)] __attribute__((aligned(64)));
    const int side = TC_COPY_ROWS * from_bytes;
    for (int c = 0; c < columns; c++) memcpy(square + c * side, from + c * from_step * from_bytes, (size_t)rows * (size_t)from_bytes);
    for (int r = 0; r < rows; r++) run(to + r * to_row * to_bytes, 1, square + r * from_bytes, TC_COPY_ROWS, columns);
}

/* The same of elements of one or two bytes, moved as they are: in squares that are transposed in vectors of 16 bytes, as v_interleave()
 * does it, and what is left beside those. */
#define SQUARES(TYPE, SIDE, LOW, HIGH, VALUE)                                                                                              \
    typedef TYPE TYPE##_lanes __attribute__((vector_size(16)));                                                                            \
    static void TYPE##_square(TYPE *to, int64_t to_row, const TYPE *from, int64_t from_step)                                               \
    {                                                                                                                                      \
        TYPE##_lanes r[SIDE], t[SIDE];                                                                                                     \
        TC_UNROLL                                                                                                                          \
        for (int i = 0; i < SIDE; i++) {                                                                                                   \
            memcpy(&r[i], from + i * from_step, sizeof r[i]);                                                                              \
            r[i] = VALUE(r[i]);                                                                                                            \
        }                                                                                                                                  \
        TC_UNROLL                                                                                                                          \
        for (int round = 1; round < SIDE; round *= 2) {                                                                                    \
            TC_UNROLL                                                                                                                      \
            for (int i = 0; i < SIDE / 2; i++) {                                                                                           \
                t[2 * i] = TC_SHUFFLE_BY(TYPE##_lanes, r[i], r[i + SIDE / 2], LOW);                                                        \
                t[2 * i + 1] = TC_SHUFFLE_BY(TYPE##_lanes, r[i], r[i + SIDE / 2], HIGH);                                                   \
            }                                                                                                                              \
            TC_UNROLL                                                                                                                      \
            for (int i = 0; i < SIDE; i++) r[i] = t[i];                                                                                    \
        }                                                                                                                                  \
        TC_UNROLL                                                                                                                          \
        for (int i = 0; i < SIDE; i++) memcpy(to + i * to_row, &r[i], sizeof r[i]);                                                        \
    }                                                                                                                                      \
    static void TYPE##_squares(char *to_, int64_t to_row, const char *from_, int64_t from_step, int rows, int columns, cast_run run)       \
    {                                                                                                                                      \
        TYPE *to = (TYPE *)to_;                                                                                                            \
        const TYPE *from = (const TYPE *)from_;                                                                                            \
        const int down = rows / SIDE * SIDE, across = columns / SIDE * SIDE, bytes = sizeof(TYPE);                                         \
        for (int c = 0; c < across; c += SIDE)                                                                                             \
            for (int r = 0; r < down; r += SIDE) TYPE##_square(to + r * to_row + c, to_row, from + c * from_step + r, from_step);          \
        if (across < columns)                                                                                                              \
            move_square((char *)(to + across), to_row, (const char *)(from + across * from_step), from_step, down, columns - across, run,  \
                        bytes, bytes);                                                                                                     \
        if (down < rows)                                                                                                                   \
            move_square((char *)(to + down * to_row), to_row, (const char *)(from + down), from_step, rows - down, columns, run, bytes,    \
                        bytes);                                                                                                            \
    }
#define EIGHT_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define EIGHT_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define SIXTEEN_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define SIXTEEN_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
SQUARES(uint16_t, 8, EIGHT_LOW, EIGHT_HIGH, SAME)
SQUARES(uint8_t, 16, SIXTEEN_LOW, SIXTEEN_HIGH, SAME)
SQUARES(boolean, 16, SIXTEEN_LOW, SIXTEEN_HIGH, truths)

/* Elements of one dtype, `rows` x `columns` <= TC_COPY_COLUMNS. */
static void move_part(char *to, int64_t to_row, const char *from, int64_t from_step, int rows, int columns, int dtype)
{
    const int bytes = element_bytes[dtype];
    const cast_run run = cast_runs[dtype][dtype];
    if (bytes == 4) {
        move_reals((float *)(void *)to, to_row, (const float *)(const void *)from, from_step, rows, columns);
        return;
    }
    if (bytes == 8) {
        move_doubles((double *)(void *)to, to_row, (const double *)(const void *)from, from_step, rows, columns);
        return;
    }
    for (int c = 0; c < columns; c += TC_COPY_ROWS) {
        char *const part = to + c * bytes;
        const char *const of = from + c * from_step * bytes;
        const int width = columns - c < TC_COPY_ROWS ? columns - c : TC_COPY_ROWS;
        if (bytes == 2)
            uint16_t_squares(part, to_row, of, from_step, rows, width, run);
        else if (dtype == TC_BOOL)
            boolean_squares(part, to_row, of, from_step, rows, width, run);
        else
            uint8_t_squares(part, to_row, of, from_step, rows, width, run);
    }
}

#define CAST_COLUMNS 64 /* that are moved before their rows are cast from end to end: 16 KiB of float64 */

static void cast_part(const tc_copy_args *a, char *to, int64_t to_row, const char *from, int64_t from_step, int rows, int columns)
{
    const int to_bytes = element_bytes[a->to_dtype], from_bytes = element_bytes[a->from_dtype];
    const cast_run run = cast_runs[a->from_dtype][a->to_dtype];
    char moved[TC_COPY_ROWS * CAST_COLUMNS * sizeof(double)] __attribute__((aligned(64)));
    for (int c = 0; c < columns; c += CAST_COLUMNS) {
        const int width = columns - c < CAST_COLUMNS ? columns - c : CAST_COLUMNS;
        move_part(moved, CAST_COLUMNS, from + c * from_step * from_bytes, from_step, rows, width, a->from_dtype);
        for (int r = 0; r < rows; r++) run(to + (r * to_row + c) * to_bytes, 1, moved + r * CAST_COLUMNS * from_bytes, 1, width);
    }
}

static void copy_tiles(const tc_copy_args *a, int64_t begin, int64_t end)
{
    const int row_axis = a->ndim - 2, column_axis = a->ndim - 1;
    const int64_t to_row = a->to_strides[row_axis], from_step = a->from_strides[column_axis];
    int64_t down, across;
    tc_copy_tiles(a, &down, &across);
    for (int64_t item = begin; item < end; item++) {
        int64_t outer = item / across / down;
        const int64_t row = item / across % down * TC_COPY_ROWS, column = item % across * TC_COPY_COLUMNS;
        int64_t to_at = row * to_row + column, from_at = row + column * from_step;
        for (int axis = row_axis - 1; axis >= 0; axis--) {
            to_at += outer % a->shape[axis] * a->to_strides[axis];
            from_at += outer % a->shape[axis] * a->from_strides[axis];
            outer /= a->shape[axis];
        }
        const int64_t rows_left = a->shape[row_axis] - row, columns_left = a->shape[column_axis] - column;
        const int rows = rows_left < TC_COPY_ROWS ? (int)rows_left : TC_COPY_ROWS;
        const int columns = columns_left < TC_COPY_COLUMNS ? (int)columns_left : TC_COPY_COLUMNS;
        char *const to = (char *)a->to + to_at * element_bytes[a->to_dtype];
        const char *const from = (const char *)a->from + from_at * element_bytes[a->from_dtype];
        if (a->from_dtype == a->to_dtype)
            move_part(to, to_row, from, from_step, rows, columns, a->to_dtype);
        else
            cast_part(a, to, to_row, from, from_step, rows, columns);
    }
}

#define PIECE 512 /* bytes of a run that costs little beside a call for it: longer ones are cast where they are */

/* Are runs that are soon at their ends read, and cast into one piece? A cast costs little beside its call if more of them are cast at
 * once. */
static bool casts_pieces(const tc_copy_args *a)
{
    const int last = a->ndim - 1;
    if (a->from_dtype == a->to_dtype || last < 1 || a->from_strides[last] != 1 || a->shape[last] * element_bytes[a->from_dtype] > PIECE)
        return false;
    int64_t step = 1;
    for (int axis = last; axis >= 0; axis--) {
        if (a->to_strides[axis] != step) return false;
        step *= a->shape[axis];
    }
    return true;
}

#define PIECES 2048 /* elements that are gathered before they are cast */

static void cast_pieces(const tc_copy_args *a, int64_t first, int64_t last)
{
    const strided from = {(char *)a->from, a->from_dtype, a->from_strides};
    const cast_run run = cast_runs[a->from_dtype][a->to_dtype];
    char values[PIECES * sizeof(double)] __attribute__((aligned(64)));
    for (int64_t i = first, n; i < last; i += n) {
        const position at = position_of(i, a->ndim, a->shape);
        n = last - i < PIECES ? last - i : PIECES;
        gather(values, a->from_dtype, from, &at, n, a->ndim, a->shape);
        run((char *)a->to + i * element_bytes[a->to_dtype], 1, values, 1, n);
    }
}

TC_DEFINE_KERNEL(copy)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_copy_args *a = args;
    (void)scratch;
    if (tc_copy_by_tiles(a)) {
        copy_tiles(a, begin, end);
        return;
    }
    const int64_t first = begin * TC_COPY_BLOCK, last = end * TC_COPY_BLOCK < a->numel ? end * TC_COPY_BLOCK : a->numel;
    if (casts_pieces(a)) {
        cast_pieces(a, first, last);
        return;
    }
    const position at = position_of(first, a->ndim, a->shape);
    const strided to = {a->to, a->to_dtype, a->to_strides}, from = {(char *)a->from, a->from_dtype, a->from_strides};
    move_elements(strided_from(to, &at, a->ndim), strided_from(from, &at, a->ndim), &at, last - first, a->ndim, a->shape);
}
#endif
