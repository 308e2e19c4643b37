/* cuda_graph.c: work that is captured once and started many times.
 *
 * A capture is of one thread, on a stream of its own that nothing else uses. The graph keeps
 * - the blocks of memory that its work reads and writes. Nobody else gets them while the graph exists, whoever frees them. Each start is
 * one piece of work in their histories, and raises the versions of the storages that it writes;
 * - a page of numbers that change from start to start (graph_numbers.h);
 * - the leaves whose gradients the captured work gave, with these gradients (graph_leaves.h);
 * - the copies of weights in halves that the work uses (graph_halves.h). */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "allocator.h"
#include "cuda.h"
#include "graph.h"
#include "graph_halves.h"
#include "graph_leaves.h"
#include "graph_numbers.h"
#include "list.h"
#include "status.h"

typedef struct use {
    tc_cuda_block *block;
    bool writes;
} use;

struct tc_cuda_graph {
    const tc_cuda_api *api;
    int index;
    uint64_t serial;
    void *stream, *exec; /* exec: NULL before the end of the capture */
    bool records, is_short_of_memory;
    TC_LIST(use) uses; /* by address of the block */
    tc_graph_numbers numbers;
    tc_graph_leaves leaves;
    tc_graph_halves halves;
    tc_cuda_block *pool[TC_CUDA_CLASSES]; /* free, for the capture alone */
    uint64_t starts;
};

static _Thread_local struct {
    tc_cuda_graph *captured, *collecting;
    tc_drawn drawn;
    int drawing;            /* the draw of the op that runs */
    uint32_t drawing_count; /* its masks */
} here;

static atomic_uint_fast64_t serials;

