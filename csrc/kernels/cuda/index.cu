// index.cu: gathering elements from scattered positions, writing or adding them there, and the corners of matrices.
#include "../index.h"
#include "../triangle.h"
#include "elements.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

// f(Bits()) for the unsigned integer of this many bytes.
template <class F> int with_bits(int bytes, F f)
{
    switch (bytes) {
    case 8: return f(uint64_t());
    case 4: return f(uint32_t());
    case 2: return f(uint16_t());
    default: return f(uint8_t());
    }
}

// The offsets of element r of the window, on both sides.
struct Place {
    int64_t base, selection;
};
__device__ __forceinline__ Place place_of(const tc_index_args &a, int64_t r)
{
    int64_t offset[2];
    element_offsets<2>(offset, r, a.ndim, a.shape, {a.base_strides, a.selection_strides});
    return {offset[0], offset[1]};
}

template <class Bits> __global__ void __launch_bounds__(element_threads) gather_kernel(const __grid_constant__ tc_index_args a)
{
    for_own_elements(a.points * a.numel, [&](int64_t i) {
        const int64_t p = i / a.numel, from = a.offsets[p];
        const Place at = place_of(a, i - p * a.numel);
        static_cast<Bits *>(a.selection)[p * a.point_stride + at.selection] =
            from == TC_INDEX_NOWHERE ? Bits(0) : static_cast<const Bits *>(a.base)[from + at.base];
    });
}

// Is it true for any thread of the block? All of them must call this.
__device__ __forceinline__ bool block_any(bool own)
{
    TC_SHARED(int, votes, [element_threads / warp_lanes]);
    const int vote = __any_sync(all_lanes, own);
    __syncthreads();
    if (threadIdx.x % warp_lanes == 0) votes[threadIdx.x / warp_lanes] = vote;
    __syncthreads();
    int any = 0;
    for (int i = 0; i < element_threads / warp_lanes; i++) any |= votes[i];
    return any != 0;
}

// Is the position of point p also that of a point in [first, last)?
__device__ __forceinline__ bool is_repeated(const tc_index_args &a, int64_t p, int64_t first, int64_t last)
{
    bool own = false;
    for (int64_t q = first + threadIdx.x; q < last; q += element_threads) own = own || a.offsets[q] == a.offsets[p];
    return block_any(own);
}

// One block per point. Of points with the same position only the last writes, so that the order of the blocks does not matter.
template <class Bits>
__global__ void __launch_bounds__(element_threads, block_residency) put_kernel(const __grid_constant__ tc_index_args a)
{
    for (int64_t p = blockIdx.x; p < a.points; p += gridDim.x) {
        if (is_repeated(a, p, p + 1, a.points)) continue;
        for (int64_t r = threadIdx.x; r < a.numel; r += element_threads) {
            const Place at = place_of(a, r);
            static_cast<Bits *>(a.base)[a.offsets[p] + at.base] = static_cast<const Bits *>(a.selection)[p * a.point_stride + at.selection];
        }
    }
}

// The same, but the first adds for all of them, in their order.
template <class Real>
__global__ void __launch_bounds__(element_threads, block_residency) add_kernel(const __grid_constant__ tc_index_args a)
{
    const Real *selection = static_cast<const Real *>(a.selection);
    for (int64_t p = blockIdx.x; p < a.points; p += gridDim.x) {
        if (is_repeated(a, p, 0, p)) continue;
        const int64_t last = is_repeated(a, p, p + 1, a.points) ? a.points : p + 1;
        for (int64_t r = threadIdx.x; r < a.numel; r += element_threads) {
            const Place at = place_of(a, r);
            const int64_t own = a.offsets[p];
            Real &to = static_cast<Real *>(a.base)[own + at.base];
            Real sum = to;
            const Real *from = selection + p * a.point_stride + at.selection;
            for (int64_t q = p; q < last; q++, from += a.point_stride)
                if (a.offsets[q] == own) sum += *from;
            to = sum;
        }
    }
}

template <class Bits>
__global__ void __launch_bounds__(element_threads) triangle_kernel(const __grid_constant__ tc_triangle_args a, int64_t rows)
{
    for_own_elements(rows * a.N, [&](int64_t i) {
        const int64_t above = i % a.N - i / a.N % a.M - a.diagonal; // columns to the right of the diagonal
        const bool kept = a.upper ? above >= 0 : above <= 0;
        static_cast<Bits *>(a.y)[i] = kept ? static_cast<const Bits *>(a.x)[i] : Bits(0);
    });
}

} // namespace

// Elements are copied as bits: all tables share these kernels, except index_add.
template <class T> int tc_cuda_index_gather(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_index_args *>(args);
    const int64_t n = a.points * a.numel;
    if (n == 0) return 0;
    return with_bits(a.element_bytes, [&](auto bits) { return launch<gather_kernel<decltype(bits)>>(element_launch(n, stream), a); });
}
template <class T> int tc_cuda_index_put(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_index_args *>(args);
    if (a.points * a.numel == 0) return 0;
    return with_bits(a.element_bytes, [&](auto bits) { return launch<put_kernel<decltype(bits)>>(block_launch(a.points, stream), a); });
}
template <class T> int tc_cuda_index_add(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_index_args *>(args);
    return a.points * a.numel != 0 ? launch<add_kernel<compute<T>>>(block_launch(a.points, stream), a) : 0;
}
template <class T> int tc_cuda_triangle(const void *args, int64_t rows, void *, void *stream)
{
    const auto &a = *static_cast<const tc_triangle_args *>(args);
    if (rows * a.N == 0) return 0;
    return with_bits(a.element_bytes,
                     [&](auto bits) { return launch<triangle_kernel<decltype(bits)>>(element_launch(rows * a.N, stream), a, rows); });
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, index_gather)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, index_put)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, index_add)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, triangle)
