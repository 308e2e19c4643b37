/* triangle.c: rows copied from, or up to, a diagonal. */
#include <string.h>

#include "../kernels.h"
#include "../triangle.h"
#include "simd.h"

TC_INLINE int64_t within(int64_t value, int64_t high) { return value < 0 ? 0 : value > high ? high : value; }

TC_DEFINE_KERNEL(triangle)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_triangle_args *a = args;
    (void)scratch;
    for (int64_t row = begin; row < end; row++) {
        const int64_t diagonal = row % a->M + a->diagonal;
        const int64_t first = a->upper ? within(diagonal, a->N) : 0, last = a->upper ? a->N : within(diagonal + 1, a->N);
        char *y = (char *)a->y + row * a->N * a->element_bytes;
        const char *x = (const char *)a->x + row * a->N * a->element_bytes;
        memset(y, 0, (size_t)(first * a->element_bytes));
        memcpy(y + first * a->element_bytes, x + first * a->element_bytes, (size_t)((last - first) * a->element_bytes));
        memset(y + last * a->element_bytes, 0, (size_t)((a->N - last) * a->element_bytes));
    }
}
