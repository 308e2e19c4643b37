// attention.cu: softmax(scores) v by tiles of keys with a running maximum and sum (Milakov and Gimelshein 2018), so that nothing
// of size Tq x Tk is stored; the map, if wanted, is computed from saved values. Plain products in the compute dtype, for every
// shape and mask: the reference for faster kernels on the device.
#include "attention_score.cuh"
#include "launchers.h"
#include <math.h>

namespace
{

using namespace tc;

// Block: one tile of queries of one head, and one group of columns of the values.
// q (B,H,Tq,D), k (B,Hk,Tk,D), v (B,Hk,Tk,Dv), values (B,H,Tq,Dv); shift,sum,lse (B,H,Tq). Packed sequences: see Rows.
template <class T, int tile, int chunks>
__global__ void __launch_bounds__(tile_threads, 1)
    attention_forward_kernel(const __grid_constant__ tc_attention_forward_args a, const __grid_constant__ Numbers<compute<T>> numbers)
{
    using Real = compute<T>;
    constexpr int n = tile / tile_side;
    constexpr Real infinity = static_cast<Real>(INFINITY);
    TC_ATTENTION_TILES(Real, tile, shared);
    const tc_attention_problem &p = a.problem;
    BlockPlace place;
    const int64_t group = place.take(p.Dv ? divide_up(p.Dv, tile * chunks) : 1), first = place.take(divide_up(p.Tq, tile)) * tile;
    const int64_t h = place.take(p.H), b = place.rest;
    const Head<T> head(p, numbers, b, h);
    if (first >= head.Tq) return; // a packed sequence that is shorter than the longest
    const int64_t column = group * tile * chunks;

    Real largest[n], sum[n];
    TC_UNROLL
    for (int i = 0; i < n; i++) {
        largest[i] = -infinity;
        sum[i] = 0;
    }
    Fragment<Real, tile> values[chunks];
    TC_UNROLL
    for (auto &chunk : values) clear<Real, tile>(chunk);

    const int64_t end = head.end_key(p, first, tile);
    for (int64_t key = head.first_key(p, first) / tile * tile; key < end; key += tile) {
        Fragment<Real, tile> score;
        row_products<T, tile>(score, shared, head.q.at(first, 0), head.Tq - first, head.k.at(key, 0), head.Tk - key, p.D);
        Fragment<Real, tile> kept;
        dropout_factors<T, tile>(kept, p, head, true, first, key);
        bool holes = false;
        TC_UNROLL
        for (int i = 0; i < n; i++) {
            Real top = largest[i];
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
            const Real shift = top == -infinity ? Real(0) : top, shrink = real_exp(largest[i] - shift);
            largest[i] = top;
            Real row = 0;
            TC_UNROLL
            for (int j = 0; j < n; j++) {
                const Real weight = real_exp(score[i][j] - shift);
                shared.weight[own_column(j)][own_row(i)] = weight * kept[i][j];
                row += weight;
            }
            sum[i] = sum[i] * shrink + row_sum(row);
            TC_UNROLL
            for (auto &chunk : values) TC_UNROLL
            for (Real &value : chunk[i]) value *= shrink;
        }
        holes = __syncthreads_or(holes);
        weigh_rows<T, tile, chunks>(values, shared, holes, head.v.at(key, column), head.Tk - key, p.Dv - column);
    }

    bool empty[n], any_empty = false;
    TC_UNROLL
    for (int i = 0; i < n; i++) {
        empty[i] = largest[i] == -infinity && sum[i] == 0;
        any_empty = any_empty || (empty[i] && first + own_row(i) < head.Tq);
    }
    if (p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM && __syncthreads_or(any_empty)) {
        for (int64_t key = 0; key < head.Tk; key += tile) {
            Fragment<Real, tile> kept;
            dropout_factors<T, tile>(kept, p, head, true, first, key);
            TC_UNROLL
            for (int i = 0; i < n; i++) {
                TC_UNROLL
                for (int j = 0; j < n; j++) {
                    shared.weight[own_column(j)][own_row(i)] =
                        key + own_column(j) < head.Tk ? kept[i][j] / static_cast<Real>(head.Tk) : Real(0);
                    shared.hidden[own_column(j)][own_row(i)] = !empty[i];
                }
            }
            __syncthreads();
            weigh_rows<T, tile, chunks>(values, shared, true, head.v.at(key, column), head.Tk - key, p.Dv - column);
        }
    }

    TC_UNROLL
    for (int i = 0; i < n; i++) {
        const int64_t query = first + own_row(i);
        if (query >= head.Tq) continue;
        const Real share = empty[i] ? Real(1) : Real(1) / sum[i];
        T *out = head.template begin<T>(a.values, b, h) + query * a.values.row;
        TC_UNROLL
        for (int c = 0; c < chunks; c++) TC_UNROLL
        for (int j = 0; j < n; j++)
            if (column + c * tile + own_column(j) < p.Dv) narrow(out[column + c * tile + own_column(j)], values[c][i][j] * share);
        if (group != 0 || threadIdx.x != 0) continue;
        const int64_t row = head.statistics(p, b, h) + query;
        const Real shift = empty[i] ? Real(0) : largest[i];
        static_cast<Real *>(a.shift)[row] = shift;
        static_cast<Real *>(a.sum)[row] = empty[i] ? Real(0) : sum[i];
        if (a.lse) static_cast<Real *>(a.lse)[row] = empty[i] ? -infinity : shift + real_log(sum[i]);
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

} // namespace

template <class T> int tc_cuda_attention_forward(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_attention_forward_args *>(args);
    const tc_attention_problem &p = a.problem;
    const int64_t heads = p.B * p.H;
    if (heads == 0 || p.Tq == 0) return 0;
    const auto numbers = numbers_of<T>(p);
    return with_block_shape<T>(p, p.Dv, [&](auto shape) {
        constexpr int tile = decltype(shape)::tile, chunks = decltype(shape)::chunks;
        const dim3 threads(tile_side, tile_side);
        const int64_t groups = p.Dv ? divide_up(p.Dv, tile * chunks) : 1, query_tiles = divide_up(p.Tq, tile);
        const int error =
            launch<attention_forward_kernel<T, tile, chunks>>(Launch(blocks(heads * query_tiles * groups), threads, 0, stream), a, numbers);
        if (error || !a.map || p.Tk == 0) return error;
        return launch<attention_map_kernel<T, tile>>(Launch(blocks(heads * query_tiles * divide_up(p.Tk, tile)), threads, 0, stream), a,
                                                     numbers);
    });
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, attention_forward)
