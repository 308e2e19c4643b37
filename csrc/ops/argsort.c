/* argsort.c: the order that sorts a tensor along an axis. No gradient. */
#include "../kernels/sort.h"

#include <inttypes.h>
#include <string.h>

#include "op.h"

/* The first K elements of an axis along which all are one: they keep their order.  indices (..., K), contiguous. */
static void count_up(tc_tensor *indices, int64_t K)
{
    int64_t *const index = tc_data(indices);
    for (int64_t row = 0; K > 0 && row < indices->numel; row += K)
        for (int64_t i = 0; i < K; i++) index[row + i] = i;
}

tc_status tc_argsort(tc_tensor **out, tc_tensor *x, int64_t given, bool descending, const int64_t *first, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *indices, *along;
    int axis;
    int64_t shape[TC_MAX_DIMS];
    const bool floating = tc_dtype_is_float(x->dtype);
    const int last = x->ndim ? x->ndim - 1 : 0;
    TC_TRY(floating ? tc_begin(&s, in, 1) : tc_begin_moving(&s, in, 1));
    if (!floating) s.compute = TC_INT64; /* integers and bools are widened, for one kernel */
    TC_TRY(tc_normalize_axis(&axis, given, x->ndim, "axis", err));
    TC_TRY(tc_move_axis(&s, &in[0].given, x, axis, last));
    const bool is_repeated = x->ndim && x->strides[axis] == 0 && x->shape[axis] > 1 && tc_tensor_on_cpu(x);
    if (!is_repeated) TC_TRY(tc_prepare(&s));
    const int64_t C = x->ndim ? x->shape[axis] : 1, K = first ? *first : C;
    if (K < 0 || K > C) return tc_fail(err, TC_ERROR_VALUE, "first is %" PRId64 "; axis %d has %" PRId64 " elements", K, axis, C);
    memcpy(shape, in[0].given->shape, sizeof(int64_t) * (size_t)x->ndim);
    if (x->ndim) shape[last] = K;
    TC_TRY(tc_make_as(&s, &indices, x->ndim, shape, TC_INT64));
    if (is_repeated) {
        count_up(indices, K);
        TC_TRY(tc_move_axis(&s, &along, indices, last, axis));
        return tc_tensor_contiguous(out, along, err);
    }
    const tc_argsort_args args = {
        .indices = tc_data(indices), .x = in[0].data, .N = C ? x->numel / C : 0, .C = C, .K = K, .descending = descending};
    double passes = 1.0;
    for (int64_t run = 1; run < C; run *= 2) passes += 1.0;
    if (x->numel > 0 && K > 0)
        TC_TRY(tc_run(s.device, s.kernels, floating ? &tc_kernel_argsort : &tc_kernel_integer_argsort, &args, x->numel / C,
                      4.0 * passes * (double)C, 3 * sizeof(int64_t) * (size_t)C, err));
    TC_TRY(tc_move_axis(&s, &along, indices, last, axis));
    return tc_tensor_contiguous(out, along, err);
}
