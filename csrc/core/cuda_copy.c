/* cuda_copy.c: copies between the memory of GPUs and the host's, and on a GPU.
 *
 * From and to the host they go through page-locked buffers, a piece at a time. The driver copies other memory of the host only after it has
 * waited for the stream, and that wait would be under the device's lock, so that every thread would wait with it. */
#include "cuda.h"

#include <string.h>

#include "status.h"

/* A copy between the host and the device, of which `done` bytes have been started. */
typedef struct host_copy {
    const tc_cuda_api *api;
    int index;
    bool to_host;
    char *host, *device;
    size_t bytes, done;
} host_copy;

typedef struct piece {
    tc_cuda_staging *staging; /* NULL: there is no piece */
    tc_cuda_work work;
    char *host;
    size_t bytes;
} piece;

/* Puts the next piece on the thread's stream. There is none when no buffer can be had. */
static tc_status start_piece(piece *out, host_copy *copy, tc_error *err)
{
    const tc_cuda_api *api = copy->api;
    const size_t left = copy->bytes - copy->done;
    char *device = copy->device + copy->done;
    *out = (piece){.host = copy->host + copy->done, .bytes = left < TC_CUDA_STAGING_BYTES ? left : TC_CUDA_STAGING_BYTES};
    tc_cuda_staging *staging = tc_cuda_take_staging(api, copy->index);
    if (!staging) return TC_OK;
    if (!copy->to_host) memcpy(staging->memory, out->host, out->bytes);
    tc_status status = tc_cuda_begin(&out->work, api, copy->index, err);
    const bool is_begun = status == TC_OK;
    if (is_begun) {
        void *stream = out->work.stream;
        int code = copy->to_host ? tc_cuda_reads(&out->work, device) : tc_cuda_writes(&out->work, device);
        if (!code)
            code = copy->to_host ? api->copy_to_host(staging->memory, device, out->bytes, stream)
                                 : api->copy_from_host(device, staging->memory, out->bytes, stream);
        if (!code) code = api->record_event(staging->event, stream);
        tc_cuda_end(&out->work);
        if (code) status = tc_cuda_failed(api, copy->index, "a copy", code, err);
    }
    if (status != TC_OK) {
        tc_cuda_give_staging(copy->index, staging, is_begun ? TC_STAGING_LOST : TC_STAGING_FREE);
        return status;
    }
    if (!copy->to_host) tc_cuda_give_staging(copy->index, staging, TC_STAGING_ON_ITS_WAY);
    out->staging = staging;
    copy->done += out->bytes;
    return TC_OK;
}

/* Waits for a piece from the device and hands it to the host. */
static tc_status finish_piece(piece *self, const host_copy *copy, tc_error *err)
{
    if (!self->staging) return TC_OK;
    const int code = copy->api->synchronize_event(self->staging->event);
    if (!code) {
        tc_cuda_is_done(&self->work);
        memcpy(self->host, self->staging->memory, self->bytes);
    }
    tc_cuda_give_staging(copy->index, self->staging, code ? TC_STAGING_LOST : TC_STAGING_FREE);
    self->staging = NULL;
    return code ? tc_cuda_failed(copy->api, copy->index, "a copy", code, err) : TC_OK;
}

/* Copies the rest by the driver alone, when other threads hold every buffer or there is no page-locked memory. The wait for earlier work
 * is without the lock. */
static tc_status copy_the_rest(host_copy *copy, tc_error *err)
{
    const tc_cuda_api *api = copy->api;
    char *host = copy->host + copy->done, *device = copy->device + copy->done;
    const size_t bytes = copy->bytes - copy->done;
    tc_cuda_work work;
    for (int turn = 0; turn < 2; turn++) { /* first the order alone, then the copy, which has nothing to wait for */
        TC_TRY(tc_cuda_begin(&work, api, copy->index, err));
        int code = copy->to_host ? tc_cuda_reads(&work, device) : tc_cuda_writes(&work, device);
        if (!code && turn == 1)
            code =
                copy->to_host ? api->copy_to_host(host, device, bytes, work.stream) : api->copy_from_host(device, host, bytes, work.stream);
        tc_cuda_end(&work);
        if (!code) code = api->synchronize(work.stream);
        if (code) return tc_cuda_failed(api, copy->index, "a copy", code, err);
        tc_cuda_is_done(&work);
    }
    copy->done = copy->bytes;
    return TC_OK;
}

/* When this returns, a copy to the host is complete; a copy from the host has read the host's memory, which may then be changed or freed,
 * and the GPU may not have started on it yet. To the host, a piece is copied from its buffer while the next
 * one is on its way. */
static tc_status copy_with_host(host_copy *copy, tc_error *err)
{
    tc_error ignored;
    piece before = {.staging = NULL}, next;
    tc_status status = TC_OK;
    while (status == TC_OK && copy->done < copy->bytes) {
        status = start_piece(&next, copy, err);
        const bool started = status == TC_OK && next.staging;
        if (copy->to_host) {
            const tc_status finished = finish_piece(&before, copy, status == TC_OK ? err : &ignored);
            if (status == TC_OK) status = finished;
            if (started) before = next;
        }
        if (status == TC_OK && !started) status = copy_the_rest(copy, err);
    }
    const tc_status finished = finish_piece(&before, copy, status == TC_OK ? err : &ignored);
    return status == TC_OK ? finished : status;
}

static tc_status copy_on_device(const tc_cuda_api *api, int index, void *to, const void *from, size_t bytes, tc_error *err)
{
    tc_cuda_work work;
    TC_TRY(tc_cuda_begin(&work, api, index, err));
    int code = tc_cuda_reads(&work, from);
    if (!code) code = tc_cuda_writes(&work, to);
    if (!code) code = api->copy_on_device(to, from, bytes, work.stream);
    tc_cuda_end(&work);
    return code ? tc_cuda_failed(api, index, "a copy", code, err) : TC_OK;
}

tc_status tc_cuda_copy(int index, void *to, bool to_host, const void *from, bool from_host, size_t bytes, tc_error *err)
{
    TC_CUDA_STAY(stay);
    TC_TRY(tc_cuda_enter(&stay, index, err));
    if (bytes == 0) return TC_OK;
    if (!to_host && !from_host) return copy_on_device(stay.api, index, to, from, bytes, err);
    TC_TRY(tc_cuda_not_in_capture(to_host ? "the host read values of a Tensor (item, tolist, numpy, print, an if, a check of values)"
                                          : "values of the host were copied to the GPU (an array, a list, indices, random numbers)",
                                  err));
    host_copy copy = {.api = stay.api,
                      .index = index,
                      .to_host = to_host,
                      .host = to_host ? to : (char *)from,
                      .device = to_host ? (char *)from : to,
                      .bytes = bytes};
    TC_TRY(copy_with_host(&copy, err));
    return to_host ? tc_cuda_earlier_errors(stay.api, index, err) : TC_OK;
}
