// attention_score.cuh: the scores of one tile of queries and keys, the same bits in the forward, the map and the backward.
#pragma once
#include "../attention.h"
#include "functions.cuh"
#include "philox.cuh"
#include "tile.cuh"
#include <float.h>
#include <math.h>

namespace tc
{

constexpr double fill_score = -9e15; // the tutorial's masked score
constexpr float log2_e = 1.44269504088896340736f;

// In blocks of (32, rows_per_block) threads a warp takes a row of a head of a batch element. The last rows of a head may be beyond its end.
constexpr int rows_per_block = 8;
struct WarpRow {
    int64_t row, h, b;

    __device__ __forceinline__ WarpRow(int64_t rows, int64_t heads)
    {
        BlockPlace place;
        row = place.take(divide_up(rows, rows_per_block)) * rows_per_block + threadIdx.y;
        h = place.take(heads);
        b = place.rest;
    }
};
// heads: of all batch elements.
inline Launch warp_row_launch(int64_t rows, int64_t heads, void *stream)
{
    return Launch(blocks(heads * divide_up(rows, rows_per_block)), dim3(warp_lanes, rows_per_block), 0, stream);
}

// The rows of one batch element.
struct Rows {
    int64_t first, Tq, Tk; // of packed sequences, where it begins in all arrays of rows, otherwise 0; its queries and keys

