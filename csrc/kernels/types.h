/* types.h: the enumerations that kernels share with transformer_c.h, which includes this file: kernels need nothing else of that header. */
#ifndef TC_KERNELS_TYPES_H
#define TC_KERNELS_TYPES_H

typedef enum tc_dtype { TC_FLOAT32, TC_FLOAT64, TC_FLOAT16, TC_BFLOAT16, TC_INT64, TC_INT32, TC_UINT8, TC_BOOL, TC_DTYPE_COUNT } tc_dtype;

/* How the elements of a kernel's operand are stored. CPUs compute in float32 with halves that are widened when read and rounded to nearest
 * even when written; GPUs have kernels for halves. */
typedef enum tc_stored { TC_STORED_AS_COMPUTED, TC_STORED_FLOAT16, TC_STORED_BFLOAT16 } tc_stored;

typedef enum tc_activation {
    TC_ACTIVATION_NONE,
    TC_ACTIVATION_RELU,
    TC_ACTIVATION_GELU,     /* x Phi(x), exact (Hendrycks and Gimpel 2016) */
    TC_ACTIVATION_GELU_TANH /* their approximation by tanh */
} tc_activation;

#endif
