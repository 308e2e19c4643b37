/* cast.c: see cast.h. */
#include "cast.h"

#include "half.h"

#if TC_PRECISION == 32

/* A C cast of a float that the integer cannot hold is undefined. Here NaN and all that is out of range become the smallest integer, as in
 * NumPy and PyTorch on x86-64. uint8 gets the low byte of an int32. */
/* Clamped before the cast, so that the cast itself is unconditional and has vectors. */
#define HELD(x, below) ((x) < (below) ? (x) > -(below) ? (x) : -(below) : -(below))

TC_INLINE int64_t to_int64(double x) { return (int64_t)HELD(x, 9223372036854775808.0); }
TC_INLINE int32_t to_int32(double x) { return (int32_t)HELD(x, 2147483648.0); }
TC_INLINE int32_t float_to_int32(float x) { return (int32_t)HELD(x, 2147483648.0F); }

#if defined(__AVX2__) && !defined(__AVX512DQ__)
/* Which has no vectors there: both halves of x are the last digits of powers of two, taken off again; the sum alone is rounded. */
TC_INLINE double to_double(int64_t x)
{
    const uint64_t upper_bits = ((uint64_t)x >> 32) ^ 0x4530000080000000u, lower_bits = ((uint64_t)x & 0xFFFFFFFFu) | 0x4330000000000000u;
    double upper, lower;
    memcpy(&upper, &upper_bits, sizeof upper);
    memcpy(&lower, &lower_bits, sizeof lower);
    return (upper - (0x1p84 + 0x1p63 + 0x1p52)) + lower;
}
#else
TC_INLINE double to_double(int64_t x) { return (double)x; }
#endif

#define TRUTH(x) ((x) < 1 ? (x) : 1) /* of a byte */
/* Elements as they are, so many bytes each. A step of 2 is common; the compiler makes vectors of it only where it is
 * a constant. */
#define MOVE(bytes, word)                                                                                                                  \
    static void move_##bytes(void *to_, int64_t to_step, const void *from_, int64_t from_step, int64_t n)                                  \
    {                                                                                                                                      \
        word *to = to_;                                                                                                                    \
        const word *from = from_;                                                                                                          \
        if (to_step == 1 && from_step == 1)                                                                                                \
            for (int64_t i = 0; i < n; i++) to[i] = from[i];                                                                               \
        else if (to_step == 1 && from_step == 2)                                                                                           \
            for (int64_t i = 0; i < n; i++) to[i] = from[2 * i];                                                                           \
        else                                                                                                                               \
            TC_UNROLL_BY(4)                                                                                                                \
        for (int64_t i = 0; i < n; i++) to[i * to_step] = from[i * from_step];                                                             \
    }
MOVE(1, uint8_t)
MOVE(2, word_2)
MOVE(4, word_4)
MOVE(8, word_8)

static cast_run move_of(int bytes) { return bytes == 1 ? move_1 : bytes == 2 ? move_2 : bytes == 4 ? move_4 : move_8; }

#define CHUNK 512
#define WORTH_CHUNKS 32 /* elements */

/* Casts a strided run by the loop over dense ones, which has vectors. */
static void by_chunks(cast_run run, void *to_, int64_t to_step, int to_bytes, const void *from_, int64_t from_step, int from_bytes,
                      int64_t n)
{
    word_8 read[CHUNK], written[CHUNK];
    char *to = to_;
    const char *from = from_;
    for (int64_t count; n > 0; n -= count, to += count * to_step * to_bytes, from += count * from_step * from_bytes) {
        count = n < CHUNK ? n : CHUNK;
        if (from_step != 1) move_of(from_bytes)(read, 1, from, from_step, count);
        run(to_step == 1 ? (void *)to : written, 1, from_step == 1 ? (const void *)from : read, 1, count);
        if (to_step != 1) move_of(to_bytes)(to, to_step, written, 1, count);
    }
}

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
        } else if (n >= WORTH_CHUNKS) {                                                                                                    \
            by_chunks(FROM##_as_##TO, to, to_step, sizeof(TO), from, from_step, sizeof(FROM), n);                                          \
        } else {                                                                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                                                              \
                const FROM x = from[i * from_step];                                                                                        \
                to[i * to_step] = (TO)(EXPRESSION);                                                                                        \
            }                                                                                                                              \
        }                                                                                                                                  \
    }
