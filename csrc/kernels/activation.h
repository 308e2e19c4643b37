/* activation.h: the activations a product can end with. */
#ifndef TC_KERNELS_ACTIVATION_H
#define TC_KERNELS_ACTIVATION_H

#include <stdint.h>

typedef enum tc_activation {
    TC_ACTIVATION_NONE,
    TC_ACTIVATION_RELU,
    TC_ACTIVATION_GELU,     /* x Phi(x), exact (Hendrycks and Gimpel 2016) */
    TC_ACTIVATION_GELU_TANH /* their approximation by tanh */
} tc_activation;

#endif
