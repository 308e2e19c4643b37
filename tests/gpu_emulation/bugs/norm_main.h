// norm_main.h: the main function of a program that test_kernel_bugs.py makes of layer_norm.cu, as it is or with a bug. It normalises sums
// of two rows and computes all gradients, of rows that some lanes, a warp and a block take, and of rows that are longer than what they
// keep.
#include "bugs/bug.h"
#include <cmath>

// The kernel of another file, for dropout of rows that are not kept whole: no row here drops anything.
template <class T> int tc_cuda_dropout_forward(const void *, int64_t, void *, void *) { return cudaErrorInvalidValue; }
template int tc_cuda_dropout_forward<float>(const void *, int64_t, void *, void *);

namespace
{

float value_at(int64_t i, int64_t seed) { return static_cast<float>((i * 7 + seed * 5 + i * i % 11) % 16 - 7) / 4; }

std::vector<float> values(int64_t n, int64_t seed)
{
    std::vector<float> x(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; i++) x[static_cast<size_t>(i)] = value_at(i, seed);
    return x;
}

std::vector<float> host(const void *array, int64_t n)
{
    std::vector<float> x(static_cast<size_t>(n));
    cudaMemcpyAsync(x.data(), array, x.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    return x;
}

bool differ(const std::vector<float> &x, const std::vector<double> &wanted, const char *name)
{
    for (size_t i = 0; i < x.size(); i++) {
        if (std::fabs(x[i] - wanted[i]) <= 1e-4 * (1 + std::fabs(wanted[i]))) continue;
        printf("wrong result: %s[%zu] is %g, expected %g\n", name, i, static_cast<double>(x[i]), wanted[i]);
        return true;
    }
    return false;
}

int compare(int64_t N, int64_t C, int64_t rows_per_chunk)
{
    const int64_t n = N * C, chunks = tc::divide_up(N, rows_per_chunk);
    const std::vector<float> x = values(n, 1), residual = values(n, 2), gamma = values(C, 3), beta = values(C, 4), dy = values(n, 5);
    const std::vector<float> nothing(static_cast<size_t>(n)), weights(static_cast<size_t>(chunks * C)), numbers(static_cast<size_t>(N));
    tc_layer_norm_forward_args f = {};
    f.x = device_array(x), f.residual = device_array(residual), f.gamma = device_array(gamma), f.beta = device_array(beta);
    f.y = device_array(nothing), f.sum = device_array(nothing), f.mean = device_array(numbers), f.rstd = device_array(numbers);
    f.C = C, f.eps = 1e-5;
    tc_layer_norm_backward_args b = {};
    b.dy = device_array(dy), b.x = f.sum, b.gamma = f.gamma, b.mean = f.mean, b.rstd = f.rstd;
    b.dx = device_array(nothing), b.dgamma_partial = device_array(weights), b.dbeta_partial = device_array(weights);
    b.N = N, b.C = C, b.rows_per_chunk = rows_per_chunk;
    int error = tc_cuda_layer_norm_forward<float>(&f, N, nullptr, nullptr);
    if (!error) error = tc_cuda_layer_norm_backward<float>(&b, chunks, nullptr, nullptr);
    if (error) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    std::vector<double> y(x.size()), sum(x.size()), dx(x.size()), dgamma(weights.size()), dbeta(weights.size());
    for (int64_t row = 0; row < N; row++) {
        const size_t first = static_cast<size_t>(row * C), width = static_cast<size_t>(C);
        double mean = 0, squares = 0, g_mean = 0, gx_mean = 0;
        for (size_t i = 0; i < width; i++) mean += (sum[first + i] = double(x[first + i]) + residual[first + i]) / double(width);
        for (size_t i = 0; i < width; i++) squares += (sum[first + i] - mean) * (sum[first + i] - mean) / double(width);
        const double rstd = 1 / std::sqrt(squares + 1e-5);
        for (size_t i = 0; i < width; i++) {
            const double xhat = (sum[first + i] - mean) * rstd, d = dy[first + i], g = d * gamma[i];
            y[first + i] = xhat * gamma[i] + beta[i];
            g_mean += g / double(width), gx_mean += g * xhat / double(width);
            const size_t at = static_cast<size_t>(row / rows_per_chunk) * width + i;
            dgamma[at] += d * xhat, dbeta[at] += d;
        }
        for (size_t i = 0; i < width; i++)
            dx[first + i] = rstd * (double(dy[first + i]) * gamma[i] - g_mean - (sum[first + i] - mean) * rstd * gx_mean);
    }
    return differ(host(f.sum, n), sum, "sum") || differ(host(f.y, n), y, "y") || differ(host(b.dx, n), dx, "dx") ||
           differ(host(b.dgamma_partial, chunks * C), dgamma, "dgamma") || differ(host(b.dbeta_partial, chunks * C), dbeta, "dbeta");
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    return compare(37, 24, 35) || compare(18, 160, 10) || compare(3, 1040, 2) || compare(1, 8200, 1);
}
