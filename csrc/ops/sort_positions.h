/* sort_positions.h: the order of many numbers on a GPU, for ops that add up or write what belongs to equal ones. */
#ifndef TC_OPS_SORT_POSITIONS_H
#define TC_OPS_SORT_POSITIONS_H

#include "../core/backend.h"
#include "../kernels/sort.h"

/* Few are compared each with each by one kernel; of more than these a kernel wants the order. CPUs go through them one after the other. */
#define TC_SORT_MANY 2048
static inline bool tc_sorts_first(tc_device device, int64_t n) { return device.type != TC_CPU && n > TC_SORT_MANY; }

/* Also on CPUs.  order (n) = the positions of the n numbers, the smallest first, equal ones in their order. */
TC_CHECKED static inline tc_status tc_sort_positions(int64_t *order, const int64_t *numbers, int64_t n, tc_device device, tc_error *err)
{
    const tc_argsort_args args = {.indices = order, .x = numbers, .N = 1, .C = n, .K = n};
    return tc_run(device, TC_FLOAT32, &tc_kernel_integer_argsort, &args, 1, (double)n, 3 * sizeof(int64_t) * (size_t)n, err);
}

#endif
