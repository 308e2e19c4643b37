/* cpu_backend.c: the backend of CPUs. */
#include <string.h>

#include "../kernels/kernel_ids.h"
#include "allocator.h"
#include "backend.h"
#include "cpu.h"
#include "cpu_plan.h"
#include "dtype.h"
#include "status.h"
#include "threads.h"

static tc_status allocate(int index, size_t bytes, void **out, tc_error *err)
{
    (void)index;
    *out = tc_allocate(bytes);
    if (!*out) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: %zu bytes were asked for on the CPU", bytes);
    return TC_OK;
}

static void give_back(int index, void *block, size_t bytes)
{
    (void)index;
    tc_free(block, bytes);
}

#define PAGE 4096
#define CLOSE 64  /* bytes */
#define PIECE 512 /* bytes, few enough for memmove to copy them by vectors, whose speed long copies keep */

/* glibc's memmove copies more than 2 KiB, up to what a cache holds, by one instruction. Where the target is 1 to 15 bytes further into its
 * page than what is read, AMD's processors (Zen 3, Zen 4) take up to 25 times as long for it, and up to twice as long at 16 to 63. */
static bool is_slow_at_once(uintptr_t to, uintptr_t from, size_t bytes)
{
    const uintptr_t further = (to - from) % PAGE;
    return bytes > PIECE && further > 0 && further < CLOSE && to - from >= bytes; /* no piece may write to what the next ones read */
}

static tc_status copy(int index, void *to, bool to_host, const void *from, bool from_host, size_t bytes, tc_error *err)
{
    (void)index, (void)to_host, (void)from_host, (void)err;
    const size_t most = is_slow_at_once((uintptr_t)to, (uintptr_t)from, bytes) ? PIECE : bytes;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < most ? bytes - at : most;
        memmove((char *)to + at, (const char *)from + at, n);
    }
    return TC_OK;
}

/* For the kernels that need a plan. */
static void (*const planners[TC_KERNEL_COUNT])(tc_plan *plan, void *args) = {
    [TC_K_gemm] = tc_cpu_plan_gemm,
    [TC_K_attention_forward] = tc_cpu_plan_attention_forward,
    [TC_K_attention_backward] = tc_cpu_plan_attention_backward,
    [TC_K_attention_dbias] = tc_cpu_plan_attention_dbias,
};

static tc_status plan_call(tc_plan *plan, void *args, tc_error *err)
{
    (void)err;
    TC_ASSERT(planners[plan->kernel->id]); /* other kernels leave nothing to plan: tc_run() */
    planners[plan->kernel->id](plan, args);
    return TC_OK;
}

static tc_status prepare(tc_plan *plan, void *args, tc_error *err)
{
    return plan->kernel->id == TC_K_gemm ? tc_cpu_prepare_gemm(plan, args, err) : TC_OK;
}

static tc_status run(const tc_plan *plan, const void *args, tc_error *err)
{
    if (plan->variant) tc_note_plan(plan);
    return (plan->interruptible ? tc_parallel_for_interruptible : tc_parallel_for)(tc_cpu_kernels(plan->compute)->run[plan->kernel->id],
                                                                                   args, plan->items, plan->cost, plan->scratch, err);
}

static tc_status synchronize(int index, tc_error *err)
{
    (void)index, (void)err;
    return TC_OK;
}

const tc_backend tc_cpu_backend = {.name = "cpu",
                                   .host_memory = true,
                                   .compute_dtype = tc_compute_dtype,
                                   .allocate = allocate,
                                   .free = give_back,
                                   .copy = copy,
                                   .plan = plan_call,
                                   .prepare = prepare,
                                   .run = run,
                                   .synchronize = synchronize};
