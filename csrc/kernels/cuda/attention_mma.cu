// attention_mma.cu: attention's forward on tensor cores, for halves, as in flash-attention 2 (Dao 2023): a warp has 16 queries, whose
// scores, weights and values stay in its registers, and the block's keys and values come through shared memory, 64 or 32 at a time.
//
// A tile of keys that no row of a warp sees is skipped; one that all rows see, without mask, bias, soft cap and dropout, pays for none of
// them; of all others each score goes through finish_score(), as in the plain kernel.
#include "attention_forward.cuh"
#include "attention_mma.cuh"

namespace
{

using namespace tc;

constexpr int most_threads = 256;

// What a kernel is compiled for: D and Dv are at most `size`.
template <int size_, int warps_, int keys_> struct Shape {
    static constexpr int size = size_, warps = warps_, keys = keys_; // keys: of a tile
    // Tiles of 16 keys are for sequences that have no more: what would not be a tile of 64 that all see is not one of 16, for the same
    // bits.
    static constexpr int seen_keys = keys < 32 ? 64 : keys;
    static constexpr int threads = warps * warp_lanes, queries = warps * warp_rows;
    static constexpr int scores = own_pairs<keys>;     // that a lane has of a tile; bits of Marks
    static constexpr bool keeps_queries = size <= 128; // in registers; beside the sums of wider heads there is no room
};
// Number i of the scores in the first (r 0) or second of a lane's rows.
__device__ __forceinline__ int own_score(int r, int i) { return i / 2 * 4 + r * 2 + i % 2; }

// The rows of a tile. They are queries of one head, or of `group` heads from h on, which read the same keys: row by row the first query of
// each head, then the second.
struct Group {
    int h, group;

    __device__ __forceinline__ int query(int row) const { return group == 1 ? row : static_cast<int>(unsigned(row) / unsigned(group)); }
    __device__ __forceinline__ int head(int row) const { return group == 1 ? h : h + static_cast<int>(unsigned(row) % unsigned(group)); }
};
// Those of q.
template <class T> struct GroupRows {
    const T *data; // of the first head
    int64_t across, head;
    Group group;
    int first;

    __device__ __forceinline__ const T *row(int i) const
    {
        return data + group.query(first + i) * across + (group.head(first + i) - group.h) * head;
    }
};

// Of `rows` rows from `first` on: they see no key outside [some, some_end), and all of [all, all_end) without any change of a score.
struct Reach {
    int some, some_end, all, all_end;

