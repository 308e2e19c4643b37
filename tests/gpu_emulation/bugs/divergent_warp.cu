// Lanes of one warp come to different collectives.
// caught by plain: divergent warp: this lane came to __ballot_sync .* waits at __shfl_sync .*\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void vote(float *out)
{
    float value = static_cast<float>(threadIdx.x);
    if (fixed || threadIdx.x < 31) value = __shfl_sync(0xffffffffu, value, 3);
    const unsigned votes = __ballot_sync(0xffffffffu, threadIdx.x < 4); // <- here
    out[threadIdx.x] = value + static_cast<float>(votes);
}

template <bool fixed> int run(float *out) { return tc::launch<vote<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
BUG_MAIN(std::vector<float>(32, 18))
