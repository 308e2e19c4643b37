// A grid of no blocks: the sizes were divided the wrong way round.
// caught by plain: invalid launch at {here}: .*fill.* a grid of \(0, 1, 1\), blocks of \(32, 1, 1\) threads
#include "bug.h"

template <bool fixed> __global__ void fill(float *out) { out[threadIdx.x] = static_cast<float>(threadIdx.x); }

template <bool fixed> int run(float *out)
{
    return tc::launch<fill<fixed>>(tc::Launch(fixed ? 1 : 0, 32, 0, nullptr), out); // <- here
}
BUG_MAIN(counting(32))
