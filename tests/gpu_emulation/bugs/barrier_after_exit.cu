// Threads beyond the end return early, and the others wait for them.
// caught by plain: divergent barrier: __syncthreads after \d+ threads of the block have ended\n  at {here}
// caught by plain greedy: divergent barrier
#include "bug.h"

template <bool fixed> __global__ void shift(float *out, const float *in, int n)
{
    TC_SHARED(float, tile, [64]);
    const int i = 63 - static_cast<int>(threadIdx.x);
    if (!fixed && i >= n) return;
    tile[i] = i < n ? in[i] : 0.0f;
    __syncthreads(); // <- here
    if (i < n) out[i] = tile[(i + 1) % n];
}

template <bool fixed> int run(float *out)
{
    return tc::launch<shift<fixed>>(tc::Launch(1, 64, 0, nullptr), out, device_array(counting(50)), 50);
}
std::vector<float> expected()
{
    std::vector<float> values = counting(50, 1.0f);
    values[49] = 0;
    return values;
}
BUG_MAIN(expected())
