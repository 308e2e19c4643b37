// vector_rows.cuh: shared by the kernels over rows of C neighbouring elements: some lanes, a warp or a block for each row, which read it
// once into registers, in vectors of 16 bytes where the rows allow it; and sums of columns over the rows of a chunk.
#pragma once
#include "dropout.cuh"

namespace tc
{

constexpr int row_block_threads = 256;
constexpr int narrow_row_threads = 8;      // of rows of as many vectors or fewer
constexpr int64_t longest_warp_row = 1024; // elements; longer rows get a whole block

// The row of this thread, blockDim (threads of a row, rows).
__device__ __forceinline__ int64_t own_row() { return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; }
template <class T> __device__ __forceinline__ T *row_at(void *rows, int64_t row, int64_t C) { return static_cast<T *>(rows) + row * C; }
template <class T> __device__ __forceinline__ const T *row_at(const void *rows, int64_t row, int64_t C)
{
    return static_cast<const T *>(rows) + row * C;
}

// The factor that a layer norm scales a row by, from the sum of the squared differences of its C elements from their mean.
template <class Real> __device__ __forceinline__ Real rstd_of(Real squares, Real C, Real eps)
{
    const Real rstd = Real(1) / real_sqrt(squares / C + eps);
    return rstd == 0 ? static_cast<Real>(NAN) : rstd; // 0 would hide that the squares overflow
}

// f(i) for every vector of N elements of a row that this thread owns, but for its first `before`.
template <int threads, int N, class F> __device__ __forceinline__ void for_own_vectors(int64_t C, F f, int before = 0)
{
    for (int64_t i = (static_cast<int64_t>(threadIdx.x) + before * threads) * N; i < C; i += threads * N) f(i);
}

// How many of them it keeps: 32 numbers, or half as many in float64; elements that come one by one take an instruction each.
template <class T, int threads, int N> constexpr int kept_vectors = threads < warp_lanes ? 1 : N == 1 ? 8 : (sizeof(T) == 8 ? 16 : 32) / N;

// The lanes of a warp that have the row of this one, blockDim (threads, rows).
template <int threads> __device__ __forceinline__ unsigned row_lanes()
{
    if constexpr (threads < warp_lanes) return ((1u << threads) - 1) << threadIdx.y * threads % warp_lanes;
    return all_lanes;
}

// What dropout keeps of the rows of one thread, which are of C elements: all of it, or not.
struct KeepAll {
    static constexpr bool drops = false;
};
// Rows of float64, those that begin anywhere and those that are not kept whole are not worth kernels: dropout is a pass of its own there.
template <class T, int N> constexpr bool drops_in_rows = N > 1 && sizeof(T) < 8;
template <class T> struct RowDropout {
    static constexpr bool drops = true;
    Draw draw;
    Keep<compute<T>> keep;
    tc_places places;
    bool together; // a group of random words is within a row, and rows begin with one

    __device__ __forceinline__ RowDropout(const tc_mask &mask, const Keep<compute<T>> &keep_, int64_t C)
        : draw(draw_of(mask.seed, mask.call, mask.drawn)), keep(keep_), places(mask.places), together(C % TC_PHILOX_GROUP == 0)
    {
    }
    // Bit k N + j: is element j of the thread's k-th vector kept? Called before the row's elements are used: they come meanwhile.
    template <int threads, int N> __device__ __forceinline__ uint32_t kept_of_row(int64_t row, int64_t C) const
    {
        constexpr int vectors = kept_vectors<T, threads, N>;
        static_assert(vectors * N <= 32, "the bits of a row are in one register");
        const uint64_t first = static_cast<uint64_t>(place_in_batch(places, row * C));
        uint32_t kept = 0;
        TC_ROLLED
        for (int k = 0; k < vectors; k++) {
            const int64_t own = static_cast<int64_t>(threadIdx.x) + k * threads;
            if (own / warp_lanes * warp_lanes * N >= C) break; // of the whole warp: its lanes draw for each other
            kept |= kept_of_vector<N>(draw, keep, first + static_cast<uint64_t>(own * N), threads * N >= TC_PHILOX_GROUP && together,
                                      row_lanes<threads>())
                    << k * N;
        }
        return kept;
    }
};

// The vectors of a row of C elements that this thread owns. The first ones stay in registers; those of longer rows are read again from the
// cache each time.
template <class T, int threads, int N> struct OwnRow {
    static constexpr int kept = kept_vectors<T, threads, N>;
    static constexpr int64_t longest = static_cast<int64_t>(kept) * threads * N; // that is kept whole
    const T *row;
    int64_t C;
    Vector<T, N> at[kept] = {};

    __device__ __forceinline__ OwnRow(const T *row_, int64_t C_) : row(row_), C(C_)
    {
        for_kept([&](int64_t i, Vector<T, N> &v) { v = load_vector<N>(row + i); });
    }
    // f(i, vector) for those in registers.
    template <class F> __device__ __forceinline__ void for_kept(F f)
    {
        TC_UNROLL
        for (int k = 0; k < kept; k++) {
            const int64_t i = (static_cast<int64_t>(threadIdx.x) + k * threads) * N;
            if (i < C) f(i, at[k]);
        }
    }
    // f(i, vector) for all.
    template <class F> __device__ __forceinline__ void for_each(F f)
    {
        for_kept(f);
        for_own_vectors<threads, N>(
            C,
            [&](int64_t i) {
                Vector<T, N> v = load_vector<N>(row + i);
                f(i, v);
            },
            kept);
    }
    // f(i, vector, other's vector) for all.
    template <class F> __device__ __forceinline__ void for_both(OwnRow &other, F f)
    {
        TC_UNROLL
        for (int k = 0; k < kept; k++) {
            const int64_t i = (static_cast<int64_t>(threadIdx.x) + k * threads) * N;
            if (i < C) f(i, at[k], other.at[k]);
        }
        for_own_vectors<threads, N>(
            C,
            [&](int64_t i) {
                Vector<T, N> v = load_vector<N>(row + i), w = load_vector<N>(other.row + i);
                f(i, v, w);
            },
            kept);
    }
    // Becomes the sum with another row, rounded, which is written to `total`. Dropout acts before that, on rows that are kept whole; what
    // it keeps is rounded.
    template <class Dropout> __device__ __forceinline__ void add(const T *other, T *total, const Dropout &dropout, int64_t index)
    {
        OwnRow more(other, C);
        if constexpr (Dropout::drops) {
            const uint32_t bits = dropout.template kept_of_row<threads, N>(index, C);
            TC_UNROLL
            for (int k = 0; k < kept; k++) {
                TC_UNROLL
                for (int j = 0; j < N; j++) narrow(at[k].at[j], dropout.keep.applied(widen(at[k].at[j]), bits >> (k * N + j) & 1));
            }
        }
        for_both(more, [&](int64_t i, Vector<T, N> &v, const Vector<T, N> &w) {
            TC_UNROLL
            for (int j = 0; j < N; j++) narrow(v.at[j], widen(v.at[j]) + widen(w.at[j]));
            store_vector<N>(total + i, v);
        });
        row = total; // each thread reads back what it wrote itself
    }
};

// ---- host side ----

inline Launch rows_launch(int threads, int64_t rows, void *stream)
{
    const int together = row_block_threads / threads;
    return Launch(blocks(divide_up(rows, together)), dim3(static_cast<unsigned>(threads), static_cast<unsigned>(together)), 0, stream);
}

// launch_shape(threads, N, shape) with some lanes, a warp or a block for each row, and vectors of N elements: 16 bytes where C and all the
// addresses allow it, else 1.
template <class T, class F, class... Pointers>
int launch_rows(int64_t rows, int64_t C, void *stream, F launch_shape, const Pointers *...pointers)
{
    const auto with_threads = [&](auto N) {
        const auto with = [&](auto threads) { return launch_shape(threads, N, rows_launch(threads.value, rows, stream)); };
        if (C <= narrow_row_threads * N.value) return with(Constant<narrow_row_threads>());
        return C <= longest_warp_row ? with(Constant<warp_lanes>()) : with(Constant<row_block_threads>());
    };
    if (rows == 0) return 0;
    return vectors_fit<T>(C, pointers...) ? with_threads(Constant<vector_lanes<T>>()) : with_threads(Constant<1>());
}

// ---- sums of columns over the rows of a chunk ----

// A block for each tile of 32 columns of each chunk, blockDim (32, 8): a thread adds every 8th row of its column, then the 8 partial sums
// are added in order.
constexpr int column_row_lanes = 8;
constexpr int column_threads = warp_lanes * column_row_lanes;

// K sums at once: add(sums, row, column) adds to them, store(sums, at) stores those of a column of a chunk, at = chunk * C + column. The
// sizes are references to the kernel's arguments: copies of them would take 8 registers.
template <class Real, int K, class Add, class Store>
__device__ __forceinline__ void sum_columns(const int64_t &rows, const int64_t &C, const int64_t &rows_per_chunk, const Add &add,
                                            const Store &store)
{
    TC_SHARED(Real, shared, [K][column_row_lanes][warp_lanes]);
    const int64_t tiles = divide_up(C, warp_lanes);
    const int64_t chunk = blockIdx.x / tiles, column = blockIdx.x % tiles * warp_lanes + threadIdx.x;
    const int64_t first = chunk * rows_per_chunk;
    const int64_t last = first + rows_per_chunk < rows ? first + rows_per_chunk : rows;
    Real sums[K] = {};
    if (column < C)
        for (int64_t row = first + threadIdx.y; row < last; row += column_row_lanes) add(sums, row, column);
    TC_UNROLL
    for (int k = 0; k < K; k++) shared[k][threadIdx.y][threadIdx.x] = sums[k];
    __syncthreads();
    if (threadIdx.y != 0 || column >= C) return;
    for (int i = 1; i < column_row_lanes; i++) {
        TC_UNROLL
        for (int k = 0; k < K; k++) sums[k] += shared[k][i][threadIdx.x];
    }
    store(sums, chunk * C + column);
}

// The sum of a column of partial (chunks,C), in the threads with threadIdx.y 0, blockDim (warp_lanes, column_row_lanes). All threads of a
// column read; the first adds up in the order of the chunks, so that the result is that of one thread which has summed all of it.
template <class Real>
__device__ __forceinline__ Real sum_of_chunks(const void *partial, const int64_t &chunks, const int64_t &C, int64_t column)
{
    constexpr int reads = 8; // of each thread, before they are added up
    TC_SHARED(Real, some, [reads * column_row_lanes][warp_lanes]);
    Real sum = 0;
    for (int64_t first = 0; first < chunks; first += reads * column_row_lanes) {
        TC_UNROLL
        for (int i = 0; i < reads; i++) {
            const int row = i * column_row_lanes + static_cast<int>(threadIdx.y);
            some[row][threadIdx.x] = column < C && first + row < chunks ? row_at<Real>(partial, first + row, C)[column] : Real(0);
        }
        __syncthreads();
        const int64_t left = chunks - first;
        for (int row = 0; threadIdx.y == 0 && row < reads * column_row_lanes && row < left; row++) sum += some[row][threadIdx.x];
        __syncthreads();
    }
    return sum;
}

inline Launch column_launch(int64_t chunks, int64_t C, void *stream)
{
    return Launch(blocks(chunks * divide_up(C, warp_lanes)), dim3(warp_lanes, column_row_lanes), 0, stream);
}

} // namespace tc
