// encoder_block.cu: a whole encoder block of short sequences in one launch, forward alone. A block of threads takes a sequence, whose rows
// stay in its shared memory from x to y: the stream that residual connections add to, and what the branches, attention and the network
// with one hidden layer, make of it.
//
// The weights of the four products come through shared memory in panels of 64 rows and 32 elements, one after the other: while one is
// computed with, the next is on its way in registers, also while attention and norms are computed. A thread has 2 x 4 or 4 x 4 results of a
// product, and reads operands as vectors of 16 bytes. Eight lanes share a row of a norm, or two queries of a head.
//
// Everything between x and y is in the compute dtype, and each sum is in one order, which the sizes of a sequence decide alone.
#include "encoder_block.cuh"
#include "attention_forward.cuh"
#include "launchers.h"
#include "vector_rows.cuh"

namespace
{

using namespace tc;

constexpr int most_threads = 256;

// What a kernel is compiled for: a thread has so many rows of a product, of sequences of at most `length` rows.
template <int rows_, int threads_> struct Shape {
    static constexpr int rows = rows_, threads = threads_;
    static constexpr int row_groups = threads / column_lanes, length = rows * row_groups, own_keys = length / group_lanes;
    static constexpr int groups = threads / group_lanes; // threadIdx.y
};

// ---- rows -----------------------------------------------------------------------------------------------------------------------

// f(row, column) for the vectors of a sequence's rows that the thread has: eight lanes share a row.
template <class Real, class S, class T, class F> __device__ __forceinline__ void for_own_vectors_of(const Block<T> &block, F f)
{
    constexpr int lanes = vector_lanes<Real>;
    for (int row = static_cast<int>(threadIdx.y); row < block.length; row += S::groups)
        for (int c = static_cast<int>(threadIdx.x) * lanes; c < block.width; c += group_lanes * lanes) f(row, c);
}

// The sequence's rows of x; the elements of the branch's rows that no product writes become zeros as well.
template <class T, class S> __device__ __forceinline__ void load_rows(const Block<T> &block, const Areas<compute<T>> &areas)
{
    using Real = compute<T>;
    constexpr int lanes = vector_lanes<Real>;
    const T *const x = block.x + static_cast<int64_t>(blockIdx.x) * block.length * block.width;
    for_own_vectors_of<Real, S>(block, [&](int row, int c) {
        const T *const from = x + row * block.width + c;
        Vector<T, lanes> stored = {};
        Vector<Real, lanes> wide;
        if (block.whole_vectors) {
            stored = load_vector<lanes>(from);
        } else {
            TC_UNROLL
            for (int e = 0; e < lanes; e++)
                if (c + e < block.width) stored.at[e] = from[e];
        }
        TC_UNROLL
        for (int e = 0; e < lanes; e++) wide.at[e] = widen(stored.at[e]);
        store_vector(areas.stream + row * block.row + c, wide);
        if (c + lanes > block.width) store_vector(areas.branch + row * block.row + c, Vector<Real, lanes>{});
    });
}

template <class T, class S> __device__ __forceinline__ void store_rows(const Block<T> &block, const compute<T> *stream)
{
    using Real = compute<T>;
    constexpr int lanes = vector_lanes<Real>;
    T *const y = block.y + static_cast<int64_t>(blockIdx.x) * block.length * block.width;
    for_own_vectors_of<Real, S>(block, [&](int row, int c) {
        const auto wide = load_vector<lanes>(stream + row * block.row + c);
        Vector<T, lanes> stored;
        TC_UNROLL
        for (int e = 0; e < lanes; e++) narrow(stored.at[e], wide.at[e]);
        T *const to = y + row * block.width + c;
        if (block.whole_vectors) {
            store_global(to, stored);
        } else {
            TC_UNROLL
            for (int e = 0; e < lanes; e++)
                if (c + e < block.width) to[e] = stored.at[e];
        }
    });
}

// The layer norm of each row of `from`, written to `to`, which may be the same. The differences from the mean are squared, as in
// layer_norm.cu.
template <class T, class S>
__device__ __forceinline__ void normalise(const Block<T> &block, const Norm<T> &norm, const compute<T> *from, compute<T> *to)
{
    using Real = compute<T>;
    constexpr int lanes = vector_lanes<Real>, vectors = TC_ENCODER_BLOCK_WIDTH / (group_lanes * lanes);
    Vector<Real, lanes> gamma[vectors] = {}, beta[vectors] = {}, x[vectors];
    const auto for_each = [&](auto f) { // f(n, c): the thread's vectors of a row
        TC_UNROLL
        for (int n = 0; n < vectors; n++) {
            const int c = (static_cast<int>(threadIdx.x) + n * group_lanes) * lanes;
            if (c < block.width) f(n, c);
        }
    };
    for_each([&](int n, int c) {
        TC_UNROLL
        for (int e = 0; e < lanes; e++) {
            if (c + e >= block.width) continue;
            gamma[n].at[e] = widen(norm.gamma[c + e]);
            beta[n].at[e] = widen(norm.beta[c + e]);
        }
    });
    const Real width = static_cast<Real>(block.width);
    __syncthreads(); // the rows are complete
    for (int row = static_cast<int>(threadIdx.y); row < block.length; row += S::groups) {
        Real sum = 0, squares = 0;
        for_each([&](int n, int c) {
            x[n] = load_vector<lanes>(from + row * block.row + c);
            TC_UNROLL
            for (int e = 0; e < lanes; e++) sum += x[n].at[e];
        });
        const Real mean = group_sum<group_lanes, Real>(sum, nullptr) / width;
        for_each([&](int n, int c) {
            TC_UNROLL
            for (int e = 0; e < lanes; e++) {
                const Real d = x[n].at[e] - mean;
                if (c + e < block.width) squares += d * d;
            }
        });
        const Real rstd = rstd_of(group_sum<group_lanes, Real>(squares, nullptr), width, norm.eps);
        for_each([&](int n, int c) {
            TC_UNROLL
            for (int e = 0; e < lanes; e++)
                x[n].at[e] = c + e < block.width ? (x[n].at[e] - mean) * rstd * gamma[n].at[e] + beta[n].at[e] : Real(0);
            store_vector(to + row * block.row + c, x[n]);
        });
    }
}

// ---- attention ------------------------------------------------------------------------------------------------------------------

// Two queries of a head, by the eight lanes of a row of threads: each has every eighth key.
template <class T, class S> struct Queries {
    using Real = compute<T>;
    static constexpr int keys = S::own_keys;
    const Block<T> &block;
    const Real *head; // in the rows of (H, 3, D)
    int h, features, query[own_queries];
    Real weight[own_queries][keys];

    __device__ __forceinline__ Queries(const Block<T> &block_, const Real *wide, int h_, int first)
        : block(block_), h(h_), features(block.width / block.heads), query{first, first + 1 < block.length ? first + 1 : first}
    {
        head = wide + h * 3 * features;
    }

    static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x); }

    // The products of the queries with the lane's keys, n features at a time.
    template <int n> __device__ __forceinline__ void multiply()
    {
        const Real *key[keys];
        TC_UNROLL
        for (int j = 0; j < keys; j++) {
            const int own = lane() + j * group_lanes;
            key[j] = head + features + (own < block.length ? own : block.length - 1) * block.wide_row;
            weight[0][j] = weight[1][j] = 0;
        }
        for (int d = 0; d < features; d += n) {
            const auto first = load_vector<n>(head + query[0] * block.wide_row + d);
            const auto second = load_vector<n>(head + query[1] * block.wide_row + d);
            TC_UNROLL
            for (int j = 0; j < keys; j++) {
                if (j * group_lanes >= block.length) break;
                const auto other = load_vector<n>(key[j] + d);
                TC_UNROLL
                for (int e = 0; e < n; e++) {
                    weight[0][j] += first.at[e] * other.at[e];
                    weight[1][j] += second.at[e] * other.at[e];
                }
            }
        }
    }
    // A masked score becomes -9e15; those beyond the last key are none.
    __device__ __forceinline__ void finish_scores()
    {
        const tc_attention_plane &m = block.mask;
        const auto *const mask = m.data ? static_cast<const uint8_t *>(m.data) + blockIdx.x * m.batch + h * m.head : nullptr;
        TC_UNROLL
        for (int i = 0; i < own_queries; i++) TC_UNROLL
        for (int j = 0; j < keys; j++) {
            const int key = lane() + j * group_lanes;
            Real &score = weight[i][j];
            score *= block.scale;
            if (key >= block.length)
                score = -infinity<Real>;
            else if (mask && !mask[query[i] * m.row + key * m.column])
                score = static_cast<Real>(fill_score);
        }
    }
    // Weights e^(score - largest) instead of the scores, and the factor that makes them sum up to one.
    __device__ __forceinline__ Real weigh(int i)
    {
        Real largest = -infinity<Real>, sum = 0;
        TC_UNROLL
        for (const Real score : weight[i]) largest = score > largest ? score : largest;
        largest = group_join<group_lanes, Real>(largest, nullptr, [](Real a, Real b) { return b > a ? b : a; });
        const Real shift = largest == -infinity<Real> ? Real(0) : largest;
        TC_UNROLL
        for (Real &one : weight[i]) sum += one = real_exp(one - shift);
        sum = group_sum<group_lanes, Real>(sum, nullptr);
        if (!is_empty(largest, sum)) return Real(1) / sum;
        TC_UNROLL
        for (Real &one : weight[i]) one = 1; // of no key is more known than of another
        return Real(1) / static_cast<Real>(block.length);
    }
    // The sums of the values, of which a lane has every eighth feature, in rows of `to`.
    __device__ __forceinline__ void add_values(Real *to, const Real (&share)[own_queries])
    {
        for (int d = lane(); d < features + lane(); d += group_lanes) { // all lanes, whose weights the others read
            const Real *const value = head + 2 * features + (d < features ? d : 0);
            Real sum[own_queries] = {};
            TC_UNROLL
            for (int j = 0; j < keys; j++) {
                TC_UNROLL
                for (int l = 0; l < group_lanes; l++) {
                    const int key = j * group_lanes + l;
                    if (key >= block.length) break;
                    const Real one = value[key * block.wide_row];
                    TC_UNROLL
                    for (int i = 0; i < own_queries; i++)
                        sum[i] += __shfl_sync(row_lanes<group_lanes>(), weight[i][j], l, group_lanes) * one;
                }
            }
            if (d >= features) continue;
            TC_UNROLL
            for (int i = 0; i < own_queries; i++) to[query[i] * block.row + h * features + d] = sum[i] * share[i];
        }
    }
};

