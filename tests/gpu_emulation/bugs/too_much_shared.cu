// More static shared memory than a block may have without asking.
// caught by plain: too much shared memory: 'tile' makes 49184 bytes .*\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void fill(float *out)
{
    TC_SHARED(float, tile, [fixed ? 12288 : 12296]); // <- here
    tile[threadIdx.x] = static_cast<float>(threadIdx.x);
    out[threadIdx.x] = tile[threadIdx.x];
}

template <bool fixed> int run(float *out) { return tc::launch<fill<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
BUG_MAIN(counting(32))
