/* accumulate.h: adding gradients together. */
#ifndef TC_CORE_ACCUMULATE_H
#define TC_CORE_ACCUMULATE_H

#include "tensor.h"

/* to += from, same shape, dtype and device; any strides. Raises to's version. */
TC_CHECKED tc_status tc_add_in_place(tc_tensor *to, tc_tensor *from, tc_error *err);

/* Is this reference the only one to the tensor, and the tensor, in C order without gaps, the only one on memory of the library's? */
bool tc_tensor_alone(const tc_tensor *tensor);

/* *sum = *sum + addend. Done in place when nobody else can see the memory of *sum, otherwise *sum becomes a new tensor (the old reference
 * is released). */
TC_CHECKED tc_status tc_accumulate(tc_tensor **sum, tc_tensor *addend, tc_error *err);

#endif
