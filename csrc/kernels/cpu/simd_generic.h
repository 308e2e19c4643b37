/* simd_generic.h: 16-byte vectors from GCC vector extensions, for any processor. Included by simd.h only. */
#ifndef TC_SIMD_GENERIC_H
#define TC_SIMD_GENERIC_H

#include "simd_16_bytes.h"

TC_INLINE vreal v_set1(real x) { return x - (vreal){0}; }
TC_INLINE vreal v_load(const real *p)
{
    vreal x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
TC_INLINE void v_store(real *p, vreal x) { __builtin_memcpy(p, &x, sizeof x); }
TC_INLINE vreal v_load_n(const real *p, int n) /* other lanes are 0, not read */
{
    vreal x = {0};
    for (int i = 0; i < n; i++) x[i] = p[i];
    return x;
}
TC_INLINE void v_store_n(real *p, vreal x, int n)
{
    for (int i = 0; i < n; i++) p[i] = x[i];
}

TC_INLINE bool v_any(vmask a)
{
    ireal any = 0;
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i++) any |= a[i];
    return any != 0;
}
TC_INLINE int v_first_set(vmask a) /* of a mask that is not empty */
{
    int lane = 0;
    while (!a[lane]) lane++;
    return lane;
}
TC_INLINE vmask v_first(int n)
{
    vmask m = {0};
    for (int i = 0; i < n; i++) m[i] = -1;
    return m;
}

TC_INLINE vreal v_fma(vreal a, vreal b, vreal c) { return a * b + c; } /* rounded twice: there is no portable fast fused form */
TC_INLINE vreal v_fnma(vreal a, vreal b, vreal c) { return c - a * b; }
TC_INLINE vreal v_sqrt(vreal x)
{
    TC_UNROLL
    for (int i = 0; i < TC_LANES; i++) x[i] = real_sqrt(x[i]);
    return x;
}
TC_INLINE vreal v_floor(vreal x)
{
    for (int i = 0; i < TC_LANES; i++) x[i] = real_floor(x[i]);
    return x;
}
/* To the nearest integer, ties to even, of any size: slower than v_round. */
TC_INLINE vreal v_nearest(vreal x)
{
    for (int i = 0; i < TC_LANES; i++) x[i] = real_rint(x[i]);
    return x;
}
TC_INLINE vreal v_abs(vreal x) { return (vreal)((vmask)x & ~(vmask)v_set1(R(-0.0))); }

/* To the nearest integer, ties to even, for |x| below 2^22 (2^51): adding and subtracting 1.5 * 2^23 (2^52). Larger values are returned
 * unchanged. */
TC_INLINE vreal v_round(vreal x)
{
#if TC_PRECISION == 32
    const vreal magic = v_set1(12582912.0f), limit = v_set1(4194304.0f);
#else
    const vreal magic = v_set1(6755399441055744.0), limit = v_set1(2251799813685248.0);
#endif
    vreal rounded = (x + magic) - magic;
    return v_select(v_lt(v_abs(x), limit), rounded, x);
}

/* 2^n as a bit pattern, n integral and within the normal range. */
TC_INLINE vreal v_pow2(vreal n)
{
#if TC_PRECISION == 32
    const vreal magic = v_set1(12582912.0f);
    vmask e = (vmask)(n + magic) - (vmask)magic;
    return (vreal)((e + 127) << 23);
#else
    const vreal magic = v_set1(6755399441055744.0);
    vmask e = (vmask)(n + magic) - (vmask)magic;
    return (vreal)((e + 1023) << 52);
#endif
}

#if TC_PRECISION == 32
typedef uint32_t vbits __attribute__((vector_size(16)));
/* The conversions of half.h, lane by lane. */
TC_INLINE vbits v_half_bits(vhalf x) { return __builtin_convertvector(x, vbits); }
TC_INLINE vreal v_from_bfloat16(vhalf x) { return (vreal)(v_half_bits(x) << 16); }
TC_INLINE vreal v_from_float16(vhalf x)
{
    const vbits bits = v_half_bits(x), magnitude = bits & 0x7FFFu, moved = magnitude << 13;
    const vbits finite = (vbits)((vreal)moved * v_set1(0x1p112f)); /* shifts the exponent's bias, of denormals as well */
    const vbits special = (vbits)(magnitude >= 0x7C00u);
    return (vreal)(((bits & 0x8000u) << 16) | (special & (moved | 0x7F800000u)) | (~special & finite));
}
TC_INLINE vhalf v_upper_halves(vreal x) { return __builtin_convertvector((vbits)x >> 16, vhalf); }
TC_INLINE vhalf v_to_bfloat16(vreal x)
{
    const vbits bits = (vbits)x, rounded = bits + 0x7FFFu + ((bits >> 16) & 1u), nan = (vbits)v_isnan(x);
    return v_upper_halves((vreal)((nan & (bits | 0x400000u)) | (~nan & rounded)));
}
TC_INLINE vhalf v_to_float16(vreal x)
{
    const vbits bits = (vbits)x, magnitude = bits & 0x7FFFFFFFu;
    const vbits is_nan = (vbits)(magnitude > 0x7F800000u), is_large = (vbits)(magnitude >= 0x477FF000u) & ~is_nan;
    const vbits is_small = (vbits)(magnitude < 0x38800000u);
    const vbits nan = 0x7E00u | ((magnitude >> 13) & 0x3FFu), large = is_large & 0x7C00u;
    const vbits small = (vbits)((vreal)magnitude + v_set1(0.5f)) - 0x3F000000u; /* denormal: the adder rounds at 2^-24 */
    const vbits normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    const vbits half = (is_nan & nan) | large | (is_small & small) | (~(is_nan | is_large | is_small) & normal);
    return __builtin_convertvector(((bits >> 16) & 0x8000u) | half, vhalf);
}
#endif

/* Lane i is set when byte i is not zero; reads the first n bytes. */
TC_INLINE vmask v_mask_bytes(const uint8_t *p, int n)
{
    vmask m = {0};
    for (int i = 0; i < n; i++) m[i] = p[i] ? -1 : 0;
    return m;
}

#endif
