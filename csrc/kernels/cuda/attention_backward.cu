// attention_backward.cu: the gradients of attention with weights recomputed from values saved by the forward.
//
// With p the attention, dp = dvalues . v (+ dmap) and delta = rowsum(dvalues * values) (+ rowsum(dmap * map)) - dlse:
//     dbias = p * (dp - delta),   dscore = dbias * slope,   dq = dscore k,   dk = dscore^T q,   dv = p^T dvalues.
// Each result element is summed by one block in order, or by several whose sums are added up in order: no atomics, the same bits every
// time.
#include "attention_backward.cuh"
#include "launchers.h"
#include <math.h>

namespace
{

using namespace tc;

// The rows of all heads.
int64_t rows_of_heads(const tc_attention_problem &p) { return p.sequences ? p.H * p.tokens : p.B * p.H * p.Tq; }

// The numbers of each query; one warp per row of (B,H,Tq).
template <class T>
__global__ void __launch_bounds__(warp_lanes *rows_per_block)
    attention_delta_kernel(const __grid_constant__ tc_attention_backward_args a, const __grid_constant__ QueryNumbers<compute<T>> out)
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
    if (threadIdx.x != 0) return;
    out.delta[statistic] = sum - (a.dlse ? static_cast<const Real *>(a.dlse)[statistic] : Real(0));
    if (!out.share) return;
    const Real total = static_cast<const Real *>(a.sum)[statistic];
    out.share[statistic] = total == 0 ? Real(0) : 1 / total;
    if (out.shift) out.shift[statistic] = -static_cast<const Real *>(a.shift)[statistic] * log2_e;
}

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

template <class T> int launch_delta(const tc_attention_backward_args &a, const QueryNumbers<compute<T>> &out, void *stream)
{
    const tc_attention_problem &p = a.problem;
    return launch<attention_delta_kernel<T>>(warp_row_launch(p.Tq, p.B * p.H, stream), a, out);
}

Wanted wanted_of(const tc_attention_backward_args &a, Gradient gradient)
{
    const tc_attention_problem &p = a.problem;
    switch (gradient) {
    case Gradient::query: return {gradient, p.H, p.Tq, p.D, a.shares[0], nullptr};
    case Gradient::key: return {gradient, p.Hk, p.Tk, p.D, a.shares[1], nullptr};
    default: return {gradient, p.Hk, p.Tk, p.Dv, a.shares[a.variant == TC_ATTENTION_PLAIN ? 2 : 1], nullptr};
    }
}
bool is_wanted(const tc_attention_backward_args &a, const Wanted &of)
{
    return result_of(a, of.gradient).data && a.problem.B * of.heads * of.rows * of.width > 0;
}
int64_t elements_of_shares(const tc_attention_backward_args &a, const Wanted &of)
{
    return of.shares > 1 ? of.row(of.shares, a.problem.B, 0, 0, 0) * of.width : 0;
}

template <class T> int join_shares(const tc_attention_backward_args &a, const Wanted &of, void *stream)
{
    if (of.shares == 1 || !is_wanted(a, of)) return 0;
    return launch<attention_join_kernel<T>>(warp_row_launch(of.rows, a.problem.B * of.heads, stream), a, of);
}

template <class T> int launch_gradient(const tc_attention_backward_args &a, const Wanted &of, const void *delta, void *stream)
{
    const tc_attention_problem &p = a.problem;
    if (!is_wanted(a, of)) return 0;
    const int error = with_block_shape<T>(p, of.width, [&](auto shape) {
        constexpr int tile = decltype(shape)::tile, chunks = decltype(shape)::chunks;
        const int64_t count = p.B * of.heads * divide_up(of.rows, tile) * divide_up(of.width, tile * chunks) * of.shares;
        return launch<attention_gradient_kernel<T, tile, chunks>>(Launch(blocks(count), dim3(tile_side, tile_side), 0, stream), a,
                                                                  numbers_of<T>(p), delta, of);
    });
    return error ? error : join_shares<T>(a, of, stream);
}

constexpr Gradient gradients[] = {Gradient::query, Gradient::key, Gradient::value};

template <class T>
int plain_gradients(const tc_attention_backward_args &a, const QueryNumbers<compute<T>> &of_queries, void *shares, void *stream)
{
    for (const Gradient gradient : gradients) {
        Wanted of = wanted_of(a, gradient);
        of.partial = shares;
        const int error = launch_gradient<T>(a, of, of_queries.delta, stream);
        if (error) return error;
    }
    return 0;
}

