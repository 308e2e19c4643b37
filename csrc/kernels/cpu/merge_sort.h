/* merge_sort.h: the order that sorts a row, by merging ever longer runs. Included after `element`, the type of the keys, is defined. */
#ifndef TC_MERGE_SORT_H
#define TC_MERGE_SORT_H

#include <string.h>

#include "../sort.h"

#ifdef STRIDED_INTEGERS
#define IS_NAN(x) false
#else
#define IS_NAN(x) ((x) != (x))
#endif

/* Does x come before y? NaN is larger than all others. */
static bool stands_before(element x, element y, bool descending)
{
    return descending ? x > y || (IS_NAN(x) && !IS_NAN(y)) : x < y || (IS_NAN(y) && !IS_NAN(x));
}

/* Merges two neighbouring sorted runs [0, middle) and [middle, end) of `from` into `to`; equal keys keep their order. */
static void merge_runs(int64_t *to, const int64_t *from, int64_t middle, int64_t end, const element *keys, bool descending)
{
    int64_t a = 0, b = middle;
    for (int64_t i = 0; i < end; i++) {
        const bool second = a == middle || (b < end && stands_before(keys[from[b]], keys[from[a]], descending));
        to[i] = from[second ? b++ : a++];
    }
}

static void argsort_row(int64_t *indices, int64_t *spare, const element *keys, int64_t n, bool descending)
{
    int64_t *from = indices, *to = spare;
    for (int64_t i = 0; i < n; i++) from[i] = i;
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            const int64_t end = n - i < 2 * run ? n - i : 2 * run, middle = run < end ? run : end;
            merge_runs(to + i, from + i, middle, end, keys, descending);
        }
        int64_t *swap = from;
        from = to, to = swap;
    }
    if (from != indices) memcpy(indices, from, sizeof(int64_t) * (size_t)n);
}

static void argsort_rows(const tc_argsort_args *a, int64_t begin, int64_t end, int64_t *spare)
{
    for (int64_t n = begin; n < end; n++) argsort_row(a->indices + n * a->C, spare, (const element *)a->x + n * a->C, a->C, a->descending);
}

#endif
