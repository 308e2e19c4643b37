/* transformer_c.h: the public C interface of transformer_c.
 *
 * Everything a C program needs: status codes, tensors, the tape, ops, random numbers, threads. No Python and no CUDA
 * types appear here.
 *
 * Conventions
 *   - A function that can fail returns tc_status and takes a caller-owned tc_error as its last argument; on failure it
 *     writes a message there and changes nothing else.
 *   - Functions that make tensors write them to `tc_tensor **out` arguments, which come first; the caller owns one
 *     reference and releases it with tc_tensor_release().
 *   - Arguments are borrowed unless the comment says "steals".
 *   - Shapes are given in comments: B batch, T sequence (Tq, Tk), C or E embedding, H heads, D head size, N rows.
 *   - Sizes and offsets are int64_t, counted in elements, never bytes, unless named so.
 */
#ifndef TRANSFORMER_C_H
#define TRANSFORMER_C_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/function_ids.h"
#include "kernels/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TC_CHECKED __attribute__((warn_unused_result))
#define TC_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define TC_CHECKED
#define TC_PRINTF(format_index, first)
#endif

/* ---- status -------------------------------------------------------------------------------------------------- */

typedef enum tc_status {
    TC_OK = 0,
    TC_ERROR_VALUE,           /* a shape or a value is wrong             -> ValueError          */
    TC_ERROR_TYPE,            /* a dtype or a kind is wrong              -> TypeError           */
    TC_ERROR_INDEX,           /* an index is out of range                -> IndexError          */
    TC_ERROR_STATE,           /* freed graph, missing device             -> RuntimeError        */
    TC_ERROR_MEMORY,          /* an allocation failed                    -> MemoryError         */
    TC_ERROR_NOT_IMPLEMENTED, /* planned, but not implemented yet       -> NotImplementedError */
    TC_ERROR_CALLBACK         /* a host-language callback failed; the host keeps its own exception */
} tc_status;

typedef struct tc_error {
    tc_status status;
    char message[504];
} tc_error;

/* ---- the process ------------------------------------------------------------------------------------------------ */

/* Chooses the instruction set and the number of threads: from TRANSFORMER_C_ISA and TRANSFORMER_C_NUM_THREADS, otherwise the best for this
 * machine. Called once, before anything else; an error if a variable has a value that cannot be used. */
TC_CHECKED tc_status tc_initialize(tc_error *err);

/* Threads that compute, the caller included: fewer than were set if the system refuses to start that many; 1 before a number is set. */
int tc_get_num_threads(void);
/* 1 .. 1024. May be called at any time, from any thread; work in progress keeps its threads. */
TC_CHECKED tc_status tc_set_num_threads(int count, tc_error *err);

/* ---- dtypes and devices -------------------------------------------------------------------------------------- */

typedef enum tc_device_type { TC_CPU, TC_CUDA, TC_DEVICE_TYPE_COUNT } tc_device_type;

typedef struct tc_device {
    tc_device_type type;
    int index; /* ordinal of the GPU; 0 on the CPU */
} tc_device;

#define TC_EMULATED_GPU (-1) /* the index of "cuda:emulated", which exists in tests only */
#define TC_DEVICE_TEXT 24
const char *tc_device_text(char buffer[TC_DEVICE_TEXT], tc_device device); /* "cpu", "cuda:0", "cuda:emulated"; returns `buffer` */

const char *tc_dtype_name(tc_dtype dtype);         /* "float32", ... */
size_t tc_dtype_size(tc_dtype dtype);              /* bytes of one element */
bool tc_dtype_is_float(tc_dtype dtype);            /* float32, float64, float16, bfloat16 */
tc_dtype tc_dtype_promote(tc_dtype a, tc_dtype b); /* PyTorch's table: int64 + float16 -> float16, float16 + bfloat16 -> float32 */

/* ---- tensors ------------------------------------------------------------------------------------------------- */

#define TC_MAX_DIMS 16

typedef struct tc_tensor tc_tensor;

typedef struct tc_tensors { /* a borrowed list of tensors */
    tc_tensor *const *items;
    int64_t count;
} tc_tensors;

/* A new tensor of uninitialised memory, contiguous in C order. */
TC_CHECKED tc_status tc_tensor_empty(tc_tensor **out, int ndim, const int64_t *shape, tc_dtype dtype, tc_device device, tc_error *err);
TC_CHECKED tc_status tc_tensor_full(tc_tensor **out, int ndim, const int64_t *shape, double value, tc_dtype dtype, tc_device device,
                                    tc_error *err);

/* A tensor over memory that somebody else owns. `strides` are in elements and may be zero or negative; `data` points to element [0,...,0].
 * `release(context)` is called exactly once, on any thread, when the last tensor over the memory is freed. `writable` false makes every
 * in-place write an error. On failure `release` is not called. */
TC_CHECKED tc_status tc_tensor_wrap(tc_tensor **out, void *data, int ndim, const int64_t *shape, const int64_t *strides, tc_dtype dtype,
                                    bool writable, void (*release)(void *context), void *context, tc_error *err);

tc_tensor *tc_tensor_retain(tc_tensor *tensor); /* returns its argument; NULL is allowed */
void tc_tensor_release(tc_tensor *tensor);      /* NULL is allowed */

int tc_tensor_ndim(const tc_tensor *tensor);
const int64_t *tc_tensor_shape(const tc_tensor *tensor);
const int64_t *tc_tensor_strides(const tc_tensor *tensor); /* in elements */
int64_t tc_tensor_numel(const tc_tensor *tensor);
tc_dtype tc_tensor_dtype(const tc_tensor *tensor);
tc_device tc_tensor_device(const tc_tensor *tensor);
void *tc_tensor_data(const tc_tensor *tensor); /* address of element [0,...,0] */
bool tc_tensor_is_contiguous(const tc_tensor *tensor);

/* ---- precision ------------------------------------------------------------------------------------------------- */

/* How much accuracy float32 products may give up for speed. It is a permission: a kernel that gains nothing by it does not use it. */
typedef enum tc_float32_precision {
    TC_FLOAT32_HIGHEST, /* full float32, the default */
    TC_FLOAT32_HIGH,    /* about 16 bits on CPUs, two bfloat16 parts; 20 on GPUs, two TF32 parts */
    TC_FLOAT32_MEDIUM   /* bfloat16; on GPUs TF32 */
} tc_float32_precision;

void tc_set_float32_precision(tc_float32_precision precision); /* for the whole process; products in progress may use either setting */
tc_float32_precision tc_get_float32_precision(void);

/* ---- GPUs: devices, memory and streams --------------------------------------------------------------------------- */

typedef struct tc_cuda_memory_stats {
    size_t in_use, peak_in_use, cached; /* bytes of whole blocks: used by tensors, the peak of that, kept for later tensors */
    size_t unused, total;               /* of the device, as reported by its driver */
    uint64_t device_calls;              /* blocks allocated from the driver so far */
} tc_cuda_memory_stats;

