/* cuda.c: the backend of GPUs: copies and kernels through the CUDA library. */
#include "cuda.h"

#include <string.h>

#include "status.h"

/* The device is selected. A copy to the host is complete when this returns. A copy from the host has read the host's memory, which may then
 * be changed or freed; with `staging` the GPU may not have started it yet, otherwise it is complete as well. */
static int copy_with_host(const tc_cuda_api *api, tc_cuda_work *work, void *to, bool to_host, const void *from, size_t bytes,
                          tc_cuda_staging *staging)
{
    if (staging && !to_host) memcpy(staging->memory, from, bytes);
    int code = to_host ? tc_cuda_reads(work, from) : tc_cuda_writes(work, to);
    if (!code)
        code = to_host ? api->copy_to_host(staging ? staging->memory : to, from, bytes, work->stream)
                       : api->copy_from_host(to, staging ? staging->memory : from, bytes, work->stream);
    if (!code && staging) code = api->record_event(staging->event, work->stream);
    tc_cuda_end(work);
    if (code || (staging && !to_host)) return code;
    code = staging ? api->synchronize_event(staging->event) : api->synchronize(work->stream);
    if (code) return code;
    tc_cuda_is_done(work);
    if (staging) memcpy(to, staging->memory, bytes);
    return 0;
}

static tc_status cuda_copy(int index, void *to, bool to_host, const void *from, bool from_host, size_t bytes, tc_error *err)
{
    const tc_cuda_api *api;
    tc_cuda_work work;
    int code;
    tc_status status = tc_cuda_device(&api, index, err);
    if (status != TC_OK || bytes == 0) return status;
    const bool with_host = to_host || from_host;
    tc_cuda_staging *staging = with_host && bytes <= TC_CUDA_STAGING_BYTES ? tc_cuda_take_staging(api, index) : NULL;
    status = tc_cuda_begin(&work, api, index, err);
    if (status != TC_OK) {
        if (staging) tc_cuda_give_staging(index, staging, false);
        return status;
    }
    if (with_host) {
        code = copy_with_host(api, &work, to, to_host, from, bytes, staging);
        if (staging) tc_cuda_give_staging(index, staging, !code && from_host);
    } else {
        code = tc_cuda_reads(&work, from);
        if (!code) code = tc_cuda_writes(&work, to);
        if (!code) code = api->copy_on_device(to, from, bytes, work.stream);
        tc_cuda_end(&work);
    }
    return code ? tc_cuda_failed(api, index, "a copy", code, err) : TC_OK;
}

static tc_dtype cuda_compute_dtype(tc_dtype storage) { return storage; }

static tc_status cuda_run(const tc_plan *plan, const void *args, tc_error *err)
{
    const tc_cuda_api *api;
    tc_cuda_work work;
    void *memory = NULL;
    char name[TC_DEVICE_TEXT];
    const tc_kernel *kernel = plan->kernel;
    const int index = plan->device.index;
    tc_status status = tc_cuda_device(&api, index, err);
    if (status != TC_OK) return status;
    const tc_cuda_kernel_table *table = api->kernels(plan->compute);
    if (!table || !table->run[kernel->id])
        return tc_fail(err, TC_ERROR_NOT_IMPLEMENTED,
                       "%s of %s has no CUDA kernel yet (device \"%s\"); move its Tensors to the CPU with .cpu()", kernel->name,
                       tc_dtype_name(plan->compute), tc_device_text(name, plan->device));
    const size_t bytes = table->scratch_bytes[kernel->id] ? table->scratch_bytes[kernel->id](args) : 0;
    if (bytes) status = tc_cuda_allocate(index, bytes, &memory, err);
    if (status == TC_OK) status = tc_cuda_begin(&work, api, index, err);
    if (status == TC_OK) {
        int code = tc_cuda_order_kernel(&work, kernel, args);
        if (!code && memory) code = tc_cuda_writes(&work, memory);
        if (!code) code = table->run[kernel->id](args, plan->items, memory, work.stream);
        tc_cuda_end(&work);
        if (code) status = tc_cuda_failed(api, index, kernel->name, code, err);
    }
    if (memory) tc_cuda_free(index, memory, bytes); /* work of its next owner is ordered after the kernel */
    if (status == TC_OK && plan->variant) tc_note_plan(plan);
    return status;
}

const tc_backend tc_cuda_backend = {.name = "cuda",
                                    .compute_dtype = cuda_compute_dtype,
                                    .allocate = tc_cuda_allocate,
                                    .free = tc_cuda_free,
                                    .copy = cuda_copy,
                                    .plan = tc_cuda_plan,
                                    .run = cuda_run,
                                    .synchronize = tc_cuda_synchronize};
