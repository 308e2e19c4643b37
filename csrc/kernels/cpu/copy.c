/* copy.c: strided copies with a cast. The work does not depend on the compute dtype, so the float64 table shares the float32
 * table's function. */
#include "../copy.h"

#include "strided.h"

#if TC_PRECISION == 64
#define COPY_F32(isa) TC_PASTE4(tc_copy, _f32_, isa, )
void COPY_F32(TC_ISA)(const void *args, int64_t begin, int64_t end, void *scratch);
TC_DEFINE_KERNEL(copy)(const void *args, int64_t begin, int64_t end, void *scratch) { COPY_F32(TC_ISA)(args, begin, end, scratch); }
#else

TC_DEFINE_KERNEL(copy)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_copy_args *a = args;
    (void)scratch;
    const int64_t first = begin * TC_COPY_BLOCK, last = end * TC_COPY_BLOCK < a->numel ? end * TC_COPY_BLOCK : a->numel;
    const position at = position_of(first, a->ndim, a->shape);
    const strided to = {a->to, a->to_dtype, a->to_strides}, from = {(char *)a->from, a->from_dtype, a->from_strides};
    move_elements(strided_from(to, &at, a->ndim), strided_from(from, &at, a->ndim), &at, last - first, a->ndim, a->shape);
}
#endif
