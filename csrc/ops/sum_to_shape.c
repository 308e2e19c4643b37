/* sum_to_shape.c: the other half of broadcasting: a gradient summed over the axes its tensor was repeated along. */
#include <string.h>

#include "../core/status.h"
#include "operands.h"
#include "view.h"

/* gradient laid out as (repeated axes, kept axes) is rows of partial sums. Half types add in float32. */
tc_status tc_sum_to_shape(tc_tensor **out, tc_tensor *gradient, int ndim, const int64_t *shape, tc_error *err)
{
    int64_t sizes[TC_MAX_DIMS], strides[TC_MAX_DIMS], rows = 1, columns = 1;
    int count = 0;
    const int lead = gradient->ndim - ndim;
    tc_tensor *arranged = NULL, *partial = NULL, *sum = NULL;
    tc_status status = TC_OK;
    const tc_dtype compute = tc_compute_dtype(gradient->dtype);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < gradient->ndim; i++) {
            const bool repeated = i < lead || (shape[i - lead] == 1 && gradient->shape[i] != 1);
            if (repeated != (pass == 0)) continue;
            sizes[count] = gradient->shape[i];
            strides[count++] = gradient->strides[i];
            *(repeated ? &rows : &columns) *= gradient->shape[i];
        }
    if (rows == 1 && lead == 0) {
        *out = tc_tensor_retain(gradient);
        return TC_OK;
    }
    TC_TRY(tc_tensor_alias(&arranged, gradient, count, sizes, strides, 0, err));
    TC_TRY(tc_tensor_as(&partial, arranged, compute, err));
    TC_TRY(tc_tensor_empty(&sum, ndim, shape, compute, gradient->storage->device, err));
    TC_TRY(tc_sum_partials(sum, partial, rows, columns, err));
    TC_TRY(tc_tensor_as(out, sum, gradient->dtype, err));
cleanup:
    tc_tensor_release(arranged);
    tc_tensor_release(partial);
    tc_tensor_release(sum);
    return status;
}
