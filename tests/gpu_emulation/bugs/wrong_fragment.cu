// Registers 1 and 2 of a fragment are swapped: rows and columns of the 8x8 quarters change places.
// caught by plain: wrong result
#include "bug.h"

// out (16,8) = a (16,8) b (8,8) in tf32; a[m][k] = 8 m + k, b is the identity
template <bool fixed> __global__ void multiply(float *out)
{
    const int group = threadIdx.x / 4, pair = threadIdx.x % 4;
    uint32_t a[4];
    for (int i = 0; i < 4; i++) {
        const int row = group + 8 * (fixed ? i % 2 : i / 2), column = pair + 4 * (fixed ? i / 2 : i % 2);
        a[i] = tc::float_to_tf32(static_cast<float>(8 * row + column));
    }
    const uint32_t b[2] = {tc::float_to_tf32(pair == group), tc::float_to_tf32(pair + 4 == group)};
    float d[4] = {};
    tc::mma_tf32(d, a, b);
    for (int i = 0; i < 4; i++) out[(group + 8 * (i / 2)) * 8 + 2 * pair + i % 2] = d[i];
}

template <bool fixed> int run(float *out) { return tc::launch<multiply<fixed>>(tc::Launch(1, 32, 0, nullptr), out); }
BUG_MAIN(counting(128))
