// attention_backward_float_main.h: the main function of a program that test_kernel_bugs.py makes of attention_backward_float.cu, as it is
// or with a bug. It computes the gradients of attention where all queries see all keys, in tiles that are whole and one that is not, and of
// causal attention, where the last key and its value, which only the last query sees, and the first query and its gradient are NaN.
#include "bugs/bug.h"
#include "bugs/float_matrix.h"

namespace
{

constexpr int64_t features = 64;

// Of a gradient whose row i is the sum of weight(i, j) times row j of x.
template <class F> int compare(const char *name, float *device, int64_t rows, int64_t terms, const Matrix &x, F weight)
{
    std::vector<float> found(static_cast<size_t>(rows * features));
    cudaMemcpyAsync(found.data(), device, found.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t i = 1; i < rows - 1; i++) {
        for (int64_t d = 0; d < features; d++) {
            double sum = 0;
            for (int64_t j = 0; j < terms; j++)
                if (weight(i, j) != 0) sum += weight(i, j) * x.at(j, d);
            if (is_wrong(name, i, d, found[static_cast<size_t>(i * features + d)], sum)) return 1;
        }
    }
    return 0;
}

int compare_all(int64_t Tq, int64_t Tk, bool causal)
{
    const Matrix q(Tq, features, 3, causal ? 0 : -1), dvalues(Tq, features, 11, causal ? 0 : -1);
    const Matrix k(Tk, features, 5, causal ? Tk - 1 : -1), v(Tk, features, 7, causal ? Tk - 1 : -1);
    const auto sees = [&](int64_t i, int64_t j) { return !causal || (j <= i && i > 0 && j < Tk - 1); };
    const auto at = [&](int64_t i, int64_t j) { return static_cast<size_t>(i * Tk + j); };
    std::vector<double> weights(static_cast<size_t>(Tq * Tk)), dscores(weights);
    std::vector<float> share(static_cast<size_t>(Tq), 1.0f), shift(share), delta(share);
    const double scale = 0.25;
    for (int64_t i = 0; i < Tq; i++) {
        double total = 0, mean = 0;
        for (int64_t j = 0; j < Tk; j++)
            if (sees(i, j)) total += weights[at(i, j)] = exp(scale * q.product(i, k, j) - 1);
        if (total == 0) continue;
        for (int64_t j = 0; j < Tk; j++) {
            weights[at(i, j)] /= total;
            if (sees(i, j)) mean += weights[at(i, j)] * dvalues.product(i, v, j);
        }
        for (int64_t j = 0; j < Tk; j++)
            if (sees(i, j)) dscores[at(i, j)] = weights[at(i, j)] * (dvalues.product(i, v, j) - mean) * scale;
        share[static_cast<size_t>(i)] = static_cast<float>(1 / total), delta[static_cast<size_t>(i)] = static_cast<float>(mean);
    }

    tc_attention_backward_args a = {};
    tc_attention_problem &p = a.problem;
    p.q.data = device_array(q.data), p.k.data = device_array(k.data), p.v.data = device_array(v.data);
    a.dvalues.data = device_array(dvalues.data);
    float *const dq = device_array(q.data), *const dk = device_array(k.data), *const dv = device_array(v.data);
    a.dq.data = dq, a.dk.data = dk, a.dv.data = dv;
    for (tc_attention_operand *x : {&p.q, &p.k, &p.v, &a.dvalues, &a.dq, &a.dk, &a.dv}) x->row = features;
    p.B = p.H = p.Hk = 1, p.Tq = Tq, p.Tk = Tk, p.D = p.Dv = features, p.scale = scale;
    p.heads = {1, 0, 1};
    p.left = TC_ATTENTION_UNBOUNDED, p.right = causal ? 0 : TC_ATTENTION_UNBOUNDED;
    a.shift = device_array(shift);
    const QueryNumbers<float> of_queries = {device_array(delta), device_array(share), nullptr};
    const Wanted of_q = {Gradient::query, 1, Tq, features, 1, nullptr}, of_k = {Gradient::key, 1, Tk, features, 1, nullptr},
                 of_v = {Gradient::value, 1, Tk, features, 1, nullptr};
    int error = launch_shape<Shape<true, features, 8, 4>>(a, of_q, of_q, of_queries, nullptr);
    error = error ? error : launch_shape<Shape<false, features, 4, 4>>(a, of_k, of_v, of_queries, nullptr);
    if (error) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    if (compare("dq", dq, Tq, Tk, k, [&](int64_t i, int64_t j) { return dscores[at(i, j)]; })) return 1;
    if (compare("dk", dk, Tk, Tq, q, [&](int64_t j, int64_t i) { return dscores[at(i, j)]; })) return 1;
    return compare("dv", dv, Tk, Tq, dvalues, [&](int64_t j, int64_t i) { return weights[at(i, j)]; });
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    if (const int error = compare_all(140, 170, false)) return error;
    if (is_costly()) return 1;
    return compare_all(70, 70, true);
}
