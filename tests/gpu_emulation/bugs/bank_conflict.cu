// A tile is read by columns: all lanes ask one bank. With rows of 33 elements each asks another.
// caught by count: costly: wavefronts is 1056, 64 would do
#include "bug.h"

constexpr int side = 32;

template <bool fixed> __global__ void sums(float *out, const float *in)
{
    TC_SHARED(float, tile, [side][fixed ? side + 1 : side]);
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = 0; i < side; i++) tile[i][lane] = in[i * side + lane];
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < side; i++) sum += tile[lane][i];
    out[lane] = sum;
}

template <bool fixed> int run(float *out)
{
    return tc::launch<sums<fixed>>(tc::Launch(1, side, 0, nullptr), out, device_array(std::vector<float>(side * side, 1.0f)));
}
COSTLY_MAIN(std::vector<float>(side, side), "wavefronts", 64)
