// Lanes of a warp are taken to run in step, as they did before Volta. A shuffle would not order memory either.
// caught by plain random 1: wrong result
// caught by access: race: .*\n  at {here}
// caught by thread: data race[\s\S]*missing_syncwarp.cu
#include "bug.h"

template <bool fixed> __global__ void tree_sum(float *out)
{
    TC_SHARED(float, sums, [64]);
    const unsigned i = threadIdx.x;
    sums[i] = static_cast<float>(i);
    sums[i + 32] = 0;
    __syncwarp();
    for (int distance = 16; distance > 0; distance /= 2) {
        const float other = sums[i + distance];
        if (fixed) __syncwarp();
        sums[i] += other; // <- here
        if (fixed) __syncwarp();
    }
    if (i == 0) out[0] = sums[0];
}

template <bool fixed> int run(float *out) { return tc::launch<tree_sum<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
BUG_MAIN(std::vector<float>(1, 496))
