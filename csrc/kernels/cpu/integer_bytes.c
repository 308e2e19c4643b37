/* integer_bytes.c: the functions of two arguments of integer.def, `where` and `clamp`, of dense uint8 and of numbers. Blocks have a
 * constant length, so that compilers make loops of whole vectors, and no others. */
#if TC_PRECISION == 32

#include "integer_bytes.h"

#include <string.h>

#include "../function_ids.h"

#define BLOCK 256
#define WRAP(a, operator, b) ((uint8_t)((a) operator(b)))

/* A block of results, of blocks of arguments. */
typedef void (*byte_function)(uint8_t *out, const uint8_t *const *in);

TC_INLINE uint8_t integer_floor_divide(uint8_t a, uint8_t b) { return b ? a / b : 0; }

/* Never called: integer_bytes() leaves powers to the other functions, which take no more time. */
TC_INLINE uint8_t integer_power(uint8_t a, uint8_t b) { return (void)a, (void)b, (uint8_t)0; }

#define TC_INTEGER_UNARY(name, value)
#define TC_INTEGER_BINARY(name, value)                                                                                                     \
    static void bytes_##name(uint8_t *out, const uint8_t *const *in)                                                                       \
    {                                                                                                                                      \
        const uint8_t *p = in[0], *q = in[1];                                                                                              \
        SIDE_BY_SIDE                                                                                                                       \
        for (int i = 0; i < BLOCK; i++) {                                                                                                  \
            const uint8_t a = p[i], b = q[i];                                                                                              \
            out[i] = (uint8_t)(value);                                                                                                     \
        }                                                                                                                                  \
    }
#include "../integer.def"
#undef TC_INTEGER_BINARY

static const byte_function functions[TC_BINARY_COUNT] = {
#define TC_INTEGER_BINARY(name, value) [TC_BINARY_##name] = bytes_##name,
#include "../integer.def"
#undef TC_INTEGER_BINARY
};
#undef TC_INTEGER_UNARY

static void choose(uint8_t *out, const uint8_t *const *in)
{
    const uint8_t *c = in[0], *p = in[1], *q = in[2];
    SIDE_BY_SIDE
    for (int i = 0; i < BLOCK; i++) {
        const uint8_t a = p[i], b = q[i];
        out[i] = c[i] ? a : b;
    }
}

static void clamp(uint8_t *out, const uint8_t *const *in)
{
    const uint8_t *x = in[0], low = in[1][0], high = in[2][0];
    SIDE_BY_SIDE
    for (int i = 0; i < BLOCK; i++) {
        const uint8_t risen = x[i] < low ? low : x[i];
        out[i] = risen > high ? high : risen;
    }
}

static bool is_dense(const tc_operand *operand, int dtype) { return operand->dtype == dtype && operand->strides[0] == 1; }

bool integer_bytes(const tc_elementwise_args *a, int64_t begin, int64_t end)
{
    const bool clamps = a->inputs == 3 && a->function == TC_CHOICE_clamp, chooses = a->inputs == 3 && !clamps;
    const byte_function function = clamps ? clamp : chooses ? choose : functions[a->function];
    const int64_t last = end * TC_ELEMENT_BLOCK < a->numel ? end * TC_ELEMENT_BLOCK : a->numel;
    uint8_t blocks[TC_ELEMENT_INPUTS + 1][BLOCK];
    if (a->inputs == 2 && a->function == TC_BINARY_pow) return false;
    if (a->ndim != 1 || !(is_dense(&a->out, TC_UINT8) || (is_dense(&a->out, TC_BOOL) && a->inputs == 2))) return false;
    for (int k = 0; k < a->inputs; k++) {
        const tc_operand *in = &a->in[k];
        if (in->data ? !is_dense(in, chooses && k == 0 ? TC_BOOL : TC_UINT8) : in->integer != (uint8_t)in->integer) return false;
        if (!in->data) memset(blocks[k], (int)in->integer, BLOCK);
    }
    for (int64_t i = begin * TC_ELEMENT_BLOCK, n; i < last; i += n) {
        const uint8_t *in[TC_ELEMENT_INPUTS];
        uint8_t *const to = (uint8_t *)a->out.data + i;
        n = last - i < BLOCK ? last - i : BLOCK;
        for (int k = 0; k < a->inputs; k++) {
            in[k] = a->in[k].data ? (const uint8_t *)a->in[k].data + i : blocks[k];
            if (n == BLOCK || !a->in[k].data) continue;
            memcpy(blocks[k], in[k], (size_t)n);
            in[k] = blocks[k];
        }
        function(n == BLOCK ? to : blocks[TC_ELEMENT_INPUTS], in);
        if (n < BLOCK) memcpy(to, blocks[TC_ELEMENT_INPUTS], (size_t)n);
    }
    return true;
}
#endif
