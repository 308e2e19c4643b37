// The second operand of a product is loaded as it is in memory, not transposed.
// caught by plain: wrong result
#include "bug.h"

// out (16,8) = a (16,16) b (16,8); a is the identity, b[k][n] = 8 k + n
template <bool fixed> __global__ void multiply(float *out)
{
    struct alignas(16) Tile {
        tc::bfloat16 at[16][8];
    };
    TC_SHARED(Tile, b);
    for (int i = threadIdx.x; i < 128; i += 32) tc::from_float(b.at[i / 8][i % 8], static_cast<float>(i));
    __syncwarp();
    const int group = threadIdx.x / 4, pair = threadIdx.x % 4;
    tc::bfloat16 one;
    tc::from_float(one, 1.0f);
    const uint32_t low = one.bits, high = low << 16;
    const uint32_t diagonal = group == 2 * pair ? low : group == 2 * pair + 1 ? high : 0;
    const uint32_t a[4] = {diagonal, 0, 0, diagonal};
    uint32_t fragment[2];
    if (fixed)
        tc::load_matrix_x2_transposed(fragment, b.at[threadIdx.x % 16]);
    else
        tc::load_matrix_x2(fragment, b.at[threadIdx.x % 16]);
    float d[4] = {};
    tc::mma(d, a, fragment, tc::bfloat16());
    for (int i = 0; i < 4; i++) out[(group + 8 * (i / 2)) * 8 + 2 * pair + i % 2] = d[i];
}

template <bool fixed> int run(float *out) { return tc::launch<multiply<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
BUG_MAIN(counting(128))
