/* graph.h: what ops and tensors tell the capture of this thread, if there is one (cuda_graph.c). */
#ifndef TC_CORE_GRAPH_H
#define TC_CORE_GRAPH_H

#include "../kernels/optimizer.h"
#include "../kernels/philox.h"
#include "tensor.h"

/* The dropout in progress, when its seed and number are drawn anew at each start of a graph (kernels/philox.h). */
typedef struct tc_drawn {
    const uint64_t *at; /* on the device, or NULL */
    uint64_t graph;     /* which graph's */
} tc_drawn;
tc_drawn tc_drawn_here(void);
/* For a backward: fails outside of the capture that recorded its forward. */
TC_CHECKED tc_status tc_check_drawn(const tc_drawn *drawn, tc_error *err);

/* Before a step of an optimizer. In a capture: a place on the device for the numbers in `args`, where each start finds those of its own
 * step; *at points there. When the numbers of a start are collected: they are kept for it, and *launch becomes false. */
TC_CHECKED tc_status tc_graph_step(bool *launch, const void **at, const tc_kernel *kernel, const void *args,
                                   const tc_optimizer_chunk *chunks, int64_t chunk_count, tc_error *err);

/* The number of this thread's capture, 0 if there is none. A Tensor that has it was made in the capture, or is an argument of its function:
 * each start makes it anew. */
unsigned tc_graph_number(void);

/* Before the gradient of a leaf is added to, or given where it has none; `is_set`: replaced, whatever it was. */
void tc_graph_note_leaf(tc_tensor *leaf, bool is_set);

/* In a capture: its work reads or writes this copy of a weight in halves (graph_halves.h). */
TC_CHECKED tc_status tc_graph_note_half(tc_tensor *weight, tc_tensor *copy, tc_error *err);

#endif
