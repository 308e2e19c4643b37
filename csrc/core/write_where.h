/* write_where.h: one number in place where a mask is set. */
#ifndef TC_CORE_WRITE_WHERE_H
#define TC_CORE_WRITE_WHERE_H

#include "tensor.h"

/* x[...] = number (one element of x's dtype in memory of its own) where the mask, of bools and of x's shape, is set; all on the CPU.
 * Nothing else of x is written, so that other threads may write there. Each element of x has memory of its own, in which no other one of
 * the mask lies. The caller has begun the write. */
TC_CHECKED tc_status tc_write_where(tc_tensor *x, const tc_tensor *mask, const tc_tensor *number, tc_error *err);

#endif
