/* binary.c: functions of two arguments and their gradients, one row of binary.def each, and `where`. */
#include "../function_ids.h"
#include "ahead.h"

typedef real element;
#include "activation.h"
#include "halves.h"

#define LIGHT                                                                                                                              \
    (ONLY(TC_BINARY_add) | ONLY(TC_BINARY_sub) | ONLY(TC_BINARY_mul) | ONLY(TC_BINARY_div) | ONLY(TC_BINARY_maximum) |                     \
     ONLY(TC_BINARY_minimum))
#define LIGHT_GRADIENTS (ONLY(TC_BINARY_sub) | ONLY(TC_BINARY_div))

/* Without a step, the real at p. */
TC_INLINE vreal lanes_of(const void *p, tc_stored stored, int step, int64_t i, int lanes)
{
    return step ? v_load_stored(stored_at(p, stored, i), stored, lanes) : v_set1(*(const real *)p);
}

TC_INLINE vreal part_of(const void *p, tc_stored stored, int step, int64_t i, line_part part)
{
    return step ? load_part(p, stored, i, part) : v_set1(*(const real *)p);
}

#define TC_BINARY_FLAT(name, value)                                                                                                        \
    TC_INLINE vreal value_##name(vreal a, vreal b) { return value; }                                                                       \
    TC_INLINE void loop_##name(const tc_stored stored, void *out, const void *a, int a_step, const void *b, int b_step, int64_t n)         \
    {                                                                                                                                      \
        const int64_t ahead = array_ahead();                                                                                               \
        int64_t i = 0, line;                                                                                                               \
        for (; i + LINE <= n; i += line) {                                                                                                 \
            line = next_line(stored, n - i);                                                                                               \
            if (a_step) read_ahead(stored_at(a, stored, i + ahead));                                                                       \
            if (b_step) read_ahead(stored_at(b, stored, i + ahead));                                                                       \
            write_ahead(stored_to(out, stored, i + ahead));                                                                                \
            STORE_LINE(out, stored, i, line, value_##name(part_of(a, stored, a_step, j, part), part_of(b, stored, b_step, j, part)));      \
        }                                                                                                                                  \
        for (; i < n; i += TC_LANES) {                                                                                                     \
            const int lanes = v_left(n, i);                                                                                                \
            v_store_stored(stored_to(out, stored, i), stored,                                                                              \
                           value_##name(lanes_of(a, stored, a_step, i, lanes), lanes_of(b, stored, b_step, i, lanes)), lanes);             \
        }                                                                                                                                  \
    }                                                                                                                                      \
    TC_INLINE void by_steps_##name(const tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)                   \
    {                                                                                                                                      \
        LOOP_BY_STEPS(loop_##name, in, step, n, stored, out);                                                                              \
    }                                                                                                                                      \
    CHUNK_OF_STORED(IS_AMONG(LIGHT, TC_BINARY_##name), by_steps_##name, forward_##name)
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b)                                                                   \
    TC_BINARY_FLAT(name, value)                                                                                                            \
    TC_BINARY_GRADIENT(name, a, gradient_a)                                                                                                \
    TC_BINARY_GRADIENT(name, b, gradient_b)
/* An operand that the gradient does not read is not passed: any other takes its place. */
#define TC_BINARY_GRADIENT(name, of, gradient)                                                                                             \
    TC_INLINE vreal slope_##name##_##of(vreal g, vreal a, vreal b)                                                                         \
    {                                                                                                                                      \
        (void)a, (void)b;                                                                                                                  \
        return gradient;                                                                                                                   \
    }                                                                                                                                      \
    TC_INLINE void line_##name##_##of(const tc_stored stored, void *out, const void *const *in, int64_t n)                                 \
    {                                                                                                                                      \
        const void *const g = in[0], *const a = in[1], *const b = in[2];                                                                   \
        const int64_t ahead = array_ahead();                                                                                               \
        for (int64_t i = 0, line; i < n; i += line) {                                                                                      \
            line = next_line(stored, n - i);                                                                                               \
            read_ahead(stored_at(g, stored, i + ahead));                                                                                   \
            read_ahead(stored_at(a, stored, i + ahead));                                                                                   \
            read_ahead(stored_at(b, stored, i + ahead));                                                                                   \
            write_ahead(stored_to(out, stored, i + ahead));                                                                                \
            STORE_LINE(out, stored, i, line,                                                                                               \
                       slope_##name##_##of(load_part(g, stored, j, part), load_part(a, stored, j, part), load_part(b, stored, j, part)));  \
        }                                                                                                                                  \
    }                                                                                                                                      \
    LINES_OF_STORED(IS_AMONG(LIGHT_GRADIENTS, TC_BINARY_##name), line_##name##_##of, lines_##name##_##of)                                  \
    static void backward_##name##_##of(tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)                     \
    {                                                                                                                                      \
        by_lines(lines_##name##_##of, 3, stored, out, in, step, n);                                                                        \
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

static void binary_forward(const tc_elementwise_args *a, int64_t begin, int64_t end)
{
    run_floats(a, begin, end, forward_functions[a->function], IS_AMONG(LIGHT, a->function) ? ARRAYS_AND_NUMBERS : NO_OPERANDS);
}

TC_DEFINE_KERNEL(binary_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    binary_forward(args, begin, end);
}

/* Which of a and b a gradient reads. */
enum { NONE, A, B, BOTH };
static const int8_t reads[] = {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b) needs_a, needs_b,
#define TC_BINARY_FLAT(name, value)
#include "../binary.def"
#undef TC_BINARY_FLAT
#undef TC_BINARY
};

/* Products and quotients of dy and the other operand are functions of two arguments, which take numbers, rows and columns as they are. */
static bool is_forward(int gradient)
{
    return gradient == 2 * TC_BINARY_mul || gradient == 2 * TC_BINARY_mul + 1 || gradient == 2 * TC_BINARY_div;
}

TC_DEFINE_KERNEL(binary_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    tc_elementwise_args a = *(const tc_elementwise_args *)args;
    const int gradient = a.function;
    (void)scratch;
    if (is_forward(gradient)) {
        a.function = gradient / 2;
        a.inputs = 2;
        if (reads[gradient] == B) a.in[1] = a.in[2];
        binary_forward(&a, begin, end);
        return;
    }
    for (int k = 1; k <= 2; k++) /* dy in the place of what is not read, so that all are arrays */
        if (!(reads[gradient] & k) && operand_is_dense(&a.in[0], a.ndim, a.shape)) a.in[k] = a.in[0];
    run_floats(&a, begin, end, backward_functions[gradient], IS_AMONG(LIGHT_GRADIENTS, gradient / 2) ? ARRAYS : NO_OPERANDS);
}

/* NOLINTBEGIN(clang-analyzer-core.*): these have three inputs, which the analyzer does not know. */
TC_INLINE void choose_stored(const tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)
{
    for (int64_t i = 0; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        const vreal condition = lanes_of(in[0], stored, step[0], i, lanes);
        v_store_stored(
            stored_to(out, stored, i), stored,
            v_select(v_nonzero(condition), lanes_of(in[1], stored, step[1], i, lanes), lanes_of(in[2], stored, step[2], i, lanes)), lanes);
    }
}
CHUNK_OF_STORED(false, choose_stored, choose)

TC_INLINE void clamp_stored(const tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)
{
    int64_t i = 0, line;
    if (step[0] && !step[1] && !step[2]) { /* two numbers */
        const vreal low = v_set1(*(const real *)in[1]), high = v_set1(*(const real *)in[2]);
        const int64_t ahead = array_ahead();
        for (; i + LINE <= n; i += line) {
            line = next_line(stored, n - i);
            read_ahead(stored_at(in[0], stored, i + ahead));
            write_ahead(stored_to(out, stored, i + ahead));
            STORE_LINE(out, stored, i, line, v_minimum(v_maximum(load_part(in[0], stored, j, part), low), high));
        }
    }
    for (; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        const vreal risen = v_maximum(lanes_of(in[0], stored, step[0], i, lanes), lanes_of(in[1], stored, step[1], i, lanes));
        v_store_stored(stored_to(out, stored, i), stored, v_minimum(risen, lanes_of(in[2], stored, step[2], i, lanes)), lanes);
    }
}
CHUNK_OF_STORED(CONVERTS_HALVES, clamp_stored, clamp)

TC_INLINE void keep_same_stored(const tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)
{
    int64_t i = 0;
    for (; step[0] && step[1] && step[2] && i + TC_LANES <= n; i += TC_LANES)
        store_lanes(out, stored, i,
                    v_select(v_eq(load_part(in[1], stored, i, PART_VECTOR), load_part(in[2], stored, i, PART_VECTOR)),
                             load_part(in[0], stored, i, PART_VECTOR), v_zero()));
    for (; i < n; i += TC_LANES) {
        const int lanes = v_left(n, i);
        const vmask same = v_eq(lanes_of(in[1], stored, step[1], i, lanes), lanes_of(in[2], stored, step[2], i, lanes));
        v_store_stored(stored_to(out, stored, i), stored, v_select(same, lanes_of(in[0], stored, step[0], i, lanes), v_zero()), lanes);
    }
}
CHUNK_OF_STORED(CONVERTS_HALVES, keep_same_stored, keep_same)

#define OF_THREE(name, value)                                                                                                              \
    TC_INLINE vreal value_##name(vreal x, vreal y, vreal z) { return value; }                                                              \
    TC_INLINE void loop_##name(const tc_stored stored, void *out, const void *x, int x_step, const void *y, int y_step, const void *z,     \
                               int z_step, int64_t n)                                                                                      \
    {                                                                                                                                      \
        const int64_t ahead = array_ahead();                                                                                               \
        int64_t i = 0, line;                                                                                                               \
        for (; i + LINE <= n; i += line) {                                                                                                 \
            line = next_line(stored, n - i);                                                                                               \
            if (x_step) read_ahead(stored_at(x, stored, i + ahead));                                                                       \
            if (y_step) read_ahead(stored_at(y, stored, i + ahead));                                                                       \
            write_ahead(stored_to(out, stored, i + ahead));                                                                                \
            STORE_LINE(out, stored, i, line,                                                                                               \
                       value_##name(part_of(x, stored, x_step, j, part), part_of(y, stored, y_step, j, part),                              \
                                    part_of(z, stored, z_step, j, part)));                                                                 \
        }                                                                                                                                  \
        for (; i < n; i += TC_LANES) {                                                                                                     \
            const int lanes = v_left(n, i);                                                                                                \
            const vreal result = value_##name(lanes_of(x, stored, x_step, i, lanes), lanes_of(y, stored, y_step, i, lanes),                \
                                              lanes_of(z, stored, z_step, i, lanes));                                                      \
            v_store_stored(stored_to(out, stored, i), stored, result, lanes);                                                              \
        }                                                                                                                                  \
    }                                                                                                                                      \
    TC_INLINE void name##_stored(const tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)                     \
    {                                                                                                                                      \
        if (!step[0] || !step[1])                                                                                                          \
            loop_##name(stored, out, in[0], step[0], in[1], step[1], in[2], step[2], n);                                                   \
        else if (step[2])                                                                                                                  \
            loop_##name(stored, out, in[0], 1, in[1], 1, in[2], 1, n);                                                                     \
        else                                                                                                                               \
            loop_##name(stored, out, in[0], 1, in[1], 1, in[2], 0, n);                                                                     \
    }                                                                                                                                      \
    CHUNK_OF_STORED(CONVERTS_HALVES, name##_stored, name)
OF_THREE(add_product, x + y * z)
OF_THREE(lerp, v_select(v_lt(v_abs(z), v_set1(R(0.5))), x + (y - x) * z, y - (y - x) * (v_set1(R(1.0)) - z)))
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
    run_floats(a, begin, end, choices[a->function], a->function == TC_CHOICE_where ? NO_OPERANDS : ARRAYS_AND_NUMBERS);
}