/* All of these fail with TC_ERROR_STATE and the reason when the GPU cannot be used. */
TC_CHECKED tc_status tc_cuda_device_count(int *count, tc_error *err);
/* Of a GPU that is counted: its compute capability, 80 for 8.0, and its multiprocessors. */
TC_CHECKED tc_status tc_cuda_describe(int *capability, int *cores, int index, tc_error *err);
/* The compute capabilities that the CUDA library has code for, rising, then 0; later GPUs run that of the last. Without a GPU as well. */
TC_CHECKED tc_status tc_cuda_code_for(const int **capabilities, tc_error *err);
TC_CHECKED tc_status tc_cuda_synchronize(int index, tc_error *err); /* waits for all work on the device */
TC_CHECKED tc_status tc_cuda_memory_statistics(tc_cuda_memory_stats *out, int index, tc_error *err);
TC_CHECKED tc_status tc_cuda_empty_cache(int index, tc_error *err); /* returns cached memory to the driver */
/* Every thread has its own stream on each device; the work of several threads on the same memory is kept in order. A thread can choose
 * another stream: new_stream gives one (shared with nobody while fewer than 64 are in use), end_stream gives it back once no thread uses
 * it. */
TC_CHECKED tc_status tc_cuda_new_stream(void **stream, int index, tc_error *err);
/* stream NULL: the thread's own. *before receives the stream chosen until now; before may be NULL. */
TC_CHECKED tc_status tc_cuda_set_stream(void **before, void *stream, tc_error *err);
void tc_cuda_end_stream(void *stream);
/* Work that is put on `stream`, which may be another library's, from now on runs after all work so far on the tensor, which is on a GPU. */
TC_CHECKED tc_status tc_cuda_hand_over(const tc_tensor *tensor, void *stream, tc_error *err);
/* Afterwards: our work that is put on streams from now on runs after what the other library has put on `stream` so far. For
 * TC_CUDA_LEGACY_STREAM this is so without a wait, for others, which may not exist any more, the host waits for all work on the device. A
 * GPU that has failed says so at the next call. */
void tc_cuda_take_back(const tc_tensor *tensor, void *stream);
#define TC_CUDA_LEGACY_STREAM ((void *)1) /* CUDA's own name for its default stream */

/* ---- graphs: work on a GPU that is recorded once and started many times ------------------------------------------------------ */

typedef struct tc_cuda_graph tc_cuda_graph;

/* From here to tc_cuda_graph_end() what this thread puts on the GPU is kept for the graph and not done. Calls that wait for the GPU, or
 * copy from or to the host, fail. Memory that is taken in between belongs to the graph: after each start it has the results. */
TC_CHECKED tc_status tc_cuda_graph_begin(tc_cuda_graph **out, int index, tc_error *err);
/* On the same thread. Nothing has run yet. When it fails the graph can only be freed. */
TC_CHECKED tc_status tc_cuda_graph_end(tc_cuda_graph *graph, tc_error *err);
/* Before a start: the seed and the number of calls so far of the generator `number`, in the order of their first draws in the capture. */
void tc_cuda_graph_set_draw(tc_cuda_graph *graph, int number, uint64_t seed, uint64_t calls);
uint64_t tc_cuda_graph_draws(const tc_cuda_graph *graph, int number);      /* how many it draws at each start */
uint64_t tc_cuda_graph_first_draw(const tc_cuda_graph *graph, int number); /* the number of the first one, in the capture or as last set */
/* Before a start: between these two this thread's steps of optimizers, as many and in the order of the capture, give their numbers and do
 * nothing else. Other work on GPUs fails. */
TC_CHECKED tc_status tc_cuda_graph_collect(tc_cuda_graph *graph, tc_error *err);
TC_CHECKED tc_status tc_cuda_graph_collected(tc_cuda_graph *graph, tc_error *err);
/* Before a start: fails unless the gradients of the leaves, but for those that the capture replaced, are where they were before it. */
TC_CHECKED tc_status tc_cuda_graph_check(const tc_cuda_graph *graph, tc_error *err);
/* In the capture: the tensor stands for an argument, of which each start has a new one. As a leaf it has no gradient before a start.
 * No other thread may use it until the capture ends. */
TC_CHECKED tc_status tc_cuda_graph_argument(tc_cuda_graph *graph, tc_tensor *tensor, tc_error *err);
/* What its work does with the memory of the tensor. NULL: that of this thread's capture, which has no graph outside yet. */
typedef enum tc_cuda_use { TC_CUDA_UNUSED, TC_CUDA_READ, TC_CUDA_WRITTEN } tc_cuda_use;
tc_cuda_use tc_cuda_graph_use(const tc_cuda_graph *graph, const tc_tensor *tensor);
/* All the work, once more, on this thread's stream. */
TC_CHECKED tc_status tc_cuda_graph_start(tc_cuda_graph *graph, tc_error *err);
/* After a start: the gradients of leaves are what they were after the capture. */
TC_CHECKED tc_status tc_cuda_graph_give_gradients(tc_cuda_graph *graph, tc_error *err);
/* After a capture whose work was never done: the leaves have the gradients that it would have begun with. */
TC_CHECKED tc_status tc_cuda_graph_give_up(tc_cuda_graph *graph, tc_error *err);
/* Also while it runs. Its memory goes back to the cache, but for what Tensors have. */
void tc_cuda_graph_free(tc_cuda_graph *graph);

bool tc_cuda_is_capturing(void); /* this thread */
/* In a capture, around the call of an op with dropout: generator `number` has taken `count` numbers for it, from `call` on. */
TC_CHECKED tc_status tc_cuda_begin_draw(int number, uint64_t seed, uint64_t call, uint64_t count, tc_error *err);
void tc_cuda_end_draw(bool is_drawn); /* false: the op failed, and the generator has taken the numbers back */

/* ---- the tape ------------------------------------------------------------------------------------------------ */

bool tc_tensor_requires_grad(const tc_tensor *tensor); /* a leaf for which it was set, or a recorded result */
bool tc_tensor_is_leaf(const tc_tensor *tensor);
/* *out: the same memory, without a history. */
TC_CHECKED tc_status tc_tensor_detach(tc_tensor **out, tc_tensor *tensor, tc_error *err);
TC_CHECKED tc_status tc_tensor_set_requires_grad(tc_tensor *tensor, bool requires_grad, tc_error *err);
tc_tensor *tc_tensor_grad(const tc_tensor *tensor); /* borrowed; NULL when there is none */
tc_tensor *tc_tensor_take_grad(tc_tensor *tensor);  /* the same, a new reference: while other threads run backwards or set it */
TC_CHECKED tc_status tc_tensor_set_grad(tc_tensor *tensor, tc_tensor *grad /* or NULL */, tc_error *err);

bool tc_grad_enabled(void);             /* of this thread */
bool tc_set_grad_enabled(bool enabled); /* returns the old value */
/* Records nothing in between, whatever is set; they nest. */
void tc_suspend_recording(void);
void tc_resume_recording(void);
int tc_exchange_suspended(int count); /* 0 for code of the host's in between; gives what to set afterwards */

/* Adds the gradient of `root` with respect to each leaf that it depends on to the grad of that leaf. `gradient` (shape of root) may be NULL
 * when root has one element. Saved values are freed as they are used, unless `retain_graph`. On failure no grad has changed. */
TC_CHECKED tc_status tc_backward(tc_tensor *root, tc_tensor *gradient, bool retain_graph, tc_error *err);

/* Instead of a backward: the gradients of the sum of roots[i] times gradients[i] with respect to `inputs`, leaves or results, in out[]
 * (owned; NULL where no root depends on the input). An entry of `gradients` may be NULL where the root has one element. No grad changes. */
TC_CHECKED tc_status tc_gradients(tc_tensor **out, int64_t count, tc_tensor *const *inputs, int64_t root_count, tc_tensor *const *roots,
                                  tc_tensor *const *gradients, bool retain_graph, tc_error *err);

