// attention_backward_mma.cu: attention's gradients on tensor cores, for halves: dq by one kernel and dk with dv by another, each of which
// computes the scores anew, so that a block adds up all terms of its rows in order (Dao 2023 does it by one kernel, and adds dq
// atomically).
//
// A warp has 16 rows of its own, queries or keys, whose gradients stay in its registers; tiles of 32 of the others come through shared
// memory. As in the forward, a tile that no row of a warp sees is skipped, and one that all see pays for no mask, bias, soft cap or
// dropout; of all others each pair goes through BackwardHead::pair(), as in the plain kernel.
#include "attention_backward_mma.cuh"

namespace
{

using namespace tc;

constexpr int backward_threads = 128;
constexpr int block_rows = TC_ATTENTION_MMA_OWN, others = TC_ATTENTION_MMA_OTHERS;
static_assert(block_rows == backward_threads / warp_lanes * warp_rows, "16 rows of a warp");

// What a kernel is compiled for: the block's own rows are queries, for dq, or keys, for dk and dv; D and Dv are at most `size`.
template <bool queries_, int size_> struct Shape {
    static constexpr bool queries = queries_, whole_heads = false;
    static constexpr int size = size_, others = TC_ATTENTION_MMA_OTHERS;
    static constexpr int results = queries ? 1 : 2;
    static constexpr bool keeps_own = queries;        // in registers
    static constexpr int blocks = size <= 64 ? 3 : 2; // of a multiprocessor, which their registers allow
};

// Of `rows` own rows from `first` on: they have no pair with the others outside [some, some_end), and with all of [all, all_end) pairs
// whose scores nothing changes.
struct Reach {
    int some, some_end, all, all_end;

    template <class S, class T>
    __device__ __forceinline__ Reach(const tc_attention_backward_args &a, const Head<T> &head, S, int64_t first, int rows)
        : some(0), some_end(0), all(0), all_end(0)
    {
        const tc_attention_problem &p = a.problem;
        const int64_t own = S::queries ? head.Tq : head.Tk, end = first + rows < own ? first + rows : own;
        if (first >= own) return;
        const bool changes = head.mask || head.additive[0] || head.additive[1] || head.numbers.cap > 0 || head.numbers.drops || a.dmap;
        if (S::queries) {
            set(head.first_key(p, first), head.end_key(p, first, rows));
            if (!changes) set_all(head.first_key(p, end - 1), head.end_key(p, first, 1));
        } else {
            const bool all_queries = p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM; // empty rows reach every value
            if (all_queries) set(0, head.Tq);
            if (!all_queries && first < head.keys) set(head.first_query(p, first), head.end_query(p, first, rows));
            if (!changes && end <= head.keys) set_all(head.first_query(p, end - 1), head.end_query(p, first, 1));
        }
    }
    __device__ __forceinline__ bool none(int other) const { return other + others <= some || other >= some_end; }
    __device__ __forceinline__ bool whole(int other) const { return other >= all && other + others <= all_end; }

