/* plan.h: how a backend computes one call of a kernel that can be computed in several ways (the product, attention).
 *
 *     TC_PLAN(plan);                                                        freed when the block is left
 *     TC_TRY(tc_plan_begin(&plan, device, compute, &tc_kernel_foo, &args, NULL, err));
 *     ... memory for the partial results that the op adds up, whose addresses go into args ...
 *     TC_TRY(tc_plan_run(&plan, &args, err));
 *
 * A plan depends only on shapes, strides and dtype, so that results do not depend on threads.
 */
#ifndef TC_CORE_PLAN_H
#define TC_CORE_PLAN_H

#include "../kernels/kernels.h"
#include "../transformer_c.h"
#include "tensor.h"

/* An operand in the form that a kernel reads best. */
typedef struct tc_prepared {
    void (*release)(struct tc_prepared *prepared); /* drops one reference */
} tc_prepared;

typedef struct tc_plan {
    /* Input of the planner. */
    tc_device device;
    tc_dtype compute; /* of the kernel */
    const tc_kernel *kernel;
    tc_storage *keep;               /* of the weight whose prepared form may be kept for later calls; NULL: none */
    tc_float32_precision precision; /* what float32 products may give up; ignored by kernels that gain nothing by it */
    bool interruptible;             /* nobody sees what is written until the op has succeeded: Ctrl-C may stop it */
    /* Its output, together with members of the args. */
    const char *variant; /* static: the name of the implementation that runs */
    int64_t splits;      /* into how many parts a sum is split, 1: none; the op adds them up, but for attention's gradients on GPUs */
    int64_t items;
    double cost;           /* elementary operations per item */
    size_t scratch;        /* bytes that each participant needs */
    tc_prepared *prepared; /* for this call; NULL: nothing */
} tc_plan;

#define TC_PLAN(plan) __attribute__((cleanup(tc_plan_end))) tc_plan plan = {.prepared = NULL}

/* Asks the backend of `device`: fills in the plan and those members of the args that say how to compute the result, and prepares an operand
 * if the plan asks for it. An error for kernels without a planner. */
TC_CHECKED tc_status tc_plan_begin(tc_plan *plan, tc_device device, tc_dtype compute, const tc_kernel *kernel, void *args, tc_storage *keep,
                                   tc_error *err);
TC_CHECKED tc_status tc_plan_run(const tc_plan *plan, const void *args, tc_error *err);
void tc_plan_end(tc_plan *plan);

/* ---- what ran last, for tests and benchmarks ---------------------------------------------------------------------------- */

typedef struct tc_last_plan {
    const char *kernel, *variant;
    int64_t splits;
    tc_float32_precision precision;
} tc_last_plan;

void tc_note_plan(const tc_plan *plan); /* called by backends after the kernel */
/* For each kernel that has run on a device of this kind with a variant, its last plan; returns their number. */
int tc_last_plans(tc_last_plan *out, int max, tc_device_type type);

#endif
