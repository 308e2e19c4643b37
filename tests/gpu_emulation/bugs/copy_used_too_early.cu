// The copy is waited for in the end, but after its first use.
// caught by plain: wrong result: \[0\] is -?nan
// caught by address: wrong result: \[0\] is -?nan
#include "bug.h"

template <bool fixed> __global__ void copy(float *out, const float *in)
{
    TC_SHARED(float, tile, [32]);
    tc::copy_async<4>(&tile[threadIdx.x], in + threadIdx.x);
    tc::copy_async_commit();
    if (fixed) tc::copy_async_wait<0>();
    out[threadIdx.x] = tile[threadIdx.x];
    if (!fixed) tc::copy_async_wait<0>();
}

template <bool fixed> int run(float *out)
{
    return tc::launch<copy<fixed>>(tc::Launch(1, 32, 0, nullptr), out, device_array(counting(32)));
}
BUG_MAIN(counting(32))
