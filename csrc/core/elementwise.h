/* elementwise.h: running an element-wise kernel over tensors of any strides and dtypes. */
#ifndef TC_CORE_ELEMENTWISE_H
#define TC_CORE_ELEMENTWISE_H

#include "../kernels/elementwise.h"
#include "tensor.h"

/* One operand of a kernel: a tensor that broadcasts to the result, or the number when `tensor` is NULL. */
typedef struct tc_element_input {
    tc_tensor *tensor;
    tc_scalar scalar;
} tc_element_input;

/* out[i] = function(inputs[i]). `compute`: the table whose kernel is run; `cost`: elementary operations an element. */
TC_CHECKED tc_status tc_run_elementwise(tc_tensor *out, int inputs, const tc_element_input *in, const tc_kernel *kernel, int function,
                                        tc_dtype compute, double cost, tc_error *err);

#endif