  private:
    __device__ __forceinline__ void set(int64_t from, int64_t to) { some = static_cast<int>(from), some_end = static_cast<int>(to); }
    __device__ __forceinline__ void set_all(int64_t from, int64_t to) { all = static_cast<int>(from), all_end = static_cast<int>(to); }
};

// What a warp knows of itself and of its block, in shared memory: the hot loop needs none of it, and registers are few.
struct WarpPlace {
    Reach block, own;
    int b, own_head, share, first, rows, begin; // first: its first row; rows: that there are; begin: of the others, for the block
};

// Shared memory, in bytes: the own rows, x (q or k) and dx (dvalues or v); two stages of the others, y (k or q), dy (v or dvalues) and the
// numbers of their queries; for each warp its products, for BackwardHead::pair(), and its WarpPlace.
template <class S, class T> struct Stages {
    static constexpr int own = block_rows * S::size * 2, warp_own = warp_rows * S::size * 2;
    static constexpr int tile = others * S::size * 2, stage = 2 * tile; // tiles are a multiple of 256 bytes
    static constexpr int first_stage = 2 * own, first_number = first_stage + 2 * stage, number_bytes = S::queries ? 0 : 3 * others * 4;
    static constexpr int pairs = first_number + 2 * number_bytes, pair_bytes = 2 * warp_rows * others * 4;
    static constexpr int places = pairs + backward_threads / warp_lanes * pair_bytes;
    static constexpr size_t bytes = places + backward_threads / warp_lanes * sizeof(WarpPlace);
    unsigned char *const begin;

    __device__ __forceinline__ T *y(int number) const { return reinterpret_cast<T *>(begin + first_stage + number * stage); }
    __device__ __forceinline__ T *dy(int number) const { return y(number) + others * S::size; }
    // shift, share and delta of the tile's queries
    __device__ __forceinline__ float *numbers(int number) const
    {
        return reinterpret_cast<float *>(begin + first_number + number * number_bytes);
    }
    __device__ __forceinline__ float *products(int warp) const { return reinterpret_cast<float *>(begin + pairs + warp * pair_bytes); }
    __device__ __forceinline__ WarpPlace &place(int warp) const { return reinterpret_cast<WarpPlace *>(begin + places)[warp]; }
};

// A lane's numbers of queries: of its own two rows, or of two columns of a fragment.
struct TwoQueries {
    Vector<float, 2> shift, share, delta;
};

template <class S, class T> struct Warp : WarpPairs<S, T> {
    static constexpr int size = S::size;
    WarpSums<size> sums[S::results]; // dq, or dk and dv
    TwoQueries own_queries;          // S::queries only

    // The weights and the gradients of scores that nothing changes. numbers: of the tile's queries.
    __device__ __forceinline__ void weigh(const Products<others> &product, const Products<others> &dproduct, float scale,
                                          const float *numbers)
    {
        TC_UNROLL
        for (int n = 0; n < others / 8; n++) {
            TwoQueries of = own_queries;
            if (!S::queries) {
                const float *const at = numbers + n * 8 + lane_pair();
                of = {load_vector<2>(at), load_vector<2>(at + others), load_vector<2>(at + 2 * others)};
            }
            float weight[4], dscore[4];
            TC_UNROLL
            for (int i = 0; i < 4; i++) {
                const int query = S::queries ? i / 2 : i % 2;
                weight[i] = exp2_approximate(real_fma(product[n][i], scale, of.shift.at[query])) * of.share.at[query];
                dscore[i] = weight[i] * (dproduct[n][i] - of.delta.at[query]);
            }
            this->pack_fragment(n, weight, dscore);
        }
    }
};

// A thread's copies of numbers of queries: thread 32 n + i copies number n of query i of each tile.
struct NumberCopies {
    const float *from; // of the next tile
    bool copies;

