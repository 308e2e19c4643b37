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

#define MOVE(TYPE)                                                                                                                         \
    do {                                                                                                                                   \
        TYPE *t = to;                                                                                                                      \
        const TYPE *f = from;                                                                                                              \
        for (int64_t i = 0; i < n; i++) t[i * to_step] = f[i * from_step];                                                                 \
    } while (0)

/* to[i * to_step] = from[i * from_step], i < n */
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

TC_DEFINE_KERNEL(index_gather)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    static const uint64_t zero = 0;
    const tc_index_args *a = &((const tc_index_gather_args *)args)->window;
    (void)scratch;
    const int bytes = a->element_bytes, inner = a->ndim - 1;
    const int64_t to_step = inner < 0 ? 0 : a->selection_strides[inner], from_step = inner < 0 ? 0 : a->base_strides[inner];
    const int64_t total = a->points * a->numel, last = end * TC_INDEX_BLOCK < total ? end * TC_INDEX_BLOCK : total;
    int64_t p = begin * TC_INDEX_BLOCK / a->numel, r = begin * TC_INDEX_BLOCK % a->numel;
    for (int64_t i = begin * TC_INDEX_BLOCK; i < last;) {
        const stretch s = stretch_at(a, r, a->numel < r + last - i ? a->numel : r + last - i);
        char *to = (char *)a->selection + (p * a->point_stride + s.selection) * bytes;
        if (a->offsets[p] == TC_INDEX_NOWHERE)
            move(to, to_step, &zero, 0, s.length, bytes);
        else
            move(to, to_step, (const char *)a->base + (a->offsets[p] + s.base) * bytes, from_step, s.length, bytes);
        i += s.length;
        r += s.length;
        if (r == a->numel) p++, r = 0;
    }
}

/* The pointers are copies of the op's own, contiguous int64, checked and not negative. */
TC_DEFINE_KERNEL(index_points)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_index_points_args *a = args;
    (void)scratch;
    const int64_t last = end * TC_INDEX_BLOCK < a->points ? end * TC_INDEX_BLOCK : a->points;
    for (int64_t p = begin * TC_INDEX_BLOCK; p < last; p++) {
        int64_t offset = 0, plain = 0;
        for (int n = 0; n < a->pointers; n++) {
            const int64_t index = ((const int64_t *)a->pointer[n].indices)[p];
            offset += index * a->pointer[n].step;
            plain += index * a->pointer[n].plain_step;
        }
        a->offsets[p] = offset;
        if (a->plain) a->plain[p] = plain;
    }
}

TC_DEFINE_KERNEL(index_put)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_index_args *a = args;
    (void)scratch;
    const int bytes = a->element_bytes, inner = a->ndim - 1;
    const int64_t to_step = inner < 0 ? 0 : a->base_strides[inner], from_step = inner < 0 ? 0 : a->selection_strides[inner];
    const int64_t last = end * TC_INDEX_COLUMNS < a->numel ? end * TC_INDEX_COLUMNS : a->numel;
    for (int64_t p = 0; p < a->points; p++)
        for (int64_t r = begin * TC_INDEX_COLUMNS; r < last;) {
            const stretch s = stretch_at(a, r, last);
            move((char *)a->base + (a->offsets[p] + s.base) * bytes, to_step,
                 (const char *)a->selection + (p * a->point_stride + s.selection) * bytes, from_step, s.length, bytes);
            r += s.length;
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
    for (int64_t p = 0; p < a->points; p++)
        for (int64_t r = begin * TC_INDEX_COLUMNS; r < last;) {
            const stretch s = stretch_at(a, r, last);
            add_stretch((real *)a->base + a->offsets[p] + s.base, to_step, (const real *)a->selection + p * a->point_stride + s.selection,
                        from_step, s.length);
            r += s.length;
        }
}