// By `backward`: dq, and then dk and dv together.
template <class T, class Backward>
int joint_gradients(const tc_attention_backward_args &a, const QueryNumbers<float> &of_queries, float *shares, void *stream,
                    Backward backward)
{
    Wanted dq = wanted_of(a, Gradient::query), dk = wanted_of(a, Gradient::key), dv = wanted_of(a, Gradient::value);
    dq.partial = dk.partial = shares;
    dv.partial = shares + elements_of_shares(a, dk);
    const bool wants_dq = is_wanted(a, dq), wants_others = is_wanted(a, dk) || is_wanted(a, dv);
    if (const int error = wants_dq ? backward(a, dq, dq, of_queries, stream) : 0) return error;
    if (const int error = join_shares<T>(a, dq, stream)) return error;
    if (const int error = wants_others ? backward(a, dk, dv, of_queries, stream) : 0) return error;
    if (const int error = join_shares<T>(a, dk, stream)) return error;
    return join_shares<T>(a, dv, stream);
}

// All of them together.
template <class T> int whole_heads(const tc_attention_backward_args &a, void *stream)
{
    for (const Gradient gradient : gradients)
        if (is_wanted(a, wanted_of(a, gradient))) return attention_head_backward<T>(a, stream);
    return 0;
}

// Numbers that are kept of each query, for the gradients of a variant.
int numbers_of_query(tc_attention_variant variant) { return variant == TC_ATTENTION_MMA ? 3 : variant == TC_ATTENTION_FLOAT ? 2 : 1; }

} // namespace

// The numbers of each query, and the shares of the gradients that are computed at a time.
template <class T> size_t tc_cuda_attention_backward_scratch(const void *args)
{
    const auto &a = *static_cast<const tc_attention_backward_args *>(args);
    const bool together = a.variant != TC_ATTENTION_PLAIN;
    if (a.variant == TC_ATTENTION_MMA && a.whole_heads) return 0;
    int64_t most = 0, elements = 0;
    for (const Gradient gradient : gradients) {
        const bool is_beside = together && gradient == Gradient::value;
        elements = (is_beside ? elements : 0) + elements_of_shares(a, wanted_of(a, gradient));
        if (elements > most) most = elements;
    }
    return static_cast<size_t>(rows_of_heads(a.problem) * numbers_of_query(a.variant) + most) * sizeof(compute<T>);
}

// Writes all of dk and dv: no partial sums remain for the op.
template <class T> int tc_cuda_attention_backward(const void *args, int64_t, void *scratch, void *stream)
{
    using Real = compute<T>;
    const auto &a = *static_cast<const tc_attention_backward_args *>(args);
    const tc_attention_problem &p = a.problem;
    const int64_t rows = rows_of_heads(p);
    const bool fits = a.variant == TC_ATTENTION_PLAIN || sizeof(T) == (a.variant == TC_ATTENTION_MMA ? 2 : 4);
    if (!fits) return cudaErrorInvalidValue;
    if constexpr (sizeof(T) == 2) {
        if (a.variant == TC_ATTENTION_MMA && a.whole_heads) return whole_heads<T>(a, stream);
    }
    const int numbers = numbers_of_query(a.variant);
    Real *const delta = static_cast<Real *>(scratch), *const shares = delta + numbers * rows;
    const QueryNumbers<Real> of_queries = {delta, numbers > 1 ? delta + rows : nullptr, numbers > 2 ? delta + 2 * rows : nullptr};
    if (p.B * p.H * p.Tq > 0) {
        const int error = launch_delta<T>(a, of_queries, stream);
        if (error) return error;
    }
    if constexpr (sizeof(T) == 2) {
        if (a.variant == TC_ATTENTION_MMA) return joint_gradients<T>(a, of_queries, shares, stream, attention_mma_backward<T>);
    }
    if constexpr (sizeof(T) == 4) {
        if (a.variant == TC_ATTENTION_FLOAT) return joint_gradients<T>(a, of_queries, shares, stream, attention_float_backward);
    }
    return plain_gradients<T>(a, of_queries, shares, stream);
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
    const int error = launch_delta<T>(a.backward, {static_cast<compute<T> *>(scratch), nullptr, nullptr}, stream);
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
