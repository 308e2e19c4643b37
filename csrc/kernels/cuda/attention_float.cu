// attention_float.cu: attention's forward in float32 by multiply-adds, for heads of at most 128 features. As in the plain kernel keys come
// by tiles, with a running maximum and sum; a thread has 8 x 4 scores and 8 x 8 sums of values, or 4 x 4 and 4 x 16 of wide heads, and
// reads operands as vectors.
//
// A tile of keys that no row of a warp sees is skipped. Of one that all rows see, scores are scaled and no more; where causal attention, a
// window or lengths cut it, and nothing else changes scores, keys are compared with each row's bounds; of all others each score goes
// through finish_score(), as in the plain kernel. All three make the same bits of a score that nothing changes.
#include "attention_float.cuh"
#include "attention_forward.cuh"

namespace
{

using namespace tc;

constexpr int attention_float_threads = 128;

// What a kernel is compiled for: D and Dv are at most `size`; a lane has n rows.
template <int size_, int n_, int warps_> struct Shape {
    static constexpr int size = size_, n = n_, warps = warps_;
    static constexpr int threads = warps * warp_lanes, rows = 4 * n, queries = warps * rows;
};

// What a warp knows of itself and of its block, in shared memory, since registers are few.
struct WarpPlace {
    Reach block, own;
    int b, h, segment, first, end; // first: its first row; end: of the block's keys
    Bounds bounds;
    const float *k, *v;
    bool changes; // scores, so that each needs finish_score()
};

// Shared memory, in floats: the queries; a tile of keys and one of values; for each warp its weights, or four rows of values. Then each
// warp's WarpPlace.
template <class S> struct Layout {
    static constexpr int warp_queries = S::rows * S::size, tile = tile_others * S::size,
                         warp_weights = S::n > 1 ? S::rows *tile_others : 4 * S::size;
    static constexpr int keys = S::warps * warp_queries, values = keys + tile, weights = values + tile;
    static constexpr int places = weights + S::warps * warp_weights;
    static constexpr size_t bytes = places * sizeof(float) + S::warps * sizeof(WarpPlace);
};

// Finishes the scores of a warp's tile, each lane its own; the bits of hidden ones. Not inlined: it is long, and needs none of the caller's
// registers.
template <class S>
__device__ __noinline__ uint32_t finish_scores(const tc_attention_problem &p, const Numbers<float> &numbers, const WarpPlace &self,
                                               float *scores, int key)
{
    const Head<float> head(p, numbers, self.b, self.h);
    uint32_t hidden = 0;
    TC_ROLLED
    for (int e = 0; e < S::n * own_others; e++) {
        float &score = scores[e * warp_lanes + lane_in_warp()];
        const Score<float> finished =
            finish_score(p, head, self.first + lane_row_of(e / own_others), key + lane_other_of(e % own_others), score);
        score = finished.value;
        hidden |= static_cast<uint32_t>(finished.hidden) << e;
    }
    return hidden;
}

// The bits of the weights that dropout drops. Not inlined, likewise.
template <class S>
__device__ __noinline__ uint32_t dropped_pairs(const tc_attention_problem &p, const Numbers<float> &numbers, const WarpPlace &self, int key)
{
    const Head<float> head(p, numbers, self.b, self.h);
    return dropped_of<S::n, true>(p, head, self.first, key);
}

// Copies a tile of keys or values, of which `left` rows are there. Not inlined, likewise.
template <class S>
__device__ __noinline__ void load_tile(float *tile, const float *from, int64_t across, int left, int columns, bool vectors)
{
    copy_rows<tile_others, S::size, S::threads>(tile, Operand<float>{from, across, 1}, left, columns, vectors);
    copy_async_commit();
}

// The rows that a lane has a part of.
template <class S> struct WarpRows {
    static constexpr int n = S::n, size = S::size;
    RowSums<n, size> values;
    float largest[n], sum[n]; // sum: over the lane's own columns

    __device__ __forceinline__ void clear()
    {
        clear_rows(values);
        TC_UNROLL
        for (int i = 0; i < n; i++) {
            largest[i] = -infinity<float>;
            sum[i] = 0;
        }
    }

    // Weights e^(score - largest), where the rows' largest becomes that of these scores too, and all sums are as of it.
    __device__ __forceinline__ void weigh(Pairs<n> &score)
    {
        TC_UNROLL
        for (int i = 0; i < n; i++) {
            float top = fmaxf(fmaxf(score[i][0], score[i][1]), fmaxf(score[i][2], score[i][3]));
            TC_UNROLL
            for (int distance = 4; distance > 0; distance /= 2) top = fmaxf(top, __shfl_xor_sync(all_lanes, top, distance));
            top = fmaxf(largest[i], top);
            const float shift = top == -infinity<float> ? 0.0f : top, shrink = exp2_approximate((largest[i] - shift) * log2_e);
            largest[i] = top;
            sum[i] *= shrink;
            TC_UNROLL
            for (float &value : values[i]) value *= shrink;
            TC_UNROLL
            for (float &weight : score[i]) {
                weight = exp2_approximate((weight - shift) * log2_e);
                sum[i] += weight;
            }
        }
    }
    // Every lane gets the rows' sums.
    __device__ __forceinline__ void add_lanes()
    {
        TC_UNROLL
        for (float &one : sum) TC_UNROLL
        for (int distance = 4; distance > 0; distance /= 2) one += __shfl_xor_sync(all_lanes, one, distance);
    }
    // A lane's part of row i, where put_row() finds it.
    __device__ __forceinline__ void lay_out(float *slots, int i) const
    {
        TC_UNROLL
        for (int f = 0; f < size / 8; f += 4)
            store_vector(slots + slot_of(f / 4), Vector<float, 4>{values[i][f], values[i][f + 1], values[i][f + 2], values[i][f + 3]});
    }
    static __device__ __forceinline__ int slot_of(int number) { return (number * warp_lanes + lane_in_warp()) * 4; }
};

// What becomes of a row: it waits for the next segment, in the results' place, where earlier ones may wait; or it is complete.
struct Ending {
    bool joins, is_last;
    bool wide; // values are written as whole vectors
};

// Writes a lane's part of a row, of which the eight lanes have the largest score and the sum. Not inlined, likewise.
template <class S>
__device__ __noinline__ void put_row(const tc_attention_forward_args &a, const Segments<float> &segments, const WarpPlace &self,
                                     const float *slots, int row, float largest, float sum, Ending how)
{
    const tc_attention_problem &p = a.problem;
    const Rows of(p, self.b);
    const int64_t query = self.first + row, statistic = of.statistics(p, self.b, self.h) + query;
    const bool is_there = query<of.Tq, is_part = segments.count> 1, adds = how.joins && !is_empty(largest, sum);
    float earlier = -infinity<float>, total = 0;
    if (how.joins && is_there) {
        earlier = static_cast<const float *>(a.shift)[statistic];
        total = static_cast<const float *>(a.sum)[statistic];
    }
    __syncwarp(); // all lanes have read these
    if (!is_there) return;
    const Factors<float> factors(earlier, largest);
    if (adds) factors.join(total, sum);
    if (how.joins) {
        largest = adds ? factors.largest : earlier;
        sum = total;
    }
    const int64_t part = segments.row(p, self.segment, self.b, self.h, query);
    float *const to = is_part ? segments.values + part * p.Dv : of.begin<float>(a.values, self.b, self.h) + query * a.values.row;
    const float share = how.is_last && !is_part ? share_of(largest, sum) : 1.0f;
    if (lane_column() == 0) {
        if (is_part || !how.is_last) {
            (is_part ? segments.largest + part : static_cast<float *>(a.shift) + statistic)[0] = largest;
            (is_part ? segments.sum + part : static_cast<float *>(a.sum) + statistic)[0] = sum;
        } else {
            save_statistics(a, statistic, largest, sum);
        }
    }
    TC_ROLLED
    for (int number = 0; number < S::size / 32; number++) {
        const int column = number * 32 + lane_column() * 4;
        auto four = load_vector<4>(slots + WarpRows<S>::slot_of(number));
        TC_UNROLL
        for (int e = 0; e < 4; e++) {
            if (how.joins && column + e < p.Dv) {
                float value = to[column + e];
                if (adds) factors.join(value, four.at[e]);
                four.at[e] = value;
            }
            four.at[e] *= share;
        }
        if (how.wide && !is_part) {
            if (column < p.Dv) store_vector(to + column, four);
        } else {
            TC_UNROLL
            for (int e = 0; e < 4; e++)
                if (column + e < p.Dv) to[column + e] = four.at[e];
        }
    }
}

// Block: rows of one head, each warp some of them, and all keys or those of a segment. The longest rows of a causal head come first.
// q (B,H,Tq,D), k (B,Hk,Tk,D), v (B,Hk,Tk,Dv), values (B,H,Tq,Dv); shift,sum,lse (B,H,Tq). Packed sequences: see Rows. vectors: rows are
// aligned to 16 bytes; wide: those of the values are, which are whole vectors.
template <class S>
__global__ void __launch_bounds__(attention_float_threads, 2)
    attention_forward_float_kernel(const __grid_constant__ tc_attention_forward_args a, const __grid_constant__ Numbers<float> numbers,
                                   const __grid_constant__ Segments<float> segments, bool vectors, bool wide)
{
    constexpr int n = S::n, size = S::size;
    using Places = Layout<S>;
    TC_DYNAMIC_SHARED(float, shared);
    const tc_attention_problem &p = a.problem;
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
    WarpPlace &self = reinterpret_cast<WarpPlace *>(shared + Places::places)[warp];
    float *const keys = shared + Places::keys, *const values = shared + Places::values;
    float *const weights = shared + Places::weights + warp * Places::warp_weights;
    BlockPlace place;
    const auto take = [&](int64_t count) { return static_cast<int>(place.take(count)); }; // they fit, as grids do
    const int tiles = static_cast<int>(divide_up(p.Tq, S::queries)), first = (tiles - 1 - take(tiles)) * S::queries;
    const int segment = take(segments.count), h = take(p.H), b = static_cast<int>(place.rest);
    const Head<float> head(p, numbers, b, h);
    if (first >= head.Tq) return; // a packed sequence that is shorter than the longest
    const bool changes = changes_scores(head);
    const Reach block(p, head, first, first + S::queries, changes);
    int key = block.some / tile_others * tile_others, end = block.some_end;
    if (segments.count > 1) {
        const int from = segment * TC_ATTENTION_SEGMENT, to = from + TC_ATTENTION_SEGMENT;
        key = key < from ? from : key;
        end = end < to ? end : to;
    }
    if (lane_in_warp() == 0) {
        const int own = first + warp * S::rows;
        self = {block,  Reach(p, head, own, own + S::rows, changes), b, h, segment, own, end, Bounds(p, head), head.k.data, head.v.data,
                changes};
    }
    const int D = static_cast<int>(p.D), Dv = static_cast<int>(p.Dv);
    copy_rows<S::queries, size, S::threads>(shared, head.q.at(first, 0), static_cast<int>(head.Tq) - first, D, vectors);
    __syncwarp();
    const auto copy_keys = [&](int from) {
        if (from < end) load_tile<S>(keys, self.k + from * p.k.row, p.k.row, end - from, D, vectors);
    };
    copy_async_commit();
    copy_keys(key);

    const float *const queries = shared + warp * Places::warp_queries;
    WarpRows<S> rows;
    rows.clear();
    bool joins = false; // earlier segments
    const auto put = [&](bool is_last) {
        rows.add_lanes();
        TC_UNROLL
        for (int i = 0; i < n; i++) {
            __syncwarp(); // the first time: the weights have been read
            rows.lay_out(weights, i);
            put_row<S>(a, segments, self, weights, lane_row_of(i), rows.largest[i], rows.sum[i], {joins, is_last, wide});
        }
        __syncwarp();
    };
    TC_ROLLED
    for (; key < end; key += tile_others) {
        copy_async_wait<0>();
        __syncthreads(); // also: everybody is done with the values
        load_tile<S>(values, self.v + key * p.v.row, p.v.row, end - key, Dv, vectors);
        const bool sees = !self.own.sees_none(key, tile_others);
        const uint32_t dropped = sees && numbers.drops ? dropped_pairs<S>(p, numbers, self, key) : 0;
        Pairs<n> score;
        if (sees) multiply_rows<n, size>(score, queries, keys, D);
        copy_async_wait<0>();
        // Only a pair that is hidden has to be kept from a value that is not finite.
        const bool infinite =
            __syncthreads_or(!self.block.sees_all(key, tile_others) && copied_infinite<tile_others, size, S::threads>(values));
        if (sees) {
            uint32_t hidden = 0;
            if (self.changes) {
                TC_UNROLL
                for (int i = 0; i < n; i++) TC_UNROLL
                for (int j = 0; j < own_others; j++) weights[(i * own_others + j) * warp_lanes + lane_in_warp()] = score[i][j];
                hidden = finish_scores<S>(p, numbers, self, weights, key);
                TC_UNROLL
                for (int i = 0; i < n; i++) TC_UNROLL
                for (int j = 0; j < own_others; j++) score[i][j] = weights[(i * own_others + j) * warp_lanes + lane_in_warp()];
                __syncwarp(); // before weights take their place
            } else {
                TC_UNROLL
                for (auto &row : score) TC_UNROLL
                for (float &one : row) one *= numbers.scale;
                if (!self.own.sees_all(key, tile_others)) {
                    const Cut cut(self.bounds, self.first + lane_row(), key + lane_column());
                    TC_UNROLL
                    for (int i = 0; i < n; i++) TC_UNROLL
                    for (int j = 0; j < own_others; j++) {
                        const bool is_seen = cut.sees(4 * i, 8 * j);
                        if (!is_seen) score[i][j] = -infinity<float>;
                        hidden |= static_cast<uint32_t>(!is_seen) << (i * own_others + j);
                    }
                }
            }
            rows.weigh(score);
            if (numbers.drops) {
                TC_UNROLL
                for (int i = 0; i < n; i++) TC_UNROLL
                for (int j = 0; j < own_others; j++) score[i][j] = in_pairs(dropped, i, j) ? 0.0f : score[i][j] * numbers.kept;
            }
            if (infinite) {
                TC_UNROLL
                for (int i = 0; i < n; i++) TC_UNROLL
                for (int j = 0; j < own_others; j++)
                    if (in_pairs(hidden, i, j)) score[i][j] = float_of_bits(hidden_weight);
            }
            put_weights(weights, score);
            __syncwarp();
        }
        copy_keys(key + tile_others); // everybody is done with the keys
        if (sees) {
            const int others = end - key < tile_others ? end - key : tile_others;
            if (infinite)
                weigh_seen<n, size>(rows.values, weights, values, others);
            else
                weigh_tile<n, size>(rows.values, weights, values, others);
        }
        const int next = key + tile_others;
        if (next % TC_ATTENTION_SEGMENT == 0 && next < end) {
            put(false);
            rows.clear();
            joins = true;
        }
    }
    copy_async_wait<0>();
    put(true);
}

template <class S> int launch_shape(const tc_attention_forward_args &a, const Segments<float> &segments, void *stream)
{
    static_assert(Layout<S>::bytes <= 99 * 1024, "as all GPUs have from sm_80 on");
    const tc_attention_problem &p = a.problem;
    const int64_t count = p.B * p.H * divide_up(p.Tq, S::queries) * segments.count;
    const Launch grid(blocks(count), dim3(S::threads), Layout<S>::bytes, stream);
    const bool vectors = is_aligned(p.q, 4) && is_aligned(p.k, 4) && is_aligned(p.v, 4), wide = is_aligned(a.values, 4) && p.Dv % 4 == 0;
    return launch<attention_forward_float_kernel<S>>(grid, a, numbers_of<float>(p), segments, vectors, wide);
}

} // namespace

int tc::attention_float_forward(const tc_attention_forward_args &a, const Segments<float> &segments, void *stream)
{
    const tc_attention_problem &p = a.problem;
    if (!tc_attention_fits_float(&p)) return cudaErrorInvalidValue;
    const bool small = p.D <= 64 && p.Dv <= 64;
    if (p.Tq <= 4) return small ? launch_shape<Shape<64, 1, 1>>(a, segments, stream) : launch_shape<Shape<128, 1, 1>>(a, segments, stream);
    if (small && p.Tq <= 32) return launch_shape<Shape<64, 8, 1>>(a, segments, stream);
    return small ? launch_shape<Shape<64, 8, 4>>(a, segments, stream) : launch_shape<Shape<128, 4, 4>>(a, segments, stream);
}
