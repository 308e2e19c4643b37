// functions.cuh: the vocabulary of ../unary.def and ../binary.def on the GPU, where a "vector" is one number: each row of those
// lists is compiled for the CPU's vectors and for these.
#pragma once
#include "../normal.h"
#include "../types.h"
#include "device.cuh"

namespace tc
{

#define TC_REAL_FUNCTION(name)                                                                                                             \
    __device__ __forceinline__ float real_##name(float x) { return name##f(x); }                                                           \
    __device__ __forceinline__ double real_##name(double x) { return name(x); }
TC_REAL_FUNCTION(sin)
TC_REAL_FUNCTION(cos)
TC_REAL_FUNCTION(erf)
TC_REAL_FUNCTION(expm1)
TC_REAL_FUNCTION(log1p)
TC_REAL_FUNCTION(floor)
TC_REAL_FUNCTION(rint)
#undef TC_REAL_FUNCTION
__device__ __forceinline__ float real_pow(float x, float y) { return powf(x, y); }
__device__ __forceinline__ double real_pow(double x, double y) { return pow(x, y); }
__device__ __forceinline__ float real_frexp(float x, int *e) { return frexpf(x, e); }
__device__ __forceinline__ double real_frexp(double x, int *e) { return frexp(x, e); }
__device__ __forceinline__ float real_largest(float) { return 3.402823466e38f; }
__device__ __forceinline__ double real_largest(double) { return 1.7976931348623157e308; }
__device__ __forceinline__ float real_fmod(float x, float y) { return fmodf(x, y); }
__device__ __forceinline__ double real_fmod(double x, double y) { return fmod(x, y); }

// In the scope of a template parameter Real.
#define R(x) Real(x)
#define v_set1(x) (x)
#define v_zero() Real(0)

// a / b, of float32 good to two units in the last place, and 0 where 1 / b would be denormal.
__device__ __forceinline__ float quotient(float a, float b) { return a * reciprocal_approximate(b); }
__device__ __forceinline__ double quotient(double a, double b) { return a / b; }

__device__ __forceinline__ bool v_not(bool a) { return !a; }
__device__ __forceinline__ bool v_and(bool a, bool b) { return a && b; }
__device__ __forceinline__ bool v_or(bool a, bool b) { return a || b; }

#define TC_FUNCTION template <class Real> __device__ __forceinline__
TC_FUNCTION Real v_select(bool m, Real a, Real b) { return m ? a : b; }
TC_FUNCTION bool v_lt(Real a, Real b) { return a < b; }
TC_FUNCTION bool v_le(Real a, Real b) { return a <= b; }
TC_FUNCTION bool v_eq(Real a, Real b) { return a == b; }
TC_FUNCTION bool v_nonzero(Real x) { return x != Real(0); }
TC_FUNCTION Real v_fnma(Real a, Real b, Real c) { return c - a * b; }
TC_FUNCTION Real v_abs(Real x) { return x < 0 ? -x : x == 0 ? Real(0) : x; }
TC_FUNCTION Real v_sign(Real x) { return x > 0 ? Real(1) : x < 0 ? Real(-1) : Real(0); } // 0 for NaN, as in PyTorch
TC_FUNCTION Real v_floor(Real x) { return real_floor(x); }
TC_FUNCTION Real v_nearest(Real x) { return real_rint(x); } // ties to even
TC_FUNCTION Real v_trunc(Real x) { return x < 0 ? -real_floor(-x) : real_floor(x); }
TC_FUNCTION Real v_sqrt(Real x) { return real_sqrt(x); }
TC_FUNCTION Real v_exp(Real x) { return real_exp(x); }
TC_FUNCTION Real v_expm1(Real x) { return real_expm1(x); }
TC_FUNCTION Real v_log(Real x) { return real_log(x); }
// x = m 2^e with m in [sqrt 1/2, sqrt 2), for a positive finite x.
TC_FUNCTION Real v_log_split(Real x, Real &e)
{
    int exponent;
    Real m = real_frexp(x, &exponent);
    if (m < Real(0.70710678118654752440)) {
        m *= 2;
        exponent -= 1;
    }
    e = Real(exponent);
    return m;
}
// Whole numbers at powers of two and of ten, as on the CPU: log2 m is 0 at 1, and e times the first part of log10 2 is exact.
TC_FUNCTION Real v_log2(Real x)
{
    if (!(x > 0 && x <= real_largest(x))) return real_log(x);
    Real e;
    const Real m = v_log_split(x, e);
    return e + real_log(m) * Real(1.44269504088896340736);
}
TC_FUNCTION Real v_log10(Real x)
{
    if (!(x > 0 && x <= real_largest(x))) return real_log(x);
    const bool narrow = sizeof(Real) == 4;
    const Real two_high = Real(narrow ? 0.301025390625 : 0.30102999566361177);
    const Real two_low = Real(narrow ? 4.6050390665e-06 : 3.694239077158931e-13);
    Real e;
    const Real m = v_log_split(x, e);
    return e * two_high + (e * two_low + real_log(m) * Real(0.43429448190325182765));
}
TC_FUNCTION Real v_log1p(Real x) { return real_log1p(x); }
TC_FUNCTION Real v_sin(Real x) { return real_sin(x); }
TC_FUNCTION Real v_cos(Real x) { return real_cos(x); }
TC_FUNCTION Real v_tanh(Real x) { return real_tanh(x); }
TC_FUNCTION Real v_erf(Real x) { return real_erf(x); }
TC_FUNCTION Real v_relu(Real x) { return x < 0 ? Real(0) : x; } // NaN stays
// 1 / (1 + e^-x) from e^-|x|, which cannot overflow.
TC_FUNCTION Real v_sigmoid(Real x)
{
    const Real z = real_exp(x < 0 ? x : -x);
    return quotient(x < 0 ? z : Real(1), 1 + z);
}
// The cumulative distribution of the normal at x, and its density there. Both tails are precise.
__device__ __forceinline__ double v_normal(double x, double &density)
{
    density = 0.39894228040143267794 * real_exp(-0.5 * x * x);
    return 0.5 * real_erfc(-x * 0.70710678118654752440);
}
__device__ __forceinline__ float v_normal(float x, float &density)
{
    constexpr float P[] = TC_NORMAL_TAIL_T_FLOAT32;
    float z = x < 0 ? -x : x;
    if (z > TC_NORMAL_FARTHEST_FLOAT32) z = TC_NORMAL_FARTHEST_FLOAT32; // NaN stays
    const float reciprocal = reciprocal_approximate(z + 4), t = (z - 4) * reciprocal, e = real_exp(z * z * -0.5f);
    float p = P[9];
    TC_UNROLL
    for (int i = 8; i >= 0; i--) p = real_fma(p, t, P[i]);
    const float tail = e * (p * reciprocal);
    density = 0.39894228040143267794f * e;
    return x < 0 ? tail : 1 - tail;
}
TC_FUNCTION Real v_gelu(Real x)
{
    Real density;
    return x * v_normal(x, density);
}
TC_FUNCTION Real v_gelu_derivative(Real x)
{
    Real density;
    const Real cumulative = v_normal(x, density);
    return cumulative + x * density;
}
// 1 / (1 + e^-2u), with u = sqrt(2 / pi) (x + 0.044715 x^3).
TC_FUNCTION Real v_gelu_tanh_weight(Real x)
{
    return quotient(Real(1), 1 + real_exp(Real(-1.59576912160573071176) * x * (1 + Real(0.044715) * x * x)));
}
TC_FUNCTION Real v_gelu_tanh(Real x) { return x * v_gelu_tanh_weight(x); }
TC_FUNCTION Real v_gelu_tanh_derivative(Real x)
{
    const Real w = v_gelu_tanh_weight(x);
    return w + x * w * (1 - w) * (Real(1.59576912160573071176) * (1 + Real(0.134145) * x * x));
}
// The derivative of an activation at x; that of ReLU also from its result.
TC_FUNCTION Real activation_slope(tc_activation activation, Real x)
{
    switch (activation) {
    case TC_ACTIVATION_RELU: return x > 0 ? Real(1) : Real(0);
    case TC_ACTIVATION_GELU: return v_gelu_derivative(x);
    case TC_ACTIVATION_GELU_TANH: return v_gelu_tanh_derivative(x);
    default: return Real(1);
    }
}

// log(1 + e^(a b)) / b, and a where a b is above 20; its slopes in a and b.
TC_FUNCTION Real v_softplus(Real a, Real b) { return a * b > 20 ? a : real_log1p(real_exp(a * b)) / b; }
TC_FUNCTION Real v_softplus_slope(Real a, Real b) { return a * b > 20 ? Real(1) : v_sigmoid(a * b); }
TC_FUNCTION Real v_softplus_slope_sharpness(Real a, Real b) { return a * b > 20 ? Real(0) : (a * v_sigmoid(a * b) - v_softplus(a, b)) / b; }

// NaN when either is, and a where they are equal: of 0 and -0, that is.
TC_FUNCTION Real v_maximum(Real a, Real b) { return a != a || a >= b ? a : b; }
TC_FUNCTION Real v_minimum(Real a, Real b) { return a != a || a <= b ? a : b; }
// relu6(x + 3) / 6: a sigmoid made of straight lines
TC_FUNCTION Real v_hardsigmoid(Real x) { return v_minimum(v_maximum(x + 3, Real(0)), Real(6)) / 6; }
TC_FUNCTION Real v_pow(Real a, Real b) { return b == 3 ? a * a * a : real_pow(a, b); } // cubes have the CPU's bits
// g b a^(b - 1), and 0 for b = 0; of cubes with the CPU's bits
TC_FUNCTION Real v_pow_slope_base(Real g, Real a, Real b) { return b == 0 ? Real(0) : b == 3 ? a * a * g * 3 : g * b * real_pow(a, b - 1); }
// g a^b log a, and 0 for a = 0 with b >= 0
TC_FUNCTION Real v_pow_slope_exponent(Real g, Real a, Real b) { return a == 0 && b >= 0 ? Real(0) : g * real_pow(a, b) * real_log(a); }
// g, half of it where `equal`, none where `less`
TC_FUNCTION Real v_share(Real g, bool less, bool equal) { return equal ? g * Real(0.5) : less ? Real(0) : g; }
// Python's // and %: the quotient is rounded down, the remainder has the sign of b.
TC_FUNCTION Real v_remainder(Real a, Real b)
{
    const Real rest = real_fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
TC_FUNCTION Real v_floor_divide(Real a, Real b)
{
    if (b == 0) return a / b;
    const Real rest = real_fmod(a, b);
    Real quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
    // almost an integer already: the division may have rounded past it
    const Real down = real_floor(quotient), whole = quotient - down > Real(0.5) ? down + 1 : down;
    return whole != 0 ? whole : a / b * Real(0); // 0 or -0
}
#undef TC_FUNCTION

} // namespace tc
