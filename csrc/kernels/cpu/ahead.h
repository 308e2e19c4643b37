/* ahead.h: lines of memory that a loop will come to, asked for in advance.
 *
 * A processor reads ahead by itself, but begins anew in each page, and falls behind where a loop computes much between two loads or goes
 * over a row twice. A loop over vectors asks once for each line, or twice where elements are stored as halves; a sum along a row asks for
 * each vector. Past the end of an array this does nothing.
 *
 * AMD's processors read ahead better alone (docs/performance/elementwise.md): there loops over vectors ask for the line that they are at,
 * which costs little, and sums for nothing. */
#ifndef TC_KERNELS_CPU_AHEAD_H
#define TC_KERNELS_CPU_AHEAD_H

#include "../kernels.h"
#include "simd.h"

#define LINE ((int64_t)(64 / sizeof(real))) /* elements of a cache line: one or more vectors */

/* Elements: a loop over arrays asks for what lies so far ahead. */
TC_INLINE int64_t array_ahead(void) { return (int64_t)(tc_kernel_bytes_ahead / sizeof(real)); }

TC_INLINE void read_ahead(const void *x) { __builtin_prefetch(x); }
TC_INLINE void write_ahead(void *y) { __builtin_prefetch(y, 1); }

/* The vectors of the line that begins at element i. */
#define EACH_OF_LINE(j, i) for (int64_t j = i; j < i + LINE; j += TC_LANES)

/* For rows of C elements that are read twice: the next row, or some rows on where rows are short. */
TC_INLINE int64_t rows_ahead(int64_t C)
{
    const int64_t ahead = array_ahead();
    return ahead && C > ahead ? C : ahead;
}

#define MOST_READ 4
/* What a loop over vectors reads and writes, as far as it is worth asking for: of `bytes` each element, `ahead` elements on. The pointers
 * are those of element 0; NULL: nothing. */
typedef struct vectors_ahead {
    int64_t bytes, ahead;
    const void *reads[MOST_READ];
    void *writes;
} vectors_ahead;

/* Computes `lanes` elements from i on. */
typedef void (*vector_step)(void *loop, int64_t i, int lanes);

/* The step for elements [first, end); the function is a constant of the caller, so it is inlined. */
TC_INLINE void each_vector(vector_step step, void *loop, const vectors_ahead *of, int64_t first, int64_t end)
{
    int64_t i = first;
    for (; i + LINE <= end; i += LINE) {
        const int64_t at = (i + of->ahead) * of->bytes;
        TC_UNROLL
        for (int k = 0; k < MOST_READ; k++)
            if (of->reads[k]) read_ahead((const char *)of->reads[k] + at);
        if (of->writes) write_ahead((char *)of->writes + at);
        EACH_OF_LINE(j, i) step(loop, j, TC_LANES);
    }
    for (; i < end; i += TC_LANES) step(loop, i, v_left(end, i));
}

#endif
