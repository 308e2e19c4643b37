// encoder_block_backward.cu: all gradients of an encoder block of short sequences in one launch, but for the sum of what the blocks of
// threads have, which a second one adds up. A block takes the sequences of its chunk one after the other: it computes the forward again,
// whose rows stay in its shared memory, and then the gradients from dy to dx.
//
// The products are those of encoder_block.cuh, their weights read once as they are and once transposed. A gradient of a weight is a sum
// over the rows of a sequence: a thread has 4 x 4 of its elements at a time, which it adds to the chunk's, in order of the sequences.
#include "encoder_block_rows.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

// The args as the kernel needs them. heads_at_once, score_row: encoder_block.h.
template <class T> struct Backward {
    Block<T> block;
    tc_encoder_block_areas areas;
    tc_encoder_block_places places;
    T *dx;
    const T *dy;
    compute<T> *partial;
    int64_t sequences, chunk;
    int heads_at_once, score_row;
    bool keeps_before;
};

// Shared memory: encoder_block.h.
template <class Real> struct Areas {
    Real *sum1, *sum2, *values, *gradient, *normal, *branch, *wide, *hidden, *before, *statistics, *scores, *panels;

    template <class T>
    __device__ __forceinline__ Areas(Real *shared, const Backward<T> &b)
        : sum1(shared + b.areas.sum1), sum2(shared + b.areas.sum2), values(shared + b.areas.values), gradient(shared + b.areas.gradient),
          normal(shared + b.areas.normal), branch(shared + b.areas.branch), wide(shared + b.areas.wide), hidden(shared + b.areas.hidden),
          before(b.keeps_before ? shared + b.areas.before : nullptr), statistics(shared + b.areas.statistics), scores(normal),
          panels(shared + b.areas.panels)
    {
    }
    // What the norm of a branch takes, or the stream between the branches.
    __device__ __forceinline__ Real *sum(int number) const { return number ? sum2 : sum1; }
};

// ---- gradients of parameters ------------------------------------------------------------------------------------------------------------

// Those of a chunk; `first`: of the first of its sequences, which writes where others add.
template <class Real> struct Gradients {
    const tc_encoder_block_places &places;
    Real *to;
    bool first;

    __device__ __forceinline__ void add(Real *at, Real value) const { *at = first ? value : *at + value; }

    // Of parameter (N), sum(c) each.
    template <class S, class F> __device__ __forceinline__ void add_columns(int parameter, int N, F sum) const
    {
        for (int c = thread_in_block(); c < N; c += S::threads) add(to + places.begin[parameter] + c, sum(c));
    }
    // Of a weight (N,K) and the bias (N) that follows it: d (T,N) transposed times x (T,K).
    template <class S>
    __device__ __forceinline__ void add_product(int parameter, int N, int K, int length, const Real *d, int d_row, const Real *x,
                                                int x_row) const
    {
        constexpr int lanes = vector_lanes<Real>, rows = 4;
        const int across = static_cast<int>(divide_up(K, lanes)), tiles = across * static_cast<int>(divide_up(N, rows));
        TC_ROLLED
        for (int tile = thread_in_block(); tile < tiles; tile += S::threads) {
            const int n = tile / across * rows, k = tile % across * lanes;
            Real sum[rows][lanes] = {};
            TC_UNROLL_SOME
            for (int t = 0; t < length; t++) {
                const auto other = load_vector<lanes>(x + t * x_row + k);
                TC_UNROLL
                for (int i = 0; i < rows; i += lanes) {
                    if (n + i >= N) break;
                    const auto own = load_vector<lanes>(d + t * d_row + n + i);
                    TC_UNROLL
                    for (int j = 0; j < lanes; j++) TC_UNROLL
                    for (int e = 0; e < lanes; e++) sum[i + j][e] += own.at[j] * other.at[e];
                }
            }
            TC_UNROLL
            for (int i = 0; i < rows; i++) {
                if (n + i >= N) break;
                Real *const at = to + places.begin[parameter] + (n + i) * K + k;
                if (K % lanes == 0) {
                    Vector<Real, lanes> total = {};
                    if (!first) total = load_vector<lanes>(at);
                    TC_UNROLL
                    for (int e = 0; e < lanes; e++) total.at[e] += sum[i][e];
                    store_vector(at, total);
                } else {
                    TC_UNROLL
                    for (int e = 0; e < lanes; e++)
                        if (k + e < K) add(at + e, sum[i][e]);
                }
            }
        }
        add_columns<S>(parameter + 1, N, [&](int c) {
            Real sum = 0;
            for (int t = 0; t < length; t++) sum += d[t * d_row + c];
            return sum;
        });
    }
};

