// lines.cu: elements taken and written along the lines of one axis, and running sums.
#include "../lines.h"
#include "elements.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

struct Line {
    int64_t index, taken, whole;
};
__device__ __forceinline__ Line line_at(const tc_lines_args &a, int64_t number)
{
    int64_t offset[3];
    element_offsets<3>(offset, number, a.ndim, a.shape, {a.index_strides, a.taken_strides, a.whole_strides});
    return {offset[0], offset[1], offset[2]};
}

// One thread per place.
template <class Bits>
__global__ void __launch_bounds__(element_threads) gather_kernel(const __grid_constant__ tc_lines_args a, int64_t lines)
{
    for_own_elements(lines * a.K, [&](int64_t i) {
        const auto [line, k] = InRow(i, a.K);
        const Line at = line_at(a, line);
        const int64_t place = a.index[at.index + k * a.index_step];
        const bool inside = place >= 0 && place < a.L; // see ../read_index.h
        static_cast<Bits *>(a.taken)[at.taken + k * a.taken_step] =
            inside ? static_cast<const Bits *>(a.whole)[at.whole + place * a.whole_step] : Bits(0);
    });
}

// One thread per line, so that equal places have their order.
template <class Number, class F> __device__ __forceinline__ void each_place(const tc_lines_args &a, int64_t lines, F f)
{
    for_own_elements(lines, [&](int64_t n) {
        const Line at = line_at(a, n);
        Number *whole = static_cast<Number *>(a.whole) + at.whole;
        const Number *taken = static_cast<const Number *>(a.taken) + at.taken;
        for (int64_t k = 0; k < a.K; k++) {
            const int64_t place = a.index[at.index + k * a.index_step];
            if (place >= 0 && place < a.L) f(whole[place * a.whole_step], taken[k * a.taken_step]);
        }
    });
}

template <class Bits> __global__ void __launch_bounds__(element_threads) put_kernel(const __grid_constant__ tc_lines_args a, int64_t lines)
{
    each_place<Bits>(a, lines, [](Bits &to, Bits from) { to = from; });
}

template <class Number>
__global__ void __launch_bounds__(element_threads) add_kernel(const __grid_constant__ tc_lines_args a, int64_t lines)
{
    each_place<Number>(a, lines, [](Number &to, Number from) { to += from; });
}

template <class Number>
__global__ void __launch_bounds__(element_threads) multiply_kernel(const __grid_constant__ tc_lines_args a, int64_t lines)
{
    each_place<Number>(a, lines, [](Number &to, Number from) { to *= from; });
}

template <class Number> int combine(const tc_lines_args &a, int64_t lines, void *stream)
{
    return a.multiplies ? launch<multiply_kernel<Number>>(element_launch(lines, stream), a, lines)
                        : launch<add_kernel<Number>>(element_launch(lines, stream), a, lines);
}

__device__ __forceinline__ int64_t start_of(const tc_cumsum_args &a, int64_t line)
{
    const InRow at(line, a.inner);
    return at.row * a.length * a.inner + at.at;
}

// One block per line (outer, inner), a tile of a block's threads after the other: the sums within the tile, in log2(threads) steps, and
// what came before it.
template <class Number, class Total>
__global__ void __launch_bounds__(element_threads, block_residency) cumsum_kernel(const __grid_constant__ tc_cumsum_args a, int64_t lines)
{
    TC_SHARED(Total, sums, [element_threads]);
    for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
        const int64_t start = start_of(a, line);
        Total before = 0;
        for (int64_t first = 0; first < a.length; first += element_threads) {
            const int64_t k = first + threadIdx.x, at = start + (a.reverse ? a.length - 1 - k : k) * a.inner;
            const bool inside = k < a.length;
            Total own = inside ? static_cast<Total>(static_cast<const Number *>(a.x)[at]) : Total(0);
            __syncthreads();
            sums[threadIdx.x] = own;
            for (unsigned step = 1; step < element_threads; step *= 2) {
                __syncthreads();
                const Total other = threadIdx.x >= step ? sums[threadIdx.x - step] : Total(0);
                __syncthreads();
                own += other;
                sums[threadIdx.x] = own;
            }
            __syncthreads();
            if (inside) static_cast<Number *>(a.y)[at] = static_cast<Number>(before + own);
            before += sums[element_threads - 1];
        }
    }
}

// One thread per line: neighbouring threads read neighbouring elements.
template <class Number, class Total>
__global__ void __launch_bounds__(element_threads, block_residency)
    cumsum_columns_kernel(const __grid_constant__ tc_cumsum_args a, int64_t lines)
{
    for_own_elements(lines, [&](int64_t line) {
        const int64_t start = start_of(a, line);
        Total total = 0;
        for (int64_t k = 0; k < a.length; k++) {
            const int64_t at = start + (a.reverse ? a.length - 1 - k : k) * a.inner;
            total += static_cast<Total>(static_cast<const Number *>(a.x)[at]);
            static_cast<Number *>(a.y)[at] = static_cast<Number>(total);
        }
    });
}

template <class Number, class Total> int cumsum(const tc_cumsum_args &a, int64_t lines, void *stream)
{
    return a.inner >= warp_lanes ? launch<cumsum_columns_kernel<Number, Total>>(element_launch(lines, stream), a, lines)
                                 : launch<cumsum_kernel<Number, Total>>(block_launch(lines, stream), a, lines);
}

} // namespace

// Elements are copied as bits: all tables share the first two kernels.
template <class T> int tc_cuda_lines_gather(const void *args, int64_t lines, void *, void *stream)
{
    const auto &a = *static_cast<const tc_lines_args *>(args);
    if (lines * a.K == 0) return 0;
    return with_bits(a.element_bytes,
                     [&](auto bits) { return launch<gather_kernel<decltype(bits)>>(element_launch(lines * a.K, stream), a, lines); });
}
template <class T> int tc_cuda_lines_put(const void *args, int64_t lines, void *, void *stream)
{
    const auto &a = *static_cast<const tc_lines_args *>(args);
    if (lines * a.K == 0) return 0;
    return with_bits(a.element_bytes,
                     [&](auto bits) { return launch<put_kernel<decltype(bits)>>(element_launch(lines, stream), a, lines); });
}
template <class T> int tc_cuda_lines_combine(const void *args, int64_t lines, void *, void *stream)
{
    const auto &a = *static_cast<const tc_lines_args *>(args);
    if (lines * a.K == 0) return 0;
    return a.integers ? combine<uint64_t>(a, lines, stream) : combine<compute<T>>(a, lines, stream);
}
template <class T> int tc_cuda_cumsum(const void *args, int64_t items, void *, void *stream)
{
    const auto &a = *static_cast<const tc_cumsum_args *>(args);
    const int64_t lines = a.inner ? items / divide_up(a.inner, TC_CUMSUM_TILE) * a.inner : 0;
    if (lines * a.length == 0) return 0;
    return a.integers ? cumsum<uint64_t, uint64_t>(a, lines, stream) : cumsum<compute<T>, double>(a, lines, stream);
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, lines_gather)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, lines_put)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, lines_combine)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, cumsum)
