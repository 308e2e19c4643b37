/* sort_rows_template.h: the order that sorts rows of one type; sort_rows.c includes it for each. Before it are defined: element, the type
 * of the keys; rank_integer, the signed integer as wide; IS_NAN(x); SORT(name), the name of a function for this type. */

/* Does x come before y? NaN is larger than all others. */
static bool SORT(stands_before)(element x, element y, bool descending)
{
    return descending ? x > y || (IS_NAN(x) && !IS_NAN(y)) : x < y || (IS_NAN(y) && !IS_NAN(x));
}

/* ---- a word for each key: its rank, and its place below that ---------------------------------------------------------------- */

/* Ascends with x; equal for 0 and -0, and for all NaN. */
static inline uint64_t SORT(rank_of)(element x)
{
    const rank_integer largest = (rank_integer)(LARGEST_RANK >> 1);
    rank_integer bits;
    x += 0;
    memcpy(&bits, &x, sizeof bits);
    if ((element)0.5 != 0) bits ^= bits >> (RANK_BITS - 1) & largest; /* of floats, all bits but the first are those of the magnitude */
    return ((uint64_t)(IS_NAN(x) ? largest : bits) + ((uint64_t)largest + 1)) & LARGEST_RANK;
}

/* words (n), of keys[indices[i]]; their ranks are at [*low, *high). Returns whether there is room for all bits of the ranks. */
static bool SORT(write_words)(uint64_t *words, const int64_t *indices, const element *keys, int64_t n, bool descending, int *low, int *high)
{
    const uint64_t flip = descending ? LARGEST_RANK : 0;
    const uint64_t first = SORT(rank_of)(keys[indices[0]]) ^ flip;
    uint64_t least = LARGEST_RANK, most = 0, differing = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t rank = SORT(rank_of)(keys[indices[i]]) ^ flip;
        words[i] = rank;
        differing |= rank ^ first;
        least = rank < least ? rank : least;
        most = rank > most ? rank : most;
    }
    const int equal = differing ? __builtin_ctzll(differing) : 0; /* the last bits, in which all ranks agree: as floats that are whole do */
    const int place_bits = bits_of((uint64_t)n - 1), rank_bits = bits_of((most - least) >> equal),
              dropped = rank_bits + place_bits > 64 ? rank_bits + place_bits - 64 : 0;
    for (int64_t i = 0; i < n; i++) words[i] = (words[i] - least) >> (dropped + equal) << place_bits | (uint64_t)i;
    *low = place_bits;
    *high = place_bits + rank_bits - dropped;
    return !dropped;
}

/* ---- ever longer runs, for ranks that differ in bits without room alone ----------------------------------------------------- */

/* Merges two neighbouring sorted runs [0, middle) and [middle, end) of `from` into `to`; equal keys keep their order. */
static void SORT(merge_runs)(int64_t *to, const int64_t *from, int64_t middle, int64_t end, const element *keys, bool descending)
{
    int64_t a = 0, b = middle;
    for (int64_t i = 0; i < end; i++) {
        const bool second = a == middle || (b < end && SORT(stands_before)(keys[from[b]], keys[from[a]], descending));
        to[i] = from[second ? b++ : a++];
    }
}

static void SORT(sort_by_runs)(int64_t *indices, int64_t *spare, const element *keys, int64_t n, bool descending)
{
    int64_t *from = indices, *to = spare;
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            const int64_t end = n - i < 2 * run ? n - i : 2 * run, middle = run < end ? run : end;
            SORT(merge_runs)(to + i, from + i, middle, end, keys, descending);
        }
        int64_t *swap = from;
        from = to, to = swap;
    }
    if (from != indices) memcpy(indices, from, sizeof(int64_t) * (size_t)n);
}

/* ---- rows -------------------------------------------------------------------------------------------------------------------- */

