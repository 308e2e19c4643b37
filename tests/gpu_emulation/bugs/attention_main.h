// attention_main.h: the main function of a program that test_kernel_bugs.py makes of attention_mma.cu and attention_mma_map.cu, as they are
// or with a bug. It computes attention and its map by warps of two fragments, which see whole tiles of keys and a part of one, and causal
// attention by these and by warps of one, where the last key and value, which only the last query may see, have NaN in every second
// feature; then the same of heads of 256 features, and of three heads that share keys.
#include "bugs/bug.h"
#include <cmath>
#include <limits>

namespace
{

// growth: of every 64 rows, so that the largest score of a row grows from tile to tile.
std::vector<bfloat16> operand(int64_t rows, int64_t features, int64_t by, bool ends_with_nan, int64_t growth)
{
    std::vector<bfloat16> x(static_cast<size_t>(rows * features));
    for (int64_t i = 0; i < rows * features; i++) {
        const int64_t row = i / features, column = i % features;
        const bool is_nan = ends_with_nan && row == rows - 1 && column % 2 == 1;
        from_float(x[static_cast<size_t>(i)],
                   is_nan ? std::numeric_limits<float>::quiet_NaN()
                          : static_cast<float>(((row * by + column * (by + 4)) % 17 - 8) * (1 + growth * (row / 64))) / 8);
    }
    return x;
}

double product(int64_t features, const std::vector<bfloat16> &x, int64_t i, const std::vector<bfloat16> &y, int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < features; d++)
        sum += static_cast<double>(to_float(x[static_cast<size_t>(i * features + d)])) *
               static_cast<double>(to_float(y[static_cast<size_t>(j * features + d)]));
    return sum;
}

// softcap: so high that it changes no score much, but each goes through finish_score().
template <class S> int compare(int64_t H, int64_t Tq, int64_t Tk, bool causal, double softcap = 0)
{
    constexpr int64_t features = S::size;
    const auto q = operand(H * Tq, features, 3, false, 0), k = operand(Tk, features, 5, causal, 1), v = operand(Tk, features, 7, causal, 0);
    std::vector<bfloat16> values(q.size());
    std::vector<float> statistics(static_cast<size_t>(H * Tq));
    tc_attention_forward_args a = {};
    tc_attention_problem &p = a.problem;
    p.q.data = device_array(q), p.k.data = device_array(k), p.v.data = device_array(v);
    p.q.row = p.k.row = p.v.row = a.values.row = features;
    p.q.head = a.values.head = Tq * features;
    p.B = p.Hk = 1, p.H = H, p.Tq = Tq, p.Tk = Tk, p.D = p.Dv = features, p.scale = 0.5, p.softcap = softcap;
    p.heads = {H, 0, 1};
    p.left = TC_ATTENTION_UNBOUNDED, p.right = causal ? 0 : TC_ATTENTION_UNBOUNDED, p.offset = causal ? Tk - Tq : 0;
    std::vector<bfloat16> map(static_cast<size_t>(H * Tq * Tk));
    bfloat16 *to = device_array(values), *map_to = device_array(map);
    a.map = map_to;
    a.values.data = to, a.shift = device_array(statistics), a.sum = device_array(statistics);
    int error = launch_shape<S, bfloat16>(a, {1, nullptr, nullptr, nullptr}, nullptr);
    if (!error) error = launch_map<Shape<features, 4, 1, 64>, bfloat16>(a, nullptr);
    if (error) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    cudaMemcpyAsync(map.data(), map_to, map.size() * sizeof(bfloat16), cudaMemcpyDeviceToHost, nullptr);
    cudaMemcpyAsync(values.data(), to, values.size() * sizeof(bfloat16), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t i = 0; i < H * Tq; i++) { // rows of all heads
        const int64_t seen = causal ? i % Tq + 1 + Tk - Tq : Tk;
        if (causal && seen == Tk) continue;
        std::vector<double> sums(features), weights;
        double total = 0;
        for (int64_t j = 0; j < seen; j++) {
            const double weight = exp(p.scale * product(features, q, i, k, j));
            total += weight;
            weights.push_back(weight);
            for (size_t d = 0; d < features; d++)
                sums[d] += weight * static_cast<double>(to_float(v[static_cast<size_t>(j * features) + d]));
        }
        for (size_t j = 0; j < static_cast<size_t>(Tk); j++) {
            const double found = static_cast<double>(to_float(map[static_cast<size_t>(i * Tk) + j]));
            const double expected = j < weights.size() ? weights[j] / total : 0;
            if (fabs(found - expected) <= 0.01) continue;
            printf("wrong result in the map's row %lld: %g, expected %g\n", static_cast<long long>(i), found, expected);
            return 1;
        }
        for (size_t d = 0; d < features; d++) {
            const double found = static_cast<double>(to_float(values[static_cast<size_t>(i * features) + d]));
            if (fabs(found - sums[d] / total) <= 0.01) continue;
            printf("wrong result in row %lld: %g, expected %g\n", static_cast<long long>(i), found, sums[d] / total);
            return 1;
        }
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    if (const int error = compare<Shape<64, 4, 2, 64>>(1, 130, 200, false)) return error;
    if (const int error = compare<Shape<128, 4, 2, 32>>(1, 150, 166, true)) return error;
    if (const int error = compare<Shape<64, 4, 1, 64>>(1, 60, 60, true)) return error;
    if (const int error = compare<Shape<256, 4, 1, 32>>(1, 20, 100, false)) return error;
    if (const int error = compare<Shape<256, 4, 1, 32>>(1, 40, 60, true)) return error;
    return compare<Shape<64, 4, 1, 64>>(3, 11, 11, true, 1e4);
}
