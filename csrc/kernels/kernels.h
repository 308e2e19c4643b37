/* kernels.h: the seam between ops and kernels.
 *
 * A kernel does arithmetic on a range of its items and nothing else: it never allocates, locks, prints or knows about
 * threads. All kernels have one C type: what they work on is a plain struct of pointers, sizes and strides, declared
 * in kernels/<op>.h with the shapes in comments and used alike by the CPU kernel and the CUDA launcher. A backend is
 * one tc_kernel_table per compute dtype: a function per line of kernels.def. Ops reach them only through tc_run()
 * (core/backend.h), which picks device and dtype.
 */
#ifndef TC_KERNELS_H
#define TC_KERNELS_H

#include "../transformer_c.h"

/* Does items [begin, end) of the work `args` describes. `scratch`: memory of this call alone, of the size the op asked
 * for, aligned to 64 bytes, uninitialised. The result must not depend on how the range is cut. */
typedef void (*tc_range_kernel)(const void *args, int64_t begin, int64_t end, void *scratch);

typedef enum tc_kernel_id {
#define TC_KERNEL_ENTRY(name) TC_K_##name,
#include "kernels.def"
#undef TC_KERNEL_ENTRY
    TC_KERNEL_COUNT
} tc_kernel_id;

typedef struct tc_kernel_table {
    tc_range_kernel run[TC_KERNEL_COUNT];
} tc_kernel_table;

extern const char *const tc_kernel_names[TC_KERNEL_COUNT];

#endif
