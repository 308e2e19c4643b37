// attention_backward_head.cu: all gradients of attention in one launch, on tensor cores, for halves, where a head has few queries and keys:
// a block has all of a key head, and of the query heads that read it, one after the other.
//
// A warp has 16 keys, whose dk and dv stay in its registers, and computes their scores and the gradients of these with all queries, 16 at a
// time. These gradients go into shared memory as halves, where each warp then reads those of 16 queries, transposed, for their dq. So there
// are five products, S = k q^T, dP = v dvalues^T, dv = P dvalues, dk = dS q and dq = dS^T k, and no sum needs another block: the terms of a
// row come in the order of the other rows, 16 by 16, whatever else is in the batch.
#include "attention_backward_mma.cuh"

namespace
{

using namespace tc;

constexpr int head_threads = 256; // at most
static_assert(head_threads == TC_ATTENTION_HEAD_ROWS / warp_rows * warp_lanes, "a warp for 16 rows");

// D and Dv are at most `size`.
template <int size_> struct Shape {
    static constexpr bool queries = false, whole_heads = true; // own rows are keys
    static constexpr int size = size_, others = warp_rows;
    static constexpr int most_rows = size <= 64 ? TC_ATTENTION_HEAD_ROWS : TC_ATTENTION_WIDE_HEAD_ROWS;
    static constexpr int blocks = size <= 64 ? 2 : 1; // of all threads, for which a multiprocessor has registers
};

// What a block has: the query heads of a key head, and the pairs of query i and key j that are seen: lo <= j - i <= hi and j < keys, or as
// a mask says. In shared memory: registers are few.
struct Band {
    int b, key_head, first_head, heads;
    int lo, hi, queries, keys;
    int reached_keys; // those that any query reaches, be it with an equal weight from an empty row
    bool changes;     // something but the band acts on a score or hides it
    bool whole;       // no pair is hidden

