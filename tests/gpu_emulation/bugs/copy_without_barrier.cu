// Each thread waits for its own copies; what the others copied needs a barrier as well.
// caught by plain greedy: wrong result
// caught by access random 3: (race|uninitialised): .*\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void reverse(float *out, const float *in)
{
    TC_SHARED(float, tile, [64]);
    tc::copy_async<4>(&tile[threadIdx.x], in + threadIdx.x);
    tc::copy_async_commit();
    tc::copy_async_wait<0>();
    if (fixed) __syncthreads();
    out[63 - threadIdx.x] = tile[63 - threadIdx.x]; // <- here
}

template <bool fixed> int run(float *out)
{
    return tc::launch<reverse<fixed>>(tc::Launch(1, 64, 0, nullptr), out, device_array(counting(64)));
}
BUG_MAIN(counting(64))
