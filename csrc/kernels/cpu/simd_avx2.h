/* simd_avx2.h: 32-byte vectors for AVX2 with FMA. Included by simd.h only. */
#ifndef TC_SIMD_AVX2_H
#define TC_SIMD_AVX2_H

#include <immintrin.h>

#if TC_PRECISION == 32
#define TC_LANES 8
typedef float vreal __attribute__((vector_size(32)));
typedef __m256 vmask; /* all bits of a lane set or clear */
#define V256(op) _mm256_##op##_ps
#define V256CMP _mm256_cmp_ps
#else
#define TC_LANES 4
typedef double vreal __attribute__((vector_size(32)));
typedef __m256d vmask;
#define V256(op) _mm256_##op##_pd
#define V256CMP _mm256_cmp_pd
#endif

/* The first n lanes, 0 <= n <= TC_LANES, as an integer vector. */
TC_INLINE __m256i v_first_bits(int n)
{
#if TC_PRECISION == 32
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
#else
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
#endif
}

#if TC_PRECISION == 32
TC_INLINE vmask v_first(int n) { return _mm256_castsi256_ps(v_first_bits(n)); }
#else
TC_INLINE vmask v_first(int n) { return _mm256_castsi256_pd(v_first_bits(n)); }
#endif

TC_INLINE vreal v_set1(real x) { return V256(set1)(x); }
TC_INLINE vreal v_load(const real *p) { return V256(loadu)(p); }
TC_INLINE void v_store(real *p, vreal x) { V256(storeu)(p, x); }
TC_INLINE vreal v_load_n(const real *p, int n) { return V256(maskload)(p, v_first_bits(n)); } /* other lanes are 0, not read */
/* 16 bytes from p, then 16 from q: by loads alone, where a shuffle of lanes across the middle takes three cycles of one port. */
#define V_LOADS_HALVES
#if TC_PRECISION == 32
TC_INLINE vreal v_load_halves(const real *p, const real *q)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
}
#else
TC_INLINE vreal v_load_halves(const real *p, const real *q)
{
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(p)), _mm_loadu_pd(q), 1);
}
#endif
#define V_REPEATS_PIECES
#if TC_PRECISION == 32
TC_INLINE vreal v_repeat_piece(const real *p)
{
    return _mm256_broadcast_ps((const __m128 *)(const void *)p);
} /* 16 bytes, again and again */
#else
TC_INLINE vreal v_repeat_piece(const real *p) { return _mm256_broadcast_pd((const __m128d *)(const void *)p); }
#endif
TC_INLINE void v_store_n(real *p, vreal x, int n) { V256(maskstore)(p, v_first_bits(n), x); }

TC_INLINE vreal v_fma(vreal a, vreal b, vreal c) { return V256(fmadd)(a, b, c); }   /* a * b + c */
TC_INLINE vreal v_fnma(vreal a, vreal b, vreal c) { return V256(fnmadd)(a, b, c); } /* c - a * b */
TC_INLINE vreal v_max(vreal a, vreal b) { return V256(max)(a, b); }                 /* a > b ? a : b, so b when either is NaN */
TC_INLINE vreal v_min(vreal a, vreal b) { return V256(min)(a, b); }                 /* a < b ? a : b, so b when either is NaN */
TC_INLINE vreal v_sqrt(vreal x) { return V256(sqrt)(x); }
TC_INLINE vreal v_abs(vreal x) { return V256(andnot)(V256(set1)(R(-0.0)), x); }
TC_INLINE vreal v_floor(vreal x) { return V256(floor)(x); }
TC_INLINE vreal v_round(vreal x) { return V256(round)(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TC_INLINE vreal v_nearest(vreal x) { return v_round(x); }

/* 2^n as a bit pattern, n integral and within the normal range. */
TC_INLINE vreal v_pow2(vreal n)
{
#if TC_PRECISION == 32
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
#else
    /* 2^52 + 2^51 + n puts n + 2^51 into the low mantissa bits */
    __m256d magic = _mm256_set1_pd(6755399441055744.0);
    __m256i e = _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(n, magic)), _mm256_castpd_si256(magic));
    return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_add_epi64(e, _mm256_set1_epi64x(1023)), 52));
#endif
}

