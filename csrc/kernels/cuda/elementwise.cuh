// elementwise.cuh: a function of up to three operands of any strides and dtypes, element by element.
#pragma once
#include "../elementwise.h"
#include "../function_ids.h"
#include "elements.cuh"

namespace tc
{

__device__ __forceinline__ float number(const tc_operand &x, float) { return static_cast<float>(x.value); }
__device__ __forceinline__ double number(const tc_operand &x, double) { return x.value; }
__device__ __forceinline__ int64_t number(const tc_operand &x, int64_t) { return x.integer; }

// Element `offset` of an operand in the dtype of the arithmetic: the compute dtype, or int64.
template <class Real> __device__ __forceinline__ Real read(const tc_operand &x, int64_t offset)
{
    if (!x.data) return number(x, Real());
    return with_dtype(x.dtype, [&](auto type) { return static_cast<Real>(element(static_cast<decltype(type) *>(x.data)[offset])); });
}

template <class Real> __device__ __forceinline__ void write(const tc_operand &out, int64_t offset, Real value)
{
    with_dtype(out.dtype, [&](auto type) { convert(static_cast<decltype(type) *>(out.data)[offset], value); });
}

template <class Real, template <class> class Function>
__global__ void __launch_bounds__(element_threads) elementwise_kernel(const __grid_constant__ tc_elementwise_args a)
{
    constexpr int inputs = Function<Real>::inputs;
    for_own_elements(a.numel, [&](int64_t i) {
        int64_t offset[4];
        element_offsets<4>(offset, i, a.ndim, a.shape, {a.out.strides, a.in[0].strides, a.in[1].strides, a.in[2].strides});
        Real in[inputs];
        TC_UNROLL
        for (int k = 0; k < inputs; k++) in[k] = k < a.inputs ? read<Real>(a.in[k], offset[k + 1]) : Real(0);
        write<Real>(a.out, offset[0], Function<Real>::apply(a.function, in));
    });
}

// The same where every operand is a number or flat, of type T and aligned: vectors of 16 bytes, and no offsets. The lanes take their turn
// at the front of the vectors: unrolled, the functions would be there once per lane.
template <class T, template <class> class Function>
__global__ void __launch_bounds__(element_threads, block_residency) flat_kernel(const __grid_constant__ tc_elementwise_args a)
{
    using Real = compute<T>;
    constexpr int inputs = Function<Real>::inputs, N = vector_lanes<T>;
    for_own_elements(a.numel / N, [&](int64_t i) {
        Vector<T, N> in[inputs] = {}, out = {};
        TC_UNROLL
        for (int k = 0; k < inputs; k++)
            if (k < a.inputs && a.in[k].data) in[k] = load_vector<N>(static_cast<const T *>(a.in[k].data) + i * N);
        TC_ROLLED
        for (int lane = 0; lane < N; lane++) {
            Real x[inputs];
            TC_UNROLL
            for (int k = 0; k < inputs; k++) {
                x[k] = k >= a.inputs ? Real(0) : a.in[k].data ? widen(in[k].at[0]) : number(a.in[k], Real());
                TC_UNROLL
                for (int j = 0; j + 1 < N; j++) in[k].at[j] = in[k].at[j + 1];
            }
            TC_UNROLL
            for (int j = 0; j + 1 < N; j++) out.at[j] = out.at[j + 1];
            narrow(out.at[N - 1], Function<Real>::apply(a.function, x));
        }
        store_vector<N>(static_cast<T *>(a.out.data) + i * N, out);
    });
}

// The same for one function, known to the compiler: for common ones the general kernel's choice takes longer than the memory. numbers: an
// input may be a number instead of an array.
template <class T, template <class> class Function, int function, bool numbers>
__global__ void __launch_bounds__(element_threads, block_residency) own_flat_kernel(const __grid_constant__ tc_elementwise_args a)
{
    using Real = compute<T>;
    constexpr int inputs = Function<Real>::inputs, N = vector_lanes<T>;
    for_own_elements(a.numel / N, [&](int64_t i) {
        Vector<T, N> in[inputs] = {}, out;
        TC_UNROLL
        for (int k = 0; k < inputs; k++)
            if (!numbers || a.in[k].data) in[k] = load_vector<N>(static_cast<const T *>(a.in[k].data) + i * N);
        TC_UNROLL
        for (int lane = 0; lane < N; lane++) {
            Real x[inputs];
            TC_UNROLL
            for (int k = 0; k < inputs; k++) x[k] = !numbers || a.in[k].data ? widen(in[k].at[lane]) : number(a.in[k], Real());
            narrow(out.at[lane], Function<Real>::apply(function, x));
        }
        store_vector<N>(static_cast<T *>(a.out.data) + i * N, out);
    });
}

template <class T, template <class> class Function, bool takes_numbers, int function>
bool launched_own(const tc_elementwise_args &a, const Launch &shape, int &error)
{
    bool arrays = true;
    for (int k = 0; k < Function<compute<T>>::inputs; k++) arrays = arrays && a.in[k].data;
    if (a.function != function || (!arrays && !takes_numbers)) return false;
    error = arrays ? launch<own_flat_kernel<T, Function, function, false>>(shape, a)
                   : launch<own_flat_kernel<T, Function, function, takes_numbers>>(shape, a);
    return true;
}

// The functions that have kernels of their own; they use all the inputs of their kind. takes_numbers: an input may be a number.
template <bool takes_numbers, int... functions> struct Own {
    // Launches that of a.function, or no kernel; gives whether it did.
    template <class T, template <class> class Function>
    static bool launched([[maybe_unused]] const tc_elementwise_args &a, [[maybe_unused]] const Launch &shape, [[maybe_unused]] int &error)
    {
        return (... || launched_own<T, Function, takes_numbers, functions>(a, shape, error));
    }
};

// Host side: can these be the operands of flat_kernel?
template <class T> bool is_flat(const tc_elementwise_args &a)
{
    const auto fits = [&](const tc_operand &x) {
        return x.dtype == a.out.dtype && vectors_fit<T>(a.numel, x.data) && (a.ndim == 0 || x.strides[0] == 1);
    };
    bool flat = a.ndim <= 1 && fits(a.out);
    for (int k = 0; k < a.inputs; k++) flat = flat && (!a.in[k].data || fits(a.in[k]));
    return flat;
}

template <class Real> struct Where {
    static constexpr int inputs = 3;
    using Own = tc::Own<false>;
    static __device__ __forceinline__ Real apply(int function, const Real (&in)[3])
    {
        if (function == TC_CHOICE_same) return in[1] == in[2] ? in[0] : Real(0);
        if (function == TC_CHOICE_where) return in[0] != 0 ? in[1] : in[2];
        const Real risen = in[0] != in[0] || in[0] >= in[1] ? in[0] : in[1]; // of 0 and -0 that of x
        return risen != risen || risen <= in[2] ? risen : in[2];
    }
};

template <class T, template <class> class Function> int flat_elementwise(const tc_elementwise_args &a, void *stream)
{
    const Launch shape = element_launch(a.numel / vector_lanes<T>, stream);
    int error = 0;
    if (Function<compute<T>>::Own::template launched<T, Function>(a, shape, error)) return error;
    return launch<flat_kernel<T, Function>>(shape, a);
}

template <class Real, template <class> class Function> int elementwise(const void *args, void *stream)
{
    auto a = *static_cast<const tc_elementwise_args *>(args);
    if (a.numel == 0) return 0;
    if constexpr (sizeof(Real) == 4) {
        if (a.out.dtype == TC_FLOAT32 && is_flat<float>(a)) return flat_elementwise<float, Function>(a, stream);
        if (a.out.dtype == TC_FLOAT16 && is_flat<float16>(a)) return flat_elementwise<float16, Function>(a, stream);
        if (a.out.dtype == TC_BFLOAT16 && is_flat<bfloat16>(a)) return flat_elementwise<bfloat16, Function>(a, stream);
    }
    for (int k = a.inputs; k < TC_ELEMENT_INPUTS; k++) a.in[k] = a.out; // strides that can be read
    return launch<elementwise_kernel<Real, Function>>(element_launch(a.numel, stream), a);
}

} // namespace tc
