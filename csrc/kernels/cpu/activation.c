/* activation.c: the backward of the activations that products end with. */
#include "activation.h"
#include "stored.h"

/* How elements are stored is asked for each vector: a loop for each form would be three times the code. */
TC_INLINE void backward(const tc_activation activation, const tc_activation_backward_args *a, int64_t begin, int64_t end)
{
    const tc_stored stored = a->stored;
    for (int64_t i = begin; i < end; i += TC_LANES) {
        const int lanes = v_left(end, i);
        const vreal slope = v_activation_derivative(activation, v_load_stored(stored_at(a->x, a->x_stored, i), a->x_stored, lanes));
        v_store_stored(stored_to(a->dx, stored, i), stored, v_load_stored(stored_at(a->dy, stored, i), stored, lanes) * slope, lanes);
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
