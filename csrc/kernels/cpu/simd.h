/* simd.h: vectors of a width that is fixed at compile time.
 *
 * Every CPU kernel source is compiled once per instruction set and precision, with
 *     -DTC_ISA=avx512|avx2|neon|baseline   the suffix of the function names; the compiler flags (-DTC_NEON) choose the vectors below
 *     -DTC_PRECISION=32|64            real is float or double
 *     -ffp-contract=off               a multiply and an add are fused only where v_fma says so
 * and sees: real, vreal (TC_LANES of them), vmask, and the v_ functions. + - * / work on vreal directly. The baseline uses
 * nothing but GCC vector extensions, so it compiles for any processor.
 *
 * Rule for bits: tails go through v_load_n / v_store_n and the same vector code, never through scalar code of their own,
 * so that an element's value does not depend on where in a range it falls.
 */
#ifndef TC_SIMD_H
#define TC_SIMD_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Method 16, of processors with arithmetic of float16, rounds floats and doubles as method 0 does. */
#if defined(__FAST_MATH__) || (FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16)
#error "results would be wrong: compile without -ffast-math, and on 32-bit x86 with -msse2 -mfpmath=sse"
#endif

#define TC_PASTE4_(a, b, c, d) a##b##c##d
#define TC_PASTE4(a, b, c, d) TC_PASTE4_(a, b, c, d)
#define TC_INLINE static inline __attribute__((always_inline))
#define TC_PRAGMA(words) _Pragma(#words)
#ifdef __clang__ /* of which the releases before 20 skip GCC's pragmas: the sums of a tile would be in memory */
#define TC_UNROLL TC_PRAGMA(clang loop unroll(full))
#define TC_UNROLL_BY(count) TC_PRAGMA(clang loop unroll_count(count))
#else
#define TC_UNROLL TC_PRAGMA(GCC unroll 32)
#define TC_UNROLL_BY(count) TC_PRAGMA(GCC unroll count)
#endif

#if TC_PRECISION == 32
typedef float real;
typedef int32_t ireal; /* the integer as wide as real */
#define TC_REAL_SUFFIX _f32_
#define R(x) x##f /* a literal of type real: R(0.5) */
#define real_exp expf
#define real_log logf
#define real_sin sinf
#define real_cos cosf
#define real_tanh tanhf
#define real_erf erff
#define real_sqrt sqrtf
#define real_pow powf
#define real_log1p log1pf
#define real_fmod fmodf
#define real_floor floorf
#define real_rint rintf
#elif TC_PRECISION == 64
typedef double real;
typedef int64_t ireal;
#define TC_REAL_SUFFIX _f64_
#define R(x) x
#define real_exp exp
#define real_log log
#define real_sin sin
#define real_cos cos
#define real_tanh tanh
#define real_erf erf
#define real_sqrt sqrt
#define real_pow pow
#define real_log1p log1p
#define real_fmod fmod
#define real_floor floor
#define real_rint rint
#else
#error "compile with -DTC_PRECISION=32 or 64"
#endif

/* tc_layer_norm_forward_f32_avx512 and so on */
#define TC_KERNEL(name) TC_PASTE4(tc_, name, TC_REAL_SUFFIX, TC_ISA)
/* Before the definition of a kernel, which other files know only through its row of kernels.def. */
#define TC_DEFINE_KERNEL(name)                                                                                                             \
    void TC_KERNEL(name)(const void *args, int64_t begin, int64_t end, void *scratch);                                                     \
    void TC_KERNEL(name)

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include "simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "simd_avx2.h"
#elif defined(TC_NEON)
#include "simd_neon.h"
#else
#include "simd_generic.h"
#endif

/* ---- what follows is the same for every width ------------------------------------------------------------------ */

TC_INLINE vreal v_zero(void) { return v_set1(R(0.0)); }
TC_INLINE vreal v_neg(vreal x) { return v_zero() - x; }
#ifndef V_REPEATS_PIECES
TC_INLINE vreal v_repeat_piece(const real *p) { return v_load(p); }
#endif
#ifndef V_SCALE2_IS_ONE_INSTRUCTION
/* x * 2^n in two steps, so that denormal and overflowing results are correct. |n| within twice the exponent range. */
TC_INLINE vreal v_scale2(vreal x, vreal n)
{
    vreal half = v_round(n * v_set1(R(0.5)));
    return x * v_pow2(half) * v_pow2(n - half);
}
#endif

/* TC_WIDE_LANES elements as doubles, from and to memory. */
typedef double vwide __attribute__((vector_size(sizeof(vreal))));
#define TC_WIDE_LANES ((int)(sizeof(vwide) / sizeof(double)))
#ifndef V_WIDENS_AT_ONCE
typedef real v_some_lanes __attribute__((vector_size(sizeof(vwide) / sizeof(double) * sizeof(real))));
TC_INLINE vwide v_wide_load(const real *p)
{
    v_some_lanes x;
    __builtin_memcpy(&x, p, sizeof x);
    return __builtin_convertvector(x, vwide);
}
TC_INLINE void v_wide_store(real *p, vwide x)
{
    const v_some_lanes narrow = __builtin_convertvector(x, v_some_lanes);
    __builtin_memcpy(p, &narrow, sizeof narrow);
}
#endif

/* The lanes folded by halves down to 16 bytes, then one by one: a balanced tree, whose order is part of the result and the same in every
 * kernel. */
typedef real v_32_bytes __attribute__((vector_size(32)));
typedef real v_16_bytes __attribute__((vector_size(16)));
TC_INLINE real v_sum(vreal x)
{
    v_32_bytes wide[2];
    v_16_bytes narrow[2];
    real lane[16 / sizeof(real)];
    const void *rest = &x; /* NOLINT(clang-analyzer-deadcode.DeadStores): vectors of 16 and 32 bytes begin here */
    if (sizeof x == 64) {
        __builtin_memcpy(wide, &x, sizeof x < sizeof wide ? sizeof x : sizeof wide);
        wide[0] = wide[0] + wide[1];
        rest = &wide[0];
    }
    if (sizeof x >= 32) {
        __builtin_memcpy(narrow, rest, sizeof narrow);
        narrow[0] = narrow[0] + narrow[1];
        rest = &narrow[0];
    }
    __builtin_memcpy(lane, rest, sizeof lane);
    return sizeof(real) == 4 ? (lane[0] + lane[2]) + (lane[1] + lane[sizeof lane / sizeof(real) - 1]) : lane[0] + lane[1];
}

/* Largest lane. */
TC_INLINE real v_hmax(vreal x)
{
    real lane[TC_LANES];
    __builtin_memcpy(lane, &x, sizeof x);
    TC_UNROLL
    for (int width = TC_LANES / 2; width > 0; width /= 2) TC_UNROLL
    for (int i = 0; i < width; i++) lane[i] = lane[i] > lane[i + width] ? lane[i] : lane[i + width];
    return lane[0];
}

/* For loops over n elements: how many lanes are left at i. */
TC_INLINE int v_left(int64_t n, int64_t i) { return n - i < TC_LANES ? (int)(n - i) : TC_LANES; }

/* Full vectors take the fast load and store. `lanes` is v_left(n, i). */
TC_INLINE vreal v_load_some(const real *p, int lanes) { return lanes == TC_LANES ? v_load(p) : v_load_n(p, lanes); }
TC_INLINE void v_store_some(real *p, vreal x, int lanes)
{
    if (lanes == TC_LANES)
        v_store(p, x);
    else
        v_store_n(p, x, lanes);
}

#endif
