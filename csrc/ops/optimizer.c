/* optimizer.c: one step of an optimizer over a list of parameters, gradient norms and clipping. Nothing here is recorded.
 *
 * float16 and bfloat16 parameters are stepped on float32 master copies that the caller keeps; the tensors given here are
 * float32 or float64, contiguous, on one device and of one dtype per call. */
#include "../kernels/optimizer.h"

#include <math.h>
#include <string.h>

#include "../core/allocator.h"
#include "../core/backend.h"
#include "../core/status.h"
#include "../core/tensor.h"

/* The chunk list of a call; `blocks` in all. */
typedef struct chunk_list {
    tc_optimizer_chunk *chunks;
    int64_t count, blocks, capacity;
} chunk_list;

static void chunk_list_end(chunk_list *list)
{
    if (list->chunks) tc_free(list->chunks, sizeof *list->chunks * (size_t)list->capacity);
    list->chunks = NULL;
}

static tc_status check_tensor(const tc_tensor *tensor, const tc_tensor *first, const tc_tensor *parameter, const char *name, int64_t i,
                              tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (!tc_tensor_same_shape(tensor, parameter))
        return tc_fail(err, TC_ERROR_VALUE, "%s %lld has shape %s but its parameter has %s; they must be equal", name, (long long)i,
                       tc_tensor_text(a, tensor), tc_tensor_text(b, parameter));
    if (tensor->dtype != first->dtype || (tensor->dtype != TC_FLOAT32 && tensor->dtype != TC_FLOAT64))
        return tc_fail(err, TC_ERROR_TYPE, "%s %lld is %s but the step computes in %s", name, (long long)i, tc_dtype_name(tensor->dtype),
                       tc_dtype_name(first->dtype));
    if (!tensor->contiguous) return tc_fail(err, TC_ERROR_VALUE, "%s %lld is not contiguous", name, (long long)i);
    const tc_device x = tensor->storage->device, y = first->storage->device;
    if (x.type != y.type || x.index != y.index)
        return tc_fail(err, TC_ERROR_STATE, "%s %lld is on another device than the first parameter", name, (long long)i);
    return TC_OK;
}

/* `states` has state_count lists of `count` tensors, one after the other; a NULL list entry is allowed where the rule allows it. */
static tc_status chunk_list_begin(chunk_list *list, int64_t count, tc_tensor *const *parameters, tc_tensor *const *gradients,
                                  tc_tensor *const *const *states, tc_error *err)
{
    list->capacity = count ? count : 1;
    list->chunks = tc_allocate(sizeof *list->chunks * (size_t)list->capacity);
    if (!list->chunks) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the list of %lld parameters", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        tc_tensor *parameter = parameters ? parameters[i] : gradients[i];
        tc_optimizer_chunk chunk = {
            .parameter = parameter->data, .gradient = gradients[i]->data, .n = parameter->numel, .first_block = list->blocks};
        tc_status status = check_tensor(parameter, parameters ? parameters[0] : gradients[0], parameter, "parameter", i, err);
        if (status == TC_OK) status = check_tensor(gradients[i], parameters ? parameters[0] : gradients[0], parameter, "gradient", i, err);
        for (int s = 0; states && s < TC_OPTIMIZER_STATES && status == TC_OK; s++) {
            if (!states[s]) continue;
            status = check_tensor(states[s][i], parameters[0], parameter, "state", i, err);
            chunk.state[s] = states[s][i]->data;
        }
        if (status != TC_OK) {
            chunk_list_end(list);
            return status;
        }
        if (chunk.n == 0) continue;
        list->chunks[list->count++] = chunk;
        list->blocks += (chunk.n + TC_OPTIMIZER_BLOCK - 1) / TC_OPTIMIZER_BLOCK;
    }
    return TC_OK;
}

/* Raises the versions: packed weights and saved values of these parameters are stale from here on. */
static tc_status begin_writes(int64_t count, tc_tensor *const *tensors, tc_error *err)
{
    const bool before = tc_set_grad_enabled(false);
    tc_status status = TC_OK;
    for (int64_t i = 0; i < count && status == TC_OK; i++) status = tc_tensor_begin_write(tensors[i], err);
    tc_set_grad_enabled(before);
    return status;
}

/* What the three rules share: `args` begins with the chunk pointer and count, which are filled here. */
static tc_status step(const tc_kernel *kernel, void *args, int64_t count, tc_tensor *const *parameters, tc_tensor *const *gradients,
                      tc_tensor *const *const *states, tc_error *err)
{
    struct {
        const tc_optimizer_chunk *chunks;
        int64_t chunk_count;
    } head;
    chunk_list list = {0};
    if (count == 0) return TC_OK;
    tc_status status = TC_OK;
    TC_TRY(chunk_list_begin(&list, count, parameters, gradients, states, err));
    TC_TRY(begin_writes(count, parameters, err));
    head.chunks = list.chunks;
    head.chunk_count = list.count;
    memcpy(args, &head, sizeof head);
    TC_TRY(tc_run(parameters[0]->storage->device, parameters[0]->dtype, kernel, args, list.blocks, 6.0 * TC_OPTIMIZER_BLOCK, 0, err));
cleanup:
    chunk_list_end(&list);
    return status;
}

