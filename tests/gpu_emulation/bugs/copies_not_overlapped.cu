// Shared memory has room for two tiles, and each wait is for all copies: the next tile is not on its way while one is used.
// caught by count: costly: idle_waits is 128, 32 would do
#include "bug.h"

constexpr int tiles = 4;

template <bool fixed> __global__ void sums(float *out, const float *in)
{
    TC_SHARED(float, tile, [2][32]);
    const int lane = static_cast<int>(threadIdx.x);
    const auto fetch = [&](int step) {
        tc::copy_async<4>(&tile[step % 2][lane], in + 32 * step + lane);
        tc::copy_async_commit();
    };
    float sum = 0;
    fetch(0);
    for (int step = 0; step < tiles; step++) {
        if (step + 1 < tiles) fetch(step + 1);
        if (fixed && step + 1 < tiles)
            tc::copy_async_wait<1>();
        else
            tc::copy_async_wait<0>();
        __syncthreads();
        sum += tile[step % 2][31 - lane];
        __syncthreads();
    }
    out[lane] = sum;
}

template <bool fixed> int run(float *out)
{
    return tc::launch<sums<fixed>>(tc::Launch(1, 32, 0, nullptr), out, device_array(std::vector<float>(tiles * 32, 1.0f)));
}

int main(int argc, char **argv)
{
    const int failed = run_costly(argc, argv, run<false>, run<true>, std::vector<float>(32, tiles), "idle_waits", 32);
    return failed ? failed : emulator_count("copies_in_flight") != 32 * (2 + 2 + 2 + 1);
}
