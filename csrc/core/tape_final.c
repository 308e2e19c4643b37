/* tape_final.c: see tape_final.h. */
#include "tape_final.h"

#include <inttypes.h>
#include <stdlib.h>

#include "allocator.h"
#include "tape_node.h"

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const tc_final *)a)->leaf, y = (uintptr_t)((const tc_final *)b)->leaf;
    return (x > y) - (x < y);
}

static int by_moment(const void *a, const void *b)
{
    const tc_final *x = a, *y = b;
    if (x->reader != y->reader) return x->reader > y->reader ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* A node is pushed once for each edge to it; its copies follow one another. */
static tc_status find_readers(tc_finals *finals, tc_node_heap *heap, tc_error *err)
{
    for (const tc_node *before = NULL; heap->count > 0;) {
        const tc_node *node = tc_heap_pop(heap);
        if (node == before) continue;
        before = node;
        for (const tc_edge *edge = node->edges; edge < node->edges + node->input_count; edge++) {
            if (edge->node) TC_TRY(tc_heap_push(heap, edge->node, err));
            if (!edge->leaf) continue;
            tc_final *found = bsearch(&(tc_final){.leaf = edge->leaf}, finals->leaves, (size_t)finals->count, sizeof *found, by_address);
            if (found && found->reader != TC_AT_THE_END) found->reader = node->sequence + 1;
        }
    }
    return TC_OK;
}

tc_status tc_finals_find(tc_finals *out, tc_node *root, int64_t count, tc_tensor *const *leaves, tc_error *err)
{
    tc_node_heap heap = {0};
    void *block = NULL;
    int64_t capacity = 0;
    if (count == 0) return TC_OK;
    TC_TRY(tc_grow(&block, &capacity, count, sizeof(tc_final), err));
    *out = (tc_finals){.leaves = block, .count = count};
    for (int64_t i = 0; i < count; i++)
        out->leaves[i] = (tc_final){leaves[i], i, tc_hook_find(&leaves[i]->hooks, 0) ? TC_AT_THE_END : TC_NO_READER};
    qsort(out->leaves, (size_t)count, sizeof(tc_final), by_address);
    for (int64_t i = 1; i < count; i++)
        if (out->leaves[i].leaf == out->leaves[i - 1].leaf)
            return tc_fail(err, TC_ERROR_VALUE, "leaves has a Tensor twice, at %" PRId64 " and %" PRId64, out->leaves[i - 1].place,
                           out->leaves[i].place);
    tc_status status = root ? tc_heap_push(&heap, root, err) : TC_OK;
    if (status == TC_OK) status = find_readers(out, &heap, err);
    tc_heap_free(&heap);
    qsort(out->leaves, (size_t)count, sizeof(tc_final), by_moment);
    return status;
}

const tc_final *tc_finals_next(tc_finals *finals, const tc_node_heap *left)
{
    const uint64_t next = left->count ? left->nodes[0]->sequence + 1 : TC_AT_THE_END;
    return finals->told < finals->count && finals->leaves[finals->told].reader > next ? &finals->leaves[finals->told++] : NULL;
}

void tc_finals_free(tc_finals *finals)
{
    if (finals->leaves) tc_free(finals->leaves, (size_t)finals->count * sizeof *finals->leaves);
}
