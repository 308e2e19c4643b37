/* table.c: the CPU kernel table of one precision and instruction set, compiled once for each. */
#include "../kernels.h"
#include "simd.h"

extern const tc_kernel_table TC_KERNEL(kernels);
const tc_kernel_table TC_KERNEL(kernels) = {{
#define TC_KERNEL_ENTRY(name) TC_KERNEL(name),
#include "../kernels.def"
#undef TC_KERNEL_ENTRY
}};
