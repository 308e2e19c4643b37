// found.cuh: reductions to a value and where it was found, over axes of any strides: one warp per result, or one block for 32 columns.
#pragma once
#include "rows.cuh"

namespace tc
{

// A Reduction says what is found: before any element, of one, of two, and what is written of it.

// Of the elements of a segment from the first-th on, every step-th.
template <class Reduction, class X>
__device__ __forceinline__ Found<typename Reduction::Value> find(const tc_reduce_args &a, int64_t kept, const Segment &segment,
                                                                 int64_t first, int64_t step)
{
    const X *x = static_cast<const X *>(a.x) + offset_of(kept, a.kept_ndim, a.kept_shape, a.kept_strides);
    Found<typename Reduction::Value> found = Reduction::none(a.step);
    for (int64_t i = segment.first + first; i < segment.last; i += step)
        found = Reduction::join(a.step, found, {Reduction::value(a.step, element(x[reduced_offset(a, i)])), i});
    return found;
}

// out (kept, segments): one warp for each.
template <class Reduction, class X>
__global__ void __launch_bounds__(warp_lanes *warps_a_block) find_kernel(const __grid_constant__ tc_reduce_args a)
{
    const int64_t item = own_row();
    if (item >= a.kept * a.segments) return;
    const auto [kept, number] = InRow(item, a.segments);
    auto found = find<Reduction, X>(a, kept, Segment(a, number), threadIdx.x, warp_lanes);
    for (int distance = warp_lanes / 2; distance > 0; distance /= 2)
        found = Reduction::join(a.step, found,
                                {__shfl_xor_sync(all_lanes, found.value, distance), __shfl_xor_sync(all_lanes, found.at, distance)});
    if (threadIdx.x == 0) Reduction::write(a, item, found);
}

// One block per segment of 32 neighbouring columns, which are neighbours in memory: a warp reads 32 of a row.
template <class Reduction, class X>
__global__ void __launch_bounds__(warp_lanes *column_rows, 2) find_in_columns_kernel(const __grid_constant__ tc_reduce_args a)
{
    using Value = typename Reduction::Value;
    TC_SHARED(Value, values, [column_rows][warp_lanes]);
    TC_SHARED(int64_t, places, [column_rows][warp_lanes]);
    const int64_t columns = a.kept_shape[a.kept_ndim - 1];
    BlockPlace place;
    const int64_t column = place.take(divide_up(columns, warp_lanes)) * warp_lanes + threadIdx.x, number = place.take(a.segments);
    const int64_t kept = place.rest * columns + column;
    Found<Value> found = Reduction::none(a.step);
    if (column < columns) found = find<Reduction, X>(a, kept, Segment(a, number), threadIdx.y, column_rows);
    values[threadIdx.y][threadIdx.x] = found.value;
    places[threadIdx.y][threadIdx.x] = found.at;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    for (int i = 1; i < column_rows; i++) found = Reduction::join(a.step, found, {values[i][threadIdx.x], places[i][threadIdx.x]});
    Reduction::write(a, kept * a.segments + number, found);
}

template <class Reduction, class X> int launch_find(const tc_reduce_args &a, bool columns, void *stream)
{
    if (!columns) return launch<find_kernel<Reduction, X>>(warp_launch(a.kept * a.segments, stream), a);
    return launch<find_in_columns_kernel<Reduction, X>>(column_launch(a.kept, a.kept_shape[a.kept_ndim - 1], a.segments, stream), a);
}

} // namespace tc
