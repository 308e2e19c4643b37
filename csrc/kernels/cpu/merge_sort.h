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

/* Sorts n indices by their keys; equal keys keep their order. */
static void sort_indices(int64_t *indices, int64_t *spare, const element *keys, int64_t n, bool descending)
{
    int64_t *from = indices, *to = spare;
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

#define FEW_FIRST 8 /* so many of the first are looked for one by one */

/* The first K of a row, in order: each element is put where it belongs among those that were found before it. */
static void few_of_row(int64_t *indices, const element *keys, int64_t n, int64_t K, bool descending)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (found == K && !stands_before(keys[i], keys[indices[K - 1]], descending)) continue;
        int64_t at = found < K ? found++ : K - 1;
        for (; at > 0 && stands_before(keys[i], keys[indices[at - 1]], descending); at--) indices[at] = indices[at - 1];
        indices[at] = i;
    }
}

/* The same for more of them. `found` begins with the first K so far; elements that stand before the last of these are added behind them,
 * and after each K of those it is sorted, and keeps its first K. Returns `found`, which has room for n, as `spare` has. */
static const int64_t *first_of_row(int64_t *found, int64_t *spare, const element *keys, int64_t n, int64_t K, bool descending)
{
    const int64_t most = K < n / 2 ? 2 * K : n;
    int64_t count = 0;
    bool full = false;
    for (int64_t i = 0; i < n; i++) {
        if (full && !stands_before(keys[i], keys[found[K - 1]], descending)) continue;
        found[count++] = i;
        if (count < most) continue;
        sort_indices(found, spare, keys, count, descending);
        count = K;
        full = true;
    }
    if (!full || count > K) sort_indices(found, spare, keys, count, descending);
    return found;
}

static void argsort_rows(const tc_argsort_args *a, int64_t begin, int64_t end, int64_t *spare)
{
    for (int64_t n = begin; n < end; n++) {
        const element *keys = (const element *)a->x + n * a->C;
        int64_t *indices = a->indices + n * a->K;
        if (a->K == a->C) {
            for (int64_t i = 0; i < a->C; i++) indices[i] = i;
            sort_indices(indices, spare, keys, a->C, a->descending);
        } else if (a->K <= FEW_FIRST) {
            if (a->K) few_of_row(indices, keys, a->C, a->K, a->descending);
        } else {
            memcpy(indices, first_of_row(spare + a->C, spare, keys, a->C, a->K, a->descending), sizeof(int64_t) * (size_t)a->K);
        }
    }
}

#endif
