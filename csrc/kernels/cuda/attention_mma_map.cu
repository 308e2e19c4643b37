// attention_mma_map.cu: the map of attention on tensor cores, from the saved shift and sum, and the mean of all values for rows that have
// seen no key.
#include "attention_mma_forward.cuh"

namespace
{

using namespace tc;

// Shared memory of the map's kernel, in bytes: a tile of keys, and for each warp its queries, its scores and its WarpPlace.
template <class S> struct MapTiles {
    static constexpr int tile = S::keys * S::size * 2, query_bytes = warp_rows * S::size * 2, score_bytes = warp_rows * S::keys * 4;
    static constexpr int place_bytes = sizeof(WarpPlace<1>);
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
__global__ void __launch_bounds__(S::threads, 4)
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
    WarpPlace<1> &self = *reinterpret_cast<WarpPlace<1> *>(dynamic + Tiles::place(warp));
    const Group heads = {h, 1};
    const Reach own = reach_of(p, head, heads, first, warp_rows);
    if (lane_of() == 0) self = {own, {own}, Bounds(p, head), heads, b, 0, first, 0};
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
        hide_scores<S, T>(score, p, numbers, self, 0, finished, key);
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

template <class T> int attention_mma_map(const tc_attention_forward_args &a, void *stream)
{
    if (a.problem.D <= 64) return launch_map<Shape<64, 4, 1, 64>, T>(a, stream);
    if (a.problem.D <= 128) return launch_map<Shape<128, 4, 1, 64>, T>(a, stream);
    return launch_map<Shape<256, 4, 1, 64>, T>(a, stream);
}

template <class T> int attention_mean(const tc_attention_forward_args &a, void *stream)
{
    const tc_attention_problem &p = a.problem;
    return launch<attention_mean_kernel<T>>(warp_row_launch(p.Tq, p.B * p.H, stream), a, numbers_of<T>(p));
}

#define INSTANTIATE_MAP(T)                                                                                                                 \
    template int attention_mma_map<T>(const tc_attention_forward_args &, void *);                                                          \
    template int attention_mean<T>(const tc_attention_forward_args &, void *);
INSTANTIATE_MAP(float16)
INSTANTIATE_MAP(bfloat16)
template int attention_mean<float>(const tc_attention_forward_args &, void *); // for attention_float.cu

} // namespace tc
