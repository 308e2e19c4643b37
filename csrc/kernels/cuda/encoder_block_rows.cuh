// encoder_block_rows.cuh: what the kernels of an encoder block, forward and backward, do with the rows that a sequence has in shared
// memory: they load and store them, normalise them, drop some of their elements, and let each attend to all. Eight lanes share a row, or
// two queries of a head. Elements beyond a row's last are zeros up to a whole vector.
#pragma once
#include "attention_forward.cuh"
#include "encoder_block.cuh"
#include "vector_rows.cuh"

namespace tc
{

constexpr int most_threads = 256;

// What a kernel is compiled for: a thread has so many rows of a product, of sequences of at most `length` rows.
template <int rows_, int threads_> struct Shape {
    static constexpr int rows = rows_, threads = threads_;
    static constexpr int row_groups = threads / column_lanes, length = rows * row_groups, own_keys = length / group_lanes;
    static constexpr int groups = threads / group_lanes; // threadIdx.y
};

using Short = Shape<2, 128>;
using Long = Shape<4, most_threads>;

// f(row, column) for the vectors of a sequence's rows that the thread has: eight lanes share a row.
template <class Real, class S, class T, class F> __device__ __forceinline__ void for_own_vectors_of(const Block<T> &block, F f)
{
    constexpr int lanes = vector_lanes<Real>;
    for (int row = static_cast<int>(threadIdx.y); row < block.length; row += S::groups)
        for (int c = static_cast<int>(threadIdx.x) * lanes; c < block.width; c += group_lanes * lanes) f(row, c);
}

// Rows of a sequence, of x or a gradient (B,T,E).
template <class T, class S> __device__ __forceinline__ void load_rows(const Block<T> &block, int64_t sequence, const T *all, compute<T> *to)
{
    using Real = compute<T>;
    constexpr int lanes = vector_lanes<Real>;
    const T *const x = all + sequence * block.length * block.width;
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
        store_vector(to + row * block.row + c, wide);
    });
}

