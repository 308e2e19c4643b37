/* run_elementwise.h: the walk over the operands of an element-wise kernel, chunk by chunk. Included after `element` is defined. */
#ifndef TC_RUN_ELEMENTWISE_H
#define TC_RUN_ELEMENTWISE_H

#include "strided.h"

/* C order without gaps over the whole shape. */
TC_INLINE bool operand_is_dense(const tc_operand *operand, int ndim, const int64_t *shape)
{
    int64_t step = 1;
    for (int axis = ndim - 1; axis >= 0; axis--) {
        if (operand->strides[axis] != step) return false;
        step *= shape[axis];
    }
    return true;
}

TC_INLINE strided array_of(const tc_operand *operand) { return (strided){operand->data, operand->dtype, operand->strides}; }

/* loop(out ..., a, step of a, b, step of b, n): the compiler makes a copy of it for the steps 1 and 1, 1 and 0, and 0 and any. */
#define LOOP_BY_STEPS(loop, in, step, n, ...)                                                                                              \
    do {                                                                                                                                   \
        if (step[0] && step[1])                                                                                                            \
            loop(__VA_ARGS__, in[0], 1, in[1], 1, n);                                                                                      \
        else if (step[0])                                                                                                                  \
            loop(__VA_ARGS__, in[0], 1, in[1], 0, n);                                                                                      \
        else                                                                                                                               \
            loop(__VA_ARGS__, in[0], 0, in[1], step[1], n);                                                                                \
    } while (0)

/* The only value of an operand. */
static element number_of(const tc_operand *operand)
{
    element number;
    if (operand->data) {
        cast_runs[operand->dtype][ELEMENT_DTYPE](&number, 1, operand->data, 0, 1);
        return number;
    }
#ifdef INTEGER_DTYPE
    return (element)operand->integer;
#else
    return (element)operand->value;
#endif
}

/* How one operand is read or written, chosen once per call. */
typedef enum stream_kind {
    STREAM_CONSTANT, /* one value throughout */
    STREAM_DENSE,    /* in place, across axes */
    STREAM_CAST,     /* the same, of another dtype */
    STREAM_RUN,      /* in place along the innermost axis */
    STREAM_REPEAT,   /* one value along the innermost axis */
    STREAM_ROW,      /* two axes, the last short: the same row throughout, which is in the buffer several times */
    STREAM_COLUMN,   /* two such axes: one value for each row */
    STREAM_GATHER
} stream_kind;

static stream_kind stream_kind_of(const tc_operand *operand, int ndim, const int64_t *shape, bool long_runs)
{
    if (!operand->data) return STREAM_CONSTANT;
    bool repeats = true; /* along every axis */
    for (int axis = 0; axis < ndim; axis++) repeats &= operand->strides[axis] == 0;
    if (repeats) return STREAM_CONSTANT;
    const bool same = operand->dtype == ELEMENT_DTYPE;
    if (operand_is_dense(operand, ndim, shape)) return same ? STREAM_DENSE : STREAM_CAST;
    const bool has_short_rows = ndim == 2 && shape[1] <= STRIDED_CHUNK / 2;
    if (has_short_rows && operand->strides[0] == 0) return STREAM_ROW;
    if (has_short_rows && shape[1] >= STRIDED_SHORT && operand->strides[1] == 0) return STREAM_COLUMN;
    if (long_runs && operand->strides[ndim - 1] == 0) return STREAM_REPEAT;
    if (long_runs && same && operand->strides[ndim - 1] == 1) return STREAM_RUN;
    return STREAM_GATHER;
}

/* From one run to the next of an operand that is read or written in place. */
static int64_t row_step_of(const tc_operand *operand, stream_kind kind, int inner, const int64_t *shape)
{
    return kind == STREAM_CONSTANT ? 0 : kind == STREAM_DENSE ? shape[inner] : operand->strides[inner - 1];
}

/* Computes a chunk: out[0 .. n-1] from in[k][i * step[k]], steps 0 or 1. Where `stored` says so, out and all in[k] with a step are halves:
 * see halves.h. */
typedef void (*chunk_function)(tc_stored stored, void *out, const void *const *in, const int *step, int64_t n);

