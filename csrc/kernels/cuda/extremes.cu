// extremes.cu: where the largest and smallest elements are, their gradient, and the order that sorts a row.
#include "../sort.h"
#include "launchers.h"
#include "rows.cuh"

namespace
{

using namespace tc;

// out (kept): one warp per result.
template <class Real, class X>
__global__ void __launch_bounds__(warp_lanes *warps_a_block) arg_kernel(const __grid_constant__ tc_reduce_args a)
{
    const int64_t kept = own_row();
    if (kept >= a.kept) return;
    const X *x = static_cast<const X *>(a.x) + offset_of(kept, a.kept_ndim, a.kept_shape, a.kept_strides);
    Found<Real> best = {0, -1};
    for (int64_t i = threadIdx.x; i < a.reduced; i += warp_lanes) {
        const Real value = static_cast<Real>(element(x[offset_of(i, a.reduced_ndim, a.reduced_shape, a.reduced_strides)]));
        best = first_extreme(a.step, best, {value, i});
    }
    best = warp_first_extreme(a.step, best);
    if (threadIdx.x == 0) static_cast<int64_t *>(a.out)[kept] = best.at;
}

template <class Real> int arg_reduce(const tc_reduce_args &a, void *stream)
{
    if (a.kept == 0) return 0;
    return with_dtype(a.x_dtype, [&](auto type) { return launch<arg_kernel<Real, decltype(type)>>(warp_launch(a.kept, stream), a); });
}

// One thread per result: of the elements equal to it (NaN equals NaN) the first gets its gradient.
template <class T>
__global__ void __launch_bounds__(element_threads)
    extreme_backward_kernel(const __grid_constant__ tc_extreme_backward_args a, int64_t results)
{
    for_own_elements(results, [&](int64_t i) {
        const int64_t start = i / a.inner * a.length * a.inner + i % a.inner;
        const T *x = static_cast<const T *>(a.x) + start, dy = static_cast<const T *>(a.dy)[i];
        const auto y = element(static_cast<const T *>(a.y)[i]);
        T *dx = static_cast<T *>(a.dx) + start, zero;
        convert(zero, 0.0f);
        bool given = false;
        for (int64_t k = 0; k < a.length; k++) {
            const auto value = element(x[k * a.inner]);
            const bool is_it = !given && (value == y || (value != value && y != y));
            dx[k * a.inner] = is_it ? dy : zero;
            given = given || is_it;
        }
    });
}

// Does x come before y? NaN is larger than all others.
template <class X> __device__ __forceinline__ bool stands_before(X x, X y, bool descending)
{
    const bool x_nan = x != x, y_nan = y != y;
    return descending ? x > y || (x_nan && !y_nan) : x < y || (y_nan && !x_nan);
}

// One thread per element, whose place is the number of elements that come before it: C comparisons each.
template <class X>
__global__ void __launch_bounds__(element_threads) argsort_kernel(const __grid_constant__ tc_argsort_args a, int64_t rows)
{
    for_own_elements(rows * a.C, [&](int64_t i) {
        const int64_t row = i / a.C * a.C, own = i - row;
        const X *x = static_cast<const X *>(a.x) + row;
        int64_t place = 0;
        for (int64_t k = 0; k < a.C; k++)
            place += stands_before(element(x[k]), element(x[own]), a.descending) ||
                     (k < own && !stands_before(element(x[own]), element(x[k]), a.descending));
        if (place < a.K) a.indices[i / a.C * a.K + place] = own;
    });
}

template <class X> int argsort(const void *args, int64_t rows, void *stream)
{
    const auto &a = *static_cast<const tc_argsort_args *>(args);
    return rows * a.C != 0 ? launch<argsort_kernel<X>>(element_launch(rows * a.C, stream), a, rows) : 0;
}

} // namespace

template <class T> int tc_cuda_reduce_arg(const void *args, int64_t, void *, void *stream)
{
    return arg_reduce<compute<T>>(*static_cast<const tc_reduce_args *>(args), stream);
}
template <class T> int tc_cuda_reduce_arg_columns(const void *args, int64_t, void *, void *stream)
{
    return arg_reduce<compute<T>>(*static_cast<const tc_reduce_args *>(args), stream); // out has the same order
}
template <class T> int tc_cuda_extreme_backward(const void *args, int64_t items, void *, void *stream)
{
    const auto &a = *static_cast<const tc_extreme_backward_args *>(args);
    const int64_t results = a.inner ? items / divide_up(a.inner, TC_REDUCE_TILE) * a.inner : 0;
    return results ? launch<extreme_backward_kernel<T>>(element_launch(results, stream), a, results) : 0;
}
template <class T> int tc_cuda_argsort(const void *args, int64_t rows, void *, void *stream) { return argsort<T>(args, rows, stream); }
template <class T> int tc_cuda_integer_argsort(const void *args, int64_t rows, void *, void *stream)
{
    return argsort<int64_t>(args, rows, stream);
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, reduce_arg)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, reduce_arg_columns)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, extreme_backward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, argsort)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, integer_argsort)