template <class T, class S>
__device__ __forceinline__ void store_rows(const Block<T> &block, int64_t sequence, T *all, const compute<T> *from)
{
    using Real = compute<T>;
    constexpr int lanes = vector_lanes<Real>;
    T *const y = all + sequence * block.length * block.width;
    for_own_vectors_of<Real, S>(block, [&](int row, int c) {
        const auto wide = load_vector<lanes>(from + row * block.row + c);
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

// Zeros from the last of `columns` elements of each row up to a whole vector.
template <class T, class S> __device__ __forceinline__ void clear_beyond(const Block<T> &block, int columns, compute<T> *rows, int row)
{
    constexpr int lanes = vector_lanes<compute<T>>;
    for (int n = thread_in_block(); n < block.length * lanes; n += S::threads) {
        const int c = columns + n % lanes;
        if (c < static_cast<int>(divide_up(columns, lanes)) * lanes) rows[n / lanes * row + c] = 0;
    }
}

// f(row, column, kept) for the elements (T,columns) of a sequence that the thread has: the four of a block of random words, 16 apart.
template <class T, class S, class F>
__device__ __forceinline__ void for_drawn(const Block<T> &block, const Dropping<T> &dropping, int columns, int64_t sequence, F f)
{
    const Draw draw = draw_of(dropping.draw.seed, dropping.draw.call, dropping.drawn);
    const int count = block.length * columns;
    const int64_t begin = place_in_batch(dropping.places, sequence * count), group = begin / TC_PHILOX_GROUP;
    const int groups = static_cast<int>((begin + count - 1) / TC_PHILOX_GROUP - group) + 1;
    TC_ROLLED
    for (int n = thread_in_block(); n < groups * TC_PHILOX_BLOCKS; n += S::threads) {
        const int64_t at = (group + n / TC_PHILOX_BLOCKS) * TC_PHILOX_GROUP + n % TC_PHILOX_BLOCKS;
        const PhiloxWords words = philox_words(draw.seed, draw.call, static_cast<uint64_t>(at));
        TC_UNROLL
        for (int w = 0; w < 4; w++) {
            const int i = static_cast<int>(at - begin) + w * TC_PHILOX_BLOCKS, row = i / columns;
            if (i >= 0 && i < count) f(row, i - row * columns, !dropping.keep.none && words.at[w] >= dropping.keep.threshold);
        }
    }
}

// stream (T,E) += what dropout keeps of the branch's result, in rows `row` apart.
template <class T, class S>
__device__ __forceinline__ void add_kept(const Block<T> &block, const Dropping<T> &dropping, int64_t sequence, compute<T> *stream,
                                         const compute<T> *branch, int row)
{
    __syncthreads(); // the rows are complete
    for_drawn<T, S>(block, dropping, block.width, sequence,
                    [&](int i, int c, bool kept) { stream[i * block.row + c] += dropping.keep.applied(branch[i * row + c], kept); });
}

// Of the hidden layer (T,F), before its activation: what dropout keeps, and the activation of that. `before` as well, unless it is null.
template <class T, class S>
__device__ __forceinline__ void activate_kept(const Block<T> &block, int64_t sequence, compute<T> *hidden, compute<T> *before = nullptr)
{
    const Dropping<T> &dropping = block.dropping[1];
    __syncthreads(); // the rows are complete
    for_drawn<T, S>(block, dropping, block.hidden, sequence, [&](int i, int c, bool kept) {
        const int at = i * block.wide_row + c;
        const compute<T> one = dropping.keep.applied(hidden[at], kept);
        if (before) before[at] = one;
        hidden[at] = activated(block.activation, one);
    });
}

// The layer norm of each row of `from`, written to `to`, which may be the same. The differences from the mean are squared, as in
// layer_norm.cu. statistics (2,T), unless it is null, gets the means and the reciprocal standard deviations.
template <class T, class S>
__device__ __forceinline__ void normalise(const Block<T> &block, const Norm<T> &norm, const compute<T> *from, compute<T> *to,
                                          compute<T> *statistics = nullptr)
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
        if (statistics && threadIdx.x == 0) statistics[row] = mean, statistics[block.length + row] = rstd;
        for_each([&](int n, int c) {
            TC_UNROLL
            for (int e = 0; e < lanes; e++)
                x[n].at[e] = c + e < block.width ? (x[n].at[e] - mean) * rstd * gamma[n].at[e] + beta[n].at[e] : Real(0);
            store_vector(to + row * block.row + c, x[n]);
        });
    }
}

// Two queries of a head, by the eight lanes of a row of threads: each has every eighth key.
template <class T, class S> struct Queries {
    using Real = compute<T>;
    static constexpr int keys = S::own_keys;
    const Block<T> &block;
    const Real *head; // in the rows of (H, 3, D)
    int64_t sequence;
    int h, features, query[own_queries];
    Real weight[own_queries][keys];

    // Query `second` may be beyond the last: it is the first then.
    __device__ __forceinline__ Queries(const Block<T> &block_, int64_t sequence_, const Real *wide, int h_, int first, int second)
        : block(block_), sequence(sequence_), h(h_),
          features(block.width / block.heads), query{first, second < block.length ? second : first}
    {
        head = wide + h * 3 * features;
    }

    static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x); }

    // The products of the queries' rows of `left`, which are `left_row` apart, with the lane's rows of `right`, all of the head's features.
    __device__ __forceinline__ void multiply(Real (&product)[own_queries][keys], const Real *left, int left_row, const Real *right) const
    {
        constexpr int lanes = vector_lanes<Real>;
        if (features % lanes == 0)
            multiply_vectors<lanes>(product, left, left_row, right);
        else
            multiply_vectors<1>(product, left, left_row, right);
    }
    // A masked score becomes -9e15; those beyond the last key are none. Bit j of hidden[i]: that of query i and the lane's key j is one.
    __device__ __forceinline__ void score(unsigned (&hidden)[own_queries])
    {
        const tc_attention_plane &m = block.mask;
        const auto *const mask = m.data ? static_cast<const uint8_t *>(m.data) + sequence * m.batch + h * m.head : nullptr;
        multiply(weight, head, block.wide_row, head + features);
        TC_UNROLL
        for (int i = 0; i < own_queries; i++) {
            hidden[i] = 0;
            TC_UNROLL
            for (int j = 0; j < keys; j++) {
                const int key = lane() + j * group_lanes;
                const bool is_one = key < block.length, is_masked = is_one && mask && !mask[query[i] * m.row + key * m.column];
                weight[i][j] = is_masked ? static_cast<Real>(fill_score) : is_one ? weight[i][j] * block.scale : -infinity<Real>;
                hidden[i] |= static_cast<unsigned>(is_masked || !is_one) << j;
            }
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

  private:
    template <int n>
    __device__ __forceinline__ void multiply_vectors(Real (&product)[own_queries][keys], const Real *left, int left_row,
                                                     const Real *right) const
    {
        const Real *key[keys];
        TC_UNROLL
        for (int j = 0; j < keys; j++) {
            const int own = lane() + j * group_lanes;
            key[j] = right + (own < block.length ? own : block.length - 1) * block.wide_row;
            product[0][j] = product[1][j] = 0;
        }
        for (int d = 0; d < features; d += n) {
            const auto first = load_vector<n>(left + query[0] * left_row + d);
            const auto second = load_vector<n>(left + query[1] * left_row + d);
            TC_UNROLL
            for (int j = 0; j < keys; j++) {
                if (j * group_lanes >= block.length) break;
                const auto other = load_vector<n>(key[j] + d);
                TC_UNROLL
                for (int e = 0; e < n; e++) {
                    product[0][j] += first.at[e] * other.at[e];
                    product[1][j] += second.at[e] * other.at[e];
                }
            }
        }
    }
};

// to (T,E) = the heads' values of wide (T,H,3,D)
template <class T, class S>
__device__ __forceinline__ void attend(const Block<T> &block, int64_t sequence, compute<T> *to, const compute<T> *wide)
{
    const int pairs = (block.length + own_queries - 1) / own_queries;
    __syncthreads(); // the rows are complete
    TC_ROLLED
    for (int n = static_cast<int>(threadIdx.y); n < block.heads * pairs; n += S::groups) {
        unsigned hidden[own_queries];
        const int first = n % pairs * own_queries;
        Queries<T, S> queries(block, sequence, wide, n / pairs, first, first + 1);
        queries.score(hidden);
        const compute<T> share[own_queries] = {queries.weigh(0), queries.weigh(1)};
        queries.add_values(to, share);
    }
}

// ---- on the host ------------------------------------------------------------------------------------------------------------------------

template <class T> Norm<T> norm_of(const tc_layer_norm_forward_args &a)
{
    return {static_cast<const T *>(a.gamma), static_cast<const T *>(a.beta), static_cast<compute<T>>(a.eps)};
}

template <class T> Dropping<T> dropping_of(const tc_mask &mask)
{
    return {{mask.seed, mask.call}, mask.drawn, mask.places, keep_of<T>(mask), mask.p > 0};
}

// Are rows of so many elements, which begin there, whole vectors?
template <class T> bool are_vectors(int64_t row, const void *p)
{
    constexpr int lanes = vector_lanes<compute<T>>;
    return row % lanes == 0 && reinterpret_cast<uintptr_t>(p) % (lanes * sizeof(T)) == 0;
}

// With the products of the forward.
template <class T> Block<T> block_of(const tc_encoder_block_args &a)
{
    Block<T> block = {};
    block.vectors = true;
    for (const tc_gemm_args *g : {&a.qkv, &a.out, &a.up, &a.down}) {
        block.product[block.products++] = {static_cast<const T *>(g->b), static_cast<const T *>(g->bias), static_cast<int>(g->N),
                                           static_cast<int>(g->K), false};
        block.vectors = block.vectors && are_vectors<T>(g->K, g->b);
    }
    block.y = static_cast<T *>(a.y), block.x = static_cast<const T *>(a.x);
    block.whole_vectors = are_vectors<T>(a.E, a.x) && are_vectors<T>(a.E, a.y);
    block.norm[0] = norm_of<T>(a.norm1), block.norm[1] = norm_of<T>(a.norm2);
    for (int i = 0; i < TC_ENCODER_BLOCK_MASKS; i++) block.dropping[i] = dropping_of<T>(a.mask[i]);
    block.mask = a.attention.problem.mask;
    block.scale = static_cast<compute<T>>(a.attention.problem.scale);
    block.length = static_cast<int>(a.T), block.width = static_cast<int>(a.E), block.heads = static_cast<int>(a.attention.problem.H);
    block.hidden = static_cast<int>(a.up.N);
    block.row = static_cast<int>(tc_encoder_block_row(a.E, sizeof(compute<T>)));
    block.wide_row = static_cast<int>(tc_encoder_block_wide_row(a.E, a.up.N, sizeof(compute<T>)));
    block.activation = a.up.activation, block.norm_first = a.norm_first;
    return block;
}

} // namespace tc
