// attention.cu: softmax(scores) v by tiles of keys with a running maximum and sum (Milakov and Gimelshein 2018), so that nothing
// of size Tq x Tk is stored; the map, if wanted, is computed from saved values. Plain products in the compute dtype, for every
// shape and mask: the reference for faster kernels on the device.
#include "attention_forward.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

// The largest scores, and the sums of weights and of weighed values, of a thread's rows and columns.
template <class Real, int tile, int chunks> struct Weighed {
    static constexpr int n = tile / tile_side;
    Real largest[n], sum[n];
    Fragment<Real, tile> values[chunks];

    __device__ __forceinline__ Weighed()
    {
        TC_UNROLL
        for (int i = 0; i < n; i++) {
            largest[i] = -infinity<Real>;
            sum[i] = 0;
        }
        TC_UNROLL
        for (auto &chunk : values) clear<Real, tile>(chunk);
    }
    __device__ __forceinline__ void join(const Weighed &other)
    {
        TC_UNROLL
        for (int i = 0; i < n; i++) {
            if (is_empty(other.largest[i], other.sum[i])) continue;
            const Factors<Real> factors(largest[i], other.largest[i]);
            largest[i] = factors.largest;
            factors.join(sum[i], other.sum[i]);
            TC_UNROLL
            for (int c = 0; c < chunks; c++) TC_UNROLL
            for (int j = 0; j < n; j++) factors.join(values[c][i][j], other.values[c][i][j]);
        }
    }
};

// Adds a tile of keys, from `key` on, to the rows from `first` on; `column`: the first one of the values.
template <class T, int tile, int chunks>
__device__ __forceinline__ void add_keys(Weighed<compute<T>, tile, chunks> &own, const AttentionTiles<compute<T>, tile> &shared,
                                         const tc_attention_problem &p, const Head<T> &head, int64_t first, int64_t key, int64_t column)
{
    using Real = compute<T>;
    constexpr int n = tile / tile_side;
    Fragment<Real, tile> score, kept;
    row_products<T, tile>(score, shared, head.q.at(first, 0), head.Tq - first, head.k.at(key, 0), head.Tk - key, p.D);
    dropout_factors<T, tile>(kept, p, head, true, first, key);
    bool holes = false;
    TC_UNROLL
    for (int i = 0; i < n; i++) {
        Real top = own.largest[i];
        TC_UNROLL
        for (int j = 0; j < n; j++) {
            const int64_t query = first + own_row(i), other = key + own_column(j);
            const Score<Real> finished = finish_score(p, head, query, other, score[i][j]);
            score[i][j] = finished.value;
            shared.hidden[own_column(j)][own_row(i)] = finished.hidden;
            holes = holes || (finished.hidden && query < head.Tq && other < head.Tk); // beyond Tk the values are zeros
            top = finished.value > top ? finished.value : top;
        }
        top = row_max(top);
        const Real shift = top == -infinity<Real> ? Real(0) : top, shrink = real_exp(own.largest[i] - shift);
        own.largest[i] = top;
        Real row = 0;
        TC_UNROLL
        for (int j = 0; j < n; j++) {
            const Real weight = real_exp(score[i][j] - shift);
            shared.weight[own_column(j)][own_row(i)] = weight * kept[i][j];
            row += weight;
        }
        own.sum[i] = own.sum[i] * shrink + row_sum(row);
        TC_UNROLL
        for (auto &chunk : own.values) TC_UNROLL
        for (Real &value : chunk[i]) value *= shrink;
    }
    holes = __syncthreads_or(holes);
    weigh_rows<T, tile, chunks>(own.values, shared, holes, head.v.at(key, column), head.Tk - key, p.Dv - column);
}

