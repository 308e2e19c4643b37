// encoder_block_cases.h: for the programs of encoder_block.cu and encoder_block_backward.cu: a block on the device, and what it makes of a
// sequence in float64, with all gradients.
#pragma once
#include "bugs/bug.h"
#include "bugs/float_matrix.h"
#include <algorithm>

namespace
{

constexpr int parameters = TC_ENCODER_BLOCK_PARAMETERS;
constexpr double eps = 1e-3;
using Rows = std::vector<double>; // of a sequence, one after the other

struct Case {
    int64_t B, T, E, H, F;
    bool norm_first, masked, drops;
    tc_activation activation;
    int64_t chunk; // of the backward
};

// Query 3 sees no key: it has the mean of all values then.
bool sees(int64_t i, int64_t j) { return i == 2 || (i != 3 && (i * 3 + j * 5 + i * j) % 4 != 0); }

// What dropout makes of a one, by the formulas of philox.h.
double kept(const tc_mask &mask, int64_t i)
{
    if (mask.p == 0) return 1;
    const uint64_t element = static_cast<uint64_t>(tc_place(&mask.places, i)), block = element / 64 * 16 + element % 16;
    uint32_t key[] = {static_cast<uint32_t>(mask.seed), static_cast<uint32_t>(mask.seed >> 32)};
    uint32_t word[] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(mask.call),
                       static_cast<uint32_t>(mask.call >> 32)};
    for (int round = 0; round < TC_PHILOX_ROUNDS; round++) {
        const uint64_t p0 = uint64_t(TC_PHILOX_M0) * word[0], p1 = uint64_t(TC_PHILOX_M1) * word[2];
        const uint32_t next[] = {static_cast<uint32_t>(p1 >> 32) ^ word[1] ^ key[0], static_cast<uint32_t>(p1),
                                 static_cast<uint32_t>(p0 >> 32) ^ word[3] ^ key[1], static_cast<uint32_t>(p0)};
        std::copy(next, next + 4, word);
        key[0] += TC_PHILOX_W0, key[1] += TC_PHILOX_W1;
    }
    return word[element / 16 % 4] >= tc_keep_threshold(mask.p) ? tc_keep_scale(mask.p) : 0;
}

double gelu_weight(double x) { return 0.5 * erfc(-x / std::sqrt(2.0)); }
double activated(tc_activation activation, double x) { return activation == TC_ACTIVATION_RELU ? std::max(x, 0.0) : x * gelu_weight(x); }
double slope(tc_activation activation, double x)
{
    if (activation == TC_ACTIVATION_RELU) return x > 0;
    return gelu_weight(x) + x * exp(-x * x / 2) / std::sqrt(2 * acos(-1.0));
}

// x, and the parameters in the order of encoder_block.h. On the device, each is followed by nothing.
struct Block {
    Case c;
    Matrix x;
    std::vector<Matrix> parameter;
    tc_encoder_block_args args = {};

    explicit Block(const Case &c_) : c(c_), x(c.B * c.T, c.E, 3, -1)
    {
        const int64_t E = c.E, F = c.F;
        args.x = device_array(x.data), args.B = c.B, args.T = c.T, args.E = E, args.norm_first = c.norm_first;
        add(args.qkv, 3 * E, E, 2), add(args.out, E, E, 3), add(args.up, F, E, 4), add(args.down, E, F, 5);
        add(args.norm1, 5), add(args.norm2, 7);
        args.up.activation = c.activation;
        tc_attention_problem &p = args.attention.problem;
        p.H = c.H, p.scale = 1 / std::sqrt(double(E / c.H));
        std::vector<uint8_t> mask(static_cast<size_t>(c.T * c.T));
        for (int64_t i = 0; i < c.T; i++)
            for (int64_t j = 0; j < c.T; j++) mask[static_cast<size_t>(i * c.T + j)] = sees(i, j);
        if (c.masked) p.mask = {device_array(mask), 0, 0, c.T, 1};
        if (!c.drops) return;
        const double probability[] = {0.3, 0.5, 0.2};
        for (uint64_t i = 0; i < TC_ENCODER_BLOCK_MASKS; i++) // every second sequence of a batch, from the second on
            args.mask[i] = {probability[i], 5ull << 40 | i, 7ull << 35 | i, nullptr, {c.T * (i == 1 ? F : E), 1, 2}};
    }

  private:
    const float *add(int64_t rows, int64_t columns, int64_t by)
    {
        parameter.emplace_back(rows, columns, by, -1);
        return device_array(parameter.back().data);
    }
    void add(tc_gemm_args &g, int64_t N, int64_t K, int64_t by) { g.b = add(N, K, by), g.bias = add(1, N, by + 2), g.N = N, g.K = K; }
    void add(tc_layer_norm_forward_args &norm, int64_t by)
    {
        norm.gamma = add(1, c.E, by), norm.beta = add(1, c.E, by + 1), norm.eps = eps;
    }
};

