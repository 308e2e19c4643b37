/* cuda_graph.c: work that is captured once and started many times.
 *
 * A capture is of one thread, on a stream of its own that nothing else uses. The graph keeps
 * - the blocks of memory that its work reads and writes. Nobody else gets them while the graph exists, whoever frees them. Each start is
 * one piece of work in their histories, and raises the versions of the storages that it writes;
 * - a page of numbers that change from start to start: the arguments of optimizers' steps, seeds and numbers of dropouts. A start copies
 *   it to the device, where the kernels read it;
 * - the leaves whose gradients the captured work gave, with these gradients;
 * - the copies of weights in halves that the work uses. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "allocator.h"
#include "cuda.h"
#include "graph.h"
#include "graph_halves.h"
#include "list.h"
#include "status.h"

#define NUMBERS_BYTES ((size_t)1 << 15)

typedef struct use {
    tc_cuda_block *block;
    bool writes;
} use;

typedef struct recorded_step {
    const tc_kernel *kernel;
    size_t offset; /* of its arguments in the page */
    uint64_t digest;
} recorded_step;

typedef struct recorded_draw {
    size_t offset;
    uint64_t base, count; /* calls before the capture, and in it */
} recorded_draw;

typedef struct recorded_leaf {
    tc_tensor *leaf, *before, *after; /* owned; the gradients, or NULL */
    const void *data;                 /* of the leaf, which the work reads */
    bool is_set;                      /* the work does not depend on `before` */
    bool requires_grad;               /* of the leaf, at the end of the capture */
    bool is_new;                      /* each start makes the leaf, without a gradient: `before` is that of the capture alone */
} recorded_leaf;

