/* graph_leaves.h: the leaves whose gradients the work of a captured graph gives, with these gradients. */
#ifndef TC_CORE_GRAPH_LEAVES_H
#define TC_CORE_GRAPH_LEAVES_H

#include "list.h"
#include "tensor.h"

typedef struct tc_graph_leaf {
    tc_tensor *leaf, *before, *after; /* owned; the gradients, or NULL */
    const void *data;                 /* of the leaf, which the work reads */
    bool is_set;                      /* the work does not depend on `before` */
    bool requires_grad;               /* of the leaf, at the end of the capture */
    bool is_new;                      /* each start makes the leaf, without a gradient: `before` is that of the capture alone */
} tc_graph_leaf;

typedef TC_LIST(tc_graph_leaf) tc_graph_leaves;

/* Adds a leaf, unless the list has it. False: out of memory. */
bool tc_graph_leaves_add(tc_graph_leaves *leaves, tc_tensor *leaf, bool is_set, bool is_new);
/* After the capture: the leaves lose their gradients, which tc_graph_leaves_give gives them after each start. */
void tc_graph_leaves_captured(tc_graph_leaves *leaves);
/* Before a start: are the leaves as they were in the capture? */
TC_CHECKED tc_status tc_graph_leaves_check(const tc_graph_leaves *leaves, tc_error *err);
TC_CHECKED tc_status tc_graph_leaves_give(tc_graph_leaves *leaves, tc_error *err);
/* After a capture whose work is never done: the leaves have the gradients of before it. */
TC_CHECKED tc_status tc_graph_leaves_give_up(tc_graph_leaves *leaves, tc_error *err);
void tc_graph_leaves_free(tc_graph_leaves *leaves);

/* The error for a leaf whose values are elsewhere. */
TC_CHECKED tc_status tc_graph_leaf_moved(const tc_tensor *leaf, tc_error *err);

#endif
