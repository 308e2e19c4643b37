/* layout.c: see layout.h. */
#include "layout.h"

#include <inttypes.h>
#include <stdlib.h>

tc_status tc_normalize_axis(int *axis, int64_t given, int ndim, const char *name, tc_error *err)
{
    const int range = ndim ? ndim : 1;
    if (given < -range || given >= range)
        return tc_fail(err, TC_ERROR_INDEX, "%s %" PRId64 " is out of range for a tensor of %d axes; expected %d to %d", name, given, ndim,
                       -range, range - 1);
    *axis = (int)(given < 0 ? given + range : given);
    return TC_OK;
}

void tc_c_strides(int64_t *strides, int ndim, const int64_t *shape)
{
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = step;
        step *= shape[i] > 0 ? shape[i] : 1;
    }
}

static void swap_axes(int64_t *shape, int operands, int64_t *const *strides, int a, int b)
{
    int64_t t = shape[a];
    shape[a] = shape[b], shape[b] = t;
    for (int o = 0; o < operands; o++) t = strides[o][a], strides[o][a] = strides[o][b], strides[o][b] = t;
}

/* Can axis `outer` followed by axis `inner` be walked as one axis by every operand? */
static bool one_axis(const int64_t *shape, int operands, int64_t *const *strides, int outer, int inner)
{
    for (int o = 0; o < operands; o++)
        if (strides[o][outer] != strides[o][inner] * shape[inner]) return false;
    return true;
}

int tc_layout_merge(int ndim, int64_t *shape, int operands, int64_t *const *strides, bool reorder)
{
    int kept = 0;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 1) continue;
        shape[kept] = shape[i];
        for (int o = 0; o < operands; o++) strides[o][kept] = strides[o][i];
        kept++;
    }
    for (int i = 1; reorder && i < kept; i++) /* insertion sort: few axes, mostly in order already */
        for (int j = i; j > 0 && llabs(strides[0][j - 1]) < llabs(strides[0][j]); j--) swap_axes(shape, operands, strides, j - 1, j);
    int last = 0;
    for (int i = 1; i < kept; i++) {
        if (one_axis(shape, operands, strides, last, i)) {
            shape[last] *= shape[i];
            for (int o = 0; o < operands; o++) strides[o][last] = strides[o][i];
        } else {
            last++;
            shape[last] = shape[i];
            for (int o = 0; o < operands; o++) strides[o][last] = strides[o][i];
        }
    }
    return kept ? last + 1 : 0;
}

/* Sorted by strides, every axis steps over all that is inside it. */
bool tc_layout_is_distinct(int ndim, const int64_t *shape, const int64_t *strides)
{
    for (int i = 0; i < ndim; i++) {
        int64_t reach = 1;
        for (int k = 0; k < ndim; k++)
            if (llabs(strides[k]) < llabs(strides[i]) || (k < i && llabs(strides[k]) == llabs(strides[i])))
                reach += (shape[k] - 1) * llabs(strides[k]);
        if (shape[i] > 1 && llabs(strides[i]) < reach) return false;
    }
    return true;
}
