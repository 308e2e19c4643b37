/* simd_16_bytes.h: what vectors of 16 bytes do alike on every processor, from GCC vector extensions. Included by simd_generic.h and
 * simd_neon.h only. */
#ifndef TC_SIMD_16_BYTES_H
#define TC_SIMD_16_BYTES_H

#define TC_LANES (128 / TC_PRECISION)
typedef real vreal __attribute__((vector_size(16)));
typedef ireal vmask __attribute__((vector_size(16))); /* all bits of a lane set or clear */

TC_INLINE vmask v_lt(vreal a, vreal b) { return (vmask)(a < b); }
TC_INLINE vmask v_le(vreal a, vreal b) { return (vmask)(a <= b); }
TC_INLINE vmask v_eq(vreal a, vreal b) { return (vmask)(a == b); }
TC_INLINE vmask v_isnan(vreal a) { return (vmask)(a != a); }
TC_INLINE vmask v_and(vmask a, vmask b) { return a & b; }
TC_INLINE vmask v_or(vmask a, vmask b) { return a | b; }
TC_INLINE vmask v_not(vmask a) { return ~a; }
/* m ? a : b */
TC_INLINE vreal v_select(vmask m, vreal a, vreal b)
{
#if defined(__GNUC__) && !defined(__clang__) && defined(__SSE2__) && TC_PRECISION == 64
    __asm__("" : "+x"(m)); /* avoids an internal compiler error: gcc 12 recognises the selection, which SSE2 lacks for doubles */
#endif
    return (vreal)(((vmask)a & m) | ((vmask)b & ~m));
}
TC_INLINE vreal v_max(vreal a, vreal b) { return v_select(v_lt(b, a), a, b); } /* a > b ? a : b, so b when either is NaN */
TC_INLINE vreal v_min(vreal a, vreal b) { return v_select(v_lt(a, b), a, b); } /* a < b ? a : b, so b when either is NaN */

#if TC_PRECISION == 32
/* TC_LANES halves, in the form of float16 or bfloat16. */
typedef uint16_t vhalf __attribute__((vector_size(8)));
TC_INLINE vhalf v_half_load(const uint16_t *p)
{
    vhalf x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
TC_INLINE void v_half_store(uint16_t *p, vhalf x) { __builtin_memcpy(p, &x, sizeof x); }
TC_INLINE vhalf v_half_load_n(const uint16_t *p, int n)
{
    vhalf x = {0};
    __builtin_memcpy(&x, p, (size_t)n * sizeof *p);
    return x;
}
TC_INLINE void v_half_store_n(uint16_t *p, vhalf x, int n) { __builtin_memcpy(p, &x, (size_t)n * sizeof *p); }
#endif

#endif
