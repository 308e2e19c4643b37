/* dropout.c: y = keep ? x / (1 - p) : 0 (Srivastava et al. 2014, scaled in training). The mask is recomputed, never stored. */
#include "../dropout.h"
#include "philox.h"

/* A group takes so long that the processor's own prefetching falls behind: prefetch the lines of a group some groups ahead. Past the end
 * this does nothing. */
TC_INLINE void prefetch_group(const char *x, const char *y)
{
    const int64_t ahead = 1024; /* bytes */
    TC_UNROLL
    for (int64_t line = 0; line < TC_PHILOX_GROUP * (int64_t)sizeof(real); line += 64) {
        __builtin_prefetch(x + ahead + line, 0);
        __builtin_prefetch(y + ahead + line, 1);
    }
}

TC_DEFINE_KERNEL(dropout_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_dropout_forward_args *a = args;
    const bool none = a->p == 1.0; /* no 32-bit threshold can express it */
    const vreal scale = v_set1((real)tc_keep_scale(a->p));
    const uint32_t threshold = tc_keep_threshold(a->p);
    (void)scratch;
    const int64_t groups = tc_dropout_groups(a), length = a->places.row;
    uint32_t words[2 * TC_PHILOX_GROUP] = {0}; /* a vector may begin anywhere in the first half */
    int64_t row = begin / groups, group = begin % groups;
    for (int64_t item = begin; item < end; item++) {
        const int64_t first = (a->places.first + row * a->places.step) * length; /* of the row, in the whole batch */
        const int64_t at = first / TC_PHILOX_GROUP + group, from = at * TC_PHILOX_GROUP;
        const int64_t skip = from < first ? first - from : 0, left = first + length - from;
        const int64_t n = (left < TC_PHILOX_GROUP ? left : TC_PHILOX_GROUP) - skip;
        const real *x = (const real *)a->x + row * length + from + skip - first;
        real *y = (real *)a->y + row * length + from + skip - first;
        if (++group == groups) {
            group = 0;
            row++;
        }
        if (n <= 0) continue;
        prefetch_group((const char *)x, (const char *)y);
        philox_group(words, a->seed, a->call, (uint64_t)at);
        for (int64_t i = 0; i < n; i += TC_LANES) {
            const int lanes = v_left(n, i);
            const vmask keep = none ? v_first(0) : v_keep(words + skip + i, threshold);
            v_store_some(y + i, v_select(keep, v_load_some(x + i, lanes) * scale, v_zero()), lanes);
        }
    }
}
