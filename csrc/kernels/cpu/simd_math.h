/* simd_math.h: elementary functions on the vectors of simd.h, the same for every lane and every width.
 *
 * Errors are given in units in the last place (ulp) of the correctly rounded result. Signed zeros, infinities and NaN give
 * the results of C's math.h.
 */
#ifndef TC_SIMD_MATH_H
#define TC_SIMD_MATH_H

#include "../normal.h"
#include "simd.h"

#if TC_PRECISION == 32
typedef uint32_t lane_bits;
#define V_MANTISSA 23
#define V_BIAS 127
#define V_MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, which is then in the lowest bits */
#else
typedef uint64_t lane_bits;
#define V_MANTISSA 52
#define V_BIAS 1023
#define V_MAGIC 6755399441055744.0
#endif
typedef lane_bits vbits __attribute__((vector_size(sizeof(vreal)))); /* the bits of the lanes */

TC_INLINE vreal v_polynomial(vreal x, const real *coefficients, int degree)
{
    vreal p = v_set1(coefficients[degree]);
    TC_UNROLL
    for (int i = degree - 1; i >= 0; i--) p = v_fma(p, x, v_set1(coefficients[i]));
    return p;
}

/* e^r = 1 + r + r^2 P(r) for |r| <= ln2 / 2, where P minimises the relative error in e^r: 2^-28 and 2^-58. */
#if TC_PRECISION == 32
#define V_EXP_P 0.49999993f, 0.16666520f, 0.041668391f, 0.0083687463f, 0.0013814528f
#else
#define V_EXP_P                                                                                                                            \
    0.500000000000001067, 0.166666666666664115, 0.041666666666529691, 0.00833333333349497572, 0.00138888889437690926,                      \
        0.000198412695058148935, 2.4801492940811118e-05, 2.75575867442530287e-06, 2.7630309198639914e-07, 2.50000429106373455e-08
#endif

/* r of e^x = e^r 2^n: x = n ln2 + r, with ln2 in two parts, the first short enough that n times it is exact. */
TC_INLINE vreal v_exp_rest(vreal x, vreal n)
{
#if TC_PRECISION == 32
    const vreal ln2_high = v_set1(0.693359375f), ln2_low = v_set1(-2.12194440e-4f);
#else
    const vreal ln2_high = v_set1(6.93147180369123816490e-01), ln2_low = v_set1(1.90821492927058770002e-10);
#endif
    return v_fnma(n, ln2_low, v_fnma(n, ln2_high, x));
}

