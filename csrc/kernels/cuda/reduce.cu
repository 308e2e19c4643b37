// reduce.cu: sums, largest and smallest elements over any axes, and softmax over rows of any stride: one warp per result.
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

// One warp per segment of each result; a lane takes every 32nd element. `columns`: out (kept / columns, segments, columns).
template <class Real, class X>
__global__ void __launch_bounds__(warp_lanes *warps_a_block) reduce_kernel(const __grid_constant__ tc_reduce_args a, int64_t columns)
{
    const int64_t item = own_row();
    if (item >= a.kept * a.segments) return;
    const int64_t column = item % columns, segment = item / columns % a.segments, kept = item / columns / a.segments * columns + column;
    const int64_t length = a.segments == 1 ? a.reduced : a.segment, first = segment * length;
    const int64_t last = first + length < a.reduced ? first + length : a.reduced;
    const X *x = static_cast<const X *>(a.x) + offset_of(kept, a.kept_ndim, a.kept_shape, a.kept_strides);
    const Real center = a.center ? static_cast<const Real *>(a.center)[kept] : Real(0);
    Real sum = identity<Real>(a.step);
    for (int64_t i = first + threadIdx.x; i < last; i += warp_lanes) {
        const Real value = static_cast<Real>(element(x[offset_of(i, a.reduced_ndim, a.reduced_shape, a.reduced_strides)]));
        sum = combine(a.step, sum, prepare(a.step, value, center));
    }
    sum = warp_combine(a.step, sum);
    if (threadIdx.x != 0) return;
    const Real result = sum / static_cast<Real>(a.divisor);
    switch (a.out_dtype) {
    case TC_BOOL: static_cast<uint8_t *>(a.out)[item] = sum != 0; break;
    case TC_FLOAT16: convert(static_cast<float16 *>(a.out)[item], result); break;
    case TC_BFLOAT16: convert(static_cast<bfloat16 *>(a.out)[item], result); break;
    default: static_cast<Real *>(a.out)[item] = result;
    }
}

template <class T> int reduce(const tc_reduce_args &a, int64_t columns, void *stream)
{
    const int64_t results = a.kept * a.segments;
    if (results == 0) return 0;
    return with_dtype(
        a.x_dtype, [&](auto type) { return launch<reduce_kernel<compute<T>, decltype(type)>>(warp_launch(results, stream), a, columns); });
}

// ---- softmax: rows of C elements, `inner` apart.  y,x (outer, C, inner) ----

template <class T>
__global__ void __launch_bounds__(warp_lanes *warps_a_block) softmax_kernel(const __grid_constant__ tc_softmax_forward_args a)
{
    using Real = compute<T>;
    const int64_t row = own_row();
    if (row >= a.outer * a.inner) return;
    const int64_t start = row / a.inner * a.C * a.inner + row % a.inner;
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
    const int64_t start = row / a.inner * a.C * a.inner + row % a.inner;
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
    return reduce<T>(*static_cast<const tc_reduce_args *>(args), 1, stream); // out (kept, segments): separate columns
}
template <class T> int tc_cuda_reduce_columns(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_reduce_args *>(args);
    return reduce<T>(a, a.kept_shape[a.kept_ndim - 1], stream);
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
