/* cuda_wait.c: waits for a whole device.
 *
 * CUDA refuses them while a stream of the device is in a capture, on any thread, and the capture fails; so they are then waits for our own
 * streams, and what only the whole device can tell waits for the capture's end. */
#include "cuda.h"
#include "lock.h"

typedef struct device_wait {
    tc_lock lock;        /* held while the host waits, and for a moment where a capture begins */
    int captures;        /* in progress */
    tc_cuda_block *late; /* that another library may still work on */
} device_wait;

static device_wait waits[TC_CUDA_DEVICES] = {[0 ... TC_CUDA_DEVICES - 1] = {.lock = TC_LOCK_INITIALIZER(TC_RANK_CUDA_WAITING)}};

TC_WHEN_LOADED add_locks(void)
{
    for (int i = 0; i < TC_CUDA_DEVICES; i++) tc_lock_add(&waits[i].lock);
}

int tc_cuda_wait_for_all(const tc_cuda_api *api, int index)
{
    device_wait *wait = &waits[tc_cuda_slot(index)];
    tc_lock_take(&wait->lock);
    const int code = wait->captures ? tc_cuda_wait_for_streams(api, index) : api->synchronize_device();
    tc_lock_give(&wait->lock);
    return code;
}

void tc_cuda_capture_begins(int index)
{
    device_wait *wait = &waits[tc_cuda_slot(index)];
    tc_lock_take(&wait->lock);
    wait->captures++;
    tc_lock_give(&wait->lock);
}

void tc_cuda_capture_ends(const tc_cuda_api *api, int index)
{
    device_wait *wait = &waits[tc_cuda_slot(index)];
    tc_lock_take(&wait->lock);
    if (--wait->captures == 0 && wait->late) {
        (void)api->synchronize_device();
        tc_cuda_lock(index);
        for (tc_cuda_block *block; (block = wait->late) != NULL;) {
            wait->late = block->next_late;
            block->is_late = false;
            tc_cuda_lets_go(index, block);
        }
        tc_cuda_unlock(index);
    }
    tc_lock_give(&wait->lock);
}

void tc_cuda_wait_or_keep(const tc_cuda_api *api, int index, const void *memory)
{
    device_wait *wait = &waits[tc_cuda_slot(index)];
    tc_lock_take(&wait->lock);
    if (wait->captures == 0) {
        (void)api->synchronize_device();
    } else {
        tc_cuda_lock(index);
        tc_cuda_block *block = tc_cuda_block_of(index, memory);
        if (block && !block->is_late) {
            block->is_late = true;
            block->graphs++;
            block->next_late = wait->late;
            wait->late = block;
        }
        tc_cuda_unlock(index);
    }
    tc_lock_give(&wait->lock);
}
