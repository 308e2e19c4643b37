// attention_backward_float.cu: attention's gradients in float32 by multiply-adds, for heads of at most 128 features: dq by one kernel and
// dk with dv by another, each of which computes the scores anew, so that a block adds up all terms of its rows in order.
//
// A warp has rows of its own, queries or keys, whose gradients stay in its registers; tiles of 32 of the others come through shared memory.
// As in the forward a tile that no row of a warp sees is skipped, and scores that nothing but causal attention, a window, lengths or
// dropout changes stay in registers; of all others each pair goes through BackwardHead::pair(), as in the plain kernel.
#include "attention_backward.cuh"
#include "attention_float.cuh"

namespace
{

using namespace tc;

constexpr int attention_float_threads = 128;

// What a kernel is compiled for: the block's own rows are queries, for dq, or keys, for dk and dv; D and Dv are at most `size`; a lane has
// n rows.
template <bool queries_, int size_, int n_, int warps_> struct Shape {
    static constexpr bool queries = queries_;
    static constexpr int size = size_, n = n_, warps = warps_;
    static constexpr int results = queries ? 1 : 2;
    static constexpr int threads = warps * warp_lanes, warp_rows = 4 * n, rows = warps * warp_rows;
    static constexpr int numbered = queries ? rows : tile_others; // queries whose numbers are in shared memory
};

// Of `rows` own rows from `first` on: they have no pair with the others outside [some, some_end), and with all of [all, all_end) pairs that
// nothing hides.
struct Reach {
    int some = 0, some_end = 0, all = 0, all_end = 0;

    template <class S>
    __device__ __forceinline__ Reach(const tc_attention_problem &p, const Head<float> &head, S, int64_t first, int rows, bool changes)
    {
        const int64_t own = S::queries ? head.Tq : head.Tk, end = first + rows < own ? first + rows : own;
        if (first >= own) return;
        if (S::queries) {
            set(some, some_end, head.first_key(p, first), head.end_key(p, end - 1, 1));
            if (!changes) set(all, all_end, head.first_key(p, end - 1), head.end_key(p, first, 1));
        } else {
            const bool all_queries = p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM; // empty rows reach every value
            if (all_queries) set(some, some_end, 0, head.Tq);
            if (!all_queries && first < head.keys) set(some, some_end, head.first_query(p, first), head.end_query(p, end - 1, 1));
            if (!changes && end <= head.keys) set(all, all_end, head.first_query(p, end - 1), head.end_query(p, first, 1));
        }
    }
    __device__ __forceinline__ bool none(int other) const { return other + tile_others <= some || other >= some_end; }
    __device__ __forceinline__ bool whole(int other) const { return other >= all && other + tile_others <= all_end; }

