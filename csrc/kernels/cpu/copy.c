/* copy.c: strided copies with a cast. The work does not depend on the compute dtype, so the float64 table shares the float32
 * table's function. */
#include <string.h>

#include "../copy.h"
#include "../kernels.h"
#include "../types.h"
#include "half.h"
#include "simd.h"

#if TC_PRECISION == 64
#define COPY_F32(isa) TC_PASTE4(tc_copy, _f32_, isa, )
void COPY_F32(TC_ISA)(const void *args, int64_t begin, int64_t end, void *scratch);
TC_DEFINE_KERNEL(copy)(const void *args, int64_t begin, int64_t end, void *scratch) { COPY_F32(TC_ISA)(args, begin, end, scratch); }
#else

/* One run along the innermost axis: to[i * to_step] = from[i * from_step], i < n. */
typedef void (*copy_run)(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t n);

/* A C cast of a float that the integer cannot hold is undefined. Here NaN and all that is out of range become the smallest integer, as in
 * NumPy and PyTorch on x86-64. uint8 gets the low byte of an int32. */
TC_INLINE int64_t to_int64(double x) { return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : INT64_MIN; }
TC_INLINE int32_t to_int32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }

typedef uint8_t boolean; /* written as 0 or 1; memory from outside may have any other byte for true */
typedef uint16_t float16, bfloat16;

#define SAME(x) (x)
#define NOT_ZERO(x) ((x) != 0)
/*      from      to        expression of x, the loaded element */
#define CASTS_FROM_FLOAT(FROM, LOAD)                                                                                                       \
    CAST(FROM, float, (float)LOAD(x))                                                                                                      \
    CAST(FROM, double, (double)LOAD(x))                                                                                                    \
    CAST(FROM, float16, tc_to_float16((float)LOAD(x)))                                                                                     \
    CAST(FROM, bfloat16, tc_to_bfloat16((float)LOAD(x)))                                                                                   \
    CAST(FROM, int64_t, to_int64((double)LOAD(x)))                                                                                         \
    CAST(FROM, int32_t, to_int32((double)LOAD(x)))                                                                                         \
    CAST(FROM, uint8_t, (uint8_t)to_int32((double)LOAD(x)))                                                                                \
    CAST(FROM, boolean, NOT_ZERO(LOAD(x)))
#define CASTS_FROM_INTEGER(FROM, LOAD)                                                                                                     \
    CAST(FROM, float, (float)LOAD(x))                                                                                                      \
    CAST(FROM, double, (double)LOAD(x))                                                                                                    \
    CAST(FROM, float16, tc_to_float16((float)LOAD(x)))                                                                                     \
    CAST(FROM, bfloat16, tc_to_bfloat16((float)LOAD(x)))                                                                                   \
    CAST(FROM, int64_t, (int64_t)LOAD(x))                                                                                                  \
    CAST(FROM, int32_t, (int32_t)LOAD(x))                                                                                                  \
    CAST(FROM, uint8_t, (uint8_t)LOAD(x))                                                                                                  \
    CAST(FROM, boolean, NOT_ZERO(x))

#define CAST(FROM, TO, EXPRESSION)                                                                                                         \
    static void FROM##_as_##TO(void *to_, int64_t to_step, const void *from_, int64_t from_step, int64_t n)                                \
    {                                                                                                                                      \
        TO *to = to_;                                                                                                                      \
        const FROM *from = from_;                                                                                                          \
        if (to_step == 1 && from_step == 1) {                                                                                              \
            for (int64_t i = 0; i < n; i++) {                                                                                              \
                const FROM x = from[i];                                                                                                    \
                to[i] = (TO)(EXPRESSION);                                                                                                  \
            }                                                                                                                              \
        } else {                                                                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                                                              \
                const FROM x = from[i * from_step];                                                                                        \
                to[i * to_step] = (TO)(EXPRESSION);                                                                                        \
            }                                                                                                                              \
        }                                                                                                                                  \
    }
