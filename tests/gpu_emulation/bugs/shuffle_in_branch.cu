// A shuffle over all lanes is in a branch that only some of them take.
// caught by plain greedy 1: __shfl_down_sync: mask 0xffffffff names lane \d+, which has ended\n  at {here}
// caught by plain: deadlock: no thread can go on\n  24 threads .* wait at __shfl_down_sync, {here}, lanes 0xffffffff\n  8 threads have
// ended
#include "bug.h"

template <bool fixed> __global__ void neighbours(float *out, int n)
{
    const int i = 31 - static_cast<int>(threadIdx.x); // lanes of high index have ended before the others come
    float value = static_cast<float>(i);
    if (fixed) value = __shfl_down_sync(0xffffffffu, value, 1);
    if (i >= n) {
        if (!fixed) value = __shfl_down_sync(0xffffffffu, value, 1); // <- here
        out[i] = value;
    } else {
        out[i] = value;
    }
}

template <bool fixed> int run(float *out) { return tc::launch<neighbours<fixed>>(tc::Launch(1, 32, 0, nullptr), out, 8); }
std::vector<float> expected()
{
    std::vector<float> values(32);
    for (int i = 0; i < 32; i++) values[i] = static_cast<float>(i > 0 ? i - 1 : 0);
    return values;
}
BUG_MAIN(expected())
