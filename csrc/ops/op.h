/* op.h: the life of one call of an op, which reads straight down:
 *
 *     TC_SCOPE(s, err);                                        owns temporaries and results; leaving the function frees them
 *     enum { X, GAMMA };
 *     tc_input in[] = {[X] = {"x", x}, [GAMMA] = {"gamma", gamma}};
 *     TC_TRY(tc_begin(&s, in, 2));                             floating, of one dtype, on one device
 *     TC_TRY(tc_check_shape(&s, gamma, "gamma", ...));         all other checks, before anything is allocated
 *     TC_TRY(tc_prepare(&s));                                  in[X].data is contiguous and of s.compute from here on
 *     TC_TRY(tc_make(&s, &y, x->ndim, x->shape));              results and temporaries, of s.compute, on s.device
 *     TC_TRY(tc_make_statistic(&s, &mean, ...));               of s.statistics: means, sums, partial sums
 *     TC_TRY(tc_compute(&s, &tc_kernel_foo, &args, items, cost));
 *     return tc_finish(&s, out, y, &(tc_record){.op = &foo_op, TC_SAVED(x, gamma)});
 *
 * The arguments stay what the caller gave; only in[] is prepared. Nothing in between is recorded, so that the tape has one node per call,
 * whose inputs are those of tc_begin in their order. Until tc_finish, tc_give or tc_give_rounded nothing that the caller sees has changed.
 */
#ifndef TC_OPS_OP_H
#define TC_OPS_OP_H

#include "../core/backend.h"
#include "../core/copy.h"
#include "../core/dtype.h"
#include "../core/layout.h"
#include "../core/own.h"
#include "../core/tape.h"
#include "check.h"

#define TC_MAX_INPUTS 14

/* One tensor that an op takes. The caller fills in all but the last two. */
typedef struct tc_input {
    const char *name;  /* for messages */
    tc_tensor *given;  /* borrowed; may be NULL, except the first of an op */
    bool statistic;    /* saved by a forward in s->statistics: means, sums */
    bool strided;      /* the kernel takes strides: cast where needed, but not made contiguous */
    bool halves;       /* the kernel reads halves as they are stored, also where it computes in float32 */
    tc_tensor *tensor; /* after tc_prepare: `given`, or a copy; NULL for NULL */
    void *data;        /* its first element */
} tc_input;

#ifndef TC_SCOPE_FEW
#define TC_SCOPE_FEW 12
#endif

typedef struct tc_scope {
    tc_error *err;
    tc_input *in; /* the caller's array */
    int in_count;
    tc_device device;    /* of the inputs */
    tc_dtype compute;    /* of what is prepared and made: what kernels here read and write for tensors of the inputs' dtype */
    tc_dtype statistics; /* of means, sums and partial sums: float64 for float64, otherwise float32 */
    tc_dtype kernels;    /* which table of kernels: compute, or float32 where bytes are only moved */
    tc_dtype result;     /* the dtype of the first input, which results get */
    bool widens;         /* kernels here compute halves in float32, and those that can widen them as they read: tc_stored_as() */
    int count, capacity;
    tc_tensor **owned; /* `few`, until there are more */
    tc_tensor *few[TC_SCOPE_FEW];
} tc_scope;

void tc_scope_free(tc_scope *s); /* frees the tensors that are still owned */
static inline void tc_scope_end(tc_scope *s)
{
    if (s->count || s->owned != s->few) tc_scope_free(s);
}

static inline void tc_scope_start(tc_scope *s, tc_error *err)
{
    s->err = err;
    s->in_count = s->count = 0;
    s->capacity = TC_SCOPE_FEW;
    s->owned = s->few;
}

/* Declares a scope that ends when its block is left, in any way. */
#define TC_SCOPE(s, error)                                                                                                                 \
    __attribute__((cleanup(tc_scope_end))) tc_scope s;                                                                                     \
    tc_scope_start(&s, error)

/* ---- what is owned ------------------------------------------------------------------------------------------------------ */

