// elementwise.cuh: a function of up to three operands of any strides and dtypes, element by element.
#pragma once
#include "../elementwise.h"
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

template <class Real> struct Where {
    static constexpr int inputs = 3;
    static __device__ __forceinline__ Real apply(int function, const Real (&in)[3])
    {
        if (function == TC_CHOICE_same) return in[1] == in[2] ? in[0] : Real(0);
        if (function == TC_CHOICE_where) return in[0] != 0 ? in[1] : in[2];
        const Real risen = in[0] != in[0] || in[0] > in[1] ? in[0] : in[1];
        return risen != risen || risen < in[2] ? risen : in[2];
    }
};

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

template <class Real, template <class> class Function> int elementwise(const void *args, void *stream)
{
    auto a = *static_cast<const tc_elementwise_args *>(args);
    if (a.numel == 0) return 0;
    for (int k = a.inputs; k < TC_ELEMENT_INPUTS; k++) a.in[k] = a.out; // strides that can be read
    return launch<elementwise_kernel<Real, Function>>(element_launch(a.numel, stream), a);
}

} // namespace tc
