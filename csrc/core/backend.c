/* backend.c: the table of backends, and the CPU's. */
#include "backend.h"

#include <string.h>

#include "../kernels/kernel_ids.h"
#include "allocator.h"
#include "cpu.h"
#include "cuda.h"
#include "status.h"
#include "threads.h"

static tc_dtype cpu_compute_dtype(tc_dtype storage) { return storage == TC_FLOAT64 ? TC_FLOAT64 : TC_FLOAT32; }

static tc_status cpu_allocate(int index, size_t bytes, void **out, tc_error *err)
{
    (void)index;
    *out = tc_allocate(bytes);
    if (!*out) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: %zu bytes were asked for on the CPU", bytes);
    return TC_OK;
}

static void cpu_free(int index, void *block, size_t bytes)
{
    (void)index;
    tc_free(block, bytes);
}

static tc_status cpu_copy(int index, void *to, bool to_host, const void *from, bool from_host, size_t bytes, tc_error *err)
{
    (void)index, (void)to_host, (void)from_host, (void)err;
    memmove(to, from, bytes);
    return TC_OK;
}

static tc_status cpu_run(int index, tc_dtype compute, const tc_kernel *kernel, const void *args, int64_t items, double cost, size_t scratch,
                         tc_error *err)
{
    (void)index;
    return tc_parallel_for(tc_cpu_kernels(compute)->run[kernel->id], args, items, cost, scratch, err);
}

static tc_status cpu_synchronize(int index, tc_error *err)
{
    (void)index, (void)err;
    return TC_OK;
}

static const tc_backend cpu_backend = {"cpu", cpu_compute_dtype, cpu_allocate, cpu_free, cpu_copy, cpu_run, cpu_synchronize};

tc_status tc_backend_for(const tc_backend **out, tc_device device, tc_error *err)
{
    if (device.type == TC_CPU) {
        *out = &cpu_backend;
        return TC_OK;
    }
    const tc_cuda_api *api;
    *out = &tc_cuda_backend;
    return tc_cuda_device(&api, device.index, err);
}

tc_status tc_run(tc_device device, tc_dtype compute, const tc_kernel *kernel, const void *args, int64_t items, double cost, size_t scratch,
                 tc_error *err)
{
    if (items <= 0) return TC_OK;
    const tc_backend *backend;
    tc_status status = tc_backend_for(&backend, device, err);
    if (status != TC_OK) return status;
    return backend->run(device.index, compute, kernel, args, items, cost, scratch, err);
}