// Adds the mean of all values to the rows that have seen no key.
template <class T, int tile, int chunks>
__device__ __forceinline__ void add_mean(Weighed<compute<T>, tile, chunks> &own, const AttentionTiles<compute<T>, tile> &shared,
                                         const tc_attention_problem &p, const Head<T> &head, int64_t first, int64_t column)
{
    using Real = compute<T>;
    constexpr int n = tile / tile_side;
    bool any_empty = false;
    TC_UNROLL
    for (int i = 0; i < n; i++) any_empty = any_empty || (is_empty(own.largest[i], own.sum[i]) && first + own_row(i) < head.Tq);
    if (!__syncthreads_or(any_empty)) return;
    for (int64_t key = 0; key < head.Tk; key += tile) {
        Fragment<Real, tile> kept;
        dropout_factors<T, tile>(kept, p, head, true, first, key);
        TC_UNROLL
        for (int i = 0; i < n; i++) {
            TC_UNROLL
            for (int j = 0; j < n; j++) {
                const bool inside = key + own_column(j) < head.Tk;
                shared.weight[own_column(j)][own_row(i)] = inside ? kept[i][j] / static_cast<Real>(head.Tk) : Real(0);
                shared.hidden[own_column(j)][own_row(i)] = !is_empty(own.largest[i], own.sum[i]);
            }
        }
        __syncthreads();
        weigh_rows<T, tile, chunks>(own.values, shared, true, head.v.at(key, column), head.Tk - key, p.Dv - column);
    }
}

// Of at most 32 keys, which are one segment: without another's sums, registers suffice for two blocks per multiprocessor.
template <class T, int tile> constexpr bool is_small = sizeof(T) < 8 && tile < 64;

// Block: one tile of queries of one head, one group of columns of the values, and all segments of the keys or one.
// q (B,H,Tq,D), k (B,Hk,Tk,D), v (B,Hk,Tk,Dv), values (B,H,Tq,Dv); shift,sum,lse (B,H,Tq). Packed sequences: see Rows.
template <class T, int tile, int chunks>
__global__ void __launch_bounds__(tile_threads, is_small<T, tile> ? 2 : 1)
    attention_forward_kernel(const __grid_constant__ tc_attention_forward_args a, const __grid_constant__ Numbers<compute<T>> numbers,
                             const __grid_constant__ Segments<compute<T>> segments)
{
    using Real = compute<T>;
    constexpr int n = tile / tile_side;
    TC_ATTENTION_TILES(Real, tile, shared);
    const tc_attention_problem &p = a.problem;
    BlockPlace place;
    const int64_t group = place.take(p.Dv ? divide_up(p.Dv, tile * chunks) : 1), first = place.take(divide_up(p.Tq, tile)) * tile;
    const int64_t segment = place.take(segments.count), h = place.take(p.H), b = place.rest;
    const Head<T> head(p, numbers, b, h);
    if (first >= head.Tq) return; // a packed sequence that is shorter than the longest
    const int64_t column = group * tile * chunks;

    int64_t begin = head.first_key(p, first) / tile * tile, end = head.end_key(p, first, tile);
    if (segments.count > 1) {
        const int64_t own = segment * TC_ATTENTION_SEGMENT, next = own + TC_ATTENTION_SEGMENT;
        begin = begin < own ? own : begin;
        end = end < next ? end : next;
    }
    Weighed<Real, tile, chunks> total;
    const auto add_until = [&](auto &part, int64_t &key, int64_t last) {
        for (; key < last; key += tile) add_keys<T, tile, chunks>(part, shared, p, head, first, key, column);
    };
    for (int64_t key = begin; key < end;) {
        if constexpr (is_small<T, tile>) {
            add_until(total, key, end);
        } else {
            const int64_t next = (key / TC_ATTENTION_SEGMENT + 1) * TC_ATTENTION_SEGMENT;
            Weighed<Real, tile, chunks> part;
            add_until(part, key, end < next ? end : next);
            total.join(part);
        }
    }
    if (p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM) add_mean<T, tile, chunks>(total, shared, p, head, first, column);

    TC_UNROLL
    for (int i = 0; i < n; i++) {
        const int64_t query = first + own_row(i);
        if (query >= head.Tq) continue;
        const int64_t row = segments.row(p, segment, b, h, query);
        const Real share = share_of(total.largest[i], total.sum[i]);
        T *out = head.template begin<T>(a.values, b, h) + query * a.values.row;
        TC_UNROLL
        for (int c = 0; c < chunks; c++) TC_UNROLL
        for (int j = 0; j < n; j++) {
            const int64_t at = column + c * tile + own_column(j);
            if (at >= p.Dv) continue;
            if (segments.count > 1)
                segments.values[row * p.Dv + at] = total.values[c][i][j];
            else
                narrow(out[at], total.values[c][i][j] * share);
        }
        if (group != 0 || threadIdx.x != 0) continue;
        if (segments.count > 1) {
            segments.largest[row] = total.largest[i];
            segments.sum[row] = total.sum[i];
        } else {
            save_statistics(a, head.statistics(p, b, h) + query, total.largest[i], total.sum[i]);
        }
    }
}

