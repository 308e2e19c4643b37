// attention_mma.cu: attention's forward on tensor cores, for halves, as in flash-attention 2 (Dao 2023): a warp has 16 or 32 queries, whose
// scores, weights and values stay in its registers, and the block's keys and values come through shared memory, 64 or 32 at a time.
//
// A tile of keys that no row of a warp sees is skipped; one that all rows see, without mask, bias, soft cap and dropout, pays for none of
// them, and one that bounds alone cut pays for these; of all others each score goes through finish_score(), as in the plain kernel.
#include "attention_mma_forward.cuh"

namespace
{

using namespace tc;

// Warps of one fragment have these keys or fewer: three small blocks of a multiprocessor, for what is mostly waiting for the first tile.
constexpr int few_keys = 128;

// Shared memory, in bytes: two stages of keys and values, and for each warp its queries, which its results replace, and its WarpPlace.
// Scores for finish_scores() take the place of queries that are in registers, otherwise that of the stage's keys.
template <class S, class T> struct Stages {
    using Place = WarpPlace<S::fragments>;
    static constexpr int tile = S::keys * S::size * 2, stage = 2 * tile; // tiles are a multiple of 256 bytes
    static constexpr int query_bytes = S::rows * S::size * 2, score_bytes = warp_rows * S::keys * (S::finishes ? 4 : 2);
    static constexpr int own_bytes = S::keeps_queries && score_bytes > query_bytes ? score_bytes : query_bytes;
    static constexpr size_t bytes = static_cast<size_t>(2 * stage + S::warps * (own_bytes + static_cast<int>(sizeof(Place))));
    static_assert(S::keeps_queries || S::warps * score_bytes <= tile, "scores take the place of the keys");
    unsigned char *const begin;

    __device__ __forceinline__ T *keys(int number) const { return reinterpret_cast<T *>(begin + number * stage); }
    __device__ __forceinline__ T *values(int number) const { return reinterpret_cast<T *>(begin + number * stage + tile); }
    __device__ __forceinline__ static int queries(int warp) { return 2 * stage + warp * own_bytes; }
    __device__ __forceinline__ float *scores(int warp, int number) const
    {
        return reinterpret_cast<float *>(begin + (S::keeps_queries ? queries(warp) : number * stage + warp * score_bytes));
    }
    __device__ __forceinline__ Place &place(int warp) const { return reinterpret_cast<Place *>(begin + queries(S::warps))[warp]; }
};

// The rows that a lane has a part of, g and g + 8 of each fragment's 16.
template <class S> struct WarpRows {
    static constexpr int size = S::size;
    WarpSums<size> values[S::fragments];
    float largest[S::fragments][2], sum[S::fragments][2]; // sum: over the lane's own columns

    __device__ __forceinline__ WarpRows()
    {
        TC_UNROLL
        for (int f = 0; f < S::fragments; f++) {
            clear_sums(values[f]);
            TC_UNROLL
            for (int r = 0; r < 2; r++) {
                largest[f][r] = -infinity<float>;
                sum[f][r] = 0;
            }
        }
    }

    // Of fragment f: weights = e^(scale score - largest), where the rows' largest becomes that of these scores too, and all sums are as of
    // it.
    template <class T>
    __device__ __forceinline__ void weigh(int f, Weights<S::keys> &weights, Products<S::keys> &score, float scale, const Marks &marks,
                                          T type)
    {
        float shift[2];
        raise(f, shift, score, scale);
        exponentials(f, weights, score, scale * log2_e, {-shift[0] * log2_e, -shift[1] * log2_e}, marks, type);
    }
    // The same of finished scores; these may be -9e15, so that the largest is subtracted before anything is scaled.
    template <class T>
    __device__ __forceinline__ void weigh_finished(int f, Weights<S::keys> &weights, Products<S::keys> &score, const Marks &marks, T type)
    {
        float shift[2];
        raise(f, shift, score, 1.0f);
        TC_UNROLL
        for (auto &fragment : score) TC_UNROLL
        for (int i = 0; i < 4; i++) fragment[i] -= shift[i / 2];
        exponentials(f, weights, score, log2_e, {0.0f, 0.0f}, marks, type);
    }

  private:
    __device__ __forceinline__ void raise(int f, float (&shift)[2], const Products<S::keys> &score, float scale)
    {
        TC_UNROLL
        for (int r = 0; r < 2; r++) {
            float top = fmaxf(score[0][2 * r], score[0][2 * r + 1]);
            TC_UNROLL
            for (int n = 1; n < S::keys / 8; n++) top = fmaxf(top, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
            top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
            top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
            top = fmaxf(largest[f][r], top * scale);
            shift[r] = top == -infinity<float> ? 0.0f : top;
            const float shrink = exp2_approximate((largest[f][r] - shift[r]) * log2_e);
            largest[f][r] = top;
            sum[f][r] *= shrink;
            TC_UNROLL
            for (auto &fragment : values[f]) {
                fragment[2 * r] *= shrink;
                fragment[2 * r + 1] *= shrink;
            }
        }
    }
    // 2^(factor score + added), without those that are dropped
    template <class T>
    __device__ __forceinline__ void exponentials(int f, Weights<S::keys> &weights, Products<S::keys> &score, float factor,
                                                 const float (&added)[2], const Marks &marks, T type)
    {
        TC_UNROLL
        for (int n = 0; n < S::keys / 8; n++) {
            TC_UNROLL
            for (int i = 0; i < 4; i++) {
                score[n][i] = exp2_approximate(real_fma(score[n][i], factor, added[i / 2]));
                sum[f][i / 2] += score[n][i];
                if (marks.dropped >> (n * 4 + i) & 1) score[n][i] = 0;
            }
            TC_UNROLL
            for (int r = 0; r < 2; r++) weights[n / 2][n % 2 * 2 + r] = pack(score[n][2 * r], score[n][2 * r + 1], type);
        }
    }
};

// Copies a tile of keys and one of values. Not inlined, for the sake of registers: the hot loop copies by itself.
template <class S, class T>
__device__ __noinline__ void load_tile(const tc_attention_problem &p, const Numbers<float> &numbers, unsigned char *begin, int key,
                                       int stage, bool vectors)
{
    const Stages<S, T> shared = {begin};
    const WarpPlace<S::fragments> &self = shared.place(static_cast<int>(threadIdx.x) / warp_lanes);
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

template <int keys> __device__ __forceinline__ void clear_weights(Weights<keys> &weights)
{
    TC_UNROLL
    for (auto &fragment : weights) TC_UNROLL
    for (uint32_t &pair : fragment) pair = 0;
}

// Saves a warp's results, which are in the place of its queries: whole rows, 16 bytes at a time if these are aligned.
template <class S, class T>
__device__ __forceinline__ void save_values(const GroupRows<T> &out, const T *results, int rows, int Dv, bool wide)
{
    using Layout = Swizzle<S::size>;
    if (wide) {
        TC_UNROLL_SOME
        for (int e = lane_of(); e < S::rows * Layout::chunks; e += warp_lanes) {
            const int row = static_cast<int>(unsigned(e) / Layout::chunks), chunk = static_cast<int>(unsigned(e) % Layout::chunks);
            if (row < rows && chunk * 8 < Dv) store_global(out.row(row) + chunk * 8, load_vector<8>(results + Layout::chunk(row, chunk)));
        }
    } else {
        TC_ROLLED
        for (int row = 0; row < (rows < S::rows ? rows : S::rows); row++) {
            T *const to = out.row(row);
            for (int d = lane_of(); d < Dv; d += warp_lanes) to[d] = results[Layout::element(row, d)];
        }
    }
}

// Saves a lane's part of a row of a segment: a sector of 32 bytes for four lanes.
template <class S> __device__ __forceinline__ void save_part(float *part, const WarpSums<S::size> &values, int r, float factor, int Dv)
{
    TC_UNROLL
    for (int n = 0; n < S::size / 8; n++) {
        const int d = n * 8 + lane_pair();
        const Vector<float, 2> pair = {values[n][2 * r] * factor, values[n][2 * r + 1] * factor};
        if (Dv % 2 == 0) {
            if (d < Dv) store_global(part + d, pair);
        } else {
            if (d < Dv) part[d] = pair.at[0];
            if (d + 1 < Dv) part[d + 1] = pair.at[1];
        }
    }
}

// Block: rows of one head or of `group` heads, a warp 16 or 32 of them, and all keys or those of a segment. q (B,H,Tq,D), k (B,Hk,Tk,D), v
// (B,Hk,Tk,Dv), values (B,H,Tq,Dv); shift,sum,lse (B,H,Tq). Packed sequences: see Rows. vectors: rows of q, k and v are aligned to 16
// bytes; wide: those of the values.
template <class S, class T>
__global__ void __launch_bounds__(S::threads, S::blocks)
    attention_mma_kernel(const __grid_constant__ tc_attention_forward_args a, const __grid_constant__ Numbers<float> numbers,
                         const __grid_constant__ Segments<float> segments, int group, bool vectors, bool wide)
{
    constexpr int size = S::size, fragments = S::fragments;
    TC_DYNAMIC_SHARED(unsigned char, dynamic);
    const Stages<S, T> shared = {dynamic};
    const tc_attention_problem &p = a.problem;
    BlockPlace place;
    const auto take = [&](int64_t count) { return static_cast<int>(place.take(count)); }; // they fit, as grids do
    // Neighbours are blocks of one head, whose keys they read from the cache; or, where the last rows see most keys, those rows of all
    // heads come first, so that none of the longest blocks is left at the end.
    const int tiles = static_cast<int>(divide_up(p.Tq * group, S::queries));
    const bool longest_first = p.right < p.Tk;
    const int turn = longest_first ? 0 : take(tiles), segment = take(segments.count);
    const int h = take(static_cast<uint32_t>(p.H) / static_cast<uint32_t>(group)) * group; // by a division of 32 bits
    const int b = longest_first ? take(p.B) : static_cast<int>(place.rest);
    const int first = longest_first ? (tiles - 1 - static_cast<int>(place.rest)) * S::queries : turn * S::queries;
    const Group heads = {h, group};
    const Head<T> head(p, numbers, b, h);
    if (heads.query(first) >= head.Tq) return; // a packed sequence that is shorter than the longest
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes, own_first = first + warp * S::rows;
    const int own_rows = static_cast<int>(head.Tq) * group - own_first; // and more, of the next warps
    T *const own = reinterpret_cast<T *>(dynamic + shared.queries(warp));
    const GroupRows<const T> q = {head.q.data, p.q.row, p.q.head, heads, own_first};
    if (vectors)
        load_rows<S::rows, size, warp_lanes, true>(own, q, own_rows, static_cast<int>(p.D), threadIdx.x % warp_lanes);
    else
        load_rows<S::rows, size, warp_lanes, false>(own, q, own_rows, static_cast<int>(p.D), threadIdx.x % warp_lanes);
    copy_async_commit();

    // While they are on their way:
    WarpPlace<fragments> &self = shared.place(warp);
    const Reach block = reach_of(p, head, heads, first, S::queries);
    int begin = block.some / S::keys * S::keys, end = block.some_end;
    if (segments.count > 1) {
        const int from = segment * TC_ATTENTION_SEGMENT, to = from + TC_ATTENTION_SEGMENT;
        begin = begin < from ? from : begin;
        end = end < to ? end : to;
    }
    const int lane = lane_of();
    if (lane < fragments) {
        const Reach own_reach = reach_of(p, head, heads, own_first + lane * warp_rows, warp_rows);
        self.own[lane] = own_reach; // the emulator sees no store of what a call returns
    }
    if (lane == 0) {
        self.block = block, self.bounds = Bounds(p, head), self.group = heads;
        self.b = b, self.segment = segment, self.first = own_first, self.end = end;
    }
    __syncwarp();
    if (begin < self.end) load_tile<S, T>(p, numbers, dynamic, begin, 0, vectors);
    copy_async_wait<0>();
    __syncwarp();
    OwnRows<size, S::keeps_queries, fragments> queries(dynamic, shared.queries(warp));
    WarpRows<S> rows;
    Products<S::keys> score[fragments];
    Weights<S::keys> weights[fragments];
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
                TC_UNROLL
                for (int f = 0; f < fragments; f++) rows.weigh(f, weights[f], score[f], numbers.scale, Marks(), T());
                weigh_tile<S::keys, size, fragments>(rows.values, weights, dynamic, values, T());
                change_stage();
            }
        }
        copy_async_wait<0>();
        // Only a pair that is hidden has to be kept from a value that is not finite.
        const bool infinite =
            __syncthreads_or(!self.block.sees_all(key, S::seen_keys) && has_infinite<S::keys, size, S::threads>(shared.values(stage())));
        if (key + S::keys < self.end) load_tile<S, T>(p, numbers, dynamic, key + S::keys, stage() ^ 1, vectors);
        bool sees = false;
        TC_UNROLL
        for (int f = 0; f < fragments; f++) sees = sees || !self.own[f].sees_none(key, S::keys);
        if (sees) multiply_rows<S::keys>(score, queries, dynamic, keys, T());
        if (!S::keeps_queries && (infinite || !self.bounds.alone)) __syncthreads(); // scores and weights take the place of the keys
        TC_UNROLL
        for (int f = 0; sees && f < fragments; f++) {
            Marks marks;
            bool own_sees = !self.own[f].sees_none(key, S::keys);
            float *const finished = shared.scores(warp, stage());
            if (self.own[f].sees_all(key, S::seen_keys)) {
                rows.weigh(f, weights[f], score[f], numbers.scale, marks, T());
            } else if (own_sees) {
                marks = hide_scores<S, T>(score[f], p, numbers, self, f, finished, key);
                own_sees = __any_sync(all_lanes, marks.hidden != all_hidden<S>);
                if (own_sees) rows.weigh_finished(f, weights[f], score[f], marks, T());
            }
            if (!own_sees) clear_weights<S::keys>(weights[f]);
            if (own_sees && infinite)
                add_infinite<S::keys, size>(rows.values[f], weights[f], marks.hidden, reinterpret_cast<uint32_t *>(finished),
                                            shared.values(stage()));
        }
        if (infinite) {
            __syncthreads();
            clear_infinite<S::keys, size, S::threads>(shared.values(stage()));
            __syncthreads();
        }
        if (sees) weigh_tile<S::keys, size, fragments>(rows.values, weights, dynamic, values, T());
        change_stage();
    }