/* Adds those gradients to the grads of the inputs that are leaves. */
TC_CHECKED tc_status tc_backward_to(int64_t count, tc_tensor *const *inputs, int64_t root_count, tc_tensor *const *roots,
                                    tc_tensor *const *gradients, bool retain_graph, tc_error *err);

/* The same as tc_backward, and tells of leaves while it goes on. */
typedef struct tc_watch {
    int64_t count;
    tc_tensor *const *leaves; /* each once */
    /* Called once for each leaf, on this thread, as soon as this backward has no more gradient for leaves[place]. `gradient`, borrowed,
     * will be added to its grad after the whole walk; NULL: it gets none. An error ends the backward. */
    tc_status (*is_final)(void *context, int64_t place, tc_tensor *gradient, tc_error *err);
    void *context;
    bool was_alone; /* set afterwards: false where a function that the walk called ran another backward, which gave gradients of its own */
} tc_watch;
TC_CHECKED tc_status tc_backward_watched(tc_tensor *root, tc_tensor *gradient, bool retain_graph, tc_watch *watch, tc_error *err);

/* ---- ops: each records one tape node when an input requires a gradient ------------------------------------------ */

/* A number of the host language. As an operand it changes a dtype only when its kind is higher: float32 + 2.5 is float32, int64 + 2.5 is
 * float32, bool + 2 is int64. */
typedef struct tc_scalar {
    tc_dtype kind;   /* TC_BOOL, TC_INT64 or TC_FLOAT64 */
    double real;     /* the value, for every kind */
    int64_t integer; /* the value, for the first two */
} tc_scalar;

static inline tc_scalar tc_make_scalar(tc_dtype kind, double value, int64_t integer)
{
    tc_scalar scalar = {kind, value, integer};
    return scalar;
}
static inline tc_scalar tc_scalar_real(double value) { return tc_make_scalar(TC_FLOAT64, value, 0); }
static inline tc_scalar tc_scalar_integer(int64_t value) { return tc_make_scalar(TC_INT64, (double)value, value); }
static inline tc_scalar tc_scalar_bool(bool value) { return tc_make_scalar(TC_BOOL, value, value); }

/* An argument that is a tensor or, where that is NULL, a number. */
typedef struct tc_argument {
    tc_tensor *tensor;
    tc_scalar scalar;
} tc_argument;

/* y = function(x), in x's dtype. For integers and bools only the functions in integer.def are allowed. */
TC_CHECKED tc_status tc_unary(tc_tensor **y, tc_tensor *x, tc_unary_function function, tc_error *err);
/* Not recorded.  saved: x or y, as the row of unary.def says; not read, and may be NULL, where the row names neither. */
TC_CHECKED tc_status tc_unary_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *saved, tc_unary_function function, tc_error *err);
/* out = function(a, b) with NumPy's broadcasting and PyTorch's dtypes: the promoted dtype, in which a tensor without axes counts only if
 * its kind is higher; division of integers gives float32; comparisons and logical functions give bool. */
TC_CHECKED tc_status tc_binary(tc_tensor **out, tc_tensor *a, tc_tensor *b, tc_binary_function function, tc_error *err);
/* The same with a number for b, or for a when `scalar_first`. */
TC_CHECKED tc_status tc_binary_scalar(tc_tensor **out, tc_tensor *a, tc_scalar b, bool scalar_first, tc_binary_function function,
                                      tc_error *err);
/* The same; a, b or both may be numbers. */
TC_CHECKED tc_status tc_binary_arguments(tc_tensor **out, const tc_argument *a, const tc_argument *b, tc_binary_function function,
                                         tc_error *err);
/* *out: x multiplied up along an axis, which stays with length 1, halves by halves; or with `running` all products of the first elements,
 * each of as many before it and itself. NULL where it would be recorded, on GPUs, of bools and of fewer than two elements. */
TC_CHECKED tc_status tc_multiply_up(tc_tensor **out, tc_tensor *x, int64_t axis, bool running, tc_error *err);
/* Writes function(target, b) to target, and NULL to *out; where that cannot be done in place (the result is recorded, or has another
 * dtype), the result is *out. */
TC_CHECKED tc_status tc_binary_in_place(tc_tensor **out, tc_tensor *target, const tc_argument *b, tc_binary_function function,
                                        tc_error *err);
/* Writes a function of elements of in[0 .. inputs-1] to target, or to a new tensor where that is NULL, and gives it to *out. *out is NULL,
 * and nothing has changed, where there is no such function here, or not with the bits of the ops that it stands for: only for tensors of
 * one dtype, no bools, on the CPU, none of which gets a gradient, and a target that other ones do not overlap. name: a row of unary.def
 * (of integers: of integer.def), "clamp_min", "clamp_max", "clamp" (x, low, high), or of floats "add_product" (x + y z), "lerp"
 * (x + (y - x) z) or "same" (x where y and z are equal, otherwise 0). */
TC_CHECKED tc_status tc_compute_into(tc_tensor **out, tc_tensor *target, const char *name, int inputs, const tc_argument *in,
                                     tc_error *err);
/* Not recorded.  a,b have one floating dtype, dy their broadcast shape. Only for functions that have a gradient. */
TC_CHECKED tc_status tc_binary_backward(tc_tensor **da, tc_tensor **db, tc_tensor *dy, tc_tensor *a, tc_tensor *b,
                                        tc_binary_function function, tc_error *err);
/* out = condition ? a : b, broadcast. The dtype is chosen as in tc_binary. */
TC_CHECKED tc_status tc_where(tc_tensor **out, tc_tensor *condition, const tc_argument *a, const tc_argument *b, tc_error *err);
TC_CHECKED tc_status tc_where_backward(tc_tensor **da, tc_tensor **db, tc_tensor *dy, tc_tensor *condition, tc_tensor *a, tc_tensor *b,
                                       tc_error *err);
/* y = x between the bounds, and the bound that it is beyond elsewhere; max where they are crossed. Dtypes as in tc_binary. */
TC_CHECKED tc_status tc_clamp(tc_tensor **y, tc_tensor *x, const tc_argument *min, const tc_argument *max, tc_error *err);
/* dx = dy where x and y are equal: of bounds that are numbers and not crossed. */
TC_CHECKED tc_status tc_clamp_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, tc_error *err);
/* x with `value` (one element) where the mask (bool; they broadcast) is true; in x's dtype. */
TC_CHECKED tc_status tc_masked_fill(tc_tensor **out, tc_tensor *x, tc_tensor *mask, const tc_argument *value, tc_error *err);
/* The same in x, of which no elements may share memory; nothing else of x is written, unless it is recorded: other threads may. */
TC_CHECKED tc_status tc_fill_masked(tc_tensor *x, tc_tensor *mask, const tc_argument *value, tc_error *err);

/* Reductions over `axes` (each -ndim .. ndim-1, none twice; axis_count -1: all axes). The reduced axes are removed, or are kept with length
 * 1. */
typedef enum tc_reduce_function {
    TC_REDUCE_sum,  /* integers and bools: int64 */
    TC_REDUCE_mean, /* floating dtypes only, like var */
    TC_REDUCE_max,  /* NaN if any element is NaN */
    TC_REDUCE_min,
    TC_REDUCE_any, /* bool */
    TC_REDUCE_all,
    TC_REDUCE_COUNT
} tc_reduce_function;

TC_CHECKED tc_status tc_reduce(tc_tensor **out, tc_tensor *x, tc_reduce_function function, int axis_count, const int64_t *axes,
                               bool keepdims, tc_error *err);
