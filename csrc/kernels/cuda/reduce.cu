// reduce.cu: sums, largest and smallest elements over any axes, and softmax over rows of any stride: one warp per result, or one block for
// 32 columns.
#include "../reduce.h"
#include "../softmax.h"
#include "elements.cuh"
#include "launchers.h"
#include "rows.cuh"

namespace
{

using namespace tc;

template <class Real> __device__ __forceinline__ Real prepare(int step, Real x, Real center)
{
    if (step == TC_STEP_any || step == TC_STEP_all) return x != 0 ? Real(1) : Real(0);
    return step == TC_STEP_square_difference ? (x - center) * (x - center) : x;
}

// Element i of a result.
template <class Real, class X> __device__ __forceinline__ Real reduced_element(const tc_reduce_args &a, const X *x, int64_t i, Real center)
{
    return prepare(a.step, static_cast<Real>(element(x[reduced_offset(a, i)])), center);
}

template <class Real> __device__ __forceinline__ void write_result(const tc_reduce_args &a, int64_t item, Real sum)
{
    const Real result = sum / static_cast<Real>(a.divisor);
    switch (a.out_dtype) {
    case TC_BOOL: static_cast<uint8_t *>(a.out)[item] = sum != 0; break;
    case TC_FLOAT16: convert(static_cast<float16 *>(a.out)[item], result); break;
    case TC_BFLOAT16: convert(static_cast<bfloat16 *>(a.out)[item], result); break;
    default: static_cast<Real *>(a.out)[item] = result;
    }
}

// One warp per segment of each result; a lane takes every 32nd element.
template <class Real, class X>
__global__ void __launch_bounds__(warp_lanes *warps_a_block) reduce_rows_kernel(const __grid_constant__ tc_reduce_args a)
{
    const int64_t item = own_row();
    if (item >= a.kept * a.segments) return;
    const auto [kept, number] = InRow(item, a.segments);
    const Segment segment(a, number);
    const X *x = static_cast<const X *>(a.x) + offset_of(kept, a.kept_ndim, a.kept_shape, a.kept_strides);
    const Real center = a.center ? static_cast<const Real *>(a.center)[kept] : Real(0);
    Real sum = identity<Real>(a.step);
    for (int64_t i = segment.first + threadIdx.x; i < segment.last; i += warp_lanes)
        sum = combine(a.step, sum, reduced_element(a, x, i, center));
    sum = warp_combine(a.step, sum);
    if (threadIdx.x == 0) write_result(a, item, sum);
}

// One block per segment of 32 neighbouring columns, which are neighbours in memory: a warp reads 32 of a row.
template <class Real, class X>
__global__ void __launch_bounds__(warp_lanes *column_rows, 2) reduce_columns_kernel(const __grid_constant__ tc_reduce_args a)
{
    TC_SHARED(Real, partial, [column_rows][warp_lanes]);
    const int64_t columns = a.kept_shape[a.kept_ndim - 1];
    BlockPlace place;
    const int64_t column = place.take(divide_up(columns, warp_lanes)) * warp_lanes + threadIdx.x;
    const int64_t row = place.rest, number = place.take(a.segments); // row: of out (outer segments, columns)
    const int64_t kept = place.rest * columns + column;
    Real sum = identity<Real>(a.step);
    if (column < columns) {
        const Segment segment(a, number);
        const X *x = static_cast<const X *>(a.x) + offset_of(kept, a.kept_ndim, a.kept_shape, a.kept_strides);
        const Real center = a.center ? static_cast<const Real *>(a.center)[kept] : Real(0);
        for (int64_t i = segment.first + threadIdx.y; i < segment.last; i += column_rows)
            sum = combine(a.step, sum, reduced_element(a, x, i, center));
    }
    partial[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    for (int i = 1; i < column_rows; i++) sum = combine(a.step, sum, partial[i][threadIdx.x]);
    write_result(a, row * columns + column, sum);
}

// ---- softmax: rows of C elements, `inner` apart.  y,x (outer, C, inner) ----

__device__ __forceinline__ int64_t start_of(int64_t row, int64_t C, int64_t inner)
{
    const InRow at(row, inner);
    return at.row * C * inner + at.at;
}

template <class T>
__global__ void __launch_bounds__(warp_lanes *warps_a_block) softmax_kernel(const __grid_constant__ tc_softmax_forward_args a)
{
    using Real = compute<T>;
    const int64_t row = own_row();
    if (row >= a.outer * a.inner) return;
    const int64_t start = start_of(row, a.C, a.inner);
    const T *x = static_cast<const T *>(a.x) + start;
    T *y = static_cast<T *>(a.y) + start;
    const Real top = warp_top(x, a.C, a.inner), sum = warp_exp_sum(x, a.C, a.inner, top);
    const Real scale = 1 / sum, log_sum = real_log(sum);
    for (int64_t c = threadIdx.x; c < a.C; c += warp_lanes) {
        const Real shifted = widen(x[c * a.inner]) - top; // the difference first: top + log(sum) would lose digits
        narrow(y[c * a.inner], a.logarithm ? shifted - log_sum : real_exp(shifted) * scale);
    }
}

// softmax: dx = y (dy - sum dy y);  log softmax: dx = dy - e^y sum dy.
template <class T>
__global__ void __launch_bounds__(warp_lanes *warps_a_block) softmax_backward_kernel(const __grid_constant__ tc_softmax_backward_args a)
{
    using Real = compute<T>;
    const int64_t row = own_row();
    if (row >= a.outer * a.inner) return;
    const int64_t start = start_of(row, a.C, a.inner);
    const T *dy = static_cast<const T *>(a.dy) + start, *y = static_cast<const T *>(a.y) + start;
    T *dx = static_cast<T *>(a.dx) + start;
    Real sum = 0;
    for (int64_t c = threadIdx.x; c < a.C; c += warp_lanes) {
        const int64_t i = c * a.inner;
        sum += a.logarithm ? widen(dy[i]) : widen(dy[i]) * widen(y[i]);
    }
    sum = warp_sum(sum);
    for (int64_t c = threadIdx.x; c < a.C; c += warp_lanes) {
        const int64_t i = c * a.inner;
        const Real dy_i = widen(dy[i]), y_i = widen(y[i]);
        narrow(dx[i], a.logarithm ? dy_i - real_exp(y_i) * sum : y_i * (dy_i - sum));
    }
}

} // namespace

template <class T> int tc_cuda_reduce_rows(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_reduce_args *>(args);
    const int64_t results = a.kept * a.segments;
    if (results == 0) return 0;
    return with_dtype(a.x_dtype,
                      [&](auto type) { return launch<reduce_rows_kernel<compute<T>, decltype(type)>>(warp_launch(results, stream), a); });
}
template <class T> int tc_cuda_reduce_columns(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_reduce_args *>(args);
    if (a.kept * a.segments == 0) return 0;
    const Launch shape = column_launch(a.kept, a.kept_shape[a.kept_ndim - 1], a.segments, stream);
    return with_dtype(a.x_dtype, [&](auto type) { return launch<reduce_columns_kernel<compute<T>, decltype(type)>>(shape, a); });
}
template <class T> int tc_cuda_softmax_forward(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_softmax_forward_args *>(args);
    return a.outer * a.inner * a.C != 0 ? launch<softmax_kernel<T>>(warp_launch(a.outer * a.inner, stream), a) : 0;
}
template <class T> int tc_cuda_softmax_backward(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_softmax_backward_args *>(args);
    return a.outer * a.inner * a.C != 0 ? launch<softmax_backward_kernel<T>>(warp_launch(a.outer * a.inner, stream), a) : 0;
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, reduce_rows)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, reduce_columns)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, softmax_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, softmax_backward)
