/* simd_math.h: elementary functions on the vectors of simd.h, the same for every lane and every width.
 *
 * Errors are given in units in the last place (ulp) of the correctly rounded result. Signed zeros, infinities and NaN come out
 * as C's math.h has them.
 */
#ifndef TC_SIMD_MATH_H
#define TC_SIMD_MATH_H

#include "simd.h"

/* e^x = (1 + p) 2^n with |p| < 0.42: returns p. x = n ln2 + r with |r| <= ln2 / 2 and ln2 in two parts, the first short enough
 * that n times it is exact; then p = r + r^2 P(r), where P has the least relative error in e^r over that interval: 2^-28 and
 * 2^-58. |x| is within the exponent's range, or NaN. */
TC_INLINE vreal v_exp_reduced(vreal x, vreal *n)
{
#if TC_PRECISION == 32
    static const real P[] = {0.49999993f, 0.16666520f, 0.041668391f, 0.0083687463f, 0.0013814528f};
    const vreal ln2_high = v_set1(0.693359375f), ln2_low = v_set1(-2.12194440e-4f);
#else
    static const real P[] = {0.500000000000001067,   0.166666666666664115,    0.041666666666529691,   0.00833333333349497572,
                             0.00138888889437690926, 0.000198412695058148935, 2.4801492940811118e-05, 2.75575867442530287e-06,
                             2.7630309198639914e-07, 2.50000429106373455e-08};
    const vreal ln2_high = v_set1(6.93147180369123816490e-01), ln2_low = v_set1(1.90821492927058770002e-10);
#endif
    *n = v_round(x * v_set1(R(1.44269504088896340736)));
    const vreal r = v_fnma(*n, ln2_low, v_fnma(*n, ln2_high, x));
    const int degree = (int)(sizeof P / sizeof P[0]) - 1;
    vreal p = v_set1(P[degree]);
    TC_UNROLL
    for (int i = degree - 1; i >= 0; i--) p = v_fma(p, r, v_set1(P[i]));
    return v_fma(p, r * r, r);
}

/* e^x within 1 ulp: 0 below the smallest denormal (so exp(-inf) = 0), infinity on overflow, NaN for NaN. */
TC_INLINE vreal v_exp(vreal x)
{
#if TC_PRECISION == 32
    const vreal lowest = v_set1(-104.5f), highest = v_set1(89.0f); /* beyond them the result is 0 and infinity */
#else
    const vreal lowest = v_set1(-746.0), highest = v_set1(710.0);
#endif
    vreal n;
    x = v_min(highest, v_max(lowest, x)); /* this order of arguments keeps NaN */
    const vreal p = v_exp_reduced(x, &n);
    return v_scale2(p + v_set1(R(1.0)), n);
}

/* tanh x within 3 ulp, as (e^2x - 1) / (e^2x + 1) with e^2x - 1 computed as such. */
TC_INLINE vreal v_tanh(vreal x)
{
    const vreal one = v_set1(R(1.0));
    vreal n;
    const vreal y = v_min(v_set1(R(40.0)), v_max(v_set1(R(-40.0)), x + x)); /* tanh 20 is 1 to the last bit; NaN stays */
    const vreal p = v_exp_reduced(y, &n);
    const vreal e = v_scale2(p, n) + (v_scale2(one, n) - one);
    return v_select(v_eq(x, v_zero()), x, e / (e + v_set1(R(2.0)))); /* -0 stays -0 */
}

/* The standard normal distribution at x: returns the cumulative Phi(x), and the density in *density. Both tails keep their
 * digits. Phi(-z) = e^(-z^2/2) P(t) / (z + 4) for z >= 0 with t = (z - 4) / (z + 4), where P has the least relative error up
 * to z = 15 and z = 39, beyond which the exponential is 0: 2^-26.7 and 2^-55. */
TC_INLINE vreal v_normal(vreal x, vreal *density)
{
#if TC_PRECISION == 32
    static const real P[] = {0.7552851353f,    -0.6078965799f,   0.3871369165f,   -0.1865236563f,   0.06040348984f,
                             -0.007524004436f, -0.003510212093f, 0.001568407926f, 0.0001746604252f, -0.0001341955978f};
    const vreal farthest = v_set1(15.0f);
#else
    static const real P[] = {0.755285130415751478,    -0.607896641971892049,    0.387137400742219477,    -0.18652185795966542,
                             0.0603965748906662797,   -0.00754018896643511193,  -0.00347969236160698834, 0.00163081845327915358,
                             0.000133344248524798693, -0.000231094903711101945, -1.90784397736959366e-6, 0.0000351445696503285283,
                             7.14975530722088731e-7,  -5.92001121281687558e-6,  -6.25228440397404901e-7, 1.02185712302059817e-6,
                             2.64154541337441356e-7,  -1.56592024688196542e-7,  -7.72103871794677602e-8, 1.60692073088772091e-8,
                             1.46189941279167526e-8,  -3.39033400791378188e-10, -1.19653110338579823e-9};
    const vreal farthest = v_set1(39.0);
#endif
    const vreal four = v_set1(R(4.0)), z = v_min(farthest, v_abs(x)); /* NaN stays */
    const vreal reciprocal = v_set1(R(1.0)) / (z + four), t = (z - four) * reciprocal;
    const int degree = (int)(sizeof P / sizeof P[0]) - 1;
    vreal p = v_set1(P[degree]);
    TC_UNROLL
    for (int i = degree - 1; i >= 0; i--) p = v_fma(p, t, v_set1(P[i]));
    const vreal e = v_exp(z * z * v_set1(R(-0.5))), tail = e * (p * reciprocal);
    *density = e * v_set1(R(0.39894228040143267794)); /* 1 / sqrt(2 pi) */
    return v_select(v_lt(x, v_zero()), tail, v_set1(R(1.0)) - tail);
}

