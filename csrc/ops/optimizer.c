/* optimizer.c: one step of an optimizer over a list of parameters, gradient norms and clipping. Nothing here is recorded.
 *
 * float16 and bfloat16 parameters are stepped on float32 master copies that the caller keeps; parameters and states given here are float32
 * or float64, contiguous, on one device and of one dtype per call. Gradients may be of halves. GPU kernels read these as such, and write
 * the parameters of halves themselves; for those of CPUs they are cast, and copied back. */
#include "../kernels/optimizer.h"

#include <math.h>
#include <string.h>

#include "../core/allocator.h"
#include "../core/graph.h"
#include "../core/kept_half.h"
#include "op.h"

/* The chunk list of a call, with `blocks` blocks. */
typedef struct chunk_list {
    tc_dtype compute;      /* of the kernel: float32 for halves */
    bool takes_halves;     /* the kernel */
    tc_tensor **gradients; /* as it takes them; owned */
    tc_tensor **kept;      /* copies in halves for autocast, which it writes as well, or NULL; owned */
    tc_optimizer_chunk *chunks;
    int64_t count, blocks, capacity;
} chunk_list;

static void chunk_list_end(chunk_list *list)
{
    for (int64_t i = 0; list->gradients && i < 2 * list->capacity; i++) tc_tensor_release(list->gradients[i]);
    if (list->gradients) tc_free(list->gradients, sizeof(tc_tensor *) * (size_t)(2 * list->capacity));
    if (list->chunks) tc_free(list->chunks, sizeof *list->chunks * (size_t)list->capacity);
}

#define CHUNK_LIST(name) __attribute__((cleanup(chunk_list_end))) chunk_list name = {0} /* freed when its block is left */

/* Room for as many as `tensors`, which are not none; the kernel computes in the dtype of the first, or for halves in float32. */
static tc_status chunk_list_begin(chunk_list *list, const tc_tensors *tensors, tc_error *err)
{
    const tc_tensor *first = tensors->items[0];
    const tc_backend *backend;
    const size_t bytes = sizeof(tc_tensor *) * (size_t)(2 * tensors->count);
    TC_TRY(tc_backend_for(&backend, first->storage->device, err));
    list->compute = tc_compute_dtype(first->dtype);
    list->takes_halves = backend->compute_dtype(TC_BFLOAT16) == TC_BFLOAT16;
    list->capacity = tensors->count;
    list->chunks = tc_allocate(sizeof *list->chunks * (size_t)list->capacity);
    list->gradients = list->chunks ? tc_allocate(bytes) : NULL;
    if (!list->gradients) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the list of %lld parameters", (long long)tensors->count);
    memset(list->gradients, 0, bytes);
    list->kept = list->gradients + list->capacity;
    return TC_OK;
}

static tc_status check_count(const tc_tensors *list, const char *name, const tc_tensors *parameters, tc_error *err)
{
    if (list->count == parameters->count) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "%s and parameters are lists of different lengths, %lld and %lld; each parameter has one of them",
                   name, (long long)list->count, (long long)parameters->count);
}

/* `dtype`: that of the tensor, or in which the kernel computes with its values. */
static tc_status check_shape(const tc_tensor *tensor, const tc_tensor *parameter, const char *name, int64_t i, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (!tc_tensor_same_shape(tensor, parameter))
        return tc_fail(err, TC_ERROR_VALUE, "%s %lld has shape %s but its parameter has %s; they must be equal", name, (long long)i,
                       tc_tensor_text(a, tensor), tc_tensor_text(b, parameter));
    return TC_OK;
}

static tc_status check_device(const tc_tensor *tensor, const tc_tensor *first, const char *name, int64_t i, tc_error *err)
{
    char p[TC_DEVICE_TEXT], q[TC_DEVICE_TEXT];
    const tc_device x = tensor->storage->device, y = first->storage->device;
    if (tc_same_device(x, y)) return TC_OK;
    return tc_fail(
        err, TC_ERROR_STATE,
        "%s %lld is on %s but the first parameter is on %s; they must be on one device: move a model before its optimizer takes steps, "
        "or its optimizer's state, too: optimizer.load_state_dict(optimizer.state_dict())",
        name, (long long)i, tc_device_text(p, x), tc_device_text(q, y));
}

static tc_status check_tensor(const tc_tensor *tensor, tc_dtype dtype, const tc_tensor *first, const tc_tensor *parameter, const char *name,
                              int64_t i, tc_error *err)
{
    const tc_dtype compute = tc_compute_dtype(first->dtype);
    TC_TRY(check_shape(tensor, parameter, name, i, err));
    if (dtype != compute)
        return tc_fail(err, TC_ERROR_TYPE, "%s %lld is %s but the step computes in %s", name, (long long)i, tc_dtype_name(tensor->dtype),
                       tc_dtype_name(compute));
    if (!tensor->contiguous) return tc_fail(err, TC_ERROR_VALUE, "%s %lld is not contiguous", name, (long long)i);
    return check_device(tensor, first, name, i, err);
}

