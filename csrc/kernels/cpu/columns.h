/* columns.h: rows of few elements, TC_LANES of them side by side, one per lane: a vector along such a row would be mostly empty, and adding
 * up its lanes costs as much. */
#ifndef TC_KERNELS_CPU_COLUMNS_H
#define TC_KERNELS_CPU_COLUMNS_H

#include "transpose.h"

#define NARROW_ROW 32 /* up to this length: a multiple of every vector width */

/* Does that pay where rows can be taken alone as well? Not with two lanes. */
TC_INLINE bool is_narrow_row(int64_t C) { return C <= NARROW_ROW && TC_LANES >= 4; }

/* side (C, TC_LANES): `lanes` rows of C <= NARROW_ROW elements, `stride` apart; the other lanes are 0. There is room for whole
 * vectors: C rounded up to a multiple of TC_LANES. */
static __attribute__((noinline, unused)) void rows_to_columns(real *side, const real *rows, int64_t stride, int64_t C, int lanes)
{
    for (int64_t c = 0; c < C; c += TC_LANES) {
        vreal square[TC_LANES];
        v_load_transposed(square, rows + c, stride, lanes, v_left(C, c));
        TC_UNROLL
        for (int i = 0; i < TC_LANES; i++) v_store(side + (c + i) * TC_LANES, square[i]);
    }
}

/* The other way round, of a `side` that rows_to_columns() has written. */
static __attribute__((noinline, unused)) void columns_to_rows(real *rows, const real *side, int64_t stride, int64_t C, int lanes)
{
    for (int64_t c = 0; c < C; c += TC_LANES) {
        vreal square[TC_LANES];
        TC_UNROLL
        for (int i = 0; i < TC_LANES; i++) square[i] = v_load(side + (c + i) * TC_LANES);
        v_transpose(square);
        TC_UNROLL
        for (int i = 0; i < TC_LANES; i++)
            if (i < lanes) v_store_some(rows + i * stride + c, square[i], v_left(C, c));
    }
}

#endif
