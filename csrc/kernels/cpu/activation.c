/* activation.c: the backward of the activations that products end with. */
#include "activation.h"

TC_INLINE void backward(tc_activation activation, const tc_activation_backward_args *a, int64_t begin, int64_t end)
{
    const real *dy = a->dy, *x = a->x;
    real *dx = a->dx;
    for (int64_t i = begin; i < end; i += TC_LANES) {
        const int lanes = v_left(end, i);
        v_store_some(dx + i, v_load_some(dy + i, lanes) * v_activation_derivative(activation, v_load_some(x + i, lanes)), lanes);
    }
}

TC_DEFINE_KERNEL(activation_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_activation_backward_args *a = args;
    (void)scratch;
    const int64_t first = begin * TC_ACTIVATION_BLOCK, last = end * TC_ACTIVATION_BLOCK < a->n ? end * TC_ACTIVATION_BLOCK : a->n;
    switch (a->activation) { /* a separate loop for each */
    case TC_ACTIVATION_RELU: backward(TC_ACTIVATION_RELU, a, first, last); break;
    case TC_ACTIVATION_GELU: backward(TC_ACTIVATION_GELU, a, first, last); break;
    case TC_ACTIVATION_GELU_TANH: backward(TC_ACTIVATION_GELU_TANH, a, first, last); break;
    default: backward(TC_ACTIVATION_NONE, a, first, last); break;
    }
}
