// attention_mma_forward.cuh: what attention's forward on tensor cores and its map share: which rows a block and a warp have, which keys
// these see, and what becomes of their scores.
#pragma once
#include "attention_forward.cuh"
#include "attention_mma.cuh"

namespace tc
{

constexpr int most_threads = 256; // of a block

// What a kernel is compiled for: D and Dv are at most `size`; a warp has one fragment of 16 rows, or two, which share what is read of keys
// and values.
template <int size_, int warps_, int fragments_, int keys_> struct Shape {
    static constexpr int size = size_, warps = warps_, fragments = fragments_, keys = keys_; // keys: of a tile
    // Tiles of 16 keys are for sequences that have no more: what would not be a tile of 64 that all see is not one of 16, for the same
    // bits.
    static constexpr int seen_keys = keys < 32 ? 64 : keys;
    static constexpr int rows = fragments * warp_rows; // of a warp
    static constexpr int threads = warps * warp_lanes, queries = warps * rows;
    static_assert(threads <= most_threads, "as launches are checked by");
    static constexpr int scores = own_pairs<keys>; // that a lane has of a fragment's tile; bits of Marks
    // Two fragments are for scores that nothing but bounds hides or changes: finish_scores() would need too many registers.
    static constexpr bool finishes = fragments == 1;
    static constexpr bool keeps_queries = finishes && size <= 128;                 // in registers; beside more sums there is no room
    static constexpr int blocks = warps != 4 ? 1 : size == 64 && finishes ? 3 : 2; // of a multiprocessor, which registers allow
};
// Number i of the scores in the first (r 0) or second of a lane's rows of a fragment.
__device__ __forceinline__ int own_score(int r, int i) { return i / 2 * 4 + r * 2 + i % 2; }

// The rows of a tile. They are queries of one head, or of `group` heads from h on, which read the same keys: row by row the first query of
// each head, then the second.
struct Group {
    int h, group;

    __device__ __forceinline__ int query(int row) const { return group == 1 ? row : static_cast<int>(unsigned(row) / unsigned(group)); }
    __device__ __forceinline__ int head(int row) const { return group == 1 ? h : h + static_cast<int>(unsigned(row) % unsigned(group)); }
};
// Those of q or of the values.
template <class T> struct GroupRows {
    T *data; // of the first head
    int64_t across, head;
    Group group;
    int first;

    __device__ __forceinline__ T *row(int i) const
    {
        return data + group.query(first + i) * across + (group.head(first + i) - group.h) * head;
    }
};

// Does anything but bounds hide a score or change it, or drop its weight?
__host__ __device__ __forceinline__ bool changes_scores(const tc_attention_problem &p, const Numbers<float> &numbers)
{
    return p.mask.data || p.additive[0].data || p.additive[1].data || numbers.cap > 0 || numbers.drops;
}

// Of `rows` rows from `first` on.
template <class T>
__device__ __forceinline__ Reach reach_of(const tc_attention_problem &p, const Head<T> &head, const Group &group, int first, int rows)
{
    const bool changes = changes_scores(p, head.numbers) || !(head.numbers.scale > 0);
    return Reach(p, head, group.query(first), group.query(first + rows - 1) + 1, changes);
}

// The same for each row: query i sees the keys from i + low on, before i + high, of `keys`. They fit 32 bits as lengths do.
struct Bounds {
    int low, high, keys, queries;
    bool alone; // nothing else hides or changes a score

    template <class T>
    __device__ __forceinline__ Bounds(const tc_attention_problem &p, const Head<T> &head)
        : low(limit(head.offset - p.left, head)), high(limit(head.offset + p.right + 1, head)), keys(static_cast<int>(head.keys)),
          queries(static_cast<int>(head.Tq)), alone(!changes_scores(p, head.numbers))
    {
    }
    __device__ __forceinline__ int begin(int query) const
    {
        const int first = query < queries ? query + low : keys;
        return first < 0 ? 0 : first < keys ? first : keys;
    }
    __device__ __forceinline__ int count(int query) const
    {
        const int end = query < queries ? query + high : 0, last = end < keys ? end : keys, first = begin(query);
        return last > first ? last - first : 0;
    }