/*   from  to     expression of x, the loaded element */
CAST(float, double, (double)x)
CAST(float, float16, tc_to_float16(x))
CAST(float, bfloat16, tc_to_bfloat16(x))
CAST(float, int64_t, to_int64((double)x))
CAST(float, int32_t, float_to_int32(x))
CAST(float, uint8_t, (uint8_t)float_to_int32(x))
CAST(float, boolean, NOT_ZERO(x))
CAST(double, float, (float)x)
CAST(double, bfloat16, tc_to_bfloat16((float)x))
CAST(double, int64_t, to_int64(x))
CAST(double, int32_t, to_int32(x))
CAST(double, uint8_t, (uint8_t)to_int32(x))
CAST(double, boolean, NOT_ZERO(x))
CAST(float16, float, tc_from_float16(x))
CAST(bfloat16, float, tc_from_bfloat16(x))
CAST(bfloat16, double, (double)tc_from_bfloat16(x))
CAST(bfloat16, int64_t, to_int64((double)tc_from_bfloat16(x)))
CAST(bfloat16, int32_t, float_to_int32(tc_from_bfloat16(x)))
CAST(bfloat16, uint8_t, (uint8_t)float_to_int32(tc_from_bfloat16(x)))
CAST(bfloat16, boolean, NOT_ZERO(tc_from_bfloat16(x)))
CAST(int64_t, float, (float)x)
CAST(int64_t, double, to_double(x))
CAST(int64_t, int32_t, (int32_t)x)
CAST(int64_t, uint8_t, (uint8_t)x)
CAST(int64_t, boolean, NOT_ZERO(x))
CAST(int32_t, float, (float)x)
CAST(int32_t, double, (double)x)
CAST(int32_t, bfloat16, tc_to_bfloat16((float)x))
CAST(int32_t, int64_t, (int64_t)x)
CAST(int32_t, uint8_t, (uint8_t)x)
CAST(int32_t, boolean, NOT_ZERO(x))
CAST(uint8_t, float, (float)x)
CAST(uint8_t, double, (double)x)
CAST(uint8_t, bfloat16, tc_to_bfloat16((float)x))
CAST(uint8_t, int64_t, (int64_t)x)
CAST(uint8_t, int32_t, (int32_t)x)
CAST(uint8_t, boolean, NOT_ZERO(x))
CAST(boolean, float, (float)TRUTH(x))
CAST(boolean, double, (double)TRUTH(x))
CAST(boolean, float16, (0x3c00 * TRUTH(x))) /* 1.0 */
CAST(boolean, bfloat16, (0x3f80 * TRUTH(x)))
CAST(boolean, int64_t, TRUTH(x))
CAST(boolean, int32_t, TRUTH(x))
CAST(boolean, uint8_t, TRUTH(x))
CAST(boolean, boolean, TRUTH(x))
#undef CAST

/* Elements of one dtype stay as they are: halves are not rounded again. */
#define float_as_float move_4
#define double_as_double move_8
#define int64_t_as_int64_t move_8
#define int32_t_as_int32_t move_4
#define uint8_t_as_uint8_t move_1

