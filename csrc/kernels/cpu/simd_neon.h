/* simd_neon.h: 16-byte vectors for the Advanced SIMD instructions of 64-bit Arm, which every such processor has. Included by simd.h only.
 */
#ifndef TC_SIMD_NEON_H
#define TC_SIMD_NEON_H

#include <arm_neon.h>

#include "simd_16_bytes.h"

#if TC_PRECISION == 32
typedef uint32x4_t v_unsigned;
#define VNEON(op) op##_f32
#else
typedef uint64x2_t v_unsigned;
#define VNEON(op) op##_f64
#endif
#define V_FMA_TAKES_A_LANE /* v_fma(v_set_lane(a, lane), b, c) is one instruction */

TC_INLINE vreal v_set1(real x) { return VNEON(vdupq_n)(x); }
TC_INLINE vreal v_load(const real *p) { return VNEON(vld1q)(p); }
TC_INLINE void v_store(real *p, vreal x) { VNEON(vst1q)(p, x); }
/* Lane `lane` of x in every lane, where v_fma takes it from there. */
#if TC_PRECISION == 32
TC_INLINE vreal v_set_lane(vreal x, const int lane)
{
    return lane == 0   ? vdupq_laneq_f32(x, 0)
           : lane == 1 ? vdupq_laneq_f32(x, 1)
           : lane == 2 ? vdupq_laneq_f32(x, 2)
                       : vdupq_laneq_f32(x, 3);
}
#else
TC_INLINE vreal v_set_lane(vreal x, const int lane) { return lane == 0 ? vdupq_laneq_f64(x, 0) : vdupq_laneq_f64(x, 1); }
#endif
/* The first n lanes; the others are 0, not read. */
TC_INLINE vreal v_load_n(const real *p, int n)
{
    if (n == TC_LANES) return v_load(p);
    vreal x = {0};
#if TC_PRECISION == 32
    if (n >= 2) x = vcombine_f32(vld1_f32(p), vdup_n_f32(0));
    if (n == 3) x = vld1q_lane_f32(p + 2, x, 2);
#endif
    if (n == 1) x = VNEON(vld1q_lane)(p, x, 0);
    return x;
}
TC_INLINE void v_store_n(real *p, vreal x, int n)
{
    if (n == TC_LANES) v_store(p, x);
#if TC_PRECISION == 32
    if (n == 2 || n == 3) vst1_f32(p, vget_low_f32(x));
    if (n == 3) vst1q_lane_f32(p + 2, x, 2);
#endif
    if (n == 1) VNEON(vst1q_lane)(p, x, 0);
}

#if TC_PRECISION == 32
TC_INLINE vmask v_first(int n) { return (vmask){0, 1, 2, 3} < n; } /* the first n lanes, 0 <= n <= TC_LANES */
TC_INLINE bool v_any(vmask a) { return vmaxvq_u32((v_unsigned)a) != 0; }
TC_INLINE int v_first_set(vmask a) /* of a mask that is not empty */
{
    return __builtin_ctzll(vget_lane_u64(vreinterpret_u64_u16(vmovn_u32((v_unsigned)a)), 0)) / 16;
}
#else
TC_INLINE vmask v_first(int n) { return (vmask){0, 1} < n; }
TC_INLINE bool v_any(vmask a) { return (a[0] | a[1]) != 0; }
TC_INLINE int v_first_set(vmask a) { return a[0] ? 0 : 1; }
#endif

TC_INLINE vreal v_fma(vreal a, vreal b, vreal c) { return VNEON(vfmaq)(c, a, b); }  /* a * b + c */
TC_INLINE vreal v_fnma(vreal a, vreal b, vreal c) { return VNEON(vfmsq)(c, a, b); } /* c - a * b */
TC_INLINE vreal v_sqrt(vreal x) { return VNEON(vsqrtq)(x); }
TC_INLINE vreal v_abs(vreal x) { return VNEON(vabsq)(x); }
TC_INLINE vreal v_floor(vreal x) { return VNEON(vrndmq)(x); }
TC_INLINE vreal v_round(vreal x) { return VNEON(vrndnq)(x); } /* to nearest, ties to even */
TC_INLINE vreal v_nearest(vreal x) { return v_round(x); }

/* 2^n as a bit pattern, n integral and within the normal range. */
TC_INLINE vreal v_pow2(vreal n)
{
#if TC_PRECISION == 32
    return (vreal)((vcvtq_s32_f32(n) + 127) << 23);
#else
    return (vreal)((vcvtq_s64_f64(n) + 1023) << 52);
#endif
}

#if TC_PRECISION == 32
TC_INLINE vreal v_from_bfloat16(vhalf x) { return (vreal)vshll_n_u16(x, 16); }
TC_INLINE vreal v_from_float16(vhalf x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }
TC_INLINE vhalf v_upper_halves(vreal x) { return vshrn_n_u32((v_unsigned)x, 16); }
TC_INLINE vhalf v_to_float16(vreal x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
TC_INLINE vhalf v_to_bfloat16(vreal x)
{
    const v_unsigned bits = (v_unsigned)x, rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
    return v_upper_halves(v_select(v_isnan(x), (vreal)(bits | 0x400000u), (vreal)rounded)); /* NaN stays NaN */
}
#endif

/* Lane i is set when byte i is not zero; reads the first n bytes. */
TC_INLINE vmask v_mask_bytes(const uint8_t *p, int n)
{
    uint32_t word = 0;
    if (n == 4)
        __builtin_memcpy(&word, p, 4);
    else
        for (int i = 0; i < n; i++) word |= (uint32_t)p[i] << (8 * i);
    const uint32x4_t lanes = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word))));
#if TC_PRECISION == 32
    return (vmask)(lanes != 0);
#else
    return (vmask)(vmovl_u32(vget_low_u32(lanes)) != 0);
#endif
}

#endif
