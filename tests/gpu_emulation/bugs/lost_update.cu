// All threads of a block add to one shared element without taking turns. The emulation never stops a thread between its load
// and its store, so the sum is right; on a GPU it is not.
// caught by access: race: .*\n  at {here}
// caught by thread: data race[\s\S]*{here}
#include "bug.h"

template <bool fixed> __global__ void count(float *out)
{
    TC_SHARED(float, total, [32]);
    total[threadIdx.x] = fixed ? 1.0f : 0.0f;
    __syncthreads();
    if (!fixed) total[0] += 1; // <- here
    if (fixed && threadIdx.x == 0)
        for (int i = 1; i < 32; i++) total[0] += total[i];
    __syncthreads();
    if (threadIdx.x == 0) out[0] = total[0];
}

template <bool fixed> int run(float *out) { return tc::launch<count<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
BUG_MAIN(std::vector<float>(1, 32))
