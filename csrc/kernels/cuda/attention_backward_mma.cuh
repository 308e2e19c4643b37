// attention_backward_mma.cuh: what the kernels of attention's gradients on tensor cores share: pairs that are finished one by one, and how
// rows are copied and saved.
#pragma once
#include "attention_backward.cuh"
#include "attention_mma.cuh"

namespace tc
{

// Of a lane's pairs, one bit each: they may not be attended to; and the value gets nothing of it either, as it does from empty rows.
struct Marks {
    uint32_t hidden = 0, unreached = 0;
};
template <int others> constexpr uint32_t all_hidden = 0xffffffffu >> (32 - own_pairs<others>);

// The factor of dropout of a pair.
template <class T>
__device__ __forceinline__ float dropout_factor(const tc_attention_problem &p, const Head<T> &head, const Draw &draw, int64_t query,
                                                int64_t key)
{
    if (!head.numbers.drops) return 1;
    const uint64_t row_length = static_cast<uint64_t>(divide_up(p.Tk, TC_PHILOX_GROUP) * TC_PHILOX_GROUP);
    const uint64_t element = (head.first_row + static_cast<uint64_t>(query)) * row_length + static_cast<uint64_t>(key);
    const PhiloxWords words = philox_words(draw.seed, draw.call, element);
    return word_of(words, key) >= head.numbers.threshold ? head.numbers.kept : 0.0f;
}

// A lane's weights and gradients of scores of a tile, as left operands. The warp's own rows are keys, which need the weights, or queries.
template <class S, class T> struct WarpPairs {
    static constexpr int others = S::others;
    Weights<others> weights, dscores;

    __device__ __forceinline__ void pack_fragment(int n, const float (&weight)[4], const float (&dscore)[4])
    {
        TC_UNROLL
        for (int r = 0; r < 2; r++) {
            dscores[n / 2][n % 2 * 2 + r] = pack(dscore[2 * r], dscore[2 * r + 1], T());
            if (!S::queries) weights[n / 2][n % 2 * 2 + r] = pack(weight[2 * r], weight[2 * r + 1], T());
        }
    }
    // Of what finish_pairs() has made, from the lane's first product on, `apart` from one another.
    __device__ __forceinline__ void take(const float *finished, int apart)
    {
        TC_UNROLL
        for (int n = 0; n < others / 8; n++) {
            float weight[4], dscore[4];
            TC_UNROLL
            for (int i = 0; i < 4; i++) {
                weight[i] = finished[(n * 4 + i) * apart];
                dscore[i] = finished[(own_pairs<others> + n * 4 + i) * apart];
            }
            pack_fragment(n, weight, dscore);
        }
    }
};

// Makes weights and gradients of the scores, without the scale, of a warp's products, each lane its own: those of the lanes are beside one
// another in shared memory, or with S::whole_heads in a lane's local memory. own: the warp's first row; other: the tile's. delta: of all
// queries, or with S::whole_heads of those of the head. Not inlined: it is long, and needs none of the caller's registers.
template <class S, class T>
__device__ __noinline__ Marks finish_pairs(const tc_attention_backward_args &a, const Numbers<float> &numbers, const float *delta, int b,
                                           int h, int own, int other, float *products)
{
    constexpr int pairs = own_pairs<S::others>;
    BackwardHead<T> head(a, numbers, delta, b, h);
    if (S::whole_heads) head.delta = delta;
    const tc_attention_problem &p = a.problem;
    const Draw draw = numbers.drops ? draw_of(p.seed, p.call, p.drawn) : Draw{};
    Marks marks;
    TC_ROLLED
    for (int e = 0; e < pairs; e++) {
        const int at = S::whole_heads ? e : e * warp_lanes + lane_of(), apart = S::whole_heads ? pairs : pairs * warp_lanes;
        float &product = products[at], &dproduct = products[at + apart];
        const int mine = own + row_of(e), theirs = other + column_of(e), query = S::queries ? mine : theirs,
                  key = S::queries ? theirs : mine;
        const float kept = dropout_factor(p, head.head, draw, query, key);
        const auto pair = head.template pair<S::whole_heads>(query, key, product, dproduct, kept);
        product = pair.weight;
        dproduct = numbers.scale != 0 ? pair.dscore / numbers.scale : 0.0f;
        marks.hidden |= static_cast<uint32_t>(pair.hidden) << e;
        marks.unreached |= static_cast<uint32_t>(pair.hidden && pair.weight == 0) << e;
    }
    return marks;
}

// Copies rows of an operand.
template <int rows, int size, int threads, class T>
__device__ __forceinline__ void load_some(T *to, const Operand<T> &from, int left, int64_t columns, bool vectors)
{
    if (vectors)
        load_rows<rows, size, threads, true>(to, from, left, static_cast<int>(columns), threadIdx.x % threads);
    else
        load_rows<rows, size, threads, false>(to, from, left, static_cast<int>(columns), threadIdx.x % threads);
}

// Saves a gradient of 16 rows, of which there are `rows`, times a factor. It is put together in shared memory, `stage` (16, size), which
// the warp has for itself; so whole lines are written, with `wide` 16 bytes at a time. out: the first row; across: from a row to the next.
template <int size, class T>
__device__ __forceinline__ void save_rows(T *stage, const WarpSums<size> &sums, float factor, T *out, int64_t across, int rows, int width,
                                          bool wide)
{
    using Layout = Swizzle<size>;
    __syncwarp();
    TC_UNROLL
    for (int d = 0; d < size / 8; d++) TC_UNROLL
    for (int r = 0; r < 2; r++) {
        const uint32_t pair = pack(sums[d][2 * r] * factor, sums[d][2 * r + 1] * factor, T());
        store_whole<uint32_t>(stage + Layout::chunk(lane_group() + 8 * r, d) + lane_pair(), pair);
    }
    __syncwarp();
    if (wide) {
        TC_ROLLED
        for (int e = lane_of(); e < warp_rows * Layout::chunks; e += warp_lanes) {
            const int row = e / Layout::chunks, chunk = e % Layout::chunks;
            if (row < rows && chunk * 8 < width)
                store_global(out + row * across + chunk * 8, load_vector<8>(stage + Layout::chunk(row, chunk)));
        }
    } else {
        TC_ROLLED
        for (int e = lane_of(); e < warp_rows * size; e += warp_lanes) {
            const int row = e / size, column = e % size;
            if (row < rows && column < width) out[row * across + column] = stage[Layout::element(row, column)];
        }
    }
    __syncwarp();
}

// May all rows of the gradients be written 16 bytes at a time?
inline bool has_wide_rows(const tc_attention_backward_args &a)
{
    return is_aligned(a.dq) && is_aligned(a.dk) && is_aligned(a.dv) && a.problem.D % 8 == 0 && a.problem.Dv % 8 == 0;
}

} // namespace tc