/* e^x = (1 + p) 2^n with |p| < 0.42: returns p. |x| is within the exponent's range, or NaN. */
TC_INLINE vreal v_exp_reduced(vreal x, vreal *n)
{
    static const real P[] = {V_EXP_P};
    *n = v_round(x * v_set1(R(1.44269504088896340736)));
    const vreal r = v_exp_rest(x, *n);
    return v_fma(v_polynomial(r, P, (int)(sizeof P / sizeof P[0]) - 1), r * r, r);
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

/* e^x 2^raised within 1 ulp, where that is no smaller than the smallest normal number and not too large; 0 where the exponent's bits are 0.
 */
TC_INLINE vreal v_exp_raised(vreal x, const real raised)
{
    static const real P[] = {R(1.0), R(1.0), V_EXP_P};
    const vreal magic = v_set1(V_MAGIC + V_BIAS + raised);
    const vreal sum = v_fma(x, v_set1(R(1.44269504088896340736)), magic), r = v_exp_rest(x, sum - magic);
    return v_polynomial(r, P, (int)(sizeof P / sizeof P[0]) - 1) * (vreal)((vbits)sum << V_MANTISSA);
}

/* e^x within 1 ulp for x up to the logarithm of the largest number, but 0 where that would be below the smallest normal one: for weights of
 * a softmax. Half the work of v_exp(), and none of the time that some processors take over denormal numbers. */
TC_INLINE vreal v_exp_weight(vreal x)
{
#if TC_PRECISION == 32
    const vreal lowest = v_set1(-88.0296919f);
#else
    const vreal lowest = v_set1(-709.08956571282410);
#endif
    x = v_max(lowest, x); /* -V_BIAS ln2, where the bits of 2^n are those of 0; this order of arguments keeps NaN */
    return v_exp_raised(x, R(0.0));
}

/* Called, not inlined: several loops contain it, and a call costs little next to it. */
#define TC_CALLED static __attribute__((noinline, unused))

/* e^x - 1 with all its digits near 0. */
TC_CALLED vreal v_expm1(vreal x)
{
    const vreal one = v_set1(R(1.0));
    vreal n;
    x = v_min(v_set1(TC_PRECISION == 32 ? R(89.0) : R(710.0)), v_max(v_set1(R(-40.0)), x)); /* e^-40 is lost next to 1; NaN stays */
    const vreal p = v_exp_reduced(x, &n);
    return v_scale2(p, n) + (v_scale2(one, n) - one);
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

/* e^(-z^2 / 2) 2^raised, within 1 ulp and the error of z^2: as a power of 2, whose exponent needs no reduction by an inexact ln 2. In two
 * factors, the second of which is *power, a power of 2: no smaller than the smallest normal number, or 0 where the exponent's bits are 0.
 */
TC_INLINE vreal v_bell(vreal z, const real raised, vreal *power)
{
#if TC_PRECISION == 32
    static const real P[] = {1.0f, 0.6931471806f, 0.2402264783f, 0.05550361904f, 0.009618527541f, 0.001339021997f, 0.0001532105989f};
#else
    static const real P[] = {1.0,
                             0.6931471805599453094,
                             0.2402265069591012457,
                             0.05550410866482072649,
                             0.009618129107596858275,
                             0.001333355814668707683,
                             0.0001540353045424673077,
                             0.000015252733546182948,
                             1.321543651015311326e-6,
                             1.017818481581322857e-7,
                             7.073597684427386562e-9,
                             4.436299166829238468e-10};
#endif
    const vreal zc = z * v_set1(R(-0.72134752044448170368)), magic = v_set1(V_MAGIC + V_BIAS + raised); /* -1 / (2 ln 2) */
    const vreal sum = v_fma(z, zc, magic), rest = v_fma(z, zc, magic - sum);
    *power = (vreal)((vbits)sum << V_MANTISSA);
    return v_polynomial(rest, P, (int)(sizeof P / sizeof P[0]) - 1);
}

/* The standard normal distribution at -z for z >= 0: returns the cumulative Phi(-z), and the density in *density. Both are 0 where Phi(-z)
 * would be denormal, at V_FARTHEST and a little before: some processors take a hundred cycles over such numbers, and over those that are
 * rounded to 0. The exponential is lowered so that its power of two is 0 there, and P (normal.h) raised by as much. */
#define V_FARTHEST (TC_PRECISION == 32 ? R(12.9515) : R(37.5112)) /* whose z^2 / (2 ln 2) is 121, and 1015 */
TC_INLINE vreal v_normal_tail(vreal z, vreal *density)
{
#if TC_PRECISION == 32
    static const real P[] = TC_NORMAL_TAIL_P_FLOAT32, Q[] = TC_NORMAL_TAIL_Q_FLOAT32;
    const real lowered = 6.0f, raised = 0x1p6f; /* 127 - 121 */
#else
    static const real P[] = TC_NORMAL_TAIL_P_FLOAT64, Q[] = TC_NORMAL_TAIL_Q_FLOAT64;
    const real lowered = 8.0, raised = 0x1p8; /* 1023 - 1015 */
#endif
    z = v_min(v_set1(V_FARTHEST), z); /* NaN stays */
    const int degree = (int)(sizeof P / sizeof P[0]) - 1;
    vreal p = v_set1(P[degree] * raised), power;
    TC_UNROLL
    for (int i = degree - 1; i >= 0; i--) p = v_fma(p, z, v_set1(P[i] * raised));
    const vreal e = v_bell(z, -lowered, &power);
    *density = e * v_set1(R(0.39894228040143267794) * raised) * power; /* 1 / sqrt(2 pi) */
    return e * (p / v_polynomial(z, Q, degree + 1)) * power;
}

/* The standard normal distribution at x: returns the cumulative Phi(x), and the density in *density. Both tails are precise. */
TC_INLINE vreal v_normal(vreal x, vreal *density)
{
    const vreal tail = v_normal_tail(v_abs(x), density);
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

V_LANES_OF(v_sin_by_lane, real_sin)
V_LANES_OF(v_cos_by_lane, real_cos)

/* x = (1 + f) 2^e with 1 + f in [sqrt 1/2, sqrt 2), and log(1 + f) = f + (most - square). */
typedef struct v_log_parts {
    vreal e, f, most, square;
} v_log_parts;

/* float: log(1 + f) = f - f^2/2 + f^3 P(f), P with the least relative error in the logarithm, 2^-30. double: with s = f / (2 + f),
 * log(1 + f) = 2 atanh s = f - (h - s (h + z P(z))), h = f^2/2, z = s^2; 2^-59. Of no use where x is not positive and finite. */
TC_INLINE v_log_parts v_log_split(vreal x)
{
#if TC_PRECISION == 32
    static const real P[] = {0.333333126f,   -0.250000096f, 0.2000211866f,  -0.1666799586f, 0.1421955242f,
                             -0.1240558882f, 0.118881618f,  -0.1167565222f, 0.06746641993f};
    const lane_bits root = 0x3f3504f3, mantissa = 0x7fffff, bias = 127; /* the bits of sqrt 1/2 */
    const int width = 23;
    const vreal smallest = v_set1(0x1p-126f), up = v_set1(0x1p25f), up_e = v_set1(25.0f), magic = v_set1(12582912.0f);
#else
    static const real P[] = {0.666666666666673441, 0.39999999999414679,  0.285714287423875061, 0.222221985731946165,
                             0.181835643256676401, 0.153140505622413665, 0.147959496106832331};
    const lane_bits root = 0x3fe6a09e667f3bcd, mantissa = 0xfffffffffffff, bias = 1023;
    const int width = 52;
    const vreal smallest = v_set1(0x1p-1022), up = v_set1(0x1p54), up_e = v_set1(54.0), magic = v_set1(6755399441055744.0);
#endif
    const vmask denormal = v_lt(x, smallest);
    const vreal scaled = v_select(denormal, x * up, x);
    const vbits bits = (vbits)scaled - root;
    const vbits from_zero = (bits + (bias << width)) >> width; /* e + bias, never negative where x is positive */
    const vreal f = (vreal)((bits & mantissa) + root) - v_set1(R(1.0));
    vreal e = (vreal)(from_zero + (vbits)magic) - (magic + v_set1((real)bias));
    e = v_select(denormal, e - up_e, e);
    const vreal half_square = v_set1(R(0.5)) * f * f;
#if TC_PRECISION == 32
    return (v_log_parts){e, f, v_fma(f * f * f, v_polynomial(f, P, 8), -half_square), v_zero()};
#else
    const vreal s = f / (v_set1(2.0) + f), z = s * s;
    return (v_log_parts){e, f, s * v_fma(z, v_polynomial(z, P, 6), half_square), half_square};
#endif
}

/* y, the logarithm of a positive finite x; for the others the logarithm of any base: -inf at 0, NaN below. */
TC_INLINE vreal v_log_edges(vreal x, vreal y)
{
    const vreal infinity = v_set1((real)INFINITY);
    const vreal edge = v_select(v_eq(x, v_zero()), -infinity, v_select(v_eq(x, infinity), infinity, v_set1((real)NAN)));
    return v_select(v_and(v_lt(v_zero(), x), v_lt(x, infinity)), y, edge);
}

/* log x within 1 ulp. */
TC_INLINE vreal v_log(vreal x)
{
#if TC_PRECISION == 32
    const vreal ln2_high = v_set1(0.693359375f), ln2_low = v_set1(-2.12194440e-4f);
#else
    const vreal ln2_high = v_set1(6.93147180369123816490e-01), ln2_low = v_set1(1.90821492927058770002e-10);
#endif
    const v_log_parts p = v_log_split(x);
    const vreal rest = v_fma(p.e, ln2_low, p.most) - p.square;
    return v_log_edges(x, v_fma(p.e, ln2_high, p.f + rest));
}

/* log2 x within 2 ulp: e + log(1 + f) / ln 2, which is e itself at a power of two. */
TC_INLINE vreal v_log2(vreal x)
{
#if TC_PRECISION == 32
    const vreal low = v_set1(1.92596303e-08f);
#else
    const vreal low = v_set1(2.0355273740931033e-17);
#endif
    const vreal high = v_set1(R(1.44269504088896340736)); /* 1 / ln 2 = high + low */
    const v_log_parts p = v_log_split(x);
    const vreal rest = v_fma(p.f, low, (p.most - p.square) * high);
    return v_log_edges(x, p.e + v_fma(p.f, high, rest));
}

/* log10 x within 2 ulp: e log10 2 + log(1 + f) / ln 10. log10 2 is in two parts, e times the first of which is exact, so that nearly all
 * of the error is the last rounding, and a power of ten gives a whole number. */
TC_INLINE vreal v_log10(vreal x)
{
#if TC_PRECISION == 32
    const vreal two_high = v_set1(0.301025391f), two_low = v_set1(4.60503907e-06f), low = v_set1(-1.010305e-08f);
#else
    const vreal two_high = v_set1(0.30102999566361177), two_low = v_set1(3.694239077158931e-13), low = v_set1(1.098319650216765e-17);
#endif
    const vreal high = v_set1(R(0.43429448190325182765)); /* 1 / ln 10 = high + low */
    const v_log_parts p = v_log_split(x);
    const vreal rest = v_fma(p.e, two_low, v_fma(p.f, low, (p.most - p.square) * high));
    return v_log_edges(x, v_fma(p.e, two_high, v_fma(p.f, high, rest)));
}

/* log(1 + x) within 2 ulp: log u for u = 1 + x as rounded, plus the part lost by rounding. */
TC_INLINE vreal v_log1p(vreal x)
{
    const vreal one = v_set1(R(1.0)), u = one + x;
    const vreal lost = v_select(v_lt(v_abs(x), one), x - (u - one), one - (u - x));
    const vreal y = v_log(u) + lost / u;
    /* where the lost part is not divided: -1, infinity, NaN and values below -1 */
    return v_select(v_and(v_lt(v_zero(), u), v_lt(u, v_set1((real)INFINITY))), v_select(v_eq(x, v_zero()), x, y), v_log(u));
}

/* x = n pi/2 + r with |r| <= pi/4, up to V_FAR_ANGLE: pi/2 in parts short enough that n times each is exact. */
TC_INLINE vreal v_reduce_angle(vreal x, vreal *n)
{
#if TC_PRECISION == 32
    const vreal p0 = v_set1(0x1.92p+0f), p1 = v_set1(0x1.fb4p-12f), p2 = v_set1(0x1.444p-24f), p3 = v_set1(0x1.68c234p-39f);
#else
    const vreal p0 = v_set1(0x1.921fb544p+0), p1 = v_set1(0x1.0b4611a6p-34), p2 = v_set1(0x1.3198a2ep-69),
                p3 = v_set1(0x1.b839a252049c1p-104);
#endif
    *n = v_round(x * v_set1(R(0.63661977236758134308)));
    return v_fnma(*n, p3, v_fnma(*n, p2, v_fnma(*n, p1, v_fnma(*n, p0, x))));
}
#define V_FAR_ANGLE (TC_PRECISION == 32 ? R(12000.0) : R(1.6e6))

/* sin(x + quarter pi/2) for quarter 0 or 1, |x| < V_FAR_ANGLE. On [-pi/4, pi/4]: sin r = r + r^3 S(r^2), cos r = 1 - r^2/2 + r^4 C(r^2),
 * the least errors relative to 1: 2^-37 and 2^-43, 2^-68 and 2^-75. */
TC_INLINE vreal v_sine_near(vreal x, int quarter)
{
#if TC_PRECISION == 32
    static const real S[] = {-0.1666666664f, 0.008333329374f, -0.00019839331f, 2.718274491e-6f};
    static const real C[] = {0.04166666662f, -0.001388888374f, 2.479951589e-5f, -2.720989325e-7f};
    const vreal magic = v_set1(12582912.0f);
    const int degree = 3, to_sign = 30;
#else
    static const real S[] = {-0.166666666666666666,   0.00833333333333332277,  -0.000198412698412550631, 2.7557319214188041e-6,
                             -2.50521049109521587e-8, 1.60583665446881383e-10, -7.57869367387756701e-13};
    static const real C[] = {0.0416666666666666666,  -0.00138888888888888741,  0.0000248015873015714603, -2.75573192153601003e-7,
                             2.08767543625167251e-9, -1.14702928422011411e-11, 4.73808944179754787e-14};
    const vreal magic = v_set1(6755399441055744.0);
    const int degree = 6, to_sign = 62;
#endif
    vreal n;
    const vreal r = v_reduce_angle(x, &n), z = r * r;
    n = n + v_set1((real)quarter);
    const vreal sine = v_fma(r * z, v_polynomial(z, S, degree), r);
    const vreal cosine = v_fma(z * z, v_polynomial(z, C, degree), v_fnma(v_set1(R(0.5)), z, v_set1(R(1.0))));
    const vreal half = n * v_set1(R(0.5));
    const vreal y = v_select(v_eq(half, v_round(half)), sine, cosine);
    const vbits sign = (((vbits)(n + magic)) & 2) << to_sign; /* the second and third of four quarters */
    return (vreal)((vbits)y ^ sign);
}

/* Within 3 ulp; large angles by libm. */
TC_INLINE vreal v_sin(vreal x)
{
    const vreal y = v_select(v_eq(x, v_zero()), x, v_sine_near(x, 0)); /* -0 stays -0 */
    const vmask near = v_lt(v_abs(x), v_set1(V_FAR_ANGLE));
    return v_any(v_not(near)) ? v_select(near, y, v_sin_by_lane(x)) : y;
}
TC_INLINE vreal v_cos(vreal x)
{
    const vreal y = v_sine_near(x, 1);
    const vmask near = v_lt(v_abs(x), v_set1(V_FAR_ANGLE));
    return v_any(v_not(near)) ? v_select(near, y, v_cos_by_lane(x)) : y;
}

/* erf x within 3 ulp: x P(x^2) up to 0.7, least relative error 2^-30 and 2^-68; then 1 - 2 Phi(-x sqrt 2). */
TC_INLINE vreal v_erf(vreal x)
{
#if TC_PRECISION == 32
    static const real P[] = {1.128379166f, -0.376126291f, 0.1128355568f, -0.02684532991f, 0.005140183606f, -0.000696594182f};
    const int degree = 5;
#else
    static const real P[] = {1.12837916709551257,    -0.376126389031837524,    0.112837916709551159,    -0.0268661706451274771,
                             0.00522397762536764211, -0.000854832701476067686, 0.000120553323390790689, -0.0000149256190275508007,
                             1.64610932849155107e-6, -1.63437783968859265e-7,  1.45023641240245491e-8,  -9.82313492487973559e-10};
    const int degree = 11;
#endif
    vreal density;
    const vreal far = v_fnma(v_set1(R(2.0)), v_normal(v_abs(x) * v_set1(R(-1.41421356237309504880)), &density), v_set1(R(1.0)));
    const vreal near = x * v_polynomial(x * x, P, degree);
    return v_select(v_lt(v_abs(x), v_set1(R(0.7))), near, v_select(v_lt(x, v_zero()), -far, far));
}

TC_INLINE vmask v_nonzero(vreal x) { return v_not(v_eq(x, v_zero())); } /* NaN is not zero */
TC_INLINE vreal v_truth(vmask m) { return v_select(m, v_set1(R(1.0)), v_zero()); }

/* NaN when either is, and a where they are equal: of 0 and -0, that is. */
TC_INLINE vreal v_maximum(vreal a, vreal b) { return v_select(v_isnan(b), b, v_max(b, a)); }
TC_INLINE vreal v_minimum(vreal a, vreal b) { return v_select(v_isnan(b), b, v_min(b, a)); }

/* Towards zero; -0 stays. */
TC_INLINE vreal v_trunc(vreal x) { return v_select(v_lt(x, v_zero()), -v_floor(-x), v_floor(x)); }

/* -1, 0 or 1; 0 for NaN, as in PyTorch. */
TC_INLINE vreal v_sign(vreal x)
{
    return v_select(v_lt(v_zero(), x), v_set1(R(1.0)), v_select(v_lt(x, v_zero()), v_set1(R(-1.0)), v_zero()));
}

/* 1 / (1 + e^-x) from e^-|x|, which cannot overflow. */
TC_INLINE vreal v_sigmoid(vreal x)
{
    const vreal z = v_exp_weight(-v_abs(x)), one = v_set1(R(1.0));
    return v_select(v_lt(x, v_zero()), z, one) / (one + z);
}

/* ---- of two arguments ---- */

/* log(1 + e^(a b)) / b, and a where a b is above 20; its slopes in a and b. */
TC_CALLED vreal v_softplus(vreal a, vreal b)
{
    const vreal x = a * b, most = v_set1(R(20.0));
    return v_select(v_lt(most, x), a, v_log1p(v_exp_weight(v_min(most, x))) / b);
}
TC_INLINE vreal v_softplus_slope(vreal a, vreal b) { return v_select(v_lt(v_set1(R(20.0)), a * b), v_set1(R(1.0)), v_sigmoid(a * b)); }
TC_INLINE vreal v_softplus_slope_sharpness(vreal a, vreal b)
{
    return v_select(v_lt(v_set1(R(20.0)), a * b), v_zero(), (a * v_sigmoid(a * b) - v_softplus(a, b)) / b);
}

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

/* Python's // and %: the quotient is rounded down, the remainder has the sign of b.
 *
 * Where a real has two bits more than the quotient, a division gives it, or one more, and a multiply-add gives the rest exactly, with the
 * wrong sign if it was one more. Returns where that is. Beyond, PyTorch and NumPy round before they round down. */
TC_INLINE vmask v_divide_down(vreal a, vreal b, vreal *quotient, vreal *rest)
{
    const vreal ratio = a / b, down = v_floor(ratio), left = v_fnma(down, b, a);
    const vmask is_over = v_lt(left * v_sign(b), v_zero());
    *quotient = v_select(is_over, down - v_set1(R(1.0)), down);
    *rest = v_select(v_eq(left, v_zero()), a * v_zero(), v_select(is_over, left + b, left));
#if defined(__FMA__) || defined(TC_NEON)
    const vreal most = v_set1(TC_PRECISION == 32 ? R(4194304.0) : R(2251799813685248.0));
    return v_and(v_lt(v_abs(ratio), most), v_lt(v_abs(b), v_set1((real)INFINITY)));
#else
    return v_lt(ratio, ratio); /* nowhere: it would be rounded */
#endif
}

static inline vreal v_remainder(vreal a, vreal b)
{
    real x[TC_LANES], y[TC_LANES];
    vreal quotient, near;
    const vmask is_near = v_divide_down(a, b, &quotient, &near);
    if (!v_any(v_not(is_near))) return near;
    v_store(x, a);
    v_store(y, b);
    for (int i = 0; i < TC_LANES; i++) {
        const real rest = real_fmod(x[i], y[i]);
        x[i] = rest != 0 && (rest < 0) != (y[i] < 0) ? rest + y[i] : rest;
    }
    return v_select(is_near, near, v_load(x));
}
static inline vreal v_floor_divide(vreal a, vreal b)
{
    real x[TC_LANES], y[TC_LANES];
    vreal near, left;
    const vmask is_near = v_divide_down(a, b, &near, &left);
    if (!v_any(v_not(is_near))) return near;
    v_store(x, a);
    v_store(y, b);
    for (int i = 0; i < TC_LANES; i++) {
        if (y[i] == 0) {
            x[i] /= y[i];
            continue;
        }
        real rest = real_fmod(x[i], y[i]), quotient = (x[i] - rest) / y[i];
        if (rest != 0 && (rest < 0) != (y[i] < 0)) quotient -= 1;
        /* almost an integer already: the division above may have rounded past it */
        const real down = real_floor(quotient), whole = quotient - down > R(0.5) ? down + 1 : down;
        x[i] = whole != 0 ? whole : x[i] / y[i] * R(0.0); /* 0 or -0 */
    }
    return v_select(is_near, near, v_load(x));
}

#endif
