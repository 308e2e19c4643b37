/* tape_heap.c: see tape_heap.h. */
#include "tape_heap.h"

#include <string.h>

#include "allocator.h"

tc_status tc_grow(void **block, int64_t *capacity, int64_t wanted, size_t element, tc_error *err)
{
    void *larger = tc_allocate((size_t)wanted * element);
    if (!larger) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the backward's bookkeeping");
    memset(larger, 0, (size_t)wanted * element);
    if (*block) {
        memcpy(larger, *block, (size_t)*capacity * element);
        tc_free(*block, (size_t)*capacity * element);
    }
    *block = larger;
    *capacity = wanted;
    return TC_OK;
}

tc_status tc_heap_push(tc_node_heap *heap, tc_node *node, tc_error *err)
{
    if (heap->count == heap->capacity) {
        void *block = heap->nodes;
        TC_TRY(tc_grow(&block, &heap->capacity, heap->capacity ? 2 * heap->capacity : 64, sizeof *heap->nodes, err));
        heap->nodes = block;
    }
    tc_node **nodes = heap->nodes;
    int64_t i = heap->count++;
    for (; i > 0 && nodes[(i - 1) / 2]->sequence < node->sequence; i = (i - 1) / 2) nodes[i] = nodes[(i - 1) / 2];
    nodes[i] = node;
    return TC_OK;
}

tc_node *tc_heap_pop(tc_node_heap *heap)
{
    TC_ASSERT(heap->count > 0);
    tc_node **nodes = heap->nodes, *top = nodes[0], *last = nodes[--heap->count];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < heap->count; i = child) {
        if (child + 1 < heap->count && nodes[child + 1]->sequence > nodes[child]->sequence) child++;
        if (nodes[child]->sequence < last->sequence) break;
        nodes[i] = nodes[child];
    }
    nodes[i] = last;
    return top;
}

void tc_heap_free(tc_node_heap *heap)
{
    if (heap->nodes) tc_free(heap->nodes, (size_t)heap->capacity * sizeof *heap->nodes);
    *heap = (tc_node_heap){0};
}
