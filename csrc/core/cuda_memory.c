/* cuda_memory.c: memory of GPUs, cached when it is freed, because cudaMalloc and cudaFree wait for all running work.
 *
 * Blocks have the sizes of a few classes; a free block is on the list of its device and class. A block keeps the history of what streams
 * did to it, and the first work that writes to it after it was taken again waits like any other (cuda_stream.c); so it may be
 * taken at once, by any thread. Blocks that need no wait are taken first. */
#include "cuda.h"

#include <string.h>

#include "allocator.h"
#include "list.h"
#include "status.h"

#define SMALLEST 512 /* bytes; sizes are four to a power of two, from this on */
#define LARGEST (SIZE_MAX / 4)
#define LOOKED_AT 8 /* free blocks searched for one that needs no wait */

typedef tc_cuda_block block;

typedef struct device_memory {
    TC_LIST(block *) blocks; /* all, by address */
    block *free[TC_CUDA_CLASSES];
    tc_cuda_memory_stats stats;
} device_memory;

static device_memory memories[TC_CUDA_DEVICES]; /* each under tc_cuda_lock() */

/* The class of a request, and its block's size: 4, 5, 6 or 7 eighths of a power of two. */
static int size_class(size_t bytes, size_t *whole)
{
    int found = 0;
    size_t step = SMALLEST / 4, size = SMALLEST;
    while (size < bytes) {
        size += step;
        if (++found % 4 == 0) step *= 2;
    }
    *whole = size;
    return found;
}

/* ---- all blocks, by address ---- */