/* Steals `tensor` (NULL passes), also on failure. */
TC_CHECKED tc_status tc_own(tc_scope *s, tc_tensor *tensor);
/* *out: uninitialised and contiguous, of s->compute on s->device; owned by the scope. */
TC_CHECKED tc_status tc_make(tc_scope *s, tc_tensor **out, int ndim, const int64_t *shape);
/* The same in s->result, for a kernel that rounds what it writes to halves where s->widens. */
TC_CHECKED tc_status tc_make_result(tc_scope *s, tc_tensor **out, int ndim, const int64_t *shape);
/* The same in s->statistics, and in any dtype. */
TC_CHECKED tc_status tc_make_statistic(tc_scope *s, tc_tensor **out, int ndim, const int64_t *shape);
TC_CHECKED tc_status tc_make_as(tc_scope *s, tc_tensor **out, int ndim, const int64_t *shape, tc_dtype dtype);
/* *out: the view of `base` that tc_tensor_alias makes; owned by the scope. */
TC_CHECKED tc_status tc_make_view(tc_scope *s, tc_tensor **out, tc_tensor *base, int ndim, const int64_t *shape, const int64_t *strides,
                                  int64_t offset);
/* *out: x with its axis `from` as axis `to`, the others in their order: a view, or x itself where nothing moves. */
TC_CHECKED tc_status tc_move_axis(tc_scope *s, tc_tensor **out, tc_tensor *x, int from, int to);
/* *out: memory of the host for the length of the scope, uninitialised. */
TC_CHECKED tc_status tc_make_memory(tc_scope *s, void **out, size_t bytes);
/* How a kernel of this scope finds the elements of a prepared input or of what tc_make_result made. */
static inline tc_stored tc_stored_as(const tc_scope *s, const tc_tensor *tensor)
{
    if (!s->widens || !tensor) return TC_STORED_AS_COMPUTED;
    return tensor->dtype == TC_FLOAT16 ? TC_STORED_FLOAT16 : tensor->dtype == TC_BFLOAT16 ? TC_STORED_BFLOAT16 : TC_STORED_AS_COMPUTED;
}
static inline void *tc_data(const tc_tensor *tensor) { return tensor ? tensor->data : NULL; }
/* *out, unless out is NULL, gets the scope's reference to `tensor`, or a new one to a tensor that the scope does not own. Cannot fail. */
void tc_give(tc_scope *s, tc_tensor **out, tc_tensor *tensor);

typedef struct tc_result {
    tc_tensor **out; /* NULL: not asked for */
    tc_tensor *tensor;
    bool wide; /* not rounded */
} tc_result;

/* Gives each tensor, rounded to s->result, where it is asked for: all of them, or on failure none. */
TC_CHECKED tc_status tc_give_rounded(tc_scope *s, int count, tc_result *results);

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

/* The inputs, the first of which is not NULL, are on one device and of one floating dtype. Sets device, compute and result. */
TC_CHECKED tc_status tc_begin(tc_scope *s, tc_input *in, int count);
/* The first is the gradient of a result; the others may be of the compute dtype as well, as saved values of halves are. */
TC_CHECKED tc_status tc_begin_backward(tc_scope *s, tc_input *in, int count);
/* Of one dtype, of any kind: kernels of the op only move elements; if they may be bools, tc_tensor_settle_bools follows. */
TC_CHECKED tc_status tc_begin_moving(tc_scope *s, tc_input *in, int count);
/* Of any dtypes, integers as well: computed in what they promote to, which is the result's. */
TC_CHECKED tc_status tc_begin_promoting(tc_scope *s, tc_input *in, int count);
/* Before tc_begin_elements: a tensor without axes on the CPU is copied to the GPU of the other operand, as a number is. The copy is
 * recorded (copy.c). */
TC_CHECKED tc_status tc_bring_number(tc_scope *s, tc_tensor **number, const tc_tensor *beside);
/* Before elements of halves are compared with a number, and get a gradient where they are equal: it is rounded as they are. */
TC_CHECKED tc_status tc_round_number(tc_argument *number, tc_dtype dtype, tc_error *err);
/* Of any dtypes: element-wise kernels convert what they read and write. They compute in the table for `dtype`; results are of `result`. The
 * first may be NULL where another is not. Nothing is prepared. */
