/* by_lines.h: functions of elements as one loop over whole cache lines, whatever the length, and whichever operands repeat a value: a
 * function has a row's mathematics once. */
#ifndef TC_BY_LINES_H
#define TC_BY_LINES_H

#include <string.h>

#include "../elementwise.h"
#include "ahead.h"
#include "stored.h"
#include "strided.h"

/* Of arrays of n elements, n a multiple of LINE. */
typedef void (*line_function)(tc_stored stored, void *out, const void *const *in, int64_t n);

/* name: the line_function of an inlined one, with `stored` as a constant; unless it is of halves too, they are not passed. */
#define LINES_OF_STORED(of_halves, inlined, name)                                                                                          \
    static void name(tc_stored stored, void *out, const void *const *in, int64_t n)                                                        \
    {                                                                                                                                      \
        if (of_halves) {                                                                                                                   \
            WITH_STORED(stored, inlined, out, in, n);                                                                                      \
        } else {                                                                                                                           \
            inlined(TC_STORED_AS_COMPUTED, out, in, n);                                                                                    \
        }                                                                                                                                  \
    }

/* The vector at element i. */
TC_INLINE vreal load_lanes(const void *p, const tc_stored stored, int64_t i)
{
    return v_load_stored(stored_at(p, stored, i), stored, TC_LANES);
}
TC_INLINE void store_lanes(void *p, const tc_stored stored, int64_t i, vreal x)
{
    v_store_stored(stored_to(p, stored, i), stored, x, TC_LANES);
}

/* A chunk (chunk_function): values that repeat, and what is left of a line, are brought to buffers. Of halves no value repeats. */
static __attribute__((noinline)) void by_lines(line_function lines, int inputs, tc_stored stored, void *out, const void *const *in,
                                               const int *step, int64_t n)
{
    real repeated[TC_ELEMENT_INPUTS][STRIDED_CHUNK] __attribute__((aligned(64)));
    real rest[TC_ELEMENT_INPUTS + 1][64 / sizeof(real)] __attribute__((aligned(64)));
    int64_t most = n / LINE * LINE;
    for (int k = 0; k < inputs; k++) {
        if (step[k]) continue;
        most = STRIDED_CHUNK;
        for (int64_t j = 0; j < most && j < n; j++) repeated[k][j] = *(const real *)in[k];
    }
    for (int64_t i = 0, count; i < n; i += count) {
        const int64_t left = n - i;
        const void *from[TC_ELEMENT_INPUTS];
        count = left < LINE ? left : left < most ? left / LINE * LINE : most;
        for (int k = 0; k < inputs; k++) {
            from[k] = step[k] ? stored_at(in[k], stored, i) : repeated[k];
            if (count >= LINE) continue;
            for (int64_t j = 0; j < LINE; j += TC_LANES) { /* the other lanes have the first value */
                const int lanes = count <= j ? 0 : v_left(count, j);
                const vreal first = v_set1(load_stored(from[k], stored));
                v_store(rest[k] + j, lanes == TC_LANES
                                         ? load_lanes(from[k], stored, j)
                                         : v_select(v_first(lanes), v_load_stored(stored_at(from[k], stored, j), stored, lanes), first));
            }
            from[k] = rest[k];
        }
        void *const to = stored_to(out, stored, i);
        if (count >= LINE) {
            lines(stored, to, from, count);
        } else {
            lines(TC_STORED_AS_COMPUTED, rest[TC_ELEMENT_INPUTS], from, LINE);
            write_stored(to, rest[TC_ELEMENT_INPUTS], stored, count);
        }
    }
}

#endif
