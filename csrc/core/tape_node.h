/* tape_node.h: shared by the files of the tape: tape.c makes nodes, tape_write.c gives them to tensors that are written in place,
 * tape_view.c to others in the same memory, tape_walk.c runs the backward over them. */
#ifndef TC_CORE_TAPE_NODE_H
#define TC_CORE_TAPE_NODE_H

#include "tape.h"

static inline unsigned tc_current_version(const tc_tensor *tensor)
{
    return atomic_load_explicit(&tensor->storage->version, memory_order_acquire);
}

/* Equal for equal shapes, and different for nearly all others: 4 bytes that an edge has room for. */
static inline uint32_t tc_shape_digest(const tc_tensor *tensor)
{
    uint32_t digest = 0x811C9DC5u * (uint32_t)(tensor->ndim + 1);
    for (int i = 0; i < tensor->ndim; i++) {
        const uint64_t length = (uint64_t)tensor->shape[i];
        digest = (digest ^ (uint32_t)(length ^ length >> 32)) * 0x9E3779B1u;
        digest ^= digest >> 15;
    }
    return digest;
}

/* A new node of a recorded op, with one reference; on failure the attributes stay the caller's. */
TC_CHECKED tc_status tc_node_make(tc_node **out, const tc_record *record, tc_error *err);
/* One that becomes the history of `target`, its only output, and retains its gradient if `target` does. */
TC_CHECKED tc_status tc_node_make_for(tc_node **out, const tc_tensor *target, const tc_record *record, tc_error *err);
void tc_node_free_saved(tc_node *node); /* frees the values it saved; a second backward through it is an error from then on */
void tc_node_end(tc_node *node);        /* and what its attributes own */

/* The values of `tensor` are this output of `node`. The node it had before is not released. */
void tc_set_history(tc_tensor *tensor, tc_node *node, int output);

/* Before `node` becomes the history of `target`: retains the gradient of this output if `target` does. */
TC_CHECKED tc_status tc_node_retain_gradient(tc_node *node, int output, const tc_tensor *target, tc_error *err);

/* Does the history of `input` match its values? A result is out of date when its memory was written through another tensor; a view is
 * renewed first where its base knows of the write (tape_view.h). `op`: for the message. */
TC_CHECKED tc_status tc_check_history(tc_tensor *input, const char *op, tc_error *err);

#endif
