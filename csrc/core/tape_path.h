/* tape_path.h: the nodes of a graph that lead to some of its tensors, for a backward that asks for the gradients of these alone.
 *
 * A pass over the graph before the walk finds them. The walk then follows no other edges, and no op computes another gradient.
 */
#ifndef TC_CORE_TAPE_PATH_H
#define TC_CORE_TAPE_PATH_H

#include "tape_heap.h"

typedef struct tc_path_node {
    const tc_node *node;
    int64_t input; /* 1 + the place of a tensor that is an output of it, the first of a list; 0: there is none */
    bool goes_on;  /* one of its edges leads to a tensor */
} tc_path_node;

typedef struct tc_path {
    int64_t count;
    tc_tensor *const *inputs; /* the tensors; borrowed */
    tc_tensor **gradients;    /* of those that are results, as far as the walk has come; owned, entries may be NULL */
    const tc_tensor **leaves; /* those that are leaves, by address */
    int64_t *next;            /* of each tensor that is a result: 1 + the place of another of the same node, or 0 */
    int64_t leaf_count, room, next_room;
    tc_path_node *nodes; /* by descending sequence; borrowed from the graph */
    int64_t node_count, capacity;
} tc_path;

TC_CHECKED tc_status tc_path_find(tc_path *out, int64_t count, tc_tensor *const *inputs, int64_t root_count, tc_tensor *const *roots,
                                  tc_error *err);
/* Does the edge lead to one of the tensors? */
bool tc_path_has(const tc_path *path, const tc_edge *edge);
bool tc_path_goes_on(const tc_path *path, const tc_node *node); /* below this node */
/* Keeps the gradients of those outputs of a node that are among the tensors. */
void tc_path_keep(const tc_path *path, const tc_node *node);
void tc_path_free(tc_path *path);

#endif
