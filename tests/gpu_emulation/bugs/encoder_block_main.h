// encoder_block_main.h: the main function of a program that test_kernel_bugs.py makes of encoder_block.cu, as it is or with a bug. It takes
// sequences through a block with a norm after each branch and before it: rows of whole vectors, of a whole panel and of more, and others.
#include "bugs/bug.h"
#include "bugs/float_matrix.h"

namespace
{

struct Case {
    int64_t B, T, E, H, F;
    bool norm_first, masked;
};

// A weight (N,K) with its bias, or gamma and beta as one of them; both in device memory too.
struct Weights {
    Matrix weight, bias;
    const float *on_device, *bias_on_device;

    Weights(int64_t N, int64_t K, int64_t by)
        : weight(N, K, by, -1), bias(1, N, by + 2, -1), on_device(device_array(weight.data)), bias_on_device(device_array(bias.data))
    {
    }
    tc_gemm_args args() const
    {
        tc_gemm_args g = {};
        g.b = on_device, g.bias = bias_on_device, g.N = static_cast<int64_t>(bias.data.size()), g.K = weight.columns;
        return g;
    }
};

// (T,N) = x (T,K) weight^T + bias
std::vector<double> product(const std::vector<double> &x, const Weights &w)
{
    const int64_t K = w.weight.columns, N = static_cast<int64_t>(w.bias.data.size()), T = static_cast<int64_t>(x.size()) / K;
    std::vector<double> y(static_cast<size_t>(T * N));
    for (int64_t i = 0; i < T; i++)
        for (int64_t n = 0; n < N; n++) {
            double sum = w.bias.at(0, n);
            for (int64_t k = 0; k < K; k++) sum += x[static_cast<size_t>(i * K + k)] * w.weight.at(n, k);
            y[static_cast<size_t>(i * N + n)] = sum;
        }
    return y;
}

std::vector<double> normalised(const std::vector<double> &x, const Matrix &gamma, const Matrix &beta)
{
    const size_t E = gamma.data.size();
    std::vector<double> y(x.size());
    for (size_t row = 0; row < x.size(); row += E) {
        double mean = 0, squares = 0;
        for (size_t i = 0; i < E; i++) mean += x[row + i] / double(E);
        for (size_t i = 0; i < E; i++) squares += (x[row + i] - mean) * (x[row + i] - mean) / double(E);
        for (size_t i = 0; i < E; i++)
            y[row + i] = (x[row + i] - mean) / std::sqrt(squares + 1e-3) * double(gamma.data[i]) + double(beta.data[i]);
    }
    return y;
}

bool sees(int64_t i, int64_t j) { return i == 2 || (i * 3 + j * 5 + i * j) % 4 != 0; }

// values (T,E) from qkv (T,H,3,D)
std::vector<double> attended(const std::vector<double> &qkv, const Case &c)
{
    const int64_t D = c.E / c.H;
    std::vector<double> values(static_cast<size_t>(c.T * c.E));
    for (int64_t h = 0; h < c.H; h++)
        for (int64_t i = 0; i < c.T; i++) {
            const auto at = [&](int64_t row, int64_t which, int64_t d) {
                return qkv[static_cast<size_t>(row * 3 * c.E + (h * 3 + which) * D + d)];
            };
            std::vector<double> weights(static_cast<size_t>(c.T));
            double total = 0;
            for (int64_t j = 0; j < c.T; j++) {
                double score = 0;
                for (int64_t d = 0; d < D; d++) score += at(i, 0, d) * at(j, 1, d) / std::sqrt(double(D));
                total += weights[static_cast<size_t>(j)] = c.masked && !sees(i, j) ? 0 : exp(score);
            }
            for (int64_t j = 0; j < c.T; j++)
                for (int64_t d = 0; d < D; d++)
                    values[static_cast<size_t>(i * c.E + h * D + d)] += weights[static_cast<size_t>(j)] / total * at(j, 2, d);
        }
    return values;
}

void add(std::vector<double> &to, const std::vector<double> &x)
{
    for (size_t i = 0; i < to.size(); i++) to[i] += x[i];
}

// In device memory that ends where the array does, and is followed by nothing.
int compare(const Case &c)
{
    const int64_t B = c.B, T = c.T, E = c.E, F = c.F;
    const Matrix x(B * T, E, 3, -1), gamma1(1, E, 5, -1), beta1(1, E, 6, -1), gamma2(1, E, 7, -1), beta2(1, E, 8, -1);
    Weights qkv(3 * E, E, 2), out(E, E, 3), up(F, E, 4), down(E, F, 5);
    std::vector<float> y(x.data.size());
    float *const to = device_array(y);
    std::vector<uint8_t> mask(static_cast<size_t>(T * T));
    for (int64_t i = 0; i < T; i++)
        for (int64_t j = 0; j < T; j++) mask[static_cast<size_t>(i * T + j)] = sees(i, j);
    tc_encoder_block_args a = {};
    a.y = to, a.x = device_array(x.data), a.B = B, a.T = T, a.E = E, a.norm_first = c.norm_first;
    a.qkv = qkv.args(), a.out = out.args(), a.up = up.args(), a.down = down.args();
    a.up.activation = TC_ACTIVATION_RELU;
    a.norm1.gamma = device_array(gamma1.data), a.norm1.beta = device_array(beta1.data), a.norm1.eps = 1e-3;
    a.norm2.gamma = device_array(gamma2.data), a.norm2.beta = device_array(beta2.data), a.norm2.eps = 1e-3;
    tc_attention_problem &p = a.attention.problem;
    p.H = c.H, p.scale = 1 / std::sqrt(double(E / c.H));
    if (c.masked) p.mask = {device_array(mask), 0, 0, T, 1};
    if (const int error = tc_cuda_encoder_block_forward<float>(&a, B, nullptr, nullptr)) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    cudaMemcpyAsync(y.data(), to, y.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t b = 0; b < B; b++) {
        std::vector<double> stream(x.data.begin() + b * T * E, x.data.begin() + (b + 1) * T * E);
        for (int branch = 0; branch < 2; branch++) {
            const Matrix &gamma = branch ? gamma2 : gamma1, &beta = branch ? beta2 : beta1;
            std::vector<double> wide = product(c.norm_first ? normalised(stream, gamma, beta) : stream, branch ? up : qkv);
            if (branch)
                for (double &one : wide) one = one < 0 ? 0 : one;
            add(stream, product(branch ? wide : attended(wide, c), branch ? down : out));
            if (!c.norm_first) stream = normalised(stream, gamma, beta);
        }
        for (int64_t i = 0; i < T; i++)
            for (int64_t d = 0; d < E; d++)
                if (is_wrong("y", b * T + i, d, y[static_cast<size_t>((b * T + i) * E + d)], stream[static_cast<size_t>(i * E + d)]))
                    return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    const Case cases[] = {
        {2, 16, 32, 4, 64, false, true}, {2, 5, 6, 2, 7, true, false}, {1, 21, 24, 3, 68, true, true}, {1, 33, 8, 1, 9, false, false}};
    for (const Case &c : cases) {
        if (const int error = compare(c)) return error;
        if (c.T == 16 && is_costly()) return 1;
    }
    return 0;
}
