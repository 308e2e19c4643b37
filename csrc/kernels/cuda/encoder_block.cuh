// encoder_block.cuh: of a block of threads that takes a sequence through an encoder block, or back: what the kernel gets, and its products,
// whose weights come through shared memory panel by panel. S: what the kernel is compiled for, a Shape.
#pragma once
#include "../encoder_block.h"
#include "dropout.cuh"
#include "gemm_epilogue.cuh"

namespace tc
{

constexpr int group_lanes = 8;   // threadIdx.x: they share a row of a norm, or queries
constexpr int column_lanes = 16; // neighbouring threads of a product, each of columns so far apart
constexpr int own_columns = TC_ENCODER_BLOCK_PANEL / column_lanes;
constexpr int own_queries = 2;
constexpr int weights = 4; // qkv and out, up and down: two of each branch
constexpr int most_products = 2 * weights;

// N results, each a sum over K: by a weight (N,K) and its bias (N), or, for gradients, by a weight (K,N) without one.
template <class T> struct Product {
    const T *weight, *bias;
    int N, K;
    bool transposed;
};
// What dropout keeps of the rows (T,columns) of each sequence.
template <class T> struct Dropping {
    Draw draw;
    const uint64_t *drawn;
    tc_places places;
    Keep<compute<T>> keep;
    bool is_on;
};
// gamma and beta (E) of a branch's norm.
template <class T> struct Norm {
    const T *gamma, *beta;
    compute<T> eps;
};

// The args as the kernel needs them, made by the host: arithmetic in float64 is slow on most GPUs.
template <class T> struct Block {
    T *y;
    const T *x;                        // (B,T,E)
    Product<T> product[most_products]; // in the order in which the kernel needs them
    int products;
    Norm<T> norm[2];
    Dropping<T> dropping[TC_ENCODER_BLOCK_MASKS]; // of attention's branch, the hidden layer and its branch
    tc_attention_plane mask;
    compute<T> scale;
    int length, width, heads, hidden; // T, E, H, F
    int row, wide_row;                // elements from one row to the next in shared memory
    tc_activation activation;
    bool norm_first;
    bool vectors, whole_vectors; // whole vectors make up the weights' rows, and those of x and y
};

__device__ __forceinline__ int thread_in_block() { return static_cast<int>(threadIdx.y * group_lanes + threadIdx.x); }

// The panels of all weights, in the order in which they are computed with.
template <class T, class S> struct Panels {
    using Real = compute<T>;
    static constexpr int lanes = vector_lanes<Real>, depth = TC_ENCODER_BLOCK_DEPTH;
    static constexpr int chunks = depth / lanes, between = S::threads / chunks, passes = TC_ENCODER_BLOCK_PANEL / between;
    static constexpr int row = (depth / lanes | 1) * lanes, size = TC_ENCODER_BLOCK_PANEL * row;
    const Block<T> &block;
    Real *shared;
    int product = 0, column = 0, k = 0; // of the panel that is fetched next
    int turn = 0;                       // where the next one goes
    bool transposes = false;            // that panel's weight is (K,N)
    Vector<T, lanes> on_its_way[passes];

    __device__ __forceinline__ Panels(const Block<T> &block_, Real *shared_) : block(block_), shared(shared_) { fetch(); }

    // The next panel, when all threads are done with the one before the last.
    __device__ __forceinline__ const Real *next()
    {
        Real *const panel = shared + turn * size;
        TC_UNROLL
        for (int i = 0; i < passes; i++) {
            Vector<Real, lanes> wide;
            TC_UNROLL
            for (int e = 0; e < lanes; e++) wide.at[e] = widen(on_its_way[i].at[e]);
            if (transposes) {
                TC_UNROLL
                for (int e = 0; e < lanes; e++) panel[(row_of_transposed(i) + e) * row + k_of_transposed(i)] = wide.at[e];
            } else {
                store_vector(panel + (own_row() + i * between) * row + own_k(), wide);
            }
        }
        turn ^= 1;
        if (product < block.products) fetch();
        __syncthreads();
        return panel;
    }

  private:
    static __device__ __forceinline__ int own_row() { return thread_in_block() / chunks; }
    static __device__ __forceinline__ int own_k() { return thread_in_block() % chunks * lanes; }

    // Of a weight (K,N), neighbouring lanes have vectors of 16 of its rows, two of each: elements of a panel's row, in different banks.
    static __device__ __forceinline__ int row_of_transposed(int i)
    {
        return ((thread_in_block() + i * S::threads) / (2 * warp_lanes) * 2 + thread_in_block() % 2) * lanes;
    }
    static __device__ __forceinline__ int k_of_transposed(int i) { return (thread_in_block() + i * S::threads) / 2 % depth; }

    // Zeros beyond the weight's rows and elements.
    __device__ __forceinline__ void fetch()
    {
        const Product<T> &p = block.product[product];
        transposes = p.transposed;
        TC_UNROLL
        for (int i = 0; i < passes; i++) {
            const int n = column + (transposes ? row_of_transposed(i) : own_row() + i * between);
            const int kk = k + (transposes ? k_of_transposed(i) : own_k());
            const int inside = n >= p.N || kk >= p.K ? 0 : transposes ? p.N - n : p.K - kk;
            const T *const from = p.weight + (transposes ? kk * p.N + n : n * p.K + kk);
            on_its_way[i] = {};
            if (block.vectors) {
                if (inside > 0) on_its_way[i] = load_vector<lanes>(from);
            } else {
                TC_UNROLL
                for (int e = 0; e < lanes; e++)
                    if (e < inside) on_its_way[i].at[e] = from[e];
            }
        }
        k += depth;
        if (k < p.K) return;
        k = 0;
        column += TC_ENCODER_BLOCK_PANEL;
        if (column < p.N) return;
        column = 0;
        product++;
    }
};

// A thread's results of a product: rows some apart, and columns of a panel likewise.
template <class Real, class S> struct Sums {
    static constexpr int lanes = vector_lanes<Real>;
    Real at[S::rows][own_columns];

    // The two rows of a warp are four apart, which in shared memory are in different banks.
    static __device__ __forceinline__ int own_row(int i)
    {
        const int group = thread_in_block() / column_lanes;
        return (group & ~5) + (group & 1) * 4 + (group >> 2 & 1) + i * S::row_groups;
    }
    static __device__ __forceinline__ int own_column(int j) { return thread_in_block() % column_lanes + j * column_lanes; }

    __device__ __forceinline__ void clear()
    {
        TC_UNROLL
        for (auto &row : at) TC_UNROLL
        for (Real &sum : row) sum = 0;
    }
    // Adds products over `depth` elements of a panel, of its first `columns` columns of each thread. Rows beyond the sequence are its last.
    template <int columns>
    __device__ __forceinline__ void add(const Real *(&rows)[S::rows], const Real *panel, int panel_row, int from, int depth)
    {
        panel += own_column(0) * panel_row;
        TC_UNROLL_SOME
        for (int k = 0; k < depth; k += lanes) {
            Vector<Real, lanes> weight[columns];
            TC_UNROLL
            for (int j = 0; j < columns; j++) weight[j] = load_vector<lanes>(panel + j * column_lanes * panel_row + k);
            TC_UNROLL
            for (int i = 0; i < S::rows; i++) {
                const auto x = load_vector<lanes>(rows[i] + from + k);
                TC_UNROLL
                for (int e = 0; e < lanes; e++) TC_UNROLL
                for (int j = 0; j < columns; j++) at[i][j] += x.at[e] * weight[j].at[e];
            }
        }
    }
};

// put(row, column, value): activation(from weight^T + bias) for each row and column, and zeros up to a whole vector; without transposing
// where the product has a weight (K,N). All threads are done with what came before when the first value is put.
template <class T, class S, class Put>
__device__ __forceinline__ void multiply(Panels<T, S> &panels, int number, const compute<T> *from, int from_row, tc_activation activation,
                                         Put put)
{
    using Real = compute<T>;
    using Own = Sums<Real, S>;
    const Block<T> &block = panels.block;
    const Product<T> &p = block.product[number];
    const int end = static_cast<int>(divide_up(p.N, Own::lanes)) * Own::lanes;
    const Real *rows[S::rows];
    TC_UNROLL
    for (int i = 0; i < S::rows; i++) {
        const int row = Own::own_row(i);
        rows[i] = from + (row < block.length ? row : block.length - 1) * from_row;
    }
    TC_ROLLED
    for (int column = 0; column < p.N; column += TC_ENCODER_BLOCK_PANEL) {
        Real bias[own_columns];
        TC_UNROLL
        for (int j = 0; j < own_columns; j++) {
            const int c = column + Own::own_column(j);
            bias[j] = p.bias && c < p.N ? widen(p.bias[c]) : Real(0);
        }
        Own sums;
        sums.clear();
        TC_ROLLED
        for (int k = 0; k < p.K; k += TC_ENCODER_BLOCK_DEPTH) {
            const Real *const panel = panels.next();
            const int depth = p.K - k < TC_ENCODER_BLOCK_DEPTH ? p.K - k : TC_ENCODER_BLOCK_DEPTH;
            if (p.N - column <= TC_ENCODER_BLOCK_PANEL / 2)
                sums.template add<own_columns / 2>(rows, panel, panels.row, k, depth);
            else
                sums.template add<own_columns>(rows, panel, panels.row, k, depth);
        }
        TC_UNROLL
        for (int i = 0; i < S::rows; i++) {
            TC_UNROLL
            for (int j = 0; j < own_columns; j++) sums.at[i][j] += bias[j];
            activate_all(activation, sums.at[i]);
            TC_UNROLL
            for (int j = 0; j < own_columns; j++)
                if (Own::own_row(i) < block.length && column + Own::own_column(j) < end)
                    put(Own::own_row(i), column + Own::own_column(j), sums.at[i][j]);
        }
    }
}

} // namespace tc
