/* index.c: gathering elements from scattered positions, and writing or adding them there. */
#include <string.h>

#include "../index.h"
#include "../kernels.h"
#include "simd.h"

/* A stretch of the window along its innermost axis: where it begins on both sides, and how long it is. */
typedef struct stretch {
    int64_t base, selection, length;
} stretch;

/* The stretch that begins with element r of the window, counted in C order, and ends before element `end`. */
TC_INLINE stretch stretch_at(const tc_index_args *a, int64_t r, int64_t end)
{
    const int inner = a->ndim - 1;
    stretch s = {0, 0, 1};
    if (inner < 0) return s;
    const int64_t left = a->shape[inner] - r % a->shape[inner];
    s.length = left < end - r ? left : end - r;
    for (int axis = inner; axis > 0; axis--) {
        const int64_t at = r % a->shape[axis];
        r /= a->shape[axis];
        s.base += at * a->base_strides[axis];
        s.selection += at * a->selection_strides[axis];
    }
    s.base += r * a->base_strides[0];
    s.selection += r * a->selection_strides[0];
    return s;
}

#define MANY_POINTS 8

/* The same for a write at every point: of elements that are not neighbours in the base one alone, if there are enough points for it. */
TC_INLINE stretch stretch_of_points(const tc_index_args *a, int64_t r, int64_t end)
{
    const bool alone = a->points >= MANY_POINTS && (a->ndim == 0 || a->base_strides[a->ndim - 1] != 1);
    return stretch_at(a, r, alone ? r + 1 : end);
}

#if TC_PRECISION == 64 /* moving elements does not depend on the compute dtype */
#define INDEX_F32(name, isa) TC_PASTE4(tc_##name, _f32_, isa, )
void INDEX_F32(index_gather, TC_ISA)(const void *args, int64_t begin, int64_t end, void *scratch);
void INDEX_F32(index_points, TC_ISA)(const void *args, int64_t begin, int64_t end, void *scratch);
void INDEX_F32(index_put, TC_ISA)(const void *args, int64_t begin, int64_t end, void *scratch);
TC_DEFINE_KERNEL(index_gather)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    INDEX_F32(index_gather, TC_ISA)(args, begin, end, scratch);
}
TC_DEFINE_KERNEL(index_points)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    INDEX_F32(index_points, TC_ISA)(args, begin, end, scratch);
}
TC_DEFINE_KERNEL(index_put)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    INDEX_F32(index_put, TC_ISA)(args, begin, end, scratch);
}
#else

/* to[i * to_step] = from[i * from_step], i < n */
#define MOVE(TYPE)                                                                                                                         \
    do {                                                                                                                                   \
        TYPE *t = to;                                                                                                                      \
        const TYPE *f = from;                                                                                                              \
        if (to_step == 1 && from_step == 0) {                                                                                              \
            const TYPE value = *f;                                                                                                         \
            for (int64_t i = 0; i < n; i++) t[i] = value;                                                                                  \
        } else {                                                                                                                           \
            for (int64_t i = 0; i < n; i++) t[i * to_step] = f[i * from_step];                                                             \
        }                                                                                                                                  \
    } while (0)
TC_INLINE void move(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t n, int bytes)
{
    if (to_step == 1 && from_step == 1 && n > 1) {
        memcpy(to, from, (size_t)n * (size_t)bytes);
        return;
    }
    switch (bytes) {
    case 1: MOVE(uint8_t); break;
    case 2: MOVE(uint16_t); break;
    case 4: MOVE(uint32_t); break;
    default: MOVE(uint64_t); break;
    }
}

/* One element at each of n points, again and again `step` further on: to[k * n + i] = base[k * step + offsets[i]]. */
#define GATHER_ELEMENTS(TYPE)                                                                                                              \
    do {                                                                                                                                   \
        TYPE *t = to;                                                                                                                      \
        const TYPE *f = base;                                                                                                              \
        for (int64_t k = 0; k < times; k++, t += n, f += step) {                                                                           \
            if (joint >= 0) {                                                                                                              \
                TC_UNROLL_BY(4)                                                                                                            \
                for (int64_t i = 0; i < n; i++) t[i] = f[offsets[i]];                                                                      \
            } else {                                                                                                                       \
                for (int64_t i = 0; i < n; i++) t[i] = offsets[i] == TC_INDEX_NOWHERE ? 0 : f[offsets[i]];                                 \
            }                                                                                                                              \
        }                                                                                                                                  \
    } while (0)
