/* kernel_ids.h: numbers of the kernels, for the tables of functions. Few files include it, so that a new kernel recompiles only those. */
#ifndef TC_KERNEL_IDS_H
#define TC_KERNEL_IDS_H

#include "kernels.h"

typedef enum tc_kernel_id {
#define TC_KERNEL_ENTRY(name, gpu, args, ...) TC_K_##name,
#include "kernels.def"
#undef TC_KERNEL_ENTRY
    TC_KERNEL_COUNT
} tc_kernel_id;

/* The rows as text, and digests of the headers that core and kernels share and of the kernels' code, which tools/build_cuda.py gives to
 * both sides. A CUDA library with another text was built from other sources than the core. */
#define TC_TEXT_OF(word) #word
#define TC_TEXT(macro) TC_TEXT_OF(macro)
static const char tc_kernel_rows[] =
#define TC_KERNEL_ENTRY(...) #__VA_ARGS__ "\n"
#include "kernels.def"
    TC_TEXT(TC_KERNEL_HEADERS) " " TC_TEXT(TC_KERNEL_CODE);
#undef TC_KERNEL_ENTRY

/* `function` in the table of a CPU, for a row's second word; NULL where only GPUs run it. */
#define TC_CPU_HAS_CPU(function) function
#define TC_CPU_HAS_CUDA(function) function
#define TC_CPU_HAS_CUDA_SCRATCH(function) function
#define TC_CPU_HAS_CUDA_ALONE(function) NULL

struct tc_kernel_table {
    tc_range_kernel run[TC_KERNEL_COUNT];
};

#endif