/* Not recorded. The bits of the sum of square(x), in one pass; of halves in float32. */
TC_CHECKED tc_status tc_sum_of_squares(tc_tensor **out, tc_tensor *x, int axis_count, const int64_t *axes, bool keepdims, tc_error *err);
/* Sum of the squared differences from the mean, over count - correction. */
TC_CHECKED tc_status tc_var(tc_tensor **out, tc_tensor *x, double correction, int axis_count, const int64_t *axes, bool keepdims,
                            tc_error *err);
/* Not recorded.  dy: the result's shape, reduced axes kept or not; y: the result, for max and min (NULL otherwise). */
TC_CHECKED tc_status tc_reduce_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, tc_tensor *y, tc_reduce_function function,
                                        int axis_count, const int64_t *axes, tc_error *err);
TC_CHECKED tc_status tc_var_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *x, double correction, int axis_count, const int64_t *axes,
                                     tc_error *err);
/* int64 indices of the first largest (smallest) element along an axis, or in the flattened tensor when axis_count is -1. A NaN wins over
 * every number. */
TC_CHECKED tc_status tc_arg_reduce(tc_tensor **out, tc_tensor *x, bool largest, int axis_count, const int64_t *axes, bool keepdims,
                                   tc_error *err);
/* int64 indices that sort x along an axis; equal elements keep their order, NaN is larger than all others. *first: only so many of them. */
TC_CHECKED tc_status tc_argsort(tc_tensor **out, tc_tensor *x, int64_t axis, bool descending, const int64_t *first, tc_error *err);

/* exp(x) / sum(exp(x)) along an axis (-ndim .. ndim-1), or its logarithm. A row that contains NaN or +inf, or only -inf, becomes NaN. The
 * backward takes the result. */
TC_CHECKED tc_status tc_softmax(tc_tensor **y, tc_tensor *x, int64_t axis, bool logarithm, tc_error *err);
TC_CHECKED tc_status tc_softmax_backward(tc_tensor **dx, tc_tensor *dy, tc_tensor *y, int64_t axis, bool logarithm, tc_error *err);

typedef enum tc_reduction { TC_REDUCTION_NONE, TC_REDUCTION_MEAN, TC_REDUCTION_SUM } tc_reduction;

/* Cross-entropy.  input (C), (N,C) or (N,C,d1,...); target: classes (integers), input's shape without the class axis, or probabilities
 * (floating), input's shape; weight (C) or NULL. The mean is weighted. With classes, top,log_sum (one element per row, N d1 ... rows) are
 * the largest logit and log sum e^(x - top), which the backward needs; NULL: not wanted. */
TC_CHECKED tc_status tc_cross_entropy(tc_tensor **loss, tc_tensor **top, tc_tensor **log_sum, tc_tensor *input, tc_tensor *target,
                                      tc_tensor *weight, int64_t ignore_index, double label_smoothing, tc_reduction reduction,
                                      tc_error *err);
TC_CHECKED tc_status tc_cross_entropy_backward(tc_tensor **dinput, tc_tensor *dloss, tc_tensor *input, tc_tensor *target, tc_tensor *top,
                                               tc_tensor *log_sum, tc_tensor *weight, int64_t ignore_index, double label_smoothing,
                                               tc_reduction reduction, tc_error *err);
/* The same with classes for an input of log probabilities: -weight[target] input[target]. */
TC_CHECKED tc_status tc_nll_loss(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_tensor *weight, int64_t ignore_index,
                                 tc_reduction reduction, tc_error *err);
TC_CHECKED tc_status tc_nll_loss_backward(tc_tensor **dinput, tc_tensor *dloss, tc_tensor *input, tc_tensor *target, tc_tensor *weight,
                                          int64_t ignore_index, tc_reduction reduction, tc_error *err);

/* Element-wise losses.  input,target have one shape; weights broadcast to it and are constants; loss () or, without reduction, of that
 * shape. */
TC_CHECKED tc_status tc_mse_loss(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_reduction reduction, tc_error *err);
/* input: probabilities from 0 to 1, whose logarithms are clamped at -100. */
TC_CHECKED tc_status tc_binary_cross_entropy(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_tensor *weight,
                                             tc_reduction reduction, tc_error *err);
/* positive_weight multiplies the loss of the positive class. */
TC_CHECKED tc_status tc_binary_cross_entropy_with_logits(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_tensor *weight,
                                                         tc_tensor *positive_weight, tc_reduction reduction, tc_error *err);
/* d^2 / 2 beta where the difference d is smaller than beta, |d| - beta / 2 elsewhere; with beta 0 the absolute difference. */
TC_CHECKED tc_status tc_smooth_l1_loss(tc_tensor **loss, tc_tensor *input, tc_tensor *target, double beta, tc_reduction reduction,
                                       tc_error *err);
/* Kullback-Leibler divergence: target (log target - input), input log probabilities; log_target: the target is given as logarithms. */
TC_CHECKED tc_status tc_kl_div(tc_tensor **loss, tc_tensor *input, tc_tensor *target, tc_reduction reduction, bool log_target,
                               tc_error *err);

/* Gradients of the input and of the target. NULL: not wanted. */
TC_CHECKED tc_status tc_mse_loss_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input, tc_tensor *target,
                                          tc_reduction reduction, tc_error *err);
TC_CHECKED tc_status tc_binary_cross_entropy_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input,
                                                      tc_tensor *target, tc_tensor *weight, tc_reduction reduction, tc_error *err);
TC_CHECKED tc_status tc_binary_cross_entropy_with_logits_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss,
                                                                  tc_tensor *input, tc_tensor *target, tc_tensor *weight,
                                                                  tc_tensor *positive_weight, tc_reduction reduction, tc_error *err);
TC_CHECKED tc_status tc_smooth_l1_loss_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input,
                                                tc_tensor *target, double beta, tc_reduction reduction, tc_error *err);
TC_CHECKED tc_status tc_kl_div_backward(tc_tensor **dinput, tc_tensor **dtarget, tc_tensor *dloss, tc_tensor *input, tc_tensor *target,
                                        tc_reduction reduction, bool log_target, tc_error *err);

/* Layer normalisation over the last `axes` axes (Ba et al. 2016, eq. 4). `lengths`: the lengths that these axes must have, or NULL. x,y
 * (..., C); gamma,beta (C) or NULL. The backward needs mean,rstd (...), in the compute dtype; NULL: not wanted. */
TC_CHECKED tc_status tc_layer_norm(tc_tensor **y, tc_tensor **mean, tc_tensor **rstd, tc_tensor *x, int axes, const int64_t *lengths,
                                   tc_tensor *gamma, tc_tensor *beta, double eps, tc_error *err);
TC_CHECKED tc_status tc_layer_norm_backward(tc_tensor **dx, tc_tensor **dgamma, tc_tensor **dbeta, tc_tensor *dy, tc_tensor *x,
                                            tc_tensor *gamma, tc_tensor *mean, tc_tensor *rstd, tc_error *err);
/* The same for x + residual, which have one shape. The backward takes their sum, in the compute dtype, instead of x. dropout: the
 * probability with which elements of x are dropped before that; which ones follows from seed and call, as in tc_dropout. A batch that
 * several processes share is numbered as a whole unless its first axis is normalised over. */