static __attribute__((noinline)) void gather_elements(void *to, const void *base, const int64_t *offsets, int64_t n, int bytes,
                                                      int64_t times, int64_t step)
{
    int64_t joint = 0; /* negative where one of them is */
    for (int64_t i = 0; i < n; i++) joint |= offsets[i];
    switch (bytes) {
    case 1: GATHER_ELEMENTS(uint8_t); break;
    case 2: GATHER_ELEMENTS(uint16_t); break;
    case 4: GATHER_ELEMENTS(uint32_t); break;
    default: GATHER_ELEMENTS(uint64_t); break;
    }
}

/* Rows of `width` elements that lie side by side, one for each of n points. Of the usual sizes without a call for each. */
#define GATHER_ROWS(size)                                                                                                                  \
    for (int64_t i = 0; i < n; i++, to += (size)) {                                                                                        \
        if (offsets[i] == TC_INDEX_NOWHERE)                                                                                                \
            memset(to, 0, (size_t)(size));                                                                                                 \
        else                                                                                                                               \
            memcpy(to, base + offsets[i] * bytes, (size_t)(size));                                                                         \
    }
static __attribute__((noinline)) void gather_rows(char *to, const char *base, const int64_t *offsets, int64_t n, int64_t width, int bytes)
{
    switch (width * bytes) {
    case 4: GATHER_ROWS(4) break;
    case 6: GATHER_ROWS(6) break;
    case 8: GATHER_ROWS(8) break;
    case 12: GATHER_ROWS(12) break;
    case 16: GATHER_ROWS(16) break;
    case 24: GATHER_ROWS(24) break;
    case 32: GATHER_ROWS(32) break;
    case 64: GATHER_ROWS(64) break;
    default: GATHER_ROWS(width * bytes)
    }
}

/* n elements of the window, from element r of it on, at one point. */
TC_INLINE void gather_window(const tc_index_args *a, char *to, int64_t offset, int64_t r, int64_t n)
{
    static const uint64_t zero = 0;
    const int bytes = a->element_bytes, inner = a->ndim - 1;
    if (offset == TC_INDEX_NOWHERE) {
        move(to, 1, &zero, 0, n, bytes);
        return;
    }
    const char *const base = (const char *)a->base + offset * bytes;
    for (const int64_t end = r + n; r < end;) {
        const stretch s = stretch_at(a, r, end);
        move(to, 1, base + s.base * bytes, inner < 0 ? 0 : a->base_strides[inner], s.length, bytes);
        to += s.length * bytes;
        r += s.length;
    }
}

/* The selection is contiguous and made in its order: of the window those axes that are before the points, the points, then the others,
 * which are `width` elements next to each other. */
TC_DEFINE_KERNEL(index_gather)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_index_args *a = &((const tc_index_gather_args *)args)->window;
    (void)scratch;
    const int bytes = a->element_bytes;
    const int64_t width = a->points == 1 ? a->numel : a->point_stride, total = a->points * a->numel;
    const int64_t last = end * TC_INDEX_BLOCK < total ? end * TC_INDEX_BLOCK : total;
    const bool is_row = width > 1 && a->base_strides[a->ndim - 1] == 1 && a->shape[a->ndim - 1] == width;
    const bool alone = width == 1 && a->ndim == 1; /* an axis before the points */
    for (int64_t i = begin * TC_INDEX_BLOCK; i < last;) {
        const int64_t at = width == 1 ? i : i / width, outer = at / a->points, p = at - outer * a->points, first = outer * width;
        const int64_t before = alone ? first * a->base_strides[0] : stretch_at(a, first, first + 1).base;
        const int64_t r = i - at * width, until = width == 1 ? last - i : (last - i) / width;
        const int64_t rows = r ? 0 : until < a->points - p ? until : a->points - p;
        const char *base = (const char *)a->base + before * bytes;
        char *const to = (char *)a->selection + i * bytes;
        int64_t n = rows * width;
        if (width == 1) {
            const int64_t times = alone && p == 0 && rows == a->points ? (last - i) / rows : 1;
            gather_elements(to, base, a->offsets + p, rows, bytes, times, alone ? a->base_strides[0] : 0);
            n *= times;
        } else if (is_row && rows > 0) {
            gather_rows(to, base, a->offsets + p, rows, width, bytes);
        } else {
            n = width - r < last - i ? width - r : last - i;
            gather_window(a, to, a->offsets[p], first + r, n);
        }
        i += n;
    }
}

