/* binary.c: functions of two arguments and their gradients, one row of binary.def each, and `where`. */
#include "../function_ids.h"
#include "ahead.h"

typedef real element;
#include "activation.h"
#include "by_lines.h"
#include "run_elementwise.h"

TC_INLINE vreal lanes_of(const real *p, int step, int64_t i, int lanes) { return step ? v_load_some(p + i, lanes) : v_set1(p[0]); }

#define TC_BINARY_FLAT(name, value)                                                                                                        \
    TC_INLINE vreal value_##name(vreal a, vreal b) { return value; }                                                                       \
    TC_INLINE void loop_##name(real *out, const real *a, int a_step, const real *b, int b_step, int64_t n)                                 \
    {                                                                                                                                      \
        const int64_t ahead = array_ahead();                                                                                               \
        int64_t i = 0;                                                                                                                     \
        for (; i + LINE <= n; i += LINE) {                                                                                                 \
            if (a_step) read_ahead(a + i + ahead);                                                                                         \
            if (b_step) read_ahead(b + i + ahead);                                                                                         \
            write_ahead(out + i + ahead);                                                                                                  \
            EACH_OF_LINE(j, i)                                                                                                             \
            v_store(out + j, value_##name(lanes_of(a, a_step, j, TC_LANES), lanes_of(b, b_step, j, TC_LANES)));                            \
        }                                                                                                                                  \
        for (; i < n; i += TC_LANES) {                                                                                                     \
            const int lanes = v_left(n, i);                                                                                                \
            v_store_some(out + i, value_##name(lanes_of(a, a_step, i, lanes), lanes_of(b, b_step, i, lanes)), lanes);                      \
        }                                                                                                                                  \
    }                                                                                                                                      \
    static void forward_##name(real *out, const real *const *in, const int *step, int64_t n)                                               \
    {                                                                                                                                      \
        LOOP_BY_STEPS(loop_##name, out, in, step, n);                                                                                      \
    }
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b)                                                                   \
    TC_BINARY_FLAT(name, value)                                                                                                            \
    TC_BINARY_GRADIENT(name##_a, gradient_a)                                                                                               \
    TC_BINARY_GRADIENT(name##_b, gradient_b)
/* An operand that the gradient does not read is not passed: any other takes its place. */
#define TC_BINARY_GRADIENT(name, gradient)                                                                                                 \
    TC_INLINE vreal slope_##name(vreal g, vreal a, vreal b)                                                                                \
    {                                                                                                                                      \
        (void)a, (void)b;                                                                                                                  \
        return gradient;                                                                                                                   \
    }                                                                                                                                      \
    static void lines_##name(real *out, const real *const *in, int64_t n)                                                                  \
    {                                                                                                                                      \
        const real *const g = in[0], *const a = in[1], *const b = in[2];                                                                   \
        const int64_t ahead = array_ahead();                                                                                               \
        for (int64_t i = 0; i < n; i += LINE) {                                                                                            \
            read_ahead(g + i + ahead);                                                                                                     \
            read_ahead(a + i + ahead);                                                                                                     \
            read_ahead(b + i + ahead);                                                                                                     \
            write_ahead(out + i + ahead);                                                                                                  \
            EACH_OF_LINE(j, i) v_store(out + j, slope_##name(v_load(g + j), v_load(a + j), v_load(b + j)));                                \
        }                                                                                                                                  \
    }                                                                                                                                      \
    static void backward_##name(real *out, const real *const *in, const int *step, int64_t n)                                              \
    {                                                                                                                                      \
        by_lines(lines_##name, 3, out, in, step, n);                                                                                       \
    }
#define TC_BINARY_BITS(name)
#include "../binary.def"
#undef TC_BINARY_FLAT
#undef TC_BINARY

static const chunk_function forward_functions[] = {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b) forward_##name,
#define TC_BINARY_FLAT(name, value) forward_##name,
#include "../binary.def"
#undef TC_BINARY_FLAT
#undef TC_BINARY
};

static const chunk_function backward_functions[] = {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b) backward_##name##_a, backward_##name##_b,
#define TC_BINARY_FLAT(name, value)
#include "../binary.def"
#undef TC_BINARY_FLAT
#undef TC_BINARY
};

TC_DEFINE_KERNEL(binary_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_elementwise_args *a = args;
    (void)scratch;
    run_elementwise(a, begin, end, forward_functions[a->function]);
}

TC_DEFINE_KERNEL(binary_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_elementwise_args *a = args;
    (void)scratch;
    run_elementwise(a, begin, end, backward_functions[a->function]);
}

/* NOLINTBEGIN(clang-analyzer-core.*): these have three inputs, which the analyzer does not know. */
static void choose(real *out, const real *const *in, const int *step, int64_t n)
{
    for (int64_t i = 0; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        const vreal condition = lanes_of(in[0], step[0], i, lanes);
        v_store_some(out + i, v_select(v_nonzero(condition), lanes_of(in[1], step[1], i, lanes), lanes_of(in[2], step[2], i, lanes)),
                     lanes);
    }
}

static void clamp(real *out, const real *const *in, const int *step, int64_t n)
{
    int64_t i = 0;
    if (step[0] && !step[1] && !step[2]) { /* two numbers */
        const vreal low = v_set1(in[1][0]), high = v_set1(in[2][0]);
        const int64_t ahead = array_ahead();
        for (; i + LINE <= n; i += LINE) {
            read_ahead(in[0] + i + ahead);
            write_ahead(out + i + ahead);
            EACH_OF_LINE(j, i) v_store(out + j, v_minimum(v_maximum(v_load(in[0] + j), low), high));
        }
    }
    for (; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        const vreal risen = v_maximum(lanes_of(in[0], step[0], i, lanes), lanes_of(in[1], step[1], i, lanes));
        v_store_some(out + i, v_minimum(risen, lanes_of(in[2], step[2], i, lanes)), lanes);
    }
}

static void keep_same(real *out, const real *const *in, const int *step, int64_t n)
{
    int64_t i = 0;
    for (; step[0] && step[1] && step[2] && i + TC_LANES <= n; i += TC_LANES)
        v_store(out + i, v_select(v_eq(v_load(in[1] + i), v_load(in[2] + i)), v_load(in[0] + i), v_zero()));
    for (; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        const vmask same = v_eq(lanes_of(in[1], step[1], i, lanes), lanes_of(in[2], step[2], i, lanes));
        v_store_some(out + i, v_select(same, lanes_of(in[0], step[0], i, lanes), v_zero()), lanes);
    }
}

#define OF_THREE(name, value)                                                                                                              \
    TC_INLINE vreal value_##name(vreal x, vreal y, vreal z) { return value; }                                                              \
    TC_INLINE void loop_##name(real *out, const real *x, int x_step, const real *y, int y_step, const real *z, int z_step, int64_t n)      \
    {                                                                                                                                      \
        const int64_t ahead = array_ahead();                                                                                               \
        int64_t i = 0;                                                                                                                     \
        for (; i + LINE <= n; i += LINE) {                                                                                                 \
            if (x_step) read_ahead(x + i + ahead);                                                                                         \
            if (y_step) read_ahead(y + i + ahead);                                                                                         \
            write_ahead(out + i + ahead);                                                                                                  \
            EACH_OF_LINE(j, i)                                                                                                             \
            v_store(out + j,                                                                                                               \
                    value_##name(lanes_of(x, x_step, j, TC_LANES), lanes_of(y, y_step, j, TC_LANES), lanes_of(z, z_step, j, TC_LANES)));   \
        }                                                                                                                                  \
        for (; i < n; i += TC_LANES) {                                                                                                     \
            const int lanes = v_left(n, i);                                                                                                \
            const vreal result =                                                                                                           \
                value_##name(lanes_of(x, x_step, i, lanes), lanes_of(y, y_step, i, lanes), lanes_of(z, z_step, i, lanes));                 \
            v_store_some(out + i, result, lanes);                                                                                          \
        }                                                                                                                                  \
    }                                                                                                                                      \
    static void name(real *out, const real *const *in, const int *step, int64_t n)                                                         \
    {                                                                                                                                      \
        if (!step[0] || !step[1])                                                                                                          \
            loop_##name(out, in[0], step[0], in[1], step[1], in[2], step[2], n);                                                           \
        else if (step[2])                                                                                                                  \
            loop_##name(out, in[0], 1, in[1], 1, in[2], 1, n);                                                                             \
        else                                                                                                                               \
            loop_##name(out, in[0], 1, in[1], 1, in[2], 0, n);                                                                             \
    }
OF_THREE(add_product, x + y * z)
OF_THREE(lerp, x + (y - x) * z)
/* NOLINTEND(clang-analyzer-core.*) */

static const chunk_function choices[] = {[TC_CHOICE_where] = choose,
                                         [TC_CHOICE_clamp] = clamp,
                                         [TC_CHOICE_same] = keep_same,
                                         [TC_CHOICE_add_product] = add_product,
                                         [TC_CHOICE_lerp] = lerp};

TC_DEFINE_KERNEL(where_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_elementwise_args *a = args;
    (void)scratch;
    run_elementwise(a, begin, end, choices[a->function]);
}
