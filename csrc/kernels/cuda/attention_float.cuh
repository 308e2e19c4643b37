// attention_float.cuh: what the kernels of attention in float32 share: products by multiply-adds whose operands a thread reads from shared
// memory as vectors of 16 bytes, and of which it has 8 x 4 or 8 x 8 results.
//
// A warp has 4 n rows of its own, queries or keys: of its 32 lanes eight share a row, and a lane has n rows, four apart. Tiles of 32 rows
// of another operand come through shared memory: of these a lane has four, eight apart.
#pragma once
#include "attention_score.cuh"

namespace tc
{

constexpr int tile_others = TC_ATTENTION_FLOAT_OTHERS; // rows of a tile
constexpr int own_others = tile_others / 8;            // of a lane
constexpr int column_chunks = tile_others / 4;         // vectors in a row of weights

__device__ __forceinline__ int lane_in_warp() { return static_cast<int>(threadIdx.x) % warp_lanes; }
__device__ __forceinline__ int lane_row() { return lane_in_warp() / 8; }
__device__ __forceinline__ int lane_column() { return lane_in_warp() % 8; }
__device__ __forceinline__ int lane_row_of(int i) { return lane_row() + 4 * i; }
__device__ __forceinline__ int lane_other_of(int j) { return lane_column() + 8 * j; }

template <int n> using Pairs = float[n][own_others];           // a lane's part of (4 n, tile_others)
template <int n, int size> using RowSums = float[n][size / 8]; // of (4 n, size): vectors of four columns, 32 apart

// Where things are in a tile with rows of `size` floats, in vectors of four. The vectors of a row change places by its number, so that
// eight neighbouring rows, or eight neighbouring vectors of one, are in different banks.
template <int size> __device__ __forceinline__ int vector_at(int row, int number) { return row * size + (number ^ row % 8) * 4; }
// In a warp's tile of weights, of which four neighbouring rows are read, and are written eight neighbours each.
__device__ __forceinline__ int weights_at(int row, int number) { return row * tile_others + (number ^ row % 4 * 2) * 4; }
__device__ __forceinline__ int weight_at(int row, int other) { return weights_at(row, other / 4) + other % 4; }

template <int n, int columns> __device__ __forceinline__ void clear_rows(float (&rows)[n][columns])
{
    TC_UNROLL
    for (auto &row : rows) TC_UNROLL
    for (float &element : row) element = 0;
}

// product[i][j] = own row i . the tile's row j, over `length` features, which the tiles have zeros beyond.
template <int n, int size> __device__ __forceinline__ void multiply_rows(Pairs<n> &product, const float *own, const float *tile, int length)
{
    clear_rows(product);
    const int column = lane_column(), row = lane_row();
    own += row * size;
    tile += column * size;
    TC_ROLLED
    for (int first = 0; first * 4 < length; first += 4) TC_UNROLL
    for (int chunk = 0; chunk < 4; chunk++) {
        Vector<float, 4> other[own_others];
        TC_UNROLL
        for (int j = 0; j < own_others; j++) other[j] = load_vector<4>(tile + 8 * j * size + (first ^ column ^ chunk) * 4);
        TC_UNROLL
        for (int i = 0; i < n; i++) {
            const auto mine = load_vector<4>(own + 4 * i * size + (first ^ row ^ (chunk ^ i % 2 * 4)) * 4);
            TC_UNROLL
            for (int d = 0; d < 4; d++) TC_UNROLL
            for (int j = 0; j < own_others; j++) product[i][j] += mine.at[d] * other[j].at[d];
        }
    }
}

// Puts a lane's part of a warp's weights where weigh_tile() reads them.
template <int n> __device__ __forceinline__ void put_weights(float *to, const Pairs<n> &weights)
{
    const int first = weight_at(lane_row(), lane_column()); // eight others further is another vector of the row
    TC_UNROLL
    for (int j = 0; j < own_others; j++) {
        float *const column = to + (first ^ 8 * j);
        TC_UNROLL
        for (int i = 0; i < n; i++) column[4 * i * tile_others] = weights[i][j];
    }
}

// sums[i] += weight (row i, k) tile (k, columns) for k < rows, of which the weights of all up to a multiple of eight are there.
template <int n, int size>
__device__ __forceinline__ void weigh_tile(RowSums<n, size> &sums, const float *weights, const float *tile, int rows)
{
    const int column = lane_column();
    weights += lane_row() * tile_others;
    TC_ROLLED
    for (int first = 0; first < rows; first += 8) TC_UNROLL
    for (int half = 0; half < 8; half += 4) {
        Vector<float, 4> weight[n];
        TC_UNROLL
        for (int i = 0; i < n; i++)
            weight[i] = load_vector<4>(weights + 4 * i * tile_others + ((first / 4) ^ (lane_row() * 2) ^ (half / 4)) * 4);
        TC_UNROLL
        for (int k = 0; k < 4; k++) TC_UNROLL
        for (int f = 0; f < size / 32; f++) {
            const auto value = load_vector<4>(tile + (first + half + k) * size + f * 32 + (column ^ (half + k)) * 4);
            TC_UNROLL
            for (int i = 0; i < n; i++) TC_UNROLL
            for (int e = 0; e < 4; e++) sums[i][f * 4 + e] += weight[i].at[k] * value.at[e];
        }
    }
}

// Stands for the weight of a hidden pair, where it must be told from zero: NaN, and no operation's.
constexpr uint32_t hidden_weight = 0xffffffffu;

// The same without hidden pairs: a weight of zero would let what is not finite through.
template <int n, int size>
__device__ __forceinline__ void weigh_seen(RowSums<n, size> &sums, const float *weights, const float *tile, int rows)
{
    TC_ROLLED
    for (int k = 0; k < rows; k++) TC_UNROLL
    for (int i = 0; i < n; i++) {
        const float weight = weights[weight_at(lane_row(), k) + 4 * i * tile_others];
        if (bits_of_float(weight) == hidden_weight) continue;
        TC_UNROLL
        for (int f = 0; f < size / 32; f++) {
            const auto value = load_vector<4>(tile + vector_at<size>(k, f * 8 + lane_column()));
            TC_UNROLL
            for (int e = 0; e < 4; e++) sums[i][f * 4 + e] += weight * value.at[e];
        }
    }
}

// Copies `rows` rows of an operand, with zeros beyond those `left` and the `columns` that there are; on their way until copy_async_wait().
// vectors: the operand's rows are aligned to 16 bytes.
template <int rows, int size, int threads>
__device__ __forceinline__ void copy_rows(float *tile, const Operand<float> &from, int left, int columns, bool vectors)
{
    constexpr unsigned chunks = size / 4;
    constexpr int passes = rows * static_cast<int>(chunks) / threads;
    static_assert(passes * threads == rows * static_cast<int>(chunks), "each thread copies as much as the others");
    TC_UNROLL_SOME
    for (int i = 0; i < passes; i++) {
        const unsigned e = threadIdx.x % threads + static_cast<unsigned>(i * threads);
        const int row = static_cast<int>(e / chunks), number = static_cast<int>(e % chunks), inside = columns - number * 4;
        const int whole = inside < 0 ? 0 : inside < 4 ? inside : 4, count = row < left ? whole : 0;
        float *const to = tile + vector_at<size>(row, number);
        const float *const source = from.row(row) + number * 4;
        if (vectors) {
            copy_async<16>(to, source, count * 4);
        } else {
            TC_UNROLL
            for (int d = 0; d < 4; d++) copy_async<4>(to + d, source + d, d < count ? 4 : 0);
        }
    }
}

// Has what the thread has copied of a tile anything that is not finite?
template <int rows, int size, int threads> __device__ __forceinline__ bool copied_infinite(const float *tile)
{
    bool found = false;
    TC_ROLLED
    for (int e = static_cast<int>(threadIdx.x) * 4; e < rows * size; e += threads * 4) {
        const auto four = load_vector<4>(tile + vector_at<size>(e / size, e % size / 4));
        TC_UNROLL
        for (const float x : four.at) found = found || !(x - x == 0);
    }
    return found;
}

// What causal attention, a window and lengths leave of the keys of a query.
struct Bounds {
    int lower, upper, keys; // query i sees key j where lower <= j - i < upper and j < keys

