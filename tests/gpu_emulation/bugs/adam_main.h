// adam_main.h: the main function of a program that test_kernel_bugs.py makes of optimizer.cu, as it is or with a bug. It makes a step of
// AdamW with two parameters, of more than a block and with elements beyond the last vector, one of which begins where vectors do not.
#include "bugs/bug.h"
#include <cmath>

namespace
{

constexpr int64_t sizes[] = {4099, 301};
constexpr int arrays = 4; // parameter, gradient, two of state

float start(int array, int64_t i) { return static_cast<float>((i * 7 + array * 3) % 13 + (array == 3 ? 1 : -6 * (array < 2))) / 8; }

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    tc_adam_args a = {};
    tc_optimizer_chunk chunks[2] = {};
    float *at[2][arrays];
    for (int c = 0; c < 2; c++) {
        for (int array = 0; array < arrays; array++) {
            const size_t shift = c == 1 && array == 3;
            std::vector<float> x(static_cast<size_t>(sizes[c]) + shift);
            for (int64_t i = 0; i < sizes[c]; i++) x[static_cast<size_t>(i) + shift] = start(array, i);
            at[c][array] = device_array(x) + shift;
        }
        chunks[c].parameter = at[c][0], chunks[c].gradient = at[c][1], chunks[c].state[0] = at[c][2], chunks[c].state[1] = at[c][3];
        chunks[c].n = sizes[c], chunks[c].first_block = c * 2;
    }
    a.chunks = chunks, a.chunk_count = 2, a.lr = 0.1, a.beta1 = 0.9, a.beta2 = 0.99, a.eps = 1e-8, a.weight_decay = 0.2;
    a.correction1 = 0.1, a.correction2 = 0.01, a.decoupled = true;
    if (const int error = launch_groups<adam_kernel<float>>(a, nullptr)) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    for (int c = 0; c < 2; c++) {
        std::vector<float> p(static_cast<size_t>(sizes[c])), m(p);
        cudaMemcpyAsync(p.data(), at[c][0], p.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
        cudaMemcpyAsync(m.data(), at[c][2], m.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
        for (int64_t i = 0; i < sizes[c]; i++) {
            const double g = start(1, i), mean = start(2, i) + (g - start(2, i)) * 0.1, square = g * g * 0.01 + 0.99 * start(3, i);
            const double wanted = start(0, i) * (1 - 0.1 * 0.2) - 0.1 / 0.1 * (mean / (std::sqrt(square) / std::sqrt(0.01) + 1e-8));
            const float found = p[static_cast<size_t>(i)];
            if (std::fabs(found - wanted) < 1e-5 && std::fabs(m[static_cast<size_t>(i)] - mean) < 1e-6) continue;
            printf("wrong result: [%lld] of %lld is %g, expected %g\n", static_cast<long long>(i), static_cast<long long>(sizes[c]),
                   static_cast<double>(found), wanted);
            return 1;
        }
    }
    return 0;
}
