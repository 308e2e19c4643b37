/* tensor.h: what a tensor is, for code inside the library.
 *
 * A tc_storage is reference-counted memory on a device; a tc_tensor is a typed, strided view of it plus its place on
 * the tape. Both counts are atomic, so tensors may be released on any thread. A tensor's shape never changes.
 */
#ifndef TC_CORE_TENSOR_H
#define TC_CORE_TENSOR_H

#include <stdatomic.h>

#include "lock.h"
#include "status.h"

typedef struct tc_node tc_node; /* tape.h */

/* Counts of references, from any thread. Releasing one tells whether it was the last. */
static inline void tc_add_reference(atomic_int *references)
{
    const int before = atomic_fetch_add_explicit(references, 1, memory_order_relaxed);
    TC_ASSERT(before > 0);
    (void)before;
}
static inline bool tc_drop_reference(atomic_int *references)
{
    const int before = atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel);
    TC_ASSERT(before > 0);
    return before == 1;
}

/* Something derived from a storage's contents and kept with it, such as packed weights. Freed with the storage. */
typedef struct tc_attachment {
    struct tc_attachment *next;
    void (*release)(struct tc_attachment *attachment);
} tc_attachment;

typedef struct tc_storage {
    atomic_int references;
    tc_device device;
    void *data;
    size_t bytes;        /* 0 of borrowed memory with gaps */
    atomic_uint version; /* raised by every in-place write */
    atomic_uint traced;  /* the version that the last recorded in-place write made, 0 before the first */
    atomic_uint changed; /* the version that the last write made after which histories from before are out of date, recorded or not */
    bool owned;          /* from the backend's allocator; otherwise release(context) gives it back */
    bool writable;       /* false: over read-only memory, in-place writes are refused */
    atomic_bool shared;  /* code outside the library may write here unnoticed: keep nothing derived from the contents */
    bool is_cast;        /* of a parameter, for the time of a call under autocast: not writable, and the error says why */
    bool is_argument;    /* an array that was passed to a call, whose owner may change it afterwards: a backward reads a copy */
    atomic_int graphs;   /* captured ones that write here at each start; each has one of the references (graph_halves.h) */
    void (*release)(void *context);
    void *context;
    tc_attachment *_Atomic attachments;
} tc_storage;

/* Raises the version for a write, and returns it. `ends`: after the write, the histories of all other tensors in this memory are out of
 * date. */
static inline unsigned tc_storage_change(tc_storage *storage, bool ends)
{
    const unsigned now = atomic_fetch_add_explicit(&storage->version, 1, memory_order_acq_rel) + 1;
    if (ends) atomic_store_explicit(&storage->changed, now, memory_order_release);
    return now;
}

/* Adds to the storage's list. */
void tc_attach(tc_storage *storage, tc_attachment *attachment);

#define TC_NEVER_STALE UINT32_MAX

/* A function of the host language that sees the gradient of a tensor once all of it has arrived, and may give another (owned) in its place.
 */
typedef struct tc_hook {
    struct tc_hook *_Atomic next;
    int output;                   /* which output of a node */
    struct tc_retained *retained; /* owned; in place of the last three. NULL: an ordinary hook */
    unsigned history;             /* of those of `retained` */
    tc_status (*call)(void *context, tc_tensor **gradient, tc_error *err);
    void (*release)(void *context);
    void *context;
} tc_hook;

/* A function that sees the gradient of the values that a result has in the end: an in-place write that changes the history of the tensor
 * takes it along, while hooks stay with the values that they were added for. It is called after them. */
typedef struct tc_retained {
    atomic_int references;
    atomic_uint history; /* how many the tensor has had since: the hook of the last one calls */
    tc_status (*call)(void *context, tc_tensor **gradient, tc_error *err);
    void (*release)(void *context);
    void *context;
} tc_retained;

/* `function`: of a hook, which is copied. Its context belongs to the tensor, a result that has none yet, and to its history. */
TC_CHECKED tc_status tc_tensor_retain_gradient(tc_tensor *tensor, const tc_hook *function, tc_error *err);
void tc_retained_release(tc_retained *retained);

/* The ordinary hook of this output in a list, or NULL. */
tc_hook *tc_hook_find(tc_hook *_Atomic const *list, int output);
/* Adds a hook to the list of the tensor: of its node, or its own where it is a leaf. `hook` is copied, its context is the list's from then
 * on. */
TC_CHECKED tc_status tc_tensor_add_hook(tc_tensor *tensor, const tc_hook *hook, tc_error *err);
tc_hook *tc_tensor_hook(tc_tensor *tensor); /* the one it has, or NULL */
void tc_hooks_release(tc_hook *list);

struct tc_tensor {
    atomic_int references;
    atomic_bool requires_grad; /* a leaf for which it was set; results are recognised by their node */
    bool contiguous;           /* C order without gaps */
    bool wrote;                /* all writes after the versions `traced_before` and `changed_before` went through this tensor */
    bool written;              /* of a call's own header: it was written in place, and is up to date */
    tc_storage *storage;
    char *data; /* element [0,...,0] */
    tc_dtype dtype;
    int ndim;
    int64_t numel;
    int output;             /* which output of `node` this is */
    unsigned version;       /* of the storage when this tensor was made, or got its node; TC_NEVER_STALE when it is detached on purpose */
    unsigned traced_before; /* `traced` and `changed` of the storage before the first write of those that `wrote` speaks of */
    unsigned changed_before;
    tc_node *node;          /* what computed it, when recorded; owned */
    tc_hook *_Atomic hooks; /* of a leaf; owned */
    tc_retained *retained;  /* of a result; owned, or NULL */
    tc_tensor *base;        /* of a view: what it is a view of (tape_view.h); owned, has none itself. NULL for a tensor with a grad */
    tc_tensor *grad;        /* of a leaf; owned */
    tc_tensor *grad_slot;   /* where an optimizer wants the gradient, or NULL; owned */
    void *wrapper;          /* the host language's object for this tensor, borrowed, or NULL */
    tc_tensor *of;          /* of a call's own header (tc_tensor_hold): the tensor; owned. NULL for any other */
    unsigned capture;       /* on a GPU: the number of the capture that made it, or whose argument it is (graph.h); else 0 */
    bool of_detached;       /* of a call's own header: what tc_tape_is_detached said of the tensor */
    int64_t shape[TC_MAX_DIMS];
    int64_t strides[TC_MAX_DIMS]; /* in elements */
};