    template <class T>
    __device__ __forceinline__ Reach(const tc_attention_problem &p, const Head<T> &head, const Group &group, int first_row, int rows)
        : some(0), some_end(0), all(0), all_end(0)
    {
        const int64_t first = group.query(first_row), end = group.query(first_row + rows - 1) + 1;
        if (first >= head.Tq) return;
        const int64_t last = (end < head.Tq ? end : head.Tq) - 1;
        some = static_cast<int>(head.first_key(p, first));
        some_end = static_cast<int>(head.end_key(p, last, 1));
        const bool changes = head.mask || head.additive[0] || head.additive[1] || head.numbers.cap > 0 || head.numbers.drops;
        if (changes || !(head.numbers.scale > 0)) return;
        all = static_cast<int>(head.first_key(p, last));
        all_end = static_cast<int>(head.end_key(p, first, 1));
    }
    __device__ __forceinline__ bool sees_none(int key, int keys) const { return key + keys <= some || key >= some_end; }
    __device__ __forceinline__ bool sees_all(int key, int keys) const { return key >= all && key + keys <= all_end; }
};

// What a warp knows of itself and of its block, in shared memory: the hot loop needs none of it, and registers are few.
struct WarpPlace {
    Reach block, own;
    Group group;
    int b, segment, first, end; // first: its first row; end: of the block's keys
};
constexpr int place_bytes = sizeof(WarpPlace);

// Shared memory, in bytes: two stages of keys and values, and for each warp its queries and its WarpPlace. Scores for finish_scores() take
// the place of queries that are in registers, otherwise that of the stage's keys.
template <class S, class T> struct Stages {
    static constexpr int tile = S::keys * S::size * 2, stage = 2 * tile; // tiles are a multiple of 256 bytes
    static constexpr int query_bytes = warp_rows * S::size * 2, score_bytes = warp_rows * S::keys * 4;
    static constexpr int own_bytes = S::keeps_queries && score_bytes > query_bytes ? score_bytes : query_bytes;
    static constexpr size_t bytes = static_cast<size_t>(2 * stage + S::warps * (own_bytes + place_bytes));
    static_assert(S::keeps_queries || S::warps * score_bytes <= tile, "scores take the place of the keys");
    unsigned char *const begin;

    __device__ __forceinline__ T *keys(int number) const { return reinterpret_cast<T *>(begin + number * stage); }
    __device__ __forceinline__ T *values(int number) const { return reinterpret_cast<T *>(begin + number * stage + tile); }
    __device__ __forceinline__ static int queries(int warp) { return 2 * stage + warp * own_bytes; }
    __device__ __forceinline__ float *scores(int warp, int number) const
    {
        return reinterpret_cast<float *>(begin + (S::keeps_queries ? queries(warp) : number * stage + warp * score_bytes));
    }
    __device__ __forceinline__ WarpPlace &place(int warp) const
    {
        return *reinterpret_cast<WarpPlace *>(begin + queries(S::warps) + warp * place_bytes);
    }
};

// Of a lane's scores, one bit each: the pair may not be attended to; its weight is dropped.
struct Marks {
    uint32_t hidden = 0, dropped = 0;
};
template <class S> constexpr uint32_t all_hidden = 0xffffffffu >> (32 - S::scores);

// Finishes the scores of a warp's tile, each lane its own. Not inlined: it is long, and needs none of the caller's registers.
template <class S, class T>
__device__ __noinline__ Marks finish_scores(const tc_attention_problem &p, const Numbers<float> &numbers, const WarpPlace &self,
                                            float *scores, int key)
{
    const Draw draw = numbers.drops ? draw_of(p.seed, p.call, p.drawn) : Draw{};
    const uint64_t row_length = static_cast<uint64_t>(divide_up(p.Tk, TC_PHILOX_GROUP) * TC_PHILOX_GROUP);
    Marks marks;
    TC_ROLLED
    for (int r = 0; r < 2; r++) {
        const int row = self.first + row_of(2 * r), query = self.group.query(row);
        const Head<T> head(p, numbers, self.b, self.group.head(row));
        TC_ROLLED
        for (int i = 0; i < S::scores / 2; i++) {
            const int e = own_score(r, i);
            float &score = scores[e * warp_lanes + lane_of()];
            const Score<float> finished = finish_score(p, head, query, key + column_of(e), score);
            score = finished.value;
            marks.hidden |= static_cast<uint32_t>(finished.hidden) << e;
        }
        const uint64_t first = (head.first_row + static_cast<uint64_t>(query)) * row_length;
        TC_ROLLED
        for (int i = 0; numbers.drops && i < 4; i++) { // keys 16 apart are two fragments apart, and share a block of random words
            const int e = own_score(r, i);
            const PhiloxWords words = philox_words(draw.seed, draw.call, first + static_cast<uint64_t>(key + column_of(e)));
            TC_UNROLL
            for (int n = 0; n < S::keys / 16; n++)
                marks.dropped |= static_cast<uint32_t>(word_of(words, key + 16 * n) < numbers.threshold) << (e + 8 * n);
        }
    }
    return marks;
}

// The rows that a lane has a part of, g and g + 8 of the warp's 16.
template <class S> struct WarpRows {
    static constexpr int size = S::size;
    WarpSums<size> values;
    float largest[2], sum[2]; // sum: over the lane's own columns

    __device__ __forceinline__ WarpRows()
    {
        clear_sums(values);
        TC_UNROLL
        for (int r = 0; r < 2; r++) {
            largest[r] = -infinity<float>;
            sum[r] = 0;
        }
    }

    // weights = e^(scale score - largest), where the rows' largest becomes that of these scores too, and all sums are as of it.
    template <class T>
    __device__ __forceinline__ void weigh(Weights<S::keys> &weights, Products<S::keys> &score, float scale, const Marks &marks, T type)
    {
        float shift[2];
        raise(shift, score, scale);
        exponentials(weights, score, scale * log2_e, {-shift[0] * log2_e, -shift[1] * log2_e}, marks, type);
    }
    // The same of finished scores; these may be -9e15, so that the largest is subtracted before anything is scaled.
    template <class T>
    __device__ __forceinline__ void weigh_finished(Weights<S::keys> &weights, Products<S::keys> &score, const Marks &marks, T type)
    {
        float shift[2];
        raise(shift, score, 1.0f);
        TC_UNROLL
        for (auto &fragment : score) TC_UNROLL
        for (int i = 0; i < 4; i++) fragment[i] -= shift[i / 2];
        exponentials(weights, score, log2_e, {0.0f, 0.0f}, marks, type);
    }

  private:
    __device__ __forceinline__ void raise(float (&shift)[2], const Products<S::keys> &score, float scale)
    {
        TC_UNROLL
        for (int r = 0; r < 2; r++) {
            float top = fmaxf(score[0][2 * r], score[0][2 * r + 1]);
            TC_UNROLL
            for (int n = 1; n < S::keys / 8; n++) top = fmaxf(top, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
            top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
            top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
            top = fmaxf(largest[r], top * scale);
            shift[r] = top == -infinity<float> ? 0.0f : top;
            const float shrink = exp2_approximate((largest[r] - shift[r]) * log2_e);
            largest[r] = top;
            sum[r] *= shrink;
            TC_UNROLL
            for (auto &fragment : values) {
                fragment[2 * r] *= shrink;
                fragment[2 * r + 1] *= shrink;
            }
        }
    }
    // 2^(factor score + added), without those that are dropped
    template <class T>
    __device__ __forceinline__ void exponentials(Weights<S::keys> &weights, Products<S::keys> &score, float factor, const float (&added)[2],
                                                 const Marks &marks, T type)
    {
        TC_UNROLL
        for (int n = 0; n < S::keys / 8; n++) {
            TC_UNROLL
            for (int i = 0; i < 4; i++) {
                score[n][i] = exp2_approximate(real_fma(score[n][i], factor, added[i / 2]));
                sum[i / 2] += score[n][i];
                if (marks.dropped >> (n * 4 + i) & 1) score[n][i] = 0;
            }
            TC_UNROLL
            for (int r = 0; r < 2; r++) weights[n / 2][n % 2 * 2 + r] = pack(score[n][2 * r], score[n][2 * r + 1], type);
        }
    }
};

// Where a warp keeps a value of eight rows, in float32, in the place of its queries: rows are turned, so that all banks are written at a
// time.
template <class S> __device__ __forceinline__ int result_at(int row, int column)
{
    const int turned = column + row * 8;
    return row * S::size + turned - (turned < S::size ? 0 : S::size);
}
// Saves the values of row i of these, which is that row of the tile's, or what its segment makes of them.
template <class S, class T>
__device__ __forceinline__ void save_values(const tc_attention_forward_args &a, const Segments<float> &segments, const WarpPlace &self,
                                            const Rows &rows, const float *results, int i, int row)
{
    const int query = self.group.query(row), h = self.group.head(row);
    if (query >= rows.Tq) return;
    T *const out = rows.begin<T>(a.values, self.b, h) + query * a.values.row;
    float *const part = segments.values + segments.row(a.problem, self.segment, self.b, h, query) * a.problem.Dv;
    TC_ROLLED
    for (int d = lane_of(); d < a.problem.Dv; d += warp_lanes) {
        const float value = results[result_at<S>(i, d)];
        if (segments.count > 1)
            part[d] = value;
        else
            narrow(out[d], value);
    }
}

// Copies a tile of keys and one of values. Not inlined, for the sake of registers: the hot loop copies by itself.
template <class S, class T>
__device__ __noinline__ void load_tile(const tc_attention_problem &p, const Numbers<float> &numbers, const WarpPlace &self,
                                       unsigned char *begin, int key, int stage, bool vectors)
{
    const Stages<S, T> shared = {begin};
    const Head<T> head(p, numbers, self.b, self.group.h);
    const auto k = head.k.at(key, 0), v = head.v.at(key, 0);
    const int rows = self.end - key, D = static_cast<int>(p.D), Dv = static_cast<int>(p.Dv);
    if (vectors) {
        load_rows<S::keys, S::size, S::threads, true>(shared.keys(stage), k, rows, D, threadIdx.x);
        load_rows<S::keys, S::size, S::threads, true>(shared.values(stage), v, rows, Dv, threadIdx.x);
        copy_async_commit();
    } else {
        load_rows<S::keys, S::size, S::threads, false>(shared.keys(stage), k, rows, D, threadIdx.x);
        load_rows<S::keys, S::size, S::threads, false>(shared.values(stage), v, rows, Dv, threadIdx.x);
    }
}

// Block: rows of one head or of `group` heads, a warp 16 of them, and all keys or those of a segment. The longest rows of a causal head
// come first. q (B,H,Tq,D), k (B,Hk,Tk,D), v (B,Hk,Tk,Dv), values (B,H,Tq,Dv); shift,sum,lse (B,H,Tq). Packed sequences: see Rows. vectors:
// rows are aligned to 16 bytes.
template <class S, class T>
__global__ void __launch_bounds__(most_threads, 1)
    attention_mma_kernel(const __grid_constant__ tc_attention_forward_args a, const __grid_constant__ Numbers<float> numbers,
                         const __grid_constant__ Segments<float> segments, int group, bool vectors)
{
    constexpr int size = S::size;
    TC_DYNAMIC_SHARED(unsigned char, dynamic);
    const Stages<S, T> shared = {dynamic};
    const tc_attention_problem &p = a.problem;
    BlockPlace place;
    const auto take = [&](int64_t count) { return static_cast<int>(place.take(count)); }; // they fit, as grids do
    const int tiles = static_cast<int>(divide_up(p.Tq * group, S::queries)), first = (tiles - 1 - take(tiles)) * S::queries;
    const int segment = take(segments.count), h = take(p.H / group) * group, b = static_cast<int>(place.rest);
    const Group heads = {h, group};
    const Head<T> head(p, numbers, b, h);
    if (heads.query(first) >= head.Tq) return; // a packed sequence that is shorter than the longest
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
    WarpPlace &self = shared.place(warp);
    const Reach block(p, head, heads, first, S::queries);
    int begin = block.some / S::keys * S::keys, end = block.some_end;
    if (segments.count > 1) {
        const int from = segment * TC_ATTENTION_SEGMENT, to = from + TC_ATTENTION_SEGMENT;
        begin = begin < from ? from : begin;
        end = end < to ? end : to;
    }
    if (lane_of() == 0) {
        const int own = first + warp * warp_rows;
        self = {block, Reach(p, head, heads, own, warp_rows), heads, b, segment, own, end};
    }
    __syncwarp();

    T *const own_queries = reinterpret_cast<T *>(dynamic + shared.queries(warp));
    const GroupRows<T> q = {head.q.data, p.q.row, p.q.head, heads, self.first};
    const int own_rows = static_cast<int>(head.Tq) * group - self.first;
    if (vectors)
        load_rows<warp_rows, size, warp_lanes, true>(own_queries, q, own_rows, static_cast<int>(p.D), threadIdx.x % warp_lanes);
    else
        load_rows<warp_rows, size, warp_lanes, false>(own_queries, q, own_rows, static_cast<int>(p.D), threadIdx.x % warp_lanes);
    copy_async_commit();
    if (begin < self.end) load_tile<S, T>(p, numbers, self, dynamic, begin, 0, vectors);
    copy_async_wait<0>();
    __syncwarp();
    OwnRows<size, S::keeps_queries> queries(dynamic, shared.queries(warp));
    WarpRows<S> rows;
    Products<S::keys> score;
    Weights<S::keys> weights;
    MatrixRows<size> keys(0, true), values(shared.tile, false);
    const auto stage = [&] { return keys.row >= shared.stage ? 1 : 0; };
    const auto change_stage = [&] {
        const int by = stage() ? -shared.stage : shared.stage;
        keys.move(by);
        values.move(by);
    };
    // The hot loop is over tiles that all rows of the block see, each followed by a whole one.
    const bool is_whole = S::seen_keys == S::keys && vectors && p.D == size && p.Dv == size;
    const int last = (self.block.all_end < end - S::keys ? self.block.all_end : end - S::keys) - S::keys;
    const int hot_end = is_whole ? last : -1;
    TC_ROLLED
    for (int key = begin; key < self.end; key += S::keys) {
        if (key >= self.block.all && key <= hot_end) {
            const int next = key + S::keys;
            const Head<T> of(p, numbers, self.b, self.group.h);
            WholeRows<S::keys, size, S::threads, T> next_keys(of.k.at(next, 0), threadIdx.x), next_values(of.v.at(next, 0), threadIdx.x);
            TC_ROLLED
            for (; key <= hot_end; key += S::keys) {
                copy_async_wait<0>();
                __syncthreads(); // also: everybody is done with the other stage
                next_keys.load(shared.keys(stage() ^ 1));
                next_values.load(shared.values(stage() ^ 1));
                copy_async_commit();
                multiply_rows<S::keys>(score, queries, dynamic, keys, T());
                rows.weigh(weights, score, numbers.scale, Marks(), T());
                weigh_tile<S::keys, size>(rows.values, weights, dynamic, values, T());
                change_stage();
            }
        }
        copy_async_wait<0>();
        // Only a pair that is hidden has to be kept from a value that is not finite.
        const bool infinite =
            __syncthreads_or(!self.block.sees_all(key, S::seen_keys) && has_infinite<S::keys, size, S::threads>(shared.values(stage())));
        if (key + S::keys < self.end) load_tile<S, T>(p, numbers, self, dynamic, key + S::keys, stage() ^ 1, vectors);
        bool sees = !self.own.sees_none(key, S::keys);
        if (sees) multiply_rows<S::keys>(score, queries, dynamic, keys, T());
        if (!S::keeps_queries) __syncthreads(); // scores take the place of the keys
        if (sees) {
            Marks marks;
            float *const finished = shared.scores(warp, stage());
            if (self.own.sees_all(key, S::seen_keys)) {
                rows.weigh(weights, score, numbers.scale, marks, T());
            } else {
                TC_UNROLL
                for (int e = 0; e < S::scores; e++) finished[e * warp_lanes + lane_of()] = score[e / 4][e % 4];
                marks = finish_scores<S, T>(p, numbers, self, finished, key);
                TC_UNROLL
                for (int e = 0; e < S::scores; e++) score[e / 4][e % 4] = finished[e * warp_lanes + lane_of()];
                sees = __any_sync(all_lanes, marks.hidden != all_hidden<S>);
                if (sees) rows.weigh_finished(weights, score, marks, T());
            }
            if (sees && infinite)
                add_infinite<S::keys, size>(rows.values, weights, marks.hidden, reinterpret_cast<uint32_t *>(finished),
                                            shared.values(stage()));
        }
        if (infinite) {
            __syncthreads();
            clear_infinite<S::keys, size, S::threads>(shared.values(stage()));
            __syncthreads();
        }
        if (sees) weigh_tile<S::keys, size>(rows.values, weights, dynamic, values, T());
        change_stage();
    }

    const Rows of(p, self.b);
    TC_UNROLL
    for (int r = 0; r < 2; r++) {
        float sum = rows.sum[r];
        sum += __shfl_xor_sync(all_lanes, sum, 1);
        sum += __shfl_xor_sync(all_lanes, sum, 2);
        const int own = self.first + lane_group() + 8 * r, query = heads.query(own), head_of = heads.head(own);
        if (lane_pair() == 0 && query < of.Tq) {
            if (segments.count > 1) {
                const int64_t row = segments.row(p, self.segment, self.b, head_of, query);
                segments.largest[row] = rows.largest[r];
                segments.sum[row] = sum;
            } else {
                save_statistics(a, of.statistics(p, self.b, head_of) + query, rows.largest[r], sum);
            }
        }
        const float kept = numbers.drops ? numbers.kept : 1.0f, share = segments.count > 1 ? 1.0f : share_of(rows.largest[r], sum);
        float *const results = reinterpret_cast<float *>(dynamic + shared.queries(warp));
        __syncwarp();
        TC_UNROLL
        for (int n = 0; n < size / 8; n++)
            store_vector(results + result_at<S>(lane_group(), n * 8 + lane_pair()),
                         Vector<float, 2>{rows.values[n][2 * r] * kept * share, rows.values[n][2 * r + 1] * kept * share});
        __syncwarp();
        TC_ROLLED
        for (int i = 0; i < 8; i++) save_values<S, T>(a, segments, self, of, results, i, self.first + 8 * r + i);
    }
}

// Shared memory of the map's kernel, in bytes: a tile of keys, and for each warp its queries, its scores and its WarpPlace.
template <class S> struct MapTiles {
    static constexpr int tile = S::keys * S::size * 2, query_bytes = warp_rows * S::size * 2, score_bytes = warp_rows * S::keys * 4;
    static constexpr size_t bytes = static_cast<size_t>(tile + S::warps * (query_bytes + score_bytes + place_bytes));
    __device__ __forceinline__ static int queries(int warp) { return tile + warp * query_bytes; }
    __device__ __forceinline__ static int scores(int warp) { return queries(S::warps) + warp * score_bytes; }
    __device__ __forceinline__ static int place(int warp) { return scores(S::warps) + warp * place_bytes; }
};

// Of a warp's tile of weights eight neighbours in a row: the eighths change places, so that all banks are written at a time.
template <class S> __device__ __forceinline__ int eighth_at(int row, int number)
{
    return row * S::keys + (number + row) % (S::keys / 8) * 8;
}

// The weights of a tile of queries and keys of one head, from the saved shift and sum. map (B,H,Tq,Tk), contiguous.
// vectors: rows are aligned to 16 bytes; those of the map too, with wide_rows.
template <class S, class T>
__global__ void __launch_bounds__(most_threads, 1)
    attention_map_mma_kernel(const __grid_constant__ tc_attention_forward_args a, const __grid_constant__ Numbers<float> numbers,
                             bool vectors, bool wide_rows)
{
    using Tiles = MapTiles<S>;
    TC_DYNAMIC_SHARED(unsigned char, dynamic);
    const tc_attention_problem &p = a.problem;
    BlockPlace place;
    const auto take = [&](int64_t count) { return static_cast<int>(place.take(count)); };
    const int key = take(divide_up(p.Tk, S::keys)) * S::keys, warp = static_cast<int>(threadIdx.x) / warp_lanes;
    const int first = take(divide_up(p.Tq, S::queries)) * S::queries + warp * warp_rows, h = take(p.H), b = static_cast<int>(place.rest);
    const Head<T> head(p, numbers, b, h);
    WarpPlace &self = *reinterpret_cast<WarpPlace *>(dynamic + Tiles::place(warp));
    const Group heads = {h, 1};
    const Reach own(p, head, heads, first, warp_rows);
    if (lane_of() == 0) self = {own, own, heads, b, 0, first, 0};
    T *const queries = reinterpret_cast<T *>(dynamic + Tiles::queries(warp)), *const keys = reinterpret_cast<T *>(dynamic);
    const int rows = static_cast<int>(head.Tq) - first, others = static_cast<int>(head.Tk) - key, D = static_cast<int>(p.D);
    if (vectors) {
        load_rows<warp_rows, S::size, warp_lanes, true>(queries, head.q.at(first, 0), rows, D, threadIdx.x % warp_lanes);
        load_rows<S::keys, S::size, S::threads, true>(keys, head.k.at(key, 0), others, D, threadIdx.x);
    } else {
        load_rows<warp_rows, S::size, warp_lanes, false>(queries, head.q.at(first, 0), rows, D, threadIdx.x % warp_lanes);
        load_rows<S::keys, S::size, S::threads, false>(keys, head.k.at(key, 0), others, D, threadIdx.x);
    }
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    if (first >= p.Tq) return;

    Products<S::keys> score;
    OwnRows<S::size, S::keeps_queries> query(dynamic, Tiles::queries(warp));
    multiply_rows<S::keys>(score, query, dynamic, MatrixRows<S::size>(0, true), T());
    float *const finished = reinterpret_cast<float *>(dynamic + Tiles::scores(warp));
    if (!own.sees_all(key, S::keys)) {
        TC_UNROLL
        for (int e = 0; e < S::scores; e++) finished[e * warp_lanes + lane_of()] = score[e / 4][e % 4];
        finish_scores<S, T>(p, numbers, self, finished, key);
        TC_UNROLL
        for (int e = 0; e < S::scores; e++) score[e / 4][e % 4] = finished[e * warp_lanes + lane_of()];
        __syncwarp();
    }
    const float scale = own.sees_all(key, S::keys) ? numbers.scale : 1.0f;
    T *const weights = reinterpret_cast<T *>(finished);
    TC_UNROLL
    for (int r = 0; r < 2; r++) {
        const int row = lane_group() + 8 * r;
        const bool there = row < rows; // packed sequences that are shorter than the longest have zeros beyond their ends
        const int64_t statistic = head.statistics(p, b, h) + first + row;
        const float shift = there ? static_cast<const float *>(a.shift)[statistic] : 0.0f;
        const float sum = there ? static_cast<const float *>(a.sum)[statistic] : 1.0f, share = sum == 0 ? 0.0f : 1.0f / sum;
        const float in_empty_row = sum == 0 && p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM ? 1.0f / static_cast<float>(head.Tk) : 0.0f;
        TC_UNROLL
        for (int n = 0; n < S::keys / 8; n++) {
            float weight[2];
            TC_UNROLL
            for (int i = 0; i < 2; i++) {
                const float computed = exp2_approximate((score[n][2 * r + i] * scale - shift) * log2_e) * share;
                weight[i] = n * 8 + lane_pair() + i >= others ? 0.0f : sum == 0 ? in_empty_row : computed;
            }
            const uint32_t pair = pack(weight[0], weight[1], T());
            store_whole<uint32_t>(weights + eighth_at<S>(row, n) + lane_pair(), pair);
        }
    }
    __syncwarp();
    T *const out = static_cast<T *>(a.map) + ((b * p.H + h) * p.Tq + first) * p.Tk + key;
    const int width = static_cast<int>(p.Tk) - key < S::keys ? static_cast<int>(p.Tk) - key : S::keys;
    const int last = static_cast<int>(p.Tq) - first < warp_rows ? static_cast<int>(p.Tq) - first : warp_rows;
    if (wide_rows) {
        constexpr int eighths = S::keys / 8;
        const int number = lane_of() % eighths;
        TC_ROLLED
        for (int i = lane_of() / eighths; i < last; i += warp_lanes / eighths)
            if (number * 8 < width) store_vector(out + i * p.Tk + number * 8, load_vector<8>(weights + eighth_at<S>(i, number)));
    } else {
        TC_ROLLED
        for (int i = 0; i < last; i++)
            for (int j = lane_of(); j < width; j += warp_lanes) out[i * p.Tk + j] = weights[eighth_at<S>(i, j / 8) + j % 8];
    }
}

// The mean of all values for the rows that have seen no key; one warp per row.
template <class T>
__global__ void __launch_bounds__(warp_lanes *rows_per_block)
    attention_mean_kernel(const __grid_constant__ tc_attention_forward_args a, const __grid_constant__ Numbers<float> numbers)
{
    const tc_attention_problem &p = a.problem;
    const WarpRow own(p.Tq, p.H);
    const Head<T> head(p, numbers, own.b, own.h);
    if (own.row >= head.Tq || static_cast<const float *>(a.sum)[head.statistics(p, own.b, own.h) + own.row] != 0) return;
    const Draw draw = draw_of(p.seed, p.call, p.drawn);
    const uint64_t first =
        (head.first_row + static_cast<uint64_t>(own.row)) * static_cast<uint64_t>(divide_up(p.Tk, TC_PHILOX_GROUP) * TC_PHILOX_GROUP);
    T *const out = head.template begin<T>(a.values, own.b, own.h) + own.row * a.values.row;
    for (int64_t d = threadIdx.x; d < p.Dv; d += warp_lanes) {
        float sum = 0;
        for (int64_t key = 0; key < head.Tk; key++) {
            float kept = 1;
            if (numbers.drops) {
                const PhiloxWords words = philox_words(draw.seed, draw.call, first + static_cast<uint64_t>(key));
                kept = word_of(words, key) >= numbers.threshold ? numbers.kept : 0.0f;
            }
            sum += kept / static_cast<float>(head.Tk) * widen(head.v.at(key, d).data[0]);
        }
        narrow(out[d], sum);
    }
}

template <class S, class T> int launch_shape(const tc_attention_forward_args &a, const Segments<float> &segments, void *stream)
{
    static_assert(S::size <= 128 || Stages<S, T>::bytes <= (S::warps < 8 ? 99 * 1024 : TC_ATTENTION_LARGE_BLOCK),
                  "as all GPUs have, or large");
    const tc_attention_problem &p = a.problem;
    const int64_t group = tc_attention_mma_group(&p), count = p.B * (p.H / group) * divide_up(p.Tq * group, S::queries) * segments.count;
    const Launch grid(blocks(count), dim3(S::threads), Stages<S, T>::bytes, stream);
    const bool vectors = is_aligned(p.q) && is_aligned(p.k) && is_aligned(p.v);
    return launch<attention_mma_kernel<S, T>>(grid, a, numbers_of<T>(p), segments, static_cast<int>(group), vectors);
}

template <class T, int size, int keys> int launch_size(const tc_attention_forward_args &a, const Segments<float> &segments, void *stream)
{
    const int64_t rows = a.problem.Tq * tc_attention_mma_group(&a.problem);
    if constexpr (size == 64) {
        if (rows <= 16 && a.problem.Tk <= 16) return launch_shape<Shape<size, 1, 16>, T>(a, segments, stream);
    }
    if (rows <= 16) return launch_shape<Shape<size, 1, keys>, T>(a, segments, stream);
    if (rows <= 64 || (size > 128 && !a.large_blocks)) return launch_shape<Shape<size, 4, keys>, T>(a, segments, stream);
    return launch_shape<Shape<size, 8, keys>, T>(a, segments, stream);
}

template <class S, class T> int launch_map(const tc_attention_forward_args &a, void *stream)
{
    const tc_attention_problem &p = a.problem;
    const int64_t count = p.B * p.H * divide_up(p.Tq, S::queries) * divide_up(p.Tk, S::keys);
    const Launch grid(blocks(count), dim3(S::threads), MapTiles<S>::bytes, stream);
    const bool wide_rows = reinterpret_cast<uintptr_t>(a.map) % 16 == 0 && p.Tk % 8 == 0;
    return launch<attention_map_mma_kernel<S, T>>(grid, a, numbers_of<T>(p), is_aligned(p.q) && is_aligned(p.k), wide_rows);
}

} // namespace

namespace tc
{

template <class T> int attention_mma_forward(const tc_attention_forward_args &a, const Segments<float> &segments, void *stream)
{
    const tc_attention_problem &p = a.problem;
    if (!tc_attention_fits_mma(&p)) return cudaErrorInvalidValue;
    const int64_t width = p.D > p.Dv ? p.D : p.Dv;
    if (width <= 64) return launch_size<T, 64, 64>(a, segments, stream);
    if (width <= 96) return launch_size<T, 96, 64>(a, segments, stream);
    if (width <= 128) return launch_size<T, 128, 64>(a, segments, stream);
    return launch_size<T, 256, 32>(a, segments, stream);
}

template <class T> int attention_mma_map(const tc_attention_forward_args &a, void *stream)
{
    if (a.problem.D <= 64) return launch_map<Shape<64, 4, 64>, T>(a, stream);
    if (a.problem.D <= 128) return launch_map<Shape<128, 4, 64>, T>(a, stream);
    return launch_map<Shape<256, 4, 64>, T>(a, stream);
}

template <class T> int attention_mean(const tc_attention_forward_args &a, void *stream)
{
    const tc_attention_problem &p = a.problem;
    return launch<attention_mean_kernel<T>>(warp_row_launch(p.Tq, p.B * p.H, stream), a, numbers_of<T>(p));
}

#define INSTANTIATE(T)                                                                                                                     \
    template int attention_mma_forward<T>(const tc_attention_forward_args &, const Segments<float> &, void *);                             \
    template int attention_mma_map<T>(const tc_attention_forward_args &, void *);                                                          \
    template int attention_mean<T>(const tc_attention_forward_args &, void *);
INSTANTIATE(float16)
INSTANTIATE(bfloat16)

} // namespace tc
