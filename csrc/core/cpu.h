/* cpu.h: which instruction sets this machine and its operating system allow, and which one is in use. */
#ifndef TC_CORE_CPU_H
#define TC_CORE_CPU_H

#include "../kernels/kernels.h"
#include "../transformer_c.h"

/* Detects the CPU (CPUID, and XGETBV for the operating system's support) and chooses the best instruction set that was built, or the one
 * named by TRANSFORMER_C_ISA; a name that is unknown, not built or unusable on this machine is an error. Called once, by
 * tc_initialize(). */
TC_CHECKED tc_status tc_cpu_initialize(tc_error *err);
const char *tc_cpu_isa(void);                               /* the one in use: "baseline", "avx2", "avx512", "avx512_bf16", "amx", "neon" */
int tc_cpu_isas(const char **names, bool *usable, int max); /* those built into the library; returns their number */
int tc_cpu_parts(void);   /* into how many bfloat16 the one in use may split a float32 for a product; 0: it multiplies no bfloat16 */
bool tc_cpu_is_amd(void); /* whose own prefetching differs */
TC_CHECKED tc_status tc_cpu_select(const char *isa, tc_error *err); /* tests: switch the table (no kernel may be running) */
const tc_kernel_table *tc_cpu_kernels(tc_dtype compute);            /* TC_FLOAT32 or TC_FLOAT64 */

#endif
