/* transpose.h: square blocks of TC_LANES x TC_LANES, transposed in registers. */
#ifndef TC_KERNELS_CPU_TRANSPOSE_H
#define TC_KERNELS_CPU_TRANSPOSE_H

#include "simd.h"

#if TC_LANES == 2
#define TC_ZIP_LOW 0, 2
#define TC_ZIP_HIGH 1, 3
#elif TC_LANES == 4
#define TC_ZIP_LOW 0, 4, 1, 5
#define TC_ZIP_HIGH 2, 6, 3, 7
#elif TC_LANES == 8
#define TC_ZIP_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define TC_ZIP_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define TC_ZIP_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define TC_ZIP_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#endif

/* The lanes of a and b with these numbers, b's after a's. INDICES: a type of as many lanes, which are integers as wide. */
typedef ireal tc_lane_index __attribute__((vector_size(sizeof(vreal))));
#if defined(__clang__)
#define TC_SHUFFLE_BY(INDICES, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TC_SHUFFLE_BY(INDICES, a, b, ...) __builtin_shuffle(a, b, (INDICES){__VA_ARGS__})
#endif
#define TC_SHUFFLE(a, b, ...) TC_SHUFFLE_BY(tc_lane_index, a, b, __VA_ARGS__)

/* a0 b0 a1 b1 ... from the first and from the second halves of a and b */
TC_INLINE vreal v_zip_low(vreal a, vreal b) { return TC_SHUFFLE(a, b, TC_ZIP_LOW); }
TC_INLINE vreal v_zip_high(vreal a, vreal b) { return TC_SHUFFLE(a, b, TC_ZIP_HIGH); }

typedef vreal (*v_pair)(vreal a, vreal b);

/* r[i] lane j <-> r[j] lane i, for n vectors whose lanes `low` and `high` interleave n at a time. Interleaving row i with row i + n/2 moves
 * the top bit of the row number to the bottom of the lane number; after log2(n) rounds they have swapped. */
TC_INLINE void v_interleave(vreal *r, const int n, v_pair low, v_pair high)
{
    TC_UNROLL
    for (int round = 1; round < n; round *= 2) {
        vreal t[TC_LANES];
        TC_UNROLL
        for (int i = 0; i < n / 2; i++) {
            t[2 * i] = low(r[i], r[i + n / 2]);
            t[2 * i + 1] = high(r[i], r[i + n / 2]);
        }
        TC_UNROLL
        for (int i = 0; i < n; i++) r[i] = t[i];
    }
}

TC_INLINE void v_transpose(vreal r[TC_LANES]) { v_interleave(r, TC_LANES, v_zip_low, v_zip_high); }

#ifdef V_LOADS_HALVES
#define TC_HALF (TC_LANES / 2)
#if TC_HALF == 2
#define TC_ZIP_HALVES_LOW 0, 4, 2, 6
#define TC_ZIP_HALVES_HIGH 1, 5, 3, 7
#define TC_BOTH_FIRST 0, 1, 4, 5
#define TC_BOTH_SECOND 2, 3, 6, 7
#else
#define TC_ZIP_HALVES_LOW 0, 8, 1, 9, 4, 12, 5, 13
#define TC_ZIP_HALVES_HIGH 2, 10, 3, 11, 6, 14, 7, 15
#define TC_BOTH_FIRST 0, 1, 2, 3, 8, 9, 10, 11
#define TC_BOTH_SECOND 4, 5, 6, 7, 12, 13, 14, 15
#endif
TC_INLINE vreal v_zip_halves_low(vreal a, vreal b) { return TC_SHUFFLE(a, b, TC_ZIP_HALVES_LOW); }
TC_INLINE vreal v_zip_halves_high(vreal a, vreal b) { return TC_SHUFFLE(a, b, TC_ZIP_HALVES_HIGH); }

/* v_transpose() of TC_HALF vectors, within each half of their lanes. */
TC_INLINE void v_transpose_halves(vreal r[TC_HALF]) { v_interleave(r, TC_HALF, v_zip_halves_low, v_zip_halves_high); }

/* r[i] lane j = p[j * row + i] */
TC_INLINE void v_load_transposed_whole(vreal r[TC_LANES], const real *p, int64_t row)
{
    TC_UNROLL
    for (int half = 0; half < TC_LANES; half += TC_HALF) {
        TC_UNROLL
        for (int i = 0; i < TC_HALF; i++) r[half + i] = v_load_halves(p + i * row + half, p + (i + TC_HALF) * row + half);
        v_transpose_halves(r + half);
    }
}