// to (T,E) = the heads' values of wide (T,H,3,D)
template <class T, class S> __device__ __forceinline__ void attend(const Block<T> &block, compute<T> *to, const compute<T> *wide)
{
    constexpr int lanes = vector_lanes<compute<T>>;
    const int pairs = (block.length + own_queries - 1) / own_queries;
    __syncthreads(); // the rows are complete
    TC_ROLLED
    for (int n = static_cast<int>(threadIdx.y); n < block.heads * pairs; n += S::groups) {
        Queries<T, S> queries(block, wide, n / pairs, n % pairs * own_queries);
        if (queries.features % lanes == 0)
            queries.template multiply<lanes>();
        else
            queries.template multiply<1>();
        queries.finish_scores();
        const compute<T> share[own_queries] = {queries.weigh(0), queries.weigh(1)};
        queries.add_values(to, share);
    }
}

// ---- the block ------------------------------------------------------------------------------------------------------------------

// Blocks per multiprocessor at least: with more ptxas spills on some of the GPUs.
template <class T, class S> constexpr int residency = S::rows == 2 && sizeof(T) < 8 ? 3 : 1;

// Block: one sequence, blockDim (group_lanes, groups).
template <class T, class S>
__global__ void __launch_bounds__(S::threads, residency<T, S>) encoder_block_kernel(const __grid_constant__ Block<T> block)
{
    using Real = compute<T>;
    TC_DYNAMIC_SHARED(Real, shared);
    const Areas<Real> areas(shared, block);
    Panels<T, S> panels(block, areas.panels);
    load_rows<T, S>(block, areas);
    TC_ROLLED
    for (int branch = 0; branch < 2; branch++) {
        const bool attends = branch == 0;
        const Real *from = areas.stream;
        if (block.norm_first) {
            normalise<T, S>(block, block.norm[branch], areas.stream, areas.branch);
            from = areas.branch;
        }
        multiply(panels, 2 * branch, from, block.row, attends ? TC_ACTIVATION_NONE : block.activation,
                 [&](int row, int column, Real value) { areas.wide[row * block.wide_row + column] = value; });
        if (attends) attend<T, S>(block, areas.branch, areas.wide);
        multiply(panels, 2 * branch + 1, attends ? areas.branch : areas.wide, attends ? block.row : block.wide_row, TC_ACTIVATION_NONE,
                 [&](int row, int column, Real value) { areas.stream[row * block.row + column] += value; });
        if (!block.norm_first) normalise<T, S>(block, block.norm[branch], areas.stream, areas.stream);
    }
    __syncthreads(); // the rows are complete
    store_rows<T, S>(block, areas.stream);
}

