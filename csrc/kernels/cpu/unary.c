/* unary.c: functions of one argument and their gradients, one row of unary.def each. */
#include "../function_ids.h"
#include "ahead.h"

typedef real element;
#include "activation.h"
#include "by_lines.h"
#include "run_elementwise.h"

/* relu6(x + 3) / 6: a sigmoid made of straight lines */
TC_INLINE vreal v_hardsigmoid(vreal x)
{
    const vreal six = v_set1(R(6.0));
    return v_minimum(v_maximum(x + v_set1(R(3.0)), v_zero()), six) / six;
}

#define TC_UNARY(name, saved, value, gradient)                                                                                             \
    TC_INLINE vreal value_##name(vreal x) { return value; }                                                                                \
    static void forward_lines_##name(real *out, const real *const *in, int64_t n)                                                          \
    {                                                                                                                                      \
        const real *const x = in[0];                                                                                                       \
        const int64_t ahead = array_ahead();                                                                                               \
        for (int64_t i = 0; i < n; i += LINE) {                                                                                            \
            read_ahead(x + i + ahead);                                                                                                     \
            write_ahead(out + i + ahead);                                                                                                  \
            EACH_OF_LINE(j, i) v_store(out + j, value_##name(v_load(x + j)));                                                              \
        }                                                                                                                                  \
    }                                                                                                                                      \
    static void forward_##name(real *out, const real *const *in, const int *step, int64_t n)                                               \
    {                                                                                                                                      \
        by_lines(forward_lines_##name, 1, out, in, step, n);                                                                               \
    }                                                                                                                                      \
    TC_INLINE vreal gradient_##name(vreal g, vreal x) /* x is the saved tensor, x or y */                                                  \
    {                                                                                                                                      \
        const vreal y = x;                                                                                                                 \
        (void)y;                                                                                                                           \
        return gradient;                                                                                                                   \
    }                                                                                                                                      \
    static void backward_lines_##name(real *out, const real *const *in, int64_t n)                                                         \
    {                                                                                                                                      \
        const real *const g = in[0], *const kept = in[1];                                                                                  \
        const int64_t ahead = array_ahead();                                                                                               \
        for (int64_t i = 0; i < n; i += LINE) {                                                                                            \
            read_ahead(g + i + ahead);                                                                                                     \
            read_ahead(kept + i + ahead);                                                                                                  \
            write_ahead(out + i + ahead);                                                                                                  \
            EACH_OF_LINE(j, i) v_store(out + j, gradient_##name(v_load(g + j), v_load(kept + j)));                                         \
        }                                                                                                                                  \
    }                                                                                                                                      \
    static void backward_##name(real *out, const real *const *in, const int *step, int64_t n)                                              \
    {                                                                                                                                      \
        by_lines(backward_lines_##name, 2, out, in, step, n);                                                                              \
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
    run_elementwise(a, begin, end, forward_functions[a->function]);
}

TC_DEFINE_KERNEL(unary_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_elementwise_args *a = args;
    (void)scratch;
    run_elementwise(a, begin, end, backward_functions[a->function]);
}
