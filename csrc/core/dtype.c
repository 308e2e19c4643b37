/* dtype.c: names, sizes and promotion of element types; names of devices. */
#include "../transformer_c.h"

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
    /* The two half-width floats hold neither the other's range nor its digits: the pair meets in float32. */
    if ((a == TC_FLOAT16 && b == TC_BFLOAT16) || (a == TC_BFLOAT16 && b == TC_FLOAT16)) return TC_FLOAT32;
    return dtypes[a].rank >= dtypes[b].rank ? a : b;
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
