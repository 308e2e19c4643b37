/* optimizer.h: arguments of the optimizer kernels: all parameters of one step in one pass, as a list of chunks. */
#ifndef TC_KERNELS_OPTIMIZER_H
#define TC_KERNELS_OPTIMIZER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"
#include "types.h"

#define TC_OPTIMIZER_BLOCK 4096 /* elements per item; a chunk's last block may be shorter */
#define TC_OPTIMIZER_STATES 3
#define TC_CLIP_EPSILON 1e-6 /* added to a norm that gradients are divided by */

/* One parameter, contiguous: n elements of value, gradient and state. Parameters and states have the kernel's compute dtype. On a GPU the
 * gradient of a float32 parameter may be of halves, and the value rounded to halves is written as well; on a CPU neither is. */
typedef struct tc_optimizer_chunk {
    void *parameter;
    void *gradient;
    void *state[TC_OPTIMIZER_STATES];
    void *half; /* the new value rounded, or NULL */
    tc_dtype gradient_dtype, half_dtype;
    int64_t n;
    int64_t first_block; /* blocks of the chunks before this one */
} tc_optimizer_chunk;

/* `at` of a rule's arguments: the struct whose numbers apply instead, in the GPU's memory, or NULL. A kernel that a graph starts many times
 * has the learning rate and all else of each step there. */
typedef struct tc_sgd_args {
    const tc_optimizer_chunk *chunks; /* state[0] momentum buffer, or NULL */
    int64_t chunk_count;
    double lr, momentum, dampening, weight_decay;
    bool nesterov, maximize, first; /* first: the momentum buffer starts as the gradient */
    const void *at;
} tc_sgd_args;
extern const tc_kernel tc_kernel_sgd_step;

typedef struct tc_adam_args {
    const tc_optimizer_chunk *chunks; /* state[0] exp_avg, [1] exp_avg_sq, [2] max_exp_avg_sq or NULL */
    int64_t chunk_count;
    double lr, beta1, beta2, eps, weight_decay;
    double correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
    bool decoupled;                  /* AdamW's weight decay */
    bool maximize;
    const void *at;
} tc_adam_args;
extern const tc_kernel tc_kernel_adam_step;

typedef struct tc_rmsprop_args {
    const tc_optimizer_chunk *chunks; /* state[0] square_avg, [1] momentum buffer or NULL, [2] grad_avg (centered) or NULL */
    int64_t chunk_count;
    double lr, alpha, eps, weight_decay, momentum;
    bool eps_inside_sqrt, maximize;
    const void *at;
} tc_rmsprop_args;
extern const tc_kernel tc_kernel_rmsprop_step;

/* Items are blocks. Writes one double per block: the sum of |g|^power, or the largest |g| when power is 0. */
typedef struct tc_norm_args {
    const tc_optimizer_chunk *chunks;
    int64_t chunk_count;
    double *partial; /* (blocks) */
    double power;
} tc_norm_args;
extern const tc_kernel tc_kernel_gradient_norm;

/* The norm from the sums of all blocks, in their order; power 0: from their largest values. NaN where one is. */
static inline double tc_norm_of_sums(const double *sums, int64_t blocks, double power)
{
    double total = 0;
    for (int64_t i = 0; i < blocks; i++) total = power != 0 ? total + sums[i] : sums[i] > total || sums[i] != sums[i] ? sums[i] : total;
    return power == 0 ? total : power == 2 ? sqrt(total) : pow(total, 1 / power);
}

/* One item. norm: of the sums (power 0: largest values) of all blocks; factor: what brings that down to max_norm, at most 1, NaN for NaN.
 */
typedef struct tc_clip_factor_args {
    void *norm;     /* one number */
    double *factor; /* one number */
    const double *partial;
    int64_t blocks;
    double power, max_norm;
    const double *max_norm_at; /* where max_norm is, or NULL */
} tc_clip_factor_args;
extern const tc_kernel tc_kernel_clip_factor;

/* gradient = clamp(gradient * factor, -limit, limit); limit may be infinite. */
typedef struct tc_scale_args {
    const tc_optimizer_chunk *chunks;
    int64_t chunk_count;
    double factor, limit;
    const double *factor_at; /* where the factor is, or NULL */
} tc_scale_args;
extern const tc_kernel tc_kernel_gradient_scale;

#endif
