// gemm_epilogue.cuh: what the kernels of products do with a sum: the whole result with bias, activation, dropout and residual, or a part of
// the sum over k. An epilogue takes row, column and value, or a run of neighbouring columns, which it reads and writes by one instruction
// each.
#pragma once
#include "../gemm.h"
#include "dropout.cuh"
#include "functions.cuh"

namespace tc
{

// Each value becomes its activation.
template <class Real, int n> __device__ __forceinline__ void activate_all(tc_activation activation, Real (&value)[n])
{
    const auto all = [&](auto function) {
        TC_UNROLL
        for (Real &x : value) x = function(x);
    };
    switch (activation) {
    case TC_ACTIVATION_RELU: return all([](Real x) { return v_relu(x); });
    case TC_ACTIVATION_GELU: return all([](Real x) { return v_gelu(x); });
    case TC_ACTIVATION_GELU_TANH: return all([](Real x) { return v_gelu_tanh(x); });
    default: return;
    }
}

template <class Real> __device__ __forceinline__ Real activated(tc_activation activation, Real x)
{
    Real value[1] = {x};
    activate_all(activation, value);
    return value[0];
}

template <class T> struct WholeSum {
    T *c, *pre;
    const T *bias, *residual;
    int64_t c_row, pre_row, residual_row;
    tc_activation activation;

    __device__ WholeSum(const tc_gemm_args &a, int64_t c_batch, int64_t, const Keep<compute<T>> &)
        : c(static_cast<T *>(a.c) + c_batch), pre(static_cast<T *>(a.pre)), bias(static_cast<const T *>(a.bias)),
          residual(static_cast<const T *>(a.residual)), c_row(a.c_row), pre_row(a.pre_row), residual_row(a.residual_row),
          activation(a.activation)
    {
    }
    __device__ __forceinline__ void operator()(int64_t row, int64_t column, compute<T> value) const
    {
        write(row, column, value, [](compute<T> &) {});
    }
    // The same for a run of columns. All rows begin at multiples of runs: columns_of_runs().
    template <int n> __device__ __forceinline__ void run(int64_t row, int64_t column, compute<T> (&value)[n]) const
    {
        write_run(row, column, value, [](compute<T>(&)[n]) {});
    }
    // drop(value): what is done between activation and residual.
    template <class Drop> __device__ __forceinline__ void write(int64_t row, int64_t column, compute<T> value, const Drop &drop) const
    {
        if (bias) value += widen(bias[column]);
        if (pre) narrow(pre[row * pre_row + column], value);
        value = activated(activation, value);
        drop(value);
        if (residual) value += widen(residual[row * residual_row + column]);
        narrow(c[row * c_row + column], value);
    }
    template <int n, class Drop>
    __device__ __forceinline__ void write_run(int64_t row, int64_t column, compute<T> (&value)[n], const Drop &drop) const
    {
        if (bias) add(value, bias + column);
        if (pre) store(pre + row * pre_row + column, value);
        activate_all(activation, value);
        drop(value);
        if (residual) add(value, residual + row * residual_row + column);
        store(c + row * c_row + column, value);
    }
    template <int n> static __device__ __forceinline__ void add(compute<T> (&value)[n], const T *more)
    {
        const auto run = load_vector<n>(more);
        TC_UNROLL
        for (int i = 0; i < n; i++) value[i] += widen(run.at[i]);
    }
    template <int n> static __device__ __forceinline__ void store(T *to, const compute<T> (&value)[n])
    {
        Vector<T, n> stored;
        TC_UNROLL
        for (int i = 0; i < n; i++) narrow(stored.at[i], value[i]);
        store_vector(to, stored);
    }
};

// The same with dropout. `columns`: those of the tile.
template <class T, int columns> struct DroppedSum {
    WholeSum<T> sum;
    Draw draw;
    Keep<compute<T>> keep;
    const tc_places &places;
    int64_t row_length;
    bool together; // a group of random words is within a row of the tile

    __device__ DroppedSum(const tc_gemm_args &a, int64_t c_batch, int64_t chunk, const Keep<compute<T>> &keep_)
        : sum(a, c_batch, chunk, keep_), draw(draw_of(a.mask.seed, a.mask.call, a.mask.drawn)), keep(keep_), places(a.mask.places),
          row_length(a.N),
          together(columns % TC_PHILOX_GROUP == 0 && a.N % TC_PHILOX_GROUP == 0 && a.mask.places.row % TC_PHILOX_GROUP == 0)
    {
    }
    __device__ __forceinline__ uint64_t element(int64_t row, int64_t column) const
    {
        return static_cast<uint64_t>(place_in_batch(places, row * row_length + column));
    }
    __device__ __forceinline__ void operator()(int64_t row, int64_t column, compute<T> value) const
    {
        const bool kept = is_kept(draw, keep, element(row, column));
        sum.write(row, column, value, [&](compute<T> &x) { x = keep.applied(x, kept); });
    }
    template <int n> __device__ __forceinline__ void run(int64_t row, int64_t column, compute<T> (&value)[n]) const
    {
        constexpr int sharing = TC_PHILOX_GROUP / n; // lanes with the runs of a group
        const int own = static_cast<int>(threadIdx.x) % warp_lanes / sharing * sharing;
        const unsigned lanes = sharing == warp_lanes ? all_lanes : ((1u << sharing % warp_lanes) - 1) << own;
        const uint32_t kept = kept_of_vector<n>(draw, keep, element(row, column), together, lanes);
        sum.write_run(row, column, value, [&](compute<T>(&x)[n]) {
            TC_UNROLL
            for (int i = 0; i < n; i++) x[i] = keep.applied(x[i], kept >> i & 1);
        });
    }
};

// Is the result of the compute dtype?
__host__ __device__ __forceinline__ bool is_partial(const tc_gemm_args &a) { return a.k_chunks > 1 || a.wide; }

template <class T> struct PartialSum { // in the compute dtype, as is the residual: of a wide product in one chunk
    compute<T> *c;
    const compute<T> *residual;
    int64_t c_row, residual_row;

    __device__ PartialSum(const tc_gemm_args &a, int64_t c_batch, int64_t chunk, const Keep<compute<T>> &)
        : c(static_cast<compute<T> *>(a.c) + c_batch + chunk * a.c_chunk), residual(static_cast<const compute<T> *>(a.residual)),
          c_row(a.c_row), residual_row(a.residual_row)
    {
    }
    __device__ __forceinline__ void operator()(int64_t row, int64_t column, compute<T> value) const
    {
        if (residual) value += residual[row * residual_row + column];
        c[row * c_row + column] = value;
    }
    template <int n> __device__ __forceinline__ void run(int64_t row, int64_t column, compute<T> (&value)[n]) const
    {
        constexpr int most = vector_lanes<compute<T>>, lanes = n < most ? n : most;
        TC_UNROLL
        for (int i = 0; i < n; i += lanes) {
            const int64_t at = column + i;
            Vector<compute<T>, lanes> vector, more = {};
            if (residual) more = load_vector<lanes>(residual + row * residual_row + at);
            TC_UNROLL
            for (int j = 0; j < lanes; j++) vector.at[j] = residual ? value[i + j] + more.at[j] : value[i + j];
            store_vector(c + row * c_row + at, vector);
        }
    }
};

// Host side: the columns of the longest runs that the epilogue may take of every row: 16 bytes of the dtype, 2 or 1.
template <class T> int columns_of_runs(const tc_gemm_args &a)
{
    const auto fit = [&](int n) {
        // the residual is as the result
        const size_t sum = n * sizeof(compute<T>), whole = n * sizeof(T), written = is_partial(a) ? (sum < 16 ? sum : 16) : whole;
        const auto begins = [](const void *p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; };
        bool rows = a.c_row % n == 0 && a.c_chunk % n == 0 && (!a.pre || a.pre_row % n == 0) && (!a.residual || a.residual_row % n == 0);
        if (a.mask.p > 0) rows = rows && a.N % n == 0 && a.mask.places.row % n == 0;
        for (int d = 0; d < a.batch_dims; d++) rows = rows && a.c_batch[d] % n == 0;
        return rows && begins(a.c, written) && begins(a.pre, whole) && begins(a.residual, written) && begins(a.bias, whole);
    };
    return fit(vector_lanes<T>) ? vector_lanes<T> : fit(2) ? 2 : 1;
}

// A run of sums in shared memory, which begins at a multiple of it. Of eight the second half of the lanes read the second four first, so
// that they are in other banks.
template <int n> __device__ __forceinline__ void load_sums(float (&value)[n], const float *sums)
{
    if constexpr (n == 8) {
        const int turned = static_cast<int>(threadIdx.x) & 4;
        const auto first = load_vector<4>(sums + turned), second = load_vector<4>(sums + (turned ^ 4));
        TC_UNROLL
        for (int i = 0; i < 4; i++) {
            value[i] = turned ? second.at[i] : first.at[i];
            value[i + 4] = turned ? first.at[i] : second.at[i];
        }
    } else {
        const auto vector = load_vector<n>(sums);
        TC_UNROLL
        for (int i = 0; i < n; i++) value[i] = vector.at[i];
    }
}

// Writes the sums of `rows` rows of a tile from (row, column) on, which shared memory has in rows of `row_floats`: a warp writes whole
// lines, by runs of n columns unless these are not `whole`.
template <int n, int columns, int threads, class Epilogue>
__device__ __forceinline__ void write_runs(const Epilogue &epilogue, const float *sums, int row_floats, int rows, int64_t row,
                                           int64_t column, const tc_gemm_args &a, bool whole)
{
    TC_ROLLED
    for (int at = n * static_cast<int>(threadIdx.x); at < rows * columns; at += n * threads) {
        const int64_t r = row + at / columns, c = column + at % columns;
        const float *const run = sums + at / columns * row_floats + at % columns;
        if (r >= a.M || c >= a.N) continue;
        float value[n];
        load_sums(value, run);
        if (whole && c + n <= a.N) {
            epilogue.run(r, c, value);
        } else if constexpr (n == 2) {
            epilogue(r, c, value[0]);
            if (c + 1 < a.N) epilogue(r, c + 1, value[1]);
        } else {
            TC_ROLLED
            for (int i = 0; i < n && c + i < a.N; i++) epilogue(r, c + i, run[i]);
        }
    }
}
// The same; run: columns_of_runs().
template <class T, int columns, int threads, class Epilogue>
__device__ __forceinline__ void write_rows(const Epilogue &epilogue, const float *sums, int row_floats, int rows, int64_t row,
                                           int64_t column, const tc_gemm_args &a, int run)
{
    constexpr int most = vector_lanes<T>;
    if (run == most)
        write_runs<most, columns, threads>(epilogue, sums, row_floats, rows, row, column, a, true);
    else
        write_runs<2, columns, threads>(epilogue, sums, row_floats, rows, row, column, a, run == 2);
}

// Where an element of the batch starts.
__device__ __forceinline__ int64_t batch_offset(const tc_gemm_args &a, const int64_t *strides, int64_t batch)
{
    int64_t offset = 0;
    for (int d = a.batch_dims - 1; d >= 0; d--) {
        offset += batch % a.batch_shape[d] * strides[d];
        batch /= a.batch_shape[d];
    }
    return offset;
}

// Products of halves on tensor cores (gemm_tensor.cu), for args that tc_gemm_on_tensor_cores() allows.
template <class T> int launch_tensor_gemm(const tc_gemm_args &a, void *stream);

// Products of float32: on tensor cores (gemm_tf32.cu), for args as above; with its accuracy (gemm_float.cu).
int launch_tf32_gemm(const tc_gemm_args &a, void *stream);
int launch_float_gemm(const tc_gemm_args &a, void *stream);

} // namespace tc
