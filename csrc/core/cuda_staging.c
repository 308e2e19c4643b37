/* cuda_staging.c: a few page-locked buffers per device. Copies from and to the host go through them, so that the host does not wait for the
 * GPU after a copy from its memory, which may then change at once, and nobody holds the device's lock while waiting. */
#include "cuda.h"

#include "lock.h"

typedef struct staging_pool {
    tc_lock lock;
    tc_cuda_staging buffers[TC_CUDA_STAGING_BUFFERS];
    uint64_t turns;
} staging_pool;

static staging_pool pools[TC_CUDA_DEVICES] = {[0 ... TC_CUDA_DEVICES - 1] = {.lock = TC_LOCK_INITIALIZER(TC_RANK_CUDA_STAGING)}};

TC_WHEN_LOADED add_locks(void)
{
    for (int i = 0; i < TC_CUDA_DEVICES; i++) tc_lock_add(&pools[i].lock);
}

/* In order of preference: a free buffer, one whose copy is complete, a new one, the one whose copy was started first. The lock is held. */
static tc_cuda_staging *choose(staging_pool *pool, const tc_cuda_api *api)
{
    tc_cuda_staging *unused = NULL, *first = NULL;
    for (int i = 0; i < TC_CUDA_STAGING_BUFFERS; i++) {
        tc_cuda_staging *staging = &pool->buffers[i];
        if (staging->state == TC_STAGING_ON_ITS_WAY) {
            const int code = api->query_event(staging->event); /* an error is reported at the next wait */
            staging->state = code == 0 ? TC_STAGING_FREE : code == TC_CUDA_NOT_READY ? TC_STAGING_ON_ITS_WAY : TC_STAGING_LOST;
        }
        if (staging->state == TC_STAGING_FREE && staging->memory) return staging;
        if (staging->state == TC_STAGING_FREE && !unused) unused = staging;
        if (staging->state == TC_STAGING_ON_ITS_WAY && (!first || staging->turn < first->turn)) first = staging;
    }
    return unused ? unused : first;
}

tc_cuda_staging *tc_cuda_take_staging(const tc_cuda_api *api, int index)
{
    staging_pool *pool = &pools[tc_cuda_slot(index)];
    tc_lock_take(&pool->lock);
    tc_cuda_staging *staging = choose(pool, api);
    const bool wait = staging && staging->state == TC_STAGING_ON_ITS_WAY;
    if (staging) staging->state = TC_STAGING_HELD;
    tc_lock_give(&pool->lock);
    if (!staging) return NULL;
    int code = wait ? api->synchronize_event(staging->event) : 0;
    const bool is_lost = code != 0;
    if (!code && !staging->event) code = api->create_event(&staging->event);
    if (!code && !staging->memory) code = api->allocate_host(&staging->memory, TC_CUDA_STAGING_BYTES);
    if (!code) return staging;
    tc_cuda_give_staging(index, staging, is_lost ? TC_STAGING_LOST : TC_STAGING_FREE);
    return NULL;
}

void tc_cuda_give_staging(int index, tc_cuda_staging *staging, tc_staging_state state)
{
    staging_pool *pool = &pools[tc_cuda_slot(index)];
    tc_lock_take(&pool->lock);
    staging->state = state;
    staging->turn = pool->turns++;
    tc_lock_give(&pool->lock);
}