// ---- norms ------------------------------------------------------------------------------------------------------------------------------

// The gradients of gamma and beta, whose gradients of results are in `from`, and of the rows that were normalised: added to `to`, or
// instead of what is there. `from` may be `to`.
template <class T, class S>
__device__ __forceinline__ void back_through_norm(const Block<T> &block, const Gradients<compute<T>> &gradients, int branch,
                                                  const compute<T> *normalised, const compute<T> *statistics, const compute<T> *from,
                                                  compute<T> *to, bool adds)
{
    using Real = compute<T>;
    constexpr int lanes = vector_lanes<Real>, vectors = TC_ENCODER_BLOCK_WIDTH / (group_lanes * lanes);
    const int gamma_place = 2 * weights + 2 * branch;
    const Real *const mean = statistics, *const rstd = statistics + block.length;
    __syncthreads(); // the rows are complete
    gradients.template add_columns<S>(gamma_place, block.width, [&](int c) {
        Real sum = 0;
        for (int t = 0; t < block.length; t++) {
            const int at = t * block.row + c;
            sum += from[at] * ((normalised[at] - mean[t]) * rstd[t]);
        }
        return sum;
    });
    gradients.template add_columns<S>(gamma_place + 1, block.width, [&](int c) {
        Real sum = 0;
        for (int t = 0; t < block.length; t++) sum += from[t * block.row + c];
        return sum;
    });
    __syncthreads();                    // `from` is read
    const auto for_each = [&](auto f) { // f(n, c): the thread's vectors of a row
        TC_UNROLL
        for (int n = 0; n < vectors; n++) {
            const int c = (static_cast<int>(threadIdx.x) + n * group_lanes) * lanes;
            if (c < block.width) f(n, c);
        }
    };
    Vector<Real, lanes> gamma[vectors] = {}, x[vectors], d[vectors];
    for_each([&](int n, int c) {
        TC_UNROLL
        for (int e = 0; e < lanes; e++)
            if (c + e < block.width) gamma[n].at[e] = widen(block.norm[branch].gamma[c + e]);
    });
    const Real width = static_cast<Real>(block.width);
    for (int row = static_cast<int>(threadIdx.y); row < block.length; row += S::groups) {
        Real sum = 0, product = 0;
        for_each([&](int n, int c) {
            x[n] = load_vector<lanes>(normalised + row * block.row + c);
            d[n] = load_vector<lanes>(from + row * block.row + c);
            TC_UNROLL
            for (int e = 0; e < lanes; e++) {
                x[n].at[e] = (x[n].at[e] - mean[row]) * rstd[row];
                d[n].at[e] *= gamma[n].at[e]; // 0 beyond the last
                sum += d[n].at[e];
                product += d[n].at[e] * x[n].at[e];
            }
        });
        sum = group_sum<group_lanes, Real>(sum, nullptr) / width;
        product = group_sum<group_lanes, Real>(product, nullptr) / width;
        for_each([&](int n, int c) {
            Vector<Real, lanes> before = {};
            if (adds) before = load_vector<lanes>(to + row * block.row + c);
            TC_UNROLL
            for (int e = 0; e < lanes; e++)
                d[n].at[e] = c + e < block.width ? before.at[e] + rstd[row] * (d[n].at[e] - sum - x[n].at[e] * product) : Real(0);
            store_vector(to + row * block.row + c, d[n]);
        });
    }
}

// ---- attention --------------------------------------------------------------------------------------------------------------------------