    const Rows of(p, self.b);
    T *const results = reinterpret_cast<T *>(dynamic + shared.queries(warp));
    const float kept = numbers.drops ? numbers.kept : 1.0f;
    const int Dv = static_cast<int>(p.Dv);
    __syncwarp();
    TC_UNROLL
    for (int f = 0; f < fragments; f++) TC_UNROLL
    for (int r = 0; r < 2; r++) {
        float sum = rows.sum[f][r];
        sum += __shfl_xor_sync(all_lanes, sum, 1);
        sum += __shfl_xor_sync(all_lanes, sum, 2);
        const int row = f * warp_rows + lane_group() + 8 * r, query = heads.query(self.first + row), head_of = heads.head(self.first + row);
        const float largest = rows.largest[f][r];
        const bool there = query < of.Tq;
        if (segments.count > 1) {
            const int64_t part = segments.row(p, self.segment, self.b, head_of, query);
            if (there && lane_pair() == 0) segments.largest[part] = largest, segments.sum[part] = sum;
            if (there) save_part<S>(segments.values + part * Dv, rows.values[f], r, kept, Dv);
        } else {
            if (there && lane_pair() == 0) save_statistics(a, of.statistics(p, self.b, head_of) + query, largest, sum);
            const float share = share_of(largest, sum);
            TC_UNROLL
            for (int n = 0; n < size / 8; n++)
                store_whole<uint32_t>(results + Swizzle<size>::chunk(row, n) + lane_pair(),
                                      pack(rows.values[f][n][2 * r] * kept * share, rows.values[f][n][2 * r + 1] * kept * share, T()));
        }
    }
    if (segments.count > 1) return;
    __syncwarp();
    const GroupRows<T> out = {of.begin<T>(a.values, self.b, heads.h), a.values.row, a.values.head, heads, self.first};
    save_values<S>(out, results, static_cast<int>(of.Tq) * group - self.first, Dv, wide);
}