// Joins the segments, in order; one warp per row.
template <class T>
__global__ void __launch_bounds__(warp_lanes *rows_per_block)
    attention_segments_kernel(const __grid_constant__ tc_attention_forward_args a, const __grid_constant__ Segments<compute<T>> segments)
{
    using Real = compute<T>;
    const tc_attention_problem &p = a.problem;
    const WarpRow own(p.Tq, p.H);
    const int64_t query = own.row, h = own.h, b = own.b;
    const Rows rows(p, b);
    if (query >= rows.Tq) return;
    Real largest, sum;
    // f(factors, row) for the segments in which the row has seen a key
    const auto for_segments = [&](auto f) {
        largest = -infinity<Real>;
        for (int64_t segment = 0; segment < segments.count; segment++) {
            const int64_t row = segments.row(p, segment, b, h, query);
            if (is_empty(segments.largest[row], segments.sum[row])) continue;
            const Factors<Real> factors(largest, segments.largest[row]);
            largest = factors.largest;
            f(factors, row);
        }
    };
    sum = 0;
    for_segments([&](const Factors<Real> &factors, int64_t row) { factors.join(sum, segments.sum[row]); });
    if (threadIdx.x == 0) save_statistics(a, rows.statistics(p, b, h) + query, largest, sum);
    const Real share = share_of(largest, sum);
    T *out = rows.begin<T>(a.values, b, h) + query * a.values.row;
    for (int64_t d = threadIdx.x; d < p.Dv; d += warp_lanes) {
        Real value = 0;
        for_segments([&](const Factors<Real> &factors, int64_t row) { factors.join(value, segments.values[row * p.Dv + d]); });
        narrow(out[d], value * share);
    }
}

// map (B,H,Tq,Tk), contiguous. Block: one tile of queries and keys of one head.
template <class T, int tile>
__global__ void __launch_bounds__(tile_threads, 1)
    attention_map_kernel(const __grid_constant__ tc_attention_forward_args a, const __grid_constant__ Numbers<compute<T>> numbers)
{
    using Real = compute<T>;
    constexpr int n = tile / tile_side;
    TC_ATTENTION_TILES(Real, tile, shared);
    const tc_attention_problem &p = a.problem;
    BlockPlace place;
    const int64_t key = place.take(divide_up(p.Tk, tile)) * tile, first = place.take(divide_up(p.Tq, tile)) * tile;
    const int64_t h = place.take(p.H), b = place.rest;
    const Head<T> head(p, numbers, b, h);
    Fragment<Real, tile> score;
    row_products<T, tile>(score, shared, head.q.at(first, 0), head.Tq - first, head.k.at(key, 0), head.Tk - key, p.D);
    TC_UNROLL
    for (int i = 0; i < n; i++) {
        const int64_t query = first + own_row(i), row = (b * p.H + h) * p.Tq + query;
        if (query >= p.Tq) continue;
        const bool there = query < head.Tq; // packed sequences that are shorter than the longest have zeros beyond their ends
        const int64_t statistic = head.statistics(p, b, h) + query;
        const Real shift = there ? static_cast<const Real *>(a.shift)[statistic] : Real(0);
        const Real sum = there ? static_cast<const Real *>(a.sum)[statistic] : Real(1);
        const Real in_empty_row = p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM ? Real(1) / static_cast<Real>(head.Tk) : Real(0);
        TC_UNROLL
        for (int j = 0; j < n; j++) {
            const int64_t other = key + own_column(j);
            if (other >= p.Tk) continue;
            const Real weight = real_exp(finish_score(p, head, query, other, score[i][j]).value - shift);
            narrow(static_cast<T *>(a.map)[row * p.Tk + other], other >= head.Tk ? Real(0) : sum == 0 ? in_empty_row : weight / sum);
        }
    }
}

