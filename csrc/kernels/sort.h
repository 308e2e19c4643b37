/* sort.h: arguments of the sorting kernels. */
#ifndef TC_KERNELS_SORT_H
#define TC_KERNELS_SORT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

/* Items are rows.  x (N,C) of the compute dtype (int64 for integer_argsort); indices (N,K) int64, K <= C: the first K of the order that
 * sorts each row; equal elements keep their order, NaN is larger than all others. Scratch on
 * CPUs: 3 C int64. */
typedef struct tc_argsort_args {
    int64_t *indices;
    const void *x;
    int64_t N, C, K;
    bool descending;
} tc_argsort_args;
extern const tc_kernel tc_kernel_argsort;
extern const tc_kernel tc_kernel_integer_argsort;

/* The rows [begin, end) on a CPU, of any instruction set: core/sort_rows.c. */
void tc_argsort_rows_f32(const tc_argsort_args *a, int64_t begin, int64_t end, int64_t *scratch);
void tc_argsort_rows_f64(const tc_argsort_args *a, int64_t begin, int64_t end, int64_t *scratch);
void tc_argsort_rows_i64(const tc_argsort_args *a, int64_t begin, int64_t end, int64_t *scratch);

#endif
