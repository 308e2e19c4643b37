// gemm_epilogue.cuh: what the kernels of products do with a sum: the whole result with bias, activation and residual, or a part of the
// sum over k. An epilogue takes row, column and value.
#pragma once
#include "../gemm.h"
#include "functions.cuh"

namespace tc
{

template <class T> struct WholeSum {
    T *c, *pre;
    const T *bias, *residual;
    int64_t c_row, pre_row, residual_row;
    tc_activation activation;
    using Pair = Vector<compute<T>, 2>;

    __device__ WholeSum(const tc_gemm_args &a, int64_t c_batch, int64_t)
        : c(static_cast<T *>(a.c) + c_batch), pre(static_cast<T *>(a.pre)), bias(static_cast<const T *>(a.bias)),
          residual(static_cast<const T *>(a.residual)), c_row(a.c_row), pre_row(a.pre_row), residual_row(a.residual_row),
          activation(a.activation)
    {
    }
    __device__ __forceinline__ void operator()(int64_t row, int64_t column, compute<T> value) const
    {
        if (bias) value += widen(bias[column]);
        if (pre) narrow(pre[row * pre_row + column], value);
        value = activate(value);
        if (residual) value += widen(residual[row * residual_row + column]);
        narrow(c[row * c_row + column], value);
    }
    // The same for two columns, of which the first is even. All rows begin at multiples of pairs: rows_of_pairs().
    __device__ __forceinline__ void pair(int64_t row, int64_t column, Pair value) const
    {
        if (bias) add(value, bias + column);
        if (pre) store(pre + row * pre_row + column, value);
        for (compute<T> &x : value.at) x = activate(x);
        if (residual) add(value, residual + row * residual_row + column);
        store(c + row * c_row + column, value);
    }
    __device__ __forceinline__ compute<T> activate(compute<T> x) const
    {
        switch (activation) {
        case TC_ACTIVATION_RELU: return v_relu(x);
        case TC_ACTIVATION_GELU: return v_gelu(x);
        case TC_ACTIVATION_GELU_TANH: return v_gelu_tanh(x);
        default: return x;
        }
    }
    static __device__ __forceinline__ void add(Pair &value, const T *more)
    {
        const auto pair = load_vector<2>(more);
        for (int i = 0; i < 2; i++) value.at[i] += widen(pair.at[i]);
    }
    static __device__ __forceinline__ void store(T *to, const Pair &value)
    {
        Vector<T, 2> stored;
        for (int i = 0; i < 2; i++) narrow(stored.at[i], value.at[i]);
        store_vector(to, stored);
    }
};

// Is the result of the compute dtype?
__host__ __device__ __forceinline__ bool is_partial(const tc_gemm_args &a) { return a.k_chunks > 1 || a.wide; }

template <class T> struct PartialSum { // in the compute dtype
    compute<T> *c;
    int64_t c_row;

    __device__ PartialSum(const tc_gemm_args &a, int64_t c_batch, int64_t chunk)
        : c(static_cast<compute<T> *>(a.c) + c_batch + chunk * a.c_chunk), c_row(a.c_row)
    {
    }
    __device__ __forceinline__ void operator()(int64_t row, int64_t column, compute<T> value) const { c[row * c_row + column] = value; }
    __device__ __forceinline__ void pair(int64_t row, int64_t column, Vector<compute<T>, 2> value) const
    {
        store_vector(c + row * c_row + column, value);
    }
};

// Host side: may the epilogue's pair() be used for every row?
template <class T> bool rows_of_pairs(const tc_gemm_args &a)
{
    const size_t written = 2 * (is_partial(a) ? sizeof(compute<T>) : sizeof(T)), read = 2 * sizeof(T);
    const auto fits = [](const void *p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; };
    bool even = a.c_row % 2 == 0 && a.c_chunk % 2 == 0 && (!a.pre || a.pre_row % 2 == 0) && (!a.residual || a.residual_row % 2 == 0);
    for (int d = 0; d < a.batch_dims; d++) even = even && a.c_batch[d] % 2 == 0;
    return even && fits(a.c, written) && fits(a.pre, read) && fits(a.residual, read) && fits(a.bias, read);
}

// Writes the sums of `rows` rows of a tile from (row, column) on, which shared memory has in rows of `row_floats`: a warp writes whole
// lines, in pairs where these may be used.
template <int columns, int threads, class Epilogue>
__device__ __forceinline__ void write_rows(const Epilogue &epilogue, const float *sums, int row_floats, int rows, int64_t row,
                                           int64_t column, const tc_gemm_args &a, bool pairs)
{
    TC_ROLLED
    for (int at = 2 * static_cast<int>(threadIdx.x); at < rows * columns; at += 2 * threads) {
        const int64_t r = row + at / columns, c = column + at % columns;
        const auto value = load_vector<2>(sums + at / columns * row_floats + at % columns);
        if (r >= a.M || c >= a.N) continue;
        if (pairs && c + 1 < a.N) {
            epilogue.pair(r, c, value);
            continue;
        }
        epilogue(r, c, value.at[0]);
        if (c + 1 < a.N) epilogue(r, c + 1, value.at[1]);
    }
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

// Products of float32 (gemm_float.cu).
int launch_float_gemm(const tc_gemm_args &a, void *stream);

} // namespace tc