TC_CHECKED tc_status tc_add_layer_norm(tc_tensor **y, tc_tensor **sum, tc_tensor **mean, tc_tensor **rstd, tc_tensor *x,
                                       tc_tensor *residual, int axes, const int64_t *lengths, tc_tensor *gamma, tc_tensor *beta, double eps,
                                       double dropout, uint64_t seed, uint64_t call, tc_error *err);
TC_CHECKED tc_status tc_add_layer_norm_backward(tc_tensor **dx, tc_tensor **dresidual, tc_tensor **dgamma, tc_tensor **dbeta, tc_tensor *dy,
                                                tc_tensor *sum, tc_tensor *gamma, tc_tensor *mean, tc_tensor *rstd, double dropout,
                                                uint64_t seed, uint64_t call, tc_error *err);

/* Division by the root mean square over the last `axes` axes (Zhang and Sennrich 2019, eq. 4); lengths, y, x, gamma as above. eps NULL: the
 * machine epsilon of the compute dtype. The backward needs rstd (...), 1 / root mean square; NULL: not wanted. */
TC_CHECKED tc_status tc_rms_norm(tc_tensor **y, tc_tensor **rstd, tc_tensor *x, int axes, const int64_t *lengths, tc_tensor *gamma,
                                 const double *eps, tc_error *err);
TC_CHECKED tc_status tc_rms_norm_backward(tc_tensor **dx, tc_tensor **dgamma, tc_tensor *dy, tc_tensor *x, tc_tensor *gamma,
                                          tc_tensor *rstd, tc_error *err);

/* Rows of a table.  indices (...) of integers in [0, V); weight (V,D); y (...,D). The row *padding_idx (-V .. V-1) gets no gradient; NULL:
 * no such row. TC_ERROR_INDEX for an index outside the table. */
TC_CHECKED tc_status tc_embedding(tc_tensor **y, tc_tensor *indices, tc_tensor *weight, const int64_t *padding_idx, tc_error *err);
/* dy (...,D); dweight (V,D): rows with the same index are added in order. */
TC_CHECKED tc_status tc_embedding_backward(tc_tensor **dweight, tc_tensor *dy, tc_tensor *indices, int64_t V, const int64_t *padding_idx,
                                           tc_error *err);
/* out (..., classes) int64: zeros with a one at each index; classes -1: the largest index plus one. */
TC_CHECKED tc_status tc_one_hot(tc_tensor **out, tc_tensor *indices, int64_t classes, tc_error *err);
/* The maximum over the sequence.  x (B,T,C), y (B,C). The first of equal maxima gets the gradient. */
TC_CHECKED tc_status tc_global_max_pool1d(tc_tensor **y, tc_tensor *x, tc_error *err);

typedef enum tc_pairing {
    TC_PAIRING_HALF,       /* (x[j], x[j + D/2]) */
    TC_PAIRING_INTERLEAVED /* (x[2 j], x[2 j + 1]) */
} tc_pairing;

/* Rotary position embedding (Su et al. 2021, eq. 34).  x,y (..., T, D), D even: pair j of a row at position p is rotated by the angle p
 * base^(-2 j / D), in the other direction when `inverse`. positions: numbers, broadcast to (..., T); NULL: 0, 1, ... along T. The gradient
 * is the inverse rotation of dy. */
TC_CHECKED tc_status tc_rotary(tc_tensor **y, tc_tensor *x, tc_tensor *positions, double base, tc_pairing pairing, bool inverse,
                               tc_error *err);

/* This thread's share of a batch that several processes compute together, for dropout: the leading axis of what the ops get has `rows` rows
 * (or a multiple), which are rows first, first + step, ... of the whole batch. Dropout then keeps what it keeps there. It holds for
 * forwards; backwards keep what their forward kept. rows 0: nothing is shared. */
typedef struct tc_batch_share {
    int64_t rows, first, step;
} tc_batch_share;
tc_batch_share tc_get_batch_share(void);
TC_CHECKED tc_status tc_set_batch_share(tc_batch_share share, tc_error *err);

/* Dropout: y = x / (1 - p) where an element is kept, 0 elsewhere even if x is NaN there, 0 <= p <= 1. Which elements are kept depends only
 * on seed, call and the element's index in the whole batch (kernels/philox.h), not on the number of threads, the dtype or the device.  x,y
 * of any shape. */
TC_CHECKED tc_status tc_dropout(tc_tensor **y, tc_tensor *x, double p, uint64_t seed, uint64_t call, tc_error *err);

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* What is known of the sequences that the rows of x are of, by which a product may choose how to compute a row, as nothing else in a batch
 * may. */
typedef struct tc_sequences {
    int64_t length;     /* of the sequence of every row; 0: not known */
    tc_tensor *lengths; /* integers (S) of sum rows: sequences side by side, instead; NULL: none */
} tc_sequences;

/* y = dropout(activation(x weight^T + bias)) + residual.  x (..., K); weight (N, K); bias (N) or NULL; y (..., N); residual (..., N) or
 * NULL. dropout: the probability with which elements are dropped; which ones follows from seed and call, as in tc_dropout. Halves are
 * rounded once, at the end. *pre (..., N) is x weight^T + bias, for the backward of an activation; NULL without one. `pre` may be NULL when
 * it is not wanted. `sequences` may be NULL. */
TC_CHECKED tc_status tc_linear(tc_tensor **y, tc_tensor **pre, tc_tensor *x, tc_tensor *weight, tc_tensor *bias, tc_activation activation,
                               tc_tensor *residual, double dropout, uint64_t seed, uint64_t call, const tc_sequences *sequences,
                               tc_error *err);
/* Gradients whose pointer is NULL are not computed. `pre` may be NULL without an activation, and may be y for ReLU without a residual. The
 * gradient of the residual is dy. */
TC_CHECKED tc_status tc_linear_backward(tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dy, tc_tensor *x,
                                        tc_tensor *weight, tc_tensor *pre, tc_activation activation, double dropout, uint64_t seed,
                                        uint64_t call, const tc_sequences *sequences, tc_error *err);

/* How the 3E outputs of a joint projection are ordered. */
typedef enum tc_packing {
    TC_PACKING_HEAD, /* [q_h | k_h | v_h] for each head */
    TC_PACKING_QKV   /* [Q | K | V], the heads within each (torch.nn.MultiheadAttention) */
} tc_packing;

/* Queries, keys and values from one product.  x (..., T, C); weight (3E, C); bias (3E) or NULL; q,k,v (..., H, T, D), H D = E, are views of
 * one (..., T, 3E) tensor. */
TC_CHECKED tc_status tc_qkv_projection(tc_tensor **q, tc_tensor **k, tc_tensor **v, tc_tensor *x, tc_tensor *weight, tc_tensor *bias,
                                       int64_t num_heads, tc_packing packing, const tc_sequences *sequences, tc_error *err);
/* Not recorded.  dq,dk,dv (..., H, T, D); NULL: zero. They are read in place when they are views of one tensor as q, k and v are. */
TC_CHECKED tc_status tc_qkv_projection_backward(tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dq, tc_tensor *dk,
                                                tc_tensor *dv, tc_tensor *x, tc_tensor *weight, int64_t num_heads, tc_packing packing,
                                                const tc_sequences *sequences, tc_error *err);

/* The parameters of an encoder block: weights (out, in) and biases (out) of its products, gamma and beta (E) of its norms. */
typedef struct tc_encoder_block_parts {
    tc_tensor *qkv_weight, *qkv_bias;   /* (3E, E), (3E): [q_h | k_h | v_h] for each head */
    tc_tensor *out_weight, *out_bias;   /* (E, E), (E) */
    tc_tensor *up_weight, *up_bias;     /* (F, E), (F) */
    tc_tensor *down_weight, *down_bias; /* (E, F), (E) */
    tc_tensor *gamma1, *beta1, *gamma2, *beta2;
} tc_encoder_block_parts;