// Of two queries, their weights and the gradients of their scores, in `to` (2,T,T).
template <class T, class S>
__device__ __forceinline__ void find_scores(const Backward<T> &b, Queries<T, S> &queries, const compute<T> *dvalues, compute<T> *to)
{
    using Real = compute<T>;
    constexpr int keys = S::own_keys;
    const Block<T> &block = b.block;
    unsigned hidden[own_queries];
    Real dweight[own_queries][keys];
    queries.score(hidden);
    queries.multiply(dweight, dvalues + queries.h * queries.features, block.row, queries.head + 2 * queries.features);
    const Real share[own_queries] = {queries.weigh(0), queries.weigh(1)};
    Real delta[own_queries] = {};
    TC_UNROLL
    for (int i = 0; i < own_queries; i++) TC_UNROLL
    for (int j = 0; j < keys; j++) {
        queries.weight[i][j] *= share[i];
        if (j * group_lanes + queries.lane() < block.length) delta[i] += queries.weight[i][j] * dweight[i][j];
    }
    TC_UNROLL
    for (Real &one : delta) one = group_sum<group_lanes, Real>(one, nullptr);
    TC_UNROLL
    for (int j = 0; j < keys; j++) {
        const int key = j * group_lanes + queries.lane();
        if (key >= block.length) break;
        TC_UNROLL
        for (int i = 0; i < own_queries; i++) {
            const int at = queries.query[i] * b.score_row + key;
            to[at] = queries.weight[i][j];
            to[block.length * b.score_row + at] =
                hidden[i] >> j & 1 ? Real(0) : queries.weight[i][j] * (dweight[i][j] - delta[i]) * block.scale;
        }
    }
}

// d (T,H,3,D) of some heads, from their `scores` (heads,2,T,T): two rows of dq = dS k, dk = dS^T q or dv = P^T dvalues at a time, n
// features.
template <int n, class T, class S>
__device__ __forceinline__ void multiply_scores(const Backward<T> &b, int first_head, int heads, const compute<T> *scores,
                                                const compute<T> *wide, const compute<T> *dvalues, compute<T> *d)
{
    using Real = compute<T>;
    constexpr int own = own_queries;
    const Block<T> &block = b.block;
    const int features = block.width / block.heads, across = features / n, down = (block.length + own - 1) / own;
    const int matrix = block.length * b.score_row;
    TC_ROLLED
    for (int item = thread_in_block(); item < heads * 3 * down * across; item += S::threads) {
        const int f = item % across * n, row = item / across % down * own, which = item / (across * down) % 3;
        const int slot = item / (across * down * 3), h = first_head + slot;
        const bool is_whole = row + 1 < block.length;
        const Real *const score = scores + (2 * slot + (which < 2)) * matrix + row * (which == 0 ? b.score_row : 1);
        const int to_other = which == 0 ? 1 : b.score_row, to_next = is_whole ? (which == 0 ? b.score_row : 1) : 0;
        const Real *const right = which == 2 ? dvalues + h * features + f : wide + (h * 3 + 1 - which) * features + f;
        const int right_row = which == 2 ? block.row : block.wide_row;
        Real sum[own][n] = {};
        TC_UNROLL_SOME
        for (int t = 0; t < block.length; t++) {
            const auto other = load_vector<n>(right + t * right_row);
            const Real first = score[t * to_other], second = score[t * to_other + to_next];
            TC_UNROLL
            for (int e = 0; e < n; e++) sum[0][e] += first * other.at[e], sum[1][e] += second * other.at[e];
        }
        TC_UNROLL
        for (int i = 0; i < own; i++) {
            if (i > 0 && !is_whole) break;
            Vector<Real, n> result;
            TC_UNROLL
            for (int e = 0; e < n; e++) result.at[e] = sum[i][e];
            store_vector(d + (row + i) * block.wide_row + (h * 3 + which) * features + f, result);
        }
    }
}

