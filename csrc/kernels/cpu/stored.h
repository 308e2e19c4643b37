/* stored.h: operands whose elements may be halves: widened when read, rounded to nearest even when written, as half.h does, which is
 * tested.
 *
 * Pass `stored` as a constant in loops that matter. With float64 there are no halves. */
#ifndef TC_KERNELS_CPU_STORED_H
#define TC_KERNELS_CPU_STORED_H

#include "../types.h"
#include "half.h"
#include "simd.h"

TC_INLINE int64_t stored_size(tc_stored stored) { return stored == TC_STORED_AS_COMPUTED ? (int64_t)sizeof(real) : 2; }

/* Element i of an operand. */
TC_INLINE const void *stored_at(const void *p, tc_stored stored, int64_t i) { return (const char *)p + i * stored_size(stored); }
TC_INLINE void *stored_to(void *p, tc_stored stored, int64_t i) { return (char *)p + i * stored_size(stored); }

#if TC_PRECISION == 32
TC_INLINE vreal v_load_stored(const void *p, tc_stored stored, int lanes)
{
    if (stored == TC_STORED_AS_COMPUTED) return v_load_some(p, lanes);
    const vhalf halves = lanes == TC_LANES ? v_half_load(p) : v_half_load_n(p, lanes);
    return stored == TC_STORED_FLOAT16 ? v_from_float16(halves) : v_from_bfloat16(halves);
}

TC_INLINE void v_store_halves(void *p, vhalf halves, int lanes)
{
    if (lanes == TC_LANES)
        v_half_store(p, halves);
    else
        v_half_store_n(p, halves, lanes);
}

TC_INLINE void v_store_stored(void *p, tc_stored stored, vreal x, int lanes)
{
    if (stored == TC_STORED_AS_COMPUTED)
        v_store_some(p, x, lanes);
    else
        v_store_halves(p, stored == TC_STORED_FLOAT16 ? v_to_float16(x) : v_to_bfloat16(x), lanes);
}

TC_INLINE real load_stored(const void *p, tc_stored stored)
{
    if (stored == TC_STORED_AS_COMPUTED) return *(const real *)p;
    const uint16_t half = *(const uint16_t *)p;
    return stored == TC_STORED_FLOAT16 ? tc_from_float16(half) : tc_from_bfloat16(half);
}
#else
TC_INLINE vreal v_load_stored(const void *p, tc_stored stored, int lanes) { return (void)stored, v_load_some(p, lanes); }
TC_INLINE void v_store_stored(void *p, tc_stored stored, vreal x, int lanes) { (void)stored, v_store_some(p, x, lanes); }
TC_INLINE real load_stored(const void *p, tc_stored stored) { return (void)stored, *(const real *)p; }
#endif

#if TC_PRECISION == 32
/* Words of two bfloat16. */
typedef uint32_t vwords __attribute__((vector_size(sizeof(vreal))));
TC_INLINE vreal v_lower_bfloat16(vreal words) { return (vreal)((vwords)words << 16); }
TC_INLINE vreal v_upper_bfloat16(vreal words) { return (vreal)((vwords)words & 0xFFFF0000u); }
TC_INLINE vreal v_join_bfloat16(vreal lower, vreal upper) { return (vreal)((vwords)lower >> 16 | (vwords)upper); } /* widened ones */

/* Words of two bfloat16, rounded as v_to_bfloat16 does. */
TC_INLINE vwords v_rounded_bits(vreal x) { return (vwords)x + ((vwords)x >> 16 & 1) + 0x7FFF; }
TC_INLINE vreal v_round_words(vreal lower, vreal upper)
{
    const vmask nan_lower = v_isnan(lower), nan_upper = v_isnan(upper);
    vreal a = (vreal)v_rounded_bits(lower), b = (vreal)v_rounded_bits(upper);
    if (__builtin_expect(v_any(v_or(nan_lower, nan_upper)), 0)) { /* which stay NaN */
        a = v_select(nan_lower, (vreal)((vwords)lower | 0x400000), a);
        b = v_select(nan_upper, (vreal)((vwords)upper | 0x400000), b);
    }
    return v_join_bfloat16(a, v_upper_bfloat16(b));
}
#endif

/* function(stored, ...) with `stored` as a constant. */
#if TC_PRECISION == 32
#define WITH_STORED(stored, function, ...)                                                                                                 \
    switch (stored) {                                                                                                                      \
    case TC_STORED_FLOAT16: function(TC_STORED_FLOAT16, __VA_ARGS__); break;                                                               \
    case TC_STORED_BFLOAT16: function(TC_STORED_BFLOAT16, __VA_ARGS__); break;                                                             \
    default: function(TC_STORED_AS_COMPUTED, __VA_ARGS__);                                                                                 \
    }
#else
#define WITH_STORED(stored, function, ...) ((void)(stored), function(TC_STORED_AS_COMPUTED, __VA_ARGS__))
#endif

/* to (n) <- n adjacent elements of an operand. */
TC_INLINE void read_stored(real *to, const void *from, tc_stored stored, int64_t n)
{
    for (int64_t i = 0; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        v_store_some(to + i, v_load_stored(stored_at(from, stored, i), stored, lanes), lanes);
    }
}

/* n adjacent elements of an operand <- from (n). */
TC_INLINE void write_stored_as(const tc_stored stored, void *to, const real *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        v_store_stored(stored_to(to, stored, i), stored, v_load_some(from + i, lanes), lanes);
    }
}
TC_INLINE void write_stored(void *to, const real *from, tc_stored stored, int64_t n) { WITH_STORED(stored, write_stored_as, to, from, n); }

#endif
