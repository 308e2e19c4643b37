// More dynamic shared memory than a block may ask for on the GPU that is emulated: 163 KiB of compute capability 8.0.
// caught by plain: invalid launch at {here}: .*fill.*, 166913 bytes of shared memory
#include "bug.h"

template <bool fixed> __global__ void fill(float *out)
{
    TC_DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x] = static_cast<float>(threadIdx.x);
    out[threadIdx.x] = tile[threadIdx.x];
}

template <bool fixed> int run(float *out)
{
    const size_t bytes = 163 * 1024 + !fixed;
    return tc::launch<fill<fixed>>(tc::Launch(1, 32, bytes, nullptr), out); // <- here
}
BUG_MAIN(counting(32))
