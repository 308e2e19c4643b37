// A sum in shared memory that nobody has set to zero: shared memory starts as anything.
// caught by plain: wrong result: \[0\] is -?nan
// caught by access: uninitialised: load reads shared memory that nobody has written\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void sum(float *out)
{
    TC_SHARED(float, total, [1]);
    if (fixed && threadIdx.x == 0) total[0] = 0;
    __syncthreads();
    for (unsigned i = 0; i < 4; i++) {
        if (threadIdx.x == i) total[0] += 1; // <- here
        __syncthreads();
    }
    if (threadIdx.x == 0) out[0] = total[0];
}

template <bool fixed> int run(float *out) { return tc::launch<sum<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
BUG_MAIN(std::vector<float>(1, 4))
