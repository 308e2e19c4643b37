/* elementwise.h: runs an element-wise kernel over tensors of any strides and dtypes. */
#ifndef TC_CORE_ELEMENTWISE_H
#define TC_CORE_ELEMENTWISE_H

#include "../kernels/elementwise.h"
#include "tensor.h"

/* out[i] = function(in[0][i], ...), tensors that broadcast to out, and numbers. `compute`: the dtype of the table whose kernel runs;
 * `cost`: elementary operations per element. */
TC_CHECKED tc_status tc_run_elementwise(tc_tensor *out, int inputs, const tc_argument *in, const tc_kernel *kernel, int function,
                                        tc_dtype compute, double cost, tc_error *err);
/* The same in place, to a tensor that tc_takes_result accepts: tc_tensor_begin_write included, after what else can fail. */
TC_CHECKED tc_status tc_write_elementwise(tc_tensor *out, int inputs, const tc_argument *in, const tc_kernel *kernel, int function,
                                          tc_dtype compute, double cost, tc_error *err);

#endif
