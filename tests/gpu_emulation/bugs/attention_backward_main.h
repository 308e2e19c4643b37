// attention_backward_main.h: the main function of a program that test_kernel_bugs.py makes of attention_backward_mma.cu, as it is or with a
// bug. It computes the gradients of attention where all queries see all keys, in tiles that are whole and one that is not, and of causal
// attention, where the last key and its value, which only the last query sees, and the first query and its gradient are NaN.
#include "bugs/bug.h"
#include <cmath>
#include <limits>

namespace
{

constexpr int64_t features = 64;
using Matrix = std::vector<bfloat16>;

Matrix operand(int64_t rows, int64_t by, int64_t nan_row)
{
    Matrix x(static_cast<size_t>(rows * features));
    for (int64_t i = 0; i < rows * features; i++) {
        const int64_t row = i / features, column = i % features, next = (row * by + column * (by + 4) + row * row % 5) % 17 - 8;
        from_float(x[static_cast<size_t>(i)], row == nan_row ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(next) / 8);
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

// Of a gradient whose row i is the sum of weight(i, j) times row j of x.
template <class F> int compare(const char *name, bfloat16 *device, int64_t rows, int64_t terms, const Matrix &x, F weight)
{
    Matrix found(static_cast<size_t>(rows * features));
    cudaMemcpyAsync(found.data(), device, found.size() * sizeof(bfloat16), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t i = 1; i < rows - 1; i++) {
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

int compare_all(int64_t Tq, int64_t Tk, bool causal)
{
    const Matrix q = operand(Tq, 3, causal ? 0 : -1), dvalues = operand(Tq, 11, causal ? 0 : -1);
    const Matrix k = operand(Tk, 5, causal ? Tk - 1 : -1), v = operand(Tk, 7, causal ? Tk - 1 : -1);
    const double scale = 0.25;
    const auto sees = [&](int64_t i, int64_t j) { return (!causal || j <= i) && (!causal || (i > 0 && j < Tk - 1)); };
    std::vector<double> weights(static_cast<size_t>(Tq * Tk)), dscores(weights);
    std::vector<float> share(static_cast<size_t>(Tq), 1.0f), shift(share.size()), delta(share.size());
    for (int64_t i = 0; i < Tq; i++) {
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
    p.q.data = device_array(q), p.k.data = device_array(k), p.v.data = device_array(v), a.dvalues.data = device_array(dvalues);
    bfloat16 *const dq = device_array(q), *const dk = device_array(k), *const dv = device_array(v);
    a.dq.data = dq, a.dk.data = dk, a.dv.data = dv;
    for (tc_attention_operand *x : {&p.q, &p.k, &p.v, &a.dvalues, &a.dq, &a.dk, &a.dv}) x->row = features;
    p.B = p.H = p.Hk = 1, p.Tq = Tq, p.Tk = Tk, p.D = p.Dv = features, p.scale = scale;
    p.heads = {1, 0, 1};
    p.left = TC_ATTENTION_UNBOUNDED, p.right = causal ? 0 : TC_ATTENTION_UNBOUNDED;
    a.shift = device_array(ones), a.sum = device_array(sums);
    const QueryNumbers<float> of_queries = {device_array(delta), device_array(share), device_array(shift)};
    const Wanted of_q = {Gradient::query, 1, Tq, features, 1, nullptr}, of_k = {Gradient::key, 1, Tk, features, 1, nullptr},
                 of_v = {Gradient::value, 1, Tk, features, 1, nullptr};
    int error = launch_shape<Shape<true, features>, bfloat16>(a, of_q, of_q, of_queries, nullptr);
    error = error ? error : launch_shape<Shape<false, features>, bfloat16>(a, of_k, of_v, of_queries, nullptr);
    if (error) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    const auto of = [&](const std::vector<double> &x, int64_t i, int64_t j) { return x[static_cast<size_t>(i * Tk + j)]; };
    if (compare("dq", dq, Tq, Tk, k, [&](int64_t i, int64_t j) { return of(dscores, i, j); })) return 1;
    if (compare("dk", dk, Tk, Tq, q, [&](int64_t j, int64_t i) { return of(dscores, i, j); })) return 1;
    return compare("dv", dv, Tk, Tq, dvalues, [&](int64_t j, int64_t i) { return of(weights, i, j); });
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    if (const int error = compare_all(140, 170, false)) return error;
    const int64_t wavefronts = emulator_count("wavefronts"), ideal = emulator_count("ideal_wavefronts");
    if (wavefronts > ideal) {
        printf("costly: %lld wavefronts, %lld would do\n", static_cast<long long>(wavefronts), static_cast<long long>(ideal));
        return 1;
    }
    return compare_all(70, 70, true);
}
