/* graph_halves.c: see graph_halves.h. */
#include "graph_halves.h"

#include <stdlib.h>

#include "kept_half.h"
#include "own.h"
#include "status.h"

static tc_status make(tc_graph_half *half, tc_tensor *weight, tc_tensor *copy, tc_error *err)
{
    TC_OWNED tc_tensor *own = NULL;
    TC_TRY(tc_tensor_alias(&own, weight, weight->ndim, weight->shape, weight->strides, 0, err));
    TC_TRY(tc_tensor_alias(&half->copy, copy, weight->ndim, weight->shape, weight->strides, 0, err));
    atomic_fetch_add(&copy->storage->graphs, 1);
    half->weight = tc_take(&own);
    half->leaf = tc_tensor_retain(tc_tensor_itself(weight));
    return TC_OK;
}

tc_status tc_graph_halves_add(tc_graph_halves *halves, tc_tensor *weight, tc_tensor *copy, tc_error *err)
{
    for (int64_t i = 0; i < halves->count; i++)
        if (halves->items[i].copy->data == copy->data) return TC_OK;
    if (!TC_LIST_HAS_ROOM(halves)) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the weights of a captured graph");
    TC_TRY(make(&halves->items[halves->count], weight, copy, err));
    halves->count++;
    return TC_OK;
}

void tc_graph_halves_captured(tc_graph_halves *halves)
{
    for (int64_t i = 0; i < halves->count; i++)
        halves->items[i].is_stepped = tc_kept_half_is(halves->items[i].weight, halves->items[i].copy);
}

const tc_tensor *tc_graph_halves_moved(const tc_graph_halves *halves)
{
    for (int64_t i = 0; i < halves->count; i++)
        if (halves->items[i].leaf->data != halves->items[i].weight->data) return halves->items[i].leaf;
    return NULL;
}

tc_status tc_graph_halves_refresh(const tc_graph_halves *halves, tc_error *err)
{
    for (int64_t i = 0; i < halves->count; i++) TC_TRY(tc_renew_kept_half(halves->items[i].weight, halves->items[i].copy, err));
    return TC_OK;
}

void tc_graph_halves_started(const tc_graph_halves *halves)
{
    for (int64_t i = 0; i < halves->count; i++)
        if (halves->items[i].is_stepped) tc_kept_half_was_stepped(halves->items[i].weight, halves->items[i].copy);
}

void tc_graph_halves_not_started(const tc_graph_halves *halves)
{
    for (int64_t i = 0; i < halves->count; i++) /* the copy is not what the capture left it as: it is made anew */
        atomic_fetch_add_explicit(&halves->items[i].weight->storage->version, 1, memory_order_acq_rel);
}

void tc_graph_halves_free(tc_graph_halves *halves)
{
    for (int64_t i = 0; i < halves->count; i++) {
        atomic_fetch_sub(&halves->items[i].copy->storage->graphs, 1);
        tc_tensor_release(halves->items[i].copy);
        tc_tensor_release(halves->items[i].weight);
        tc_tensor_release(halves->items[i].leaf);
    }
    free(halves->items);
}
