/* broadcast.c: see broadcast.h. */
#include "broadcast.h"

#include "status.h"

tc_status tc_broadcast_shape(int *ndim, int64_t shape[TC_MAX_DIMS], int a_ndim, const int64_t *a, int b_ndim, const int64_t *b,
                             tc_error *err)
{
    const int n = a_ndim > b_ndim ? a_ndim : b_ndim;
    for (int i = 0; i < n; i++) { /* from the last axis on */
        const int64_t x = i < a_ndim ? a[a_ndim - 1 - i] : 1, y = i < b_ndim ? b[b_ndim - 1 - i] : 1;
        if (x != y && x != 1 && y != 1) {
            char p[TC_SHAPE_TEXT], q[TC_SHAPE_TEXT];
            return tc_fail(err, TC_ERROR_VALUE,
                           "shapes %s and %s do not broadcast: axis %d has lengths %lld and %lld, which must be equal or 1",
                           tc_shape_text(p, a_ndim, a), tc_shape_text(q, b_ndim, b), -1 - i, (long long)x, (long long)y);
        }
        shape[n - 1 - i] = x == 1 ? y : x;
    }
    *ndim = n;
    return TC_OK;
}

void tc_broadcast_strides(int64_t strides[TC_MAX_DIMS], const tc_tensor *tensor, int ndim, const int64_t *shape)
{
    const int lead = ndim - tensor->ndim;
    for (int i = 0; i < ndim; i++) strides[i] = i < lead || tensor->shape[i - lead] != shape[i] ? 0 : tensor->strides[i - lead];
}

tc_status tc_broadcast_view(tc_tensor **out, tc_tensor *x, int ndim, const int64_t *shape, tc_error *err)
{
    int64_t strides[TC_MAX_DIMS];
    tc_broadcast_strides(strides, x, ndim, shape);
    return tc_tensor_alias(out, x, ndim, shape, strides, 0, err);
}
