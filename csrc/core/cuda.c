/* cuda.c: the backend of GPUs: kernels through the CUDA library. */
#include "cuda.h"

#include "status.h"

static tc_dtype cuda_compute_dtype(tc_dtype storage) { return storage; }

static tc_status cuda_run(const tc_plan *plan, const void *args, tc_error *err)
{
    TC_CUDA_STAY(stay);
    tc_cuda_work work;
    void *memory = NULL;
    char name[TC_DEVICE_TEXT];
    const tc_kernel *kernel = plan->kernel;
    const int index = plan->device.index;
    tc_status status = tc_cuda_enter(&stay, index, err);
    if (status != TC_OK) return status;
    const tc_cuda_api *api = stay.api;
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
                                    .own = tc_cuda_own,
                                    .copy = tc_cuda_copy,
                                    .plan = tc_cuda_plan,
                                    .run = cuda_run,
                                    .synchronize = tc_cuda_synchronize,
                                    .block_shared_bytes = tc_cuda_block_shared_bytes,
                                    .check_later = tc_cuda_check_later};