/* The gradient of a parameter of this shape, as the kernel takes it. */
static tc_status set_gradient(chunk_list *list, tc_optimizer_chunk *chunk, tc_tensor *gradient, const tc_tensor *parameter,
                              const tc_tensor *first, int64_t i, tc_error *err)
{
    const tc_dtype computed = tc_dtype_is_float(gradient->dtype) ? tc_compute_dtype(gradient->dtype) : gradient->dtype;
    TC_TRY(check_tensor(gradient, computed, first, parameter, "gradient", i, err));
    TC_TRY(tc_tensor_as(&list->gradients[i], gradient, list->takes_halves ? gradient->dtype : list->compute, err));
    chunk->gradient = list->gradients[i]->data;
    chunk->gradient_dtype = list->gradients[i]->dtype;
    return TC_OK;
}

static void add_chunk(chunk_list *list, tc_optimizer_chunk chunk)
{
    if (chunk.n == 0) return;
    chunk.first_block = list->blocks;
    list->chunks[list->count++] = chunk;
    list->blocks += tc_divide_up(chunk.n, TC_OPTIMIZER_BLOCK);
}

/* What a step is given. */
typedef struct step_lists {
    const tc_tensors *parameters, *gradients;
    const tc_tensors *states[TC_OPTIMIZER_STATES]; /* NULL where the rule has none */
    const tc_tensors *halves;                      /* parameters themselves, or for masters what gets their values; or NULL */
} step_lists;

static tc_tensor *half_of(const step_lists *lists, int64_t i)
{
    return lists->halves && lists->halves->items[i]->data != lists->parameters->items[i]->data ? lists->halves->items[i] : NULL;
}

/* Does the kernel write the half itself? */
static bool writes_half(const chunk_list *list, const tc_tensor *half)
{
    return list->takes_halves && list->compute == TC_FLOAT32 && half->contiguous && tc_compute_dtype(half->dtype) != half->dtype;
}

static tc_status fill_chunks(chunk_list *list, const step_lists *lists, tc_error *err)
{
    const tc_tensor *first = lists->parameters->items[0];
    TC_TRY(chunk_list_begin(list, lists->parameters, err));
    for (int64_t i = 0; i < lists->parameters->count; i++) {
        const tc_tensor *parameter = lists->parameters->items[i], *half = half_of(lists, i);
        tc_optimizer_chunk chunk = {.parameter = parameter->data, .n = parameter->numel};
        TC_TRY(check_tensor(parameter, parameter->dtype, first, parameter, "parameter", i, err));
        TC_TRY(set_gradient(list, &chunk, lists->gradients->items[i], parameter, first, i, err));
        for (int k = 0; k < TC_OPTIMIZER_STATES; k++) {
            if (!lists->states[k]) continue;
            const tc_tensor *state = lists->states[k]->items[i];
            TC_TRY(check_tensor(state, state->dtype, first, parameter, "state", i, err));
            chunk.state[k] = state->data;
        }
        if (half) TC_TRY(check_shape(half, parameter, "half", i, err));
        if (half) TC_TRY(check_device(half, first, "half", i, err));
        if (half && writes_half(list, half)) {
            chunk.half = half->data;
            chunk.half_dtype = half->dtype;
        }
        add_chunk(list, chunk);
    }
    return TC_OK;
}

/* Copies of the parameters in halves that are kept for autocast: the kernel writes them as well. */
static tc_status add_kept(chunk_list *list, const step_lists *lists, tc_error *err)
{
    tc_optimizer_chunk *chunk = list->chunks;
    for (int64_t i = 0; i < lists->parameters->count; i++) {
        tc_tensor *parameter = lists->parameters->items[i];
        if (parameter->numel == 0) continue;
        if (!half_of(lists, i) && list->takes_halves && (list->kept[i] = tc_take_kept_half(parameter)) != NULL) {
            TC_TRY(tc_graph_note_half(parameter, list->kept[i], err));
            chunk->half = list->kept[i]->data;
            chunk->half_dtype = list->kept[i]->dtype;
        }
        chunk++;
    }
    return TC_OK;
}

