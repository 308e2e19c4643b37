/* backend.h: the functions that each kind of device provides. The CPU's are in cpu_backend.c; the GPU's, in cuda.c, use a library that is
 * opened on first use. This table and kernels/kernels.def are the whole interface: nothing above it asks what a device is. */
#ifndef TC_CORE_BACKEND_H
#define TC_CORE_BACKEND_H

#include <stdatomic.h>

#include "../kernels/divide_up.h"
#include "../kernels/kernels.h"
#include "../transformer_c.h"
#include "index_check.h"
#include "plan.h"

typedef struct tc_backend {
    const char *name;
    bool host_memory; /* the host may read and write its memory in place */
    /* The dtype that kernels read and write for tensors of a floating dtype: CPUs compute halves as float32, with casts before and after;
     * GPUs use halves as they are. Means, sums and partial sums are float32 in either case, float64 for float64. */
    tc_dtype (*compute_dtype)(tc_dtype storage);
    /* Memory of the device, aligned to TC_ALIGNMENT, from a cache. */
    TC_CHECKED tc_status (*allocate)(int index, size_t bytes, void **out, tc_error *err);
    void (*free)(int index, void *block, size_t bytes);
    /* Tells whose version writes to the memory raise, or NULL: the backend raises none. */
    void (*own)(int index, void *block, struct tc_storage *owner);
    /* Bytes between this device and the host or itself; `to_host`, `from_host` say which side is host memory. */
    TC_CHECKED tc_status (*copy)(int index, void *to, bool to_host, const void *from, bool from_host, size_t bytes, tc_error *err);
    /* Chooses how plan->kernel computes `args` (plan.h). */
    TC_CHECKED tc_status (*plan)(tc_plan *plan, void *args, tc_error *err);
    /* Prepares an operand as planned and points the args to plan->prepared; NULL: kernels of this backend read all operands as they are. */
    TC_CHECKED tc_status (*prepare)(tc_plan *plan, void *args, tc_error *err);
    /* Runs plan->kernel over its items, and notes the plan if it has a variant. */
    TC_CHECKED tc_status (*run)(const tc_plan *plan, const void *args, tc_error *err);
    TC_CHECKED tc_status (*synchronize)(int index, tc_error *err);
    /* The shared memory that a block of threads may ask for. NULL: kernels of this backend have no blocks of threads. */
    int (*block_shared_bytes)(int index);
    /* Without host memory: the alarm and the ticket of a check of indices (kernels/check_index.h). When the kernel has raised it, a later
     * copy to the host or synchronize() fails with the check's error. NULL: the caller reads an alarm of its own. */
    TC_CHECKED tc_status (*check_later)(int index, const tc_index_check *check, int64_t **alarm, int64_t *ticket, tc_error *err);
} tc_backend;

/* The backend of a device; TC_ERROR_STATE with the reason when there is none. */
TC_CHECKED tc_status tc_backend_for(const tc_backend **out, tc_device device, tc_error *err);

/* Runs a kernel that needs no plan on `device`. `cost`: elementary operations per item; `scratch`: bytes that each participant needs. */
TC_CHECKED tc_status tc_run(tc_device device, tc_dtype compute, const tc_kernel *kernel, const void *args, int64_t items, double cost,
                            size_t scratch, tc_error *err);

/* The same, for a kernel that writes only what nobody sees until the op has succeeded: Ctrl-C may stop it (threads.h). */
TC_CHECKED tc_status tc_run_interruptible(tc_device device, tc_dtype compute, const tc_kernel *kernel, const void *args, int64_t items,
                                          double cost, tc_error *err);

extern const tc_backend tc_cpu_backend;

#endif
