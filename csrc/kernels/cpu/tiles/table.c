/* table.c: the kernels of the instruction set that has everything else, but for the products. */
#include "../../kernel_ids.h"
#include "../simd.h"

#define BESIDE(name) TC_PASTE4(tc_, name, _f32_, TC_TILES_BESIDE)
#define OWN_gemm ~, TC_KERNEL(gemm)
#define OWN_gemm_pack ~, TC_KERNEL(gemm_pack)
#define SECOND(first, second, ...) second
#define OWN_OR_BESIDE(...) SECOND(__VA_ARGS__)
#define FUNCTION(name) OWN_OR_BESIDE(OWN_##name, BESIDE(name), ~)

#define TC_KERNEL_ENTRY(name, gpu, args, ...) void FUNCTION(name)(const void *a, int64_t begin, int64_t end, void *scratch);
#include "../../kernels.def"
#undef TC_KERNEL_ENTRY

extern const tc_kernel_table TC_KERNEL(kernels);
const tc_kernel_table TC_KERNEL(kernels) = {{
#define TC_KERNEL_ENTRY(name, gpu, args, ...) TC_CPU_HAS_##gpu(FUNCTION(name)),
#include "../../kernels.def"
#undef TC_KERNEL_ENTRY
}};