// (T,N) = x (T,K) weight^T + bias
Rows product(const Rows &x, const Matrix &weight, const Matrix &bias)
{
    const size_t K = static_cast<size_t>(weight.columns), N = bias.data.size();
    Rows y;
    for (size_t row = 0; row < x.size(); row += K)
        for (size_t n = 0; n < N; n++) {
            double sum = double(bias.data[n]);
            for (size_t k = 0; k < K; k++) sum += x[row + k] * double(weight.data[n * K + k]);
            y.push_back(sum);
        }
    return y;
}
// From dy (T,N) dx (T,K), and what is added to the gradients of weight and bias.
Rows product_backward(const Rows &dy, const Rows &x, const Matrix &weight, Rows &dweight, Rows &dbias)
{
    const size_t K = static_cast<size_t>(weight.columns), N = dbias.size();
    Rows dx(x.size());
    for (size_t t = 0; t < x.size() / K; t++)
        for (size_t n = 0; n < N; n++) {
            const double d = dy[t * N + n];
            dbias[n] += d;
            for (size_t k = 0; k < K; k++) {
                dx[t * K + k] += d * double(weight.data[n * K + k]);
                dweight[n * K + k] += d * x[t * K + k];
            }
        }
    return dx;
}

// f(mean, 1 / deviation) of a row
template <class F> void with_statistics(const double *row, size_t E, F f)
{
    double mean = 0, squares = 0;
    for (size_t i = 0; i < E; i++) mean += row[i] / double(E);
    for (size_t i = 0; i < E; i++) squares += (row[i] - mean) * (row[i] - mean) / double(E);
    f(mean, 1 / std::sqrt(squares + eps));
}
Rows normalised(const Rows &x, const Matrix &gamma, const Matrix &beta)
{
    const size_t E = gamma.data.size();
    Rows y(x.size());
    for (size_t row = 0; row < x.size(); row += E)
        with_statistics(&x[row], E, [&](double mean, double rstd) {
            for (size_t i = 0; i < E; i++) y[row + i] = (x[row + i] - mean) * rstd * double(gamma.data[i]) + double(beta.data[i]);
        });
    return y;
}
Rows normalised_backward(const Rows &dy, const Rows &x, const Matrix &gamma, Rows &dgamma, Rows &dbeta)
{
    const size_t E = gamma.data.size();
    Rows dx(x.size());
    for (size_t row = 0; row < x.size(); row += E)
        with_statistics(&x[row], E, [&](double mean, double rstd) {
            const auto one = [&](size_t i) { return (x[row + i] - mean) * rstd; };
            double sum = 0, along = 0; // means of the gradients, and of their products with the results
            for (size_t i = 0; i < E; i++) {
                const double d = dy[row + i] * double(gamma.data[i]) / double(E);
                sum += d, along += d * one(i);
                dgamma[i] += dy[row + i] * one(i), dbeta[i] += dy[row + i];
            }
            for (size_t i = 0; i < E; i++) dx[row + i] = rstd * (dy[row + i] * double(gamma.data[i]) - sum - one(i) * along);
        });
    return dx;
}

// f(place of a query, of a key, weight, its gradient, and the score's), for all of (T,H,3,D); dvalues: empty without gradients.
template <class F> void for_weights(const Case &c, const Rows &qkv, const Rows &dvalues, F f)
{
    const size_t T = static_cast<size_t>(c.T), E = static_cast<size_t>(c.E), D = static_cast<size_t>(c.E / c.H);
    for (size_t head = 0; head < E; head += D)
        for (size_t i = 0; i < T; i++) {
            const size_t query = i * 3 * E + 3 * head;
            Rows weight(T), dweight(T);
            double largest = -INFINITY, sum = 0, delta = 0;
            for (size_t j = 0; j < T; j++) {
                const size_t key = j * 3 * E + 3 * head;
                for (size_t d = 0; d < D; d++) weight[j] += qkv[query + d] * qkv[key + D + d] / std::sqrt(double(D));
                for (size_t d = 0; d < D && !dvalues.empty(); d++) dweight[j] += dvalues[i * E + head + d] * qkv[key + 2 * D + d];
                if (c.masked && !sees(static_cast<int64_t>(i), static_cast<int64_t>(j))) weight[j] = -9e15;
                largest = std::max(largest, weight[j]);
            }
            for (double &one : weight) sum += one = exp(one - largest);
            for (double &one : weight) one /= sum;
            for (size_t j = 0; j < T; j++) delta += weight[j] * dweight[j];
            for (size_t j = 0; j < T; j++) {
                const bool hidden = c.masked && !sees(static_cast<int64_t>(i), static_cast<int64_t>(j));
                const double dscore = hidden ? 0 : weight[j] * (dweight[j] - delta) / std::sqrt(double(D));
                for (size_t d = 0; d < D; d++) f(query + d, j * 3 * E + 3 * head + d, i * E + head + d, D, weight[j], dscore);
            }
        }
}
// values (T,E) from qkv (T,H,3,D)
Rows attended(const Case &c, const Rows &qkv)
{
    Rows values(static_cast<size_t>(c.T * c.E));
    for_weights(c, qkv, {},
                [&](size_t, size_t key, size_t at, size_t D, double weight, double) { values[at] += weight * qkv[key + 2 * D]; });
    return values;
}
Rows attended_backward(const Case &c, const Rows &qkv, const Rows &dvalues)
{
    Rows d(qkv.size());
    for_weights(c, qkv, dvalues, [&](size_t query, size_t key, size_t at, size_t D, double weight, double dscore) {
        d[query] += dscore * qkv[key + D];
        d[key + D] += dscore * qkv[query];
        d[key + 2 * D] += weight * dvalues[at];
    });
    return d;
}