    template <class T>
    __device__ __forceinline__ Band(const tc_attention_backward_args &a, const Head<T> &head, int of_b, int of_key_head, int of_heads)
        : b(of_b), key_head(of_key_head), first_head(of_key_head * of_heads), heads(of_heads)
    {
        const tc_attention_problem &p = a.problem;
        constexpr int64_t far = 1 << 20; // than any query is from a key
        const auto clamped = [](int64_t x) { return static_cast<int>(x < -far ? -far : x < far ? x : far); };
        lo = clamped(head.offset - p.left), hi = clamped(head.offset + p.right);
        queries = static_cast<int>(head.Tq), keys = static_cast<int>(head.keys);
        whole = !head.mask && !head.additive[0] && !head.additive[1] && keys == head.Tk && lo <= 1 - queries && hi >= keys - 1;
        const bool uniform = p.empty_rows == TC_ATTENTION_EMPTY_UNIFORM && !whole;
        reached_keys = uniform ? static_cast<int>(head.Tk) : keys;
        if (uniform) lo = -static_cast<int>(far), hi = static_cast<int>(far);
        changes = uniform || head.mask || head.additive[0] || head.additive[1] || head.numbers.cap > 0 || head.numbers.drops || a.dmap;
    }
    // Of tiles of 16 that begin there: is any pair reached; are all there, and all seen?
    __device__ __forceinline__ bool reaches(int query, int key) const
    {
        return key < reached_keys && key + warp_rows - 1 - query >= lo && key - (query + warp_rows - 1) <= hi;
    }
    __device__ __forceinline__ bool sees_all(int query, int key) const
    {
        return key - (query + warp_rows - 1) >= lo && key + warp_rows - 1 - query <= hi && key + warp_rows <= keys &&
               query + warp_rows <= queries;
    }
};

// The gradients of the scores of 16 keys and 16 queries, in halves: key by key, the queries in two chunks of 16 bytes. The chunks of every
// other four keys change places, so that the eight rows that ldmatrix reads at a time are in different banks. In halves.
struct ScoreTile {
    static constexpr int bytes = warp_rows * warp_rows * 2;
    __device__ __forceinline__ static int chunk(int key, int number) { return key * warp_rows + (number ^ key / 4 % 2) * 8; }
};
constexpr uint32_t hidden_half = 0xffff; // in the place of a gradient: the pair is hidden. NaN, and no conversion's

// Shared memory, in bytes: for each warp 16 rows of k, v, q and dvalues, and the gradients of scores of its keys and all queries; the
// shift, share and delta of the queries; the block's Band.
template <class S, class T> struct Stages {
    static constexpr int tile = warp_rows * S::size * 2, slot = 4 * tile; // tiles are a multiple of 1024 bytes
    static constexpr int number_bytes = 3 * warp_rows * 4;
    static constexpr size_t bytes(int warps)
    {
        return static_cast<size_t>(warps * (slot + warps * ScoreTile::bytes + number_bytes)) + sizeof(Band);
    }
    unsigned char *const begin;
    const int warps;

    __device__ __forceinline__ T *k(int warp) const { return reinterpret_cast<T *>(begin + warp * slot); }
    __device__ __forceinline__ T *v(int warp) const { return reinterpret_cast<T *>(begin + warp * slot + tile); }
    __device__ __forceinline__ T *q(int warp) const { return reinterpret_cast<T *>(begin + warp * slot + 2 * tile); }
    __device__ __forceinline__ T *dvalues(int warp) const { return reinterpret_cast<T *>(begin + warp * slot + 3 * tile); }
    __device__ __forceinline__ unsigned char *dscores(int key_tile, int query_tile) const
    {
        return begin + warps * slot + (key_tile * warps + query_tile) * ScoreTile::bytes;
    }
    // shift of all queries, then their shares, then delta
    __device__ __forceinline__ float *numbers() const
    {
        return reinterpret_cast<float *>(begin + warps * (slot + warps * ScoreTile::bytes));
    }
    __device__ __forceinline__ int queries() const { return warps * warp_rows; }
    __device__ __forceinline__ Band &band() const
    {
        return *reinterpret_cast<Band *>(begin + warps * (slot + warps * ScoreTile::bytes + number_bytes));
    }
};

// Eight neighbours of a row, of which `left` are there.
template <class T> __device__ __forceinline__ Vector<T, 8> load_chunk(const T *from, int left, bool vectors)
{
    if (vectors && left >= 8) return load_vector<8>(from);
    Vector<T, 8> values = {};
    TC_UNROLL
    for (int i = 0; i < 8; i++)
        if (i < left) values.at[i] = from[i];
    return values;
}

// Copies a warp's 16 queries and gradients of values, and makes the queries' shift, share and delta. Not inlined, for the sake of
// registers.
template <class S, class T>
__device__ __noinline__ void load_queries(const tc_attention_backward_args &a, const Numbers<float> &numbers, unsigned char *begin, int b,
                                          int h, bool vectors)
{
    using Layout = Swizzle<S::size>;
    constexpr int chunks = Layout::chunks, passes = warp_rows * chunks / warp_lanes, together = 2;
    const Stages<S, T> shared = {begin, static_cast<int>(blockDim.x) / warp_lanes};
    const tc_attention_problem &p = a.problem;
    const BackwardHead<T> backward(a, numbers, nullptr, b, h);
    const Head<T> &head = backward.head;
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes, first = warp * warp_rows, rows = static_cast<int>(head.Tq) - first;
    const T *const dvalues = shared.dvalues(warp);
    float *const delta = shared.numbers() + 2 * shared.queries() + first;
    if (lane_of() < warp_rows) {
        const int row = first + lane_of();
        const bool is_there = row < head.Tq;
        const float total = is_there ? backward.sum[row] : 0.0f;
        float *const shift = shared.numbers() + row;
        shift[0] = is_there ? backward.shift[row] : 0.0f;
        shift[shared.queries()] = total == 0 ? 0.0f : 1 / total;
        delta[lane_of()] = is_there && a.dlse ? -static_cast<const float *>(a.dlse)[head.statistics(p, b, h) + row] : 0.0f;
    }
    load_some<warp_rows, S::size, warp_lanes>(shared.q(warp), head.q.at(first, 0), rows, p.D, vectors);
    load_some<warp_rows, S::size, warp_lanes>(shared.dvalues(warp), backward.dvalues.at(first, 0), rows, p.Dv, vectors);
    copy_async_commit();

    // Lane i has chunk i % chunks of row i / chunks, and of those that follow.
    const int chunk = lane_of() % chunks, width = static_cast<int>(p.Dv) - chunk * 8;
    const auto row_in = [&](int number) { return (number * warp_lanes + lane_of()) / chunks; };
    const Operand<T> values = head.template of<T>(a.values, b, h).at(first, chunk * 8);
    TC_ROLLED
    for (int pass = 0; pass < passes; pass += together) {
        Vector<T, 8> own[together] = {};
        TC_UNROLL
        for (int i = 0; i < together; i++)
            if (row_in(pass + i) < rows) own[i] = load_chunk(values.row(row_in(pass + i)), width, vectors);
        copy_async_wait<0>();
        __syncwarp();
        TC_UNROLL
        for (int i = 0; i < together; i++) {
            const int row = row_in(pass + i);
            const Vector<T, 8> other = load_vector<8>(dvalues + Layout::chunk(row, chunk));
            float sum = 0;
            TC_UNROLL
            for (int j = 0; j < 8; j++) sum += widen(own[i].at[j]) * widen(other.at[j]);
            TC_UNROLL
            for (int distance = chunks / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(all_lanes, sum, distance);
            if (chunk == 0) delta[row] += sum;
        }
    }
    __syncwarp();
    if (a.dmap) {
        TC_ROLLED
        for (int row = 0; row < warp_rows && row < rows; row++) {
            const T *const dmap = backward.dmap + (first + row) * p.Tk;
            const T *const map = static_cast<const T *>(a.map) + (dmap - static_cast<const T *>(a.dmap));
            float sum = 0;
            for (int j = lane_of(); j < head.Tk; j += warp_lanes)
                if (widen(map[j]) != 0) sum += widen(map[j]) * widen(dmap[j]); // keys without weight do not count, NaN or not
            sum = warp_sum(sum);
            if (lane_of() == 0) delta[row] += sum;
        }
        __syncwarp();
    }
}

template <class S, class T> struct Pairs : WarpPairs<S, T> {
    // Of scores that nothing but the band acts on. numbers: the shift of the tile's queries; the others are so many rows further.
    __device__ __forceinline__ Marks weigh(const Products<warp_rows> &product, const Products<warp_rows> &dproduct, float scale,
                                           const float *numbers, int rows, const Band &band, int query, int key)
    {
        const int lo = band.lo, hi = band.hi, keys = band.keys, queries = band.queries;
        const bool all_seen = band.sees_all(query, key);
        Marks marks;
        TC_UNROLL
        for (int n = 0; n < warp_rows / 8; n++) {
            const float *const at = numbers + n * 8 + lane_pair();
            const Vector<float, 2> shift = load_vector<2>(at), share = load_vector<2>(at + rows), delta = load_vector<2>(at + 2 * rows);
            float weight[4], dscore[4];
            TC_UNROLL
            for (int i = 0; i < 4; i++) {
                weight[i] = approximate_weight(rounded_product(product[n][i], scale), shift.at[i % 2], share.at[i % 2]);
                dscore[i] = weight[i] * (dproduct[n][i] - delta.at[i % 2]);
            }
            if (!all_seen) TC_UNROLL
            for (int i = 0; i < 4; i++) {
                const int e = n * 4 + i, own = key + row_of(e), other = query + column_of(e), apart = own - other;
                const bool seen = (apart >= lo) & (apart <= hi) & (own < keys) & (other < queries);
                weight[i] = seen ? weight[i] : 0;
                dscore[i] = seen ? dscore[i] : 0;
                marks.hidden |= static_cast<uint32_t>(!seen) << e;
            }
            this->pack_fragment(n, weight, dscore);
        }
        marks.unreached = marks.hidden;
        return marks;
    }
    // Of all others, by way of local memory, so that the products take no registers meanwhile.
    __device__ __forceinline__ Marks finish(const tc_attention_backward_args &a, const Numbers<float> &numbers, const float *delta, int b,
                                            int h, int key, int query, const Products<warp_rows> &product,
                                            const Products<warp_rows> &dproduct)
    {
        constexpr int pairs = own_pairs<warp_rows>;
        float products[2 * pairs];
        TC_UNROLL
        for (int e = 0; e < pairs; e++) {
            products[e] = product[e / 4][e % 4];
            products[pairs + e] = dproduct[e / 4][e % 4];
        }
        const Marks marks = finish_pairs<S, T>(a, numbers, delta, b, h, key, query, products);
        this->take(products, 1);
        return marks;
    }
    // Puts the gradients of scores where those of this tile belong, with hidden_half for those that are hidden.
    __device__ __forceinline__ void save(unsigned char *shared, uint32_t hidden) const
    {
        T *const tile = reinterpret_cast<T *>(shared);
        TC_UNROLL
        for (int i = 0; i < 4; i++) {
            const uint32_t pair =
                this->dscores[0][i] | (hidden >> 2 * i & 1 ? hidden_half : 0) | (hidden >> (2 * i + 1) & 1 ? hidden_half << 16 : 0);
            store_whole<uint32_t>(tile + ScoreTile::chunk(row_of(2 * i), i / 2) + lane_pair(), pair);
        }
    }
};

// The gradients of scores of 16 queries and 16 keys, as a left operand; hidden: those that are.
template <class T> struct Transposed {
    Weights<warp_rows> dscores;
    uint32_t hidden = 0;

    __device__ __forceinline__ explicit Transposed(const T *tile)
    {
        const int matrix = lane_of() / 8, key = matrix / 2 * 8 + lane_of() % 8;
        load_matrix_x4_transposed(dscores[0], tile + ScoreTile::chunk(key, matrix % 2));
    }
    // Takes those that are hidden out.
    __device__ __forceinline__ void find_hidden()
    {
        TC_UNROLL
        for (int i = 0; i < 4; i++) {
            uint32_t &pair = dscores[0][i];
            const bool low = (pair & hidden_half) == hidden_half, high = pair >> 16 == hidden_half;
            hidden |= static_cast<uint32_t>(low) << 2 * i | static_cast<uint32_t>(high) << (2 * i + 1);
            pair &= (low ? 0 : 0xffffu) | (high ? 0 : 0xffff0000u);
        }
    }
};

// Block: a key head of a batch element, a warp for each 16 queries and keys that the longest has. q (B,H,Tq,D), k (B,Hk,Tk,D), v
// (B,Hk,Tk,Dv), values,dvalues (B,H,Tq,Dv). vectors: rows are aligned to 16 bytes; wide: those of the gradients.
template <class S, class T>
__global__ void __launch_bounds__(head_threads, S::blocks)
    attention_backward_head_kernel(const __grid_constant__ tc_attention_backward_args a, const __grid_constant__ Numbers<float> numbers,
                                   bool vectors, bool wide)
{
    constexpr int size = S::size;
    using Layout = Stages<S, T>;
    TC_DYNAMIC_SHARED(unsigned char, dynamic);
    const Layout shared = {dynamic, static_cast<int>(blockDim.x) / warp_lanes};
    const tc_attention_problem &p = a.problem;
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes, own = warp * warp_rows;
    Band &band = shared.band();
    {
        BlockPlace place;
        const int key_head = static_cast<int>(place.take(p.Hk)), b = static_cast<int>(place.rest);
        const int heads = static_cast<int>(static_cast<uint32_t>(p.H) / static_cast<uint32_t>(p.Hk));
        const Head<T> head(p, numbers, b, key_head * heads);
        const Band of(a, head, b, key_head, heads);
        if (threadIdx.x == 0) band = of;
        load_some<warp_rows, size, warp_lanes>(shared.k(warp), head.k.at(own, 0), of.keys - own, p.D, vectors);
        load_some<warp_rows, size, warp_lanes>(shared.v(warp), head.v.at(own, 0), of.keys - own, p.Dv, vectors);
        load_queries<S, T>(a, numbers, dynamic, b, key_head * heads, vectors);
    }
    WarpSums<size> dk, dv;
    clear_sums(dk);
    clear_sums(dv);

    TC_ROLLED
    for (int n = 0;; n++) {
        __syncthreads();
        // Only a pair that is hidden has to be kept from what is not finite.
        const bool may_hide = !band.whole || band.changes;
        const bool infinite = may_hide && __syncthreads_or(has_infinite<warp_rows, size, warp_lanes>(shared.k(warp)) ||
                                                           has_infinite<warp_rows, size, warp_lanes>(shared.q(warp)) ||
                                                           has_infinite<warp_rows, size, warp_lanes>(shared.dvalues(warp)));
        const auto add_queries = [&](auto step) {
            constexpr bool careful = decltype(step)::value;
            TC_ROLLED
            for (int query = 0; query < band.queries; query += warp_rows) {
                if (!band.reaches(query, own)) continue;
                const int number = query / warp_rows, of_queries = number * Layout::slot + 2 * Layout::tile;
                OwnRows<size, false> keys(dynamic, warp * Layout::slot), values(dynamic, warp * Layout::slot + Layout::tile);
                const MatrixRows<size> beside(of_queries, true), below(of_queries, false); // of q; those of dvalues are a tile away
                Products<warp_rows> product, dproduct;
                multiply_rows<warp_rows>(product, keys, dynamic, beside, T());
                multiply_rows<warp_rows>(dproduct, values, dynamic + Layout::tile, beside, T());
                Pairs<S, T> pairs;
                Marks marks;
                unsigned char *const tile = shared.dscores(warp, number);
                if (careful && band.changes) {
                    marks = pairs.finish(a, numbers, shared.numbers() + 2 * shared.queries(), band.b, band.first_head + n, own, query,
                                         product, dproduct);
                } else {
                    marks = pairs.weigh(product, dproduct, numbers.scale, shared.numbers() + query, shared.queries(), band, query, own);
                }
                if (careful && infinite) {
                    uint32_t *const weights = reinterpret_cast<uint32_t *>(tile);
                    add_infinite<warp_rows, size>(dk, pairs.dscores, marks.hidden, weights, shared.q(number));
                    add_infinite<warp_rows, size>(dv, pairs.weights, marks.unreached, weights, shared.dvalues(number));
                }
                weigh_tile<warp_rows, size, careful>(dv, pairs.weights, dynamic + Layout::tile, below, T());
                weigh_tile<warp_rows, size, careful>(dk, pairs.dscores, dynamic, below, T());
                pairs.save(tile, careful && infinite ? marks.hidden : 0);
            }
        };
        if (infinite || band.changes)
            add_queries(Constant<true>());
        else
            add_queries(Constant<false>());
        __syncthreads(); // all gradients of scores are there, and nobody reads the queries any more
        if (own < band.queries) {
            WarpSums<size> dq;
            clear_sums(dq);
            const auto add_keys = [&](auto step) {
                constexpr bool careful = decltype(step)::value;
                MatrixRows<size> of_keys(0, false);
                TC_ROLLED
                for (int key = 0; key < band.reached_keys; key += warp_rows, of_keys.move(Layout::slot)) {
                    if (!band.reaches(own, key)) continue;
                    unsigned char *const tile = shared.dscores(key / warp_rows, warp);
                    Transposed<T> of(reinterpret_cast<const T *>(tile));
                    if (careful) {
                        of.find_hidden();
                        add_infinite<warp_rows, size>(dq, of.dscores, of.hidden, reinterpret_cast<uint32_t *>(tile),
                                                      shared.k(key / warp_rows));
                    }
                    weigh_tile<warp_rows, size, careful>(dq, of.dscores, dynamic, of_keys, T());
                }
            };
            if (infinite)
                add_keys(Constant<true>());
            else
                add_keys(Constant<false>());
            if (a.dq.data)
                save_rows<size>(shared.q(warp), dq, numbers.scale,
                                Rows(p, band.b).begin<T>(a.dq, band.b, band.first_head + n) + own * a.dq.row, a.dq.row, band.queries - own,
                                static_cast<int>(p.D), wide);
        }
        if (n + 1 == band.heads) break;
        load_queries<S, T>(a, numbers, dynamic, band.b, band.first_head + n + 1, vectors);
    }
    const int b = band.b, key_head = band.key_head;
    const Rows rows(p, b);
    const int left = static_cast<int>(rows.Tk) - own;
    if (left <= 0) return;
    if (a.dk.data)
        save_rows<size>(shared.q(warp), dk, numbers.scale, rows.begin<T>(a.dk, b, key_head) + own * a.dk.row, a.dk.row, left,
                        static_cast<int>(p.D), wide);
    if (a.dv.data)
        save_rows<size>(shared.dvalues(warp), dv, 1.0f, rows.begin<T>(a.dv, b, key_head) + own * a.dv.row, a.dv.row, left,
                        static_cast<int>(p.Dv), wide);
}

template <class S, class T> int launch_shape(const tc_attention_backward_args &a, void *stream)
{
    static_assert(Stages<S, T>::bytes(S::most_rows / warp_rows) <= 99 * 1024, "as all GPUs have");
    const tc_attention_problem &p = a.problem;
    const int64_t longest = p.Tq > p.Tk ? p.Tq : p.Tk;
    const int warps = static_cast<int>(divide_up(longest, warp_rows));
    const Launch grid(blocks(p.B * p.Hk), dim3(static_cast<unsigned>(warps * warp_lanes)), Stages<S, T>::bytes(warps), stream);
    const bool vectors = is_aligned(p.q) && is_aligned(p.k) && is_aligned(p.v) && is_aligned(a.dvalues) && is_aligned(a.values);
    return launch<attention_backward_head_kernel<S, T>>(grid, a, numbers_of<T>(p), vectors, has_wide_rows(a));
}

} // namespace

namespace tc
{

template <class T> int attention_head_backward(const tc_attention_backward_args &a, void *stream)
{
    const tc_attention_problem &p = a.problem;
    if (!tc_attention_backward_takes_heads(&p)) return cudaErrorInvalidValue;
    const int64_t width = p.D > p.Dv ? p.D : p.Dv;
    if (width <= 32) return launch_shape<Shape<32>, T>(a, stream);
    if (width <= 64) return launch_shape<Shape<64>, T>(a, stream);
    return launch_shape<Shape<128>, T>(a, stream);
}

#define INSTANTIATE(T) template int attention_head_backward<T>(const tc_attention_backward_args &, void *);
INSTANTIATE(float16)
INSTANTIATE(bfloat16)

} // namespace tc