struct tc_cuda_graph {
    const tc_cuda_api *api;
    int index;
    uint64_t serial;
    void *stream, *exec; /* exec: NULL before the end of the capture */
    bool records, is_short_of_memory;
    TC_LIST(use) uses; /* by address of the block */
    TC_LIST(recorded_step) steps;
    TC_LIST(recorded_draw) draws;
    TC_LIST(recorded_leaf) leaves;
    tc_graph_halves halves;
    tc_cuda_block *pool[TC_CUDA_CLASSES]; /* free, for the capture alone */
    char *numbers;                        /* (NUMBERS_BYTES), on the host */
    void *page;                           /* on the device */
    size_t used;
    int64_t collected; /* steps */
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

static tc_status take_numbers(size_t *offset, tc_cuda_graph *graph, size_t bytes, tc_error *err)
{
    const size_t rounded = tc_divide_up((int64_t)bytes, 16) * 16;
    if (graph->used + rounded > NUMBERS_BYTES)
        return tc_fail(err, TC_ERROR_STATE, "the captured function has more optimizer steps and generators than a graph has room for");
    *offset = graph->used;
    graph->used += rounded;
    return TC_OK;
}

static uint64_t digest_of(const tc_optimizer_chunk *chunks, int64_t count)
{
    uint64_t digest = UINT64_C(14695981039346656037); /* FNV-1a */
    const unsigned char *bytes = (const unsigned char *)chunks;
    for (size_t i = 0; i < (size_t)count * sizeof *chunks; i++) digest = (digest ^ bytes[i]) * UINT64_C(1099511628211);
    return digest;
}

static tc_status other_steps(tc_error *err)
{
    return tc_fail(
        err, TC_ERROR_STATE,
        "the optimizer's step is not the one that was captured: other parameters, gradients or states; make a new tc.cuda.graph");
}

tc_status tc_graph_step(bool *launch, const void **at, const tc_kernel *kernel, const void *args, const tc_optimizer_chunk *chunks,
                        int64_t chunk_count, tc_error *err)
{
    tc_cuda_graph *graph = here.captured ? here.captured : here.collecting;
    *launch = true;
    if (!graph) return TC_OK;
    recorded_step step = {.kernel = kernel, .digest = digest_of(chunks, chunk_count)};
    if (graph == here.captured) {
        if (!TC_LIST_HAS_ROOM(&graph->steps)) return no_memory(err);
        TC_TRY(take_numbers(&step.offset, graph, kernel->args_bytes, err));
        graph->steps.items[graph->steps.count++] = step;
        memcpy(graph->numbers + step.offset, args, kernel->args_bytes);
        *at = (char *)graph->page + step.offset;
        return TC_OK;
    }
    *launch = false;
    if (graph->collected == graph->steps.count) return other_steps(err);
    const recorded_step *recorded = &graph->steps.items[graph->collected++];
    if (recorded->kernel != kernel || recorded->digest != step.digest) return other_steps(err);
    memcpy(graph->numbers + recorded->offset, args, kernel->args_bytes);
    return TC_OK;
}

tc_status tc_cuda_graph_collect(tc_cuda_graph *graph, tc_error *err)
{
    TC_TRY(tc_cuda_not_in_capture("another graph was started", err));
    if (here.collecting)
        return tc_fail(err, TC_ERROR_STATE,
                       "a captured function was called by an optimizer or a schedule within a start of tc.cuda.graph; call it outside, and "
                       "pass what it gives");
    graph->collected = 0;
    here.collecting = graph;
    return TC_OK;
}

tc_status tc_cuda_graph_collected(tc_cuda_graph *graph, tc_error *err)
{
    here.collecting = NULL;
    return graph->collected == graph->steps.count ? TC_OK : other_steps(err);
}

tc_status tc_cuda_begin_draw(int number, uint64_t seed, uint64_t call, uint64_t count, tc_error *err)
{
    tc_cuda_graph *graph = here.captured;
    if (number == graph->draws.count) {
        recorded_draw added = {.base = call};
        if (!TC_LIST_HAS_ROOM(&graph->draws)) return no_memory(err);
        TC_TRY(take_numbers(&added.offset, graph, TC_DRAWN_WORDS * sizeof seed, err));
        graph->draws.items[graph->draws.count++] = added;
        tc_cuda_graph_set_draw(graph, number, seed, call);
    }
    recorded_draw *draw = &graph->draws.items[number];
    if (call != draw->base + draw->count)
        return tc_fail(err, TC_ERROR_STATE, "another thread drew dropout masks from the same generator while tc.cuda.graph captured");
    draw->count += count;
    here.drawing = number;
    here.drawing_count = (uint32_t)count;
    here.drawn = (tc_drawn){.at = (const uint64_t *)((char *)graph->page + draw->offset), .graph = graph->serial};
    return TC_OK;
}

void tc_cuda_end_draw(bool is_drawn)
{
    if (here.drawn.at && !is_drawn) here.captured->draws.items[here.drawing].count -= here.drawing_count;
    here.drawn = (tc_drawn){.at = NULL};
}

void tc_cuda_graph_set_draw(tc_cuda_graph *graph, int number, uint64_t seed, uint64_t calls)
{
    const recorded_draw *draw = &graph->draws.items[number];
    const uint64_t words[TC_DRAWN_WORDS] = {seed, calls - draw->base};
    memcpy(graph->numbers + draw->offset, words, sizeof words);
}

uint64_t tc_cuda_graph_draws(const tc_cuda_graph *graph, int number) { return graph->draws.items[number].count; }

uint64_t tc_cuda_graph_first_draw(const tc_cuda_graph *graph, int number)
{
    const recorded_draw *draw = &graph->draws.items[number];
    uint64_t words[TC_DRAWN_WORDS];
    memcpy(words, graph->numbers + draw->offset, sizeof words);
    return draw->base + words[1];
}

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
    if (!graph) return;
    for (int64_t i = 0; i < graph->leaves.count; i++)
        if (graph->leaves.items[i].leaf == leaf) return;
    if (!TC_LIST_HAS_ROOM(&graph->leaves)) {
        graph->is_short_of_memory = true;
        return;
    }
    graph->leaves.items[graph->leaves.count++] = (recorded_leaf){.leaf = tc_tensor_retain(leaf),
                                                                 .before = is_set ? NULL : tc_tensor_retain(leaf->grad),
                                                                 .data = leaf->data,
                                                                 .is_set = is_set,
                                                                 .is_new = leaf->capture == (unsigned)graph->serial};
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

static tc_status moved(const tc_tensor *leaf, tc_error *err)
{
    char shape[TC_SHAPE_TEXT];
    return tc_fail(
        err, TC_ERROR_STATE,
        "the values of a leaf of shape %s are not where they were in the capture: it was moved, cast or got another .data; make a "
        "new tc.cuda.graph",
        tc_tensor_text(shape, leaf));
}

static bool is_as_before(const recorded_leaf *recorded)
{
    const tc_tensor *grad = recorded->leaf->grad, *before = recorded->before;
    return recorded->is_set || recorded->is_new || grad == before || (grad && before && grad->data == before->data);
}

tc_status tc_cuda_graph_check(const tc_cuda_graph *graph, tc_error *err)
{
    char shape[TC_SHAPE_TEXT];
    for (int64_t i = 0; i < graph->leaves.count; i++) {
        const recorded_leaf *recorded = &graph->leaves.items[i];
        if (recorded->leaf->data != recorded->data) return moved(recorded->leaf, err);
        if (recorded->leaf->requires_grad != recorded->requires_grad)
            return tc_fail(err, TC_ERROR_STATE, "a leaf of shape %s %s a gradient, which in the capture it %s; make a new tc.cuda.graph",
                           tc_tensor_text(shape, recorded->leaf), recorded->requires_grad ? "no longer requires" : "now requires",
                           recorded->requires_grad ? "did" : "did not");
        if (is_as_before(recorded)) continue;
        return tc_fail(err, TC_ERROR_STATE,
                       "a leaf of shape %s %s, but in the capture it %s; call zero_grad() in the function, or each time before it",
                       tc_tensor_text(shape, recorded->leaf),
                       !recorded->leaf->grad ? "has no gradient"
                       : recorded->before    ? "has a gradient elsewhere"
                                             : "has a gradient",
                       recorded->before ? "had one, to which the captured work adds, or with which it steps" : "had none");
    }
    const tc_tensor *weight = tc_graph_halves_moved(&graph->halves);
    return weight ? moved(weight, err) : TC_OK;
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
    graph->numbers = calloc(1, NUMBERS_BYTES);
    tc_status status = graph->numbers ? tc_cuda_allocate(index, NUMBERS_BYTES, &graph->page, err) : no_memory(err);
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
    here.captured = NULL;
    TC_TRY(tc_cuda_enter(&stay, index, err));
    void *captured = NULL;
    int code = stay.api->end_capture(&captured, graph->stream);
    tc_cuda_lock(index);
    graph->records = false; /* what is freed from now on waits for the end of the graph */
    tc_cuda_unlock(index);
    tc_cuda_capture_ends(stay.api, index);
    for (int64_t i = 0; i < graph->leaves.count; i++) {
        recorded_leaf *recorded = &graph->leaves.items[i];
        recorded->after = tc_tensor_take_grad(recorded->leaf);
        recorded->requires_grad = recorded->leaf->requires_grad;
        if (recorded->is_new) recorded->data = recorded->leaf->data; /* the function may have replaced it */
    }
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
    if (graph->used) TC_TRY(tc_cuda_copy(graph->index, graph->page, false, graph->numbers, true, graph->used, err));
    TC_TRY(put(graph, stay.api, err));
    tc_graph_halves_started(&graph->halves);
    return TC_OK;
}

tc_status tc_cuda_graph_give_gradients(tc_cuda_graph *graph, tc_error *err)
{
    for (int64_t i = 0; i < graph->leaves.count; i++) {
        recorded_leaf *recorded = &graph->leaves.items[i];
        if (recorded->leaf->grad != recorded->after) TC_TRY(tc_tensor_set_grad(recorded->leaf, recorded->after, err));
    }
    return TC_OK;
}

tc_status tc_cuda_graph_give_up(tc_cuda_graph *graph, tc_error *err)
{
    for (int64_t i = 0; i < graph->leaves.count; i++)
        TC_TRY(tc_tensor_set_grad(graph->leaves.items[i].leaf, graph->leaves.items[i].before, err));
    tc_graph_halves_not_started(&graph->halves);
    return TC_OK;
}

void tc_cuda_graph_free(tc_cuda_graph *graph)
{
    const int index = graph->index;
    tc_error ignored;
    if (here.captured == graph) (void)!tc_cuda_graph_end(graph, &ignored); /* an interrupt came before the end */
    for (int64_t i = 0; i < graph->leaves.count; i++) {
        tc_tensor_release(graph->leaves.items[i].leaf);
        tc_tensor_release(graph->leaves.items[i].before);
        tc_tensor_release(graph->leaves.items[i].after);
    }
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
        if (graph->page) tc_cuda_free(index, graph->page, NUMBERS_BYTES);
        give_stream(graph->stream, index);
    }
    free(graph->uses.items);
    free(graph->steps.items);
    free(graph->draws.items);
    free(graph->leaves.items);
    free(graph->numbers);
    free(graph);
}
