// attention_gradients.h: what the main functions of programs share that test_kernel_bugs.py makes of kernels of attention's gradients, as
// they are or with a bug: the gradients of attention where all queries see all keys, and of causal attention, where the last key and its
// value, which only the last query sees, and the first query and its gradient are NaN.
#include "bugs/bug.h"
#include <cmath>
#include <limits>

namespace
{

constexpr int64_t features = 64;
using Matrix = std::vector<bfloat16>;

// By the kernels that are tried.
int launch_gradients(const tc_attention_backward_args &a, const QueryNumbers<float> &of_queries);

// Of heads with `rows` rows each.
Matrix operand(int64_t heads, int64_t rows, int64_t by, int64_t nan_row)
{
    Matrix x(static_cast<size_t>(heads * rows * features));
    for (int64_t i = 0; i < heads * rows * features; i++) {
        const int64_t row = i / features, column = i % features, next = (row * by + column * (by + 4) + row * row % 5) % 17 - 8;
        from_float(x[static_cast<size_t>(i)],
                   row % rows == nan_row ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(next) / 8);
    }
    return x;
}

double at(const Matrix &x, int64_t i, int64_t d) { return static_cast<double>(to_float(x[static_cast<size_t>(i * features + d)])); }
double product(const Matrix &x, int64_t i, const Matrix &y, int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < features; d++) sum += at(x, i, d) * at(y, j, d);
    return sum;
}

// Of a gradient of heads with `rows` rows, whose row i is the sum of weight(i, j) times row j of x.
template <class F> int compare(const char *name, bfloat16 *device, int64_t heads, int64_t rows, int64_t terms, const Matrix &x, F weight)
{
    Matrix found(static_cast<size_t>(heads * rows * features));
    cudaMemcpyAsync(found.data(), device, found.size() * sizeof(bfloat16), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t i = 0; i < heads * rows; i++) {
        if (i % rows == 0 || i % rows == rows - 1) continue; // may be NaN
        std::vector<double> sums(features);
        for (int64_t j = 0; j < terms; j++) {
            const double factor = weight(i, j);
            for (int64_t d = 0; factor != 0 && d < features; d++) sums[static_cast<size_t>(d)] += factor * at(x, j, d);
        }
        for (int64_t d = 0; d < features; d++) {
            const double expected = sums[static_cast<size_t>(d)], is = at(found, i, d);
            if (fabs(is - expected) <= 0.01 + 0.01 * fabs(expected)) continue;
            printf("wrong result: %s[%lld][%lld] is %g, expected %g\n", name, static_cast<long long>(i), static_cast<long long>(d), is,
                   expected);
            return 1;
        }
    }
    return 0;
}

// heads: that read the same keys.
int compare_all(int64_t heads, int64_t Tq, int64_t Tk, bool causal)
{
    const Matrix q = operand(heads, Tq, 3, causal ? 0 : -1), dvalues = operand(heads, Tq, 11, causal ? 0 : -1);
    const Matrix k = operand(1, Tk, 5, causal ? Tk - 1 : -1), v = operand(1, Tk, 7, causal ? Tk - 1 : -1);
    const int64_t queries = heads * Tq;
    Matrix values(q);
    const double scale = 0.25;
    const auto sees = [&](int64_t i, int64_t j) { return (!causal || j <= i % Tq) && (!causal || (i % Tq > 0 && j < Tk - 1)); };
    std::vector<double> weights(static_cast<size_t>(queries * Tk)), dscores(weights);
    std::vector<float> share(static_cast<size_t>(queries), 1.0f), shift(share.size()), delta(share.size());
    for (int64_t i = 0; i < queries; i++) {
        const auto row = static_cast<size_t>(i), first = row * static_cast<size_t>(Tk);
        double total = 0, mean = 0;
        for (int64_t j = 0; j < Tk; j++)
            if (sees(i, j)) total += weights[first + static_cast<size_t>(j)] = exp(scale * product(q, i, k, j) - 1);
        if (total == 0) continue;
        for (int64_t j = 0; j < Tk; j++) {
            double &weight = weights[first + static_cast<size_t>(j)];
            weight /= total;
            if (weight != 0) mean += weight * product(dvalues, i, v, j);
        }
        for (int64_t d = 0; d < features; d++) {
            double sum = 0;
            for (int64_t j = 0; j < Tk; j++)
                if (weights[first + static_cast<size_t>(j)] != 0) sum += weights[first + static_cast<size_t>(j)] * at(v, j, d);
            from_float(values[static_cast<size_t>(i * features + d)], static_cast<float>(sum));
        }
        for (int64_t j = 0; j < Tk; j++) {
            const double weight = weights[first + static_cast<size_t>(j)];
            if (weight != 0) dscores[first + static_cast<size_t>(j)] = weight * (product(dvalues, i, v, j) - mean) * scale;
        }
        share[row] = static_cast<float>(1 / total), shift[row] = -log2_e, delta[row] = static_cast<float>(mean);
    }
    std::vector<float> ones(share.size(), 1.0f), sums(share);
    for (float &sum : sums) sum = 1 / sum;

    tc_attention_backward_args a = {};
    tc_attention_problem &p = a.problem;
    p.q.data = device_array(q), p.k.data = device_array(k), p.v.data = device_array(v), a.dvalues.data = device_array(dvalues),
    a.values.data = device_array(values);
    bfloat16 *const dq = device_array(q), *const dk = device_array(k), *const dv = device_array(v);
    a.dq.data = dq, a.dk.data = dk, a.dv.data = dv;
    for (tc_attention_operand *x : {&p.q, &p.k, &p.v, &a.values, &a.dvalues, &a.dq, &a.dk, &a.dv}) x->row = features;
    p.q.head = a.values.head = a.dvalues.head = a.dq.head = Tq * features;
    p.B = p.Hk = 1, p.H = heads, p.Tq = Tq, p.Tk = Tk, p.D = p.Dv = features, p.scale = scale;
    p.heads = {heads, 0, 1};
    p.left = TC_ATTENTION_UNBOUNDED, p.right = causal ? 0 : TC_ATTENTION_UNBOUNDED;
    a.shift = device_array(ones), a.sum = device_array(sums);
    const QueryNumbers<float> of_queries = {device_array(delta), device_array(share), device_array(shift)};
    const int error = launch_gradients(a, of_queries);
    if (error) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    const auto of = [&](const std::vector<double> &x, int64_t i, int64_t j) { return x[static_cast<size_t>(i * Tk + j)]; };
    if (compare("dq", dq, heads, Tq, Tk, k, [&](int64_t i, int64_t j) { return of(dscores, i, j); })) return 1;
    if (compare("dk", dk, 1, Tk, queries, q, [&](int64_t j, int64_t i) { return of(dscores, i, j); })) return 1;
    return compare("dv", dv, 1, Tk, queries, dvalues, [&](int64_t j, int64_t i) { return of(weights, i, j); });
}

int costly()
{
    const int64_t wavefronts = emulator_count("wavefronts"), ideal = emulator_count("ideal_wavefronts");
    if (wavefronts <= ideal) return 0;
    printf("costly: %lld wavefronts, %lld would do\n", static_cast<long long>(wavefronts), static_cast<long long>(ideal));
    return 1;
}

} // namespace
