// Neighbouring threads read elements a row apart: each lane takes a sector of its own, of which it uses an eighth.
// caught by count: costly: load_sectors is 1024, 128 would do
#include "bug.h"

constexpr int side = 32;

template <bool fixed> __global__ void sums(float *out, const float *in)
{
    const int lane = static_cast<int>(threadIdx.x);
    float sum = 0;
    for (int i = 0; i < side; i++) sum += in[fixed ? i * side + lane : lane * side + i]; // of a column; of a row
    out[lane] = sum;
}

template <bool fixed> int run(float *out)
{
    return tc::launch<sums<fixed>>(tc::Launch(1, side, 0, nullptr), out, device_array(std::vector<float>(side * side, 1.0f)));
}
COSTLY_MAIN(std::vector<float>(side, side), "load_sectors", 128)
