/* tape_path.c: see tape_path.h. */
#include "tape_path.h"

#include <stdlib.h>

#include "allocator.h"

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (const tc_tensor *const *)a, y = (uintptr_t) * (const tc_tensor *const *)b;
    return (x > y) - (x < y);
}

static int by_sequence(const void *a, const void *b)
{
    const uint64_t x = ((const tc_path_node *)a)->node->sequence, y = ((const tc_path_node *)b)->node->sequence;
    return (x < y) - (x > y);
}

static tc_path_node *find(const tc_path *path, const tc_node *node)
{
    if (path->node_count == 0) return NULL; /* bsearch takes no NULL */
    return bsearch(&(tc_path_node){.node = node}, path->nodes, (size_t)path->node_count, sizeof *path->nodes, by_sequence);
}

/* All nodes below the roots. A node is pushed once for each edge to it; its copies follow one another. */
static tc_status collect(tc_path *path, tc_node_heap *heap, tc_error *err)
{
    while (heap->count > 0) {
        tc_node *node = tc_heap_pop(heap);
        if (path->node_count && path->nodes[path->node_count - 1].node == node) continue;
        if (path->node_count == path->capacity) {
            void *block = path->nodes;
            TC_TRY(tc_grow(&block, &path->capacity, path->capacity ? 2 * path->capacity : 64, sizeof *path->nodes, err));
            path->nodes = block;
        }
        path->nodes[path->node_count++] = (tc_path_node){.node = node};
        for (const tc_edge *edge = node->edges; edge < node->edges + node->input_count; edge++)
            if (edge->node) TC_TRY(tc_heap_push(heap, edge->node, err));
    }
    return TC_OK;
}

tc_status tc_path_find(tc_path *out, int64_t count, tc_tensor *const *inputs, int64_t root_count, tc_tensor *const *roots, tc_error *err)
{
    tc_node_heap heap = {0};
    void *gradients = NULL, *leaves = NULL, *next = NULL;
    if (count == 0) return TC_OK;
    out->inputs = inputs;
    TC_TRY(tc_grow(&gradients, &out->count, count, sizeof(tc_tensor *), err));
    out->gradients = gradients;
    TC_TRY(tc_grow(&leaves, &out->room, count, sizeof(tc_tensor *), err));
    out->leaves = leaves;
    TC_TRY(tc_grow(&next, &out->next_room, count, sizeof(int64_t), err));
    out->next = next;
    for (int64_t i = 0; i < count; i++)
        if (!inputs[i]->node) out->leaves[out->leaf_count++] = tc_tensor_itself(inputs[i]);
    qsort(out->leaves, (size_t)out->leaf_count, sizeof *out->leaves, by_address);
    tc_status status = TC_OK;
    for (int64_t i = 0; i < root_count && status == TC_OK; i++)
        if (roots[i]->node) status = tc_heap_push(&heap, roots[i]->node, err);
    if (status == TC_OK) status = collect(out, &heap, err);
    tc_heap_free(&heap);
    if (status != TC_OK) return status;
    for (int64_t i = 0; i < count; i++) {
        tc_path_node *found = inputs[i]->node ? find(out, inputs[i]->node) : NULL;
        if (!found) continue;
        out->next[i] = found->input;
        found->input = i + 1;
    }
    for (int64_t k = out->node_count - 1; k >= 0; k--) { /* from below */
        const tc_node *node = out->nodes[k].node;
        for (int i = 0; i < node->input_count && !out->nodes[k].goes_on; i++) out->nodes[k].goes_on = tc_path_has(out, &node->edges[i]);
    }
    return TC_OK;
}

bool tc_path_has(const tc_path *path, const tc_edge *edge)
{
    if (edge->leaf && path->leaf_count == 0) return false;
    if (edge->leaf) return bsearch(&edge->leaf, path->leaves, (size_t)path->leaf_count, sizeof *path->leaves, by_address) != NULL;
    const tc_path_node *found = edge->node ? find(path, edge->node) : NULL;
    return found && (found->input || found->goes_on);
}

bool tc_path_goes_on(const tc_path *path, const tc_node *node)
{
    const tc_path_node *found = find(path, node);
    return found && found->goes_on;
}

void tc_path_keep(const tc_path *path, const tc_node *node)
{
    const tc_path_node *found = find(path, node);
    for (int64_t place = found ? found->input : 0; place; place = path->next[place - 1]) {
        tc_tensor *gradient = node->gradients[path->inputs[place - 1]->output];
        if (gradient) path->gradients[place - 1] = tc_tensor_retain(gradient);
    }
}

void tc_path_free(tc_path *path)
{
    for (int64_t i = 0; i < path->count; i++) tc_tensor_release(path->gradients[i]);
    if (path->gradients) tc_free(path->gradients, (size_t)path->count * sizeof *path->gradients);
    if (path->leaves) tc_free(path->leaves, (size_t)path->room * sizeof *path->leaves);
    if (path->next) tc_free(path->next, (size_t)path->next_room * sizeof *path->next);
    if (path->nodes) tc_free(path->nodes, (size_t)path->capacity * sizeof *path->nodes);
}
