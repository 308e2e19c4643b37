/* graph_halves.h: copies of weights in halves (kept_half.h) that the work of a captured graph reads or writes. It does not cast the weights
 * itself: before a start those are cast anew whose weights were changed since their copies were made, and after it the copies count as
 * those of the stepped weights. */
#ifndef TC_CORE_GRAPH_HALVES_H
#define TC_CORE_GRAPH_HALVES_H

#include "list.h"
#include "tensor.h"

typedef struct tc_graph_half {
    tc_tensor *leaf;          /* owned; the weight, as the caller knows it */
    tc_tensor *weight, *copy; /* owned; headers of the graph's own */
    bool is_stepped;          /* after the work the copy has the values of the weight, as before */
} tc_graph_half;

typedef TC_LIST(tc_graph_half) tc_graph_halves;

/* Adds a copy, unless the list has it. */
TC_CHECKED tc_status tc_graph_halves_add(tc_graph_halves *halves, tc_tensor *weight, tc_tensor *copy, tc_error *err);
/* After the capture. */
void tc_graph_halves_captured(tc_graph_halves *halves);
/* A weight that is not where it was in the capture, or NULL. */
const tc_tensor *tc_graph_halves_moved(const tc_graph_halves *halves);
/* Before a start that is not the first, and after the work of any is on its stream. */
TC_CHECKED tc_status tc_graph_halves_refresh(const tc_graph_halves *halves, tc_error *err);
void tc_graph_halves_started(const tc_graph_halves *halves);
/* After a capture whose work is never done. */
void tc_graph_halves_not_started(const tc_graph_halves *halves);
void tc_graph_halves_free(tc_graph_halves *halves);

#endif