CASTS_FROM_FLOAT(float, SAME)
CASTS_FROM_FLOAT(double, SAME)
CASTS_FROM_FLOAT(float16, tc_from_float16)
CASTS_FROM_FLOAT(bfloat16, tc_from_bfloat16)
CASTS_FROM_INTEGER(int64_t, SAME)
CASTS_FROM_INTEGER(int32_t, SAME)
CASTS_FROM_INTEGER(uint8_t, SAME)
CASTS_FROM_INTEGER(boolean, NOT_ZERO)
#undef CAST

/* Between equal half types the bits are copied, not rounded again. */
static void bits16(void *to_, int64_t to_step, const void *from_, int64_t from_step, int64_t n)
{
    uint16_t *to = to_;
    const uint16_t *from = from_;
    for (int64_t i = 0; i < n; i++) to[i * to_step] = from[i * from_step];
}

/* Dense runs of float16 in vectors, which round as half.h does. */
static void float16_widened(void *to_, int64_t to_step, const void *from_, int64_t from_step, int64_t n)
{
    float *to = to_;
    const uint16_t *from = from_;
    int64_t i = 0;
    if (to_step == 1 && from_step == 1)
        for (; i + TC_LANES <= n; i += TC_LANES) v_store(to + i, v_from_float16(v_half_load(from + i)));
    float16_as_float(to + i, to_step, from + i, from_step, n - i); /* all of a strided run: i is 0 */
}
static void float16_narrowed(void *to_, int64_t to_step, const void *from_, int64_t from_step, int64_t n)
{
    uint16_t *to = to_;
    const float *from = from_;
    int64_t i = 0;
    if (to_step == 1 && from_step == 1)
        for (; i + TC_LANES <= n; i += TC_LANES) v_half_store(to + i, v_to_float16(v_load(from + i)));
    float_as_float16(to + i, to_step, from + i, from_step, n - i);
}

/* In the order of tc_dtype. */
#define ROW(FROM)                                                                                                                          \
    {                                                                                                                                      \
        FROM##_as_float, FROM##_as_double, FROM##_as_float16, FROM##_as_bfloat16, FROM##_as_int64_t, FROM##_as_int32_t, FROM##_as_uint8_t, \
            FROM##_as_boolean                                                                                                              \
    }
static const copy_run copy_runs[TC_DTYPE_COUNT][TC_DTYPE_COUNT] = {ROW(float),   ROW(double),  ROW(float16), ROW(bfloat16),
                                                                   ROW(int64_t), ROW(int32_t), ROW(uint8_t), ROW(boolean)};
static const int8_t element_bytes[TC_DTYPE_COUNT] = {4, 8, 2, 2, 8, 4, 1, 1};

TC_INLINE copy_run run_between(int from, int to)
{
    if (from == to && (to == TC_FLOAT16 || to == TC_BFLOAT16)) return bits16;
    if (from == TC_FLOAT16 && to == TC_FLOAT32) return float16_widened;
    if (from == TC_FLOAT32 && to == TC_FLOAT16) return float16_narrowed;
    return copy_runs[from][to];
}

/* to[i] = to[0], i < n. */
static void repeat_first(void *to, int bytes, int64_t n)
{
    uint64_t word = 0;
    memcpy(&word, to, (size_t)bytes);
    switch (bytes) {
    case 1: memset(to, (int)word, (size_t)n); break;
    case 2:
        for (int64_t i = 0; i < n; i++) ((uint16_t *)to)[i] = (uint16_t)word;
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = (uint32_t)word;
        break;
    default:
        for (int64_t i = 0; i < n; i++) ((uint64_t *)to)[i] = word;
    }
}

/* An element on the way through a copy: where it is along each axis, and how far into both sides. */
typedef struct place {
    int64_t index[TC_COPY_DIMS], to, from;
} place;