  private:
    static __device__ __forceinline__ void set(int &begin, int &end, int64_t from, int64_t to)
    {
        begin = static_cast<int>(from), end = static_cast<int>(to);
    }
};

// What a warp knows of itself and of its block, in shared memory, since registers are few.
struct WarpPlace {
    Reach block, own;
    int b, own_head, share, first, rows, queries; // first: its first row; rows: that there are
    Bounds bounds;
    bool changes; // scores or gradients, so that each pair needs BackwardHead::pair()
};

// Shared memory, in floats: the own rows, x (q or k) and dx (dvalues or v); a tile of the others, y (k or q) and dy (v or dvalues); for
// each warp weights or their gradients; the numbers of queries. Then each warp's WarpPlace.
template <class S> struct Layout {
    static constexpr int own = S::rows * S::size, warp_own = S::warp_rows * S::size, tile = tile_others * S::size;
    static constexpr int y = 2 * own, dy = y + tile, weights = dy + tile, warp_weights = S::warp_rows * tile_others;
    static constexpr int numbers = weights + S::warps * warp_weights, places = numbers + 3 * S::numbered;
    static constexpr size_t bytes = places * sizeof(float) + S::warps * sizeof(WarpPlace);
};

// Of a lane's pairs, one bit each: they may not be attended to; and the value gets nothing of it either, as it does from empty rows.
struct Marks {
    uint32_t hidden = 0, unreached = 0;
};

// Makes weights and gradients of the scores, without the scale, of the products of half of a lane's rows. Not inlined: it is long, and
// needs none of the caller's registers.
template <class S>
__device__ __noinline__ Marks finish_pairs(const tc_attention_backward_args &a, const Numbers<float> &numbers, const float *delta,
                                           const WarpPlace &self, int h, float *products, int other, uint32_t dropped, int half)
{
    constexpr int pairs = S::n / 2 * own_others;
    const BackwardHead<float> head(a, numbers, delta, self.b, h);
    Marks marks;
    TC_ROLLED
    for (int i = 0; i < pairs; i++) {
        float &product = products[i * warp_lanes + lane_in_warp()], &dproduct = products[(pairs + i) * warp_lanes + lane_in_warp()];
        const int e = half * pairs + i;
        const int mine = self.first + lane_row_of(e / own_others), theirs = other + lane_other_of(e % own_others);
        const float kept = !numbers.drops ? 1.0f : dropped >> e & 1 ? 0.0f : numbers.kept;
        const auto pair = head.pair(S::queries ? mine : theirs, S::queries ? theirs : mine, product, dproduct, kept);
        product = pair.weight;
        dproduct = numbers.scale != 0 ? pair.dscore / numbers.scale : 0.0f;
        marks.hidden |= static_cast<uint32_t>(pair.hidden) << e;
        marks.unreached |= static_cast<uint32_t>(pair.hidden && pair.weight == 0) << e;
    }
    return marks;
}

// The bits of the weights that dropout drops. Not inlined, likewise.
template <class S>
__device__ __noinline__ uint32_t dropped_pairs(const tc_attention_problem &p, const Numbers<float> &numbers, const WarpPlace &self, int h,
                                               int other)
{
    return dropped_of<S::n, S::queries>(p, Head<float>(p, numbers, self.b, h), self.first, other);
}

// Copies the shift, share and delta of `count` queries from `row` on, of which `left` are there.
template <int count, int threads>
__device__ __forceinline__ void copy_numbers(float *to, const tc_attention_backward_args &a, const QueryNumbers<float> &of_queries,
                                             int64_t row, int left)
{
    TC_ROLLED
    for (int e = static_cast<int>(threadIdx.x); e < 3 * count; e += threads) {
        const int number = e / count, i = e % count;
        const float *const from = number == 0 ? static_cast<const float *>(a.shift) : number == 1 ? of_queries.share : of_queries.delta;
        copy_async<4>(to + e, from + row + i, i < left ? 4 : 0);
    }
}

// Copies a tile of the others and, where these are queries, their numbers. Not inlined, for the sake of registers.
template <class S>
__device__ __noinline__ void load_tile(const tc_attention_backward_args &a, const Numbers<float> &numbers,
                                       const QueryNumbers<float> &of_queries, const WarpPlace &self, float *shared, int h, int other,
                                       bool vectors)
{
    const tc_attention_problem &p = a.problem;
    const BackwardHead<float> backward(a, numbers, of_queries.delta, self.b, h);
    const Head<float> &head = backward.head;
    const int left = static_cast<int>(S::queries ? head.Tk : head.Tq) - other, D = static_cast<int>(p.D), Dv = static_cast<int>(p.Dv);
    copy_rows<tile_others, S::size, S::threads>(shared + Layout<S>::y, (S::queries ? head.k : head.q).at(other, 0), left, D, vectors);
    copy_rows<tile_others, S::size, S::threads>(shared + Layout<S>::dy, (S::queries ? head.v : backward.dvalues).at(other, 0), left, Dv,
                                                vectors);
    if (!S::queries)
        copy_numbers<tile_others, S::threads>(shared + Layout<S>::numbers, a, of_queries, head.statistics(p, self.b, h) + other, left);
    copy_async_commit();
}

// Saves a gradient of the warp's rows, or its share. wide: in vectors.
template <class S>
__device__ __forceinline__ void save(const tc_attention_backward_args &a, const Wanted &of, const WarpPlace &self,
                                     const RowSums<S::n, S::size> &sums, float factor, bool wide)
{
    const tc_attention_operand &result = result_of(a, of.gradient);
    if (!result.data) return;
    const Rows rows(a.problem, self.b);
    float *const out = rows.begin<float>(result, self.b, self.own_head);
    const int width = static_cast<int>(of.width);
    TC_UNROLL
    for (int i = 0; i < S::n; i++) {
        const int row = self.first + lane_row_of(i);
        if (row >= self.rows) continue;
        float *const part = static_cast<float *>(of.partial) + of.row(self.share, a.problem.B, self.b, self.own_head, row) * of.width;
        float *const to = of.shares > 1 ? part : out + row * result.row;
        TC_UNROLL
        for (int f = 0; f < S::size / 8; f += 4) {
            const int column = f * 8 + lane_column() * 4;
            const float(&own)[S::size / 8] = sums[i];
            if (wide && of.shares == 1) {
                if (column < width)
                    store_vector(to + column,
                                 Vector<float, 4>{own[f] * factor, own[f + 1] * factor, own[f + 2] * factor, own[f + 3] * factor});
            } else {
                TC_UNROLL
                for (int e = 0; e < 4; e++)
                    if (column + e < width) to[column + e] = own[f + e] * factor;
            }
        }
    }
}

// Block: own rows of one head, and every shares-th tile of the others. The longest rows of a causal head come first. vectors: rows are
// aligned to 16 bytes; wide: those of the gradients are, which are whole vectors.
template <class S>
__global__ void __launch_bounds__(attention_float_threads, 2)
    attention_gradient_float_kernel(const __grid_constant__ tc_attention_backward_args a, const __grid_constant__ Numbers<float> numbers,
                                    const __grid_constant__ QueryNumbers<float> of_queries, const __grid_constant__ Wanted wanted,
                                    const __grid_constant__ Wanted second, bool vectors, bool wide)
{
    constexpr int n = S::n, size = S::size;
    using Places = Layout<S>;
    TC_DYNAMIC_SHARED(float, shared);
    const tc_attention_problem &p = a.problem;
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes, D = static_cast<int>(p.D), Dv = static_cast<int>(p.Dv);
    WarpPlace &self = reinterpret_cast<WarpPlace *>(shared + Places::places)[warp];
    float *const weights = shared + Places::weights + warp * Places::warp_weights;
    const int query_heads = S::queries ? 1 : static_cast<int>(static_cast<uint32_t>(p.H) / static_cast<uint32_t>(p.Hk));
    int begin, end;
    {
        BlockPlace place;
        const auto take = [&](int64_t count) { return static_cast<int>(place.take(count)); }; // they fit, as grids do
        const int tiles = static_cast<int>(divide_up(wanted.rows, S::rows)), number = take(tiles);
        const int first = (S::queries ? tiles - 1 - number : number) * S::rows;
        const int share = take(wanted.shares), own_head = take(wanted.heads), b = static_cast<int>(place.rest);
        const BackwardHead<float> backward(a, numbers, of_queries.delta, b, own_head * query_heads);
        const Head<float> &head = backward.head;
        const int rows = static_cast<int>(S::queries ? head.Tq : head.Tk), own = first + warp * S::warp_rows;
        if (first >= rows) return; // a packed sequence that is shorter than the longest
        const bool changes = changes_scores(head) || a.dmap || (!S::queries && p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM);
        const bool always = changes_scores(head) || a.dmap;
        const Reach block(p, head, S(), first, S::rows, always);
        if (lane_in_warp() == 0)
            self = {block,
                    Reach(p, head, S(), own, S::warp_rows, always),
                    b,
                    own_head,
                    share,
                    own,
                    rows,
                    static_cast<int>(head.Tq),
                    Bounds(p, head),
                    changes};
        begin = block.some, end = block.some_end;
        copy_rows<S::rows, size, S::threads>(shared, (S::queries ? head.q : head.k).at(first, 0), rows - first, D, vectors);
        copy_rows<S::rows, size, S::threads>(shared + Places::own, (S::queries ? backward.dvalues : head.v).at(first, 0), rows - first, Dv,
                                             vectors);
        if (S::queries)
            copy_numbers<S::rows, S::threads>(shared + Places::numbers, a, of_queries, head.statistics(p, b, own_head) + first,
                                              rows - first);
    }
    copy_async_commit();
    __syncwarp();

    const float *const x = shared + warp * Places::warp_own, *const dx = x + Places::own;
    const float *const y = shared + Places::y, *const dy = shared + Places::dy, *const of_rows = shared + Places::numbers;
    RowSums<n, size> sums[S::results]; // dq, or dk and dv
    TC_UNROLL
    for (auto &gradient : sums) clear_rows(gradient);
    TC_ROLLED
    for (int h = self.own_head * query_heads, heads = 0; heads < query_heads; heads++, h++) {
        TC_ROLLED
        for (int other = (begin / tile_others + self.share) * tile_others; other < end;
             other += static_cast<int>(wanted.shares) * tile_others) {
            __syncthreads(); // everybody is done with the tile before
            load_tile<S>(a, numbers, of_queries, self, shared, h, other, vectors);
            const bool sees = !self.own.none(other);
            const uint32_t dropped = sees && numbers.drops ? dropped_pairs<S>(p, numbers, self, h, other) : 0;
            copy_async_wait<0>();
            // Only a pair that is hidden has to be kept from what is not finite.
            const bool infinite =
                __syncthreads_or(!self.block.whole(other) && (copied_infinite<tile_others, size, S::threads>(y) ||
                                                              (!S::queries && copied_infinite<tile_others, size, S::threads>(dy))));
            if (!sees) continue;
            Pairs<n> weight, dscore; // at first the products
            multiply_rows<n, size>(weight, x, y, D);
            multiply_rows<n, size>(dscore, dx, dy, Dv);
            Marks marks;
            if (self.changes && !self.own.whole(other)) {
                TC_UNROLL
                for (int half = 0; half < 2; half++) {
                    constexpr int pairs = n / 2 * own_others;
                    TC_UNROLL
                    for (int i = 0; i < pairs; i++) {
                        weights[i * warp_lanes + lane_in_warp()] = weight[half * n / 2 + i / own_others][i % own_others];
                        weights[(pairs + i) * warp_lanes + lane_in_warp()] = dscore[half * n / 2 + i / own_others][i % own_others];
                    }
                    const Marks found = finish_pairs<S>(a, numbers, of_queries.delta, self, h, weights, other, dropped, half);
                    marks = {marks.hidden | found.hidden, marks.unreached | found.unreached};
                    TC_UNROLL
                    for (int i = 0; i < pairs; i++) {
                        weight[half * n / 2 + i / own_others][i % own_others] = weights[i * warp_lanes + lane_in_warp()];
                        dscore[half * n / 2 + i / own_others][i % own_others] = weights[(pairs + i) * warp_lanes + lane_in_warp()];
                    }
                }
            } else {
                const bool is_cut = !self.own.whole(other);
                const int mine = self.first + lane_row(), theirs = other + lane_column(), queries = self.queries - theirs;
                const Cut cut(self.bounds, S::queries ? mine : theirs, S::queries ? theirs : mine);
                TC_UNROLL
                for (int i = 0; i < n; i++) TC_UNROLL
                for (int j = 0; j < own_others; j++) {
                    const int of_query = S::queries ? warp * S::warp_rows + lane_row_of(i) : lane_other_of(j);
                    const float shift = of_rows[of_query], share = of_rows[S::numbered + of_query],
                                delta = of_rows[2 * S::numbered + of_query];
                    float own = exp2_approximate((weight[i][j] * numbers.scale - shift) * log2_e) * share;
                    const bool is_seen = S::queries ? cut.sees(4 * i, 8 * j) : cut.sees(8 * j, 4 * i) && 8 * j < queries;
                    const bool is_hidden = is_cut && !is_seen;
                    const bool is_dropped = in_pairs(dropped, i, j);
                    const float kept = is_dropped ? 0.0f : numbers.kept;
                    const float gradient = own * ((numbers.drops ? dscore[i][j] * kept : dscore[i][j]) - delta);
                    dscore[i][j] = is_hidden ? 0.0f : gradient;
                    weight[i][j] = is_hidden ? 0.0f : numbers.drops ? own * kept : own;
                    marks.hidden |= static_cast<uint32_t>(is_hidden) << (i * own_others + j);
                }
                marks.unreached = marks.hidden;
            }
            const auto add = [&](RowSums<n, size> &sum, Pairs<n> &factors, uint32_t hidden, const float *tile) {
                if (infinite) {
                    TC_UNROLL
                    for (int i = 0; i < n; i++) TC_UNROLL
                    for (int j = 0; j < own_others; j++)
                        if (in_pairs(hidden, i, j)) factors[i][j] = float_of_bits(hidden_weight);
                }
                __syncwarp(); // those before these have been read
                put_weights(weights, factors);
                __syncwarp();
                if (infinite)
                    weigh_seen<n, size>(sum, weights, tile, tile_others);
                else
                    weigh_tile<n, size>(sum, weights, tile, tile_others);
            };
            if (!S::queries) add(sums[S::results - 1], weight, marks.unreached, dy);
            add(sums[0], dscore, marks.hidden, y);
        }
    }
    copy_async_wait<0>(); // of a block without a tile
    save<S>(a, wanted, self, sums[0], numbers.scale, wide);
    if (!S::queries) save<S>(a, second, self, sums[S::results - 1], 1.0f, wide);
}

template <class S>
int launch_shape(const tc_attention_backward_args &a, const Wanted &first, const Wanted &second, const QueryNumbers<float> &of_queries,
                 void *stream)
{
    static_assert(Layout<S>::bytes <= (S::size > 64 ? TC_ATTENTION_LARGE_BLOCK : 99 * 1024), "as GPUs have from sm_80 on, or large");
    const tc_attention_problem &p = a.problem;
    const int64_t count = p.B * first.heads * divide_up(first.rows, S::rows) * first.shares;
    const Launch grid(blocks(count), dim3(S::threads), Layout<S>::bytes, stream);
    const bool vectors = is_aligned(p.q, 4) && is_aligned(p.k, 4) && is_aligned(p.v, 4) && is_aligned(a.dvalues, 4);
    const auto is_wide = [&](const Wanted &of) { return is_aligned(result_of(a, of.gradient), 4) && of.width % 4 == 0; };
    return launch<attention_gradient_float_kernel<S>>(grid, a, numbers_of<float>(p), of_queries, first, second, vectors,
                                                      is_wide(first) && is_wide(second));
}

} // namespace

int tc::attention_float_backward(const tc_attention_backward_args &a, const Wanted &first, const Wanted &second,
                                 const QueryNumbers<float> &of_queries, void *stream)
{
    if (!tc_attention_fits_float(&a.problem)) return cudaErrorInvalidValue;
    const auto launch_it = [&](auto shape) { return launch_shape<decltype(shape)>(a, first, second, of_queries, stream); };
    const bool small = a.problem.D <= 64 && a.problem.Dv <= 64, few = first.rows <= 32;
    if (first.gradient == Gradient::query) {
        if (!small) return launch_it(Shape<true, 128, 4, 4>());
        return few ? launch_it(Shape<true, 64, 8, 1>()) : launch_it(Shape<true, 64, 8, 4>());
    }
    if (!small) return launch_it(Shape<false, 128, 4, 4>());
    return few ? launch_it(Shape<false, 64, 4, 2>()) : launch_it(Shape<false, 64, 4, 4>());
}
