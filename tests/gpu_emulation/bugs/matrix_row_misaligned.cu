// Rows of 17 half-precision elements: an odd stride avoids bank conflicts, and breaks the alignment ldmatrix needs.
// caught by plain: misaligned access: load_matrix_x2 of 16 bytes .* multiple of 16\n  at {here}
#include "bug.h"

template <bool fixed> __global__ void load(float *out)
{
    constexpr int stride = fixed ? 24 : 17;
    struct alignas(16) Tile {
        uint16_t at[8][stride];
    };
    TC_SHARED(Tile, tile);
    for (int i = threadIdx.x; i < 8 * stride; i += 32)
        tile.at[i / stride][i % stride] = static_cast<uint16_t>(i / stride * 16 + i % stride);
    __syncwarp();
    uint32_t r[2];
    tc::load_matrix_x2(r, &tile.at[threadIdx.x % 8][threadIdx.x / 8 % 2 * 8]); // <- here
    out[threadIdx.x] = static_cast<float>(r[1] & 0xffff);
}

template <bool fixed> int run(float *out) { return tc::launch<load<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
std::vector<float> expected()
{
    std::vector<float> values(32);
    for (int i = 0; i < 32; i++) values[i] = static_cast<float>(i / 4 * 16 + 8 + i % 4 * 2);
    return values;
}
BUG_MAIN(expected())
