/* unary.c: functions of one argument and their gradients, one row of unary.def each. */
#include "../function_ids.h"
#include "ahead.h"

typedef real element;
#include "activation.h"
#include "halves.h"

#define LIGHT                                                                                                                              \
    (ONLY(TC_UNARY_neg) | ONLY(TC_UNARY_abs) | ONLY(TC_UNARY_square) | ONLY(TC_UNARY_reciprocal) | ONLY(TC_UNARY_sqrt) |                   \
     ONLY(TC_UNARY_rsqrt) | ONLY(TC_UNARY_relu))

/* relu6(x + 3) / 6: a sigmoid made of straight lines */
TC_INLINE vreal v_hardsigmoid(vreal x)
{
    const vreal six = v_set1(R(6.0));
    return v_minimum(v_maximum(x + v_set1(R(3.0)), v_zero()), six) / six;
}

#define TC_UNARY(name, saved, value, gradient)                                                                                             \
    TC_INLINE vreal value_##name(vreal x) { return value; }                                                                                \
    TC_INLINE void forward_line_##name(const tc_stored stored, void *out, const void *const *in, int64_t n)                                \
    {                                                                                                                                      \
        const void *const x = in[0];                                                                                                       \
        const int64_t ahead = array_ahead();                                                                                               \
        for (int64_t i = 0, line; i < n; i += line) {                                                                                      \
            line = next_line(stored, n - i);                                                                                               \
            read_ahead(stored_at(x, stored, i + ahead));                                                                                   \
            write_ahead(stored_to(out, stored, i + ahead));                                                                                \
            STORE_LINE(out, stored, i, line, value_##name(load_part(x, stored, j, part)));                                                 \
        }                                                                                                                                  \
    }                                                                                                                                      \
    LINES_OF_STORED(IS_AMONG(LIGHT, TC_UNARY_##name), forward_line_##name, forward_lines_##name)                                           \
    static void forward_##name(tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)                             \
    {                                                                                                                                      \
        by_lines(forward_lines_##name, 1, stored, out, in, step, n);                                                                       \
    }                                                                                                                                      \
    TC_INLINE vreal gradient_##name(vreal g, vreal x) /* x is the saved tensor, x or y */                                                  \
    {                                                                                                                                      \
        const vreal y = x;                                                                                                                 \
        (void)y;                                                                                                                           \
        return gradient;                                                                                                                   \
    }                                                                                                                                      \
    TC_INLINE void backward_line_##name(const tc_stored stored, void *out, const void *const *in, int64_t n)                               \
    {                                                                                                                                      \
        const void *const g = in[0], *const kept = in[1];                                                                                  \
        const int64_t ahead = array_ahead();                                                                                               \
        for (int64_t i = 0, line; i < n; i += line) {                                                                                      \
            line = next_line(stored, n - i);                                                                                               \
            read_ahead(stored_at(g, stored, i + ahead));                                                                                   \
            read_ahead(stored_at(kept, stored, i + ahead));                                                                                \
            write_ahead(stored_to(out, stored, i + ahead));                                                                                \
            STORE_LINE(out, stored, i, line, gradient_##name(load_part(g, stored, j, part), load_part(kept, stored, j, part)));            \
        }                                                                                                                                  \
    }                                                                                                                                      \
    LINES_OF_STORED(IS_AMONG(LIGHT, TC_UNARY_##name), backward_line_##name, backward_lines_##name)                                         \
    static void backward_##name(tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)                            \
    {                                                                                                                                      \
        by_lines(backward_lines_##name, 2, stored, out, in, step, n);                                                                      \
    }
#include "../unary.def"
#undef TC_UNARY

static const chunk_function forward_functions[] = {
#define TC_UNARY(name, saved, value, gradient) forward_##name,
#include "../unary.def"
#undef TC_UNARY
};

static const chunk_function backward_functions[] = {
#define TC_UNARY(name, saved, value, gradient) backward_##name,
#include "../unary.def"
#undef TC_UNARY
};

TC_DEFINE_KERNEL(unary_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_elementwise_args *a = args;
    (void)scratch;
    run_floats(a, begin, end, forward_functions[a->function], IS_AMONG(LIGHT, a->function) ? ARRAYS : NO_OPERANDS);
}

TC_DEFINE_KERNEL(unary_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    tc_elementwise_args a = *(const tc_elementwise_args *)args;
    (void)scratch;
    if (!a.in[1].data) a.in[1] = a.in[0]; /* nothing is saved, nor read: all are arrays */
    run_floats(&a, begin, end, backward_functions[a.function], IS_AMONG(LIGHT, a.function) ? ARRAYS : NO_OPERANDS);
}
