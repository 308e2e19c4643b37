// attention_float_main.h: the main function of a program that test_kernel_bugs.py makes of attention_float.cu, as it is or with a bug. It
// computes attention by blocks of four warps over two segments of keys, with whole tiles and a part of one, and causal attention whose last
// key and value, which only the last query may see, are NaN; then the same of heads of 128 features.
#include "bugs/bug.h"
#include "bugs/float_matrix.h"

namespace
{

template <class S> int compare(int64_t Tq, int64_t Tk, bool causal)
{
    constexpr int64_t features = S::size;
    const Matrix q(Tq, features, 3, -1), k(Tk, features, 5, causal ? Tk - 1 : -1, 1), v(Tk, features, 7, causal ? Tk - 1 : -1);
    std::vector<float> values(q.data.size()), statistics(static_cast<size_t>(Tq));
    tc_attention_forward_args a = {};
    tc_attention_problem &p = a.problem;
    float *const to = device_array(values);
    p.q.data = device_array(q.data), p.k.data = device_array(k.data), p.v.data = device_array(v.data), a.values.data = to;
    p.q.row = p.k.row = p.v.row = a.values.row = features;
    p.B = p.H = p.Hk = 1, p.Tq = Tq, p.Tk = Tk, p.D = p.Dv = features, p.scale = 0.5;
    p.heads = {1, 0, 1};
    p.left = TC_ATTENTION_UNBOUNDED, p.right = causal ? 0 : TC_ATTENTION_UNBOUNDED;
    a.shift = device_array(statistics), a.sum = device_array(statistics);
    if (const int error = launch_shape<S>(a, {1, nullptr, nullptr, nullptr}, nullptr)) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    cudaMemcpyAsync(values.data(), to, values.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t i = 0; i < Tq - (causal ? 1 : 0); i++) {
        std::vector<double> sums(features);
        double total = 0;
        for (int64_t j = 0; j < (causal ? i + 1 : Tk); j++) {
            const double weight = exp(p.scale * q.product(i, k, j));
            total += weight;
            for (int64_t d = 0; d < features; d++) sums[static_cast<size_t>(d)] += weight * v.at(j, d);
        }
        for (int64_t d = 0; d < features; d++)
            if (is_wrong("values", i, d, values[static_cast<size_t>(i * features + d)], sums[static_cast<size_t>(d)] / total)) return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    if (const int error = compare<Shape<64, 8, 4>>(140, 300, false)) return error;
    if (is_costly()) return 1;
    if (const int error = compare<Shape<64, 8, 4>>(70, 70, true)) return error;
    return compare<Shape<128, 4, 4>>(40, 100, false);
}
