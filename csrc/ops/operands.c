/* operands.c: see operands.h. */
#include "operands.h"

#include "../core/status.h"
#include "../core/tape.h"

tc_tensor *tc_old_scope_own(tc_old_scope *scope, tc_tensor *tensor)
{
    if (tensor) scope->owned[scope->count++] = tensor;
    return tensor;
}

void tc_old_scope_end(tc_old_scope *scope)
{
    for (int i = 0; i < scope->count; i++) tc_tensor_release(scope->owned[i]);
    scope->count = 0;
}

tc_status tc_old_scope_cast(tc_old_scope *scope, tc_tensor **tensor, tc_dtype dtype, tc_error *err)
{
    if (!*tensor || (*tensor)->dtype == dtype) return TC_OK;
    tc_tensor *cast;
    tc_status status = tc_cast(&cast, *tensor, dtype, err);
    if (status == TC_OK) *tensor = tc_old_scope_own(scope, cast);
    return status;
}

tc_status tc_old_scope_contiguous(tc_old_scope *scope, tc_tensor **tensor, tc_error *err)
{
    if (!*tensor || (*tensor)->contiguous) return TC_OK;
    tc_tensor *copy;
    tc_status status = tc_tensor_contiguous(&copy, *tensor, err);
    if (status == TC_OK) *tensor = tc_old_scope_own(scope, copy);
    return status;
}

tc_status tc_make_own(tc_tensor **tensor, const tc_tensor *source, tc_error *err)
{
    tc_tensor *copy;
    if ((*tensor)->contiguous && (*tensor)->storage != source->storage) return TC_OK;
    tc_status status = tc_tensor_like(&copy, *tensor, err);
    if (status != TC_OK) return status;
    status = tc_tensor_copy(copy, *tensor, err);
    if (status != TC_OK) {
        tc_tensor_release(copy);
        return status;
    }
    tc_tensor_release(*tensor);
    *tensor = copy;
    return TC_OK;
}