    // row: of the tile's first query, among all.
    __device__ __forceinline__ NumberCopies(const QueryNumbers<float> &of_queries, int64_t row)
    {
        const int number = static_cast<int>(threadIdx.x) / others;
        from = (number == 0 ? of_queries.shift : number == 1 ? of_queries.share : of_queries.delta) + row + threadIdx.x % others;
        copies = number < 3;
    }
    __device__ __forceinline__ void load(float *to, int queries, int rows_on = 0)
    {
        if (copies) copy_async<4>(to + threadIdx.x, from, static_cast<int>(threadIdx.x % others) < queries ? 4 : 0);
        from += rows_on;
    }
};

// Copies a tile of the others. Not inlined, for the sake of registers: the hot loop copies by itself.
template <class S, class T>
__device__ __noinline__ void load_tile(const tc_attention_backward_args &a, const Numbers<float> &numbers,
                                       const QueryNumbers<float> &of_queries, unsigned char *begin, const WarpPlace &self, int h, int other,
                                       int stage, bool vectors)
{
    const Stages<S, T> shared = {begin};
    const tc_attention_problem &p = a.problem;
    const BackwardHead<T> backward(a, numbers, of_queries.delta, self.b, h);
    const Head<T> &head = backward.head;
    const int rows = self.block.some_end - other;
    if (!S::queries) NumberCopies(of_queries, head.statistics(p, self.b, h) + other).load(shared.numbers(stage), rows);
    load_some<others, S::size, backward_threads>(shared.y(stage), (S::queries ? head.k : head.q).at(other, 0), rows, p.D, vectors);
    load_some<others, S::size, backward_threads>(shared.dy(stage), (S::queries ? head.v : backward.dvalues).at(other, 0), rows, p.Dv,
                                                 vectors);
    copy_async_commit();
}

// Copies a warp's own rows of both operands, and waits for them.
template <class S, class T>
__device__ __noinline__ void load_own(const tc_attention_backward_args &a, const Numbers<float> &numbers, unsigned char *begin,
                                      const WarpPlace &self, int h, bool vectors)
{
    using Layout = Stages<S, T>;
    const tc_attention_problem &p = a.problem;
    const BackwardHead<T> backward(a, numbers, nullptr, self.b, h);
    const Head<T> &head = backward.head;
    unsigned char *const x = begin + static_cast<int>(threadIdx.x) / warp_lanes * Layout::warp_own;
    const int rows = self.rows - self.first;
    load_some<warp_rows, S::size, warp_lanes>(reinterpret_cast<T *>(x), (S::queries ? head.q : head.k).at(self.first, 0), rows, p.D,
                                              vectors);
    load_some<warp_rows, S::size, warp_lanes>(reinterpret_cast<T *>(x + Layout::own),
                                              (S::queries ? backward.dvalues : head.v).at(self.first, 0), rows, p.Dv, vectors);
    copy_async_commit();
    copy_async_wait<0>();
    __syncwarp();
}

// Has what is weighed of a tile of the others anything that is not finite, as far as the thread copies it?
template <class S, class T> __device__ __forceinline__ bool has_infinite(const Stages<S, T> &shared, int stage)
{
    return tc::has_infinite<others, S::size, backward_threads>(shared.y(stage)) ||
           (!S::queries && tc::has_infinite<others, S::size, backward_threads>(shared.dy(stage)));
}

// Saves a gradient of the warp's rows, or its share, in whose place in shared memory it is put together.
template <class S, class T>
__device__ __forceinline__ void save(const tc_attention_backward_args &a, const Wanted &of, const WarpPlace &self, unsigned char *own,
                                     const WarpSums<S::size> &sums, float factor, bool wide)
{
    const tc_attention_operand &result = result_of(a, of.gradient);
    if (!result.data) return;
    if (of.shares == 1) {
        T *const out = Rows(a.problem, self.b).template begin<T>(result, self.b, self.own_head) + self.first * result.row;
        save_rows<S::size>(reinterpret_cast<T *>(own), sums, factor, out, result.row, self.rows - self.first, static_cast<int>(of.width),
                           wide);
        return;
    }
    TC_UNROLL
    for (int r = 0; r < 2; r++) {
        const int row = self.first + lane_group() + 8 * r;
        if (row >= self.rows) continue;
        float *const part = static_cast<float *>(of.partial) + of.row(self.share, a.problem.B, self.b, self.own_head, row) * of.width;
        TC_UNROLL
        for (int d = 0; d < S::size / 8; d++) TC_UNROLL
        for (int i = 0; i < 2; i++) {
            const int at = d * 8 + lane_pair() + i;
            if (at < of.width) part[at] = sums[d][2 * r + i] * factor;
        }
    }
}

// Block: own rows of one head, and every shares-th tile of the others. The longest rows of a causal head come first. vectors: rows are
// aligned to 16 bytes; wide: those of the gradients.
template <class S, class T>
__global__ void __launch_bounds__(backward_threads, S::blocks)
    attention_backward_mma_kernel(const __grid_constant__ tc_attention_backward_args a, const __grid_constant__ Numbers<float> numbers,
                                  const __grid_constant__ QueryNumbers<float> of_queries, const __grid_constant__ Wanted wanted,
                                  const __grid_constant__ Wanted second, bool vectors, bool wide)
{
    constexpr int size = S::size;
    TC_DYNAMIC_SHARED(unsigned char, dynamic);
    using Layout = Stages<S, T>;
    const Layout shared = {dynamic};
    const tc_attention_problem &p = a.problem;
    BlockPlace place;
    const auto take = [&](int64_t count) { return static_cast<int>(place.take(count)); }; // they fit, as grids do
    const int tiles = static_cast<int>(divide_up(wanted.rows, block_rows)), number = take(tiles);
    const int first = (S::queries ? tiles - 1 - number : number) * block_rows;
    const int share = take(wanted.shares), own_head = take(wanted.heads), b = static_cast<int>(place.rest);
    const int query_heads = S::queries ? 1 : static_cast<int>(static_cast<uint32_t>(p.H) / static_cast<uint32_t>(p.Hk));
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes, step = static_cast<int>(wanted.shares) * others;
    WarpPlace &self = shared.place(warp);
    {
        const Head<T> head(p, numbers, b, own_head * query_heads);
        const int rows = static_cast<int>(S::queries ? head.Tq : head.Tk), own = first + warp * warp_rows;
        if (first >= rows) return; // a packed sequence that is shorter than the longest
        const Reach block(a, head, S(), first, block_rows);
        const int begin = (block.some / others + share) * others;
        if (lane_of() == 0) self = {block, Reach(a, head, S(), own, warp_rows), b, own_head, share, own, rows, begin};
    }
    __syncwarp();
    load_own<S, T>(a, numbers, dynamic, self, own_head * query_heads, vectors);
    OwnRows<size, S::keeps_own> left(dynamic, warp * Layout::warp_own);
    OwnRows<size, S::keeps_own> dleft(dynamic + Layout::own, warp * Layout::warp_own);

    Warp<S, T> mine;
    TC_UNROLL
    for (auto &sums : mine.sums) clear_sums(sums);
    if (S::queries) {
        const int64_t row = Rows(p, b).statistics(p, b, own_head);
        TC_UNROLL
        for (int r = 0; r < 2; r++) {
            const int query = self.first + lane_group() + 8 * r;
            const bool is_there = query < self.rows;
            mine.own_queries.shift.at[r] = is_there ? of_queries.shift[row + query] : 0.0f;
            mine.own_queries.share.at[r] = is_there ? of_queries.share[row + query] : 0.0f;
            mine.own_queries.delta.at[r] = is_there ? of_queries.delta[row + query] : 0.0f;
        }
    }

    MatrixRows<size> beside(Layout::first_stage, true), below(Layout::first_stage, false); // of y; those of dy are a tile away
    const auto stage = [&] { return beside.row >= Layout::first_stage + Layout::stage ? 1 : 0; };
    const auto change_stage = [&] {
        const int by = stage() ? -Layout::stage : Layout::stage;
        beside.move(by);
        below.move(by);
    };
    const auto multiply = [&](Products<others> &product, Products<others> &dproduct) {
        multiply_rows<others>(product, left, dynamic, beside, T());
        multiply_rows<others>(dproduct, dleft, dynamic + Layout::tile, beside, T());
    };
    const auto add = [&] {
        if (!S::queries) weigh_tile<others, size>(mine.sums[S::results - 1], mine.weights, dynamic + Layout::tile, below, T());
        weigh_tile<others, size>(mine.sums[0], mine.dscores, dynamic, below, T());
    };
    // The hot loop is over tiles that all rows of the block see, each followed by a whole one.
    const bool is_whole = vectors && p.D == size && p.Dv == size;
    const int last = self.block.some_end - step, hot_end = is_whole ? (self.block.all_end < last ? self.block.all_end : last) - others : -1;
    TC_ROLLED
    for (int h = own_head * query_heads, end = h + query_heads; h < end; h++) {
        int other = self.begin;
        if (other < self.block.some_end) load_tile<S, T>(a, numbers, of_queries, dynamic, self, h, other, stage(), vectors);
        TC_ROLLED
        for (; other < self.block.some_end; other += step) {
            if (other >= self.block.all && other <= hot_end) {
                const BackwardHead<T> backward(a, numbers, of_queries.delta, self.b, h);
                const Head<T> &of = backward.head;
                const int next = other + step;
                WholeRows<others, size, backward_threads, T> next_y((S::queries ? of.k : of.q).at(next, 0), threadIdx.x);
                WholeRows<others, size, backward_threads, T> next_dy((S::queries ? of.v : backward.dvalues).at(next, 0), threadIdx.x);
                NumberCopies next_numbers(of_queries, of.statistics(p, self.b, h) + next);
                TC_ROLLED
                for (; other <= hot_end; other += step) {
                    copy_async_wait<0>();
                    __syncthreads(); // also: everybody is done with the other stage
                    next_y.load(shared.y(stage() ^ 1), step);
                    next_dy.load(shared.dy(stage() ^ 1), step);
                    if (!S::queries) next_numbers.load(shared.numbers(stage() ^ 1), others, step);
                    copy_async_commit();
                    Products<others> product, dproduct;
                    multiply(product, dproduct);
                    mine.weigh(product, dproduct, numbers.scale * log2_e, shared.numbers(stage()));
                    add();
                    change_stage();
                }
            }
            copy_async_wait<0>();
            // Only a pair that is hidden has to be kept from what is not finite.
            const bool infinite = __syncthreads_or(!self.block.whole(other) && has_infinite<S, T>(shared, stage()));
            if (other + step < self.block.some_end)
                load_tile<S, T>(a, numbers, of_queries, dynamic, self, h, other + step, stage() ^ 1, vectors);
            bool sees = !self.own.none(other);
            if (sees) {
                Products<others> product, dproduct;
                multiply(product, dproduct);
                Marks marks;
                if (self.own.whole(other)) {
                    mine.weigh(product, dproduct, numbers.scale * log2_e, shared.numbers(stage()));
                } else {
                    float *const finished = shared.products(warp);
                    TC_UNROLL
                    for (int e = 0; e < own_pairs<others>; e++) {
                        finished[e * warp_lanes + lane_of()] = product[e / 4][e % 4];
                        finished[(own_pairs<others> + e) * warp_lanes + lane_of()] = dproduct[e / 4][e % 4];
                    }
                    marks = finish_pairs<S, T>(a, numbers, of_queries.delta, self.b, h, self.first, other, finished);
                    mine.take(finished + lane_of(), warp_lanes);
                    sees = __any_sync(all_lanes, marks.unreached != all_hidden<others>);
                }
                if (sees && infinite) {
                    uint32_t *const weights = reinterpret_cast<uint32_t *>(shared.products(warp));
                    add_infinite<others, size>(mine.sums[0], mine.dscores, marks.hidden, weights, shared.y(stage()));
                    if (!S::queries)
                        add_infinite<others, size>(mine.sums[S::results - 1], mine.weights, marks.unreached, weights, shared.dy(stage()));
                }
            }
            if (infinite) {
                __syncthreads();
                clear_infinite<others, size, backward_threads>(shared.y(stage()));
                if (!S::queries) clear_infinite<others, size, backward_threads>(shared.dy(stage()));
                __syncthreads();
            }
            if (sees) add();
            change_stage();
        }
    }
    unsigned char *const own = dynamic + warp * Layout::warp_own;
    save<S, T>(a, wanted, self, own, mine.sums[0], numbers.scale, wide);
    if (!S::queries) save<S, T>(a, second, self, own, mine.sums[S::results - 1], 1.0f, wide);
}

template <class S, class T>
int launch_shape(const tc_attention_backward_args &a, const Wanted &first, const Wanted &second, const QueryNumbers<float> &of_queries,
                 void *stream)
{
    static_assert(Stages<S, T>::bytes <= 99 * 1024, "as all GPUs have");
    const tc_attention_problem &p = a.problem;
    const int64_t count = p.B * first.heads * divide_up(first.rows, block_rows) * first.shares;
    const Launch grid(blocks(count), dim3(backward_threads), Stages<S, T>::bytes, stream);
    const bool vectors = is_aligned(p.q) && is_aligned(p.k) && is_aligned(p.v) && is_aligned(a.dvalues);
    return launch<attention_backward_mma_kernel<S, T>>(grid, a, numbers_of<T>(p), of_queries, first, second, vectors, has_wide_rows(a));
}

} // namespace

namespace tc
{

template <class T>
int attention_mma_backward(const tc_attention_backward_args &a, const Wanted &first, const Wanted &second,
                           const QueryNumbers<float> &of_queries, void *stream)
{
    const tc_attention_problem &p = a.problem;
    if (!tc_attention_backward_fits_mma(&p)) return cudaErrorInvalidValue;
    const int64_t width = p.D > p.Dv ? p.D : p.Dv;
    const auto run = [&](auto size) {
        constexpr int features = decltype(size)::value;
        if (first.gradient == Gradient::query) return launch_shape<Shape<true, features>, T>(a, first, second, of_queries, stream);
        return launch_shape<Shape<false, features>, T>(a, first, second, of_queries, stream);
    };
    if (width <= 64) return run(Constant<64>());
    if (width <= 96) return run(Constant<96>());
    return run(Constant<128>());
}

#define INSTANTIATE(T)                                                                                                                     \
    template int attention_mma_backward<T>(const tc_attention_backward_args &, const Wanted &, const Wanted &,                             \
                                           const QueryNumbers<float> &, void *);
INSTANTIATE(float16)
INSTANTIATE(bfloat16)

} // namespace tc
