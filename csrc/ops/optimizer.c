/* optimizer.c: one step of an optimizer over a list of parameters, gradient norms and clipping. Nothing here is recorded.
 *
 * float16 and bfloat16 parameters are stepped on float32 master copies that the caller keeps; the tensors given here are
 * float32 or float64, contiguous, on one device and of one dtype per call. */
#include "../kernels/optimizer.h"

#include <math.h>
#include <string.h>

#include "../core/allocator.h"
#include "op.h"

/* The chunk list of a call, with `blocks` blocks. */
typedef struct chunk_list {
    tc_optimizer_chunk *chunks;
    int64_t count, blocks, capacity;
} chunk_list;

static void chunk_list_end(chunk_list *list)
{
    if (list->chunks) tc_free(list->chunks, sizeof *list->chunks * (size_t)list->capacity);
}

#define CHUNK_LIST(name) __attribute__((cleanup(chunk_list_end))) chunk_list name = {0} /* freed when its block is left */

static tc_status check_count(const tc_tensors *list, const char *name, const tc_tensors *parameters, tc_error *err)
{
    if (list->count == parameters->count) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "%s and parameters are lists of different lengths, %lld and %lld; each parameter has one of them",
                   name, (long long)list->count, (long long)parameters->count);
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
    if (!tc_same_device(tensor->storage->device, first->storage->device))
        return tc_fail(err, TC_ERROR_STATE, "%s %lld is on another device than the first parameter", name, (long long)i);
    return TC_OK;
}

/* `states`: a list for each state of the rule, NULL where it has none. Without a step, for the gradients alone, they are `parameters`. */
static tc_status fill_chunks(chunk_list *list, const tc_tensors *parameters, const tc_tensors *gradients, const tc_tensors *const *states,
                             tc_error *err)
{
    list->capacity = parameters->count;
    list->chunks = tc_allocate(sizeof *list->chunks * (size_t)list->capacity);
    if (!list->chunks) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the list of %lld parameters", (long long)parameters->count);
    for (int64_t i = 0; i < parameters->count; i++) {
        const tc_tensor *parameter = parameters->items[i], *gradient = gradients->items[i], *first = parameters->items[0];
        tc_optimizer_chunk chunk = {
            .parameter = parameter->data, .gradient = gradient->data, .n = parameter->numel, .first_block = list->blocks};
        TC_TRY(check_tensor(parameter, first, parameter, "parameter", i, err));
        TC_TRY(check_tensor(gradient, first, parameter, "gradient", i, err));
        for (int k = 0; states && k < TC_OPTIMIZER_STATES; k++) {
            if (!states[k]) continue;
            TC_TRY(check_tensor(states[k]->items[i], first, parameter, "state", i, err));
            chunk.state[k] = states[k]->items[i]->data;
        }
        if (chunk.n == 0) continue;
        list->chunks[list->count++] = chunk;
        list->blocks += tc_divide_up(chunk.n, TC_OPTIMIZER_BLOCK);
    }
    return TC_OK;
}

/* Raises the versions: packed weights and saved values of these tensors are stale from here on. */
static tc_status begin_writes(const tc_tensors *tensors, tc_error *err)
{
    tc_suspend_recording();
    tc_status status = TC_OK;
    for (int64_t i = 0; i < tensors->count && status == TC_OK; i++) status = tc_tensor_begin_write(tensors->items[i], err);
    tc_resume_recording();
    return status;
}

static tc_status run(const tc_kernel *kernel, const void *args, const tc_tensor *first, int64_t blocks, double cost, tc_error *err)
{
    return tc_run(first->storage->device, first->dtype, kernel, args, blocks, cost * TC_OPTIMIZER_BLOCK, 0, err);
}

/* Shared by the three rules: `args` begins with the chunk pointer and count, which are filled in here. */
static tc_status step(const tc_kernel *kernel, void *args, const tc_tensors *parameters, const tc_tensors *gradients,
                      const tc_tensors *const *states, tc_error *err)
{
    struct {
        const tc_optimizer_chunk *chunks;
        int64_t chunk_count;
    } head;
    CHUNK_LIST(list);
    TC_TRY(check_count(gradients, "gradients", parameters, err));
    for (int k = 0; k < TC_OPTIMIZER_STATES; k++)
        if (states[k]) TC_TRY(check_count(states[k], "states", parameters, err));
    if (parameters->count == 0) return TC_OK;
    TC_TRY(fill_chunks(&list, parameters, gradients, states, err));
    TC_TRY(begin_writes(parameters, err));
    head.chunks = list.chunks;
    head.chunk_count = list.count;
    memcpy(args, &head, sizeof head);
    return run(kernel, args, parameters->items[0], list.blocks, 6.0, err);
}