// d (T,H,3,D), the gradients of wide, from those of attention's values (T,E).
template <class T, class S>
__device__ __forceinline__ void back_through_attention(const Backward<T> &b, int64_t sequence, const compute<T> *wide,
                                                       const compute<T> *dvalues, compute<T> *scores, compute<T> *d)
{
    constexpr int lanes = vector_lanes<compute<T>>;
    const Block<T> &block = b.block;
    const int pairs = (block.length + own_queries - 1) / own_queries, matrix = block.length * b.score_row;
    TC_ROLLED
    for (int first = 0; first < block.heads; first += b.heads_at_once) {
        const int heads = block.heads - first < b.heads_at_once ? block.heads - first : b.heads_at_once;
        __syncthreads(); // the rows are complete, and the scores of other heads read
        TC_ROLLED
        for (int n = static_cast<int>(threadIdx.y); n < heads * pairs; n += S::groups) {
            const int query = n % pairs; // neighbouring groups write to rows of scores in different banks
            Queries<T, S> queries(block, sequence, wide, first + n / pairs, query, query + pairs);
            find_scores(b, queries, dvalues, scores + 2 * (n / pairs) * matrix);
        }
        __syncthreads(); // the scores are complete
        if (block.width / block.heads % lanes == 0)
            multiply_scores<lanes, T, S>(b, first, heads, scores, wide, dvalues, d);
        else
            multiply_scores<1, T, S>(b, first, heads, scores, wide, dvalues, d);
    }
    clear_beyond<T, S>(block, 3 * block.width, d, block.wide_row);
}

// ---- the block --------------------------------------------------------------------------------------------------------------------------

// f(place) for the elements of the hidden layer that the thread has, after a barrier. Functions are not inlined into products, where they
// would be for each result of a thread.
template <class T, class S, class F> __device__ __forceinline__ void for_each_hidden(const Block<T> &block, F f)
{
    __syncthreads(); // the rows are complete
    TC_ROLLED
    for (int n = thread_in_block(); n < block.length * block.hidden; n += S::threads) {
        const int row = n / block.hidden;
        f(row * block.wide_row + n - row * block.hidden);
    }
}

// Everything up to y, but for y itself: what the gradients need of it.
template <class T, class S>
__device__ __forceinline__ void compute_again(const Backward<T> &b, int64_t sequence, Panels<T, S> &panels, const Areas<compute<T>> &areas)
{
    using Real = compute<T>;
    const Block<T> &block = b.block;
    load_rows<T, S>(block, sequence, block.x, areas.sum1);
    clear_beyond<T, S>(block, block.width, areas.values, block.row);
    TC_ROLLED
    for (int branch = 0; branch < 2; branch++) {
        const bool attends = branch == 0, drops_hidden = !attends && block.dropping[1].is_on;
        const Dropping<T> &dropping = block.dropping[attends ? 0 : 2];
        Real *const statistics = areas.statistics + branch * 2 * block.length;
        if (block.norm_first) normalise<T, S>(block, block.norm[branch], areas.sum(branch), areas.normal, statistics);
        const Real *const from = attends && !block.norm_first ? areas.sum1 : areas.normal;
        Real *const wide = attends ? areas.wide : areas.hidden, *const before = attends ? nullptr : areas.before;
        const bool is_relu = !attends && !drops_hidden && block.activation == TC_ACTIVATION_RELU;
        multiply(panels, 2 * branch, from, block.row, TC_ACTIVATION_NONE, [&](int row, int column, Real value) {
            const int at = row * block.wide_row + column;
            if (before) before[at] = value;
            wide[at] = is_relu ? v_relu(value) : value;
        });
        if (attends) attend<T, S>(block, sequence, areas.values, areas.wide);
        if (drops_hidden)
            activate_kept<T, S>(block, sequence, areas.hidden, areas.before);
        else if (before)
            for_each_hidden<T, S>(block, [&](int at) { areas.hidden[at] = activated(block.activation, areas.hidden[at]); });
        if (!attends && block.norm_first) return; // nothing more is needed of y

        const Real *const stream = attends ? areas.sum1 : areas.normal;
        Real *const to = attends && !block.norm_first ? areas.sum1 : areas.sum2;
        multiply(panels, 2 * branch + 1, attends ? areas.values : areas.hidden, attends ? block.row : block.wide_row, TC_ACTIVATION_NONE,
                 [&](int row, int column, Real value) {
                     const int at = row * block.row + column;
                     if (dropping.is_on) areas.branch[at] = value, value = 0;
                     to[at] = stream[at] + value;
                 });
        if (dropping.is_on) add_kept<T, S>(block, dropping, sequence, to, areas.branch, block.row);
        if (!block.norm_first) // of the second norm for its statistics
            normalise<T, S>(block, block.norm[branch], to, attends ? areas.normal : areas.branch, statistics);
    }
}