    __device__ __forceinline__ Rows(const tc_attention_problem &p, int64_t b) : first(0), Tq(p.Tq), Tk(p.Tk)
    {
        if (!p.sequences) return;
        first = p.sequences[b];
        Tq = Tk = p.sequences[b + 1] - first;
    }
    // Where those of head h begin in an array (B,H,Tq), or (H,tokens).
    __device__ __forceinline__ int64_t statistics(const tc_attention_problem &p, int64_t b, int64_t h) const
    {
        return p.sequences ? h * p.tokens + first : (b * p.H + h) * p.Tq;
    }
    template <class T> __device__ __forceinline__ T *begin(const tc_attention_operand &x, int64_t b, int64_t h) const
    {
        return static_cast<T *>(x.data) + b * x.batch + h * x.head + first * x.row;
    }
    template <class T> __device__ __forceinline__ Operand<T> of(const tc_attention_operand &x, int64_t b, int64_t h) const
    {
        return {begin<const T>(x, b, h), x.row, 1};
    }
};

// The problem's numbers in the compute dtype, made by the host: arithmetic in float64 is slow on most GPUs.
template <class Real> struct Numbers {
    Real scale, cap;    // of scores
    Real kept;          // the factor of dropout for a weight that it keeps
    uint32_t threshold; // of its random words
    bool drops;
};
template <class T> Numbers<compute<T>> numbers_of(const tc_attention_problem &p)
{
    using Real = compute<T>;
    return {static_cast<Real>(p.scale), static_cast<Real>(p.softcap), static_cast<Real>(tc_keep_scale(p.dropout)),
            tc_keep_threshold(p.dropout), p.dropout > 0};
}

// One head of one batch element.
template <class T> struct Head : Rows {
    using Real = compute<T>;
    Operand<T> q, k, v; // rows across, features along
    const uint8_t *mask;
    const T *additive[2];
    const Numbers<Real> &numbers;
    int64_t offset, keys; // keys: the number within the key length
    uint64_t first_row;   // of the head, among all rows of scores: dropout uses it to number elements

    __device__ __forceinline__ Head(const tc_attention_problem &p, const Numbers<Real> &scores, int64_t b, int64_t h)
        : Rows(p, b), numbers(scores)
    {
        const int64_t hk = static_cast<uint32_t>(h) / (static_cast<uint32_t>(p.H) / static_cast<uint32_t>(p.Hk)); // they fit, as grids do
        q = of<T>(p.q, b, h);
        k = of<T>(p.k, b, hk);
        v = of<T>(p.v, b, hk);
        mask = p.mask.data ? static_cast<const uint8_t *>(p.mask.data) + b * p.mask.batch + h * p.mask.head : nullptr;
        for (int n = 0; n < 2; n++) {
            const tc_attention_plane &plane = p.additive[n];
            additive[n] = plane.data ? static_cast<const T *>(plane.data) + b * plane.batch + h * plane.head : nullptr;
        }
        first_row = static_cast<uint64_t>(place_of(p.heads, static_cast<uint32_t>(b * p.H + h)) * p.Tq);
        offset = p.offsets ? p.offsets[b] : p.offset;
        offset = offset > TC_ATTENTION_FAR ? TC_ATTENTION_FAR : offset < -TC_ATTENTION_FAR ? -TC_ATTENTION_FAR : offset;
        keys = p.key_lengths ? clamp(p.key_lengths[b], Tk) : Tk;
    }

    // Keys [first_key, end_key) include all that queries [i, i + count) may attend to; likewise queries for keys.
    __device__ __forceinline__ int64_t first_key(const tc_attention_problem &p, int64_t i) const
    {
        return clamp(i + offset - p.left, keys);
    }
    __device__ __forceinline__ int64_t end_key(const tc_attention_problem &p, int64_t i, int64_t count) const
    {
        return clamp(i + count + offset + p.right, keys);
    }
    __device__ __forceinline__ int64_t first_query(const tc_attention_problem &p, int64_t j) const
    {
        return clamp(j - offset - p.right, Tq);
    }
    __device__ __forceinline__ int64_t end_query(const tc_attention_problem &p, int64_t j, int64_t count) const
    {
        return clamp(j + count - offset + p.left, Tq);
    }
    static __device__ __forceinline__ int64_t clamp(int64_t i, int64_t end) { return i < 0 ? 0 : i < end ? i : end; }
};

// Does anything but its reach change a score of this head?
template <class T> __device__ __forceinline__ bool changes_scores(const Head<T> &head)
{
    return head.mask || head.additive[0] || head.additive[1] || head.numbers.cap > 0;
}

// The score from the product of query i and key j.
template <class Real> struct Score {
    Real value; // -inf when hidden
    Real slope; // d value / d product
    bool hidden, filled;
};

// cap tanh(x / cap) and its derivative. Not inlined, because it is long and rarely used.
template <class Real> __device__ __noinline__ inline Real soft_cap(Real x, Real cap, Real &derivative)
{
    const Real t = real_tanh(x / cap);
    derivative = 1 - t * t;
    return cap * t;
}

template <class T>
__device__ __forceinline__ Score<compute<T>> finish_score(const tc_attention_problem &p, const Head<T> &head, int64_t i, int64_t j,
                                                          compute<T> product)
{
    using Real = compute<T>;
    Score<Real> score = {product * head.numbers.scale, head.numbers.scale, true, false};
    const int64_t diagonal = i + head.offset;
    const bool in_reach = i < head.Tq && j < head.keys && j >= diagonal - p.left && j <= diagonal + p.right;
    const bool masked = in_reach && head.mask && !head.mask[i * p.mask.row + j * p.mask.column];
    if (!in_reach || (masked && p.mask_kind == TC_ATTENTION_MASK_BOOLEAN)) {
        score.value = -static_cast<Real>(INFINITY);
        return score;
    }
    score.hidden = false;
    if (head.numbers.cap > 0) {
        Real derivative;
        score.value = soft_cap(score.value, head.numbers.cap, derivative);
        score.slope = head.numbers.scale * derivative;
    }
    constexpr Real lowest = sizeof(Real) == sizeof(float) ? static_cast<Real>(-FLT_MAX) : static_cast<Real>(-DBL_MAX);
    for (int n = 0; n < 2; n++) {
        if (!head.additive[n]) continue;
        const Real added = widen(head.additive[n][i * p.additive[n].row + j * p.additive[n].column]);
        // NaN in a key that this hides stays out; the sum of finite numbers hides nothing, and a score of -infinity stays
        const bool lost = added == -static_cast<Real>(INFINITY) || score.value == -static_cast<Real>(INFINITY);
        score.value = lost ? -static_cast<Real>(INFINITY) : v_maximum(score.value + added, lowest);
        score.hidden = score.hidden || added == -static_cast<Real>(INFINITY);
    }
    if (score.hidden) score.value = -static_cast<Real>(INFINITY);
    if (masked && !score.hidden) {
        score.value = static_cast<Real>(fill_score);
        score.slope = 0;
        score.filled = true;
    }
    return score;
}

// The random word of a key among the four of its block.
__device__ __forceinline__ uint32_t word_of(const PhiloxWords &words, int64_t key)
{
    const int64_t n = key / TC_PHILOX_BLOCKS % 4;
    return n == 0 ? words.at[0] : n == 1 ? words.at[1] : n == 2 ? words.at[2] : words.at[3];
}

// May all rows be moved 16 bytes at a time? width: elements in these.
inline bool is_aligned(const tc_attention_operand &x, int width = 8)
{
    return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.batch % width == 0 && x.head % width == 0 && x.row % width == 0;
}

// The factors of dropout for a thread's part of a tile, whose first row and column are `row` and `column`. The rows are queries and the
// columns keys, or the other way round. The keys of a thread are 16 apart, as are the elements of a block of random words.
template <class T, int tile>
__device__ __forceinline__ void dropout_factors(Fragment<compute<T>, tile> &factors, const tc_attention_problem &p, const Head<T> &head,
                                                bool rows_are_queries, int64_t row, int64_t column)
{
    constexpr int n = tile / tile_side;
    static_assert(tile_side == TC_PHILOX_BLOCKS && (n == 2 || n == 4), "the keys of a thread share one block of random words");
    const uint64_t row_length = static_cast<uint64_t>(divide_up(p.Tk, TC_PHILOX_GROUP) * TC_PHILOX_GROUP);
    const int64_t key = rows_are_queries ? column + own_column(0) : row + own_row(0);
    const bool second = n == 2 && key % TC_PHILOX_GROUP >= TC_PHILOX_GROUP / 2; // half of a group of elements
    const Draw draw = draw_of(p.seed, p.call, p.drawn);
    TC_UNROLL
    for (int i = 0; i < n; i++) {
        const int64_t query = rows_are_queries ? row + own_row(i) : column + own_column(i);
        PhiloxWords words = {};
        if (head.numbers.drops)
            words = philox_words(draw.seed, draw.call,
                                 (head.first_row + static_cast<uint64_t>(query)) * row_length + static_cast<uint64_t>(key));
        TC_UNROLL
        for (int j = 0; j < n; j++) {
            const uint32_t word = second ? words.at[(j + 2) % 4] : words.at[j];
            const compute<T> factor = !head.numbers.drops              ? compute<T>(1)
                                      : word >= head.numbers.threshold ? head.numbers.kept
                                                                       : compute<T>(0);
            (rows_are_queries ? factors[i][j] : factors[j][i]) = factor;
        }
    }
}

// The block's shared memory.
template <class Real, int tile> struct AttentionTiles {
    TileRow<Real, tile> *a, *b;  // (tile_depth) operands of a product
    TileRow<Real, tile> *weight; // (tile) a weight or its gradient, [other][own]
    TileRow<bool, tile> *hidden; // (tile) likewise
};

#define TC_ATTENTION_TILES(Real, tile, name)                                                                                               \
    TC_SHARED(Real, name##_a, [tile_depth][tile + 1]);                                                                                     \
    TC_SHARED(Real, name##_b, [tile_depth][tile + 1]);                                                                                     \
    TC_SHARED(Real, name##_weight, [tile][tile + 1]);                                                                                      \
    TC_SHARED(bool, name##_hidden, [tile][tile + 1]);                                                                                      \
    const AttentionTiles<Real, tile> name = {name##_a, name##_b, name##_weight, name##_hidden}

// product[i][j] = x row i . y row j over `length` features. Called by all threads; the operands may be overwritten afterwards.
template <class T, int tile>
__device__ __forceinline__ void row_products(Fragment<compute<T>, tile> &product, const AttentionTiles<compute<T>, tile> &shared,
                                             const Operand<T> &x, int64_t x_rows, const Operand<T> &y, int64_t y_rows, int64_t length)
{
    clear<compute<T>, tile>(product);
    for (int64_t d = 0; d < length; d += tile_depth) {
        load_operand<tile>(shared.a, x.at(0, d), x_rows, length - d);
        load_operand<tile>(shared.b, y.at(0, d), y_rows, length - d);
        __syncthreads();
        multiply<tile>(product, shared.a, shared.b);
        __syncthreads();
    }
}

// sum[c][i][j] += weight[k][own row i] x (k, column c * tile + j), where not hidden, for the `rows` rows of x and its
// first `columns` columns.
template <class T, int tile, int chunks>
__device__ __forceinline__ void weigh_rows(Fragment<compute<T>, tile> (&sum)[chunks], const AttentionTiles<compute<T>, tile> &shared,
                                           bool holes, const Operand<T> &x, int64_t rows, int64_t columns)
{
    const Operand<T> features = {x.data, x.along, x.across}; // the sum runs over rows
    TC_UNROLL
    for (int c = 0; c < chunks; c++) {
        for (int k = 0; k < tile; k += tile_depth) {
            load_operand<tile>(shared.b, features.at(c * tile, k), columns - c * tile, rows - k);
            __syncthreads();
            if (holes)
                multiply_seen<tile>(sum[c], shared.weight + k, shared.hidden + k, shared.b);
            else
                multiply<tile>(sum[c], shared.weight + k, shared.b);
            __syncthreads();
        }
    }
}

// f(BlockShape) of tc_attention_tile() and tc_attention_columns().
template <class T, class F> int with_block_shape(const tc_attention_problem &p, int64_t width, F f)
{
    if constexpr (sizeof(T) < 8) {
        if (tc_attention_tile(&p, false) == 64)
            return tc_attention_columns(64, width) == 64 ? f(BlockShape<64, 1>()) : f(BlockShape<64, 2>());
    }
    return f(BlockShape<32, 2>());
}

} // namespace tc
