/* dropout.c: y = keep ? x / (1 - p) : 0 (Srivastava et al. 2014, scaled in training). The mask is recomputed, never stored. */
#include "ahead.h"
#include "dropout.h"
#include "philox.h"

/* The lines of a group some groups ahead. */
TC_INLINE void prefetch_group(const real *x, real *y)
{
    const int64_t ahead = array_ahead();
    TC_UNROLL
    for (int64_t i = 0; i < TC_PHILOX_GROUP; i += LINE) {
        read_ahead(x + i + ahead);
        write_ahead(y + i + ahead);
    }
}

/* `lanes` elements, of which those are kept whose words say so. */
TC_INLINE void drop_some(real *y, const real *x, vreal scale, const uint32_t *words, uint32_t threshold, int lanes)
{
    v_store_some(y, v_select(v_keep(words, threshold), v_load_some(x, lanes) * scale, v_zero()), lanes);
}

void TC_KERNEL(drop)(const tc_mask *mask, real *y, const real *x, int64_t begin, int64_t end)
{
    const bool none = mask->p == 1.0; /* no 32-bit threshold can express it */
    const vreal scale = v_set1((real)tc_keep_scale(mask->p));
    const uint32_t threshold = tc_keep_threshold(mask->p);
    const philox_call call = philox_begin(mask->seed, mask->call);
    uint32_t words[TC_PHILOX_GROUP + TC_LANES]; /* a vector may begin anywhere in the group */
    for (int i = 0; i < TC_LANES; i++) words[TC_PHILOX_GROUP + i] = 0;
    while (begin < end) {
        const int64_t row = mask->places.row, in_row = row - begin % row, here = end - begin < in_row ? end - begin : in_row;
        const int64_t first = tc_place(&mask->places, begin), last = first + here; /* in the whole batch */
        for (int64_t at = first; at < last;) {
            const int64_t skip = at % TC_PHILOX_GROUP, left = last - at;
            const int64_t n = TC_PHILOX_GROUP - skip < left ? TC_PHILOX_GROUP - skip : left;
            prefetch_group(x, y);
            if (none)
                __builtin_memset(words, 0, sizeof words); /* below the threshold */
            else
                philox_group(words, &call, (uint64_t)(at / TC_PHILOX_GROUP));
            if (n == TC_PHILOX_GROUP) {
                TC_UNROLL
                for (int i = 0; i < TC_PHILOX_GROUP; i += TC_LANES) drop_some(y + i, x + i, scale, words + i, threshold, TC_LANES);
            } else
                for (int64_t i = 0; i < n; i += TC_LANES) drop_some(y + i, x + i, scale, words + skip + i, threshold, v_left(n, i));
            at += n;
            y += n;
            x += n;
        }
        begin += here;
    }
}

TC_DEFINE_KERNEL(dropout_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_dropout_forward_args *a = args;
    const tc_places *places = &a->mask.places;
    const int64_t groups = tc_dropout_groups(a), length = places->row;
    (void)scratch;
    for (int64_t item = begin; item < end;) {
        const int64_t row = item / groups, group = item % groups, stop = group + end - item < groups ? group + end - item : groups;
        const int64_t first = (places->first + row * places->step) * length; /* of the row, in the whole batch */
        const int64_t from = (first / TC_PHILOX_GROUP + group) * TC_PHILOX_GROUP, to = (first / TC_PHILOX_GROUP + stop) * TC_PHILOX_GROUP;
        const int64_t at = from > first ? from - first : 0, last = to < first + length ? to - first : length; /* in the row */
        const int64_t i = row * length + at;
        TC_KERNEL(drop)(&a->mask, (real *)a->y + i, (const real *)a->x + i, i, row * length + last);
        item += stop - group;
    }
}
