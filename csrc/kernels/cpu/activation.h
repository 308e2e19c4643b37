/* activation.h: activations on vectors, for the epilogues of products and for their backwards. */
#ifndef TC_KERNELS_CPU_ACTIVATION_H
#define TC_KERNELS_CPU_ACTIVATION_H

#include "../activation.h"
#include "simd_math.h"

TC_INLINE vreal v_activate(tc_activation activation, vreal x)
{
    switch (activation) {
    case TC_ACTIVATION_RELU: return v_max(v_zero(), x); /* this order of arguments keeps NaN */
    default: return x;
    }
}

#endif