// The gradient of a branch's result, from that of the stream: what dropout keeps of it.
template <class T, class S>
__device__ __forceinline__ const compute<T> *back_through_dropout(const Block<T> &block, int number, int64_t sequence,
                                                                  const Areas<compute<T>> &areas)
{
    const Dropping<T> &dropping = block.dropping[number];
    __syncthreads(); // the rows are complete
    if (!dropping.is_on) return areas.gradient;
    for_drawn<T, S>(block, dropping, block.width, sequence, [&](int row, int c, bool kept) {
        const int at = row * block.row + c;
        areas.branch[at] = dropping.keep.applied(areas.gradient[at], kept);
    });
    __syncthreads();
    return areas.branch; // whose elements beyond the last are zeros: the forward has been through it, by the same probability
}

// Block: the sequences of a chunk, blockDim (group_lanes, groups).
template <class T, class S>
__global__ void __launch_bounds__(S::threads, 1) encoder_block_backward_kernel(const __grid_constant__ Backward<T> b)
{
    using Real = compute<T>;
    TC_DYNAMIC_SHARED(Real, shared);
    const Block<T> &block = b.block;
    const Areas<Real> areas(shared, b);
    const int E = block.width, length = block.length;
    const bool norm_first = block.norm_first;
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * b.chunk, end = begin + b.chunk < b.sequences ? begin + b.chunk : b.sequences;
    TC_ROLLED
    for (int64_t sequence = begin; sequence < end; sequence++) {
        const Gradients<Real> gradients = {b.places, b.partial + blockIdx.x * b.places.end, sequence == begin};
        Panels<T, S> panels(block, areas.panels);
        compute_again<T, S>(b, sequence, panels, areas);
        load_rows<T, S>(block, sequence, b.dy, areas.gradient);
        int product = block.products - weights; // the one that follows
        TC_ROLLED
        for (int branch = 1; branch >= 0; branch--) {
            const bool attends = branch == 0;
            Real *const statistics = areas.statistics + branch * 2 * length;
            if (!norm_first)
                back_through_norm<T, S>(block, gradients, branch, areas.sum(branch), statistics, areas.gradient, areas.gradient, false);

            // from the branch's result to what its second product has read: attention's values, or the hidden layer
            const Real *const result = back_through_dropout<T, S>(block, attends ? 0 : 2, sequence, areas);
            Real *const inner = attends ? areas.values : areas.hidden;
            const int inner_row = attends ? block.row : block.wide_row, inner_width = attends ? E : block.hidden;
            gradients.template add_product<S>(attends ? 2 : 6, E, inner_width, length, result, block.row, inner, inner_row);
            const bool is_relu = !attends && block.activation == TC_ACTIVATION_RELU;
            multiply(panels, product++, result, block.row, TC_ACTIVATION_NONE, [&](int row, int column, Real value) {
                const int at = row * inner_row + column;
                inner[at] = is_relu ? value * activation_slope(TC_ACTIVATION_RELU, inner[at]) : value;
            });
            if (!attends && areas.before)
                for_each_hidden<T, S>(block, [&](int at) { inner[at] *= activation_slope(block.activation, areas.before[at]); });

            // to what its first product has written, in areas.hidden
            if (attends) back_through_attention<T, S>(b, sequence, areas.wide, areas.values, areas.scores, areas.hidden);
            const Dropping<T> &dropping = block.dropping[1];
            if (!attends && dropping.is_on) {
                __syncthreads(); // the rows are complete
                for_drawn<T, S>(block, dropping, block.hidden, sequence, [&](int row, int c, bool kept) {
                    Real &hidden = areas.hidden[row * block.wide_row + c];
                    hidden = dropping.keep.applied(hidden, kept);
                });
            }

            // and to what that has read, which the other branch or the scores have replaced
            if (attends && norm_first) {
                normalise<T, S>(block, block.norm[0], areas.sum1, areas.normal, statistics);
            } else if (attends) {
                __syncthreads(); // the scores are read, whose memory it is
                load_rows<T, S>(block, sequence, block.x, areas.normal);
            }
            __syncthreads(); // the rows are complete
            gradients.template add_product<S>(attends ? 0 : 4, attends ? 3 * E : block.hidden, E, length, areas.hidden, block.wide_row,
                                              areas.normal, block.row);
            multiply(panels, product++, areas.hidden, block.wide_row, TC_ACTIVATION_NONE, [&](int row, int column, Real value) {
                const int at = row * block.row + column;
                if (norm_first)
                    areas.branch[at] = value;
                else
                    areas.gradient[at] += value;
            });
            if (norm_first)
                back_through_norm<T, S>(block, gradients, branch, areas.sum(branch), statistics, areas.branch, areas.gradient, true);
        }
        __syncthreads(); // the rows are complete
        store_rows<T, S>(block, sequence, b.dx, areas.gradient);
    }
}

