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

/* Where halves are converted by instructions, functions of them may be one loop (halves.h). Two vectors of bfloat16 are as easily the lower
 * and the upper halves of words as one after the other, and together take less moving and one test for NaN. */
#ifdef V_CONVERTS_HALVES
#define CONVERTS_HALVES true
#else
#define CONVERTS_HALVES false
#endif
typedef enum line_part { PART_VECTOR, PART_LOWER, PART_UPPER } line_part;

/* The vector at element i, or every other element of the two there. */
TC_INLINE vreal load_part(const void *p, const tc_stored stored, int64_t i, const line_part part)
{
#ifdef V_CONVERTS_HALVES
    const vreal words = part == PART_VECTOR ? v_zero() : v_load(stored_at(p, stored, i));
    if (part != PART_VECTOR) return part == PART_LOWER ? v_lower_bfloat16(words) : v_upper_bfloat16(words);
#endif
    (void)part;
    return v_load_stored(stored_at(p, stored, i), stored, TC_LANES);
}

TC_INLINE void store_lanes(void *p, const tc_stored stored, int64_t i, vreal x)
{
    v_store_stored(stored_to(p, stored, i), stored, x, TC_LANES);
}

TC_INLINE void store_words(void *p, vreal lower, vreal upper)
{
#ifdef V_CONVERTS_HALVES
    v_store(p, v_round_words(lower, upper));
#else
    (void)p, (void)lower, (void)upper;
#endif
}

/* How many of the next elements are computed together: a line, or two vectors of bfloat16 where there are so many. */
TC_INLINE int64_t next_line(const tc_stored stored, int64_t left)
{
    const bool words = CONVERTS_HALVES && stored == TC_STORED_BFLOAT16;
    return words && (2 * TC_LANES <= LINE || left >= 2 * TC_LANES) ? 2 * TC_LANES : LINE;
}

/* So many results from element i on: VALUE is of what load_part(p, stored, j, part) reads. */
#define STORE_LINE(out, stored, i, line, VALUE)                                                                                            \
    do {                                                                                                                                   \
        if (CONVERTS_HALVES && stored == TC_STORED_BFLOAT16 && line == 2 * TC_LANES) {                                                     \
            const int64_t j = i;                                                                                                           \
            line_part part = PART_LOWER;                                                                                                   \
            const vreal lower = VALUE;                                                                                                     \
            part = PART_UPPER;                                                                                                             \
            store_words(stored_to(out, stored, j), lower, VALUE);                                                                          \
        } else {                                                                                                                           \
            const line_part part = PART_VECTOR;                                                                                            \
            EACH_OF_LINE(j, i) store_lanes(out, stored, j, VALUE);                                                                         \
        }                                                                                                                                  \
    } while (0)

#define REPEATED 256 /* times that a value stands in a buffer: it is filled for each chunk */

/* A chunk (chunk_function): values that repeat, and what is left of a line, are brought to buffers. Of halves no value repeats. */
static __attribute__((noinline)) void by_lines(line_function lines, int inputs, tc_stored stored, void *out, const void *const *in,
                                               const int *step, int64_t n)
{
    real repeated[TC_ELEMENT_INPUTS][REPEATED] __attribute__((aligned(64)));
    real rest[TC_ELEMENT_INPUTS + 1][64 / sizeof(real)] __attribute__((aligned(64)));
    int64_t most = n / LINE * LINE;
    for (int k = 0; k < inputs; k++) {
        if (step[k]) continue;
        most = REPEATED;
        const vreal value = v_set1(*(const real *)in[k]);
        for (int64_t j = 0; j < most && j < n; j += TC_LANES) v_store(repeated[k] + j, value);
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
                                         ? load_part(from[k], stored, j, PART_VECTOR)
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
