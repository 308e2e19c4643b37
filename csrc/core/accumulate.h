/* accumulate.h: adding gradients together. */
#ifndef TC_CORE_ACCUMULATE_H
#define TC_CORE_ACCUMULATE_H

#include "tensor.h"

/* to += from, of the same shape, dtype and device, with any strides. Raises the version of `to`. */
TC_CHECKED tc_status tc_add_in_place(tc_tensor *to, tc_tensor *from, tc_error *err);

/* Is this the only reference to the tensor, and the tensor contiguous and the only one on its memory, which the library allocated? */
bool tc_tensor_alone(const tc_tensor *tensor);

/* *sum = *sum + addend, which is stolen. Done in place when nobody else can see the memory of one of them; otherwise *sum becomes a new
 * tensor. The reference to what *sum was before is released. */
TC_CHECKED tc_status tc_accumulate(tc_tensor **sum, tc_tensor *addend, tc_error *err);

#endif
