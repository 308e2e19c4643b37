// The last block is not full, and its surplus threads write.
// caught by plain: out of bounds: the bytes around .* were overwritten
// caught by access: out of bounds: store of 4 bytes .*\n  at {here}
// caught by address: use-after-poison[\s\S]*{here}
#include "bug.h"

template <bool fixed> __global__ void fill(float *out, int n)
{
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (fixed && i >= n) return;
    out[i] = static_cast<float>(i); // <- here
}

template <bool fixed> int run(float *out) { return tc::launch<fill<fixed>>(tc::Launch(2, 32, 0, nullptr), out, 50); }
BUG_MAIN(counting(50))
