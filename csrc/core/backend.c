/* backend.c: the table of backends, and the CPU's. */
#include "backend.h"

#include <stdatomic.h>
#include <string.h>

#include "allocator.h"
#include "cpu.h"
#include "status.h"
#include "threads.h"

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

static tc_status cpu_run(int index, tc_dtype compute, tc_kernel_id kernel, const void *args, int64_t items, double cost, size_t scratch,
                         tc_error *err)
{
    (void)index;
    return tc_parallel_for(tc_cpu_kernels(compute)->run[kernel], args, items, cost, scratch, err);
}

static tc_status cpu_synchronize(int index, tc_error *err)
{
    (void)index, (void)err;
    return TC_OK;
}

static const tc_backend cpu_backend = {"cpu", cpu_allocate, cpu_free, cpu_copy, cpu_run, cpu_synchronize};

static const tc_backend *_Atomic backends[TC_DEVICE_TYPE_COUNT] = {[TC_CPU] = &cpu_backend};

void tc_backend_register(tc_device_type type, const tc_backend *backend) { atomic_store(&backends[type], backend); }

tc_status tc_backend_for(const tc_backend **out, tc_device device, tc_error *err)
{
    *out = atomic_load_explicit(&backends[device.type], memory_order_acquire);
    if (!*out)
        return tc_fail(err, TC_ERROR_STATE,
                       "device \"cuda:%d\" is not available: this build of transformer_c has no CUDA library; use device=\"cpu\"",
                       device.index);
    return TC_OK;
}

tc_status tc_run(tc_device device, tc_dtype compute, tc_kernel_id kernel, const void *args, int64_t items, double cost, size_t scratch,
                 tc_error *err)
{
    if (items <= 0) return TC_OK;
    const tc_backend *backend;
    tc_status status = tc_backend_for(&backend, device, err);
    if (status != TC_OK) return status;
    return backend->run(device.index, compute, kernel, args, items, cost, scratch, err);
}
