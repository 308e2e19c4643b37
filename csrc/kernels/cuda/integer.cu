// integer.cu: exact arithmetic on integers and bools, in int64 that wraps around: the rows of integer.def, reductions, products.
#include "../function_ids.h"
#include "../integer_product.h"
#include "elementwise.cuh"
#include "found.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

#define WRAP(a, operator, b) (static_cast<int64_t>(static_cast<uint64_t>(a) operator static_cast<uint64_t>(b)))

// Towards minus infinity; the quotient of the smallest integer and -1 wraps around.
__device__ __forceinline__ int64_t integer_floor_divide(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    if (b == -1) return WRAP(0, -, a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// The op has checked that b >= 0.
__device__ __forceinline__ int64_t integer_power(int64_t a, int64_t b)
{
    int64_t result = 1;
    for (; b > 0; b >>= 1) {
        if (b & 1) result = WRAP(result, *, a);
        a = WRAP(a, *, a);
    }
    return result;
}

template <class Integer> struct IntegerUnary {
    static constexpr int inputs = 1;
    static __device__ __forceinline__ Integer apply(int function, const Integer (&in)[1])
    {
        const Integer x = in[0];
        switch (function) {
#define TC_INTEGER_UNARY(name, value)                                                                                                      \
    case TC_UNARY_##name:                                                                                                                  \
        return value;
#define TC_INTEGER_BINARY(name, value)
#include "../integer.def"
#undef TC_INTEGER_UNARY
#undef TC_INTEGER_BINARY
        default: return x;
        }
    }
};

template <class Integer> struct IntegerBinary {
    static constexpr int inputs = 2;
    static __device__ __forceinline__ Integer apply(int function, const Integer (&in)[2])
    {
        const Integer a = in[0], b = in[1];
        switch (function) {
#define TC_INTEGER_UNARY(name, value)
#define TC_INTEGER_BINARY(name, value)                                                                                                     \
    case TC_BINARY_##name:                                                                                                                 \
        return value;
#include "../integer.def"
#undef TC_INTEGER_UNARY
#undef TC_INTEGER_BINARY
        default: return a;
        }
    }
};

// f(T()) for the element type of a dtype that is not floating.
template <class F> int with_integer(int dtype, F f)
{
    switch (dtype) {
    case TC_INT64: return f(int64_t());
    case TC_INT32: return f(int32_t());
    case TC_UINT8: return f(uint8_t());
    default: return f(boolean());
    }
}

__device__ __forceinline__ int64_t combine_integers(int step, int64_t a, int64_t b)
{
    switch (step) {
    case TC_STEP_any: return a | b;
    case TC_STEP_all: return a & b;
    default: return WRAP(a, +, b);
    }
}

// Sums, extremes, any and all; with a.arg where the first extreme is.
struct IntegerReduction {
    using Value = int64_t;
    static __device__ __forceinline__ Found<int64_t> none(int step) { return {step == TC_STEP_all, -1}; }
    static __device__ __forceinline__ int64_t value(int step, int64_t x) { return step == TC_STEP_any || step == TC_STEP_all ? x != 0 : x; }
    static __device__ __forceinline__ Found<int64_t> join(int step, const Found<int64_t> &a, const Found<int64_t> &b)
    {
        if (step == TC_STEP_max || step == TC_STEP_min) return first_extreme(step, a, b);
        return {combine_integers(step, a.value, b.value), -1};
    }
    static __device__ __forceinline__ void write(const tc_reduce_args &a, int64_t item, const Found<int64_t> &found)
    {
        const int64_t result = a.arg ? found.at : found.value;
        with_dtype(a.out_dtype, [&](auto type) { convert(static_cast<decltype(type) *>(a.out)[item], result); });
    }
};

template <class X> __device__ __forceinline__ X multiply_add(X sum, X a, X b) { return static_cast<X>(WRAP(sum, +, WRAP(a, *, b))); }
__device__ __forceinline__ boolean multiply_add(boolean sum, boolean a, boolean b)
{
    return {static_cast<uint8_t>(sum.byte | (a.byte && b.byte))};
}

// C (M,N) = A (M,K) B (K,N) of every batch element: one block per row of C, a thread computes every 128th element of it.
template <class X>
__global__ void __launch_bounds__(element_threads, block_residency)
    integer_product_kernel(const __grid_constant__ tc_integer_product_args p, int64_t rows)
{
    const tc_gemm_args &g = p.product;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        int64_t offset[3];
        element_offsets<3>(offset, row / g.M, g.batch_dims, g.batch_shape, {g.a_batch, g.b_batch, g.c_batch});
        const int64_t m = row % g.M;
        for (int64_t n = threadIdx.x; n < g.N; n += element_threads) {
            const X *a = static_cast<const X *>(g.a) + offset[0] + m * g.a_row, *b = static_cast<const X *>(g.b) + offset[1] + n * g.b_col;
            X sum = {};
            for (int64_t k = 0; k < g.K; k++, a += g.a_col, b += g.b_row) sum = multiply_add(sum, *a, *b);
            static_cast<X *>(g.c)[offset[2] + m * g.c_row + n] = sum;
        }
    }
}

} // namespace

// The arithmetic does not depend on the compute dtype: all tables share these kernels.
#define TC_INTEGER_ELEMENTWISE(kernel, Function)                                                                                           \
    template <class T> int tc_cuda_##kernel(const void *args, int64_t, void *, void *stream)                                               \
    {                                                                                                                                      \
        return elementwise<int64_t, Function>(args, stream);                                                                               \
    }                                                                                                                                      \
    TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, kernel)
TC_INTEGER_ELEMENTWISE(integer_unary, IntegerUnary)
TC_INTEGER_ELEMENTWISE(integer_binary, IntegerBinary)
TC_INTEGER_ELEMENTWISE(integer_where, Where)

template <class T> int tc_cuda_integer_reduce(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_reduce_args *>(args);
    if (a.kept == 0) return 0;
    const bool columns = tc_reduce_by_columns(&a);
    return with_integer(a.x_dtype, [&](auto type) { return launch_find<IntegerReduction, decltype(type)>(a, columns, stream); });
}
template <class T> int tc_cuda_integer_product(const void *args, int64_t rows, void *, void *stream)
{
    const auto &p = *static_cast<const tc_integer_product_args *>(args);
    const int64_t n = rows * p.product.N;
    if (n == 0) return 0;
    return with_integer(p.dtype,
                        [&](auto type) { return launch<integer_product_kernel<decltype(type)>>(element_launch(n, stream), p, rows); });
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, integer_reduce)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, integer_product)
