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
#include "check.h"

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

/* *tensor (owned) becomes contiguous memory of its own where it is not, or is a view of `source`. */
TC_CHECKED tc_status tc_make_own(tc_tensor **tensor, const tc_tensor *source, tc_error *err);

#endif
