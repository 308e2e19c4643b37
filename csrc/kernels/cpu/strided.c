/* strided.c: see strided.h. */
#include "strided.h"

#include <string.h>

#if TC_PRECISION == 32

/* Elements as bits, of any dtype of so many bytes. */
typedef uint16_t __attribute__((may_alias)) word_2;
typedef uint32_t __attribute__((may_alias)) word_4;
typedef uint64_t __attribute__((may_alias)) word_8;

/* to[i] = to[0], i < n. */
static void repeat_first(void *to, int bytes, int64_t n)
{
    uint64_t word = 0;
    memcpy(&word, to, (size_t)bytes);
    switch (bytes) {
    case 1: memset(to, (int)word, (size_t)n); break;
    case 2:
        for (int64_t i = 0; i < n; i++) ((word_2 *)to)[i] = (word_2)word;
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) ((word_4 *)to)[i] = (word_4)word;
        break;
    default:
        for (int64_t i = 0; i < n; i++) ((word_8 *)to)[i] = word;
    }
}

/* Dense runs from their end to their beginning, as flip() reads them. */
#define BACKWARDS(bytes, word, VALUE)                                                                                                      \
    static void backwards_##bytes(void *to_, const void *from_, int64_t n)                                                                 \
    {                                                                                                                                      \
        word *to = to_;                                                                                                                    \
        const word *from = (const word *)from_ - (n - 1);                                                                                  \
        for (int64_t i = 0; i < n; i++) to[i] = (word)VALUE(from[n - 1 - i]);                                                              \
    }
BACKWARDS(1, uint8_t, SAME)
BACKWARDS(2, word_2, SAME)
BACKWARDS(4, word_4, SAME)
BACKWARDS(8, word_8, SAME)
BACKWARDS(boolean, boolean, NOT_ZERO)

static void move_backwards(void *to, const void *from, int64_t n, int dtype)
{
    if (dtype == TC_BOOL)
        backwards_boolean(to, from, n);
    else if (element_bytes[dtype] == 1)
        backwards_1(to, from, n);
    else if (element_bytes[dtype] == 2)
        backwards_2(to, from, n);
    else if (element_bytes[dtype] == 4)
        backwards_4(to, from, n);
    else
        backwards_8(to, from, n);
}

/* memcpy of few bytes, many times. */
TC_INLINE void move_bytes(char *to, const char *from, int64_t n)
{
    for (; n >= 32; n -= 32, to += 32, from += 32) memcpy(to, from, 32);
    if (n >= 16) {
        memcpy(to, from, 16);
        n -= 16, to += 16, from += 16;
    }
    if (n >= 8) {
        memcpy(to, from, 8);
        n -= 8, to += 8, from += 8;
    }
    for (; n > 0; n--) *to++ = *from++;
}

#define LONG_RUN 512 /* bytes of a run from which on a call of memcpy costs little beside it */

/* Runs that are a multiple of 1 KiB apart compete for a few lines of the cache, which would lose them between two turns. */
static bool meet_in_caches(strided array, int axis)
{
    const int64_t stride = array.strides[axis] * element_bytes[array.dtype];
    return stride != 0 && stride % 1024 == 0;
}

/* Has each element along the two innermost axes memory of its own? Where several share it, the last one in C order must stay. */
static bool are_apart(const int64_t *shape, const int64_t *strides)
{
    const int64_t outer = strides[0] < 0 ? -strides[0] : strides[0], inner = strides[1] < 0 ? -strides[1] : strides[1];
    return outer >= shape[1] * inner || inner >= shape[0] * outer;
}

/* Are short runs along the innermost axis worth walking across, one place of all of them after another? */
static bool is_across(strided to, strided from, int inner, const int64_t *shape)
{
    return inner > 0 && shape[inner] < STRIDED_SHORT && are_apart(&shape[inner - 1], &to.strides[inner - 1]) &&
           !meet_in_caches(to, inner - 1) && !meet_in_caches(from, inner - 1);
}

/* How many of them begin at `at`, no more than fit a cache: 0, or more than one is long. */
TC_INLINE int64_t short_runs(const position *at, int64_t n, int inner, const int64_t *shape)
{
    if (at->index[inner] != 0) return 0;
    const int64_t length = shape[inner], left = shape[inner - 1] - at->index[inner - 1];
    int64_t runs = n < STRIDED_CHUNK ? n / length : STRIDED_CHUNK / length;
    if (runs > left) runs = left;
    return runs > length ? runs : 0;
}

/* An element on the way through both sides of a move: where it is along each axis, and how far into both. */
typedef struct place {
    position at;
    int64_t to, from;
} place;

/* Moves n elements along an axis, at most to its end; the axes inside it are at their beginning. */
TC_INLINE void advance(place *p, const int64_t *to_strides, const int64_t *from_strides, int axis, int64_t n, const int64_t *shape)
{
    int64_t *const index = p->at.index;
    index[axis] += n;
    p->to += n * to_strides[axis];
    p->from += n * from_strides[axis];
    for (; axis > 0 && index[axis] == shape[axis]; axis--) {
        index[axis] = 0;
        index[axis - 1]++;
        p->to += to_strides[axis - 1] - shape[axis] * to_strides[axis];
        p->from += from_strides[axis - 1] - shape[axis] * from_strides[axis];
    }
}

