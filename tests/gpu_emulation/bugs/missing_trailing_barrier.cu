// A tile is filled again while slower warps still read the last one: right in thread order, wrong when a warp runs ahead.
// caught by plain greedy 3: wrong result
// caught by access: race: .*\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void sum_tiles(float *out, const float *in)
{
    TC_SHARED(float, tile, [64]);
    float sum = 0;
    for (int step = 0; step < 4; step++) {
        tile[threadIdx.x] = in[64 * step + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 64; i++) sum += tile[i]; // <- here
        if (fixed) __syncthreads();
    }
    out[threadIdx.x] = sum;
}

template <bool fixed> int run(float *out)
{
    return tc::launch<sum_tiles<fixed>>(tc::Launch(1, 64, 0, nullptr), out, device_array(counting(256)));
}
BUG_MAIN(std::vector<float>(64, 255 * 128))
