/* dtype.c: names, sizes and promotion of element types; names of devices. */
#include "dtype.h"

#include <stdio.h>

static const struct {
    const char *name;
    size_t size;
    bool is_float;
    int rank; /* two dtypes promote to the one of higher rank */
} dtypes[TC_DTYPE_COUNT] = {
    [TC_FLOAT32] = {"float32", 4, true, 6},   [TC_FLOAT64] = {"float64", 8, true, 7}, [TC_FLOAT16] = {"float16", 2, true, 4},
    [TC_BFLOAT16] = {"bfloat16", 2, true, 5}, [TC_INT64] = {"int64", 8, false, 3},    [TC_INT32] = {"int32", 4, false, 2},
    [TC_UINT8] = {"uint8", 1, false, 1},      [TC_BOOL] = {"bool", 1, false, 0},
};

const char *tc_dtype_name(tc_dtype dtype) { return (unsigned)dtype < TC_DTYPE_COUNT ? dtypes[dtype].name : "unknown dtype"; }

size_t tc_dtype_size(tc_dtype dtype) { return dtypes[dtype].size; }

bool tc_dtype_is_float(tc_dtype dtype) { return dtypes[dtype].is_float; }

tc_dtype tc_dtype_promote(tc_dtype a, tc_dtype b)
{
    /* Neither half has both the range and the precision of the other: the two promote to float32. */
    if ((a == TC_FLOAT16 && b == TC_BFLOAT16) || (a == TC_BFLOAT16 && b == TC_FLOAT16)) return TC_FLOAT32;
    return dtypes[a].rank >= dtypes[b].rank ? a : b;
}

tc_dtype_kind tc_dtype_kind_of(tc_dtype dtype)
{
    return dtypes[dtype].is_float ? TC_KIND_FLOAT : dtype == TC_BOOL ? TC_KIND_BOOL : TC_KIND_INTEGER;
}

tc_dtype tc_compute_dtype(tc_dtype dtype) { return dtype == TC_FLOAT64 ? TC_FLOAT64 : TC_FLOAT32; }

tc_dtype tc_result_dtype(const tc_argument *a, const tc_argument *b)
{
    const tc_argument *arguments[2] = {a, b};
    /* Three levels: tensors with axes, tensors without, numbers. A lower level counts only when its kind is higher than those of all levels
     * above. */
    int result = -1;
    for (int level = 0; level < 3; level++) {
        int found = -1;
        for (int i = 0; i < 2; i++) {
            const tc_tensor *tensor = arguments[i]->tensor;
            if ((tensor ? tensor->ndim == 0 : 2) != level) continue;
            const tc_dtype kind = arguments[i]->scalar.kind;
            const tc_dtype dtype = tensor ? tensor->dtype : kind == TC_FLOAT64 ? TC_FLOAT32 : kind;
            found = found < 0 ? (int)dtype : (int)tc_dtype_promote((tc_dtype)found, dtype);
        }
        if (found < 0) continue;
        if (result < 0)
            result = found;
        else if (tc_dtype_kind_of((tc_dtype)found) > tc_dtype_kind_of((tc_dtype)result))
            result = (int)tc_dtype_promote((tc_dtype)result, (tc_dtype)found);
    }
    return (tc_dtype)result;
}

const char *tc_device_text(char buffer[TC_DEVICE_TEXT], tc_device device)
{
    if (device.type == TC_CPU)
        snprintf(buffer, TC_DEVICE_TEXT, "cpu");
    else if (device.index == TC_EMULATED_GPU)
        snprintf(buffer, TC_DEVICE_TEXT, "cuda:emulated");
    else
        snprintf(buffer, TC_DEVICE_TEXT, "cuda:%d", device.index);
    return buffer;
}
