// Half a warp waits at a barrier, the other half for the whole warp at a shuffle.
// caught by plain: deadlock: no thread can go on\n  16 threads .* wait at __syncthreads, deadlock.cu:\d+\n  16 threads .* wait at
// __shfl_xor_sync, {here}, lanes 0xffffffff caught by plain random 1: deadlock
#include "bug.h"

template <bool fixed> __global__ void half_sums(float *out)
{
    float value = static_cast<float>(threadIdx.x);
    if (threadIdx.x < 16 && !fixed) __syncthreads();
    const unsigned mask = 0xffffffffu;
    value += __shfl_xor_sync(mask, value, 16); // <- here
    out[threadIdx.x] = value;
}

template <bool fixed> int run(float *out) { return tc::launch<half_sums<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
std::vector<float> expected()
{
    std::vector<float> values(32);
    for (int i = 0; i < 32; i++) values[i] = static_cast<float>(2 * (i % 16) + 16);
    return values;
}
BUG_MAIN(expected())
