/* plan.c: see plan.h. */
#include "plan.h"

#include <stdatomic.h>

#include "../kernels/kernel_ids.h"
#include "backend.h"

static _Atomic int float32_precision = TC_FLOAT32_HIGHEST;

void tc_set_float32_precision(tc_float32_precision precision)
{
    atomic_store_explicit(&float32_precision, (int)precision, memory_order_relaxed);
}

tc_float32_precision tc_get_float32_precision(void)
{
    return (tc_float32_precision)atomic_load_explicit(&float32_precision, memory_order_relaxed);
}

tc_status tc_plan_begin(tc_plan *plan, tc_device device, tc_dtype compute, const tc_kernel *kernel, void *args, tc_storage *keep,
                        tc_error *err)
{
    *plan = (tc_plan){
        .device = device, .compute = compute, .kernel = kernel, .keep = keep, .precision = tc_get_float32_precision(), .splits = 1};
    const tc_backend *backend;
    tc_status status = tc_backend_for(&backend, device, err);
    if (status == TC_OK) status = backend->plan(plan, args, err);
    return status == TC_OK && backend->prepare ? backend->prepare(plan, args, err) : status;
}

tc_status tc_plan_run(const tc_plan *plan, const void *args, tc_error *err)
{
    if (plan->items <= 0) return TC_OK;
    const tc_backend *backend;
    const tc_status status = tc_backend_for(&backend, plan->device, err);
    return status == TC_OK ? backend->run(plan, args, err) : status;
}

void tc_plan_end(tc_plan *plan)
{
    if (plan->prepared) plan->prepared->release(plan->prepared);
}

/* ---- what ran last -------------------------------------------------------------------------------------------------------- */

/* Several threads may note a plan at once: for each member any of them may be the last, which does not matter. */
typedef struct note {
    const tc_kernel *_Atomic kernel;
    const char *_Atomic variant;
    _Atomic int64_t splits;
    _Atomic int precision;
} note;
static note notes[TC_DEVICE_TYPE_COUNT][TC_KERNEL_COUNT];

void tc_note_plan(const tc_plan *plan)
{
    note *n = &notes[plan->device.type][plan->kernel->id];
    atomic_store_explicit(&n->variant, plan->variant, memory_order_relaxed);
    atomic_store_explicit(&n->splits, plan->splits, memory_order_relaxed);
    atomic_store_explicit(&n->precision, (int)plan->precision, memory_order_relaxed);
    atomic_store_explicit(&n->kernel, plan->kernel, memory_order_release);
}

int tc_last_plans(tc_last_plan *out, int max, tc_device_type type)
{
    int count = 0;
    for (int id = 0; id < TC_KERNEL_COUNT && count < max; id++) {
        note *n = &notes[type][id];
        const tc_kernel *kernel = atomic_load_explicit(&n->kernel, memory_order_acquire);
        if (!kernel) continue;
        out[count++] = (tc_last_plan){.kernel = kernel->name,
                                      .variant = atomic_load_explicit(&n->variant, memory_order_relaxed),
                                      .splits = atomic_load_explicit(&n->splits, memory_order_relaxed),
                                      .precision = (tc_float32_precision)atomic_load_explicit(&n->precision, memory_order_relaxed)};
    }
    return count;
}
