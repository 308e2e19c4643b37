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
/* How all operands but numbers are stored, if they are dense halves of one dtype (of another dtype than the arithmetic: STREAM_CAST). */
static tc_stored stored_throughout(const tc_elementwise_args *a, halves_among takes)
{
    const int dtype = a->out.dtype;
    if (takes == NO_OPERANDS || (dtype != TC_FLOAT16 && dtype != TC_BFLOAT16)) return TC_STORED_AS_COMPUTED;
    if (a->ndim == 0 || !operand_is_dense(&a->out, a->ndim, a->shape)) return TC_STORED_AS_COMPUTED;
    for (int k = 0; k < a->inputs; k++) {
        const stream_kind kind = stream_kind_of(&a->in[k], a->ndim, a->shape, false);
        if (kind == STREAM_CONSTANT ? takes == ARRAYS : kind != STREAM_CAST || a->in[k].dtype != dtype) return TC_STORED_AS_COMPUTED;
    }
    return dtype == TC_FLOAT16 ? TC_STORED_FLOAT16 : TC_STORED_BFLOAT16;
}

static void run_halves(const tc_elementwise_args *a, int64_t begin, int64_t end, chunk_function function, tc_stored stored)
{
    const int64_t first = begin * TC_ELEMENT_BLOCK, last = end * TC_ELEMENT_BLOCK;
    real numbers[TC_ELEMENT_INPUTS];
    const void *in[TC_ELEMENT_INPUTS];
    int step[TC_ELEMENT_INPUTS];
    for (int k = 0; k < a->inputs; k++) {
        step[k] = stream_kind_of(&a->in[k], a->ndim, a->shape, false) != STREAM_CONSTANT;
        in[k] = step[k] ? stored_at(a->in[k].data, stored, first) : &numbers[k];
        if (!step[k]) numbers[k] = number_of(&a->in[k]);
    }
    function(stored, stored_to(a->out.data, stored, first), in, step, (last < a->numel ? last : a->numel) - first);
}
#endif

static void run_floats(const tc_elementwise_args *a, int64_t begin, int64_t end, chunk_function function, halves_among takes)
{
#ifdef V_CONVERTS_HALVES
    const tc_stored stored = stored_throughout(a, takes);
    if (stored != TC_STORED_AS_COMPUTED) {
        run_halves(a, begin, end, function, stored);
        return;
    }
#else
    (void)takes;
#endif
    run_elementwise(a, begin, end, function);
}

#endif