tc_status tc_sgd_step(int64_t count, tc_tensor *const *parameters, tc_tensor *const *gradients, tc_tensor *const *buffers, double lr,
                      double momentum, double dampening, double weight_decay, bool nesterov, bool maximize, bool first, tc_error *err)
{
    tc_sgd_args args = {.lr = lr,
                        .momentum = momentum,
                        .dampening = dampening,
                        .weight_decay = weight_decay,
                        .nesterov = nesterov,
                        .maximize = maximize,
                        .first = first};
    tc_tensor *const *const states[TC_OPTIMIZER_STATES] = {buffers};
    return step(&tc_kernel_sgd_step, &args, count, parameters, gradients, states, err);
}

tc_status tc_adam_step(int64_t count, tc_tensor *const *parameters, tc_tensor *const *gradients, tc_tensor *const *exp_avg,
                       tc_tensor *const *exp_avg_sq, tc_tensor *const *max_exp_avg_sq, int64_t t, double lr, double beta1, double beta2,
                       double eps, double weight_decay, bool decoupled, bool maximize, tc_error *err)
{
    tc_adam_args args = {.lr = lr,
                         .beta1 = beta1,
                         .beta2 = beta2,
                         .eps = eps,
                         .weight_decay = weight_decay,
                         .correction1 = 1 - pow(beta1, (double)t),
                         .correction2 = 1 - pow(beta2, (double)t),
                         .decoupled = decoupled,
                         .maximize = maximize};
    tc_tensor *const *const states[TC_OPTIMIZER_STATES] = {exp_avg, exp_avg_sq, max_exp_avg_sq};
    return step(&tc_kernel_adam_step, &args, count, parameters, gradients, states, err);
}

tc_status tc_rmsprop_step(int64_t count, tc_tensor *const *parameters, tc_tensor *const *gradients, tc_tensor *const *square_avg,
                          tc_tensor *const *buffers, tc_tensor *const *grad_avg, double lr, double alpha, double eps, double weight_decay,
                          double momentum, bool eps_inside_sqrt, bool maximize, tc_error *err)
{
    tc_rmsprop_args args = {.lr = lr,
                            .alpha = alpha,
                            .eps = eps,
                            .weight_decay = weight_decay,
                            .momentum = momentum,
                            .eps_inside_sqrt = eps_inside_sqrt,
                            .maximize = maximize};
    tc_tensor *const *const states[TC_OPTIMIZER_STATES] = {square_avg, buffers, grad_avg};
    return step(&tc_kernel_rmsprop_step, &args, count, parameters, gradients, states, err);
}

/* ---- norms and clipping -------------------------------------------------------------------------------------------------- */

/* The norm of all gradients from the sums (or the largest elements) of the blocks, in their order. */
static tc_status norm_of(double *norm, tc_tensor *partial, double power, tc_error *err)
{
    tc_tensor *host;
    if (tc_tensor_on_cpu(partial)) {
        host = tc_tensor_retain(partial);
    } else {
        const tc_status status = tc_to_device(&host, partial, (tc_device){TC_CPU, 0}, err);
        if (status != TC_OK) return status;
    }
    const double *sums = (const double *)(const void *)host->data;
    const bool largest = isinf(power);
    double total = 0;
    for (int64_t i = 0; i < host->numel; i++) total = !largest ? total + sums[i] : sums[i] > total || sums[i] != sums[i] ? sums[i] : total;
    *norm = largest ? total : power == 2 ? sqrt(total) : pow(total, 1 / power);
    tc_tensor_release(host);
    return TC_OK;
}

tc_status tc_gradient_norm(double *norm, int64_t count, tc_tensor *const *gradients, double power, tc_error *err)
{
    chunk_list list = {0};
    tc_tensor *partial = NULL;
    tc_status status = TC_OK;
    *norm = 0;
    if (count == 0) return TC_OK;
    const tc_device device = gradients[0]->storage->device;
    TC_TRY(chunk_list_begin(&list, count, NULL, gradients, NULL, err));
    TC_TRY(tc_tensor_empty(&partial, 1, &list.blocks, TC_FLOAT64, device, err));
    const tc_norm_args args = {
        .chunks = list.chunks, .chunk_count = list.count, .partial = (double *)(void *)partial->data, .power = isinf(power) ? 0 : power};
    TC_TRY(tc_run(device, gradients[0]->dtype, &tc_kernel_gradient_norm, &args, list.blocks, TC_OPTIMIZER_BLOCK, 0, err));
    TC_TRY(norm_of(norm, partial, power, err));
cleanup:
    tc_tensor_release(partial);
    chunk_list_end(&list);
    return status;
}

tc_status tc_gradient_scale(int64_t count, tc_tensor *const *gradients, double factor, double limit, tc_error *err)
{
    chunk_list list = {0};
    tc_status status = TC_OK;
    if (count == 0) return TC_OK;
    TC_TRY(chunk_list_begin(&list, count, NULL, gradients, NULL, err));
    TC_TRY(begin_writes(count, gradients, err));
    const tc_scale_args args = {.chunks = list.chunks, .chunk_count = list.count, .factor = factor, .limit = limit};
    TC_TRY(tc_run(gradients[0]->storage->device, gradients[0]->dtype, &tc_kernel_gradient_scale, &args, list.blocks, TC_OPTIMIZER_BLOCK, 0,
                  err));
cleanup:
    chunk_list_end(&list);
    return status;
}
