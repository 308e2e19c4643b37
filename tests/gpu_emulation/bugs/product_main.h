// product_main.h: the main function of a program that test_kernel_bugs.py makes of a product's kernel, as it is or with a bug. It computes
// products in tiles of 64 (of halves one of few rows too), whose operands run along k or across it, adds them to a matrix that is there
// before, and compares all sums, which float32 has exactly; a short product has an infinity. Numbers are whole ones, of which some are
// larger or smaller by `rest` times themselves, at any k those of one operand only. What includes this has the type Stored, the longest K,
// rest, what is seen() of a number by products along k or across it, and start<along>().
#include "bugs/bug.h"
#include <limits>

namespace
{

// turn: whether it has a rest of its own, and of which sign.
float number(int64_t whole, int64_t turn) { return static_cast<float>(whole) * (1 + static_cast<float>(turn % 3 - 1) * rest); }
float left_at(int64_t m, int64_t k) { return number((m * 7 + k * 3) % 5 - 2, k % 2 ? 1 : m + k / 2); }
float right_at(int64_t n, int64_t k) { return number((n * 5 + k * 11) % 7 - 3, k % 2 ? n + k / 2 : 1); }
float before_at(int64_t m, int64_t n) { return static_cast<float>((m * 3 + n * 13) % 17 - 8); }

template <class F> std::vector<Stored> matrix(int64_t rows, int64_t K, bool along, F at)
{
    std::vector<Stored> x(static_cast<size_t>(rows * K));
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < K; k++) narrow(x[static_cast<size_t>(along ? row * K + k : k * rows + row)], at(row, k));
    return x;
}

bool are_same(float x, float y) { return x == y || (x != x && y != y); }

// `first`: where in memory the matrix begins, whose rows are longer than those of the result. `infinite`: a number of A.
template <bool along> int compare(int64_t M, int64_t N, int64_t K, int64_t first, bool infinite)
{
    const auto left = [=](int64_t m, int64_t k) {
        return infinite && m == 3 && k == 5 ? std::numeric_limits<float>::infinity() : left_at(m, k);
    };
    tc_gemm_args a = {};
    a.residual_row = N + 2;
    std::vector<float> before(static_cast<size_t>(first + M * a.residual_row));
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) before[static_cast<size_t>(first + m * a.residual_row + n)] = before_at(m, n);
    a.residual = device_array(before) + first;
    a.M = M, a.N = N, a.K = a.k_chunk = K, a.k_chunks = a.batch = 1, a.c_row = N, a.wide = true;
    a.a = device_array(matrix(M, K, along, left));
    a.b = device_array(matrix(N, K, along, right_at));
    a.a_row = a.b_col = along ? K : 1;
    (along ? a.a_col : a.a_row) = (along ? a.b_row : a.b_col) = 1;
    if (!along) a.a_col = M, a.b_row = N;
    std::vector<float> c(static_cast<size_t>(M * N)), sums(static_cast<size_t>(M));
    float *to = device_array(c), *to_sums = device_array(sums);
    a.c = to;
    if (!along) a.a_sum = to_sums;
    if (const int error = start<along>(a)) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    cudaMemcpyAsync(c.data(), to, c.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    cudaMemcpyAsync(sums.data(), to_sums, sums.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t m = 0; m < M; m++) {
        float row_sum = 0;
        for (int64_t k = 0; k < K; k++) row_sum += left(m, k);
        bool wrong = !along && !are_same(sums[static_cast<size_t>(m)], row_sum);
        for (int64_t n = 0; n < N; n++) {
            float sum = before_at(m, n);
            for (int64_t k = 0; k < K; k++) sum += seen(along, left(m, k)) * seen(along, right_at(n, k));
            wrong = wrong || !are_same(c[static_cast<size_t>(m * N + n)], sum);
        }
        if (!wrong) continue;
        printf("wrong result in row %lld\n", static_cast<long long>(m));
        return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    if (const int error = compare<true>(70, 67, longest - longest % 8, 0, false)) return error;
    if (const int error = compare<true>(9, 40, longest - longest % 8, 0, false)) return error;
    if (const int error = compare<false>(72, 80, longest, 0, false)) return error;
    if (const int error = compare<false>(8, 16, 8, 1, true)) return error;
    const int64_t passes = emulator_count("wavefronts"), ideal = emulator_count("ideal_wavefronts");
    if (passes == ideal) return 0;
    printf("costly: %lld wavefronts, %lld would do\n", static_cast<long long>(passes), static_cast<long long>(ideal));
    return 1;
}
