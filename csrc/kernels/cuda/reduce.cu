// reduce.cu: sums, largest and smallest elements over any axes, and softmax over rows of any stride: a warp or a block per result, or one
// block for 32 columns.
#include "../reduce.h"
#include "../softmax.h"
#include "elements.cuh"
#include "launchers.h"
#include "rows.cuh"

namespace
{

using namespace tc;

// What is combined of an element.
template <class Real, class X> __device__ __forceinline__ Real prepare(int step, X stored, Real center)
{
    const Real x = static_cast<Real>(element(stored));
    if (step == TC_STEP_any || step == TC_STEP_all) return x != 0 ? Real(1) : Real(0);
    return step == TC_STEP_square_difference ? (x - center) * (x - center) : x;
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

// A warp or a block per segment of each result; a thread takes every `threads`-th element. Along one axis the loads of several are on their
// way at a time.
template <int threads, class Real, class X>
__global__ void __launch_bounds__(row_block_threads, 1) reduce_rows_kernel(const __grid_constant__ tc_reduce_args a)
{
    TC_SHARED(Real, scratch, [row_block_threads / warp_lanes]);
    const int64_t item = own_row();
    if (item >= a.kept * a.segments) return;
    const auto [kept, number] = InRow(item, a.segments);
    const Segment segment(a, number);
    const X *x = static_cast<const X *>(a.x) + offset_of(kept, a.kept_ndim, a.kept_shape, a.kept_strides);
    const Real center = a.center ? static_cast<const Real *>(a.center)[kept] : Real(0);
    Real sum = identity<Real>(a.step);
    const auto add = [&](X value) { sum = combine(a.step, sum, prepare(a.step, value, center)); };
    constexpr int several = 8;
    int64_t i = segment.first + threadIdx.x;
    if (a.reduced_ndim == 1) {
        TC_ROLLED
        for (; i + (several - 1) * threads < segment.last; i += several * threads) {
            X values[several];
            TC_UNROLL
            for (int n = 0; n < several; n++) values[n] = x[(i + n * threads) * a.reduced_strides[0]];
            TC_UNROLL
            for (int n = 0; n < several; n++) add(values[n]);
        }
    }
    TC_ROLLED
    for (; i < segment.last; i += threads) add(x[reduced_offset(a, i)]);
    sum = group_join<threads>(sum, &scratch[0], [&](Real one, Real other) { return combine(a.step, one, other); });
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
            sum = combine(a.step, sum, prepare(a.step, x[reduced_offset(a, i)], center));
    }
    partial[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    for (int i = 1; i < column_rows; i++) sum = combine(a.step, sum, partial[i][threadIdx.x]);
    write_result(a, row * columns + column, sum);
}

// ---- softmax: rows of C elements, `inner` apart.  y,x (outer, C, inner) ----

// softmax: e^(x - top) / sum;  log softmax: x - top - log(sum), the difference first: top + log(sum) would lose digits.
template <class Real> struct Softmax {
    Real top, scale, log_sum;
    bool logarithm;
    __device__ __forceinline__ Softmax(Real largest, Real sum, bool of_logarithm)
        : top(largest), scale(1 / sum), log_sum(real_log(sum)), logarithm(of_logarithm)
    {
    }
    __device__ __forceinline__ Real operator()(Real x) const { return logarithm ? x - top - log_sum : real_exp(x - top) * scale; }
};
// Of an element from the sum over its row: of y dy, or of dy for log softmax.
template <class Real> __device__ __forceinline__ Real softmax_slope(bool logarithm, Real dy, Real y, Real sum)
{
    return logarithm ? dy - real_exp(y) * sum : y * (dy - sum);
}

// Rows of neighbours, each read once; blockDim (threads of a row, rows).
template <class T, int threads, int N>
__global__ void __launch_bounds__(row_block_threads, 1) softmax_rows_kernel(const __grid_constant__ tc_softmax_forward_args a, int64_t rows)
{
    using Real = compute<T>;
    TC_SHARED(Real, scratch, [row_block_threads / warp_lanes]);
    const int64_t row = own_row();
    if (row >= rows) return; // threads of one row leave together, and a row of several warps is alone
    OwnRow<T, threads, N> own(row_at<T>(a.x, row, a.C), a.C);
    Real top = identity<Real>(TC_STEP_max), sum = 0;
    own.for_each([&](int64_t, const Vector<T, N> &v) {
        TC_UNROLL
        for (const T x : v.at) top = v_maximum(top, widen(x));
    });
    top = group_join<threads>(top, &scratch[0], [](Real one, Real other) { return v_maximum(one, other); });
    own.for_each([&](int64_t, const Vector<T, N> &v) {
        TC_UNROLL
        for (const T x : v.at) sum += real_exp(widen(x) - top);
    });
    const Softmax<Real> softmax(top, group_sum<threads>(sum, &scratch[0]), a.logarithm);
    T *const y = row_at<T>(a.y, row, a.C);
    own.for_each([&](int64_t i, Vector<T, N> &v) {
        TC_UNROLL
        for (T &x : v.at) narrow(x, softmax(widen(x)));
        store_vector<N>(y + i, v);
    });
}

// dx = y (dy - sum dy y), or dy - e^y sum dy.
template <class T, int threads, int N>
__global__ void __launch_bounds__(row_block_threads, 1)
    softmax_rows_backward_kernel(const __grid_constant__ tc_softmax_backward_args a, int64_t rows)
{
    using Real = compute<T>;
    TC_SHARED(Real, scratch, [row_block_threads / warp_lanes]);
    const int64_t row = own_row();
    if (row >= rows) return;
    OwnRow<T, threads, N> dy(row_at<T>(a.dy, row, a.C), a.C), y(row_at<T>(a.y, row, a.C), a.C);
    Real sum = 0;
    dy.for_both(y, [&](int64_t, const Vector<T, N> &d, const Vector<T, N> &v) {
        TC_UNROLL
        for (int j = 0; j < N; j++) sum += a.logarithm ? widen(d.at[j]) : widen(d.at[j]) * widen(v.at[j]);
    });
    sum = group_sum<threads>(sum, &scratch[0]);
    T *const dx = row_at<T>(a.dx, row, a.C);
    dy.for_both(y, [&](int64_t i, Vector<T, N> &d, const Vector<T, N> &v) {
        TC_UNROLL
        for (int j = 0; j < N; j++) narrow(d.at[j], softmax_slope(a.logarithm, widen(d.at[j]), widen(v.at[j]), sum));
        store_vector<N>(dx + i, d);
    });
}

// Rows whose elements are apart, and those of float64: a warp for each.

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
    const Real top = warp_top(x, a.C, a.inner);
    const Softmax<Real> softmax(top, warp_exp_sum(x, a.C, a.inner, top), a.logarithm);
    for (int64_t c = threadIdx.x; c < a.C; c += warp_lanes) narrow(y[c * a.inner], softmax(widen(x[c * a.inner])));
}

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
        narrow(dx[i], softmax_slope(a.logarithm, widen(dy[i]), widen(y[i]), sum));
    }
}

} // namespace

