/* operands.h: what every op does with its arguments before it computes.
 *
 * A scope owns what was made on the way (casts, contiguous copies) and drops it at the end, so that an op'"'"'s body reads
 * straight down:
 *     tc_old_scope scope = {0};
 *     TC_TRY(tc_old_scope_cast(&scope, &x, compute, err));         // recorded: float16 and bfloat16 compute in float32
 *     TC_TRY(tc_old_scope_contiguous(&scope, &x, err));            // not recorded: the same values laid out in C order
 *     ...
 * cleanup:
 *     tc_old_scope_end(&scope);
 */
#ifndef TC_OPS_OPERANDS_H
#define TC_OPS_OPERANDS_H

#include "../core/copy.h"
#include "../core/dtype.h"

#define TC_OLD_SCOPE_MAX 24

typedef struct tc_old_scope {
    int count;
    tc_tensor *owned[TC_OLD_SCOPE_MAX];
} tc_old_scope;

/* *tensor (NULL is allowed and stays) becomes a borrowed reference, owned by the scope. */
TC_CHECKED tc_status tc_old_scope_cast(tc_old_scope *scope, tc_tensor **tensor, tc_dtype dtype, tc_error *err);
TC_CHECKED tc_status tc_old_scope_contiguous(tc_old_scope *scope, tc_tensor **tensor, tc_error *err);
tc_tensor *tc_old_scope_own(tc_old_scope *scope, tc_tensor *tensor); /* steals; returns it */
void tc_old_scope_end(tc_old_scope *scope);

/* Errors that name the argument. NULL tensors pass. */
TC_CHECKED tc_status tc_check_float(const tc_tensor *tensor, const char *name, tc_error *err);
TC_CHECKED tc_status tc_check_same_dtype(const tc_tensor *a, const char *a_name, const tc_tensor *b, const char *b_name, tc_error *err);
TC_CHECKED tc_status tc_check_same_device(const tc_tensor *a, const char *a_name, const tc_tensor *b, const char *b_name, tc_error *err);

/* An argument that this op gives no gradient to requires none, while gradients are recorded. */
TC_CHECKED tc_status tc_check_constant(const tc_tensor *tensor, const char *name, tc_error *err);

/* The gradient of a result has its shape, and the dtype and device of `like`. */
TC_CHECKED tc_status tc_check_gradient(const tc_tensor *gradient, const char *name, int ndim, const int64_t *shape, const tc_tensor *like,
                                       const char *like_name, tc_error *err);

/* *tensor (owned) becomes contiguous memory of its own where it is not, or is a view of `source`. */
TC_CHECKED tc_status tc_make_own(tc_tensor **tensor, const tc_tensor *source, tc_error *err);

/* x as `dtype`, recorded; *out is x itself (retained) when it has that dtype already. */
TC_CHECKED tc_status tc_cast(tc_tensor **out, tc_tensor *x, tc_dtype dtype, tc_error *err);

#endif
