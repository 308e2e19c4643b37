/* activation.h: activations and their derivatives on vectors: for the epilogues of products, and element by element. */
#ifndef TC_KERNELS_CPU_ACTIVATION_H
#define TC_KERNELS_CPU_ACTIVATION_H

#include "../activation.h"
#include "simd_math.h"

TC_INLINE vreal v_relu(vreal x) { return v_max(v_zero(), x); } /* this order of arguments keeps NaN */
TC_INLINE vreal v_relu_derivative(vreal x)
{
    return v_select(v_lt(v_zero(), x), v_set1(R(1.0)), v_zero());
} /* 0 at 0 and NaN, as in PyTorch */

/* x Phi(x) = max(x, 0) - |x| Phi(-|x|), where large x are replaced in the second product, which is 0 there. Of -infinity it is NaN, as in
 * PyTorch. */
TC_INLINE vreal v_gelu(vreal x)
{
    vreal density;
    const vreal z = v_abs(v_min(v_set1(V_FARTHEST), x));
    return v_fnma(z, v_normal_tail(z, &density), v_relu(x));
}
TC_INLINE vreal v_gelu_derivative(vreal x)
{
    vreal density;
    const vreal cumulative = v_normal(x, &density);
    return v_fma(x, density, cumulative);
}

/* x / (1 + e^-2u), which is x (1 + tanh u) / 2, with u = sqrt(2/pi) (x + 0.044715 x^3). Infinite from `highest` on. */
TC_INLINE vreal v_gelu_tanh_weight(vreal x)
{
    const vreal one = v_set1(R(1.0)), minus_2u = x * v_set1(R(-1.59576912160573071176)) * v_fma(x * x, v_set1(R(0.044715)), one);
    const vreal highest = v_set1(TC_PRECISION == 32 ? R(88.8) : R(709.8)); /* 128 ln2 and 1024 ln2: the bits of 2^n are those of infinity */
    return one / (one + v_exp_weight(v_min(highest, minus_2u)));
}
TC_INLINE vreal v_gelu_tanh(vreal x) { return x * v_gelu_tanh_weight(x); }
TC_INLINE vreal v_gelu_tanh_derivative(vreal x)
{
    const vreal one = v_set1(R(1.0)), w = v_gelu_tanh_weight(x);
    const vreal slope_2u = v_set1(R(1.59576912160573071176)) * v_fma(x * x, v_set1(R(0.134145)), one);
    return v_fma(x * w * (one - w), slope_2u, w);
}

TC_INLINE vreal v_activate(tc_activation activation, vreal x)
{
    switch (activation) {
    case TC_ACTIVATION_RELU: return v_relu(x);
    case TC_ACTIVATION_GELU: return v_gelu(x);
    case TC_ACTIVATION_GELU_TANH: return v_gelu_tanh(x);
    default: return x;
    }
}

TC_INLINE vreal v_activation_derivative(tc_activation activation, vreal x)
{
    switch (activation) {
    case TC_ACTIVATION_RELU: return v_relu_derivative(x);
    case TC_ACTIVATION_GELU: return v_gelu_derivative(x);
    case TC_ACTIVATION_GELU_TANH: return v_gelu_tanh_derivative(x);
    default: return v_set1(R(1.0));
    }
}

#endif