// A sequence on its way through a block.
class Reference
{
  public:
    Reference(const Block &block_, int64_t sequence_)
        : block(block_), c(block.c), sequence(sequence_),
          stream(block.x.data.begin() + sequence * c.T * c.E, block.x.data.begin() + (sequence + 1) * c.T * c.E)
    {
        for (int i = 0; i < 2; i++) {
            Branch &b = branch[i];
            b.before = stream;
            b.from = c.norm_first ? normalised(stream, gamma(i), beta(i)) : stream;
            b.wide = product(b.from, weight(2 * i), bias(2 * i));
            if (i) drop(1, b.wide);
            b.inner = i ? b.wide : attended(c, b.wide);
            if (i)
                for (double &one : b.inner) one = activated(c.activation, one);
            Rows result = product(b.inner, weight(2 * i + 1), bias(2 * i + 1));
            drop(2 * i, result);
            add(stream, result);
            b.after = stream;
            if (!c.norm_first) stream = normalised(stream, gamma(i), beta(i));
        }
    }
    const Rows &y() const { return stream; }
    // dx from dy; what is added to the gradients of the parameters.
    Rows backward(Rows d, Rows (&gradient)[parameters]) const
    {
        const auto through_product = [&](int number, const Rows &dy, const Rows &x) {
            return product_backward(dy, x, weight(number), gradient[2 * number], gradient[2 * number + 1]);
        };
        for (int i = 1; i >= 0; i--) {
            const Branch &b = branch[i];
            const auto through_norm = [&](const Rows &dy, const Rows &x) {
                return normalised_backward(dy, x, gamma(i), gradient[8 + 2 * i], gradient[9 + 2 * i]);
            };
            if (!c.norm_first) d = through_norm(d, b.after);
            Rows of_branch = d;
            drop(2 * i, of_branch);
            of_branch = through_product(2 * i + 1, of_branch, b.inner);
            if (i) {
                for (size_t n = 0; n < of_branch.size(); n++) of_branch[n] *= slope(c.activation, b.wide[n]);
                drop(1, of_branch);
            } else {
                of_branch = attended_backward(c, b.wide, of_branch);
            }
            of_branch = through_product(2 * i, of_branch, b.from);
            add(d, c.norm_first ? through_norm(of_branch, b.before) : of_branch);
        }
        return d;
    }

  private:
    struct Branch {
        Rows before, from, wide, inner, after; // the stream, what the products read and write, the stream and the branch's result
    };
    const Block &block;
    const Case &c;
    int64_t sequence;
    Rows stream;
    Branch branch[2];

    const Matrix &weight(int number) const { return block.parameter[static_cast<size_t>(2 * number)]; }
    const Matrix &bias(int number) const { return block.parameter[static_cast<size_t>(2 * number + 1)]; }
    const Matrix &gamma(int i) const { return block.parameter[static_cast<size_t>(8 + 2 * i)]; }
    const Matrix &beta(int i) const { return block.parameter[static_cast<size_t>(9 + 2 * i)]; }
    void drop(int number, Rows &rows) const
    {
        const int64_t count = static_cast<int64_t>(rows.size());
        for (int64_t i = 0; i < count; i++) rows[static_cast<size_t>(i)] *= kept(block.args.mask[number], sequence * count + i);
    }
    static void add(Rows &to, const Rows &x)
    {
        for (size_t i = 0; i < to.size(); i++) to[i] += x[i];
    }
};

bool is_wrong(const char *name, const float *found, const Rows &expected, int64_t columns)
{
    for (size_t i = 0; i < expected.size(); i++) {
        const int64_t at = static_cast<int64_t>(i);
        if (is_wrong(name, at / columns, at % columns, found[i], expected[i])) return true;
    }
    return false;
}

} // namespace
