// A kernel is given an address of the host.
// caught by access: wrong address: load of 4 bytes .*\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void copy(float *out, const float *in)
{
    out[threadIdx.x] = in[threadIdx.x]; // <- here
}

template <bool fixed> int run(float *out)
{
    static std::vector<float> host;
    host = counting(32);
    return tc::launch<copy<fixed>>(tc::Launch(1, 32, 0, nullptr), out, fixed ? device_array(host) : host.data());
}
BUG_MAIN(counting(32))
