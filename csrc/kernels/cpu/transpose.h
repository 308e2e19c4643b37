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

#if defined(__clang__)
#define TC_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef ireal tc_lane_index __attribute__((vector_size(sizeof(vreal))));
#define TC_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (tc_lane_index){__VA_ARGS__})
#endif

/* a0 b0 a1 b1 ... from the first and from the second halves of a and b */
TC_INLINE vreal v_zip_low(vreal a, vreal b) { return TC_SHUFFLE(a, b, TC_ZIP_LOW); }
TC_INLINE vreal v_zip_high(vreal a, vreal b) { return TC_SHUFFLE(a, b, TC_ZIP_HIGH); }

/* r[i] lane j <-> r[j] lane i. Interleaving row i with row i + n/2 moves the top bit of the row number to the bottom of the lane number;
 * after log2(n) rounds they have swapped. */
TC_INLINE void v_transpose(vreal r[TC_LANES])
{
    TC_UNROLL
    for (int round = 1; round < TC_LANES; round *= 2) {
        vreal t[TC_LANES];
        TC_UNROLL
        for (int i = 0; i < TC_LANES / 2; i++) {
            t[2 * i] = v_zip_low(r[i], r[i + TC_LANES / 2]);
            t[2 * i + 1] = v_zip_high(r[i], r[i + TC_LANES / 2]);
        }
        TC_UNROLL
        for (int i = 0; i < TC_LANES; i++) r[i] = t[i];
    }
}

/* The same. With AVX2 a shuffle across the halves of vectors takes more instructions: blocks of 4 x 4 in the halves come first, and then
 * the halves, 24 shuffles instead of 48. For loops that are little else: compilers copy others around it, and attention became 10 % larger.
 */
#if defined(__AVX2__) && TC_PRECISION == 32 && TC_LANES == 8
TC_INLINE void v_transpose_by_halves(vreal r[TC_LANES])
{
    vreal t[TC_LANES];
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i += 4) {
        const vreal a = TC_SHUFFLE(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13), b = TC_SHUFFLE(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
        const vreal c = TC_SHUFFLE(r[i + 2], r[i + 3], 0, 8, 1, 9, 4, 12, 5, 13);
        const vreal d = TC_SHUFFLE(r[i + 2], r[i + 3], 2, 10, 3, 11, 6, 14, 7, 15);
        t[i] = TC_SHUFFLE(a, c, 0, 1, 8, 9, 4, 5, 12, 13);
        t[i + 1] = TC_SHUFFLE(a, c, 2, 3, 10, 11, 6, 7, 14, 15);
        t[i + 2] = TC_SHUFFLE(b, d, 0, 1, 8, 9, 4, 5, 12, 13);
        t[i + 3] = TC_SHUFFLE(b, d, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    TC_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = TC_SHUFFLE(t[i], t[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = TC_SHUFFLE(t[i], t[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
#else
TC_INLINE void v_transpose_by_halves(vreal r[TC_LANES]) { v_transpose(r); }
#endif

#endif
