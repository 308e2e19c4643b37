// sum_partials_main.h: the main function of a program that test_kernel_bugs.py makes of sum_partials.cu, as it is or with a bug. It adds
// chunks to what is there before, fewer than a block reads at a time and more, and compares all sums, which are whole numbers.
#include "bugs/bug.h"

namespace
{

float value_at(int64_t i) { return static_cast<float>(i * 7 % 23 - 11); }

std::vector<float> values(int64_t n, int64_t first)
{
    std::vector<float> x(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; i++) x[static_cast<size_t>(i)] = value_at(first + i);
    return x;
}

int compare(int64_t chunks, int64_t C)
{
    std::vector<float> sums(static_cast<size_t>(C));
    float *to = device_array(sums);
    tc_sum_partials_args a = {};
    a.out = to, a.partial = device_array(values(chunks * C, 0)), a.before = device_array(values(C, 5));
    a.chunks = chunks, a.C = C;
    if (const int error = tc_cuda_sum_partials<float>(&a, 0, nullptr, nullptr)) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    cudaMemcpyAsync(sums.data(), to, sums.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t c = 0; c < C; c++) {
        float sum = value_at(5 + c);
        for (int64_t chunk = 0; chunk < chunks; chunk++) sum += value_at(chunk * C + c);
        if (sums[static_cast<size_t>(c)] == sum) continue;
        printf("wrong result in column %lld\n", static_cast<long long>(c));
        return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    if (const int error = compare(3, 40)) return error;
    return compare(150, 33);
}