template <class T> int launch_forward(const tc_attention_forward_args &a, const Segments<compute<T>> &segments, void *stream)
{
    const tc_attention_problem &p = a.problem;
    if constexpr (sizeof(T) == 2) {
        if (a.variant == TC_ATTENTION_MMA) return attention_mma_forward<T>(a, segments, stream);
    }
    if constexpr (sizeof(T) == 4) {
        if (a.variant == TC_ATTENTION_FLOAT) return attention_float_forward(a, segments, stream);
    }
    if (a.variant != TC_ATTENTION_PLAIN) return cudaErrorInvalidValue;
    return with_block_shape<T>(p, p.Dv, [&](auto shape) {
        constexpr int tile = decltype(shape)::tile, chunks = decltype(shape)::chunks;
        const int64_t count = tc_attention_forward_blocks(&p, sizeof(T) == 8) * segments.count;
        const Launch grid(blocks(count), dim3(tile_side, tile_side), 0, stream);
        return launch<attention_forward_kernel<T, tile, chunks>>(grid, a, numbers_of<T>(p), segments);
    });
}

} // namespace

template <class T> size_t tc_cuda_attention_forward_scratch(const void *args)
{
    const auto &a = *static_cast<const tc_attention_forward_args *>(args);
    if (!a.splits_keys) return 0;
    const int64_t rows = Segments<compute<T>>::row(a.problem, tc_attention_segments(&a.problem), 0, 0, 0);
    return static_cast<size_t>(rows * (2 + a.problem.Dv)) * sizeof(compute<T>);
}

template <class T> int tc_cuda_attention_forward(const void *args, int64_t, void *scratch, void *stream)
{
    const auto &a = *static_cast<const tc_attention_forward_args *>(args);
    const tc_attention_problem &p = a.problem;
    const int64_t heads = p.B * p.H;
    if (heads == 0 || p.Tq == 0) return 0;
    const auto segments = segments_of<compute<T>>(a, scratch);
    const int error = launch_forward<T>(a, segments, stream);
    if (error) return error;
    if (segments.count > 1) {
        const int second = launch<attention_segments_kernel<T>>(warp_row_launch(p.Tq, heads, stream), a, segments);
        if (second) return second;
    }
    if constexpr (sizeof(T) <= 4) {
        const bool wants_mean = a.variant != TC_ATTENTION_PLAIN && p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM;
        const int third = wants_mean ? attention_mean<T>(a, stream) : 0;
        if (third) return third;
    }
    if (!a.map || p.Tk == 0) return 0;
    if constexpr (sizeof(T) == 2) {
        if (a.variant == TC_ATTENTION_MMA) return attention_mma_map<T>(a, stream);
    }
    return with_block_shape<T>(p, p.Dv, [&](auto shape) {
        constexpr int tile = decltype(shape)::tile;
        const int64_t count = heads * divide_up(p.Tq, tile) * divide_up(p.Tk, tile);
        return launch<attention_map_kernel<T, tile>>(Launch(blocks(count), dim3(tile_side, tile_side), 0, stream), a, numbers_of<T>(p));
    });
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE_WITH_SCRATCH, attention_forward)
