/* cuda_memory.c: memory of GPUs, kept when it comes back, because cudaMalloc and cudaFree wait for all that is running.
 *
 * Blocks have the sizes of a few classes; a free one lies on the list of its device and class, with the stream that used it
 * last. Work of the same stream may have it at once, for its kernels run in order; another stream first waits. */
#include "cuda.h"

#include <pthread.h>
#include <string.h>

#include "allocator.h"
#include "status.h"

#define SMALLEST 512 /* bytes */
#define CLASSES 144  /* four to a power of two, from SMALLEST on */
#define LARGEST (SIZE_MAX / 4)

typedef struct free_block {
    struct free_block *next;
    void *memory, *stream;
} free_block;

typedef struct device_memory {
    free_block *free[CLASSES];
    tc_cuda_memory_stats stats;
} device_memory;

static device_memory memories[TC_CUDA_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The class of a request, and its block's size: 4, 5, 6 or 7 eighths of a power of two. */
static int size_class(size_t bytes, size_t *block)
{
    int found = 0;
    size_t step = SMALLEST / 4, size = SMALLEST;
    while (size < bytes) {
        size += step;
        if (++found % 4 == 0) step *= 2;
    }
    *block = size;
    return found;
}

static void count_taken(tc_cuda_memory_stats *stats, size_t block)
{
    stats->in_use += block;
    if (stats->in_use > stats->peak_in_use) stats->peak_in_use = stats->in_use;
}

static tc_status take_cached(void **out, const tc_cuda_api *api, int index, int found, size_t block, tc_error *err)
{
    device_memory *memory = &memories[tc_cuda_slot(index)];
    pthread_mutex_lock(&lock);
    free_block *taken = memory->free[found];
    if (taken) {
        memory->free[found] = taken->next;
        memory->stats.cached -= block;
        count_taken(&memory->stats, block);
    }
    pthread_mutex_unlock(&lock);
    if (!taken) return TC_OK;
    void *const stream = taken->stream, *const mine = tc_cuda_current_stream();
    *out = taken->memory;
    tc_free(taken, sizeof *taken);
    if (!stream || !mine || stream == mine) return TC_OK; /* the default stream waits for all, and all for it */
    const int code = api->synchronize(stream);
    if (!code) return TC_OK;
    tc_cuda_free(index, *out, block);
    return tc_cuda_failed(api, index, "waiting for another stream", code, err);
}

static void empty_cache(const tc_cuda_api *api, int index)
{
    device_memory *memory = &memories[tc_cuda_slot(index)];
    pthread_mutex_lock(&lock);
    for (int i = 0; i < CLASSES; i++) {
        while (memory->free[i]) {
            free_block *block = memory->free[i];
            memory->free[i] = block->next;
            tc_cuda_lock(api);
            api->release(block->memory); /* waits for what still uses it */
            tc_cuda_unlock(api);
            tc_free(block, sizeof *block);
        }
    }
    memory->stats.cached = 0;
    pthread_mutex_unlock(&lock);
}

static int take_new(void **out, const tc_cuda_api *api, size_t block)
{
    tc_cuda_lock(api);
    const int code = api->allocate(out, block);
    tc_cuda_unlock(api);
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
    const tc_cuda_api *api;
    size_t block;
    *out = NULL;
    tc_status status = tc_cuda_device(&api, index, err);
    if (status != TC_OK) return status;
    if (bytes > LARGEST) return out_of_memory(api, index, bytes, err);
    const int found = size_class(bytes, &block);
    if (found >= CLASSES) return out_of_memory(api, index, bytes, err);
    status = take_cached(out, api, index, found, block, err);
    if (status != TC_OK || *out) return status;
    int code = take_new(out, api, block);
    if (code == TC_CUDA_OUT_OF_MEMORY) {
        empty_cache(api, index);
        code = take_new(out, api, block);
    }
    if (code == TC_CUDA_OUT_OF_MEMORY) return out_of_memory(api, index, bytes, err);
    if (code) return tc_cuda_failed(api, index, "an allocation", code, err);
    pthread_mutex_lock(&lock);
    memories[tc_cuda_slot(index)].stats.device_calls++;
    count_taken(&memories[tc_cuda_slot(index)].stats, block);
    pthread_mutex_unlock(&lock);
    return TC_OK;
}

void tc_cuda_free(int index, void *memory, size_t bytes)
{
    const tc_cuda_api *api;
    tc_error ignored;
    size_t block;
    if (tc_cuda_device(&api, index, &ignored) != TC_OK) return; /* a forked process: the memory is its parent's */
    const int found = size_class(bytes, &block);
    device_memory *device = &memories[tc_cuda_slot(index)];
    free_block *entry = tc_allocate(sizeof *entry);
    pthread_mutex_lock(&lock);
    device->stats.in_use -= block;
    if (entry) {
        *entry = (free_block){.next = device->free[found], .memory = memory, .stream = tc_cuda_current_stream()};
        device->free[found] = entry;
        device->stats.cached += block;
    }
    pthread_mutex_unlock(&lock);
    if (entry) return;
    tc_cuda_lock(api);
    api->release(memory);
    tc_cuda_unlock(api);
}

tc_status tc_cuda_empty_cache(int index, tc_error *err)
{
    const tc_cuda_api *api;
    const tc_status status = tc_cuda_device(&api, index, err);
    if (status == TC_OK) empty_cache(api, index);
    return status;
}

tc_status tc_cuda_memory_statistics(tc_cuda_memory_stats *out, int index, tc_error *err)
{
    const tc_cuda_api *api;
    const tc_status status = tc_cuda_device(&api, index, err);
    if (status != TC_OK) return status;
    pthread_mutex_lock(&lock);
    *out = memories[tc_cuda_slot(index)].stats;
    pthread_mutex_unlock(&lock);
    const int code = api->memory_info(&out->unused, &out->total);
    return code ? tc_cuda_failed(api, index, "asking for the memory", code, err) : TC_OK;
}