    __device__ __forceinline__ Bounds(const tc_attention_problem &p, const Head<float> &head)
        : lower(limited(head.offset - p.left)), upper(limited(head.offset + p.right + 1)), keys(static_cast<int>(head.keys))
    {
        if (upper < lower) upper = lower; // an empty window
    }

  private:
    static __device__ __forceinline__ int limited(int64_t i)
    {
        constexpr int far = INT32_MAX / 2; // and all lengths are shorter than that
        return i < -far ? -far : i < far ? static_cast<int>(i) : far;
    }
};

// The same for the pairs of a lane: those some queries and keys on from the given ones, by numbers that are known when it is compiled.
struct Cut {
    int from, width, keys;

    __device__ __forceinline__ Cut(const Bounds &bounds, int query, int key)
        : from(key - query - bounds.lower), width(bounds.upper - bounds.lower), keys(bounds.keys - key)
    {
    }
    __device__ __forceinline__ bool sees(int queries_on, int keys_on) const
    {
        return static_cast<unsigned>(from + (keys_on - queries_on)) < static_cast<unsigned>(width) && keys_on < keys;
    }
};

// Of a lane's pairs, one bit each: in_pairs() has that of row i and the tile's row j.
__device__ __forceinline__ bool in_pairs(uint32_t bits, int i, int j) { return bits >> (i * own_others + j) & 1; }

// Those whose weights dropout drops, of own rows from `first` on and the tile's rows from `other` on; the own rows are queries, or keys.
// Keys that are 16 apart share a block of random words.
template <int n, bool own_queries>
__device__ __forceinline__ uint32_t dropped_of(const tc_attention_problem &p, const Head<float> &head, int first, int other)
{
    constexpr int rows = own_queries ? n : n < 4 ? n : 4, columns = own_queries ? 2 : own_others; // where blocks begin
    constexpr int by = own_queries ? 2 : 4 * own_others, shared = own_queries ? 2 : (n + 3) / 4;  // bits between the pairs of one
    const Draw draw = draw_of(p.seed, p.call, p.drawn);
    const uint64_t row_length = static_cast<uint64_t>(divide_up(p.Tk, TC_PHILOX_GROUP) * TC_PHILOX_GROUP);
    uint32_t dropped = 0;
    TC_ROLLED
    for (int e = 0; e < rows * columns; e++) {
        const int i = e / columns, j = e % columns, own = first + lane_row_of(i), theirs = other + lane_other_of(j);
        const int query = own_queries ? own : theirs, key = own_queries ? theirs : own;
        const uint64_t element = (head.first_row + static_cast<uint64_t>(query)) * row_length + static_cast<uint64_t>(key);
        const PhiloxWords words = philox_words(draw.seed, draw.call, element);
        TC_UNROLL
        for (int m = 0; m < shared; m++)
            dropped |= static_cast<uint32_t>(word_of(words, key + 16 * m) < head.numbers.threshold) << (i * own_others + j + m * by);
    }
    return dropped;
}

} // namespace tc
