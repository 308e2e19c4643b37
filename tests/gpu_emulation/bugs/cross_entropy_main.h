// cross_entropy_main.h: the main function of a program that test_kernel_bugs.py makes of loss.cu, as it is or with a bug. It computes
// smoothed cross-entropies and their gradients, of rows that go through the registers at once and of longer ones, whose largest element
// comes late.
#include "bugs/bug.h"
#include <cmath>

namespace
{

int compare(int64_t N, int64_t C, bool lowest_first)
{
    const size_t n = static_cast<size_t>(N * C);
    std::vector<float> x(n), numbers(static_cast<size_t>(N)), ones(static_cast<size_t>(N), 1.0f);
    std::vector<int64_t> target(static_cast<size_t>(N));
    for (size_t i = 0; i < n; i++) x[i] = static_cast<float>(i % static_cast<size_t>(C)) / static_cast<float>(C) * 20 - 5;
    for (int64_t row = 0; row < N; row++) {
        target[static_cast<size_t>(row)] = C - 1 - row;
        for (int64_t i = 0; lowest_first && i < C - 8; i++) x[static_cast<size_t>(row * C + i)] = -INFINITY;
    }
    const double smoothing = lowest_first ? 0 : 0.25;
    tc_cross_entropy_forward_args f = {};
    f.loss = device_array(numbers), f.top = device_array(numbers), f.log_sum = device_array(numbers);
    f.x = device_array(x), f.target = device_array(target), f.C = C, f.ignore_index = -100, f.smoothing = smoothing;
    tc_cross_entropy_backward_args b = {};
    b.dx = device_array(std::vector<float>(n)), b.dloss = device_array(ones), b.x = f.x, b.top = f.top, b.log_sum = f.log_sum;
    b.target = f.target, b.C = C, b.ignore_index = -100, b.smoothing = smoothing;
    int error = tc_cuda_cross_entropy_forward<float>(&f, N, nullptr, nullptr);
    if (!error) error = tc_cuda_cross_entropy_backward<float>(&b, N, nullptr, nullptr);
    if (error) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    std::vector<float> loss(static_cast<size_t>(N)), dx(n);
    cudaMemcpyAsync(loss.data(), f.loss, loss.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    cudaMemcpyAsync(dx.data(), b.dx, n * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t row = 0; row < N; row++) {
        const float *own = x.data() + row * C;
        const int64_t t = target[static_cast<size_t>(row)];
        double sum = 0, spread = 0;
        for (int64_t i = 0; i < C; i++) sum += std::exp(double(own[i]) - 15);
        const double lse = 15 + std::log(sum);
        for (int64_t i = 0; smoothing != 0 && i < C; i++) spread += (lse - own[i]) / double(C);
        const double wanted = (1 - smoothing) * (lse - own[t]) + smoothing * spread;
        bool wrong = !(std::fabs(loss[static_cast<size_t>(row)] - wanted) < 1e-4 * (1 + wanted));
        for (int64_t i = 0; i < C; i++) {
            const double slope = std::exp(own[i] - lse) - (1 - smoothing) * (i == t) - smoothing / double(C);
            wrong = wrong || !(std::fabs(dx[static_cast<size_t>(row * C + i)] - slope) < 1e-5);
        }
        if (!wrong) continue;
        printf("wrong result in row %lld of %lld: %g, expected %g\n", static_cast<long long>(row), static_cast<long long>(C),
               static_cast<double>(loss[static_cast<size_t>(row)]), wanted);
        return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    return compare(5, 10, false) || compare(3, 301, true) || compare(2, 1032, false) || compare(2, 8200, false) || compare(1, 8200, true);
}
