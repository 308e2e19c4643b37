// attention_backward.cu: the gradients of attention with weights recomputed from values saved by the forward.
//
// With p the attention, dp = dvalues . v (+ dmap) and delta = rowsum(dvalues * values) (+ rowsum(dmap * map)) - dlse:
//     dbias = p * (dp - delta),   dscore = dbias * slope,   dq = dscore k,   dk = dscore^T q,   dv = p^T dvalues.
// Each result element is summed by one block in order: no atomics, the same bits every time.
#include "attention_score.cuh"
#include "launchers.h"
#include <math.h>

namespace
{

using namespace tc;

constexpr int rows_per_block = 8;

// The rows of all heads.
int64_t rows_of_heads(const tc_attention_problem &p) { return p.sequences ? p.H * p.tokens : p.B * p.H * p.Tq; }

// delta (B,H,Tq), or (H,tokens); one warp per row of (B,H,Tq).
template <class T>
__global__ void __launch_bounds__(warp_lanes *rows_per_block)
    attention_delta_kernel(const __grid_constant__ tc_attention_backward_args a, void *delta)
{
    using Real = compute<T>;
    const tc_attention_problem &p = a.problem;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * rows_per_block + threadIdx.y;
    if (row >= p.B * p.H * p.Tq) return;
    const int64_t b = row / p.Tq / p.H, h = row / p.Tq % p.H, query = row % p.Tq;
    const Rows rows(p, b);
    if (query >= rows.Tq) return;
    const int64_t statistic = rows.statistics(p, b, h) + query;
    const T *values = rows.begin<const T>(a.values, b, h) + query * a.values.row;
    const T *dvalues = rows.begin<const T>(a.dvalues, b, h) + query * a.dvalues.row;
    Real sum = 0;
    for (int64_t d = threadIdx.x; d < p.Dv; d += warp_lanes) sum += widen(values[d]) * widen(dvalues[d]);
    if (a.dmap) {
        const T *map = static_cast<const T *>(a.map) + row * p.Tk, *dmap = static_cast<const T *>(a.dmap) + row * p.Tk;
        for (int64_t j = threadIdx.x; j < rows.Tk; j += warp_lanes)
            if (widen(map[j]) != 0) sum += widen(map[j]) * widen(dmap[j]); // keys without weight do not count, NaN or not
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0) static_cast<Real *>(delta)[statistic] = sum - (a.dlse ? static_cast<const Real *>(a.dlse)[statistic] : Real(0));
}

// One head of the backward: values of query (b,h,i) and of pairs of query and key.
template <class T> struct BackwardHead {
    using Real = compute<T>;
    const tc_attention_backward_args &a;
    const Head<T> head;
    Operand<T> dvalues;
    const T *dmap; // (Tq,Tk) or null
    const Real *shift, *sum, *delta;

    __device__ __forceinline__ BackwardHead(const tc_attention_backward_args &args, const void *all_delta, int64_t b, int64_t h)
        : a(args), head(args.problem, b, h)
    {
        const int64_t row = head.statistics(a.problem, b, h);
        dvalues = head.template of<T>(a.dvalues, b, h);
        dmap = a.dmap ? static_cast<const T *>(a.dmap) + (b * a.problem.H + h) * a.problem.Tq * a.problem.Tk : nullptr;
        shift = static_cast<const Real *>(a.shift) + row;
        sum = static_cast<const Real *>(a.sum) + row;
        delta = static_cast<const Real *>(all_delta) + row;
    }

    struct Pair {
        Real weight, dbias, dscore; // weight: after dropout
        bool hidden;
    };
    // From the products q . k and dvalues . v of a pair and its factor of dropout.
    __device__ __forceinline__ Pair pair(int64_t query, int64_t key, Real qk, Real dv, Real kept) const
    {
        const tc_attention_problem &p = a.problem;
        const Score<Real> score = finish_score(p, head, query, key, qk);
        Pair out = {0, 0, 0, score.hidden};
        if (query >= head.Tq || key >= head.Tk) return out;
        const Real share = sum[query];
        if (share == 0) { // an empty row: only the values, of which it took the mean, get a gradient
            if (p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM) out.weight = kept / static_cast<Real>(head.Tk);
            return out;
        }
        if (score.hidden) return out;
        const Real weight = real_exp(score.value - shift[query]) / share;
        out.weight = weight * kept;
        if (score.filled) return out;
        const Real dp = dv * kept + (dmap ? widen(dmap[query * p.Tk + key]) : Real(0));
        out.dbias = weight * (dp - delta[query]);
        out.dscore = out.dbias * score.slope;
        return out;
    }
};

enum class Gradient { query, key, value };

// dq, dk or dv. Block: one tile of their rows (of one query head for dq, otherwise of one key head) and one group of columns.
template <class T, int tile, int chunks>
__global__ void __launch_bounds__(tile_threads, 1)
    attention_gradient_kernel(const __grid_constant__ tc_attention_backward_args a, const void *delta, Gradient wanted)
{
    using Real = compute<T>;
    constexpr int n = tile / tile_side;
    TC_ATTENTION_TILES(Real, tile, shared);
    const tc_attention_problem &p = a.problem;
    const bool own_queries = wanted == Gradient::query;
    const tc_attention_operand &result = own_queries ? a.dq : wanted == Gradient::key ? a.dk : a.dv;
    const int64_t heads = own_queries ? p.H : p.Hk, width = wanted == Gradient::value ? p.Dv : p.D;
    const int64_t groups = divide_up(width, tile * chunks), own_tiles = divide_up(own_queries ? p.Tq : p.Tk, tile);
    const int64_t column = blockIdx.x % groups * tile * chunks, own = blockIdx.x / groups % own_tiles * tile;
    const int64_t b = blockIdx.x / groups / own_tiles / heads, own_head = blockIdx.x / groups / own_tiles % heads;
    const Rows rows(p, b);
    const int64_t own_rows = own_queries ? rows.Tq : rows.Tk;
    if (own >= own_rows) return;                              // a packed sequence that is shorter than the longest
    const int64_t query_heads = own_queries ? 1 : p.H / p.Hk; // those that read this key head

    Fragment<Real, tile> gradient[chunks];
    TC_UNROLL
    for (auto &chunk : gradient) clear<Real, tile>(chunk);
    for (int64_t h = own_head * query_heads; h < (own_head + 1) * query_heads; h++) {
        const BackwardHead<T> backward(a, delta, b, h);
        const Head<T> &head = backward.head;
        const Operand<T> x = own_queries ? head.q : head.k, y = own_queries ? head.k : head.q;
        const Operand<T> dx = own_queries ? backward.dvalues : head.v, dy = own_queries ? head.v : backward.dvalues;
        const Operand<T> weighed = wanted == Gradient::value ? backward.dvalues : y;
        const int64_t other_rows = own_queries ? rows.Tk : rows.Tq;
        // Uniform empty rows reach every value.
        const bool all = wanted == Gradient::value && p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM;
        const int64_t begin = own_queries ? head.first_key(p, own) : all ? 0 : head.first_query(p, own);
        const int64_t end = own_queries ? head.end_key(p, own, tile) : all ? rows.Tq : head.end_query(p, own, tile);
        for (int64_t other = begin / tile * tile; other < end; other += tile) {
            Fragment<Real, tile> product, dproduct, kept;
            clear<Real, tile>(dproduct);
            row_products<T, tile>(product, shared, x.at(own, 0), own_rows - own, y.at(other, 0), other_rows - other, p.D);
            if (wanted != Gradient::value)
                row_products<T, tile>(dproduct, shared, dx.at(own, 0), own_rows - own, dy.at(other, 0), other_rows - other, p.Dv);
            dropout_factors<T, tile>(kept, p, head, own_queries, own, other);
            bool holes = false;
            TC_UNROLL
            for (int i = 0; i < n; i++) {
                TC_UNROLL
                for (int j = 0; j < n; j++) {
                    const int64_t mine = own + own_row(i), theirs = other + own_column(j);
                    const int64_t query = own_queries ? mine : theirs, key = own_queries ? theirs : mine;
                    const auto pair = backward.pair(query, key, product[i][j], dproduct[i][j], kept[i][j]);
                    shared.weight[own_column(j)][own_row(i)] = wanted == Gradient::value ? pair.weight : pair.dscore;
                    const bool hidden = pair.hidden && !(wanted == Gradient::value && pair.weight != 0); // except for uniform rows
                    shared.hidden[own_column(j)][own_row(i)] = hidden;
                    holes = holes || (hidden && mine < own_rows && theirs < other_rows);
                }
            }
            holes = __syncthreads_or(holes);
            weigh_rows<T, tile, chunks>(gradient, shared, holes, weighed.at(other, column), other_rows - other, width - column);
        }
    }
    TC_UNROLL
    for (int i = 0; i < n; i++) {
        const int64_t row = own + own_row(i);
        if (row >= own_rows) continue;
        T *out = rows.begin<T>(result, b, own_head) + row * result.row;
        TC_UNROLL
        for (int c = 0; c < chunks; c++) TC_UNROLL
        for (int j = 0; j < n; j++)
            if (column + c * tile + own_column(j) < width) narrow(out[column + c * tile + own_column(j)], gradient[c][i][j]);
    }
}

// The gradient of an additive term. Block: one tile of its elements; it adds up all pairs the term was broadcast to, in order.
template <class T, int tile>
__global__ void __launch_bounds__(tile_threads, 1)
    attention_dbias_kernel(const __grid_constant__ tc_attention_dbias_args a, const void *delta)
{
    using Real = compute<T>;
    constexpr int n = tile / tile_side;
    TC_ATTENTION_TILES(Real, tile, shared);
    const tc_attention_problem &p = a.backward.problem;
    const tc_attention_plane &plane = a.dbias;
    const bool one_row = a.rows == 1, one_column = plane.column == 0;
    const int64_t row_tiles = one_row ? 1 : divide_up(p.Tq, tile), column_tiles = one_column ? 1 : divide_up(p.Tk, tile);
    const int64_t key_tile = blockIdx.x % column_tiles, query_tile = blockIdx.x / column_tiles % row_tiles;
    const int64_t own_head = blockIdx.x / column_tiles / row_tiles % a.heads, own_batch = blockIdx.x / column_tiles / row_tiles / a.heads;
    const int64_t first_query = one_row ? 0 : query_tile * tile, first_key = one_column ? 0 : key_tile * tile;

    Fragment<Real, tile> sum;
    clear<Real, tile>(sum);
    for (int64_t b = a.batches == 1 ? 0 : own_batch; b < (a.batches == 1 ? p.B : own_batch + 1); b++) {
        for (int64_t h = a.heads == 1 ? 0 : own_head; h < (a.heads == 1 ? p.H : own_head + 1); h++) {
            const BackwardHead<T> backward(a.backward, delta, b, h);
            const Head<T> &head = backward.head;
            const int64_t end_query = one_row || first_query >= head.Tq ? head.Tq : first_query + 1;
            const int64_t end_key = one_column || first_key >= head.Tk ? head.Tk : first_key + 1;
            for (int64_t query = first_query; query < end_query; query += tile) {
                for (int64_t key = first_key; key < end_key; key += tile) {
                    Fragment<Real, tile> product, dproduct, kept;
                    dropout_factors<T, tile>(kept, p, head, true, query, key);
                    row_products<T, tile>(product, shared, head.q.at(query, 0), head.Tq - query, head.k.at(key, 0), head.Tk - key, p.D);
                    row_products<T, tile>(dproduct, shared, backward.dvalues.at(query, 0), head.Tq - query, head.v.at(key, 0),
                                          head.Tk - key, p.Dv);
                    TC_UNROLL
                    for (int i = 0; i < n; i++) TC_UNROLL
                    for (int j = 0; j < n; j++)
                        sum[i][j] +=
                            backward.pair(query + own_row(i), key + own_column(j), product[i][j], dproduct[i][j], kept[i][j]).dbias;
                }
            }
        }
    }
    Real *out =
        static_cast<Real *>(plane.data) + (a.batches == 1 ? 0 : own_batch * plane.batch) + (a.heads == 1 ? 0 : own_head * plane.head);
    // Sums along broadcast axes through shared memory, in order.
    TC_UNROLL
    for (int i = 0; i < n; i++) TC_UNROLL
    for (int j = 0; j < n; j++) shared.weight[own_row(i)][own_column(j)] = sum[i][j];
    __syncthreads();
    for (int e = thread_in_tile(); e < tile * tile; e += tile_threads) {
        const int row = e / tile, column = e % tile;
        if ((one_row && row > 0) || (one_column && column > 0)) continue;
        if ((!one_row && first_query + row >= p.Tq) || (!one_column && first_key + column >= p.Tk)) continue;
        Real total = 0;
        for (int i = row; i < (one_row ? tile : row + 1); i++)
            for (int j = column; j < (one_column ? tile : column + 1); j++) total += shared.weight[i][j];
        out[(first_query + row) * plane.row + (first_key + column) * plane.column] = total;
    }
}

template <class T> int launch_delta(const tc_attention_backward_args &a, void *delta, void *stream)
{
    const int64_t rows = a.problem.B * a.problem.H * a.problem.Tq;
    return launch<attention_delta_kernel<T>>(Launch(blocks(divide_up(rows, rows_per_block)), dim3(warp_lanes, rows_per_block), 0, stream),
                                             a, delta);
}

} // namespace

