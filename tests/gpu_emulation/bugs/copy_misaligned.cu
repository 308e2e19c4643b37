// A 16-byte copy from a row whose length is not a multiple of 16 bytes.
// caught by plain: misaligned access: cp.async of 16 bytes .* multiple of 16\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void copy(float *out, const float *in)
{
    constexpr int row = fixed ? 8 : 7;
    using Quad = tc::Vector<float, 4>;
    TC_SHARED(Quad, tile, [2]);
    if (threadIdx.x < 2) tc::copy_async<16>(&tile[threadIdx.x], in + row * threadIdx.x); // <- here
    tc::copy_async_commit();
    tc::copy_async_wait<0>();
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x / 4].at[threadIdx.x % 4];
}

template <bool fixed> int run(float *out) { return tc::launch<copy<fixed>>(tc::Launch(1, 8, 0, nullptr), out, device_array(counting(16))); }
BUG_MAIN((std::vector<float>{0, 1, 2, 3, 8, 9, 10, 11}))