TC_INLINE void add_steps(const tc_index_points_args *a, int64_t *to, int64_t first, int64_t last, const bool plain)
{
    if (a->pointers == 0) memset(to + first, 0, (size_t)(last - first) * sizeof *to);
    for (int n = 0; n < a->pointers; n++) {
        const int64_t *const indices = a->pointer[n].indices, step = plain ? a->pointer[n].plain_step : a->pointer[n].step;
        if (n == 0)
            for (int64_t p = first; p < last; p++) to[p] = indices[p] * step;
        else
            for (int64_t p = first; p < last; p++) to[p] += indices[p] * step;
    }
}

/* The pointers are copies of the op's own, contiguous int64, checked and not negative. */
TC_DEFINE_KERNEL(index_points)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_index_points_args *a = args;
    (void)scratch;
    const int64_t last = end * TC_INDEX_BLOCK < a->points ? end * TC_INDEX_BLOCK : a->points;
    const int64_t first = begin * TC_INDEX_BLOCK;
    add_steps(a, a->offsets, first, last, false);
    if (a->plain) add_steps(a, a->plain, first, last, true);
}

/* One element at each of n points, in their order: base[offsets[i]] = from[i * step]. */
#define PUT_ELEMENTS(TYPE)                                                                                                                 \
    do {                                                                                                                                   \
        TYPE *t = base;                                                                                                                    \
        const TYPE *f = from;                                                                                                              \
        for (int64_t i = 0; i < n; i++) t[offsets[i]] = f[i * step];                                                                       \
    } while (0)
static __attribute__((noinline)) void put_elements(void *base, const int64_t *offsets, const void *from, int64_t step, int64_t n, int bytes)
{
    switch (bytes) {
    case 1: PUT_ELEMENTS(uint8_t); break;
    case 2: PUT_ELEMENTS(uint16_t); break;
    case 4: PUT_ELEMENTS(uint32_t); break;
    default: PUT_ELEMENTS(uint64_t); break;
    }
}

TC_DEFINE_KERNEL(index_put)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_index_args *a = args;
    (void)scratch;
    const int bytes = a->element_bytes, inner = a->ndim - 1;
    const int64_t to_step = inner < 0 ? 0 : a->base_strides[inner], from_step = inner < 0 ? 0 : a->selection_strides[inner];
    const int64_t last = end * TC_INDEX_COLUMNS < a->numel ? end * TC_INDEX_COLUMNS : a->numel;
    for (int64_t r = begin * TC_INDEX_COLUMNS; r < last;) {
        const stretch s = stretch_of_points(a, r, last);
        char *const to = (char *)a->base + s.base * bytes;
        const char *const from = (const char *)a->selection + s.selection * bytes;
        r += s.length;
        if (s.length == 1)
            put_elements(to, a->offsets, from, a->point_stride, a->points, bytes);
        else
            for (int64_t p = 0; p < a->points; p++)
                move(to + a->offsets[p] * bytes, to_step, from + p * a->point_stride * bytes, from_step, s.length, bytes);
    }
}
#endif

TC_INLINE void add_stretch(real *to, int64_t to_step, const real *from, int64_t from_step, int64_t n)
{
    if (to_step == 1 && from_step == 1) {
        for (int64_t i = 0; i < n; i += TC_LANES) {
            const int lanes = v_left(n, i);
            v_store_some(to + i, v_load_some(to + i, lanes) + v_load_some(from + i, lanes), lanes);
        }
    } else {
        for (int64_t i = 0; i < n; i++) to[i * to_step] += from[i * from_step];
    }
}

TC_DEFINE_KERNEL(index_add)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_index_args *a = args;
    (void)scratch;
    const int inner = a->ndim - 1;
    const int64_t to_step = inner < 0 ? 0 : a->base_strides[inner], from_step = inner < 0 ? 0 : a->selection_strides[inner];
    const int64_t last = end * TC_INDEX_COLUMNS < a->numel ? end * TC_INDEX_COLUMNS : a->numel;
    for (int64_t r = begin * TC_INDEX_COLUMNS; r < last;) {
        const stretch s = stretch_of_points(a, r, last);
        real *const to = (real *)a->base + s.base;
        const real *const from = (const real *)a->selection + s.selection;
        r += s.length;
        if (s.length == 1)
            for (int64_t p = 0; p < a->points; p++) to[a->offsets[p]] += from[p * a->point_stride];
        else
            for (int64_t p = 0; p < a->points; p++)
                add_stretch(to + a->offsets[p], to_step, from + p * a->point_stride, from_step, s.length);
    }
}