static tc_status no_memory(tc_error *err) { return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the lists of a captured graph"); }

/* ---- what the rest of the library asks ------------------------------------------------------------------------------------------ */

tc_cuda_graph *tc_cuda_capture_here(void) { return here.captured; }
bool tc_cuda_is_capturing(void) { return here.captured != NULL; }
void *tc_cuda_capture_stream(const tc_cuda_graph *graph) { return graph->stream; }
tc_cuda_block **tc_cuda_pool(tc_cuda_graph *graph, int size_class) { return &graph->pool[size_class]; }
bool tc_cuda_records(const tc_cuda_graph *graph) { return graph->records; }

tc_status tc_cuda_not_in_capture(const char *what, tc_error *err)
{
    if (!here.captured) return TC_OK;
    return tc_fail(err, TC_ERROR_STATE, "%s while tc.cuda.graph captured; move that out of the function", what);
}

tc_status tc_cuda_may_start(int index, tc_error *err)
{
    char wanted[TC_DEVICE_TEXT], own[TC_DEVICE_TEXT];
    if (here.collecting)
        return tc_fail(
            err, TC_ERROR_STATE,
            "an optimizer of a captured function computes on the GPU outside of its step's kernel, which a graph does not repeat; "
            "after an option that needs another state (momentum, amsgrad, centered) was switched on, make a new tc.cuda.graph");
    if (!here.captured || here.captured->index == index) return TC_OK;
    return tc_fail(err, TC_ERROR_STATE,
                   "there was work for %s while tc.cuda.graph captured for %s; a graph is for one GPU, that of its arguments or device=",
                   tc_device_text(wanted, (tc_device){TC_CUDA, index}), tc_device_text(own, (tc_device){TC_CUDA, here.captured->index}));
}

/* Where the block is among the uses, or would be. */
static int64_t place_of(const tc_cuda_graph *graph, const tc_cuda_block *block)
{
    int64_t low = 0, high = graph->uses.count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((uintptr_t)graph->uses.items[middle].block < (uintptr_t)block)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int tc_cuda_graph_uses(tc_cuda_graph *graph, tc_cuda_block *block, bool writes)
{
    const int64_t place = place_of(graph, block);
    if (place < graph->uses.count && graph->uses.items[place].block == block) {
        graph->uses.items[place].writes |= writes;
        return 0;
    }
    if (!TC_LIST_HAS_ROOM(&graph->uses)) return TC_CUDA_OUT_OF_MEMORY;
    use *at = graph->uses.items + place;
    memmove(at + 1, at, (size_t)(graph->uses.count - place) * sizeof *at);
    *at = (use){block, writes};
    graph->uses.count++;
    block->graphs++;
    return 0;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------------------ */

tc_status tc_graph_step(bool *launch, const void **at, const tc_kernel *kernel, const void *args, const tc_optimizer_chunk *chunks,
                        int64_t chunk_count, tc_error *err)
{
    tc_cuda_graph *graph = here.captured ? here.captured : here.collecting;
    *launch = true;
    if (!graph) return TC_OK;
    if (graph == here.captured) return tc_graph_numbers_add_step(&graph->numbers, at, kernel, args, chunks, chunk_count, err);
    *launch = false;
    return tc_graph_numbers_collect(&graph->numbers, kernel, args, chunks, chunk_count, err);
}

tc_status tc_cuda_graph_collect(tc_cuda_graph *graph, tc_error *err)
{
    TC_TRY(tc_cuda_not_in_capture("another graph was started", err));
    if (here.collecting)
        return tc_fail(err, TC_ERROR_STATE,
                       "a captured function was called by an optimizer or a schedule within a start of tc.cuda.graph; call it outside, and "
                       "pass what it gives");
    graph->numbers.collected = 0;
    here.collecting = graph;
    return TC_OK;
}

tc_status tc_cuda_graph_collected(tc_cuda_graph *graph, tc_error *err)
{
    here.collecting = NULL;
    return tc_graph_numbers_collected(&graph->numbers, err);
}

tc_status tc_cuda_begin_draw(int number, uint64_t seed, uint64_t call, uint64_t count, tc_error *err)
{
    const uint64_t *at = NULL;
    TC_TRY(tc_graph_numbers_add_draw(&here.captured->numbers, &at, number, seed, call, count, err));
    here.drawing = number;
    here.drawing_count = (uint32_t)count;
    here.drawn = (tc_drawn){.at = at, .graph = here.captured->serial};
    return TC_OK;
}

void tc_cuda_end_draw(bool is_drawn)
{
    if (here.drawn.at && !is_drawn) here.captured->numbers.draws.items[here.drawing].count -= here.drawing_count;
    here.drawn = (tc_drawn){.at = NULL};
}

void tc_cuda_graph_set_draw(tc_cuda_graph *graph, int number, uint64_t seed, uint64_t calls)
{
    tc_graph_numbers_set_draw(&graph->numbers, number, seed, calls);
}

uint64_t tc_cuda_graph_draws(const tc_cuda_graph *graph, int number) { return graph->numbers.draws.items[number].count; }

uint64_t tc_cuda_graph_first_draw(const tc_cuda_graph *graph, int number) { return tc_graph_numbers_first_draw(&graph->numbers, number); }

tc_drawn tc_drawn_here(void) { return here.drawn; }

tc_status tc_check_drawn(const tc_drawn *drawn, tc_error *err)
{
    if (!drawn->at || (here.captured && here.captured->serial == drawn->graph)) return TC_OK;
    return tc_fail(
        err, TC_ERROR_STATE,
        "the masks of this dropout are those of a captured graph, and its backward is not in it; call backward() in the function");
}

/* ---- gradients of leaves -------------------------------------------------------------------------------------------------------- */

unsigned tc_graph_number(void) { return here.captured ? (unsigned)here.captured->serial : 0; }

tc_status tc_cuda_graph_argument(tc_cuda_graph *graph, tc_tensor *tensor, tc_error *err)
{
    tensor->capture = (unsigned)graph->serial;
    tc_cuda_lock(graph->index);
    tc_cuda_block *block = tc_cuda_block_of(graph->index, tensor->storage->data);
    const int code = block ? tc_cuda_graph_uses(graph, block, false) : 0;
    if (block && !code) block->pool = graph;
    tc_cuda_unlock(graph->index);
    return code ? no_memory(err) : TC_OK;
}

void tc_graph_note_leaf(tc_tensor *leaf, bool is_set)
{
    tc_cuda_graph *graph = here.captured;
    if (graph && !tc_graph_leaves_add(&graph->leaves, leaf, is_set, leaf->capture == (unsigned)graph->serial))
        graph->is_short_of_memory = true;
}

tc_cuda_use tc_cuda_graph_use(const tc_cuda_graph *graph, const tc_tensor *tensor)
{
    if (!graph) graph = here.captured;
    tc_cuda_lock(graph->index);
    const tc_cuda_block *block = tc_cuda_block_of(graph->index, tensor->storage->data);
    const int64_t at = block ? place_of(graph, block) : graph->uses.count;
    const use *found = at < graph->uses.count && graph->uses.items[at].block == block ? &graph->uses.items[at] : NULL;
    tc_cuda_unlock(graph->index);
    return !found ? TC_CUDA_UNUSED : found->writes ? TC_CUDA_WRITTEN : TC_CUDA_READ;
}

tc_status tc_graph_note_half(tc_tensor *weight, tc_tensor *copy, tc_error *err)
{
    return here.captured ? tc_graph_halves_add(&here.captured->halves, weight, copy, err) : TC_OK;
}

tc_status tc_cuda_graph_check(const tc_cuda_graph *graph, tc_error *err)
{
    TC_TRY(tc_graph_leaves_check(&graph->leaves, err));
    const tc_tensor *weight = tc_graph_halves_moved(&graph->halves);
    return weight ? tc_graph_leaf_moved(weight, err) : TC_OK;
}

/* ---- capture -------------------------------------------------------------------------------------------------------- */

/* Streams that captures use, one after the other. They are never destroyed. */
typedef struct spare {
    void *stream;
    struct spare *next;
} spare;
static spare *spares[TC_CUDA_DEVICES]; /* under the device's lock */

static int take_stream(void **stream, const tc_cuda_api *api, int index)
{
    tc_cuda_lock(index);
    spare *found = spares[tc_cuda_slot(index)];
    if (found) spares[tc_cuda_slot(index)] = found->next;
    tc_cuda_unlock(index);
    if (!found) return api->create_stream(stream, 1);
    *stream = found->stream;
    tc_free(found, sizeof *found);
    return 0;
}

static void give_stream(void *stream, int index)
{
    spare *given = stream ? tc_allocate(sizeof *given) : NULL;
    if (!given) return; /* one stream less */
    tc_cuda_lock(index);
    *given = (spare){stream, spares[tc_cuda_slot(index)]};
    spares[tc_cuda_slot(index)] = given;
    tc_cuda_unlock(index);
}

static tc_status make(tc_cuda_graph **out, const tc_cuda_api *api, int index, tc_error *err)
{
    tc_cuda_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return no_memory(err);
    *graph = (tc_cuda_graph){.api = api, .index = index, .serial = 1 + atomic_fetch_add(&serials, 1)};
    tc_status status = tc_graph_numbers_make(&graph->numbers, err);
    if (status == TC_OK) status = tc_cuda_allocate(index, TC_GRAPH_PAGE_BYTES, &graph->numbers.device, err);
    const int code = status == TC_OK ? take_stream(&graph->stream, api, index) : 0;
    if (code) status = tc_cuda_failed(api, index, "making a stream", code, err);
    if (status != TC_OK)
        tc_cuda_graph_free(graph);
    else
        *out = graph;
    return status;
}

tc_status tc_cuda_graph_begin(tc_cuda_graph **out, int index, tc_error *err)
{
    TC_CUDA_STAY(stay);
    tc_cuda_graph *graph = NULL;
    TC_TRY(tc_cuda_not_in_capture("another capture was begun", err));
    TC_TRY(tc_cuda_enter(&stay, index, err));
    TC_TRY(make(&graph, stay.api, index, err));
    tc_cuda_capture_begins(index);
    const int code = stay.api->begin_capture(graph->stream);
    if (code) {
        tc_cuda_capture_ends(stay.api, index);
        tc_cuda_graph_free(graph);
        return tc_cuda_failed(stay.api, index, "beginning a capture", code, err);
    }
    graph->records = true;
    here.captured = *out = graph;
    return TC_OK;
}

/* Makes what was captured a graph that can be launched. That may take memory of the device, which our cache may have. */
static int instantiate(tc_cuda_graph *graph, void *captured)
{
    tc_error ignored;
    int code = graph->api->instantiate(&graph->exec, captured);
    if (code == TC_CUDA_OUT_OF_MEMORY && tc_cuda_empty_cache(graph->index, &ignored) == TC_OK)
        code = graph->api->instantiate(&graph->exec, captured);
    (void)graph->api->forget_captured(captured);
    return code;
}

tc_status tc_cuda_graph_end(tc_cuda_graph *graph, tc_error *err)
{
    TC_CUDA_STAY(stay);
    const int index = graph->index;
    if (here.captured != graph) return TC_OK; /* it has ended, perhaps with an error */
    here.captured = NULL;
    TC_TRY(tc_cuda_enter(&stay, index, err));
    void *captured = NULL;
    int code = stay.api->end_capture(&captured, graph->stream);
    tc_cuda_lock(index);
    graph->records = false; /* what is freed from now on waits for the end of the graph */
    tc_cuda_unlock(index);
    tc_cuda_capture_ends(stay.api, index);
    tc_graph_leaves_captured(&graph->leaves);
    tc_graph_halves_captured(&graph->halves);
    if (!code) code = instantiate(graph, captured);
    if (code == TC_CUDA_OUT_OF_MEMORY)
        return tc_fail(err, TC_ERROR_MEMORY, "out of memory on the GPU: there is none to make a captured graph");
    if (code) return tc_cuda_failed(stay.api, index, "the capture of a graph", code, err);
    return graph->is_short_of_memory ? no_memory(err) : TC_OK;
}

/* ---- starts ------------------------------------------------------------------------------------------------------------------------- */

static tc_status put(tc_cuda_graph *graph, const tc_cuda_api *api, tc_error *err)
{
    tc_cuda_work work;
    int code = 0;
    TC_TRY(tc_cuda_begin(&work, api, graph->index, err));
    for (int64_t i = 0; i < graph->uses.count && !code; i++)
        code = tc_cuda_orders(&work, &graph->uses.items[i].block->history, graph->uses.items[i].writes);
    if (!code) code = api->launch_graph(graph->exec, work.stream);
    /* The host's calls in the capture have raised the versions for the first start. */
    for (int64_t i = 0; i < graph->uses.count && !code && graph->starts > 0; i++) {
        tc_storage *owner = graph->uses.items[i].block->owner;
        if (owner && graph->uses.items[i].writes) tc_storage_change(owner, true);
    }
    if (!code) graph->starts++;
    tc_cuda_end(&work);
    return code ? tc_cuda_failed(api, graph->index, "a captured graph", code, err) : TC_OK;
}

tc_status tc_cuda_graph_start(tc_cuda_graph *graph, tc_error *err)
{
    TC_CUDA_STAY(stay);
    TC_TRY(tc_cuda_not_in_capture("another graph was started", err));
    if (!graph->exec) return tc_fail(err, TC_ERROR_STATE, "the capture of this graph has failed, so that there is nothing to start");
    TC_TRY(tc_cuda_enter(&stay, graph->index, err));
    if (graph->starts > 0) TC_TRY(tc_graph_halves_refresh(&graph->halves, err));
    const tc_graph_numbers *numbers = &graph->numbers;
    if (numbers->used) TC_TRY(tc_cuda_copy(graph->index, numbers->device, false, numbers->host, true, numbers->used, err));
    TC_TRY(put(graph, stay.api, err));
    tc_graph_halves_started(&graph->halves);
    return TC_OK;
}

tc_status tc_cuda_graph_give_gradients(tc_cuda_graph *graph, tc_error *err) { return tc_graph_leaves_give(&graph->leaves, err); }

tc_status tc_cuda_graph_give_up(tc_cuda_graph *graph, tc_error *err)
{
    TC_TRY(tc_graph_leaves_give_up(&graph->leaves, err));
    tc_graph_halves_not_started(&graph->halves);
    return TC_OK;
}

void tc_cuda_graph_free(tc_cuda_graph *graph)
{
    const int index = graph->index;
    tc_error ignored;
    if (here.captured == graph) (void)!tc_cuda_graph_end(graph, &ignored); /* an interrupt came before the end */
    tc_graph_leaves_free(&graph->leaves);
    tc_graph_halves_free(&graph->halves);
    if (!tc_cuda_forked()) {
        if (graph->exec) (void)graph->api->destroy_graph(graph->exec);
        tc_cuda_lock(index);
        tc_cuda_forget_checks(index, graph);
        for (int64_t i = 0; i < graph->uses.count; i++) {
            tc_cuda_block *block = graph->uses.items[i].block;
            if (block->pool == graph) block->pool = NULL;
            tc_cuda_lets_go(index, block);
        }
        tc_cuda_unlock(index);
        if (graph->numbers.device) tc_cuda_free(index, graph->numbers.device, TC_GRAPH_PAGE_BYTES);
        give_stream(graph->stream, index);
    }
    tc_graph_numbers_free(&graph->numbers);
    free(graph->uses.items);
    free(graph);
}