/* Sorts n indices by their keys; equal keys keep their order. spare: room for 2 n. */
static void SORT(sort_indices)(int64_t *indices, int64_t *spare, const element *keys, int64_t n, bool descending)
{
    int low, high;
    uint64_t *const words = (uint64_t *)(spare + n);
    if (n < 2) return;
    const bool whole = SORT(write_words)(words, indices, keys, n, descending, &low, &high);
    tc_sort_words(words, (uint64_t *)spare, n, low, high);
    memcpy(spare, indices, sizeof(int64_t) * (size_t)n);
    for (int64_t i = 0; i < n; i++) indices[i] = spare[words[i] & (((uint64_t)1 << low) - 1)];
    bool sorted = true;
    if (!whole)
        for (int64_t i = 1; i < n && sorted; i++) sorted = !SORT(stands_before)(keys[indices[i]], keys[indices[i - 1]], descending);
    if (sorted) return;
    memcpy(indices, spare, sizeof(int64_t) * (size_t)n);
    SORT(sort_by_runs)(indices, spare, keys, n, descending);
}

/* indices (n), where a row is in order or in the opposite one: otherwise the first elements show that it is not. */
static bool SORT(order_known)(int64_t *indices, const element *keys, int64_t n, bool descending)
{
    const bool opposite = n > 1 && SORT(stands_before)(keys[1], keys[0], descending);
    for (int64_t i = 1; i < n; i++)
        if (SORT(stands_before)(keys[i], keys[i - 1], descending) != opposite) return false;
    for (int64_t i = 0; i < n; i++) indices[i] = opposite ? n - 1 - i : i;
    return true;
}

/* The first of the elements [i, n) that stands before `last`; n where there is none. */
static int64_t SORT(next_before)(element last, const element *keys, int64_t i, int64_t n, bool descending)
{
    if (descending)
        while (i < n && !SORT(stands_before)(keys[i], last, true)) i++;
    else
        while (i < n && !SORT(stands_before)(keys[i], last, false)) i++;
    return i;
}

/* The first K of a row, in order: each element is put where it belongs among those that were found before it. */
static void SORT(few_of_row)(int64_t *indices, const element *keys, int64_t n, int64_t K, bool descending)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (found == K) {
            i = SORT(next_before)(keys[indices[K - 1]], keys, i, n, descending);
            if (i == n) break;
        }
        int64_t at = found < K ? found++ : K - 1;
        for (; at > 0 && SORT(stands_before)(keys[i], keys[indices[at - 1]], descending); at--) indices[at] = indices[at - 1];
        indices[at] = i;
    }
}

/* The same for more of them. `found` begins with the first K so far; elements that stand before the last of these are added behind them,
 * and after each 3 K of those it is sorted, and keeps its first K. It has room for n, as each half of `spare` has. */
static void SORT(first_of_row)(int64_t *found, int64_t *spare, const element *keys, int64_t n, int64_t K, bool descending)
{
    const int64_t most = K < n / MANY_FIRST ? 4 * K : n;
    int64_t count = 0;
    bool full = false;
    element last = 0; /* of the first K, once they are full */
    for (int64_t i = 0; i < n; i++) {
        if (full) i = SORT(next_before)(last, keys, i, n, descending);
        if (i == n) break;
        found[count++] = i;
        if (count < most) continue;
        SORT(sort_indices)(found, spare, keys, count, descending);
        count = K;
        last = keys[found[K - 1]];
        full = true;
    }
    if (!full || count > K) SORT(sort_indices)(found, spare, keys, count, descending);
}

void SORT(tc_argsort_rows)(const tc_argsort_args *a, int64_t begin, int64_t end, int64_t *spare)
{
    for (int64_t n = begin; n < end; n++) {
        const element *keys = (const element *)a->x + n * a->C;
        int64_t *indices = a->indices + n * a->K, *found = spare + 2 * a->C;
        if (a->K == a->C && a->C > FEW) {
            if (SORT(order_known)(indices, keys, a->C, a->descending)) continue;
            for (int64_t i = 0; i < a->C; i++) indices[i] = i;
            SORT(sort_indices)(indices, spare, keys, a->C, a->descending);
        } else if (a->K <= FEW_FIRST) {
            if (a->K) SORT(few_of_row)(indices, keys, a->C, a->K, a->descending);
        } else {
            SORT(first_of_row)(found, spare, keys, a->C, a->K, a->descending);
            memcpy(indices, found, sizeof(int64_t) * (size_t)a->K);
        }
    }
}
