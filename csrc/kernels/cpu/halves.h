/* halves.h: element-wise kernels of floats. In chunks, that a function computes between two conversions, each element of halves is stored
 * three times. Light functions, which take no longer than that, have a loop that widens, computes and rounds dense halves at once. Longer
 * ones gain nothing: beside their constants there are no registers for those of the conversions. Where conversions are no instructions but
 * arithmetic, no function gains. */
#ifndef TC_HALVES_H
#define TC_HALVES_H

#include "by_lines.h"
#include "run_elementwise.h"

/* name: the chunk_function of an inlined one, with `stored` as a constant; unless it is light, halves are not passed. */
#define CHUNK_OF_STORED(light, inlined, name)                                                                                              \
    static void name(tc_stored stored, void *out, const void *const *in, const int *step, int64_t n)                                       \
    {                                                                                                                                      \
        if (light) {                                                                                                                       \
            WITH_STORED(stored, inlined, out, in, step, n);                                                                                \
        } else {                                                                                                                           \
            inlined(TC_STORED_AS_COMPUTED, out, in, step, n);                                                                              \
        }                                                                                                                                  \
    }

/* Whether a function is in a set of light ones. */
#define ONLY(function) ((uint64_t)1 << (function))
#define IS_AMONG(light, function) (CONVERTS_HALVES && ((light)&ONLY(function)) != 0)

/* What operands a chunk_function takes halves among: numbers are a real without a step. */
typedef enum halves_among { NO_OPERANDS, ARRAYS, ARRAYS_AND_NUMBERS } halves_among;

#ifdef V_CONVERTS_HALVES
#define LONG_HALVES 128 /* elements of a run from which on finding the next one takes little beside it */

/* How all operands but numbers are stored, if they are halves of one dtype that are dense, over all axes (*flat) or in long runs along the
 * innermost one, of which an operand may have a value for each. (Of another dtype than the arithmetic: STREAM_CAST.) */
static tc_stored stored_throughout(const tc_elementwise_args *a, halves_among takes, bool *flat)
{
    const int dtype = a->out.dtype, inner = a->ndim - 1;
    if (takes == NO_OPERANDS || (dtype != TC_FLOAT16 && dtype != TC_BFLOAT16) || a->ndim == 0) return TC_STORED_AS_COMPUTED;
    *flat = operand_is_dense(&a->out, a->ndim, a->shape);
    if (!*flat && a->out.strides[inner] != 1) return TC_STORED_AS_COMPUTED;
    for (int k = 0; k < a->inputs; k++) {
        const stream_kind kind = stream_kind_of(&a->in[k], a->ndim, a->shape, false);
        if (kind == STREAM_CONSTANT && takes == ARRAYS) return TC_STORED_AS_COMPUTED;
        if (kind == STREAM_CONSTANT) continue;
        const int64_t stride = a->in[k].strides[inner];
        if (a->in[k].dtype != dtype || (stride != 1 && (stride != 0 || takes == ARRAYS))) return TC_STORED_AS_COMPUTED;
        *flat &= kind == STREAM_CAST;
    }
    if (!*flat && a->shape[inner] < LONG_HALVES) return TC_STORED_AS_COMPUTED;
    return dtype == TC_FLOAT16 ? TC_STORED_FLOAT16 : TC_STORED_BFLOAT16;
}

static void run_halves(const tc_elementwise_args *a, int64_t begin, int64_t end, chunk_function function, tc_stored stored, bool flat)
{
    const int64_t stop = end * TC_ELEMENT_BLOCK, last = stop < a->numel ? stop : a->numel;
    const int inner = a->ndim - 1;
    real numbers[TC_ELEMENT_INPUTS];
    const void *in[TC_ELEMENT_INPUTS];
    int step[TC_ELEMENT_INPUTS];
    bool varies[TC_ELEMENT_INPUTS];
    for (int k = 0; k < a->inputs; k++) {
        const bool constant = stream_kind_of(&a->in[k], a->ndim, a->shape, false) == STREAM_CONSTANT;
        step[k] = !constant && (flat || a->in[k].strides[inner] != 0);
        varies[k] = !constant && !step[k];
        in[k] = &numbers[k];
        if (constant) numbers[k] = number_of(&a->in[k]);
    }
    position at = position_of(begin * TC_ELEMENT_BLOCK, a->ndim, a->shape);
    for (int64_t i = begin * TC_ELEMENT_BLOCK, n; i < last; i += n) {
        n = last - i;
        if (!flat && n > a->shape[inner] - at.index[inner]) n = a->shape[inner] - at.index[inner];
        for (int k = 0; k < a->inputs; k++) {
            if (!step[k] && !varies[k]) continue;
            const void *const x = stored_at(a->in[k].data, stored, flat ? i : position_offset(&at, a->ndim, a->in[k].strides));
            if (step[k])
                in[k] = x;
            else
                numbers[k] = load_stored(x, stored);
        }
        function(stored, stored_to(a->out.data, stored, flat ? i : position_offset(&at, a->ndim, a->out.strides)), in, step, n);
        if (!flat) position_advance(&at, n, a->ndim, a->shape);
    }
}
#endif

static void run_floats(const tc_elementwise_args *a, int64_t begin, int64_t end, chunk_function function, halves_among takes)
{
#ifdef V_CONVERTS_HALVES
    bool flat;
    const tc_stored stored = stored_throughout(a, takes, &flat);
    if (stored != TC_STORED_AS_COMPUTED) {
        run_halves(a, begin, end, function, stored, flat);
        return;
    }
#else
    (void)takes;
#endif
    run_elementwise(a, begin, end, function);
}

#endif
