/* attention.c: layer norm, a projection and causal attention in C, forward and backward. From the root of the repository:
 *
 *     make library
 *     cc -std=c11 -Icsrc docs/examples/attention.c build/libtransformer_c.a -pthread -lm -ldl -o build/attention
 *     build/attention
 */
#include <stdio.h>
#include <stdlib.h>

#include "transformer_c.h"

enum { B = 2, T = 5, C = 8 };

static tc_error err;

static void check(tc_status status)
{
    if (status == TC_OK) return;
    fprintf(stderr, "%s\n", err.message);
    exit(1);
}

/* A float32 tensor whose element i is sin(step * i). */
static tc_tensor *wave(int ndim, const int64_t *shape, double step, bool requires_grad)
{
    tc_tensor *tensor;
    check(tc_tensor_empty(&tensor, ndim, shape, TC_FLOAT32, (tc_device){TC_CPU, 0}, &err));
    float *values = tc_tensor_data(tensor);
    for (int64_t i = 0; i < tc_tensor_numel(tensor); i++) values[i] = (float)sin(step * (double)i);
    check(tc_tensor_set_requires_grad(tensor, requires_grad, &err));
    return tensor;
}

int main(void)
{
    check(tc_initialize(&err));
    tc_tensor *x = wave(3, (int64_t[]){B, T, C}, 0.7, false), *target = wave(3, (int64_t[]){B, T, C}, 0.3, false);
    tc_tensor *gamma = wave(1, (int64_t[]){C}, 1.1, true), *weight = wave(2, (int64_t[]){C, C}, 0.9, true);

    tc_tensor *normed, *q, *values, *loss;
    tc_attention_options options = TC_ATTENTION_DEFAULTS;
    options.causal = true;
    check(tc_layer_norm(&normed, NULL, NULL, x, 1, NULL, gamma, NULL, 1e-5, &err));
    check(tc_linear(&q, NULL, normed, weight, NULL, TC_ACTIVATION_NONE, NULL, 0.0, 0, 0, NULL, &err));
    check(tc_attention(&values, NULL, NULL, NULL, NULL, q, normed, normed, &options, &err));
    check(tc_mse_loss(&loss, values, target, TC_REDUCTION_MEAN, &err));
    check(tc_backward(loss, NULL, false, &err));

    double norm;
    tc_tensor *gradients[] = {tc_tensor_grad(gamma), tc_tensor_grad(weight)};
    check(tc_gradient_norm(&norm, &(tc_tensors){gradients, 2}, 2.0, &err));
    printf("loss %.7g, norm of the gradients %.7g\n", *(float *)tc_tensor_data(loss), norm);

    tc_tensor *all[] = {x, target, gamma, weight, normed, q, values, loss};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tc_tensor_release(all[i]);
    return 0;
}
