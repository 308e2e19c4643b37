// product_with_dropout_main.h: the main function of a program that test_kernel_bugs.py makes of gemm_tensor.cu, as it is or with a bug. It
// computes products of bfloat16 in tiles of 64 and 16 with dropout of one half, to which a matrix is added, and compares all results, which
// are whole numbers that bfloat16 has exactly, with those of the words of ../philox.h.
#include "bugs/bug.h"
using namespace tc;

namespace
{

constexpr uint64_t seed = 0x8000000000000005u, call = 3;

bool is_kept_here(uint64_t element)
{
    const uint64_t block = element / TC_PHILOX_GROUP * TC_PHILOX_BLOCKS + element % TC_PHILOX_BLOCKS;
    uint32_t x[4] = {uint32_t(block), uint32_t(block >> 32), uint32_t(call), uint32_t(call >> 32)};
    uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
    for (int round = 0; round < TC_PHILOX_ROUNDS; round++) {
        const uint64_t p = uint64_t(TC_PHILOX_M0) * x[0], q = uint64_t(TC_PHILOX_M1) * x[2];
        const uint32_t next[4] = {uint32_t(q >> 32) ^ x[1] ^ key[0], uint32_t(q), uint32_t(p >> 32) ^ x[3] ^ key[1], uint32_t(p)};
        memcpy(x, next, sizeof x);
        key[0] += TC_PHILOX_W0, key[1] += TC_PHILOX_W1;
    }
    return x[element / TC_PHILOX_BLOCKS % 4] >= tc_keep_threshold(0.5);
}

float left_at(int64_t m, int64_t k) { return static_cast<float>((m * 7 + k * 3) % 5 - 2); }
float right_at(int64_t n, int64_t k) { return static_cast<float>((n * 5 + k * 11) % 3 - 1); }
float before_at(int64_t m, int64_t n) { return static_cast<float>((m * 3 + n * 13) % 17 - 8); }

template <class F> bfloat16 *matrix(int64_t rows, int64_t columns, F at)
{
    std::vector<bfloat16> x(static_cast<size_t>(rows * columns));
    for (int64_t i = 0; i < rows * columns; i++) narrow(x[static_cast<size_t>(i)], at(i / columns, i % columns));
    return device_array(x);
}

// The batch has `row` elements numbered together, from the first such row on each third one. Rows of the result are longer in memory.
template <int tile> int compare(int64_t M, int64_t N, int64_t row)
{
    constexpr int64_t K = 16, first = 1, step = 3;
    tc_gemm_args a = {};
    a.M = M, a.N = N, a.K = a.k_chunk = K, a.k_chunks = a.batch = 1, a.c_row = a.residual_row = N + 8;
    a.a = matrix(M, K, left_at), a.b = matrix(N, K, right_at), a.residual = matrix(M, N + 8, before_at);
    a.a_row = a.b_col = K, a.a_col = a.b_row = 1;
    a.mask = {0.5, seed, call, nullptr, {row, first, step}};
    std::vector<bfloat16> c(static_cast<size_t>(M * (N + 8)));
    bfloat16 *to = device_array(c);
    a.c = to;
    if (const int error = launch_tensor_tile<bfloat16, tile, true, true, false>(a, nullptr)) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    cudaMemcpyAsync(c.data(), to, c.size() * sizeof(bfloat16), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t i = 0; i < M * N; i++) {
        const int64_t m = i / N, n = i % N, element = (first + i / row * step) * row + i % row;
        float sum = 0;
        for (int64_t k = 0; k < K; k++) sum += left_at(m, k) * right_at(n, k);
        sum = (is_kept_here(static_cast<uint64_t>(element)) ? 2 * sum : 0) + before_at(m, n);
        if (widen(c[static_cast<size_t>(m * (N + 8) + n)]) == sum) continue;
        printf("wrong result in row %lld, column %lld\n", static_cast<long long>(m), static_cast<long long>(n));
        return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    if (const int error = compare<64>(68, 192, 17 * 192)) return error; // groups within rows of the tile
    if (const int error = compare<64>(16, 72, 8 * 72)) return error;    // vectors, of groups that rows share
    if (const int error = compare<64>(6, 67, 2 * 67)) return error;     // elements
    if (const int error = compare<64>(1, 64, 4)) return error;          // of a row that is numbered in parts
    return compare<16>(9, 64, 9 * 64);                                  // groups that are not whole in the tile
}
