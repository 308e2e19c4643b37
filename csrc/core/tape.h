/* tape.h: how an op is recorded on the tape, and how the tape calls its backward.
 *
 * A node is one op that was computed: edges to where its inputs came from, values saved for the backward, attributes (plain
 * data, copied). The results of an op own the node; the node owns detached aliases of what it saved and references to
 * its inputs' nodes or leaves, so there are no cycles and a forward without a backward frees itself. Nodes are freed
 * with a loop, not by recursion.
 */
#ifndef TC_CORE_TAPE_H
#define TC_CORE_TAPE_H

#include "tensor.h"

/* One static instance per op. */
typedef struct tc_op {
    const char *name; /* for messages and grad_fn */
    /* Gradients of the inputs from those of the outputs. grad_outputs[i] is NULL where no gradient arrived (zero). Fills grad_inputs[i]
     * (new references, shape and dtype of the input) for every i with tc_node_needs(node, i); others stay NULL. NULL where needed means
     * zero. On failure the tape releases the gradients already filled in. */
    TC_CHECKED tc_status (*backward)(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err);
    void (*release)(void *attributes); /* when the attributes own something, or NULL: after the backward that frees what was saved, or with
                                        * the node */
    size_t attribute_bytes;            /* of the plain data that a record of this op carries (ops that end with tc_finish) */
} tc_op;

typedef struct tc_edge {
    tc_node *node;   /* what computed the input, owned, or NULL */
    tc_tensor *leaf; /* the input itself when it is a leaf that requires a gradient, owned, or NULL */
    int output;      /* of `node` */
    uint32_t shape;  /* tc_shape_digest of the input: its gradient must have the same */
} tc_edge;

typedef struct tc_saved {
    tc_tensor *tensor; /* detached alias, or a copy where others may write to the memory; owned, or NULL */
    unsigned version;  /* of its storage when it was saved */
} tc_saved;

struct tc_node {
    atomic_int references;
    const tc_op *op;
    uint64_t sequence; /* inputs have lower ones */
    int input_count, output_count, saved_count;
    bool freed;             /* saved values have been freed */
    bool spent;             /* what the attributes own as well */
    bool is_view;           /* the outputs share the memory of input 0 */
    void *_Atomic walker;   /* the backward in progress, or NULL */
    tc_hook *_Atomic hooks; /* of the outputs; owned */
    tc_tensor **gradients;  /* of the outputs, during a backward; output_count of them */
    tc_node *next_free;
    size_t bytes;
    tc_edge *edges;
    tc_saved *saved;
    void *attributes;
};

#define TC_MAX_OUTPUTS 8

/* What an op records. Saved tensors may be inputs or outputs; entries may be NULL. */
typedef struct tc_record {
    const tc_op *op;
    int input_count, output_count, saved_count;
    tc_tensor *const *inputs; /* entries may be NULL */
    tc_tensor *const *outputs;
    tc_tensor *const *saved;
    const void *attributes; /* copied; may be NULL */
    size_t attribute_bytes;
} tc_record;

/* Puts the op on the tape when gradients are enabled and an input requires one; otherwise does nothing. */
TC_CHECKED tc_status tc_tape_record(const tc_record *record, tc_error *err);
bool tc_tape_wants(int count, tc_tensor *const *inputs); /* would recording these inputs make a node, or an error? */

/* Inside a backward: */
bool tc_node_needs(const tc_node *node, int input); /* does this walk ask for its gradient? */
static inline tc_tensor *tc_node_saved(const tc_node *node, int i) { return node->saved[i].tensor; } /* borrowed */
/* For a backward that adds its gradient of an input to those that arrived before: their sum, if it is contiguous and of `dtype`, moved out
 * of the walk to the caller (owned; others may have it too, so it is not written to). NULL: there is none, or the walk adds what is given
 * for the input, as it does in any case where nothing was taken. */
tc_tensor *tc_node_take_sum(const tc_node *node, int input, tc_dtype dtype);

tc_node *tc_node_retain(tc_node *node);
void tc_node_release(tc_node *node);

/* Before an in-place write to `target`. `record` describes the write as an op: input 0 is the target as it was, the only output is target.
 * Refuses read-only memory and, while gradients are recorded, leaves that require a gradient and views of them; then raises the version and
 * makes the write the history of target. On failure nothing has changed; so do everything else that can fail before. */
TC_CHECKED tc_status tc_tape_begin_write(tc_tensor *target, const tc_record *record, tc_error *err);

/* Before `target` is overwritten by the new `result` of an op that read it: copies the values in this memory that the op has saved. */
TC_CHECKED tc_status tc_tape_keep_saved(tc_tensor *result, const tc_tensor *target, tc_error *err);

/* Has a write through another tensor put the tensor out of date? One with a history is, after any write made while gradients were recorded;
 * one without a history only after a recorded write, which put values with a history there. */
static inline bool tc_tape_is_stale(const tc_tensor *tensor)
{
    const tc_storage *storage = tensor->storage;
    return tensor->version < atomic_load_explicit(tensor->node ? &storage->changed : &storage->traced, memory_order_acquire);
}
/* Is this a detached tensor, or a view of one, to which nothing with a history has been written? */
static inline bool tc_tape_is_detached(const tc_tensor *tensor)
{
    return tensor->of ? tensor->of_detached : (tensor->base ? tensor->base : tensor)->version == TC_NEVER_STALE;
}
/* Is target up to date but for writes through `part`, a view of it with the values of now? Then only the history of target lacks them. */
bool tc_tape_lacks_writes(const tc_tensor *target, const tc_tensor *part);
/* Are both up to date, and is part a view of target that its history knows of (tape_view.h)? */
bool tc_tape_has_writes(tc_tensor *target, const tc_tensor *part);
/* In place of tc_tape_begin_write for a write of such a part to where it is: nothing has to be written, and no value changes. Input 1 of
 * the record is the part. Without a record the history of target stays what it is. */
TC_CHECKED tc_status tc_tape_take_writes(tc_tensor *target, const tc_record *record, tc_error *err);

/* Before the values of `result` (same shape, dtype and device, nobody else's) are copied over those of `target`: target takes on the
 * history of result, or, while gradients are recorded, has none where result has none. */
TC_CHECKED tc_status tc_tape_begin_replace(tc_tensor *target, const tc_tensor *result, tc_error *err);

#endif
