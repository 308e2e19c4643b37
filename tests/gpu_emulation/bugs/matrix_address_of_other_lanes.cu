// Two matrices need the addresses of 16 lanes; sm_75 wants a valid one of the other 16 as well, and here they point past the tile.
// caught by plain: out of bounds: load_matrix_x2 of 16 bytes .* is not inside one shared array\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void load(float *out)
{
    struct alignas(16) Row {
        uint16_t at[8];
    };
    TC_SHARED(Row, rows, [16]);
    if (threadIdx.x < 16)
        for (int i = 0; i < 8; i++) rows[threadIdx.x].at[i] = static_cast<uint16_t>(8 * threadIdx.x + i);
    __syncwarp();
    uint32_t r[2];
    tc::load_matrix_x2(r, rows + (fixed ? threadIdx.x % 16 : threadIdx.x)); // <- here
    out[threadIdx.x] = static_cast<float>(r[0] & 0xffff);
}

template <bool fixed> int run(float *out) { return tc::launch<load<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
std::vector<float> expected()
{
    std::vector<float> values = counting(32);
    for (float &value : values) value *= 2;
    return values;
}
BUG_MAIN(expected())