void move_elements(strided to, strided from, const position *at, int64_t n, int ndim, const int64_t *shape)
{
    const cast_run run = cast_runs[from.dtype][to.dtype];
    const int inner = ndim - 1, to_bytes = element_bytes[to.dtype], from_bytes = element_bytes[from.dtype];
    if (ndim == 0) {
        run(to.data, 1, from.data, 1, n);
        return;
    }
    const int64_t length = shape[inner], to_step = to.strides[inner], from_step = from.strides[inner];
    const bool across = is_across(to, from, inner, shape);
    const bool plain = from.dtype == to.dtype && to_step == 1;
    const bool in_pieces = plain && from_step == 1 && to.dtype != TC_BOOL && inner > 0 && length * to_bytes <= LONG_RUN;
    place p = {*at, 0, 0};
    while (n > 0) {
        char *const target = (char *)to.data + p.to * to_bytes;
        const char *const source = (const char *)from.data + p.from * from_bytes;
        if (in_pieces && p.at.index[inner] == 0 && n >= length) {
            int64_t pieces = shape[inner - 1] - p.at.index[inner - 1];
            if (pieces > n / length) pieces = n / length;
            for (int64_t k = 0; k < pieces; k++)
                move_bytes(target + k * to.strides[inner - 1] * to_bytes, source + k * from.strides[inner - 1] * to_bytes,
                           length * to_bytes);
            advance(&p, to.strides, from.strides, inner - 1, pieces, shape);
            n -= pieces * length;
            continue;
        }
        const int64_t runs = across ? short_runs(&p.at, n, inner, shape) : 0;
        if (runs) {
            for (int64_t k = 0; k < length; k++)
                run(target + k * to_step * to_bytes, to.strides[inner - 1], source + k * from_step * from_bytes, from.strides[inner - 1],
                    runs);
            advance(&p, to.strides, from.strides, inner - 1, runs, shape);
            n -= runs * length;
            continue;
        }
        const int64_t left = length - p.at.index[inner], count = left < n ? left : n;
        if (from_step == 0 && to_step == 1) {
            run(target, 1, source, 0, 1);
            repeat_first(target, to_bytes, count);
        } else if (plain && from_step == -1) {
            move_backwards(target, source, count, to.dtype);
        } else {
            run(target, to_step, source, from_step, count);
        }
        advance(&p, to.strides, from.strides, inner, count, shape);
        n -= count;
    }
}

/* A buffer of n elements from `at` on. */
TC_INLINE strided dense(void *data, int dtype, int64_t *strides, int ndim, const int64_t *shape)
{
    int64_t step = 1;
    for (int axis = ndim - 1; axis >= 0; axis--) {
        strides[axis] = step;
        step *= shape[axis];
    }
    return (strided){data, dtype, strides};
}

TC_INLINE bool is_one_run(const position *at, int64_t n, int ndim, const int64_t *shape)
{
    return ndim == 0 || n <= shape[ndim - 1] - at->index[ndim - 1];
}

void gather(void *to, int to_dtype, strided from, const position *at, int64_t n, int ndim, const int64_t *shape)
{
    int64_t strides[TC_ELEMENT_DIMS];
    from = strided_from(from, at, ndim);
    if (is_one_run(at, n, ndim, shape)) /* most are */
        cast_runs[from.dtype][to_dtype](to, 1, from.data, ndim ? from.strides[ndim - 1] : 0, n);
    else
        move_elements(dense(to, to_dtype, strides, ndim, shape), from, at, n, ndim, shape);
}

void scatter(strided to, void *from, int from_dtype, const position *at, int64_t n, int ndim, const int64_t *shape)
{
    int64_t strides[TC_ELEMENT_DIMS];
    to = strided_from(to, at, ndim);
    if (is_one_run(at, n, ndim, shape))
        cast_runs[from_dtype][to.dtype](to.data, ndim ? to.strides[ndim - 1] : 0, from, 1, n);
    else
        move_elements(to, dense(from, from_dtype, strides, ndim, shape), at, n, ndim, shape);
}

void repeat_row(void *to, int to_dtype, strided from, int64_t length, int64_t n)
{
    const int bytes = element_bytes[to_dtype];
    cast_runs[from.dtype][to_dtype](to, 1, from.data, from.strides[1], length);
    if (n > STRIDED_CHUNK) n = STRIDED_CHUNK;
    for (int64_t done = length, more; done < n; done += more) { /* twice as many each time */
        more = done < n - done ? done : n - done;
        memcpy((char *)to + done * bytes, to, (size_t)(more * bytes));
    }
}

/* n elements: `left` times the first value, then each of the next ones `length` times. */
#define SPREAD(word)                                                                                                                       \
    static void spread_##word(word *to, const word *value, int64_t left, int64_t n, int64_t length)                                        \
    {                                                                                                                                      \
        for (; n > 0; left = length, value++) {                                                                                            \
            const int64_t count = left < n ? left : n;                                                                                     \
            for (int64_t i = 0; i < count; i++) to[i] = *value;                                                                            \
            to += count;                                                                                                                   \
            n -= count;                                                                                                                    \
        }                                                                                                                                  \
    }
SPREAD(word_4)
SPREAD(word_8)

void spread_column(void *to, int to_dtype, strided from, const position *at, int64_t n, int64_t length)
{
    word_8 values[STRIDED_CHUNK];
    const char *column = (const char *)from.data + at->index[0] * from.strides[0] * element_bytes[from.dtype];
    const int64_t left = length - at->index[1];
    cast_runs[from.dtype][to_dtype](values, 1, column, from.strides[0], (at->index[1] + n + length - 1) / length);
    if (element_bytes[to_dtype] == 4)
        spread_word_4(to, (const word_4 *)values, left, n, length);
    else
        spread_word_8(to, values, left, n, length);
}
#endif
