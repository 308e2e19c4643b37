// One column too far in a shared tile: it lands in the next row, inside the array.
// caught by address: {here}:\d+: runtime error: index 32 out of bounds for type 'float
#include "bug.h"

template <bool fixed> __global__ void rotate(float *out)
{
    TC_SHARED(float, tile, [2][32]);
    for (int row = 0; row < 2; row++) tile[row][threadIdx.x] = static_cast<float>(32 * row + threadIdx.x);
    __syncthreads();
    const int next = static_cast<int>(threadIdx.x) + 1;
    out[threadIdx.x] = tile[0][fixed ? next % 32 : next]; // <- here
}

template <bool fixed> int run(float *out) { return tc::launch<rotate<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
std::vector<float> expected()
{
    std::vector<float> values = counting(32, 1.0f);
    values[31] = 0;
    return values;
}
BUG_MAIN(expected())
