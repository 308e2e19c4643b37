/* dtype.h: the dtypes of computations and of results. */
#ifndef TC_CORE_DTYPE_H
#define TC_CORE_DTYPE_H

#include "tensor.h"

typedef enum tc_dtype_kind { TC_KIND_BOOL, TC_KIND_INTEGER, TC_KIND_FLOAT } tc_dtype_kind;
tc_dtype_kind tc_dtype_kind_of(tc_dtype dtype);

/* The dtype of arithmetic on CPUs, and of sums and statistics everywhere: float64 for float64, float32 for the other floating dtypes. */
tc_dtype tc_compute_dtype(tc_dtype dtype);

/* The dtype of a result of two operands (PyTorch's rules; transformer_c.h). */
tc_dtype tc_result_dtype(const tc_argument *a, const tc_argument *b);

#endif
