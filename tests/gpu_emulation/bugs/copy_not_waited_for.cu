// Two copies are on their way and the wait is for all but one of them: the last tile is used before it is there.
// caught by plain: asynchronous copy never waited for.*\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void copy(float *out, const float *in)
{
    TC_SHARED(float, tile, [2][32]);
    for (int step = 0; step < 2; step++) {
        tc::copy_async<4>(&tile[step][threadIdx.x], in + 32 * step + threadIdx.x); // <- here
        tc::copy_async_commit();
    }
    tc::copy_async_wait<fixed ? 0 : 1>();
    __syncthreads();
    for (int step = 0; step < 2; step++) out[32 * step + threadIdx.x] = tile[step][31 - threadIdx.x];
}

template <bool fixed> int run(float *out)
{
    std::vector<float> in(64);
    for (int i = 0; i < 64; i++) in[i] = static_cast<float>(i / 32 * 32 + 31 - i % 32);
    return tc::launch<copy<fixed>>(tc::Launch(1, 32, 0, nullptr), out, device_array(in));
}
BUG_MAIN(counting(64))
