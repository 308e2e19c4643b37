/* cast.c: see cast.h. */
#include "cast.h"

#include "half.h"

#if TC_PRECISION == 32

/* A C cast of a float that the integer cannot hold is undefined. Here NaN and all that is out of range become the smallest integer, as in
 * NumPy and PyTorch on x86-64. uint8 gets the low byte of an int32. */
TC_INLINE int64_t to_int64(double x) { return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : INT64_MIN; }
TC_INLINE int32_t to_int32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }

#define TRUTH(x) ((int)((unsigned)((int)(x) | -(int)(x)) >> 31)) /* the same of a byte, where compilers would make a branch */
/*   from  to     expression of x, the loaded element */
#define CASTS_FROM_FLOAT(FROM, LOAD)                                                                                                       \
    CAST(FROM, float, (float)LOAD(x))                                                                                                      \
    CAST(FROM, double, (double)LOAD(x))                                                                                                    \
    CAST(FROM, int64_t, to_int64((double)LOAD(x)))                                                                                         \
    CAST(FROM, int32_t, to_int32((double)LOAD(x)))                                                                                         \
    CAST(FROM, uint8_t, (uint8_t)to_int32((double)LOAD(x)))                                                                                \
    CAST(FROM, boolean, NOT_ZERO(LOAD(x)))
#define CASTS_TO_HALVES(FROM, LOAD)                                                                                                        \
    CAST(FROM, float16, tc_to_float16((float)LOAD(x)))                                                                                     \
    CAST(FROM, bfloat16, tc_to_bfloat16((float)LOAD(x)))
#define CASTS_FROM_INTEGER(FROM, LOAD)                                                                                                     \
    CAST(FROM, float, (float)LOAD(x))                                                                                                      \
    CAST(FROM, double, (double)LOAD(x))                                                                                                    \
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
CASTS_TO_HALVES(float, SAME)
CASTS_FROM_FLOAT(double, SAME)
CASTS_TO_HALVES(double, SAME)
CASTS_FROM_FLOAT(float16, tc_from_float16)
CAST(float16, bfloat16, tc_to_bfloat16(tc_from_float16(x)))
CASTS_FROM_FLOAT(bfloat16, tc_from_bfloat16)
CAST(bfloat16, float16, tc_to_float16(tc_from_bfloat16(x)))
CASTS_FROM_INTEGER(int64_t, SAME)
CASTS_TO_HALVES(int64_t, SAME)
CASTS_FROM_INTEGER(int32_t, SAME)
CASTS_TO_HALVES(int32_t, SAME)
CASTS_FROM_INTEGER(uint8_t, SAME)
CASTS_TO_HALVES(uint8_t, SAME)
CAST(boolean, float, (float)TRUTH(x))
CAST(boolean, double, (double)TRUTH(x))
CAST(boolean, float16, (0x3c00 * TRUTH(x))) /* 1.0 */
CAST(boolean, bfloat16, (0x3f80 * TRUTH(x)))
CAST(boolean, int64_t, TRUTH(x))
CAST(boolean, int32_t, TRUTH(x))
CAST(boolean, uint8_t, TRUTH(x))
CAST(boolean, boolean, TRUTH(x))
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
#define ROW(FROM, FLOAT, FLOAT16, BFLOAT16)                                                                                                \
    {                                                                                                                                      \
        FLOAT, FROM##_as_double, FLOAT16, BFLOAT16, FROM##_as_int64_t, FROM##_as_int32_t, FROM##_as_uint8_t, FROM##_as_boolean             \
    }
#define PLAIN_ROW(FROM) ROW(FROM, FROM##_as_float, FROM##_as_float16, FROM##_as_bfloat16)
const cast_run cast_runs[TC_DTYPE_COUNT][TC_DTYPE_COUNT] = {ROW(float, float_as_float, float16_narrowed, float_as_bfloat16),
                                                            PLAIN_ROW(double),
                                                            ROW(float16, float16_widened, bits16, float16_as_bfloat16),
                                                            ROW(bfloat16, bfloat16_as_float, bfloat16_as_float16, bits16),
                                                            PLAIN_ROW(int64_t),
                                                            PLAIN_ROW(int32_t),
                                                            PLAIN_ROW(uint8_t),
                                                            PLAIN_ROW(boolean)};
#endif
