/* triangle.c: rows copied from, or up to, a diagonal. */
#include <string.h>

#include "../kernels.h"
#include "../triangle.h"
#include "simd.h"

TC_INLINE int64_t within(int64_t value, int64_t high) { return value < 0 ? 0 : value > high ? high : value; }

/* The rows of a matrix are whole, then some reach the diagonal, and the last are empty; of a lower triangle the first are empty, the last
 * whole. Neighbouring ones that are whole or empty are copied or cleared together. */
TC_DEFINE_KERNEL(triangle)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_triangle_args *a = args;
    (void)scratch;
    const int64_t bytes = a->N * a->element_bytes, M = a->M;
    const int64_t low = within((a->upper ? 1 : 0) - a->diagonal, M), high = within(a->N - a->diagonal - (a->upper ? 0 : 1), M);
    for (int64_t row = begin, rows, r = begin % M; row < end; row += rows, r = r + rows == M ? 0 : r + rows) {
        char *y = (char *)a->y + row * bytes;
        const char *x = (const char *)a->x + row * bytes;
        rows = 1;
        if (r < low || r >= high) {
            const int64_t left = r < low ? low - r : M - r;
            rows = left < end - row ? left : end - row;
            if ((r < low) == a->upper)
                memcpy(y, x, (size_t)(rows * bytes));
            else
                memset(y, 0, (size_t)(rows * bytes));
            continue;
        }
        const int64_t diagonal = r + a->diagonal;
        const int64_t first = a->upper ? within(diagonal, a->N) : 0, last = a->upper ? a->N : within(diagonal + 1, a->N);
        memset(y, 0, (size_t)(first * a->element_bytes));
        memcpy(y + first * a->element_bytes, x + first * a->element_bytes, (size_t)((last - first) * a->element_bytes));
        memset(y + last * a->element_bytes, 0, (size_t)((a->N - last) * a->element_bytes));
    }
}