  private:
    template <class T> __device__ __forceinline__ static int limit(int64_t difference, const Head<T> &head)
    {
        return static_cast<int>(difference < -head.Tq ? -head.Tq : difference > head.keys ? head.keys : difference);
    }
};

// What a warp knows of itself and of its block, in shared memory: the hot loop needs none of it, and registers are few.
template <int fragments> struct WarpPlace {
    Reach block, own[fragments];
    Bounds bounds;
    Group group;
    int b, segment, first, end; // first: its first row; end: of the block's keys
};

// Of a lane's scores, one bit each: the pair may not be attended to; its weight is dropped.
struct Marks {
    uint32_t hidden = 0, dropped = 0;
};
template <class S> constexpr uint32_t all_hidden = 0xffffffffu >> (32 - S::scores);

// Finishes the scores of a fragment's tile, each lane its own. Not inlined: it is long, and needs none of the caller's registers.
template <class S, class T>
__device__ __noinline__ Marks finish_scores(const tc_attention_problem &p, const Numbers<float> &numbers, const WarpPlace<1> &self,
                                            float *scores, int key)
{
    const Draw draw = numbers.drops ? draw_of(p.seed, p.call, p.drawn) : Draw{};
    const uint64_t row_length = static_cast<uint64_t>(divide_up(p.Tk, TC_PHILOX_GROUP) * TC_PHILOX_GROUP);
    Marks marks;
    TC_ROLLED
    for (int r = 0; r < 2; r++) {
        const int row = self.first + row_of(2 * r), query = self.group.query(row);
        const Head<T> head(p, numbers, self.b, self.group.head(row));
        TC_ROLLED
        for (int i = 0; i < S::scores / 2; i++) {
            const int e = own_score(r, i);
            float &score = scores[e * warp_lanes + lane_of()];
            const Score<float> finished = finish_score(p, head, query, key + column_of(e), score);
            score = finished.value;
            marks.hidden |= static_cast<uint32_t>(finished.hidden) << e;
        }
        const uint64_t first = (head.first_row + static_cast<uint64_t>(query)) * row_length;
        TC_ROLLED
        for (int i = 0; numbers.drops && i < 4; i++) { // keys 16 apart are two fragments apart, and share a block of random words
            const int e = own_score(r, i);
            const PhiloxWords words = philox_words(draw.seed, draw.call, first + static_cast<uint64_t>(key + column_of(e)));
            TC_UNROLL
            for (int n = 0; n < S::keys / 16; n++)
                marks.dropped |= static_cast<uint32_t>(word_of(words, key + 16 * n) < numbers.threshold) << (e + 8 * n);
        }
    }
    return marks;
}

// The same in registers, where bounds alone hide a score.
template <class S>
__device__ __forceinline__ Marks limit_scores(Products<S::keys> &score, float scale, const WarpPlace<S::fragments> &self, int fragment,
                                              int key)
{
    Marks marks;
    TC_UNROLL
    for (int r = 0; r < 2; r++) {
        const int query = self.group.query(self.first + fragment * warp_rows + row_of(2 * r));
        const unsigned first = static_cast<unsigned>(key + lane_pair() - self.bounds.begin(query));
        const unsigned count = static_cast<unsigned>(self.bounds.count(query));
        TC_UNROLL
        for (int i = 0; i < S::scores / 2; i++) {
            const int e = own_score(r, i);
            const bool hidden = first + static_cast<unsigned>(e / 4 * 8 + e % 2) >= count; // those before wrap around
            score[e / 4][e % 4] = hidden ? -infinity<float> : score[e / 4][e % 4] * scale;
            marks.hidden |= static_cast<uint32_t>(hidden) << e;
        }
    }
    return marks;
}

// Whichever of the two it takes; shared: for the warp's scores.
template <class S, class T>
__device__ __forceinline__ Marks hide_scores(Products<S::keys> &score, const tc_attention_problem &p, const Numbers<float> &numbers,
                                             const WarpPlace<S::fragments> &self, int fragment, float *shared, int key)
{
    if constexpr (S::finishes) {
        if (!self.bounds.alone) {
            TC_UNROLL
            for (int e = 0; e < S::scores; e++) shared[e * warp_lanes + lane_of()] = score[e / 4][e % 4];
            const Marks marks = finish_scores<S, T>(p, numbers, self, shared, key);
            TC_UNROLL
            for (int e = 0; e < S::scores; e++) score[e / 4][e % 4] = shared[e * warp_lanes + lane_of()];
            return marks;
        }
    }
    return limit_scores<S>(score, numbers.scale, self, fragment, key);
}

} // namespace tc
