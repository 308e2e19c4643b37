/* simd_avx512.h: 64-byte vectors for AVX-512 F, DQ, BW, VL. Included by simd.h only. */
#ifndef TC_SIMD_AVX512_H
#define TC_SIMD_AVX512_H

#include <immintrin.h>

#if TC_PRECISION == 32
#define TC_LANES 16
typedef float vreal __attribute__((vector_size(64)));
typedef __mmask16 vmask;
#define V512(op) _mm512_##op##_ps
#define V512CMP _mm512_cmp_ps_mask
#else
#define TC_LANES 8
typedef double vreal __attribute__((vector_size(64)));
typedef __mmask8 vmask;
#define V512(op) _mm512_##op##_pd
#define V512CMP _mm512_cmp_pd_mask
#endif

TC_INLINE vmask v_first(int n) { return (vmask)((1u << n) - 1u); } /* the first n lanes, 0 <= n <= TC_LANES */

TC_INLINE vreal v_set1(real x) { return V512(set1)(x); }
TC_INLINE vreal v_load(const real *p) { return V512(loadu)(p); }
TC_INLINE void v_store(real *p, vreal x) { V512(storeu)(p, x); }
TC_INLINE vreal v_load_n(const real *p, int n) { return V512(maskz_loadu)(v_first(n), p); } /* other lanes are 0, not read */
TC_INLINE void v_store_n(real *p, vreal x, int n) { V512(mask_storeu)(p, v_first(n), x); }
/* 16 bytes from each: by loads and one instruction of whole vectors. */
#define V_LOADS_QUARTERS
#if TC_PRECISION == 32
TC_INLINE vreal v_load_quarters(const real *p, const real *q, const real *r, const real *s)
{
    const __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
    const __m256 high = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(r)), _mm_loadu_ps(s), 1);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
#else
TC_INLINE vreal v_load_quarters(const real *p, const real *q, const real *r, const real *s)
{
    const __m256d low = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(p)), _mm_loadu_pd(q), 1);
    const __m256d high = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(r)), _mm_loadu_pd(s), 1);
    return _mm512_insertf64x4(_mm512_castpd256_pd512(low), high, 1);
}
#endif

#define V_REPEATS_PIECES
#if TC_PRECISION == 32
TC_INLINE vreal v_repeat_piece(const real *p) { return _mm512_broadcast_f32x4(_mm_loadu_ps(p)); } /* 16 bytes, again and again */
#else
TC_INLINE vreal v_repeat_piece(const real *p) { return _mm512_broadcast_f64x2(_mm_loadu_pd(p)); }
#endif

TC_INLINE vreal v_fma(vreal a, vreal b, vreal c) { return V512(fmadd)(a, b, c); }   /* a * b + c */
TC_INLINE vreal v_fnma(vreal a, vreal b, vreal c) { return V512(fnmadd)(a, b, c); } /* c - a * b */
TC_INLINE vreal v_max(vreal a, vreal b) { return V512(max)(a, b); }                 /* a > b ? a : b, so b when either is NaN */
TC_INLINE vreal v_min(vreal a, vreal b) { return V512(min)(a, b); }                 /* a < b ? a : b, so b when either is NaN */
TC_INLINE vreal v_sqrt(vreal x) { return V512(sqrt)(x); }
TC_INLINE vreal v_abs(vreal x) { return V512(abs)(x); }
TC_INLINE vreal v_floor(vreal x) { return V512(roundscale)(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
TC_INLINE vreal v_round(vreal x) { return V512(roundscale)(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TC_INLINE vreal v_nearest(vreal x) { return v_round(x); }
TC_INLINE vreal v_scale2(vreal x, vreal n) { return V512(scalef)(x, n); } /* x * 2^n, n integral, correct over- and underflow */
#define V_SCALE2_IS_ONE_INSTRUCTION

TC_INLINE vmask v_lt(vreal a, vreal b) { return V512CMP(a, b, _CMP_LT_OQ); }
TC_INLINE vmask v_le(vreal a, vreal b) { return V512CMP(a, b, _CMP_LE_OQ); }
TC_INLINE vmask v_eq(vreal a, vreal b) { return V512CMP(a, b, _CMP_EQ_OQ); }
TC_INLINE vmask v_isnan(vreal a) { return V512CMP(a, a, _CMP_UNORD_Q); }
TC_INLINE vmask v_and(vmask a, vmask b) { return (vmask)(a & b); }
TC_INLINE vmask v_or(vmask a, vmask b) { return (vmask)(a | b); }
TC_INLINE vmask v_not(vmask a) { return (vmask)~a; }
TC_INLINE bool v_any(vmask a) { return a != 0; }
TC_INLINE int v_first_set(vmask a) { return __builtin_ctz(a); }                           /* of a mask that is not empty */
TC_INLINE vreal v_select(vmask m, vreal a, vreal b) { return V512(mask_blend)(m, b, a); } /* m ? a : b */

#if TC_PRECISION == 32
#define V_WIDENS_AT_ONCE /* GCC makes two conversions of the one that vectors express */
TC_INLINE __m512d v_wide_load(const real *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
TC_INLINE void v_wide_store(real *p, __m512d x) { _mm256_storeu_ps(p, _mm512_cvtpd_ps(x)); }

#define V_CONVERTS_HALVES /* by instructions, not by arithmetic that takes longer than most functions */

/* TC_LANES halves, in the form of float16 or bfloat16. */
typedef __m256i vhalf;
TC_INLINE vhalf v_half_load(const uint16_t *p) { return _mm256_loadu_si256((const __m256i_u *)(const void *)p); }
TC_INLINE vhalf v_half_load_n(const uint16_t *p, int n) { return _mm256_maskz_loadu_epi16(v_first(n), p); }
TC_INLINE void v_half_store(uint16_t *p, vhalf x) { _mm256_storeu_si256((__m256i_u *)(void *)p, x); }
TC_INLINE void v_half_store_n(uint16_t *p, vhalf x, int n) { _mm256_mask_storeu_epi16(p, v_first(n), x); }
TC_INLINE vreal v_from_bfloat16(vhalf x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
TC_INLINE vreal v_from_float16(vhalf x) { return _mm512_cvtph_ps(x); }
TC_INLINE vhalf v_upper_halves(vreal x) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16)); }
TC_INLINE vhalf v_to_float16(vreal x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TC_INLINE vhalf v_to_bfloat16(vreal x)
{
    const __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __m512i nan = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000)); /* stays NaN */
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(v_isnan(x), rounded, nan), 16));
}
#endif

/* Lane i is set when byte i is not zero; reads the first n bytes. */
TC_INLINE vmask v_mask_bytes(const uint8_t *p, int n)
{
    __m128i bytes = _mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1u), p);
    return (vmask)_mm_test_epi8_mask(bytes, bytes);
}

#endif
