/* strided.c: see strided.h. */
#include "strided.h"

#if TC_PRECISION == 32

#include <string.h>

#include "runs.h"

#define ALIKE_BYTES 1024 /* of runs that are alike, which are copied together */
#define LONG_RUN 512     /* bytes of a run from which on a call of memcpy costs little beside it */

#define WORTH_FILLING 8 /* elements of a run below which runs are better walked across */

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

/* A move under way: the next element is at `at` of `shape` and so many elements into both sides. */
typedef struct move {
    strided to, from;
    const int64_t *shape;
    int inner; /* the innermost axis, and of it: */
    int64_t length, to_step, from_step;
    position at;
    int64_t to_offset, from_offset;
    int64_t left;
} move;

TC_INLINE char *target(const move *m) { return (char *)m->to.data + m->to_offset * element_bytes[m->to.dtype]; }
TC_INLINE const char *source(const move *m) { return (const char *)m->from.data + m->from_offset * element_bytes[m->from.dtype]; }

/* So many places along an axis, at most to its end, and for each so many elements as it has inside, are done. */
TC_INLINE void advance(move *m, int axis, int64_t places, int64_t elements)
{
    int64_t *const index = m->at.index;
    index[axis] += places;
    m->to_offset += places * m->to.strides[axis];
    m->from_offset += places * m->from.strides[axis];
    for (; axis > 0 && index[axis] == m->shape[axis]; axis--) {
        index[axis] = 0;
        index[axis - 1]++;
        m->to_offset += m->to.strides[axis - 1] - m->shape[axis] * m->to.strides[axis];
        m->from_offset += m->from.strides[axis - 1] - m->shape[axis] * m->from.strides[axis];
    }
    m->left -= elements;
}

/* How many whole runs of the innermost axis, of the same place along the axes outside the next one, begin here; of at most so many
 * elements. */
TC_INLINE int64_t whole_runs(const move *m, int64_t elements)
{
    if (m->at.index[m->inner] != 0) return 0;
    const int64_t runs = (m->left < elements ? m->left : elements) / m->length;
    const int64_t there = m->shape[m->inner - 1] - m->at.index[m->inner - 1];
    return runs < there ? runs : there;
}

/* Short runs of bytes, one after the other. */
TC_INLINE void move_pieces(move *m, int64_t runs)
{
    const int64_t bytes = element_bytes[m->to.dtype];
    const int64_t to_step = m->to.strides[m->inner - 1] * bytes, from_step = m->from.strides[m->inner - 1] * bytes;
    (m->to.dtype == TC_BOOL ? pieces_of_bools : pieces_of_bytes)(target(m), to_step, source(m), from_step, m->length * bytes, runs);
    advance(m, m->inner - 1, runs, runs * m->length);
}

/* One place of all of them after another. */
TC_INLINE void move_across(move *m, cast_run run, int64_t runs)
{
    const int outer = m->inner - 1;
    const int64_t to_step = m->to_step * element_bytes[m->to.dtype], from_step = m->from_step * element_bytes[m->from.dtype];
    char *const to = target(m);
    const char *const from = source(m);
    for (int64_t k = 0; k < m->length; k++) run(to + k * to_step, m->to.strides[outer], from + k * from_step, m->from.strides[outer], runs);
    advance(m, outer, runs, runs * m->length);
}

/* Short runs, one element after another. */
TC_INLINE void move_singly(move *m, int64_t runs)
{
    const int outer = m->inner - 1, dtype = m->to.dtype;
    const int64_t to_row = m->to.strides[outer], from_row = m->from.strides[outer], step = m->from_step, length = m->length;
    char *const to = target(m);
    const char *const from = source(m);
    if (dtype == TC_BOOL)
        singly_boolean(to, to_row, from, from_row, step, length, runs);
    else if (element_bytes[dtype] == 1)
        singly_uint8_t(to, to_row, from, from_row, step, length, runs);
    else if (element_bytes[dtype] == 2)
        singly_word_2(to, to_row, from, from_row, step, length, runs);
    else if (element_bytes[dtype] == 4)
        singly_word_4(to, to_row, from, from_row, step, length, runs);
    else
        singly_word_8(to, to_row, from, from_row, step, length, runs);
    advance(m, outer, runs, runs * length);
}

/* Along the innermost axis, to its end. */
TC_INLINE void move_along(move *m, cast_run run, bool plain)
{
    const int64_t there = m->length - m->at.index[m->inner], n = there < m->left ? there : m->left;
    char *const to = target(m);
    if (m->from_step == 0 && m->to_step == 1) {
        run(to, 1, source(m), 0, 1);
        repeat_first(to, element_bytes[m->to.dtype], n);
    } else if (plain && m->from_step == -1) {
        move_backwards(to, source(m), n, m->to.dtype);
    } else {
        run(to, m->to_step, source(m), m->from_step, n);
    }
    advance(m, m->inner, n, n);
}

TC_INLINE void fill_runs(char *to, int64_t to_step, const char *values, const int bytes, int64_t runs, int64_t n)
{
    for (int64_t k = 0; k < runs; k++, to += to_step, values += bytes) fill_run(to, values, bytes, n);
}