/* A function of libm on every lane. */
#define V_LANES_OF(name, function)                                                                                                         \
    static inline vreal name(vreal x)                                                                                                      \
    {                                                                                                                                      \
        real lane[TC_LANES];                                                                                                               \
        __builtin_memcpy(lane, &x, sizeof x);                                                                                              \
        for (int i = 0; i < TC_LANES; i++) lane[i] = function(lane[i]);                                                                    \
        return v_load(lane);                                                                                                               \
    }

V_LANES_OF(v_log, real_log)
V_LANES_OF(v_log1p, real_log1p)
V_LANES_OF(v_sin, real_sin)
V_LANES_OF(v_cos, real_cos)
V_LANES_OF(v_erf, real_erf)

TC_INLINE vmask v_nonzero(vreal x) { return v_not(v_eq(x, v_zero())); } /* NaN is not zero */
TC_INLINE vreal v_truth(vmask m) { return v_select(m, v_set1(R(1.0)), v_zero()); }

/* NaN when either is. */
TC_INLINE vreal v_maximum(vreal a, vreal b) { return v_select(v_isnan(a), a, v_max(a, b)); }
TC_INLINE vreal v_minimum(vreal a, vreal b) { return v_select(v_isnan(a), a, v_min(a, b)); }

/* -1, 0 or 1; 0 for NaN, as in PyTorch. */
TC_INLINE vreal v_sign(vreal x)
{
    return v_select(v_lt(v_zero(), x), v_set1(R(1.0)), v_select(v_lt(x, v_zero()), v_set1(R(-1.0)), v_zero()));
}

/* 1 / (1 + e^-x) from e^-|x|, which cannot overflow. */
TC_INLINE vreal v_sigmoid(vreal x)
{
    const vreal z = v_exp(-v_abs(x)), one = v_set1(R(1.0));
    return v_select(v_lt(x, v_zero()), z, one) / (one + z);
}

/* ---- of two arguments ---- */

static inline vreal v_pow(vreal a, vreal b)
{
    real x[TC_LANES], y[TC_LANES];
    v_store(x, a);
    v_store(y, b);
    for (int i = 0; i < TC_LANES; i++) x[i] = real_pow(x[i], y[i]);
    return v_load(x);
}

/* g b a^(b - 1), and 0 for b = 0 */
TC_INLINE vreal v_pow_slope_base(vreal g, vreal a, vreal b)
{
    const vreal slope = g * b * v_pow(a, b - v_set1(R(1.0)));
    return v_select(v_eq(b, v_zero()), v_zero(), slope);
}
/* g a^b log a, and 0 for a = 0 with b >= 0 */
TC_INLINE vreal v_pow_slope_exponent(vreal g, vreal a, vreal b)
{
    const vreal slope = g * v_pow(a, b) * v_log(a);
    return v_select(v_and(v_eq(a, v_zero()), v_le(v_zero(), b)), v_zero(), slope);
}

/* g, half of it where `equal`, none where `less`. */
TC_INLINE vreal v_share(vreal g, vmask less, vmask equal) { return v_select(equal, g * v_set1(R(0.5)), v_select(less, v_zero(), g)); }

/* Python's // and %: the quotient is rounded down, the remainder has the sign of b. */
static inline vreal v_remainder(vreal a, vreal b)
{
    real x[TC_LANES], y[TC_LANES];
    v_store(x, a);
    v_store(y, b);
    for (int i = 0; i < TC_LANES; i++) {
        const real rest = real_fmod(x[i], y[i]);
        x[i] = rest != 0 && (rest < 0) != (y[i] < 0) ? rest + y[i] : rest;
    }
    return v_load(x);
}
static inline vreal v_floor_divide(vreal a, vreal b)
{
    real x[TC_LANES], y[TC_LANES];
    v_store(x, a);
    v_store(y, b);
    for (int i = 0; i < TC_LANES; i++) {
        if (y[i] == 0) {
            x[i] /= y[i];
            continue;
        }
        real rest = real_fmod(x[i], y[i]), quotient = (x[i] - rest) / y[i];
        if (rest != 0 && (rest < 0) != (y[i] < 0)) quotient -= 1;
        /* near-integral already: the division above may have rounded across */
        const real down = real_floor(quotient);
        x[i] = quotient - down > R(0.5) ? down + 1 : down;
    }
    return v_load(x);
}

#endif
