/* threads.h: the persistent pool. Workers sleep on a condition variable after a short spin. A fork leaves the child without workers; its
 * pool starts afresh on first use. Several threads may call at once: one gets the pool, the others compute on their own thread, with the
 * same result, because a result never depends on how a range was cut. */
#ifndef TC_CORE_THREADS_H
#define TC_CORE_THREADS_H

#include "../kernels/kernels.h"
#include "../transformer_c.h"

#define TC_MAX_THREADS 1024

/* Reads TRANSFORMER_C_NUM_THREADS (default: the CPUs this process may use); a value that is not a number from 1 to TC_MAX_THREADS is an
 * error. Called by tc_initialize(), or else by the first tc_parallel_for(). A number that was set before stays. */
TC_CHECKED tc_status tc_threads_initialize(tc_error *err);

/* Runs kernel(args, begin, end, scratch) over disjoint ranges that cover [0, items). `cost` is the work of one item
 * in elementary operations (a multiply-add on one element); when items * cost is small the caller does all of it. Each
 * participant gets `scratch_bytes` of its own, aligned to TC_ALIGNMENT, uninitialised. A nested call runs on its caller.
 * On TC_ERROR_MEMORY nothing has run. */
TC_CHECKED tc_status tc_parallel_for(tc_range_kernel kernel, const void *args, int64_t items, double cost, size_t scratch_bytes,
                                     tc_error *err);

/* The same for work that may be given up, because nobody sees what it writes until the call has succeeded: when it is long, the calling
 * thread asks the check of tc_set_interrupt_check() now and then, between ranges. TC_ERROR_CALLBACK when that says to stop. */
TC_CHECKED tc_status tc_parallel_for_interruptible(tc_range_kernel kernel, const void *args, int64_t items, double cost,
                                                   size_t scratch_bytes, tc_error *err);

/* `check` returns true when the call must stop, such as after Ctrl-C. It may run any code, ops of this library as well. NULL: none. */
void tc_set_interrupt_check(bool (*check)(void));

#endif
