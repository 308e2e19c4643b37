/* integer_elements.h: the rows of integer.def, `where` and `clamp`, in integers of INTEGER_BITS bits, 32 or 64. Results wrap around: where
 * no operand has more than 32 bits, both have the same lower ones. */
#ifndef TC_INTEGER_ELEMENTS_H
#define TC_INTEGER_ELEMENTS_H

#include "../function_ids.h"
#include "integer_bytes.h"
#include "simd.h"

#if INTEGER_BITS == 32
typedef int32_t element;
typedef uint32_t unsigned_element;
#define INTEGER_DTYPE TC_INT32
#else
typedef int64_t element;
typedef uint64_t unsigned_element;
#define INTEGER_DTYPE TC_INT64
#endif

#include "run_elementwise.h"

#define WRAP(a, operator, b) ((element)((unsigned_element)(a) operator(unsigned_element)(b)))

/* Towards minus infinity; the quotient of the smallest integer and -1 wraps around. */
TC_INLINE element integer_floor_divide(element a, element b)
{
    if (b == 0) return 0;
    if (b == -1) return WRAP(0, -, a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* The op has checked that b >= 0. */
static element integer_power(element a, element b)
{
    element result = 1;
    for (; b > 0; b >>= 1) {
        if (b & 1) result = WRAP(result, *, a);
        a = WRAP(a, *, a);
    }
    return result;
}

#define TC_INTEGER_UNARY(name, value)                                                                                                      \
    TC_INLINE void loop_##name(element *out, const element *x_, int x_step, int64_t n)                                                     \
    {                                                                                                                                      \
        SIDE_BY_SIDE                                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                                                  \
            const element x = x_[i * x_step];                                                                                              \
            out[i] = value;                                                                                                                \
        }                                                                                                                                  \
    }                                                                                                                                      \
    static void unary_##name(tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)                               \
    {                                                                                                                                      \
        (void)stored;                                                                                                                      \
        if (step[0])                                                                                                                       \
            loop_##name(out, in[0], 1, n);                                                                                                 \
        else                                                                                                                               \
            loop_##name(out, in[0], 0, n);                                                                                                 \
    }
#define TC_INTEGER_BINARY(name, value)                                                                                                     \
    TC_INLINE void loop_##name(element *out, const element *a_, int a_step, const element *b_, int b_step, int64_t n)                      \
    {                                                                                                                                      \
        SIDE_BY_SIDE                                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                                                  \
            const element a = a_[i * a_step], b = b_[i * b_step];                                                                          \
            out[i] = value;                                                                                                                \
        }                                                                                                                                  \
    }                                                                                                                                      \
    static void binary_##name(tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)                              \
    {                                                                                                                                      \
        (void)stored;                                                                                                                      \
        LOOP_BY_STEPS(loop_##name, in, step, n, out);                                                                                      \
    }
#include "../integer.def"
#undef TC_INTEGER_UNARY
#undef TC_INTEGER_BINARY

static const chunk_function unary_functions[TC_UNARY_COUNT] = {
#define TC_INTEGER_UNARY(name, value) [TC_UNARY_##name] = unary_##name,
#define TC_INTEGER_BINARY(name, value)
#include "../integer.def"
#undef TC_INTEGER_UNARY
#undef TC_INTEGER_BINARY
};

static const chunk_function binary_functions[TC_BINARY_COUNT] = {
#define TC_INTEGER_UNARY(name, value)
#define TC_INTEGER_BINARY(name, value) [TC_BINARY_##name] = binary_##name,
#include "../integer.def"
#undef TC_INTEGER_UNARY
#undef TC_INTEGER_BINARY
};

/* NOLINTBEGIN(clang-analyzer-core.*): where has three inputs, which the analyzer does not know. */
TC_INLINE void loop_where(element *out, const element *c, int c_step, const element *a, int a_step, const element *b, int b_step, int64_t n)
{
    SIDE_BY_SIDE
    for (int64_t i = 0; i < n; i++) {
        const element x = a[i * a_step], y = b[i * b_step];
        out[i] = c[i * c_step] ? x : y;
    }
}

static void choose(tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)
{
    (void)stored;
    if (!step[0])
        loop_where(out, in[0], 0, in[1], step[1], in[2], step[2], n);
    else if (step[1] && step[2])
        loop_where(out, in[0], 1, in[1], 1, in[2], 1, n);
    else if (step[1])
        loop_where(out, in[0], 1, in[1], 1, in[2], 0, n);
    else if (step[2])
        loop_where(out, in[0], 1, in[1], 0, in[2], 1, n);
    else
        loop_where(out, in[0], 1, in[1], 0, in[2], 0, n);
}

TC_INLINE void loop_clamp(element *out, const element *x, const int step, element low, element high, int64_t n)
{
    SIDE_BY_SIDE
    for (int64_t i = 0; i < n; i++) {
        const element risen = x[i * step] < low ? low : x[i * step];
        out[i] = risen > high ? high : risen;
    }
}

/* Between two numbers. */
static void clamp(tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)
{
    const element low = *(const element *)in[1], high = *(const element *)in[2];
    (void)stored;
    if (step[0])
        loop_clamp(out, in[0], 1, low, high, n);
    else
        loop_clamp(out, in[0], 0, low, high, n);
}
/* NOLINTEND(clang-analyzer-core.*) */

#define INTEGER_ELEMENTS(bits, isa) TC_PASTE4(tc_integer_elements_, bits, _, isa)
#define integer_elements_32 INTEGER_ELEMENTS(32, TC_ISA)
#define integer_elements_64 INTEGER_ELEMENTS(64, TC_ISA)
void integer_elements_32(const tc_elementwise_args *a, int64_t begin, int64_t end);
void integer_elements_64(const tc_elementwise_args *a, int64_t begin, int64_t end);

void INTEGER_ELEMENTS(INTEGER_BITS, TC_ISA)(const tc_elementwise_args *a, int64_t begin, int64_t end)
{
    run_elementwise(a, begin, end,
                    a->inputs == 1                   ? unary_functions[a->function]
                    : a->inputs == 2                 ? binary_functions[a->function]
                    : a->function == TC_CHOICE_clamp ? clamp
                                                     : choose);
}

#endif