_Static_assert(sizeof(tc_tensor) <= 384, "the allocator would take 448 bytes: every small op would be a tenth slower");

/* A tensor's storage, strides, dtype, history and gradient may be replaced while another thread computes with it. What guards them:
 * - The caller sees to it that nobody replaces what a call reads. The Python binding gives every call that runs without the GIL headers of
 *   its own (tc_tensor_hold), made and ended with the GIL, and replaces with the GIL: so a call computes with the memory and the history of
 *   the moment when it began.
 * - A backward reaches leaves without the caller's help and without the GIL: `grad` and `grad_slot`, and what tc_tensor_set_data replaces,
 *   are written, and there read, under a lock (tc_tensor_look). Nothing is computed, released or waited for while it is held. */

/* A header of a call's own: what it says stays, and the memory stays, whatever happens to the tensor. Its edges lead to the tensor itself.
 */
TC_CHECKED tc_status tc_tensor_hold(tc_tensor **out, tc_tensor *tensor, tc_error *err);
/* After the call: tells the tensor of an in-place write to the header, and gives it its history. Release it then. */
void tc_tensor_end_hold(tc_tensor *held);
void tc_tensor_forget_base(tc_tensor *tensor);
static inline tc_tensor *tc_tensor_itself(tc_tensor *tensor) { return tensor->of ? tensor->of : tensor; }

extern tc_lock tc_replacing;

/* What a leaf is now. Headers of the caller's own, without history, or NULL. The lock is held. */
typedef struct tc_look {
    tc_tensor *grad;
    tc_tensor *slot; /* when there is no grad */
    tc_dtype dtype;
    tc_device device;
} tc_look;
TC_CHECKED tc_status tc_tensor_look(tc_look *out, tc_tensor *leaf, tc_error *err);
/* Makes *gradient the first one of a leaf, and NULL. A leaf that got a gradient since tc_tensor_look, or is of another dtype or device now,
 * stays as it is: as if that had come after the backward. The lock is held. */
void tc_tensor_give_grad(tc_tensor *leaf, tc_tensor **gradient);

/* A view of the storage of `base`, not on the tape. `offset` in elements from base's first. */
TC_CHECKED tc_status tc_tensor_alias(tc_tensor **out, tc_tensor *base, int ndim, const int64_t *shape, const int64_t *strides,
                                     int64_t offset, tc_error *err);

/* All of the memory that the tensor is a view of, in one row; NULL where that is not known, or the tensor has no elements. */
TC_CHECKED tc_status tc_tensor_memory(tc_tensor **out, const tc_tensor *tensor, tc_error *err);
/* The tensor in a copy of that memory: of the same shape, strides and dtype, at the same place. */
TC_CHECKED tc_status tc_tensor_in_copy(tc_tensor **out, const tc_tensor *tensor, tc_tensor *copy, tc_error *err);

TC_CHECKED tc_status tc_tensor_like(tc_tensor **out, const tc_tensor *model, tc_error *err); /* empty, contiguous */
TC_CHECKED tc_status tc_tensor_like_as(tc_tensor **out, const tc_tensor *model, tc_dtype dtype, tc_error *err);

/* Before an in-place write that is not recorded: refuses read-only memory and, while gradients are recorded, leaves that require a
 * gradient; then raises the version. The history of `tensor` stays what it was. (Writes that gradients flow through: tc_tape_begin_write.)
 */
TC_CHECKED tc_status tc_tensor_begin_write(tc_tensor *tensor, tc_error *err);
/* Everything for which tc_tensor_set_data can fail. */
TC_CHECKED tc_status tc_tensor_check_data(const tc_tensor *tensor, const tc_tensor *source, tc_error *err);
/* The error for a write to a parameter's cast, which would be lost. */
tc_status tc_fail_cast(tc_error *err);

static inline bool tc_same_device(tc_device a, tc_device b) { return a.type == b.type && a.index == b.index; }
/* The error names both. NULL tensors pass. */
TC_CHECKED tc_status tc_check_same_device(const tc_tensor *a, const char *a_name, const tc_tensor *b, const char *b_name, tc_error *err);
bool tc_tensor_same_shape(const tc_tensor *a, const tc_tensor *b);
bool tc_tensor_same_view(const tc_tensor *a, const tc_tensor *b); /* the same elements of the same memory, in the same order */
bool tc_tensor_on_cpu(const tc_tensor *tensor);
const char *tc_tensor_text(char buffer[TC_SHAPE_TEXT], const tc_tensor *tensor); /* "(2, 3)" */

/* a * b, or false when the result does not fit in 62 bits. */
bool tc_multiply_sizes(int64_t a, int64_t b, int64_t *product);
/* The product of all lengths that are not 0 fits in 62 bits, as it does in every tensor. For shapes that are computed with before a tensor
 * has them; lengths are not negative. */
TC_CHECKED tc_status tc_check_lengths(int ndim, const int64_t *shape, tc_error *err);

#endif