template <class T> Norm<T> norm_of(const tc_layer_norm_forward_args &a)
{
    return {static_cast<const T *>(a.gamma), static_cast<const T *>(a.beta), static_cast<compute<T>>(a.eps)};
}

template <class T> Block<T> block_of(const tc_encoder_block_args &a)
{
    constexpr int lanes = vector_lanes<compute<T>>;
    Block<T> block = {};
    const auto are_vectors = [](int64_t row, const void *p) {
        return row % lanes == 0 && reinterpret_cast<uintptr_t>(p) % (lanes * sizeof(T)) == 0;
    };
    const tc_gemm_args *const planned[products] = {&a.qkv, &a.out, &a.up, &a.down};
    block.vectors = true;
    for (int i = 0; i < products; i++) {
        const tc_gemm_args &g = *planned[i];
        block.product[i] = {static_cast<const T *>(g.b), static_cast<const T *>(g.bias), static_cast<int>(g.N), static_cast<int>(g.K)};
        block.vectors = block.vectors && are_vectors(g.K, g.b);
    }
    block.y = static_cast<T *>(a.y), block.x = static_cast<const T *>(a.x);
    block.whole_vectors = are_vectors(a.E, a.x) && are_vectors(a.E, a.y);
    block.norm[0] = norm_of<T>(a.norm1), block.norm[1] = norm_of<T>(a.norm2);
    block.mask = a.attention.problem.mask;
    block.scale = static_cast<compute<T>>(a.attention.problem.scale);
    block.length = static_cast<int>(a.T), block.width = static_cast<int>(a.E), block.heads = static_cast<int>(a.attention.problem.H);
    block.row = static_cast<int>(tc_encoder_block_row(a.E, sizeof(compute<T>)));
    block.wide_row = static_cast<int>(tc_encoder_block_wide_row(a.E, a.up.N, sizeof(compute<T>)));
    block.activation = a.up.activation, block.norm_first = a.norm_first;
    return block;
}

} // namespace

template <class T> int tc_cuda_encoder_block_forward(const void *args, int64_t sequences, void *, void *stream)
{
    const auto &a = *static_cast<const tc_encoder_block_args *>(args);
    const size_t bytes = tc_encoder_block_shared_bytes(a.T, a.E, a.up.N, sizeof(compute<T>));
    const auto start_shape = [&](auto shape) {
        using S = decltype(shape);
        const Launch grid(blocks(sequences), dim3(group_lanes, S::groups), bytes, stream);
        return launch<encoder_block_kernel<T, S>>(grid, block_of<T>(a));
    };
    using Short = Shape<2, 128>;
    using Medium = Shape<4, 128>;
    return a.T <= Short::length    ? start_shape(Short())
           : a.T <= Medium::length ? start_shape(Medium())
                                   : start_shape(Shape<4, most_threads>());
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, encoder_block_forward)
