// 16-byte copies into an array of floats: where the compiler puts it, its address is a multiple of 4 bytes and no more.
// caught by plain: misaligned access: cp.async of 16 bytes .* multiple of 16\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void copy(float *out, const float *in)
{
    using Element = std::conditional_t<fixed, tc::Vector<float, 4>, float>;
    TC_SHARED(Element, tile, [32 / (sizeof(Element) / 4)]);
    auto *floats = reinterpret_cast<float *>(tile);
    if (threadIdx.x < 8) tc::copy_async<16>(floats + 4 * threadIdx.x, in + 4 * threadIdx.x); // <- here
    tc::copy_async_commit();
    tc::copy_async_wait<0>();
    __syncthreads();
    out[threadIdx.x] = floats[31 - threadIdx.x];
}

template <bool fixed> int run(float *out)
{
    return tc::launch<copy<fixed>>(tc::Launch(1, 32, 0, nullptr), out, device_array(counting(32)));
}
std::vector<float> expected()
{
    std::vector<float> values = counting(32);
    return {values.rbegin(), values.rend()};
}
BUG_MAIN(expected())