/* Runs `function` over the elements of items [begin, end). */
static void run_elementwise(const tc_elementwise_args *a, int64_t begin, int64_t end, chunk_function function)
{
    element buffers[TC_ELEMENT_INPUTS + 1][STRIDED_CHUNK] __attribute__((aligned(64)));
    const int ndim = a->ndim, inner = ndim - 1;
    const bool long_runs = ndim > 0 && a->shape[inner] >= STRIDED_LONG;
    const void *in[TC_ELEMENT_INPUTS];
    int step[TC_ELEMENT_INPUTS];
    int64_t row_step[TC_ELEMENT_INPUTS];
    stream_kind kinds[TC_ELEMENT_INPUTS] = {STREAM_CONSTANT};
    bool by_run = false, by_chunk = false, casts_repeats = false;
    int64_t longest = STRIDED_CHUNK; /* chunk */
    const int64_t last = end * TC_ELEMENT_BLOCK < a->numel ? end * TC_ELEMENT_BLOCK : a->numel;
    for (int k = 0; k < a->inputs; k++) {
        const tc_operand *operand = &a->in[k];
        kinds[k] = stream_kind_of(operand, ndim, a->shape, long_runs);
        by_run |= kinds[k] == STREAM_RUN || kinds[k] == STREAM_REPEAT;
        casts_repeats |= kinds[k] == STREAM_REPEAT && operand->dtype != ELEMENT_DTYPE;
        by_chunk |= kinds[k] == STREAM_CAST || kinds[k] == STREAM_GATHER || kinds[k] == STREAM_ROW || kinds[k] == STREAM_COLUMN;
        if (kinds[k] == STREAM_ROW) {
            longest = STRIDED_CHUNK - a->shape[1]; /* from any place of the row on */
            repeat_row(buffers[k], ELEMENT_DTYPE, array_of(operand), a->shape[1], a->shape[1] + last - begin * TC_ELEMENT_BLOCK);
        }
        step[k] = kinds[k] != STREAM_CONSTANT && kinds[k] != STREAM_REPEAT;
        in[k] = buffers[k];
        if (kinds[k] != STREAM_CONSTANT) continue;
        buffers[k][0] = number_of(operand);
    }
    const stream_kind out_kind = stream_kind_of(&a->out, ndim, a->shape, long_runs);
    const bool out_dense = ndim == 0 ? a->out.dtype == ELEMENT_DTYPE : out_kind == STREAM_DENSE;
    by_run |= out_kind == STREAM_RUN;
    by_chunk |= !out_dense && out_kind != STREAM_RUN;

    const bool by_rows = by_run && !by_chunk && !casts_repeats && inner > 0; /* whole runs follow one another without a new position */
    for (int k = 0; by_rows && k < a->inputs; k++) row_step[k] = row_step_of(&a->in[k], kinds[k], inner, a->shape);
    const int64_t out_row_step = by_rows ? row_step_of(&a->out, out_kind, inner, a->shape) : 0;

    position at = position_of(begin * TC_ELEMENT_BLOCK, ndim, a->shape);
    for (int64_t i = begin * TC_ELEMENT_BLOCK, n; i < last; i += n) {
        n = last - i;
        if (by_run && n > a->shape[inner] - at.index[inner]) n = a->shape[inner] - at.index[inner];
        if (by_chunk && n > longest) n = longest;
        for (int k = 0; k < a->inputs; k++) {
            const tc_operand *operand = &a->in[k];
            if (kinds[k] == STREAM_DENSE)
                in[k] = (const element *)operand->data + i;
            else if (kinds[k] == STREAM_CAST)
                cast_runs[operand->dtype][ELEMENT_DTYPE](buffers[k], 1, (const char *)operand->data + i * element_bytes[operand->dtype], 1,
                                                         n);
            else if (kinds[k] == STREAM_RUN || (kinds[k] == STREAM_REPEAT && operand->dtype == ELEMENT_DTYPE))
                in[k] = (const element *)operand->data + position_offset(&at, ndim, operand->strides);
            else if (kinds[k] == STREAM_ROW)
                in[k] = buffers[k] + at.index[1];
            else if (kinds[k] == STREAM_COLUMN)
                spread_column(buffers[k], ELEMENT_DTYPE, array_of(operand), &at, n, a->shape[1]);
            else if (kinds[k] == STREAM_REPEAT)
                cast_runs[operand->dtype][ELEMENT_DTYPE](buffers[k], 1, strided_from(array_of(operand), &at, ndim).data, 0, 1);
            else if (kinds[k] == STREAM_GATHER)
                gather(buffers[k], ELEMENT_DTYPE, array_of(operand), &at, n, ndim, a->shape);
        }
        element *out = buffers[TC_ELEMENT_INPUTS];
        if (out_dense)
            out = (element *)a->out.data + i;
        else if (out_kind == STREAM_RUN)
            out = (element *)a->out.data + position_offset(&at, ndim, a->out.strides);
        function(TC_STORED_AS_COMPUTED, out, in, step, n);
        if (by_rows && n == a->shape[inner]) {
            const int64_t left = a->shape[inner - 1] - at.index[inner - 1], more = (last - i) / n;
            const int64_t rows = left < more ? left : more;
            for (int64_t row = 1; row < rows; row++) {
                for (int k = 0; k < a->inputs; k++) in[k] = (const element *)in[k] + row_step[k];
                out += out_row_step;
                function(TC_STORED_AS_COMPUTED, out, in, step, n);
            }
            at.index[inner - 1] += rows - 1;
            i += (rows - 1) * n;
        }
        if (out_kind == STREAM_CAST)
            cast_runs[ELEMENT_DTYPE][a->out.dtype]((char *)a->out.data + i * element_bytes[a->out.dtype], 1, out, 1, n);
        else if (!out_dense && out_kind != STREAM_RUN)
            scatter(array_of(&a->out), out, ELEMENT_DTYPE, &at, n, ndim, a->shape);
        if (by_run)
            position_advance(&at, n, ndim, a->shape);
        else if (by_chunk)
            at = position_of(i + n, ndim, a->shape);
    }
}

#endif