/* How many blocks start at or before the address. */
static int64_t position(const device_memory *memory, const void *address)
{
    int64_t low = 0, high = memory->blocks.count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((uintptr_t)memory->blocks.items[middle]->memory <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static block *block_of(const device_memory *memory, const void *address)
{
    const int64_t found = position(memory, address);
    if (found == 0) return NULL;
    block *candidate = memory->blocks.items[found - 1];
    return (uintptr_t)address - (uintptr_t)candidate->memory < candidate->bytes ? candidate : NULL;
}

tc_cuda_block *tc_cuda_block_of(int index, const void *address) { return block_of(&memories[tc_cuda_slot(index)], address); }

void tc_cuda_own(int index, void *memory, struct tc_storage *owner)
{
    tc_cuda_lock(index);
    block_of(&memories[tc_cuda_slot(index)], memory)->owner = owner;
    tc_cuda_unlock(index);
}

static block *insert(device_memory *memory, void *address, size_t bytes)
{
    block *added = TC_LIST_HAS_ROOM(&memory->blocks) ? tc_allocate(sizeof *added) : NULL;
    if (!added) return NULL;
    *added = (block){.memory = address, .bytes = bytes};
    block **at = memory->blocks.items + position(memory, address), **end = memory->blocks.items + memory->blocks.count++;
    memmove(at + 1, at, (size_t)(end - at) * sizeof *at);
    *at = added;
    return added;
}

static void forget(device_memory *memory, block *old)
{
    block **after = memory->blocks.items + position(memory, old->memory), **end = memory->blocks.items + memory->blocks.count--;
    memmove(after - 1, after, (size_t)(end - after) * sizeof *after);
    tc_free(old, sizeof *old);
}

/* ---- taking and giving back ---- */

static void count_taken(tc_cuda_memory_stats *stats, size_t bytes)
{
    stats->in_use += bytes;
    if (stats->in_use > stats->peak_in_use) stats->peak_in_use = stats->in_use;
}

/* In a capture: a block that the same capture has freed. It comes after what the graph did with it before. */
static void *take_pooled(tc_cuda_graph *graph, int index, int found)
{
    void *address = NULL;
    tc_cuda_lock(index);
    block **first = tc_cuda_pool(graph, found), *taken = *first;
    if (taken) {
        address = taken->memory;
        taken->freed = false;
        *first = taken->next_free;
    }
    tc_cuda_unlock(index);
    return address;
}

/* From now on the block is one of this thread's capture, if there is one. The lock is held. */
static int put_in_pool(block *taken)
{
    tc_cuda_graph *graph = tc_cuda_capture_here();
    const int code = graph ? tc_cuda_graph_uses(graph, taken, true) : 0;
    if (!code) taken->pool = graph;
    return code;
}

static void *take_cached(int index, int found, size_t bytes)
{
    device_memory *memory = &memories[tc_cuda_slot(index)];
    void *address = NULL;
    tc_cuda_lock(index);
    block **best = &memory->free[found];
    int looked_at = 0;
    for (block **at = best; *at && looked_at < LOOKED_AT; at = &(*at)->next_free, looked_at++) {
        if (tc_cuda_would_wait(index, &(*at)->history)) continue;
        best = at;
        break;
    }
    block *taken = *best;
    if (taken && put_in_pool(taken) == 0) {
        address = taken->memory;
        *best = taken->next_free;
        memory->stats.cached -= bytes;
        count_taken(&memory->stats, bytes);
    }
    tc_cuda_unlock(index);
    return address;
}

static int empty_cache(const tc_cuda_api *api, int index)
{
    device_memory *memory = &memories[tc_cuda_slot(index)];
    const int code = tc_cuda_wait_for_all(api, index);
    tc_cuda_lock(index); /* nobody takes a block that is being given back; work that was put meanwhile is waited for by the driver */
    for (int i = 0; i < TC_CUDA_CLASSES && !code; i++) {
        while (memory->free[i]) {
            block *old = memory->free[i];
            memory->free[i] = old->next_free;
            memory->stats.cached -= old->bytes;
            api->release(old->memory);
            forget(memory, old);
        }
    }
    tc_cuda_unlock(index);
    return code;
}

static int take_new(void **out, const tc_cuda_api *api, int index, size_t bytes)
{
    device_memory *memory = &memories[tc_cuda_slot(index)];
    tc_cuda_lock(index);
    int code = api->allocate(out, bytes);
    block *made = code ? NULL : insert(memory, *out, bytes);
    if (!code && (!made || put_in_pool(made) != 0)) {
        if (made) forget(memory, made);
        api->release(*out);
        *out = NULL;
        code = TC_CUDA_OUT_OF_MEMORY;
    }
    if (!code) {
        memory->stats.device_calls++;
        count_taken(&memory->stats, bytes);
    }
    tc_cuda_unlock(index);
    return code;
}

static tc_status out_of_memory(const tc_cuda_api *api, int index, size_t bytes, tc_error *err)
{
    char name[TC_DEVICE_TEXT];
    size_t unused = 0, total = 0;
    if (api->memory_info(&unused, &total) != 0) unused = total = 0;
    return tc_fail(err, TC_ERROR_MEMORY,
                   "out of memory on %s: %zu bytes were asked for, %zu of its %zu are free and this process uses %zu; free Tensors that "
                   "are not needed any more, or use smaller batches",
                   tc_device_text(name, (tc_device){TC_CUDA, index}), bytes, unused, total, memories[tc_cuda_slot(index)].stats.in_use);
}

tc_status tc_cuda_allocate(int index, size_t bytes, void **out, tc_error *err)
{
    TC_CUDA_STAY(stay);
    size_t whole;
    *out = NULL;
    TC_TRY(tc_cuda_enter(&stay, index, err));
    const tc_cuda_api *api = stay.api;
    if (bytes > LARGEST) return out_of_memory(api, index, bytes, err);
    const int found = size_class(bytes, &whole);
    if (found >= TC_CUDA_CLASSES) return out_of_memory(api, index, bytes, err);
    tc_cuda_graph *graph = tc_cuda_capture_here();
    TC_TRY(tc_cuda_may_start(index, err));
    if (graph) *out = take_pooled(graph, index, found);
    if (!*out) *out = take_cached(index, found, whole);
    if (*out) return TC_OK;
    int code = take_new(out, api, index, whole);
    if (code == TC_CUDA_OUT_OF_MEMORY) {
        code = empty_cache(api, index);
        if (!code) code = take_new(out, api, index, whole);
    }
    if (code == TC_CUDA_OUT_OF_MEMORY) return out_of_memory(api, index, bytes, err);
    return code ? tc_cuda_failed(api, index, "an allocation", code, err) : TC_OK;
}

/* The lock is held. */
static void put_in_cache(device_memory *device, block *freed)
{
    size_t whole;
    const int found = size_class(freed->bytes, &whole);
    freed->next_free = device->free[found];
    device->free[found] = freed;
    device->stats.in_use -= whole;
    device->stats.cached += whole;
}

void tc_cuda_free(int index, void *memory, size_t bytes)
{
    size_t whole;
    if (tc_cuda_forked()) return; /* the memory is the parent's */
    device_memory *device = &memories[tc_cuda_slot(index)];
    tc_cuda_lock(index);
    block *freed = block_of(device, memory);
    freed->owner = NULL;
    freed->freed = freed->graphs > 0;
    if (!freed->freed) {
        put_in_cache(device, freed);
    } else if (freed->pool && tc_cuda_records(freed->pool)) {
        block **pool = tc_cuda_pool(freed->pool, size_class(bytes, &whole));
        freed->next_free = *pool;
        *pool = freed;
    }
    tc_cuda_unlock(index);
}

void tc_cuda_lets_go(int index, tc_cuda_block *held)
{
    if (--held->graphs > 0 || !held->freed) return;
    held->freed = false;
    put_in_cache(&memories[tc_cuda_slot(index)], held);
}

tc_status tc_cuda_empty_cache(int index, tc_error *err)
{
    TC_CUDA_STAY(stay);
    TC_TRY(tc_cuda_enter(&stay, index, err));
    const int code = empty_cache(stay.api, index);
    return code ? tc_cuda_failed(stay.api, index, "emptying the cache", code, err) : TC_OK;
}

tc_status tc_cuda_memory_statistics(tc_cuda_memory_stats *out, int index, tc_error *err)
{
    TC_CUDA_STAY(stay);
    TC_TRY(tc_cuda_enter(&stay, index, err));
    tc_cuda_lock(index);
    *out = memories[tc_cuda_slot(index)].stats;
    tc_cuda_unlock(index);
    const int code = stay.api->memory_info(&out->unused, &out->total);
    return code ? tc_cuda_failed(stay.api, index, "asking for the memory", code, err) : TC_OK;
}