typedef struct tc_encoder_block_options {
    tc_tensor *mask; /* as that of TC_MASK_FILL, or NULL */
    int64_t num_heads;
    tc_activation activation;
    bool norm_first;
    double eps1, eps2;
    double dropout, hidden_dropout; /* of both branches' results, and of the hidden layer before its activation */
    uint64_t seed, call;            /* as in tc_dropout; each dropout with p > 0 takes the next number */
} tc_encoder_block_options;

/* x,y (B, T, E): attention, then a network with one hidden layer, each with a residual connection and layer norm, after it or, with
 * norm_first, before it. For short sequences: on CPUs a few of them at a time, without dropout or gradients, for which the parts are
 * as fast; on GPUs in one launch each way, which takes some sizes alone. */
TC_CHECKED tc_status tc_encoder_block(tc_tensor **y, tc_tensor *x, const tc_encoder_block_parts *parts,
                                      const tc_encoder_block_options *options, tc_error *err);
/* Whether tc_encoder_block() takes x with `hidden` = F where x is: on a CPU those sizes with which it was measured to be faster than the
 * parts, on a GPU those that its kernel has room for. The number of sequences does not count, so that it changes no bit. */
bool tc_encoder_block_takes(const tc_tensor *x, int64_t hidden);
/* The same where its gradients are recorded. */
bool tc_encoder_block_takes_gradients(const tc_tensor *x, int64_t hidden, int64_t num_heads, tc_activation activation);

/* a @ b by NumPy's rules: an operand with one axis is a row (a) or a column (b), and that axis is removed from the result; leading axes
 * broadcast. The result has the promoted dtype. Integers wrap around; for bools a sum is true when any of its products is. */
TC_CHECKED tc_status tc_matmul(tc_tensor **c, tc_tensor *a, tc_tensor *b, tc_error *err);
/* Not recorded.  dc has the product's shape and dtype; da and db have those of a and b. A NULL pointer: not computed. */
TC_CHECKED tc_status tc_matmul_backward(tc_tensor **da, tc_tensor **db, tc_tensor *dc, tc_tensor *a, tc_tensor *b, tc_error *err);

/* ---- attention ------------------------------------------------------------------------------------------------------- */

/* values = softmax(softcap(scale q k^T) + additive terms, masked) v (Vaswani et al. 2017, eq. 1).
 * q (..., H, Tq, D), k (..., Hk, Tk, D), v (..., Hk, Tk, Dv); leading axes broadcast. With 3 axes H is 1; the first axis is the batch B. */

typedef enum tc_mask_kind {
    TC_MASK_ATTEND, /* a boolean mask: keys where it is false are ignored, whatever they contain. A floating mask is added to the scores. */
    TC_MASK_FILL    /* any dtype: where the mask is 0 the score becomes -9e15, so that a row with all keys masked attends uniformly */
} tc_mask_kind;

typedef enum tc_empty_rows {                        /* the result of a row that may attend to no key */
                             TC_EMPTY_ROWS_ZERO,    /* values, attention and gradients 0 */
                             TC_EMPTY_ROWS_UNIFORM, /* equal weights for all Tk keys */
                             TC_EMPTY_ROWS_RAISE    /* TC_ERROR_VALUE */
} tc_empty_rows;

#define TC_UNBOUNDED INT64_MAX

typedef struct tc_attention_options {
    tc_tensor *mask, *bias; /* broadcast to (..., H, Tq, Tk), or NULL. bias: floating, added to the scores */
    tc_mask_kind mask_kind;
    tc_tensor *key_lengths;            /* integers (B): number of valid keys per batch element; NULL: all */
    tc_tensor *sequence_lengths;       /* integers (S) of sum N: q, k, v (1,H,N,D) are S packed sequences, scores (S,H,T,T); NULL: no */
    tc_tensor *causal_offsets;         /* integers (B), or NULL: causal_offset applies to all */
    int64_t causal_offset;             /* query i has the position of key i + offset */
    bool causal;                       /* keys after the query's position are masked */
    int64_t window_left, window_right; /* so are keys further from it than this; TC_UNBOUNDED: none */
    const double *scale;               /* NULL: 1 / sqrt(D) */
    double softcap;                    /* > 0: scores become softcap * tanh(score / softcap) */
    bool shared_heads;                 /* Hk divides H: a key/value head serves H / Hk consecutive query heads */
    tc_empty_rows empty_rows;
    double dropout; /* probability that a weight is dropped; which ones depends on seed, call and place (kernels/attention.h) */
    uint64_t seed, call;
    const uint64_t *drawn_at; /* these two and the share are set by tc_attention: what a graph draws at each start, */
    uint64_t drawn_by;        /* and which graph, */
    tc_batch_share share;     /* and the thread's share of the batch */
    bool long_names;          /* messages say query, key, value, attn_mask instead of q, k, v, mask */
} tc_attention_options;

/* No mask, the usual scale. */
#define TC_ATTENTION_DEFAULTS ((tc_attention_options){.window_left = TC_UNBOUNDED, .window_right = TC_UNBOUNDED})

/* values (..., H, Tq, Dv), with the memory layout of q. The other pointers are NULL when not wanted: attention (..., H, Tq, Tk), before
 * dropout; lse (..., H, Tq), the log of the sum of exponentials of the scores, -infinity in empty rows; shift,sum (..., H, Tq), for the
 * backward, without a gradient, float64 for float64 and otherwise float32, with attention[i][j] = exp(score[i][j] - shift[i]) / sum[i]. */
TC_CHECKED tc_status tc_attention(tc_tensor **values, tc_tensor **attention, tc_tensor **lse, tc_tensor **shift, tc_tensor **sum,
                                  tc_tensor *q, tc_tensor *k, tc_tensor *v, const tc_attention_options *options, tc_error *err);
/* Not recorded. dmask is the gradient of a floating mask. Pointers to results that are not wanted are NULL, and so are gradients of results
 * that were not used; `attention` is needed only with dattention. */
typedef struct tc_attention_saved {
    tc_tensor *q, *k, *v, *values, *attention, *shift, *sum;
} tc_attention_saved;
TC_CHECKED tc_status tc_attention_backward(tc_tensor **dq, tc_tensor **dk, tc_tensor **dv, tc_tensor **dbias, tc_tensor **dmask,
                                           tc_tensor *dvalues, tc_tensor *dattention, tc_tensor *dlse, const tc_attention_saved *saved,
                                           const tc_attention_options *options, tc_error *err);

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* MT19937 as in PyTorch's CPU generator: a seed gives the same numbers (core/random.h has the recipes and says which results are exact to
 * the bit). Several threads may use a generator at once: each call takes an unbroken piece of the sequence. The two functions that make a
 * generator return NULL when memory runs out; the others that draw numbers cannot fail. */
typedef struct tc_generator tc_generator;

tc_generator *tc_generator_new(uint64_t seed);
tc_generator *tc_generator_copy(tc_generator *generator);
/* A copy whose next `words` 32-bit words nobody else gets: `generator` goes on after them. */
tc_generator *tc_generator_reserve(tc_generator *generator, uint64_t words);
void tc_generator_free(tc_generator *generator); /* NULL is allowed */
void tc_generator_seed(tc_generator *generator, uint64_t seed);
uint64_t tc_generator_initial_seed(tc_generator *generator); /* the last seed it was given */