/* Runs of halves in vectors, which round as half.h does. */
#define IN_VECTORS(NAME, FROM, TO, STEP)                                                                                                   \
    static void NAME(void *to_, int64_t to_step, const void *from_, int64_t from_step, int64_t n)                                          \
    {                                                                                                                                      \
        TO *to = to_;                                                                                                                      \
        const FROM *from = from_;                                                                                                          \
        int64_t i = 0;                                                                                                                     \
        if (to_step == 1 && from_step == 1) {                                                                                              \
            TC_UNROLL_BY(4)                                                                                                                \
            for (; i + TC_LANES <= n; i += TC_LANES) STEP;                                                                                 \
        } else if (n >= WORTH_CHUNKS) {                                                                                                    \
            by_chunks(NAME, to, to_step, sizeof(TO), from, from_step, sizeof(FROM), n);                                                    \
            return;                                                                                                                        \
        }                                                                                                                                  \
        FROM##_as_##TO(to + i, to_step, from + i, from_step, n - i);                                                                       \
    }
IN_VECTORS(float16_widened, float16, float, v_store(to + i, v_from_float16(v_half_load(from + i))))
IN_VECTORS(bfloat16_widened, bfloat16, float, v_store(to + i, v_from_bfloat16(v_half_load(from + i))))
IN_VECTORS(float16_narrowed, float, float16, v_half_store(to + i, v_to_float16(v_load(from + i))))
IN_VECTORS(bfloat16_narrowed, float, bfloat16, v_half_store(to + i, v_to_bfloat16(v_load(from + i))))

/* By way of floats, so many at a time, for those vectors. */
#define CAST_BY_FLOATS(FROM, TO, TO_FLOATS, FROM_FLOATS)                                                                                   \
    static void FROM##_as_##TO(void *to_, int64_t to_step, const void *from_, int64_t from_step, int64_t n)                                \
    {                                                                                                                                      \
        float floats[CHUNK] __attribute__((aligned(64)));                                                                                  \
        TO *to = to_;                                                                                                                      \
        const FROM *from = from_;                                                                                                          \
        for (int64_t i = 0; i < n; i += CHUNK) {                                                                                           \
            const int64_t count = n - i < CHUNK ? n - i : CHUNK;                                                                           \
            TO_FLOATS(floats, 1, from + i * from_step, from_step, count);                                                                  \
            FROM_FLOATS(to + i * to_step, to_step, floats, 1, count);                                                                      \
        }                                                                                                                                  \
    }
#define TO_FLOAT16(FROM) CAST_BY_FLOATS(FROM, float16, FROM##_as_float, float16_narrowed)
#define FROM_FLOAT16(TO) CAST_BY_FLOATS(float16, TO, float16_widened, float_as_##TO)
TO_FLOAT16(double)
TO_FLOAT16(bfloat16)
TO_FLOAT16(int64_t)
TO_FLOAT16(int32_t)
TO_FLOAT16(uint8_t)
CAST_BY_FLOATS(int64_t, bfloat16, int64_t_as_float, bfloat16_narrowed)
FROM_FLOAT16(double)
FROM_FLOAT16(bfloat16)
FROM_FLOAT16(int64_t)
FROM_FLOAT16(int32_t)
FROM_FLOAT16(uint8_t)
FROM_FLOAT16(boolean)

/* In the order of tc_dtype. */
#define ROW(FROM, FLOAT, FLOAT16, BFLOAT16)                                                                                                \
    {                                                                                                                                      \
        FLOAT, FROM##_as_double, FLOAT16, BFLOAT16, FROM##_as_int64_t, FROM##_as_int32_t, FROM##_as_uint8_t, FROM##_as_boolean             \
    }
#define PLAIN_ROW(FROM) ROW(FROM, FROM##_as_float, FROM##_as_float16, FROM##_as_bfloat16)
const cast_run cast_runs[TC_DTYPE_COUNT][TC_DTYPE_COUNT] = {ROW(float, float_as_float, float16_narrowed, bfloat16_narrowed),
                                                            PLAIN_ROW(double),
                                                            ROW(float16, float16_widened, move_2, float16_as_bfloat16),
                                                            ROW(bfloat16, bfloat16_widened, bfloat16_as_float16, move_2),
                                                            PLAIN_ROW(int64_t),
                                                            PLAIN_ROW(int32_t),
                                                            PLAIN_ROW(uint8_t),
                                                            PLAIN_ROW(boolean)};
#endif
