// A shuffle among the lower half of a warp reads a lane of the upper half: its value is undefined on a GPU.
// caught by plain: __shfl_down_sync: reads lane 16, which is not in the mask 0xffff\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void half_sum(float *out)
{
    if (threadIdx.x >= 16) return;
    float value = 1;
    for (int distance = 8; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffu, value, distance, fixed ? 16 : 32); // <- here
    if (threadIdx.x == 0) out[0] = value;
}

template <bool fixed> int run(float *out) { return tc::launch<half_sum<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
BUG_MAIN(std::vector<float>(1, 16))
