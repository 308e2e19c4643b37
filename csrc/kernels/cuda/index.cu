// index.cu: gathering elements from scattered positions, writing or adding them there, and the corners of matrices.
#include "../check_index.h"
#include "../index.h"
#include "../triangle.h"
#include "elements.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

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

// ---- where the points are ----

// The index of one pointer at point p, as it was given.
__device__ __forceinline__ int64_t index_at(const tc_index_points_args &a, const tc_index_pointer &pointer, int64_t p)
{
    int64_t offset[1];
    element_offsets<1>(offset, p, a.ndim, a.shape, {pointer.strides});
    switch (pointer.dtype) {
    case TC_INT32: return static_cast<const int32_t *>(pointer.indices)[offset[0]];
    case TC_UINT8: return static_cast<const uint8_t *>(pointer.indices)[offset[0]];
    default: return static_cast<const int64_t *>(pointer.indices)[offset[0]];
    }
}
__device__ __forceinline__ bool is_inside(const tc_index_pointer &pointer, int64_t index)
{
    return index >= -pointer.length && index < pointer.length;
}

struct Point {
    int64_t offset, plain;
};
__device__ __forceinline__ Point point_at(const tc_index_points_args &a, int64_t p)
{
    Point at = {0, 0};
    for (int n = 0; n < a.pointers; n++) {
        const tc_index_pointer &pointer = a.pointer[n];
        const int64_t given = index_at(a, pointer, p), index = given < 0 ? given + pointer.length : given;
        if (!is_inside(pointer, given)) return {TC_INDEX_NOWHERE, TC_INDEX_NOWHERE};
        at.offset += index * pointer.step;
        at.plain += index * pointer.plain_step;
    }
    return at;
}

// By one block: raises the alarm for the first index that is out of range, counted pointer after pointer.
__device__ __forceinline__ void check_points(const tc_index_points_args &a)
{
    TC_SHARED(int64_t, first, [element_threads]);
    const int64_t none = a.pointers * a.points;
    int64_t outside = none;
    for (int n = 0; n < a.pointers && outside == none; n++) {
        for (int64_t p = threadIdx.x; p < a.points && outside == none; p += element_threads)
            if (!is_inside(a.pointer[n], index_at(a, a.pointer[n], p))) outside = n * a.points + p;
    }
    first[threadIdx.x] = outside;
    join_block<element_threads>([&](int own, int other) {
        if (first[other] < first[own]) first[own] = first[other];
    });
    if (threadIdx.x != 0 || first[0] == none) return;
    const tc_index_pointer &pointer = a.pointer[first[0] / a.points];
    a.alarm[TC_ALARM_VALUE] = index_at(a, pointer, first[0] % a.points);
    a.alarm[TC_ALARM_POSITION] = pointer.axis;
    a.alarm[TC_ALARM_TICKET] = a.ticket;
}

// The first block checks, the others write the offsets.
__global__ void __launch_bounds__(element_threads) points_kernel(const __grid_constant__ tc_index_points_args a)
{
    if (blockIdx.x == 0) return check_points(a);
    for_own_elements(
        a.points,
        [&](int64_t p) {
            const Point at = point_at(a, p);
            if (a.offsets) a.offsets[p] = at.offset;
            if (a.plain) a.plain[p] = at.plain;
        },
        1);
}

// ---- moving elements ----

// With pointers the first block checks them, and the others find the points themselves; the first element of a window notes its point.
template <class Bits> __global__ void __launch_bounds__(element_threads) gather_kernel(const __grid_constant__ tc_index_gather_args args)
{
    const tc_index_args &a = args.window;
    const tc_index_points_args &points = args.points;
    const bool finds = points.pointers > 0;
    if (finds && blockIdx.x == 0) return check_points(points);
    for_own_elements(
        a.points * a.numel,
        [&](int64_t i) {
            const int64_t p = i / a.numel, r = i - p * a.numel;
            const Point from = finds ? point_at(points, p) : Point{a.offsets[p], 0};
            const Place at = place_of(a, r);
            if (points.plain && r == 0) points.plain[p] = from.plain;
            static_cast<Bits *>(a.selection)[p * a.point_stride + at.selection] =
                from.offset == TC_INDEX_NOWHERE ? Bits(0) : static_cast<const Bits *>(a.base)[from.offset + at.base];
        },
        finds);
}

template <class Bits> __device__ __forceinline__ void put_element(const tc_index_args &a, int64_t p, int64_t r)
{
    const Place at = place_of(a, r);
    static_cast<Bits *>(a.base)[a.offsets[p] + at.base] = static_cast<const Bits *>(a.selection)[p * a.point_stride + at.selection];
}

// Is the position of point p also that of a point in [first, last)?
__device__ __forceinline__ bool is_repeated(const tc_index_args &a, int64_t p, int64_t first, int64_t last)
{
    bool own = false;
    for (int64_t q = first + threadIdx.x; q < last; q += element_threads) own = own || a.offsets[q] == a.offsets[p];
    return __syncthreads_or(own);
}