// The delta of each row.
template <class T> size_t tc_cuda_attention_backward_scratch(const void *args)
{
    const tc_attention_problem &p = static_cast<const tc_attention_backward_args *>(args)->problem;
    return static_cast<size_t>(rows_of_heads(p)) * sizeof(compute<T>);
}

// Writes all of dk and dv for any `splits`: each key tile has its own block, so that no partial sums remain.
template <class T> int tc_cuda_attention_backward(const void *args, int64_t, void *scratch, void *stream)
{
    const auto &a = *static_cast<const tc_attention_backward_args *>(args);
    const tc_attention_problem &p = a.problem;
    if (p.B * p.H * p.Tq > 0) {
        const int error = launch_delta<T>(a, scratch, stream);
        if (error) return error;
    }
    const auto gradient = [&](Gradient wanted, const tc_attention_operand &result, int64_t heads, int64_t rows, int64_t width) {
        if (!result.data || p.B * heads * rows * width == 0) return 0;
        return with_block_shape<T>(p.Tq > p.Tk ? p.Tq : p.Tk, width, [&](auto shape) {
            constexpr int tile = decltype(shape)::tile, chunks = decltype(shape)::chunks;
            const int64_t count = p.B * heads * divide_up(rows, tile) * divide_up(width, tile * chunks);
            const void *delta = scratch;
            return launch<attention_gradient_kernel<T, tile, chunks>>(Launch(blocks(count), dim3(tile_side, tile_side), 0, stream), a,
                                                                      delta, wanted);
        });
    };
    int error = gradient(Gradient::query, a.dq, p.H, p.Tq, p.D);
    if (!error) error = gradient(Gradient::key, a.dk, p.Hk, p.Tk, p.D);
    if (!error) error = gradient(Gradient::value, a.dv, p.Hk, p.Tk, p.Dv);
    return error;
}

template <class T> size_t tc_cuda_attention_dbias_scratch(const void *args)
{
    return tc_cuda_attention_backward_scratch<T>(&static_cast<const tc_attention_dbias_args *>(args)->backward);
}

template <class T> int tc_cuda_attention_dbias(const void *args, int64_t, void *scratch, void *stream)
{
    const auto &a = *static_cast<const tc_attention_dbias_args *>(args);
    const tc_attention_problem &p = a.backward.problem;
    if (p.B * p.H * p.Tq * p.Tk == 0) return 0;
    const int error = launch_delta<T>(a.backward, scratch, stream);
    if (error) return error;
    constexpr int tile = 32;
    const int64_t row_tiles = a.rows == 1 ? 1 : divide_up(p.Tq, tile), column_tiles = a.dbias.column == 0 ? 1 : divide_up(p.Tk, tile);
    const int64_t count = a.batches * a.heads * row_tiles * column_tiles;
    const void *delta = scratch;
    return launch<attention_dbias_kernel<T, tile>>(Launch(blocks(count), dim3(tile_side, tile_side), 0, stream), a, delta);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE_WITH_SCRATCH, attention_backward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE_WITH_SCRATCH, attention_dbias)