/* v_transpose(), whose shuffles across the halves of vectors take several instructions: 24 shuffles instead of 48. For loops that are
 * little else: compilers copy others around it, and attention became 10 % larger. */
TC_INLINE void v_transpose_by_halves(vreal r[TC_LANES])
{
    TC_UNROLL
    for (int i = 0; i < TC_HALF; i++) {
        const vreal a = r[i], b = r[i + TC_HALF];
        r[i] = TC_SHUFFLE(a, b, TC_BOTH_FIRST);
        r[i + TC_HALF] = TC_SHUFFLE(a, b, TC_BOTH_SECOND);
    }
    v_transpose_halves(r);
    v_transpose_halves(r + TC_HALF);
}
#else
TC_INLINE void v_transpose_by_halves(vreal r[TC_LANES]) { v_transpose(r); }
#endif

/* r[i] lane j = p[j * row + i] for j < height and i < width; the other lanes are 0. */
TC_INLINE void v_load_transposed(vreal r[TC_LANES], const real *p, int64_t row, int height, int width)
{
#ifdef V_LOADS_HALVES
    if (height == TC_LANES && width == TC_LANES) {
        v_load_transposed_whole(r, p, row);
        return;
    }
#endif
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i++) r[i] = i < height ? v_load_some(p + i * row, width) : v_zero();
    v_transpose(r);
}

/* A vector consists of pieces of 16 bytes. */
#define TC_IN_PIECE ((int)(16 / sizeof(real)))
#define TC_PIECES (TC_LANES / TC_IN_PIECE)
#ifdef V_LOADS_QUARTERS
#if TC_LANES == 16
#define TC_ZIP_PIECES_LOW 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define TC_ZIP_PIECES_HIGH 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#else
#define TC_ZIP_PIECES_LOW 0, 8, 2, 10, 4, 12, 6, 14
#define TC_ZIP_PIECES_HIGH 1, 9, 3, 11, 5, 13, 7, 15
#endif
TC_INLINE vreal v_zip_pieces_low(vreal a, vreal b) { return TC_SHUFFLE(a, b, TC_ZIP_PIECES_LOW); }
TC_INLINE vreal v_zip_pieces_high(vreal a, vreal b) { return TC_SHUFFLE(a, b, TC_ZIP_PIECES_HIGH); }
#endif

/* r[i] lane j * TC_IN_PIECE + k = p[j][lane[k] + i]: squares of pieces, which are moved by loads where vectors have several. */
TC_INLINE void v_load_squares(vreal r[TC_IN_PIECE], const real *const p[TC_PIECES], const int64_t lane[TC_IN_PIECE])
{
    TC_UNROLL
    for (int i = 0; i < TC_IN_PIECE; i++)
#if defined(V_LOADS_QUARTERS)
        r[i] = v_load_quarters(p[0] + lane[i], p[1] + lane[i], p[2] + lane[i], p[3] + lane[i]);
    v_interleave(r, TC_IN_PIECE, v_zip_pieces_low, v_zip_pieces_high);
#elif defined(V_LOADS_HALVES)
        r[i] = v_load_halves(p[0] + lane[i], p[1] + lane[i]);
    v_transpose_halves(r);
#else
        r[i] = v_load(p[0] + lane[i]);
    v_transpose(r);
#endif
}

/* The same with lane[k] = k * row. */
TC_INLINE void v_load_pieces_transposed(vreal r[TC_IN_PIECE], const real *const p[TC_PIECES], int64_t row)
{
    int64_t lane[TC_IN_PIECE];
    TC_UNROLL
    for (int i = 0; i < TC_IN_PIECE; i++) lane[i] = i * row;
    v_load_squares(r, p, lane);
}

#undef TC_ZIP_LOW
#undef TC_ZIP_HIGH
#undef TC_ZIP_PIECES_LOW
#undef TC_ZIP_PIECES_HIGH
#undef TC_HALF
#undef TC_ZIP_HALVES_LOW
#undef TC_ZIP_HALVES_HIGH
#undef TC_BOTH_FIRST
#undef TC_BOTH_SECOND

#endif