tc_status tc_sgd_step(const tc_tensors *parameters, const tc_tensors *gradients, const tc_tensors *buffers, double lr, double momentum,
                      double dampening, double weight_decay, bool nesterov, bool maximize, bool first, tc_error *err)
{
    tc_sgd_args args = {.lr = lr,
                        .momentum = momentum,
                        .dampening = dampening,
                        .weight_decay = weight_decay,
                        .nesterov = nesterov,
                        .maximize = maximize,
                        .first = first};
    return step(&tc_kernel_sgd_step, &args, parameters, gradients, (const tc_tensors *[TC_OPTIMIZER_STATES]){buffers}, err);
}

tc_status tc_adam_step(const tc_tensors *parameters, const tc_tensors *gradients, const tc_tensors *exp_avg, const tc_tensors *exp_avg_sq,
                       const tc_tensors *max_exp_avg_sq, int64_t t, double lr, double beta1, double beta2, double eps, double weight_decay,
                       bool decoupled, bool maximize, tc_error *err)
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
    return step(&tc_kernel_adam_step, &args, parameters, gradients,
                (const tc_tensors *[TC_OPTIMIZER_STATES]){exp_avg, exp_avg_sq, max_exp_avg_sq}, err);
}

tc_status tc_rmsprop_step(const tc_tensors *parameters, const tc_tensors *gradients, const tc_tensors *square_avg,
                          const tc_tensors *buffers, const tc_tensors *grad_avg, double lr, double alpha, double eps, double weight_decay,
                          double momentum, bool eps_inside_sqrt, bool maximize, tc_error *err)
{
    tc_rmsprop_args args = {.lr = lr,
                            .alpha = alpha,
                            .eps = eps,
                            .weight_decay = weight_decay,
                            .momentum = momentum,
                            .eps_inside_sqrt = eps_inside_sqrt,
                            .maximize = maximize};
    return step(&tc_kernel_rmsprop_step, &args, parameters, gradients,
                (const tc_tensors *[TC_OPTIMIZER_STATES]){square_avg, buffers, grad_avg}, err);
}

/* ---- norms and clipping -------------------------------------------------------------------------------------------------- */

/* The norm of all gradients from the sums (or the largest elements) of the blocks, in their order. */
static tc_status norm_of(double *norm, tc_tensor *partial, double power, tc_error *err)
{
    TC_OWNED tc_tensor *host = NULL;
    TC_TRY(tc_tensor_on(&host, partial, (tc_device){TC_CPU, 0}, err));
    const double *sums = tc_data(host);
    const bool largest = isinf(power);
    double total = 0;
    for (int64_t i = 0; i < host->numel; i++) total = !largest ? total + sums[i] : sums[i] > total || sums[i] != sums[i] ? sums[i] : total;
    *norm = largest ? total : power == 2 ? sqrt(total) : pow(total, 1 / power);
    return TC_OK;
}

tc_status tc_gradient_norm(double *norm, const tc_tensors *gradients, double power, tc_error *err)
{
    CHUNK_LIST(list);
    TC_OWNED tc_tensor *partial = NULL;
    *norm = 0;
    if (gradients->count == 0) return TC_OK;
    const tc_tensor *first = gradients->items[0];
    TC_TRY(fill_chunks(&list, gradients, gradients, NULL, err));
    TC_TRY(tc_tensor_empty(&partial, 1, &list.blocks, TC_FLOAT64, first->storage->device, err));
    const tc_norm_args args = {
        .chunks = list.chunks, .chunk_count = list.count, .partial = tc_data(partial), .power = isinf(power) ? 0 : power};
    TC_TRY(run(&tc_kernel_gradient_norm, &args, first, list.blocks, 1.0, err));
    return norm_of(norm, partial, power, err);
}

tc_status tc_gradient_scale(const tc_tensors *gradients, double factor, double limit, tc_error *err)
{
    CHUNK_LIST(list);
    if (gradients->count == 0) return TC_OK;
    TC_TRY(fill_chunks(&list, gradients, gradients, NULL, err));
    TC_TRY(begin_writes(gradients, err));
    const tc_scale_args args = {.chunks = list.chunks, .chunk_count = list.count, .factor = factor, .limit = limit};
    return run(&tc_kernel_gradient_scale, &args, gradients->items[0], list.blocks, 1.0, err);
}
