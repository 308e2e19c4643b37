/* lane_sums.h: v_sum() of as many vectors as a vector has lanes, all at once. */
#ifndef TC_KERNELS_CPU_LANE_SUMS_H
#define TC_KERNELS_CPU_LANE_SUMS_H

#include "transpose.h"

typedef int64_t tc_lanes_of_8 __attribute__((vector_size(sizeof(vreal))));
#define TC_SHUFFLE_8(a, b, ...) ((vreal)TC_SHUFFLE_BY(tc_lanes_of_8, (tc_lanes_of_8)(a), (tc_lanes_of_8)(b), __VA_ARGS__))

/* Neighbours within vectors are added: for a its results, then for b. Those of 8 and 4 bytes stay in the 16 bytes that they are in: there
 * a's results come first, then b's. */
#if TC_LANES * TC_PRECISION == 512
TC_INLINE vreal v_add_32_bytes(vreal a, vreal b)
{
    return TC_SHUFFLE_8(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + TC_SHUFFLE_8(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
TC_INLINE vreal v_add_16_bytes(vreal a, vreal b)
{
    return TC_SHUFFLE_8(a, b, 0, 1, 4, 5, 8, 9, 12, 13) + TC_SHUFFLE_8(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
}
#define TC_EVEN_8 0, 8, 2, 10, 4, 12, 6, 14
#define TC_ODD_8 1, 9, 3, 11, 5, 13, 7, 15
#define TC_EVEN_4 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30
#define TC_ODD_4 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31
#elif TC_LANES * TC_PRECISION == 256
TC_INLINE vreal v_add_16_bytes(vreal a, vreal b) { return TC_SHUFFLE_8(a, b, 0, 1, 4, 5) + TC_SHUFFLE_8(a, b, 2, 3, 6, 7); }
#define TC_EVEN_8 0, 4, 2, 6
#define TC_ODD_8 1, 5, 3, 7
#define TC_EVEN_4 0, 2, 8, 10, 4, 6, 12, 14
#define TC_ODD_4 1, 3, 9, 11, 5, 7, 13, 15
#else
#define TC_EVEN_8 0, 2
#define TC_ODD_8 1, 3
#define TC_EVEN_4 0, 2, 4, 6
#define TC_ODD_4 1, 3, 5, 7
#endif
TC_INLINE vreal v_add_8_bytes(vreal a, vreal b) { return TC_SHUFFLE_8(a, b, TC_EVEN_8) + TC_SHUFFLE_8(a, b, TC_ODD_8); }

/* Lane i is v_sum(r[i]), with its bits: the same tree. The vectors whose sums end up in one place of each 16 bytes come together first. */
TC_INLINE vreal v_sums(const vreal r[TC_LANES])
{
    enum { IN_16 = (int)(16 / sizeof(real)) };
    vreal sum[IN_16];
    TC_UNROLL
    for (int i = 0; i < IN_16; i++) {
#if TC_LANES * TC_PRECISION == 512
        sum[i] = v_add_16_bytes(v_add_32_bytes(r[i], r[i + IN_16]), v_add_32_bytes(r[i + 2 * IN_16], r[i + 3 * IN_16]));
#elif TC_LANES * TC_PRECISION == 256
        sum[i] = v_add_16_bytes(r[i], r[i + IN_16]);
#else
        sum[i] = r[i];
#endif
    }
#if TC_PRECISION == 32
    const vreal a = v_add_8_bytes(sum[0], sum[1]), b = v_add_8_bytes(sum[2], sum[3]);
    return TC_SHUFFLE(a, b, TC_EVEN_4) + TC_SHUFFLE(a, b, TC_ODD_4);
#else
    return v_add_8_bytes(sum[0], sum[1]);
#endif
}

/* sums[i] = v_sum(r[i]), i < n. r has room for as many as whole vectors of sums have lanes; the ones beyond n become 0, so that nothing is
 * read that nobody wrote. */
TC_INLINE void sum_lanes(real *sums, vreal *r, int n)
{
    int i = 0;
    for (; n - i > TC_LANES / 4; i += TC_LANES) {
        const int lanes = v_left(n, i);
        for (int k = lanes; k < TC_LANES; k++) r[i + k] = v_zero();
        v_store_some(sums + i, v_sums(r + i), lanes);
    }
    for (; i < n; i++) sums[i] = v_sum(r[i]);
}

#undef TC_SHUFFLE_8
#undef TC_EVEN_8
#undef TC_ODD_8
#undef TC_EVEN_4
#undef TC_ODD_4

#endif
