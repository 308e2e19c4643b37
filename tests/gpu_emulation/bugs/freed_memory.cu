// The input is freed before the kernel that reads it is launched.
// caught by access: out of bounds: load of 4 bytes .*\n  at {here}
// caught by address: use-after-poison[\s\S]*{here}
#include "bug.h"

template <bool fixed> __global__ void copy(float *out, const float *in)
{
    out[threadIdx.x] = in[threadIdx.x]; // <- here
}

template <bool fixed> int run(float *out)
{
    float *in = device_array(counting(32));
    if (!fixed) cudaFree(in);
    return tc::launch<copy<fixed>>(tc::Launch(1, 32, 0, nullptr), out, in);
}
BUG_MAIN(counting(32))