TC_INLINE vmask v_lt(vreal a, vreal b) { return V256CMP(a, b, _CMP_LT_OQ); }
TC_INLINE vmask v_le(vreal a, vreal b) { return V256CMP(a, b, _CMP_LE_OQ); }
TC_INLINE vmask v_eq(vreal a, vreal b) { return V256CMP(a, b, _CMP_EQ_OQ); }
TC_INLINE vmask v_isnan(vreal a) { return V256CMP(a, a, _CMP_UNORD_Q); }
TC_INLINE vmask v_and(vmask a, vmask b) { return V256(and)(a, b); }
TC_INLINE vmask v_or(vmask a, vmask b) { return V256(or)(a, b); }
#if TC_PRECISION == 32
TC_INLINE vmask v_not(vmask a) { return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1))); }
#else
TC_INLINE vmask v_not(vmask a) { return _mm256_xor_pd(a, _mm256_castsi256_pd(_mm256_set1_epi32(-1))); }
#endif
TC_INLINE bool v_any(vmask a) { return V256(movemask)(a) != 0; }
TC_INLINE int v_first_set(vmask a) { return __builtin_ctz((unsigned)V256(movemask)(a)); } /* of a mask that is not empty */
TC_INLINE vreal v_select(vmask m, vreal a, vreal b) { return V256(blendv)(b, a, m); }     /* m ? a : b */

#if TC_PRECISION == 32
#define V_WIDENS_AT_ONCE /* GCC makes two conversions of the one that vectors express */
TC_INLINE __m256d v_wide_load(const real *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
TC_INLINE void v_wide_store(real *p, __m256d x) { _mm_storeu_ps(p, _mm256_cvtpd_ps(x)); }

#define V_CONVERTS_HALVES /* by instructions, not by arithmetic that takes longer than most functions */

/* TC_LANES halves, in the form of float16 or bfloat16. */
typedef __m128i vhalf;
TC_INLINE vhalf v_half_load(const uint16_t *p) { return _mm_loadu_si128((const __m128i_u *)(const void *)p); }
TC_INLINE void v_half_store(uint16_t *p, vhalf x) { _mm_storeu_si128((__m128i_u *)(void *)p, x); }
/* n <= 4 halves, by loads that overlap: through memory they would be waited for. */
TC_INLINE uint64_t v_first_halves(const uint16_t *p, int n)
{
    uint64_t four = 0;
    uint32_t two, last;
    if (n >= 4) {
        __builtin_memcpy(&four, p, 8);
    } else if (n >= 2) {
        __builtin_memcpy(&two, p, 4);
        __builtin_memcpy(&last, p + n - 2, 4);
        four = two | (uint64_t)last << 16 * (n - 2);
    } else if (n > 0) {
        four = *p;
    }
    return four;
}
TC_INLINE vhalf v_half_load_n(const uint16_t *p, int n)
{
    const uint64_t first = v_first_halves(p, n), rest = n > 4 ? v_first_halves(p + 4, n - 4) : 0;
    return _mm_set_epi64x((long long)rest, (long long)first);
}
TC_INLINE void v_half_store_n(uint16_t *p, vhalf x, int n) /* n < TC_LANES */
{
    uint64_t four = (uint64_t)_mm_cvtsi128_si64(x);
    if (n >= 4) {
        __builtin_memcpy(p, &four, 8);
        four = (uint64_t)_mm_extract_epi64(x, 1);
        p += 4, n -= 4;
    }
    if (n >= 2) {
        __builtin_memcpy(p, &four, 4);
        four >>= 32;
        p += 2, n -= 2;
    }
    if (n) *p = (uint16_t)four;
}
TC_INLINE vreal v_from_bfloat16(vhalf x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
TC_INLINE vreal v_from_float16(vhalf x) { return _mm256_cvtph_ps(x); }
TC_INLINE vhalf v_low_halves(__m256i x) /* of lanes below 2^16 */
{
    return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}
TC_INLINE vhalf v_upper_halves(vreal x) { return v_low_halves(_mm256_srli_epi32(_mm256_castps_si256(x), 16)); }
TC_INLINE vhalf v_to_float16(vreal x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TC_INLINE vhalf v_to_bfloat16(vreal x)
{
    const __m256i bits = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)); /* stays NaN */
    return v_low_halves(_mm256_srli_epi32(_mm256_blendv_epi8(rounded, nan, _mm256_castps_si256(v_isnan(x))), 16));
}
#endif

/* Lane i is set when byte i is not zero; reads the first n bytes. */
TC_INLINE vmask v_mask_bytes(const uint8_t *p, int n)
{
    uint64_t word = 0;
    if (n == 8)
        __builtin_memcpy(&word, p, 8);
    else if (n == 4)
        __builtin_memcpy(&word, p, 4);
    else
        for (int i = 0; i < n; i++) word |= (uint64_t)p[i] << (8 * i);
#if TC_PRECISION == 32
    __m256i lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)word));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(lanes, _mm256_setzero_si256()));
#else
    __m256i lanes = _mm256_cvtepu8_epi64(_mm_cvtsi64_si128((long long)word));
    return _mm256_castsi256_pd(_mm256_cmpgt_epi64(lanes, _mm256_setzero_si256()));
#endif
}

#endif