/* The whole state, for exact resume and pickling: little-endian, the layout of torch.get_rng_state(). tc_generator_set_state returns false,
 * and changes nothing, when the bytes are not a valid state. */
#define TC_GENERATOR_STATE_BYTES 5056
void tc_generator_get_state(tc_generator *generator, uint8_t state[TC_GENERATOR_STATE_BYTES]);
bool tc_generator_set_state(tc_generator *generator, const uint8_t state[TC_GENERATOR_STATE_BYTES]);

uint32_t tc_generator_next32(tc_generator *generator);
uint64_t tc_generator_next64(tc_generator *generator);
int64_t tc_generator_seed64(tc_generator *generator); /* in [0, 2^63): a seed for another generator, such as a loader's or a worker's */

/* Fill values[0 .. n-1].  uniform: [low, high), low <= high finite.  normal: std >= 0.  integers: [low, high), low < high. */
void tc_generator_uniform_f32(tc_generator *generator, float *values, int64_t n, double low, double high);
void tc_generator_uniform_f64(tc_generator *generator, double *values, int64_t n, double low, double high);
void tc_generator_normal_f32(tc_generator *generator, float *values, int64_t n, double mean, double std);
void tc_generator_normal_f64(tc_generator *generator, double *values, int64_t n, double mean, double std);
void tc_generator_integers(tc_generator *generator, int64_t *values, int64_t n, int64_t low, int64_t high);
void tc_generator_permutation(tc_generator *generator, int64_t *values, int64_t n); /* of 0 .. n-1 */

/* ---- views: the result shares the memory of x ------------------------------------------------------------------------ */

/* One entry of `shape` may be -1. Where no view of the memory has that shape, the result is a copy with `may_copy` and an error without. */
TC_CHECKED tc_status tc_reshape(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, bool may_copy, tc_error *err);
TC_CHECKED tc_status tc_squeeze(tc_tensor **out, tc_tensor *x, int count, const int64_t *axes,
                                tc_error *err); /* count -1: every axis of length 1 */
TC_CHECKED tc_status tc_unsqueeze(tc_tensor **out, tc_tensor *x, int64_t axis, tc_error *err);
TC_CHECKED tc_status tc_flatten(tc_tensor **out, tc_tensor *x, int64_t start, int64_t end, tc_error *err); /* axes start .. end become
                                                                                                            * one */
TC_CHECKED tc_status tc_permute(tc_tensor **out, tc_tensor *x, int count, const int64_t *axes, tc_error *err);
TC_CHECKED tc_status tc_transpose(tc_tensor **out, tc_tensor *x, int64_t first, int64_t second, tc_error *err);
TC_CHECKED tc_status tc_expand(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, tc_error *err); /* -1 keeps the length */
TC_CHECKED tc_status tc_flip(tc_tensor **out, tc_tensor *x, int count, const int64_t *axes, tc_error *err);   /* a copy */
/* `length` elements from `start` along an axis. */
TC_CHECKED tc_status tc_narrow(tc_tensor **out, tc_tensor *x, int64_t axis, int64_t start, int64_t length, tc_error *err);
/* `count` slices along `axis` one after the other, of the given lengths, which add up to the axis; written to out[0 .. count-1]. `drop`:
 * the lengths are 1 and the axis is removed. */
TC_CHECKED tc_status tc_split(tc_tensor **out, tc_tensor *x, int axis, int64_t count, const int64_t *lengths, bool drop, tc_error *err);
/* Windows of `size` elements, one every `step` elements, along an axis; a new last axis runs over each window. */
TC_CHECKED tc_status tc_unfold(tc_tensor **out, tc_tensor *x, int64_t axis, int64_t size, int64_t step, tc_error *err);

/* ---- along one axis: an index per element, running sums ------------------------------------------------------------------- */

typedef enum tc_combination { TC_COMBINATION_PUT, TC_COMBINATION_ADD, TC_COMBINATION_MULTIPLY } tc_combination;

/* out (shape of index): along the axis, the elements of x at the places that `index` (integers; as many axes as x) has. */
TC_CHECKED tc_status tc_gather(tc_tensor **out, tc_tensor *x, int64_t axis, tc_tensor *index, tc_error *err);
/* x with the elements of src (nowhere shorter than index) written, added or multiplied at those places, in their order. */
TC_CHECKED tc_status tc_scatter(tc_tensor **out, tc_tensor *x, int64_t axis, tc_tensor *index, tc_tensor *src, tc_combination combination,
                                tc_error *err);
/* The same in x, of which no elements may share memory; nothing else of x is written, unless it is recorded: other threads may. */
TC_CHECKED tc_status tc_scatter_into(tc_tensor *x, int64_t axis, tc_tensor *index, tc_tensor *src, tc_combination combination,
                                     tc_error *err);
/* Sums from the beginning of the axis up to each element, or with `reverse` from each to the end; integers and bools in int64. */
TC_CHECKED tc_status tc_cumsum(tc_tensor **y, tc_tensor *x, int64_t axis, bool reverse, tc_error *err);

/* ---- indexing: NumPy's rules ------------------------------------------------------------------------------------------- */

typedef enum tc_index_kind { TC_INDEX_INTEGER, TC_INDEX_SLICE, TC_INDEX_NEW_AXIS, TC_INDEX_ELLIPSIS, TC_INDEX_TENSOR } tc_index_kind;

/* One entry of x[..., ...]. An integer is `start`. A slice has start, stop and step as written: negative positions count from the end.
 * Where left out, step is 1, and start and stop are INT64_MAX or INT64_MIN, whichever is beyond the end they stand for (0 for the start of
 * a forward slice). A tensor contains integers (positions) or bools (a mask over as many axes as it has). */
typedef struct tc_index {
    tc_index_kind kind;
    int64_t start, stop, step;
    tc_tensor *tensor;
} tc_index;

/* x[indices]: a view of x for integers and slices, otherwise a copy. Gradients of repeated positions add up, always in the same order. */
TC_CHECKED tc_status tc_index_get(tc_tensor **out, tc_tensor *x, int count, const tc_index *indices, tc_error *err);
/* x[indices] = value, broadcast and cast; recorded. At repeated positions the last value stays. An error for leaves that require a
 * gradient, while gradients are recorded. */
TC_CHECKED tc_status tc_index_set(tc_tensor *x, int count, const tc_index *indices, tc_tensor *value, tc_error *err);
/* *out (n, ndim), int64, on the CPU: a row of indices for each element of x that is not zero. */
TC_CHECKED tc_status tc_nonzero(tc_tensor **out, tc_tensor *x, tc_error *err);

/* ---- copies and writes ------------------------------------------------------------------------------------------------- */

TC_CHECKED tc_status tc_clone(tc_tensor **out, tc_tensor *x, tc_error *err);      /* a recorded copy */
TC_CHECKED tc_status tc_contiguous(tc_tensor **out, tc_tensor *x, tc_error *err); /* x itself when it is contiguous */
/* x in another dtype, on another device, or both; x itself when it already is. Gradients pass between floating dtypes. */
TC_CHECKED tc_status tc_to(tc_tensor **out, tc_tensor *x, tc_dtype dtype, tc_device device, tc_error *err);
TC_CHECKED tc_status tc_cast(tc_tensor **out, tc_tensor *x, tc_dtype dtype, tc_error *err);
/* A float32 parameter in halves, for calls under autocast, where nobody may write to it. On devices that compute on halves the copy is kept
 * until the parameter is written to; a step of an optimizer writes it too. */
