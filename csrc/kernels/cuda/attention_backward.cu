// attention_backward.cu: the gradients of attention with weights recomputed from values saved by the forward.
//
// With p the attention, dp = dvalues . v (+ dmap) and delta = rowsum(dvalues * values) (+ rowsum(dmap * map)) - dlse:
//     dbias = p * (dp - delta),   dscore = dbias * slope,   dq = dscore k,   dk = dscore^T q,   dv = p^T dvalues.
// Each result element is summed by one block in order, or by several whose sums are added up in order: no atomics, the same bits every
// time.
#include "attention_score.cuh"
#include "launchers.h"
#include <math.h>

namespace
{

using namespace tc;

// The rows of all heads.
int64_t rows_of_heads(const tc_attention_problem &p) { return p.sequences ? p.H * p.tokens : p.B * p.H * p.Tq; }

// delta (B,H,Tq), or (H,tokens); one warp per row of (B,H,Tq).
template <class T>
__global__ void __launch_bounds__(warp_lanes *rows_per_block)
    attention_delta_kernel(const __grid_constant__ tc_attention_backward_args a, void *delta)
{
    using Real = compute<T>;
    const tc_attention_problem &p = a.problem;
    const WarpRow own(p.Tq, p.H);
    const int64_t query = own.row, h = own.h, b = own.b;
    const Rows rows(p, b);
    if (query >= rows.Tq) return;
    const int64_t row = (b * p.H + h) * p.Tq + query;
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

    __device__ __forceinline__ BackwardHead(const tc_attention_backward_args &args, const Numbers<Real> &numbers, const void *all_delta,
                                            int64_t b, int64_t h)
        : a(args), head(args.problem, numbers, b, h)
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

__host__ __device__ __forceinline__ const tc_attention_operand &result_of(const tc_attention_backward_args &a, Gradient gradient)
{
    return gradient == Gradient::query ? a.dq : gradient == Gradient::key ? a.dk : a.dv;
}

// dq, dk or dv: its rows, and how the tiles of the other rows, which a row is a sum over, are shared among blocks.
struct Wanted {
    Gradient gradient;
    int64_t heads, rows, width;
    int64_t shares;
    void *partial; // (shares,B,heads,rows,width) in the compute dtype, where there are several

    __host__ __device__ __forceinline__ int64_t row(int64_t share, int64_t B, int64_t b, int64_t h, int64_t i) const
    {
        return ((share * B + b) * heads + h) * rows + i;
    }
};

// Block: one tile of rows (of one query head for dq, otherwise of one key head), one group of columns, and every shares-th tile of the
// others.
template <class T, int tile, int chunks>
__global__ void __launch_bounds__(tile_threads, 1)
    attention_gradient_kernel(const __grid_constant__ tc_attention_backward_args a, const __grid_constant__ Numbers<compute<T>> numbers,
                              const void *delta, const __grid_constant__ Wanted of)
{
    using Real = compute<T>;
    constexpr int n = tile / tile_side;
    TC_ATTENTION_TILES(Real, tile, shared);
    const tc_attention_problem &p = a.problem;
    const Gradient wanted = of.gradient;
    const bool own_queries = wanted == Gradient::query;
    const int64_t width = of.width;
    BlockPlace place;
    const int64_t column = place.take(divide_up(width, tile * chunks)) * tile * chunks, own = place.take(divide_up(of.rows, tile)) * tile;
    const int64_t share = place.take(of.shares), own_head = place.take(of.heads), b = place.rest;
    const Rows rows(p, b);
    const int64_t own_rows = own_queries ? rows.Tq : rows.Tk;
    if (own >= own_rows) return; // a packed sequence that is shorter than the longest
    const int64_t query_heads = own_queries ? 1 : static_cast<uint32_t>(p.H) / static_cast<uint32_t>(p.Hk); // those that read this key head

    Fragment<Real, tile> gradient[chunks];
    TC_UNROLL
    for (auto &chunk : gradient) clear<Real, tile>(chunk);
    for (int64_t h = own_head * query_heads; h < (own_head + 1) * query_heads; h++) {
        const BackwardHead<T> backward(a, numbers, delta, b, h);
        const Head<T> &head = backward.head;
        const Operand<T> x = own_queries ? head.q : head.k, y = own_queries ? head.k : head.q;
        const Operand<T> dx = own_queries ? backward.dvalues : head.v, dy = own_queries ? head.v : backward.dvalues;
        const Operand<T> weighed = wanted == Gradient::value ? backward.dvalues : y;
        const int64_t other_rows = own_queries ? rows.Tk : rows.Tq;
        // Uniform empty rows reach every value.
        const bool all = wanted == Gradient::value && p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM;
        const int64_t begin = own_queries ? head.first_key(p, own) : all ? 0 : head.first_query(p, own);
        const int64_t end = own_queries ? head.end_key(p, own, tile) : all ? rows.Tq : head.end_query(p, own, tile);
        for (int64_t other = (begin / tile + share) * tile; other < end; other += of.shares * tile) {
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
        const tc_attention_operand &result = result_of(a, wanted);
        T *out = rows.begin<T>(result, b, own_head) + row * result.row;
        Real *part = static_cast<Real *>(of.partial) + of.row(share, p.B, b, own_head, row) * width;
        TC_UNROLL
        for (int c = 0; c < chunks; c++) TC_UNROLL
        for (int j = 0; j < n; j++) {
            const int64_t at = column + c * tile + own_column(j);
            if (at >= width) continue;
            if (of.shares > 1)
                part[at] = gradient[c][i][j];
            else
                narrow(out[at], gradient[c][i][j]);
        }
    }
}

// Adds up the shares, in order; one warp per row.
template <class T>
__global__ void __launch_bounds__(warp_lanes *rows_per_block)
    attention_join_kernel(const __grid_constant__ tc_attention_backward_args a, const __grid_constant__ Wanted of)
{
    using Real = compute<T>;
    const tc_attention_problem &p = a.problem;
    const WarpRow own(of.rows, of.heads);
    const int64_t row = own.row, h = own.h, b = own.b;
    const Rows rows(p, b);
    if (row >= (of.gradient == Gradient::query ? rows.Tq : rows.Tk)) return;
    const tc_attention_operand &result = result_of(a, of.gradient);
    T *out = rows.begin<T>(result, b, h) + row * result.row;
    for (int64_t d = threadIdx.x; d < of.width; d += warp_lanes) {
        Real sum = 0;
        for (int64_t share = 0; share < of.shares; share++)
            sum += static_cast<const Real *>(of.partial)[of.row(share, p.B, b, h, row) * of.width + d];
        narrow(out[d], sum);
    }
}

// The gradient of an additive term. Block: one tile of its elements; it adds up all pairs the term was broadcast to, in order.
template <class T, int tile>
__global__ void __launch_bounds__(tile_threads, 1)
    attention_dbias_kernel(const __grid_constant__ tc_attention_dbias_args a, const __grid_constant__ Numbers<compute<T>> numbers,
                           const void *delta)
{
    using Real = compute<T>;
    constexpr int n = tile / tile_side;
    TC_ATTENTION_TILES(Real, tile, shared);
    const tc_attention_problem &p = a.backward.problem;
    const tc_attention_plane &plane = a.dbias;
    const bool one_row = a.rows == 1, one_column = plane.column == 0;
    BlockPlace place;
    const int64_t key_tile = place.take(one_column ? 1 : divide_up(p.Tk, tile)),
                  query_tile = place.take(one_row ? 1 : divide_up(p.Tq, tile));
    const int64_t own_head = place.take(a.heads), own_batch = place.rest;
    const int64_t first_query = one_row ? 0 : query_tile * tile, first_key = one_column ? 0 : key_tile * tile;

    Fragment<Real, tile> sum;
    clear<Real, tile>(sum);
    for (int64_t b = a.batches == 1 ? 0 : own_batch; b < (a.batches == 1 ? p.B : own_batch + 1); b++) {
        for (int64_t h = a.heads == 1 ? 0 : own_head; h < (a.heads == 1 ? p.H : own_head + 1); h++) {
            const BackwardHead<T> backward(a.backward, numbers, delta, b, h);
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
    T *out = static_cast<T *>(plane.data) + (a.batches == 1 ? 0 : own_batch * plane.batch) + (a.heads == 1 ? 0 : own_head * plane.head);
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
        narrow(out[(first_query + row) * plane.row + (first_key + column) * plane.column], total);
    }
}

template <class T> int launch_delta(const tc_attention_backward_args &a, void *delta, void *stream)
{
    const tc_attention_problem &p = a.problem;
    return launch<attention_delta_kernel<T>>(warp_row_launch(p.Tq, p.B * p.H, stream), a, delta);
}

// A gradient; `partial`: memory for its shares.
Wanted wanted_of(const tc_attention_backward_args &a, Gradient gradient, void *partial)
{
    const tc_attention_problem &p = a.problem;
    switch (gradient) {
    case Gradient::query: return {gradient, p.H, p.Tq, p.D, a.shares[0], partial};
    case Gradient::key: return {gradient, p.Hk, p.Tk, p.D, a.shares[1], partial};
    default: return {gradient, p.Hk, p.Tk, p.Dv, a.shares[2], partial};
    }
}

template <class T> int launch_gradient(const tc_attention_backward_args &a, const Wanted &of, const void *delta, void *stream)
{
    const tc_attention_problem &p = a.problem;
    const tc_attention_operand &result = result_of(a, of.gradient);
    const int64_t heads = p.B * of.heads;
    if (!result.data || heads * of.rows * of.width == 0) return 0;
    const int error = with_block_shape<T>(p, of.width, [&](auto shape) {
        constexpr int tile = decltype(shape)::tile, chunks = decltype(shape)::chunks;
        const int64_t count = heads * divide_up(of.rows, tile) * divide_up(of.width, tile * chunks) * of.shares;
        return launch<attention_gradient_kernel<T, tile, chunks>>(Launch(blocks(count), dim3(tile_side, tile_side), 0, stream), a,
                                                                  numbers_of<T>(p), delta, of);
    });
    if (error || of.shares == 1) return error;
    return launch<attention_join_kernel<T>>(warp_row_launch(of.rows, heads, stream), a, of);
}

constexpr Gradient gradients[] = {Gradient::query, Gradient::key, Gradient::value};

} // namespace

// The delta of each row, and the shares of one gradient at a time.
template <class T> size_t tc_cuda_attention_backward_scratch(const void *args)
{
    const auto &a = *static_cast<const tc_attention_backward_args *>(args);
    int64_t most = 0;
    for (const Gradient gradient : gradients) {
        const Wanted of = wanted_of(a, gradient, nullptr);
        const int64_t elements = of.shares > 1 ? of.row(of.shares, a.problem.B, 0, 0, 0) * of.width : 0;
        if (elements > most) most = elements;
    }
    return static_cast<size_t>(rows_of_heads(a.problem) + most) * sizeof(compute<T>);
}

// Writes all of dk and dv: no partial sums remain for the op.
template <class T> int tc_cuda_attention_backward(const void *args, int64_t, void *scratch, void *stream)
{
    const auto &a = *static_cast<const tc_attention_backward_args *>(args);
    const tc_attention_problem &p = a.problem;
    if (p.B * p.H * p.Tq > 0) {
        const int error = launch_delta<T>(a, scratch, stream);
        if (error) return error;
    }
    for (const Gradient gradient : gradients) {
        const Wanted of = wanted_of(a, gradient, static_cast<compute<T> *>(scratch) + rows_of_heads(p));
        const int error = launch_gradient<T>(a, of, scratch, stream);
        if (error) return error;
    }
    return 0;
}

template <class T> size_t tc_cuda_attention_dbias_scratch(const void *args)
{
    const tc_attention_problem &p = static_cast<const tc_attention_dbias_args *>(args)->backward.problem;
    return static_cast<size_t>(rows_of_heads(p)) * sizeof(compute<T>);
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
    return launch<attention_dbias_kernel<T, tile>>(Launch(blocks(count), dim3(tile_side, tile_side), 0, stream), a, numbers_of<T>(p),
                                                   delta);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE_WITH_SCRATCH, attention_backward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE_WITH_SCRATCH, attention_dbias)