// Blocks take neighbouring columns, blockDim (warp_lanes, column_row_lanes). Those between two parameters are not written, and not read.
template <class T>
__global__ void __launch_bounds__(column_threads) encoder_block_sums_kernel(const __grid_constant__ tc_encoder_block_sums_args a)
{
    const int64_t column = static_cast<int64_t>(blockIdx.x) * warp_lanes + threadIdx.x;
    T *to = nullptr;
    TC_UNROLL
    for (int i = 0; i < TC_ENCODER_BLOCK_PARAMETERS; i++) {
        const int64_t at = column - a.places.begin[i];
        if (at >= 0 && at < a.places.size[i] && a.out[i]) to = static_cast<T *>(a.out[i]) + at;
    }
    const compute<T> sum = sum_of_chunks<compute<T>>(a.partial, a.chunks, a.places.end, to ? column : a.places.end);
    if (threadIdx.y == 0 && to) narrow(*to, sum);
}

// The products of the forward, without the last where no norm follows it, and those of their gradients.
template <class T> void add_transposed(Block<T> &block)
{
    const Product<T> forward[weights] = {block.product[0], block.product[1], block.product[2], block.product[3]};
    block.products = block.norm_first ? weights - 1 : weights;
    for (int i = weights - 1; i >= 0; i--) block.product[block.products++] = {forward[i].weight, nullptr, forward[i].K, forward[i].N, true};
}

} // namespace

template <class T> int tc_cuda_encoder_block_backward(const void *args, int64_t chunks, void *, void *stream)
{
    const auto &a = *static_cast<const tc_encoder_block_backward_args *>(args);
    const tc_encoder_block_args &forward = a.block;
    const int64_t length = forward.T, E = forward.E, F = forward.up.N, H = forward.attention.problem.H;
    Backward<T> b = {};
    b.block = block_of<T>(forward);
    add_transposed(b.block);
    b.block.whole_vectors = are_vectors<T>(E, forward.x) && are_vectors<T>(E, a.dy) && are_vectors<T>(E, a.dx);
    b.keeps_before = tc_encoder_block_keeps_before(b.block.activation);
    b.areas = tc_encoder_block_areas_of(length, E, F, H, sizeof(compute<T>), b.keeps_before);
    b.places = tc_encoder_block_places_of(E, F);
    b.dx = static_cast<T *>(a.dx), b.dy = static_cast<const T *>(a.dy), b.partial = static_cast<compute<T> *>(a.partial);
    b.sequences = forward.B, b.chunk = a.chunk;
    b.heads_at_once = static_cast<int>(tc_encoder_block_heads_at_once(length, H));
    b.score_row = static_cast<int>(tc_encoder_block_score_row(length));
    const size_t bytes = static_cast<size_t>(b.areas.end) * sizeof(compute<T>);
    const auto start_shape = [&](auto shape) {
        using S = decltype(shape);
        return launch<encoder_block_backward_kernel<T, S>>(Launch(blocks(chunks), dim3(group_lanes, S::groups), bytes, stream), b);
    };
    return length <= Short::length ? start_shape(Short()) : start_shape(Long());
}

template <class T> int tc_cuda_encoder_block_sums(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_encoder_block_sums_args *>(args);
    return launch<encoder_block_sums_kernel<T>>(column_launch(1, a.places.end, stream), a);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, encoder_block_backward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, encoder_block_sums)
