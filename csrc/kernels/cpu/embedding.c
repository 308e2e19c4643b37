/* embedding.c: rows of a table, their gradient, and one-hot rows. */
#include "../embedding.h"
#include "../read_index.h"

#include <string.h>

#include "stored.h"

/* The indices [*first, *last) of the items [begin, end). */
TC_INLINE void group_range(int64_t begin, int64_t end, int64_t n, int64_t *first, int64_t *last)
{
    *first = begin * TC_EMBEDDING_GROUP;
    *last = end * TC_EMBEDDING_GROUP < n ? end * TC_EMBEDDING_GROUP : n;
}

TC_DEFINE_KERNEL(embedding_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_embedding_forward_args *a = args;
    int64_t first, last;
    (void)scratch;
    group_range(begin, end, a->n, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t row = tc_read_index_below(&a->indices[i], a->V);
        if (row != TC_NO_INDEX)
            memcpy((char *)a->y + i * a->row_bytes, (const char *)a->weight + row * a->row_bytes, (size_t)a->row_bytes);
        else
            memset((char *)a->y + i * a->row_bytes, 0, (size_t)a->row_bytes);
    }
}

/* A counting sort: counts each index, finds where it begins, then writes every position to the next free place of its index. Indices that
 * change between the two loops leave places that nothing is written to: those contain 0, which is a position too. */
TC_DEFINE_KERNEL(embedding_order)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_embedding_order_args *a = args;
    (void)begin, (void)end, (void)scratch; /* one item */
    int64_t *start = a->start;
    memset(start, 0, (size_t)(a->V + 1) * sizeof *start);
    for (int64_t i = 0; i < a->n; i++) {
        const int64_t v = tc_read_index_below(&a->indices[i], a->V);
        a->order[i] = 0;
        if (v != TC_NO_INDEX) start[v]++;
    }
    int64_t before = 0;
    for (int64_t v = 0; v <= a->V; v++) { /* start[v] is the end of v here, and decreases to its beginning */
        before += start[v];
        start[v] = before;
    }
    for (int64_t i = a->n - 1; i >= 0; i--) {
        const int64_t v = tc_read_index_below(&a->indices[i], a->V);
        if (v != TC_NO_INDEX && start[v] > 0) a->order[--start[v]] = i;
    }
}

#define ROW_BLOCK 64 /* rows added up before they are added to the total: keeps precision for a row that is used often */

/* out (D) = the sum of the rows of dy at count positions. */
TC_INLINE void sum_row(const tc_stored stored, void *out, const tc_embedding_backward_args *a, const int64_t *positions, int64_t count)
{
    for (int64_t i = 0; i < a->D; i += TC_LANES) {
        const int lanes = v_left(a->D, i);
        vreal total = v_zero();
        for (int64_t block = 0; block < count; block += ROW_BLOCK) {
            const int64_t until = block + ROW_BLOCK < count ? block + ROW_BLOCK : count;
            vreal sum = v_zero();
            for (int64_t r = block; r < until; r++)
                sum = sum + v_load_stored(stored_at(a->dy, stored, positions[r] * a->D + i), stored, lanes);
            total = total + sum;
        }
        v_store_stored(stored_to(out, stored, i), stored, total, lanes);
    }
}

/* Rows between those that have positions are cleared together. */
TC_INLINE void sum_rows(const tc_stored stored, const tc_embedding_backward_args *a, int64_t begin, int64_t end)
{
    int64_t r = begin;
    if (a->rows)
        for (r = 0; r < a->count && a->rows[r] < begin;) r++;
    for (int64_t v = begin, next; v < end; v = next + 1, r++) {
        next = !a->rows ? v : r < a->count && a->rows[r] < end ? a->rows[r] : end;
        if (next > v) memset(stored_to(a->dweight, stored, v * a->D), 0, (size_t)((next - v) * a->D * stored_size(stored)));
        if (next == end) break;
        sum_row(stored, stored_to(a->dweight, stored, next * a->D), a, a->order + a->start[r],
                next == a->padding_idx ? 0 : a->start[r + 1] - a->start[r]);
    }
}

TC_DEFINE_KERNEL(embedding_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_embedding_backward_args *a = args;
    (void)scratch;
    WITH_STORED(a->stored, sum_rows, a, begin, end);
}

TC_DEFINE_KERNEL(one_hot)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_one_hot_args *a = args;
    int64_t first, last;
    (void)scratch;
    group_range(begin, end, a->n, &first, &last);
    memset(a->out + first * a->classes, 0, (size_t)((last - first) * a->classes) * sizeof *a->out);
    for (int64_t i = first; i < last; i++) {
        const int64_t class = tc_read_index_below(&a->indices[i], a->classes);
        if (class != TC_NO_INDEX) a->out[i * a->classes + class] = 1;
    }
}