TC_CHECKED tc_status tc_begin_elements(tc_scope *s, tc_input *in, int count, tc_dtype dtype, tc_dtype result);
TC_CHECKED tc_status tc_prepare(tc_scope *s);

bool tc_has_shape(const tc_tensor *tensor, int ndim, const int64_t *shape);
/* "gamma has shape (3,) but x has (2, 4); they must be equal": `must` is "x has". NULL tensors pass. */
TC_CHECKED tc_status tc_check_shape(tc_scope *s, const tc_tensor *tensor, const char *name, const char *must, int ndim,
                                    const int64_t *shape);
/* "rstd has shape (3,); with x of shape (2, 4) it must have (2,)": what a backward takes follows from an input of the forward. */
TC_CHECKED tc_status tc_check_follows(tc_scope *s, const tc_tensor *tensor, const char *name, const tc_tensor *x, int ndim,
                                      const int64_t *shape);

/* ---- computing and finishing -------------------------------------------------------------------------------------------- */

/* Runs a kernel on s->device in s->compute; `cost` in elementary operations per item. Ctrl-C may stop it: it writes to nothing but what
 * the scope has made. */
TC_CHECKED tc_status tc_compute(tc_scope *s, const tc_kernel *kernel, const void *args, int64_t items, double cost);

/* tc_make_as, and the sum over the rows of partial (chunks, C), a statistic, into it; `shape` has C elements. */
TC_CHECKED tc_status tc_sum_rows(tc_scope *s, tc_tensor **out, const tc_tensor *partial, int ndim, const int64_t *shape, tc_dtype dtype);

/* The dtype of a weight's gradient: s->compute. Where that is of halves and the weight the cast of a float32 parameter, which will get the
 * gradient, s->statistics, so that it is not rounded and cast back. */
tc_dtype tc_weight_gradient_dtype(const tc_scope *s, const tc_tensor *weight);

/* Members of a tc_record: TC_SAVED(x, gamma, NULL) */
#define TC_SAVED(...)                                                                                                                      \
    .saved = (tc_tensor *const[]){__VA_ARGS__}, .saved_count = (int)(sizeof((tc_tensor *const[]){__VA_ARGS__}) / sizeof(tc_tensor *))

/* *kept, to be saved instead of x: x where a gradient of `other` is wanted, which reads x; otherwise, as only the shape is read, a tensor
 * of this shape that repeats one element. */
TC_CHECKED tc_status tc_keep_for(tc_scope *s, tc_tensor **kept, tc_tensor *x, tc_tensor *other);

/* The end of an op with one result: rounds it to s->result, records the op if an input requires a gradient, and gives it away. The record
 * needs op, saved and attributes; outputs are known, and so are inputs, those of tc_begin, unless the record has others. The op says how
 * many bytes of attributes there are, unless the record does. */
TC_CHECKED tc_status tc_finish(tc_scope *s, tc_tensor **out, tc_tensor *result, const tc_record *record);
/* The same with several results: the outputs of one node, in their order. All of them are given, or on failure none. */
TC_CHECKED tc_status tc_finish_all(tc_scope *s, int count, tc_result *results, const tc_record *record);
/* The end of an op that moves what one input has and needs no scope, such as a view: its only temporary is the result (stolen, also on
 * failure). */
TC_CHECKED tc_status tc_finish_alone(tc_tensor **out, tc_tensor *result, tc_tensor *x, const tc_op *op, const void *attributes,
                                     tc_error *err);
/* The same for an op that writes to in[0]. Refuses the write or puts it on the tape; nothing but the write itself follows, so all else that
 * can fail comes before. */
TC_CHECKED tc_status tc_finish_write(tc_scope *s, const tc_record *record);
/* The same where the values have already been written, through a view: tc_tape_take_writes. */
TC_CHECKED tc_status tc_finish_written(tc_scope *s, const tc_record *record);

/* In a backward of the tape: where to put the gradient of an input, or NULL when nobody asks for it. */
static inline tc_tensor **tc_wanted(const tc_node *node, tc_tensor **grad_inputs, int input)
{
    return tc_node_needs(node, input) ? &grad_inputs[input] : NULL;
}

#endif