template <class S, class T> int launch_shape(const tc_attention_forward_args &a, const Segments<float> &segments, void *stream)
{
    static_assert(S::size <= 128 || Stages<S, T>::bytes <= (S::warps < 8 ? 99 * 1024 : TC_ATTENTION_LARGE_BLOCK),
                  "as all GPUs have, or large");
    const tc_attention_problem &p = a.problem;
    const int64_t group = tc_attention_mma_group(&p), count = p.B * (p.H / group) * divide_up(p.Tq * group, S::queries) * segments.count;
    const Launch grid(blocks(count), dim3(S::threads), Stages<S, T>::bytes, stream);
    const bool vectors = is_aligned(p.q) && is_aligned(p.k) && is_aligned(p.v), wide = is_aligned(a.values) && p.Dv % 8 == 0;
    return launch<attention_mma_kernel<S, T>>(grid, a, numbers_of<T>(p), segments, static_cast<int>(group), vectors, wide);
}

template <class T, int size> int launch_size(const tc_attention_forward_args &a, const Segments<float> &segments, void *stream)
{
    constexpr int keys = size == 64 ? 64 : 32; // the same for all numbers of rows, for the same bits
    const int64_t rows = a.problem.Tq * tc_attention_mma_group(&a.problem);
    if constexpr (size == 64) {
        if (rows <= 16 && a.problem.Tk <= 16) return launch_shape<Shape<size, 1, 1, 16>, T>(a, segments, stream);
    }
    if (rows <= 16) return launch_shape<Shape<size, 1, 1, keys>, T>(a, segments, stream);
    if constexpr (size > 128) {
        if (rows > 64 && a.large_blocks) return launch_shape<Shape<size, 8, 1, keys>, T>(a, segments, stream);
    } else {
        if (rows > 64 && a.problem.Tk > few_keys && !changes_scores(a.problem, numbers_of<T>(a.problem)))
            return launch_shape<Shape<size, 4, 2, keys>, T>(a, segments, stream);
    }
    return launch_shape<Shape<size, 4, 1, keys>, T>(a, segments, stream);
}

} // namespace

namespace tc
{

template <class T> int attention_mma_forward(const tc_attention_forward_args &a, const Segments<float> &segments, void *stream)
{
    const tc_attention_problem &p = a.problem;
    if (!tc_attention_fits_mma(&p)) return cudaErrorInvalidValue;
    const int64_t width = p.D > p.Dv ? p.D : p.Dv;
    if (width <= 64) return launch_size<T, 64>(a, segments, stream);
    if (width <= 96) return launch_size<T, 96>(a, segments, stream);
    if (width <= 128) return launch_size<T, 128>(a, segments, stream);
    return launch_size<T, 256>(a, segments, stream);
}

#define INSTANTIATE(T) template int attention_mma_forward<T>(const tc_attention_forward_args &, const Segments<float> &, void *);
INSTANTIATE(float16)
INSTANTIATE(bfloat16)

} // namespace tc