/* Of gradients alone. */
static tc_status fill_gradients(chunk_list *list, const tc_tensors *gradients, tc_error *err)
{
    TC_TRY(chunk_list_begin(list, gradients, err));
    for (int64_t i = 0; i < gradients->count; i++) {
        tc_tensor *gradient = gradients->items[i];
        tc_optimizer_chunk chunk = {.n = gradient->numel};
        TC_TRY(set_gradient(list, &chunk, gradient, gradient, gradients->items[0], i, err));
        add_chunk(list, chunk);
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

static tc_status run(const tc_kernel *kernel, const void *args, const tc_tensor *first, const chunk_list *list, double cost, tc_error *err)
{
    return tc_run(first->storage->device, list->compute, kernel, args, list->blocks, cost * TC_OPTIMIZER_BLOCK, 0, err);
}

/* Shared by the three rules: `args` begins with the chunk pointer and count, which are filled in here, and `at` is its member. */
static tc_status step(const tc_kernel *kernel, void *args, const void **at, const step_lists *lists, tc_error *err)
{
    bool launch;
    const tc_tensors *parameters = lists->parameters;
    struct {
        const tc_optimizer_chunk *chunks;
        int64_t chunk_count;
    } head;
    CHUNK_LIST(list);
    TC_TRY(check_count(lists->gradients, "gradients", parameters, err));
    for (int k = 0; k < TC_OPTIMIZER_STATES; k++)
        if (lists->states[k]) TC_TRY(check_count(lists->states[k], "states", parameters, err));
    if (lists->halves) TC_TRY(check_count(lists->halves, "halves", parameters, err));
    if (parameters->count == 0) return TC_OK;
    TC_TRY(fill_chunks(&list, lists, err));
    head.chunks = list.chunks;
    head.chunk_count = list.count;
    memcpy(args, &head, sizeof head);
    TC_TRY(tc_graph_step(&launch, at, kernel, args, list.chunks, list.count, err));
    if (!launch) return TC_OK; /* the start of the graph, which may yet be refused, raises the versions */
    TC_TRY(begin_writes(parameters, err));
    if (lists->halves) TC_TRY(begin_writes(lists->halves, err));
    TC_TRY(add_kept(&list, lists, err));
    TC_TRY(run(kernel, args, parameters->items[0], &list, 6.0, err));
    for (int64_t i = 0; i < parameters->count; i++) {
        tc_tensor *half = half_of(lists, i);
        if (half && !writes_half(&list, half)) TC_TRY(tc_tensor_copy(half, parameters->items[i], err));
        if (list.kept[i]) tc_give_kept_half(parameters->items[i], tc_take(&list.kept[i]));
    }
    return TC_OK;
}

tc_status tc_sgd_step(const tc_tensors *parameters, const tc_tensors *gradients, const tc_tensors *buffers, double lr, double momentum,
                      double dampening, double weight_decay, bool nesterov, bool maximize, bool first, const tc_tensors *halves,
                      tc_error *err)
{
    tc_sgd_args args = {.lr = lr,
                        .momentum = momentum,
                        .dampening = dampening,
                        .weight_decay = weight_decay,
                        .nesterov = nesterov,
                        .maximize = maximize,
                        .first = first};
    return step(&tc_kernel_sgd_step, &args, &args.at, &(step_lists){parameters, gradients, {buffers}, halves}, err);
}

tc_status tc_adam_step(const tc_tensors *parameters, const tc_tensors *gradients, const tc_tensors *exp_avg, const tc_tensors *exp_avg_sq,
                       const tc_tensors *max_exp_avg_sq, int64_t t, double lr, double beta1, double beta2, double eps, double weight_decay,
                       bool decoupled, bool maximize, const tc_tensors *halves, tc_error *err)
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
    return step(&tc_kernel_adam_step, &args, &args.at, &(step_lists){parameters, gradients, {exp_avg, exp_avg_sq, max_exp_avg_sq}, halves},
                err);
}

tc_status tc_rmsprop_step(const tc_tensors *parameters, const tc_tensors *gradients, const tc_tensors *square_avg,
                          const tc_tensors *buffers, const tc_tensors *grad_avg, double lr, double alpha, double eps, double weight_decay,
                          double momentum, bool eps_inside_sqrt, bool maximize, const tc_tensors *halves, tc_error *err)
{
    tc_rmsprop_args args = {.lr = lr,
                            .alpha = alpha,
                            .eps = eps,
                            .weight_decay = weight_decay,
                            .momentum = momentum,
                            .eps_inside_sqrt = eps_inside_sqrt,
                            .maximize = maximize};
    return step(&tc_kernel_rmsprop_step, &args, &args.at, &(step_lists){parameters, gradients, {square_avg, buffers, grad_avg}, halves},
                err);
}

/* ---- norms and clipping -------------------------------------------------------------------------------------------------- */

/* The norm of all gradients from the sums of the blocks; `power` as kernels have it. */
static tc_status norm_of(double *norm, tc_tensor *partial, double power, tc_error *err)
{
    TC_OWNED tc_tensor *host = NULL;
    TC_TRY(tc_tensor_on(&host, partial, (tc_device){TC_CPU, 0}, err));
    *norm = tc_norm_of_sums(tc_data(host), host->numel, power);
    return TC_OK;
}

/* The sums of all blocks, on their device. */
static tc_status sums_of_blocks(tc_tensor **partial, const chunk_list *list, const tc_tensor *first, double power, tc_error *err)
{
    TC_TRY(tc_tensor_empty(partial, 1, &list->blocks, TC_FLOAT64, first->storage->device, err));
    const tc_norm_args args = {.chunks = list->chunks, .chunk_count = list->count, .partial = tc_data(*partial), .power = power};
    return run(&tc_kernel_gradient_norm, &args, first, list, 1.0, err);
}

tc_status tc_gradient_norm(double *norm, const tc_tensors *gradients, double power, tc_error *err)
{
    CHUNK_LIST(list);
    TC_OWNED tc_tensor *partial = NULL;
    *norm = 0;
    if (gradients->count == 0) return TC_OK;
    TC_TRY(fill_gradients(&list, gradients, err));
    const double norm_power = isinf(power) ? 0 : power; /* as the kernels have it */
    TC_TRY(sums_of_blocks(&partial, &list, gradients->items[0], norm_power, err));
    return norm_of(norm, partial, norm_power, err);
}

/* gradient = clamp(gradient * factor, -limit, limit) for all of the list. */
static tc_status scale(const chunk_list *list, const tc_tensors *gradients, double factor, const double *factor_at, double limit,
                       tc_error *err)
{
    TC_TRY(begin_writes(gradients, err));
    const tc_scale_args args = {
        .chunks = list->chunks, .chunk_count = list->count, .factor = factor, .limit = limit, .factor_at = factor_at};
    TC_TRY(run(&tc_kernel_gradient_scale, &args, gradients->items[0], list, 1.0, err));
    for (int64_t i = 0; i < gradients->count; i++)
        if (list->gradients[i] != gradients->items[i]) TC_TRY(tc_tensor_copy(gradients->items[i], list->gradients[i], err));
    return TC_OK;
}

tc_status tc_gradient_scale(const tc_tensors *gradients, double factor, double limit, tc_error *err)
{
    CHUNK_LIST(list);
    if (gradients->count == 0) return TC_OK;
    TC_TRY(fill_gradients(&list, gradients, err));
    return scale(&list, gradients, factor, NULL, limit, err);
}

/* *number: that of a tensor of one element, as the kernel reads it; NULL for NULL. */
static tc_status take_max_norm(tc_tensor **number, tc_tensor *given, const tc_tensor *gradient, tc_error *err)
{
    char shape[TC_SHAPE_TEXT];
    if (!given) return TC_OK;
    if (given->numel != 1) return tc_fail(err, TC_ERROR_VALUE, "max_norm has shape %s; expected one number", tc_tensor_text(shape, given));
    TC_TRY(tc_check_same_device(gradient, "a gradient", given, "max_norm", err));
    return tc_tensor_as(number, given, TC_FLOAT64, err);
}

tc_status tc_gradient_clip(tc_tensor **norm, const tc_tensors *gradients, double max_norm, double power, tc_tensor *max_norm_at,
                           tc_error *err)
{
    CHUNK_LIST(list);
    TC_OWNED tc_tensor *partial = NULL, *factor = NULL, *total = NULL, *limit = NULL;
    if (gradients->count == 0) return tc_fail(err, TC_ERROR_VALUE, "there are no gradients to clip");
    const tc_tensor *first = gradients->items[0];
    const tc_device device = first->storage->device;
    TC_TRY(take_max_norm(&limit, max_norm_at, first, err));
    TC_TRY(fill_gradients(&list, gradients, err));
    TC_TRY(tc_tensor_empty(&factor, 0, NULL, TC_FLOAT64, device, err));
    TC_TRY(tc_tensor_empty(&total, 0, NULL, list.compute, device, err));
    const double norm_power = isinf(power) ? 0 : power; /* as the kernels have it */
    TC_TRY(sums_of_blocks(&partial, &list, first, norm_power, err));
    const tc_clip_factor_args args = {.norm = total->data,
                                      .factor = tc_data(factor),
                                      .partial = tc_data(partial),
                                      .blocks = list.blocks,
                                      .power = norm_power,
                                      .max_norm = max_norm,
                                      .max_norm_at = limit ? tc_data(limit) : NULL};
    TC_TRY(tc_run(device, list.compute, &tc_kernel_clip_factor, &args, 1, (double)list.blocks, 0, err));
    TC_TRY(scale(&list, gradients, 1, tc_data(factor), INFINITY, err));
    *norm = tc_take(&total);
    return TC_OK;
}
