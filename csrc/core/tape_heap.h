/* tape_heap.h: nodes in the order in which a backward visits them: the highest sequence first. */
#ifndef TC_CORE_TAPE_HEAP_H
#define TC_CORE_TAPE_HEAP_H

#include "tape.h"

typedef struct tc_node_heap {
    tc_node **nodes; /* borrowed; the highest sequence on top */
    int64_t count, capacity;
} tc_node_heap;

TC_CHECKED tc_status tc_heap_push(tc_node_heap *heap, tc_node *node, tc_error *err);
tc_node *tc_heap_pop(tc_node_heap *heap); /* of a heap that is not empty */
void tc_heap_free(tc_node_heap *heap);

/* Makes room for `wanted` elements; new ones are zero. */
TC_CHECKED tc_status tc_grow(void **block, int64_t *capacity, int64_t wanted, size_t element, tc_error *err);

#endif
