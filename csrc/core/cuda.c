/* cuda.c: the backend of GPUs: copies, kernels and streams through the CUDA library. */
#include "cuda.h"

#include "status.h"

static _Thread_local void *current_stream;

void *tc_cuda_current_stream(void) { return current_stream; }

/* A copy from or to the host is over when this returns: the host's memory may go, change or be read then. */
static tc_status cuda_copy(int index, void *to, bool to_host, const void *from, bool from_host, size_t bytes, tc_error *err)
{
    const tc_cuda_api *api;
    const tc_status status = tc_cuda_device(&api, index, err);
    if (status != TC_OK || bytes == 0) return status;
    tc_cuda_lock(api);
    int code = from_host ? api->copy_from_host(to, from, bytes, current_stream)
               : to_host ? api->copy_to_host(to, from, bytes, current_stream)
                         : api->copy_on_device(to, from, bytes, current_stream);
    if (!code && (from_host || to_host)) code = api->synchronize(current_stream);
    tc_cuda_unlock(api);
    return code ? tc_cuda_failed(api, index, "a copy", code, err) : TC_OK;
}

static tc_status cuda_run(int index, tc_dtype compute, tc_kernel_id kernel, const void *args, int64_t items, double cost, size_t scratch,
                          tc_error *err)
{
    const tc_cuda_api *api;
    void *memory = NULL;
    char name[TC_DEVICE_TEXT];
    (void)cost, (void)scratch; /* of the CPU's kernels */
    tc_status status = tc_cuda_device(&api, index, err);
    if (status != TC_OK) return status;
    const tc_cuda_kernel_table *table = api->kernels(compute);
    if (!table || !table->run[kernel])
        return tc_fail(err, TC_ERROR_NOT_IMPLEMENTED,
                       "%s of %s has no CUDA kernel yet (device \"%s\"); move its Tensors to the CPU with .cpu()", tc_kernel_names[kernel],
                       tc_dtype_name(compute), tc_device_text(name, (tc_device){TC_CUDA, index}));
    const size_t bytes = table->scratch_bytes[kernel] ? table->scratch_bytes[kernel](args) : 0;
    if (bytes) status = tc_cuda_allocate(index, bytes, &memory, err);
    if (status != TC_OK) return status;
    tc_cuda_lock(api);
    const int code = table->run[kernel](args, items, memory, current_stream);
    tc_cuda_unlock(api);
    if (code) status = tc_cuda_failed(api, index, tc_kernel_names[kernel], code, err);
    if (memory) tc_cuda_free(index, memory, bytes); /* whoever takes it comes later on the stream */
    return status;
}

static tc_status cuda_synchronize(int index, tc_error *err)
{
    const tc_cuda_api *api;
    const tc_status status = tc_cuda_device(&api, index, err);
    if (status != TC_OK) return status;
    const int code = api->synchronize_device();
    return code ? tc_cuda_failed(api, index, "waiting", code, err) : TC_OK;
}

const tc_backend tc_cuda_backend = {"cuda", tc_cuda_allocate, tc_cuda_free, cuda_copy, cuda_run, cuda_synchronize};

tc_status tc_cuda_synchronize(int index, tc_error *err) { return cuda_synchronize(index, err); }

tc_status tc_cuda_new_stream(void **stream, int index, tc_error *err)
{
    const tc_cuda_api *api;
    const tc_status status = tc_cuda_device(&api, index, err);
    if (status != TC_OK) return status;
    const int code = api->create_stream(stream);
    return code ? tc_cuda_failed(api, index, "making a stream", code, err) : TC_OK;
}

void *tc_cuda_set_stream(void *stream)
{
    void *before = current_stream;
    current_stream = stream;
    return before;
}
