/* write_where.c: see write_where.h. Of a stretch of elements those where the mask is set are found first and then written: no element is
 * guessed, whatever the mask. */
#include "write_where.h"

#include <string.h>

#include "../kernels/divide_up.h"
#include "../kernels/position.h"
#include "layout.h"
#include "threads.h"

#define ITEM 4096
#define STRETCH 512 /* elements along the innermost axis that are looked at before those among them are written */

typedef struct job {
    void *x;
    const uint8_t *mask;
    uint64_t number; /* its bytes come first */
    size_t bytes;
    int ndim;
    int64_t numel, shape[TC_MAX_DIMS], x_strides[TC_MAX_DIMS], mask_strides[TC_MAX_DIMS];
} job;

/* found[0 .. result - 1]: which of n bytes are not 0; all of them need no list. */
static int64_t find(uint16_t *found, const uint8_t *mask, int64_t step, int64_t n)
{
    int64_t count = 0, k = 0;
    if (step == 0) return *mask ? n : 0;
    for (uint64_t eight; step == 1 && k + 8 <= n; k += 8) {
        memcpy(&eight, mask + k, sizeof eight);
        if (eight == 0) continue;
        for (int i = 0; i < 8; i++) {
            found[count] = (uint16_t)(k + i);
            count += mask[k + i] != 0;
        }
    }
    for (; k < n; k++) {
        found[count] = (uint16_t)k;
        count += mask[k * step] != 0;
    }
    return count;
}

#define WRITE(TYPE)                                                                                                                        \
    do {                                                                                                                                   \
        TYPE value, *const to = (TYPE *)j->x + offset;                                                                                     \
        memcpy(&value, &j->number, sizeof value);                                                                                          \
        for (int64_t k = 0; k < n && count == n; k++) to[k * step] = value;                                                                \
        for (int64_t k = 0; k < count && count < n; k++) to[found[k] * step] = value;                                                      \
    } while (0)

/* The `count` elements found among n. */
static void write_found(const job *j, int64_t offset, int64_t step, const uint16_t *found, int64_t count, int64_t n)
{
    switch (j->bytes) {
    case 1: WRITE(uint8_t); break;
    case 2: WRITE(uint16_t); break;
    case 4: WRITE(uint32_t); break;
    default: WRITE(uint64_t); break;
    }
}

static void write_items(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const job *j = args;
    uint16_t found[STRETCH];
    (void)scratch;
    const int inner = j->ndim - 1;
    const int64_t last = end * ITEM < j->numel ? end * ITEM : j->numel;
    position at = position_of(begin * ITEM, j->ndim, j->shape);
    for (int64_t i = begin * ITEM, n; i < last; i += n) {
        n = j->shape[inner] - at.index[inner];
        if (n > last - i) n = last - i;
        if (n > STRETCH) n = STRETCH;
        const uint8_t *mask = j->mask + position_offset(&at, j->ndim, j->mask_strides);
        const int64_t count = find(found, mask, j->mask_strides[inner], n);
        write_found(j, position_offset(&at, j->ndim, j->x_strides), j->x_strides[inner], found, count, n);
        position_advance(&at, n, j->ndim, j->shape);
    }
}

tc_status tc_write_where(tc_tensor *x, const tc_tensor *mask, const tc_tensor *number, tc_error *err)
{
    job j = {.x = x->data, .mask = (const uint8_t *)mask->data, .bytes = tc_dtype_size(x->dtype), .numel = x->numel};
    int64_t *const strides[2] = {j.x_strides, j.mask_strides};
    if (x->numel == 0) return TC_OK;
    memcpy(&j.number, number->data, j.bytes);
    memcpy(j.shape, x->shape, sizeof(int64_t) * (size_t)x->ndim);
    memcpy(j.x_strides, x->strides, sizeof(int64_t) * (size_t)x->ndim);
    memcpy(j.mask_strides, mask->strides, sizeof(int64_t) * (size_t)x->ndim);
    j.ndim = tc_layout_merge(x->ndim, j.shape, 2, strides, true);
    if (j.ndim == 0) j.shape[j.ndim++] = 1; /* one element; its strides do not matter */
    return tc_parallel_for(write_items, &j, tc_divide_up(x->numel, ITEM), ITEM, 0, err);
}
