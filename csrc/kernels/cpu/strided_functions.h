/* strided_functions.h: what strided.h declares, for one type of `element`. Included once for each. */
#ifndef TC_STRIDED_FUNCTIONS_H
#define TC_STRIDED_FUNCTIONS_H

#include "half.h"
#include "strided.h"

#define STRIDED_RUN(NAME, TO, FROM, VALUE)                                                                                                 \
    static void NAME(void *to_, int64_t to_step, const void *from_, int64_t step, int64_t n)                                               \
    {                                                                                                                                      \
        TO *to = to_;                                                                                                                      \
        const FROM *from = from_;                                                                                                          \
        if (to_step == 1 && step == 1)                                                                                                     \
            for (int64_t i = 0; i < n; i++) to[i] = (TO)VALUE(from[i]);                                                                    \
        else                                                                                                                               \
            for (int64_t i = 0; i < n; i++) to[i * to_step] = (TO)VALUE(from[i * step]);                                                   \
    }
#define STRIDED_LOAD(TYPE, VALUE) STRIDED_RUN(load_##TYPE, element, TYPE, VALUE)
#define STRIDED_STORE(TYPE, VALUE) STRIDED_RUN(store_##TYPE, TYPE, element, VALUE)
#define AS_IT_IS(x) (x)
#define NOT_ZERO(x) ((x) != 0)
STRIDED_LOAD(int64_t, AS_IT_IS)
STRIDED_LOAD(int32_t, AS_IT_IS)
STRIDED_LOAD(uint8_t, AS_IT_IS)
STRIDED_LOAD(boolean, NOT_ZERO)
STRIDED_STORE(boolean, NOT_ZERO)
#ifdef STRIDED_INTEGERS
STRIDED_STORE(int64_t, AS_IT_IS)
STRIDED_STORE(int32_t, AS_IT_IS)
STRIDED_STORE(uint8_t, AS_IT_IS)
/* The ops ensure that integer kernels get and write integers. */
const element_run element_loads[TC_DTYPE_COUNT] = {NULL, NULL, NULL, NULL, load_int64_t, load_int32_t, load_uint8_t, load_boolean};
const element_run element_stores[TC_DTYPE_COUNT] = {NULL, NULL, NULL, NULL, store_int64_t, store_int32_t, store_uint8_t, store_boolean};
#else
STRIDED_LOAD(float, AS_IT_IS)
STRIDED_LOAD(double, AS_IT_IS)
STRIDED_LOAD(float16, tc_from_float16)
STRIDED_LOAD(bfloat16, tc_from_bfloat16)
STRIDED_STORE(float, AS_IT_IS)
STRIDED_STORE(double, AS_IT_IS)
STRIDED_STORE(float16, tc_to_float16)
STRIDED_STORE(bfloat16, tc_to_bfloat16)
/* Results that are not floats are truth values. */
const element_run element_loads[TC_DTYPE_COUNT] = {load_float,   load_double,  load_float16, load_bfloat16,
                                                   load_int64_t, load_int32_t, load_uint8_t, load_boolean};
const element_run element_stores[TC_DTYPE_COUNT] = {store_float, store_double, store_float16, store_bfloat16,
                                                    NULL,        NULL,         NULL,          store_boolean};
#endif

/* How many short runs along the innermost axis begin at `at` and are worth walking across, one place of all of them after another: 0, or
 * more than such a run is long. n: the elements that are wanted. */
TC_INLINE int64_t short_runs(const position *at, int64_t n, int ndim, const int64_t *shape)
{
    if (ndim < 2 || shape[ndim - 1] >= STRIDED_SHORT || at->index[ndim - 1] != 0) return 0;
    const int64_t length = shape[ndim - 1], left = shape[ndim - 2] - at->index[ndim - 2], runs = left < n / length ? left : n / length;
    return runs > length ? runs : 0;
}

void gather(element *to, const void *data, int dtype, const int64_t *strides, position at, int64_t n, int ndim, const int64_t *shape)
{
    const element_run load = element_loads[dtype];
    const int64_t length = ndim ? shape[ndim - 1] : 1, step = ndim ? strides[ndim - 1] : 0;
    while (n > 0) {
        const char *from = (const char *)data + position_offset(&at, ndim, strides) * element_bytes[dtype];
        const int64_t runs = short_runs(&at, n, ndim, shape);
        if (runs) {
            for (int64_t k = 0; k < length; k++) load(to + k, length, from + k * step * element_bytes[dtype], strides[ndim - 2], runs);
            position_advance(&at, runs, ndim - 1, shape);
            to += runs * length;
            n -= runs * length;
            continue;
        }
        const int64_t left = length - at.index[ndim ? ndim - 1 : 0], run = left < n ? left : n;
        load(to, 1, from, step, run);
        position_advance(&at, run, ndim, shape);
        to += run;
        n -= run;
    }
}

void scatter(const tc_operand *operand, const element *from, position at, int64_t n, int ndim, const int64_t *shape)
{
    const element_run store = element_stores[operand->dtype];
    const int64_t length = shape[ndim - 1], step = operand->strides[ndim - 1];
    while (n > 0) {
        char *to = (char *)operand->data + position_offset(&at, ndim, operand->strides) * element_bytes[operand->dtype];
        const int64_t runs = short_runs(&at, n, ndim, shape);
        if (runs) {
            for (int64_t k = 0; k < length; k++)
                store(to + k * step * element_bytes[operand->dtype], operand->strides[ndim - 2], from + k, length, runs);
            position_advance(&at, runs, ndim - 1, shape);
            from += runs * length;
            n -= runs * length;
            continue;
        }
        const int64_t left = length - at.index[ndim - 1], run = left < n ? left : n;
        store(to, step, from, 1, run);
        position_advance(&at, run, ndim, shape);
        from += run;
        n -= run;
    }
}

void repeat_row(element *to, const tc_operand *operand, int64_t length, int64_t n)
{
    element_loads[operand->dtype](to, 1, operand->data, operand->strides[1], length);
    for (int64_t i = length; i < n && i < STRIDED_CHUNK; i++) to[i] = to[i - length];
}

void spread_column(element *to, const tc_operand *operand, position at, int64_t n, int64_t length)
{
    element values[STRIDED_CHUNK];
    const char *column = (const char *)operand->data + at.index[0] * operand->strides[0] * element_bytes[operand->dtype];
    int64_t left = length - at.index[1];
    element_loads[operand->dtype](values, 1, column, operand->strides[0], (at.index[1] + n + length - 1) / length);
    for (const element *value = values; n > 0; left = length, value++) {
        const int64_t run = left < n ? left : n;
        for (int64_t i = 0; i < run; i++) to[i] = *value;
        to += run;
        n -= run;
    }
}

#endif
