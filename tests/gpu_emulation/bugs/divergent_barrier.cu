// Both branches have a barrier, but it is not the same one.
// caught by plain: divergent barrier: .*__syncthreads.* divergent_barrier.cu:\d+\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void two_halves(float *out)
{
    TC_SHARED(float, tile, [64]);
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = 1;
        if (!fixed) __syncthreads();
    } else {
        tile[threadIdx.x] = 2;
        if (!fixed) __syncthreads(); // <- here
    }
    if (fixed) __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x] + tile[threadIdx.x];
}

template <bool fixed> int run(float *out) { return tc::launch<two_halves<fixed>>(tc::Launch(1, 64, 0, nullptr), out); }
BUG_MAIN(std::vector<float>(64, 3))
