/* backend.c: the choice of a backend. */
#include "backend.h"

#include "cuda.h"

tc_status tc_backend_for(const tc_backend **out, tc_device device, tc_error *err)
{
    if (device.type == TC_CPU) {
        *out = &tc_cpu_backend;
        return TC_OK;
    }
    *out = &tc_cuda_backend;
    return tc_cuda_check(device.index, err);
}

tc_status tc_run(tc_device device, tc_dtype compute, const tc_kernel *kernel, const void *args, int64_t items, double cost, size_t scratch,
                 tc_error *err)
{
    return tc_plan_run(
        &(tc_plan){.device = device, .compute = compute, .kernel = kernel, .splits = 1, .items = items, .cost = cost, .scratch = scratch},
        args, err);
}

tc_status tc_run_interruptible(tc_device device, tc_dtype compute, const tc_kernel *kernel, const void *args, int64_t items, double cost,
                               tc_error *err)
{
    return tc_plan_run(
        &(tc_plan){
            .device = device, .compute = compute, .kernel = kernel, .splits = 1, .items = items, .cost = cost, .interruptible = true},
        args, err);
}