TC_CHECKED tc_status tc_cast_parameter(tc_tensor **out, tc_tensor *x, tc_dtype dtype, tc_error *err);
TC_CHECKED tc_status tc_to_device(tc_tensor **out, tc_tensor *x, tc_device device, tc_error *err);
/* The tensors joined along `axis`, which is a new axis for stack, in the promoted dtype. */
TC_CHECKED tc_status tc_cat(tc_tensor **out, int64_t count, tc_tensor *const *tensors, int64_t axis, tc_error *err);
TC_CHECKED tc_status tc_stack(tc_tensor **out, int64_t count, tc_tensor *const *tensors, int64_t axis, tc_error *err);
/* Matrices (the last two axes) with zeros below diagonal number `diagonal` (`upper`), or above it. */
TC_CHECKED tc_status tc_triangle(tc_tensor **out, tc_tensor *x, bool upper, int64_t diagonal, tc_error *err);
/* y: x with `value` around it. pads: how many before and after the last axis, then the one before it, ...; negative ones cut off. */
TC_CHECKED tc_status tc_pad(tc_tensor **y, tc_tensor *x, int count, const int64_t *pads, double value, tc_error *err);
TC_CHECKED tc_status tc_pad_backward(tc_tensor **dx, tc_tensor *dy, int count, const int64_t *pads, tc_error *err);
/* x with axes that are longer by their own elements: those next to the edge in reverse order, the edge, or those of the other end. Not
 * recorded: *y is NULL where it would be, on GPUs, and where the elements that stay are too few. */
typedef enum tc_pad_mode { TC_PAD_REFLECT, TC_PAD_REPLICATE, TC_PAD_CIRCULAR } tc_pad_mode;
TC_CHECKED tc_status tc_pad_by_itself(tc_tensor **y, tc_tensor *x, tc_pad_mode mode, int count, const int64_t *pads, tc_error *err);

/* Convolution over one to three axes.  x (B,C,S...), weight (O,C/groups,K...), bias (O) or NULL, y (B,O,P...); stride, padding (zeros on
 * both sides) and dilation have one number per axis. */
TC_CHECKED tc_status tc_convolution(tc_tensor **y, tc_tensor *x, tc_tensor *weight, tc_tensor *bias, int strides, const int64_t *stride,
                                    int paddings, const int64_t *padding, int dilations, const int64_t *dilation, int64_t groups,
                                    tc_error *err);
/* Gradients of x, weight and bias. NULL: not wanted. */
TC_CHECKED tc_status tc_convolution_backward(tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dy, tc_tensor *x,
                                             tc_tensor *weight, int strides, const int64_t *stride, int paddings, const int64_t *padding,
                                             int dilations, const int64_t *dilation, int64_t groups, tc_error *err);

/* The gradient of x of a convolution, as an op: each element of x times the kernel, added up.  x (B,C,P...), weight (C,O/groups,K...),
 * bias (O) or NULL, y (B,O,S...) with S = stride (P - 1) - 2 padding + dilation (K - 1) + output_padding + 1; output_padding < stride. */
TC_CHECKED tc_status tc_transposed_convolution(tc_tensor **y, tc_tensor *x, tc_tensor *weight, tc_tensor *bias, int strides,
                                               const int64_t *stride, int paddings, const int64_t *padding, int output_paddings,
                                               const int64_t *output_padding, int dilations, const int64_t *dilation, int64_t groups,
                                               tc_error *err);
/* Gradients of x, weight and bias. NULL: not wanted. */
TC_CHECKED tc_status tc_transposed_convolution_backward(tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dy, tc_tensor *x,
                                                        tc_tensor *weight, int strides, const int64_t *stride, int paddings,
                                                        const int64_t *padding, int dilations, const int64_t *dilation, int64_t groups,
                                                        tc_error *err);

/* target[...] = value, broadcast and cast, like tc_index_set. */
TC_CHECKED tc_status tc_assign(tc_tensor *target, tc_tensor *value, tc_error *err);
TC_CHECKED tc_status tc_fill(tc_tensor *target, tc_tensor *value, tc_error *err); /* value: one element, any shape */
TC_CHECKED tc_status tc_zero(tc_tensor *target, tc_error *err);
/* For target op= something: target takes the values and the history of `result`, which has its shape. A result of a higher kind (float into
 * int) is an error. */
TC_CHECKED tc_status tc_replace(tc_tensor *target, tc_tensor *result, tc_error *err);

/* ---- optimizers ---------------------------------------------------------------------------------------------------- */

/* One step over all parameters, in place. All tensors of one call are contiguous, of one dtype (float32 or float64) and on one device; all
 * lists have one length. Gradients of float32 parameters may be halves. `halves`, or NULL: for each parameter itself, or for a master copy
 * the tensor of another dtype that gets its values. Update rules, names and defaults are those of torch.optim; lists that a rule does not
 * use are NULL. */
TC_CHECKED tc_status tc_sgd_step(const tc_tensors *parameters, const tc_tensors *gradients, const tc_tensors *buffers, double lr,
                                 double momentum, double dampening, double weight_decay, bool nesterov, bool maximize, bool first,
                                 const tc_tensors *halves, tc_error *err);
TC_CHECKED tc_status tc_adam_step(const tc_tensors *parameters, const tc_tensors *gradients, const tc_tensors *exp_avg,
                                  const tc_tensors *exp_avg_sq, const tc_tensors *max_exp_avg_sq, int64_t t, double lr, double beta1,
                                  double beta2, double eps, double weight_decay, bool decoupled, bool maximize, const tc_tensors *halves,
                                  tc_error *err);
TC_CHECKED tc_status tc_rmsprop_step(const tc_tensors *parameters, const tc_tensors *gradients, const tc_tensors *square_avg,
                                     const tc_tensors *buffers, const tc_tensors *grad_avg, double lr, double alpha, double eps,
                                     double weight_decay, double momentum, bool eps_inside_sqrt, bool maximize, const tc_tensors *halves,
                                     tc_error *err);

/* The p-norm of all gradients together (infinity: the largest absolute value), summed in float64. */
TC_CHECKED tc_status tc_gradient_norm(double *norm, const tc_tensors *gradients, double power, tc_error *err);
/* Multiplies gradients so that their norm is at most max_norm, or unless it is NULL the number in max_norm_at, on their device. *norm, a
 * tensor without axes there: what it was; nothing is read by the host. */
TC_CHECKED tc_status tc_gradient_clip(tc_tensor **norm, const tc_tensors *gradients, double max_norm, double power, tc_tensor *max_norm_at,
                                      tc_error *err);
/* gradient = clamp(gradient * factor, -limit, limit), in place. */
TC_CHECKED tc_status tc_gradient_scale(const tc_tensors *gradients, double factor, double limit, tc_error *err);

/* Where the next backward writes the gradient of a leaf: a view of a buffer that an optimizer owns. NULL: new memory. */
TC_CHECKED tc_status tc_tensor_set_grad_slot(tc_tensor *tensor, tc_tensor *slot, tc_error *err);

/* The leaf `tensor` takes on the memory, dtype and device of `source` (shapes equal); its gradient is freed when the dtype or device
 * changes. */
TC_CHECKED tc_status tc_tensor_set_data(tc_tensor *tensor, tc_tensor *source, tc_error *err);

#ifdef __cplusplus
}
#endif
#endif
