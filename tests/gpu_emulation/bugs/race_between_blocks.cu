// Blocks add to one element. Here they run one after the other and the sum is right; on a GPU they do not.
// caught by access: race between blocks: .*\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void sum(float *out, const float *in)
{
    if (fixed) {
        if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = in[0] + in[1];
        return;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = 0;
    if (threadIdx.x == 0) out[0] += in[blockIdx.x]; // <- here
}

template <bool fixed> int run(float *out)
{
    return tc::launch<sum<fixed>>(tc::Launch(2, 32, 0, nullptr), out, device_array(counting(2, 3.0f)));
}
BUG_MAIN(std::vector<float>(1, 7))
