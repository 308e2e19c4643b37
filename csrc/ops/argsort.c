/* argsort.c: the order that sorts a tensor along an axis. No gradient. */
#include "../core/backend.h"
#include "../core/layout.h"
#include "../core/status.h"
#include "../kernels/sort.h"
#include "operands.h"

/* A view of x with two axes exchanged. */
static tc_status exchange(tc_tensor **out, tc_tensor *x, int a, int b, tc_error *err)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        const int from = i == a ? b : i == b ? a : i;
        shape[i] = x->shape[from];
        strides[i] = x->strides[from];
    }
    return tc_tensor_alias(out, x, x->ndim, shape, strides, 0, err);
}

tc_status tc_argsort(tc_tensor **out, tc_tensor *x, int64_t given, bool descending, tc_error *err)
{
    tc_tensor *rows = NULL, *keys = NULL, *indices = NULL, *back = NULL;
    int axis;
    tc_status status = TC_OK;
    const bool floating = tc_dtype_is_float(x->dtype);
    const tc_dtype compute = tc_compute_dtype(x->dtype);
    TC_TRY(tc_normalize_axis(&axis, given, x->ndim, "axis", err));
    const int last = x->ndim ? x->ndim - 1 : 0;
    TC_TRY(exchange(&rows, x, axis, last, err));
    TC_TRY(tc_tensor_as(&keys, rows, floating ? compute : TC_INT64, err));
    TC_TRY(tc_tensor_like_as(&indices, keys, TC_INT64, err));
    const int64_t C = x->ndim ? keys->shape[last] : 1;
    const tc_argsort_args args = {.indices = (int64_t *)(void *)indices->data, .x = keys->data, .C = C, .descending = descending};
    double passes = 1.0;
    for (int64_t run = 1; run < C; run *= 2) passes += 1.0;
    if (keys->numel > 0)
        TC_TRY(tc_run(x->storage->device, compute, floating ? &tc_kernel_argsort : &tc_kernel_integer_argsort, &args, keys->numel / C,
                      4.0 * passes * (double)C, sizeof(int64_t) * (size_t)C, err));
    TC_TRY(exchange(&back, indices, axis, last, err));
    TC_TRY(tc_tensor_contiguous(out, back, err));
cleanup:
    tc_tensor_release(rows);
    tc_tensor_release(keys);
    tc_tensor_release(indices);
    tc_tensor_release(back);
    return status;
}
