/* copy.c: strided copies with a cast. The work does not depend on the compute dtype, so the float64 table shares the float32
 * table's function. */
#include <string.h>

#include "../copy.h"
#include "strided.h"
#include "transpose.h"

#if TC_PRECISION == 64
#define COPY_F32(isa) TC_PASTE4(tc_copy, _f32_, isa, )
void COPY_F32(TC_ISA)(const void *args, int64_t begin, int64_t end, void *scratch);
TC_DEFINE_KERNEL(copy)(const void *args, int64_t begin, int64_t end, void *scratch) { COPY_F32(TC_ISA)(args, begin, end, scratch); }
#else

/* A part of a tile, `rows` x `columns` <= TC_COPY_ROWS: columns are read from end to end, into a square from which rows are cast. */
static void move_square(char *to, int64_t to_row, const char *from, int64_t from_step, int rows, int columns, cast_run run, int to_bytes,
                        int from_bytes)
{
    char square[TC_COPY_ROWS * TC_COPY_ROWS * sizeof(double)] __attribute__((aligned(64)));
    const int side = TC_COPY_ROWS * from_bytes;
    for (int c = 0; c < columns; c++) memcpy(square + c * side, from + c * from_step * from_bytes, (size_t)rows * (size_t)from_bytes);
    for (int r = 0; r < rows; r++) run(to + r * to_row * to_bytes, 1, square + r * from_bytes, TC_COPY_ROWS, columns);
}

/* The same of four bytes each, moved as they are. */
static void move_words(float *to, int64_t to_row, const float *from, int64_t from_step, int rows, int columns)
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

static void copy_tiles(const tc_copy_args *a, int64_t begin, int64_t end)
{
    const int row_axis = a->ndim - 2, column_axis = a->ndim - 1;
    const int to_bytes = element_bytes[a->to_dtype], from_bytes = element_bytes[a->from_dtype];
    const bool words = a->from_dtype == a->to_dtype && to_bytes == 4;
    const int64_t to_row = a->to_strides[row_axis], from_step = a->from_strides[column_axis];
    const cast_run run = cast_runs[a->from_dtype][a->to_dtype];
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
        if (words) {
            move_words((float *)a->to + to_at, to_row, (const float *)a->from + from_at, from_step, rows, columns);
            continue;
        }
        for (int c = 0; c < columns; c += TC_COPY_ROWS)
            move_square((char *)a->to + (to_at + c) * to_bytes, to_row, (const char *)a->from + (from_at + c * from_step) * from_bytes,
                        from_step, rows, columns - c < TC_COPY_ROWS ? columns - c : TC_COPY_ROWS, run, to_bytes, from_bytes);
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
    const position at = position_of(first, a->ndim, a->shape);
    const strided to = {a->to, a->to_dtype, a->to_strides}, from = {(char *)a->from, a->from_dtype, a->from_strides};
    move_elements(strided_from(to, &at, a->ndim), strided_from(from, &at, a->ndim), &at, last - first, a->ndim, a->shape);
}
#endif
