/* elementwise.h: running an element-wise kernel over tensors of any strides, and taking a gradient back to the shape it came from. */
#ifndef TC_OPS_ELEMENTWISE_H
#define TC_OPS_ELEMENTWISE_H

#include "../kernels/elementwise.h"
#include "../kernels/kernels.h"
#include "operands.h"

/* One operand of a kernel: a tensor that broadcasts to the result, or the number when `tensor` is NULL. */
typedef struct tc_element_input {
    tc_tensor *tensor;
    tc_scalar scalar;
} tc_element_input;

/* out[i] = function(inputs[i]). `compute`: the table whose kernel is run; `cost`: elementary operations an element. */
TC_CHECKED tc_status tc_run_elementwise(tc_tensor *out, int inputs, const tc_element_input *in, const tc_kernel *kernel, int function,
                                        tc_dtype compute, double cost, tc_error *err);

/* `x` summed over the axes that `shape` was repeated along to x's shape, as `dtype`; x itself (retained) when there is nothing to do. */
TC_CHECKED tc_status tc_sum_to(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, tc_dtype dtype, tc_error *err);

/* x read as the larger `shape`: a view with strides of 0. Not recorded. */
TC_CHECKED tc_status tc_broadcast_view(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, tc_error *err);

/* The dtype of a result of two operands, either of them a number where the tensor is NULL (PyTorch's rules; transformer_c.h). */
tc_dtype tc_result_dtype(const tc_tensor *a, tc_scalar a_scalar, const tc_tensor *b, tc_scalar b_scalar);

#endif
