// A thread reads what another has put into shared memory, and nothing makes it wait for that.
// caught by plain: wrong result: \[0\] is -?nan
// caught by access random 3: (race|uninitialised): .*\n  at {here}
// caught by thread: data race[\s\S]*{here}
#include "bug.h"

template <bool fixed> __global__ void reverse(float *out, const float *in)
{
    TC_SHARED(float, tile, [64]);
    tile[threadIdx.x] = in[threadIdx.x];
    if (fixed) __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x]; // <- here
}

template <bool fixed> int run(float *out)
{
    std::vector<float> in = counting(64);
    return tc::launch<reverse<fixed>>(tc::Launch(1, 64, 0, nullptr), out, device_array(std::vector<float>(in.rbegin(), in.rend())));
}
BUG_MAIN(counting(64))