// One block per point. Of points with the same position only the last writes, so that the order of the blocks does not matter.
template <class Bits>
__global__ void __launch_bounds__(element_threads, block_residency) put_kernel(const __grid_constant__ tc_index_args a)
{
    for (int64_t p = blockIdx.x; p < a.points; p += gridDim.x) {
        if (a.offsets[p] == TC_INDEX_NOWHERE || is_repeated(a, p, p + 1, a.points)) continue;
        for (int64_t r = threadIdx.x; r < a.numel; r += element_threads) put_element<Bits>(a, p, r);
    }
}

// The same, but the first adds for all of them, in their order: the sum has the bits of the CPU's.
template <class Real>
__global__ void __launch_bounds__(element_threads, block_residency) add_kernel(const __grid_constant__ tc_index_args a)
{
    const Real *selection = static_cast<const Real *>(a.selection);
    for (int64_t p = blockIdx.x; p < a.points; p += gridDim.x) {
        if (a.offsets[p] == TC_INDEX_NOWHERE || is_repeated(a, p, 0, p)) continue;
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

// f(p, r, k) for the elements r of the window at the first point (`last`: the last one) of each position, where a.order[k] is p.
template <bool last, class F> __device__ __forceinline__ void for_positions(const tc_index_args &a, F f)
{
    for_own_elements(a.points * a.numel, [&](int64_t i) {
        const int64_t k = i / a.numel, p = a.order[k], beside = last ? k + 1 : k - 1;
        const bool at_end = beside < 0 || beside >= a.points;
        if (a.offsets[p] == TC_INDEX_NOWHERE || (!at_end && a.offsets[a.order[beside]] == a.offsets[p])) return;
        f(p, i - k * a.numel, k);
    });
}

// Many points: in the order of their offsets those with the same position are neighbours. The same bits as above.
template <class Bits> __global__ void __launch_bounds__(element_threads) put_ordered_kernel(const __grid_constant__ tc_index_args a)
{
    for_positions<true>(a, [&](int64_t p, int64_t r, int64_t) { put_element<Bits>(a, p, r); });
}
template <class Real> __global__ void __launch_bounds__(element_threads) add_ordered_kernel(const __grid_constant__ tc_index_args a)
{
    for_positions<false>(a, [&](int64_t p, int64_t r, int64_t k) {
        const Place at = place_of(a, r);
        const int64_t own = a.offsets[p];
        Real &to = static_cast<Real *>(a.base)[own + at.base];
        Real sum = to;
        for (int64_t q = p; a.offsets[q] == own;) {
            sum += static_cast<const Real *>(a.selection)[q * a.point_stride + at.selection];
            if (++k == a.points) break;
            q = a.order[k];
        }
        to = sum;
    });
}

template <class Bits>
__global__ void __launch_bounds__(element_threads) triangle_kernel(const __grid_constant__ tc_triangle_args a, int64_t rows)
{
    for_own_elements(rows * a.N, [&](int64_t i) {
        const auto [row, column] = InRow(i, a.N);
        const int64_t above = column - row % a.M - a.diagonal; // columns to the right of the diagonal
        const bool kept = a.upper ? above >= 0 : above <= 0;
        static_cast<Bits *>(a.y)[i] = kept ? static_cast<const Bits *>(a.x)[i] : Bits(0);
    });
}

} // namespace

// Elements are copied as bits: all tables share these kernels, except index_add.
template <class T> int tc_cuda_index_gather(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_index_gather_args *>(args);
    const int64_t n = a.window.points * a.window.numel;
    if (n == 0) return 0;
    Launch shape = element_launch(n, stream);
    shape.grid.x += a.points.pointers > 0; // the one that checks
    return with_bits(a.window.element_bytes, [&](auto bits) { return launch<gather_kernel<decltype(bits)>>(shape, a); });
}
template <class T> int tc_cuda_index_points(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_index_points_args *>(args);
    if (a.points == 0) return 0;
    Launch shape = element_launch(a.points, stream);
    shape.grid.x += 1; // the one that checks
    return launch<points_kernel>(shape, a);
}
template <class T> int tc_cuda_index_put(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_index_args *>(args);
    if (a.points * a.numel == 0) return 0;
    return with_bits(a.element_bytes, [&](auto bits) {
        using Bits = decltype(bits);
        if (a.order) return launch<put_ordered_kernel<Bits>>(element_launch(a.points * a.numel, stream), a);
        return launch<put_kernel<Bits>>(block_launch(a.points, stream), a);
    });
}
template <class T> int tc_cuda_index_add(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_index_args *>(args);
    if (a.points * a.numel == 0) return 0;
    if (a.order) return launch<add_ordered_kernel<compute<T>>>(element_launch(a.points * a.numel, stream), a);
    return launch<add_kernel<compute<T>>>(block_launch(a.points, stream), a);
}
template <class T> int tc_cuda_triangle(const void *args, int64_t rows, void *, void *stream)
{
    const auto &a = *static_cast<const tc_triangle_args *>(args);
    if (rows * a.N == 0) return 0;
    return with_bits(a.element_bytes,
                     [&](auto bits) { return launch<triangle_kernel<decltype(bits)>>(element_launch(rows * a.N, stream), a, rows); });
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, index_gather)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, index_points)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, index_put)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, index_add)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, triangle)