TC_INLINE place place_of(const tc_copy_args *a, int64_t i)
{
    place at = {.to = 0};
    for (int axis = a->ndim - 1; axis >= 0; axis--) {
        at.index[axis] = i % a->shape[axis];
        i /= a->shape[axis];
        at.to += at.index[axis] * a->to_strides[axis];
        at.from += at.index[axis] * a->from_strides[axis];
    }
    return at;
}

/* Moves n elements along an axis, at most to its end; the axes inside it are at their beginning. */
TC_INLINE void advance(const tc_copy_args *a, place *at, int axis, int64_t n)
{
    at->index[axis] += n;
    at->to += n * a->to_strides[axis];
    at->from += n * a->from_strides[axis];
    for (; axis > 0 && at->index[axis] == a->shape[axis]; axis--) {
        at->index[axis] = 0;
        at->index[axis - 1]++;
        at->to += a->to_strides[axis - 1] - a->shape[axis] * a->to_strides[axis];
        at->from += a->from_strides[axis - 1] - a->shape[axis] * a->from_strides[axis];
    }
}

#define SHORT_RUN 16 /* where there are many of them, they are walked across, one place of all after another */
#define TOGETHER 512 /* elements of short runs that are walked across at a time: few enough for a cache */

/* Runs that are a multiple of 1 KiB apart compete for a few lines of the cache, which would lose them between two turns. */
static bool meet_in_caches(int64_t stride, int bytes) { return stride != 0 && stride * bytes % 1024 == 0; }

/* Has each element along the two innermost axes memory of its own? Where several share it, the last one in C order must stay. */
static bool are_apart(const int64_t *shape, const int64_t *strides)
{
    const int64_t outer = strides[0] < 0 ? -strides[0] : strides[0], inner = strides[1] < 0 ? -strides[1] : strides[1];
    return outer >= shape[1] * inner || inner >= shape[0] * outer;
}

TC_DEFINE_KERNEL(copy)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_copy_args *a = args;
    (void)scratch;
    const copy_run run = run_between(a->from_dtype, a->to_dtype);
    const int to_bytes = element_bytes[a->to_dtype], from_bytes = element_bytes[a->from_dtype];
    const int64_t last = end * TC_COPY_BLOCK < a->numel ? end * TC_COPY_BLOCK : a->numel;
    char *const to = a->to;
    const char *const from = a->from;
    if (a->ndim == 0) {
        run(to, 0, from, 0, 1);
        return;
    }
    const int inner = a->ndim - 1;
    const int64_t length = a->shape[inner], to_step = a->to_strides[inner], from_step = a->from_strides[inner];
    const bool across = length < SHORT_RUN && inner > 0 && are_apart(&a->shape[inner - 1], &a->to_strides[inner - 1]) &&
                        !meet_in_caches(a->to_strides[inner - 1], to_bytes) && !meet_in_caches(a->from_strides[inner - 1], from_bytes);
    place at = place_of(a, begin * TC_COPY_BLOCK);
    for (int64_t i = begin * TC_COPY_BLOCK; i < last;) {
        if (across && at.index[inner] == 0) {
            int64_t runs = a->shape[inner - 1] - at.index[inner - 1];
            if (runs > (last - i) / length) runs = (last - i) / length;
            if (runs > TOGETHER / length) runs = TOGETHER / length;
            if (runs > length) {
                for (int64_t k = 0; k < length; k++)
                    run(to + (at.to + k * to_step) * to_bytes, a->to_strides[inner - 1], from + (at.from + k * from_step) * from_bytes,
                        a->from_strides[inner - 1], runs);
                advance(a, &at, inner - 1, runs);
                i += runs * length;
                continue;
            }
        }
        const int64_t left = length - at.index[inner], n = left < last - i ? left : last - i;
        if (from_step == 0 && to_step == 1) {
            run(to + at.to * to_bytes, 1, from + at.from * from_bytes, 0, 1);
            repeat_first(to + at.to * to_bytes, to_bytes, n);
        } else {
            run(to + at.to * to_bytes, to_step, from + at.from * from_bytes, from_step, n);
        }
        advance(a, &at, inner, n);
        i += n;
    }
}
#endif
