/* table.c: the CPU kernel table of one precision and instruction set, compiled once for each. */
#include "../kernel_ids.h"
#include "simd.h"

#define TC_KERNEL_ENTRY(name, gpu, args, ...) void TC_KERNEL(name)(const void *a, int64_t begin, int64_t end, void *scratch);
#include "../kernels.def"
#undef TC_KERNEL_ENTRY

extern const tc_kernel_table TC_KERNEL(kernels);
const tc_kernel_table TC_KERNEL(kernels) = {{
#define TC_KERNEL_ENTRY(name, gpu, args, ...) TC_CPU_HAS_##gpu(TC_KERNEL(name)),
#include "../kernels.def"
#undef TC_KERNEL_ENTRY
}};
