/* by_lines.h: functions of elements as one loop over whole cache lines, whatever the length, and whichever operands repeat a value: a
 * function has a row's mathematics once. */
#ifndef TC_BY_LINES_H
#define TC_BY_LINES_H

#include <string.h>

#include "../elementwise.h"
#include "ahead.h"
#include "strided.h"

/* Of arrays of n elements, n a multiple of LINE. */
typedef void (*line_function)(real *out, const real *const *in, int64_t n);

/* A chunk (chunk_function): values that repeat, and what is left of a line, are brought to buffers. */
static __attribute__((noinline)) void by_lines(line_function lines, int inputs, real *out, const real *const *in, const int *step,
                                               int64_t n)
{
    real repeated[TC_ELEMENT_INPUTS][STRIDED_CHUNK] __attribute__((aligned(64)));
    real rest[TC_ELEMENT_INPUTS + 1][64 / sizeof(real)] __attribute__((aligned(64)));
    int64_t most = n / LINE * LINE;
    for (int k = 0; k < inputs; k++) {
        if (step[k]) continue;
        most = STRIDED_CHUNK;
        for (int64_t j = 0; j < most && j < n; j++) repeated[k][j] = in[k][0];
    }
    for (int64_t i = 0, count; i < n; i += count) {
        const int64_t left = n - i;
        const real *from[TC_ELEMENT_INPUTS];
        count = left < LINE ? left : left < most ? left / LINE * LINE : most;
        for (int k = 0; k < inputs; k++) {
            from[k] = step[k] ? in[k] + i : repeated[k];
            if (count >= LINE) continue;
            for (int64_t j = 0; j < LINE; j += TC_LANES) { /* the other lanes have the first value */
                const int lanes = count <= j ? 0 : v_left(count, j);
                v_store(rest[k] + j, lanes == TC_LANES ? v_load(from[k] + j)
                                                       : v_select(v_first(lanes), v_load_n(from[k] + j, lanes), v_set1(from[k][0])));
            }
            from[k] = rest[k];
        }
        lines(count < LINE ? rest[TC_ELEMENT_INPUTS] : out + i, from, count < LINE ? LINE : count);
        if (count < LINE) memcpy(out + i, rest[TC_ELEMENT_INPUTS], (size_t)count * sizeof(real));
    }
}

#endif