template <class T> int tc_cuda_reduce_rows(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_reduce_args *>(args);
    const int64_t results = a.kept * a.segments, length = a.segments == 1 ? a.reduced : a.segment;
    if (results == 0) return 0;
    return with_dtype(a.x_dtype, [&](auto type) {
        const auto with = [&](auto threads) {
            return launch<reduce_rows_kernel<threads.value, compute<T>, decltype(type)>>(rows_launch(threads.value, results, stream), a);
        };
        return length <= longest_warp_row ? with(Constant<warp_lanes>()) : with(Constant<row_block_threads>());
    });
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
    if (a.outer * a.inner * a.C == 0) return 0;
    if constexpr (sizeof(T) < 8) {
        const auto rows = [&](auto threads, auto N, const Launch &shape) {
            return launch<softmax_rows_kernel<T, threads.value, N.value>>(shape, a, a.outer);
        };
        if (a.inner == 1) return launch_rows<T>(a.outer, a.C, stream, rows, a.x, a.y);
    }
    return launch<softmax_kernel<T>>(warp_launch(a.outer * a.inner, stream), a);
}
template <class T> int tc_cuda_softmax_backward(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_softmax_backward_args *>(args);
    if (a.outer * a.inner * a.C == 0) return 0;
    if constexpr (sizeof(T) < 8) {
        const auto rows = [&](auto threads, auto N, const Launch &shape) {
            return launch<softmax_rows_backward_kernel<T, threads.value, N.value>>(shape, a, a.outer);
        };
        if (a.inner == 1) return launch_rows<T>(a.outer, a.C, stream, rows, a.dy, a.y, a.dx);
    }
    return launch<softmax_backward_kernel<T>>(warp_launch(a.outer * a.inner, stream), a);
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, reduce_rows)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, reduce_columns)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, softmax_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, softmax_backward)
