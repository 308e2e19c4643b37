/* unary.c: functions of one argument and their gradients, one row of unary.def each. */
#include "../function_ids.h"
#include "ahead.h"

typedef real element;
#include "activation.h"
#include "run_elementwise.h"

/* relu6(x + 3) / 6: a sigmoid made of straight lines */
TC_INLINE vreal v_hardsigmoid(vreal x)
{
    const vreal six = v_set1(R(6.0));
    return v_minimum(v_maximum(x + v_set1(R(3.0)), v_zero()), six) / six;
}

TC_INLINE vreal lanes_of(const real *p, int step, int64_t i, int lanes) { return step ? v_load_some(p + i, lanes) : v_set1(p[0]); }

#define TC_UNARY(name, saved, value, gradient)                                                                                             \
    TC_INLINE vreal value_##name(vreal x) { return value; }                                                                                \
    static void forward_##name(real *out, const real *const *in, const int *step, int64_t n)                                               \
    {                                                                                                                                      \
        const int64_t ahead = array_ahead();                                                                                               \
        int64_t i = 0;                                                                                                                     \
        for (; step[0] && i + LINE <= n; i += LINE) {                                                                                      \
            read_ahead(in[0] + i + ahead);                                                                                                 \
            write_ahead(out + i + ahead);                                                                                                  \
            EACH_OF_LINE(j, i) v_store(out + j, value_##name(v_load(in[0] + j)));                                                          \
        }                                                                                                                                  \
        for (; i < n; i += TC_LANES) {                                                                                                     \
            const int lanes = v_left(n, i);                                                                                                \
            v_store_some(out + i, value_##name(lanes_of(in[0], step[0], i, lanes)), lanes);                                                \
        }                                                                                                                                  \
    }                                                                                                                                      \
    TC_INLINE vreal gradient_##name(vreal g, vreal x) /* x is the saved tensor, x or y */                                                  \
    {                                                                                                                                      \
        const vreal y = x;                                                                                                                 \
        (void)y;                                                                                                                           \
        return gradient;                                                                                                                   \
    }                                                                                                                                      \
    static void backward_##name(real *out, const real *const *in, const int *step, int64_t n)                                              \
    {                                                                                                                                      \
        const int64_t ahead = array_ahead();                                                                                               \
        int64_t i = 0;                                                                                                                     \
        for (; step[0] && step[1] && i + LINE <= n; i += LINE) {                                                                           \
            read_ahead(in[0] + i + ahead);                                                                                                 \
            read_ahead(in[1] + i + ahead);                                                                                                 \
            write_ahead(out + i + ahead);                                                                                                  \
            EACH_OF_LINE(j, i) v_store(out + j, gradient_##name(v_load(in[0] + j), v_load(in[1] + j)));                                    \
        }                                                                                                                                  \
        for (; i < n; i += TC_LANES) {                                                                                                     \
            const int lanes = v_left(n, i);                                                                                                \
            v_store_some(out + i, gradient_##name(lanes_of(in[0], step[0], i, lanes), lanes_of(in[1], step[1], i, lanes)), lanes);         \
        }                                                                                                                                  \
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
