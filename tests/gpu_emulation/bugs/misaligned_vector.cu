// Four floats at once from an address that is a multiple of 4 bytes only.
// caught by access: misaligned access: load of 16 bytes .*\n  at {here}
// caught by address: {here}:\d+: runtime error: .* misaligned address
#include "bug.h"

template <bool fixed> __global__ void copy(float *out, const float *in)
{
    const int first = fixed ? 4 : 5;
    const auto *vectors = reinterpret_cast<const tc::Vector<float, 4> *>(in + first);
    const tc::Vector<float, 4> v = vectors[threadIdx.x]; // <- here
    out[threadIdx.x] = v.at[0] + v.at[1] + v.at[2] + v.at[3];
}

template <bool fixed> int run(float *out) { return tc::launch<copy<fixed>>(tc::Launch(1, 4, 0, nullptr), out, device_array(counting(32))); }
BUG_MAIN((std::vector<float>{22, 38, 54, 70}))
