// loss.cu: element-wise losses, and cross-entropy: one warp per row.
#include "../loss.h"
#include "../softmax.h"
#include "elements.cuh"
#include "functions.cuh"
#include "launchers.h"
#include "rows.cuh"

namespace
{

using namespace tc;

// log x and log(1 - x), clamped at -100; NaN stays.
template <class Real> __device__ __forceinline__ Real bounded_log(Real x) { return v_maximum(Real(-100), real_log(x)); }
template <class Real> __device__ __forceinline__ Real bounded_log_rest(Real x) { return v_maximum(Real(-100), real_log1p(-x)); }

// log(1 + e^-x) = max(-x, 0) + log(1 + e^-|x|), without overflow.
template <class Real> __device__ __forceinline__ Real softplus_of_minus(Real x)
{
    return v_maximum(-x, Real(0)) + real_log1p(real_exp(-v_abs(x)));
}

template <class Real> __device__ __forceinline__ Real loss_of(int function, Real x, Real t, Real p)
{
    switch (function) {
    case TC_LOSS_SQUARED: return (x - t) * (x - t);
    case TC_LOSS_PROBABILITY: return 0 - (t * bounded_log(x) + (1 - t) * bounded_log_rest(x));
    case TC_LOSS_SMOOTH: {
        const Real e = v_abs(x - t);
        return e < p ? Real(0.5) * e * e / p : e - Real(0.5) * p;
    }
    case TC_LOSS_DIVERGENCE: return (t == 0 ? Real(0) : t * real_log(t)) - t * x;
    case TC_LOSS_DIVERGENCE_LOG: return real_exp(t) * (t - x);
    default: return ((p - 1) * t + 1) * softplus_of_minus(x) + (1 - t) * x;
    }
}

// Of the smoothed absolute value of d; a NaN stays one, except with p = 0, as in PyTorch.
template <class Real> __device__ __forceinline__ Real smooth_slope(Real d, Real p) { return p <= v_abs(d) || p == 0 ? v_sign(d) : d / p; }

template <class Real> __device__ __forceinline__ Real slope_of_input(int function, Real x, Real t, Real p)
{
    switch (function) {
    case TC_LOSS_SQUARED: return (x - t) + (x - t);
    case TC_LOSS_PROBABILITY: return (x - t) / v_maximum(Real(1e-12), x * (1 - x)); // bounded at 0 and 1, as in PyTorch
    case TC_LOSS_SMOOTH: return smooth_slope(x - t, p);
    case TC_LOSS_DIVERGENCE: return -t;
    case TC_LOSS_DIVERGENCE_LOG: return -real_exp(t);
    default: return (1 - t) - ((p - 1) * t + 1) * v_sigmoid(-x);
    }
}

template <class Real> __device__ __forceinline__ Real slope_of_target(int function, Real x, Real t, Real p)
{
    switch (function) {
    case TC_LOSS_SQUARED: return (t - x) + (t - x);
    case TC_LOSS_PROBABILITY: return bounded_log_rest(x) - bounded_log(x);
    case TC_LOSS_SMOOTH: return smooth_slope(t - x, p);
    case TC_LOSS_DIVERGENCE: return real_log(t) + (1 - x);
    case TC_LOSS_DIVERGENCE_LOG: return real_exp(t) * (1 + (t - x));
    default: return (p - 1) * softplus_of_minus(x) - x;
    }
}

// Elements are T; losses and their gradients, which are summed, and class weights are Real.
template <class T> __device__ __forceinline__ compute<T> at(const void *array, int64_t i)
{
    return widen(static_cast<const T *>(array)[i]);
}
template <class T> __device__ __forceinline__ compute<T> one_or(const void *array, int64_t i)
{
    return array ? at<T>(array, i) : compute<T>(1);
}

// What the formulas call p.
template <class T, class Args> __device__ __forceinline__ compute<T> shape_of(const Args &a, int64_t i)
{
    return a.function == TC_LOSS_SMOOTH ? static_cast<compute<T>>(a.parameter) : one_or<T>(a.positive_weight, i);
}

template <class T> __global__ void __launch_bounds__(element_threads) loss_kernel(const __grid_constant__ tc_loss_forward_args a)
{
    for_own_elements(a.n, [&](int64_t i) {
        static_cast<compute<T> *>(a.loss)[i] =
            loss_of(a.function, at<T>(a.x, i), at<T>(a.target, i), shape_of<T>(a, i)) * one_or<T>(a.weight, i);
    });
}

template <class T> __global__ void __launch_bounds__(element_threads) loss_backward_kernel(const __grid_constant__ tc_loss_backward_args a)
{
    using Real = compute<T>;
    for_own_elements(a.n, [&](int64_t i) {
        const Real x = at<T>(a.x, i), t = at<T>(a.target, i), p = shape_of<T>(a, i);
        const Real d = static_cast<const Real *>(a.dloss)[i * a.dloss_step] * one_or<T>(a.weight, i);
        if (a.dx) narrow(static_cast<T *>(a.dx)[i], d * slope_of_input(a.function, x, t, p));
        if (a.dtarget) narrow(static_cast<T *>(a.dtarget)[i], d * slope_of_target(a.function, x, t, p));
    });
}

// ---- cross-entropy: the formulas are in ../softmax.h ----

// The class of row n, or -1 for a row that does not count: see ../read_index.h.
template <class Args> __device__ __forceinline__ int64_t class_of(const Args &a, int64_t n)
{
    const int64_t t = a.target[n];
    return t < 0 || t >= a.C || t == a.ignore_index ? -1 : t;
}

template <class T>
__global__ void __launch_bounds__(warp_lanes *warps_a_block)
    cross_entropy_kernel(const __grid_constant__ tc_cross_entropy_forward_args a, int64_t N)
{
    using Real = compute<T>;
    const int64_t n = own_row();
    if (n >= N) return;
    const T *x = static_cast<const T *>(a.x) + n * a.C;
    const int64_t t = class_of(a, n);
    Real smoothing = static_cast<Real>(a.smoothing), top = 0, log_sum = 0;
    if (!a.logarithms) top = warp_top(x, a.C, 1), log_sum = real_log(warp_exp_sum(x, a.C, 1, top));
    Real spread = 0;
    if (smoothing != 0)
        for (int64_t c = threadIdx.x; c < a.C; c += warp_lanes) spread += one_or<Real>(a.weight, c) * ((top - widen(x[c])) + log_sum);
    spread = warp_sum(spread);
    if (threadIdx.x != 0) return;
    if (!a.logarithms) static_cast<Real *>(a.top)[n] = top, static_cast<Real *>(a.log_sum)[n] = log_sum;
    Real loss = 0;
    if (t >= 0) {
        loss = (1 - smoothing) * one_or<Real>(a.weight, t) * ((top - widen(x[t])) + log_sum);
        if (smoothing != 0) loss += smoothing / static_cast<Real>(a.C) * spread;
    }
    static_cast<Real *>(a.loss)[n] = loss;
}

// dx[c] = dloss ((1 - s) w[t] (p[c] - [c = t]) + s / C (p[c] sum(w) - w[c])),  p = e^((x - top) - log_sum).
template <class T>
__global__ void __launch_bounds__(warp_lanes *warps_a_block)
    cross_entropy_backward_kernel(const __grid_constant__ tc_cross_entropy_backward_args a, int64_t N)
{
    using Real = compute<T>;
    const int64_t n = own_row();
    if (n >= N) return;
    const T *x = static_cast<const T *>(a.x) + n * a.C;
    T *dx = static_cast<T *>(a.dx) + n * a.C;
    const int64_t t = class_of(a, n);
    if (t < 0) {
        for (int64_t c = threadIdx.x; c < a.C; c += warp_lanes) narrow(dx[c], Real(0));
        return;
    }
    Real weights = 0;
    for (int64_t c = threadIdx.x; c < a.C; c += warp_lanes) weights += one_or<Real>(a.weight, c);
    weights = warp_sum(weights);
    const Real smoothing = static_cast<Real>(a.smoothing), dloss = static_cast<const Real *>(a.dloss)[n];
    const Real at_target = dloss * (1 - smoothing) * one_or<Real>(a.weight, t), even = dloss * smoothing / static_cast<Real>(a.C);
    const Real top = a.logarithms ? Real(0) : static_cast<const Real *>(a.top)[n];
    const Real log_sum = a.logarithms ? Real(0) : static_cast<const Real *>(a.log_sum)[n];
    for (int64_t c = threadIdx.x; c < a.C; c += warp_lanes) {
        const Real p = a.logarithms ? Real(0) : real_exp((widen(x[c]) - top) - log_sum);
        narrow(dx[c], p * (at_target + even * weights) - even * one_or<Real>(a.weight, c) - (c == t ? at_target : Real(0)));
    }
}

} // namespace

template <class T> int tc_cuda_loss_forward(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_loss_forward_args *>(args);
    return a.n ? launch<loss_kernel<T>>(element_launch(a.n, stream), a) : 0;
}
template <class T> int tc_cuda_loss_backward(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_loss_backward_args *>(args);
    return a.n ? launch<loss_backward_kernel<T>>(element_launch(a.n, stream), a) : 0;
}
template <class T> int tc_cuda_cross_entropy_forward(const void *args, int64_t N, void *, void *stream)
{
    return N ? launch<cross_entropy_kernel<T>>(warp_launch(N, stream), *static_cast<const tc_cross_entropy_forward_args *>(args), N) : 0;
}
template <class T> int tc_cuda_cross_entropy_backward(const void *args, int64_t N, void *, void *stream)
{
    return N ? launch<cross_entropy_backward_kernel<T>>(warp_launch(N, stream), *static_cast<const tc_cross_entropy_backward_args *>(args),
                                                        N)
             : 0;
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, loss_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, loss_backward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, cross_entropy_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, cross_entropy_backward)