/* Runs of one value each: all values are cast at once. */
TC_INLINE void move_repeats(move *m, cast_run run, int64_t runs)
{
    word_8 values[STRIDED_CHUNK];
    const int64_t bytes = element_bytes[m->to.dtype], to_step = m->to.strides[m->inner - 1] * bytes, n = m->length * bytes;
    char *const to = target(m), *const from = (char *)values;
    run(values, 1, source(m), m->from.strides[m->inner - 1], runs);
    switch (bytes) {
    case 1: fill_runs(to, to_step, from, 1, runs, n); break;
    case 2: fill_runs(to, to_step, from, 2, runs, n); break;
    case 4: fill_runs(to, to_step, from, 4, runs, n); break;
    default: fill_runs(to, to_step, from, 8, runs, n);
    }
    advance(m, m->inner - 1, runs, runs * m->length);
}

/* Runs that are all alike, at most so many bytes each: the first one is copied to the others. */
TC_INLINE void move_alike(move *m, cast_run run, int64_t runs)
{
    const int64_t bytes = element_bytes[m->to.dtype], to_step = m->to.strides[m->inner - 1] * bytes;
    char *const to = target(m);
    run(to, 1, source(m), m->from_step, m->from_step ? m->length : 1);
    if (!m->from_step) repeat_first(to, (int)bytes, m->length);
    const int64_t most = to_step == m->length * bytes && to_step < ALIKE_BYTES ? ALIKE_BYTES / to_step : 1; /* runs without gaps at once */
    for (int64_t k = 1, more; k < runs; k += more) {
        more = k < most ? k : most;
        if (more > runs - k) more = runs - k;
        if (more > 1)
            memcpy(to + k * to_step, to, (size_t)(more * to_step));
        else
            move_bytes(to + k * to_step, to, m->length * bytes);
    }
    advance(m, m->inner - 1, runs, runs * m->length);
}

/* Runs that move_pieces() moves. */
TC_INLINE bool has_pieces(strided from, int ndim, const int64_t *shape)
{
    return ndim > 1 && from.strides[ndim - 1] == 1 && shape[ndim - 1] * element_bytes[from.dtype] <= LONG_RUN;
}

void move_elements(strided to, strided from, const position *at, int64_t n, int ndim, const int64_t *shape)
{
    const cast_run run = cast_runs[from.dtype][to.dtype];
    if (ndim == 0) {
        run(to.data, 1, from.data, 1, n);
        return;
    }
    const int inner = ndim - 1;
    const int64_t length = shape[inner], to_step = to.strides[inner], from_step = from.strides[inner];
    const bool across = is_across(to, from, inner, shape);
    const bool plain = from.dtype == to.dtype && to_step == 1;
    const bool is_short = inner > 0 && to_step == 1 && length * element_bytes[to.dtype] <= LONG_RUN;
    const bool alike = is_short && from.strides[inner - 1] == 0 && (to.strides[inner - 1] >= length || to.strides[inner - 1] <= -length);
    const bool repeats = inner > 0 && to_step == 1 && from_step == 0 && length >= WORTH_FILLING;
    const bool in_pieces = plain && has_pieces(from, ndim, shape);
    const bool singly = inner > 0 && plain && length <= (from_step == -1 ? STRIDED_SHORT : STRIDED_LONG); /* backwards in vectors */
    move m = {to, from, shape, inner, length, to_step, from_step, *at, 0, 0, n};
    while (m.left > 0) {
        int64_t runs;
        if (alike && (runs = whole_runs(&m, m.left)) > 0)
            move_alike(&m, run, runs);
        else if (repeats && (runs = whole_runs(&m, STRIDED_CHUNK * length)) > 0)
            move_repeats(&m, run, runs);
        else if (in_pieces && (runs = whole_runs(&m, m.left)) > 0)
            move_pieces(&m, runs);
        else if (across && (runs = whole_runs(&m, STRIDED_CHUNK)) > length) /* no more than fit a cache */
            move_across(&m, run, runs);
        else if (singly && (runs = whole_runs(&m, m.left)) > 0)
            move_singly(&m, runs);
        else
            move_along(&m, run, plain);
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
    int64_t strides[TC_ELEMENT_DIMS] = {0};
    const cast_run run = cast_runs[from.dtype][to_dtype];
    from = strided_from(from, at, ndim);
    if (is_one_run(at, n, ndim, shape)) { /* most are */
        run(to, 1, from.data, ndim ? from.strides[ndim - 1] : 0, n);
    } else if (from.dtype != to_dtype && n <= STRIDED_CHUNK && has_pieces(from, ndim, shape)) { /* all are cast at once */
        word_8 values[STRIDED_CHUNK];
        move_elements(dense(values, from.dtype, strides, ndim, shape), from, at, n, ndim, shape);
        run(to, 1, values, 1, n);
    } else {
        move_elements(dense(to, to_dtype, strides, ndim, shape), from, at, n, ndim, shape);
    }
}

void scatter(strided to, void *from, int from_dtype, const position *at, int64_t n, int ndim, const int64_t *shape)
{
    int64_t strides[TC_ELEMENT_DIMS] = {0};
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
