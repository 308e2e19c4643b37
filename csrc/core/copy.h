/* copy.h: copies between tensors of any strides, dtypes and devices. Nothing here is recorded; the ops tc_clone(), tc_assign() and their
 * like are. */
#ifndef TC_CORE_COPY_H
#define TC_CORE_COPY_H

#include "tensor.h"

/* to = from, cast, and broadcast to the shape of `to`. */
TC_CHECKED tc_status tc_tensor_copy(tc_tensor *to, const tc_tensor *from, tc_error *err);

/* These give `tensor` itself (retained) when it already has what is asked for, otherwise a copy: contiguous and of `dtype`, contiguous, on
 * `device`. */
TC_CHECKED tc_status tc_tensor_as(tc_tensor **out, tc_tensor *tensor, tc_dtype dtype, tc_error *err);
TC_CHECKED tc_status tc_tensor_contiguous(tc_tensor **out, tc_tensor *tensor, tc_error *err);
TC_CHECKED tc_status tc_tensor_on(tc_tensor **out, tc_tensor *tensor, tc_device device, tc_error *err);

/* *out: detached, in memory of its own. Axes that repeat their elements still do, so that the copy is no larger than the original. */
TC_CHECKED tc_status tc_tensor_copy_of(tc_tensor **out, tc_tensor *tensor, tc_error *err);

/* *tensor (owned) becomes contiguous memory of its own where it is not, or is a view of `source`. */
TC_CHECKED tc_status tc_make_own(tc_tensor **tensor, const tc_tensor *source, tc_error *err);

/* After bytes were moved into a new tensor: those of bools become 0 or 1. */
TC_CHECKED tc_status tc_tensor_settle_bools(tc_tensor *tensor, tc_error *err);

/* Refuses a number outside of the range of an integer dtype; it would wrap around. Any dtype but an integer one takes all. `value` is one
 * element on the CPU; of others nothing is said. */
TC_CHECKED tc_status tc_check_number_fits(tc_scalar number, tc_dtype dtype, tc_error *err);
TC_CHECKED tc_status tc_check_value_fits(tc_tensor *value, tc_dtype dtype, tc_error *err);

/* *out (length): first, first + step, ..., in int64 or float64, cast to dtype; from the element `turn` on last - step, last. On GPUs one
 * kernel writes them, with the same bits; a NaN of halves may have others. */
TC_CHECKED tc_status tc_tensor_range(tc_tensor **out, int64_t first, int64_t step, int64_t length, tc_dtype dtype, tc_device device,
                                     tc_error *err);
TC_CHECKED tc_status tc_tensor_spaced(tc_tensor **out, double first, double step, double last, int64_t length, int64_t turn, tc_dtype dtype,
                                      tc_device device, tc_error *err);
TC_CHECKED tc_status tc_tensor_zeros(tc_tensor **out, int ndim, const int64_t *shape, tc_dtype dtype, tc_device device, tc_error *err);

#endif
