// loss.cu: element-wise losses, and cross-entropy, which reads each row once.
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

// (1 - t) sigmoid(x) - p t sigmoid(-x), both of one exponential, and neither as a difference from 1.
template <class Real> __device__ __forceinline__ Real logit_slope(Real x, Real t, Real p)
{
    const Real z = real_exp(-v_abs(x));
    return quotient((1 - t) * (x < 0 ? z : Real(1)) - p * t * (x < 0 ? Real(1) : z), 1 + z);
}

template <class Real> __device__ __forceinline__ Real slope_of_input(int function, Real x, Real t, Real p)
{
    switch (function) {
    case TC_LOSS_SQUARED: return (x - t) + (x - t);
    case TC_LOSS_PROBABILITY: return (x - t) / v_maximum(Real(1e-12), x * (1 - x)); // bounded at 0 and 1, as in PyTorch
    case TC_LOSS_SMOOTH: return smooth_slope(x - t, p);
    case TC_LOSS_DIVERGENCE: return -t;
    case TC_LOSS_DIVERGENCE_LOG: return -real_exp(t);
    default: return logit_slope(x, t, p);
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

// What a thread adds up of its elements of a row. Exponentials are of differences from the largest element so far, of all threads; while
// there is none but -infinity, from 0.
template <class Real> struct LogitSums {
    Real top, shift, exponentials, weights, spread; // weights: sum of w; spread: sum of w (shift - x)

    // Before the elements of which `highest` is the largest, or an earlier one.
    __device__ __forceinline__ void raise(Real highest)
    {
        const Real above = highest == identity<Real>(TC_STEP_max) ? Real(0) : highest;
        exponentials *= real_exp(top - above);
        spread += weights * (above - shift);
        top = highest, shift = above;
    }
};

// blockDim (threads, rows): `threads` threads per row.  x (N,C). A row goes through the registers once, as many elements at a time as they
// hold.
template <class T, int threads, int N>
__global__ void __launch_bounds__(row_block_threads, 2)
    cross_entropy_kernel(const __grid_constant__ tc_cross_entropy_forward_args a, int64_t rows)
{
    using Real = compute<T>;
    using Part = OwnRow<T, threads, N>;
    TC_SHARED(Real, scratch, [row_block_threads / warp_lanes]);
    const int64_t n = own_row();
    if (n >= rows) return; // all threads of a row
    const T *x = row_at<T>(a.x, n, a.C);
    const Real smoothing = static_cast<Real>(a.smoothing), lowest = identity<Real>(TC_STEP_max);
    LogitSums<Real> sums = {a.logarithms ? Real(0) : lowest, 0, 0, 0, 0};
    const int64_t read = a.logarithms && smoothing == 0 ? 0 : a.C;
    for (int64_t first = 0; first < read; first += Part::longest) {
        Part part(x + first, a.C - first < Part::longest ? a.C - first : Part::longest);
        if (!a.logarithms) {
            Real highest = sums.top;
            part.for_kept([&](int64_t, const Vector<T, N> &v) {
                TC_UNROLL
                for (int j = 0; j < N; j++) highest = v_maximum(highest, widen(v.at[j]));
            });
            highest = group_join<threads>(highest, scratch, [](Real p, Real q) { return v_maximum(p, q); });
            if (first == 0 || highest != sums.top) sums.raise(highest);
            part.for_kept([&](int64_t, const Vector<T, N> &v) {
                TC_UNROLL
                for (int j = 0; j < N; j++) sums.exponentials += real_exp(widen(v.at[j]) - sums.shift);
            });
        }
        if (smoothing != 0)
            part.for_kept([&](int64_t i, const Vector<T, N> &v) {
                TC_UNROLL
                for (int j = 0; j < N; j++) {
                    const Real w = one_or<Real>(a.weight, first + i + j);
                    sums.weights += w;
                    sums.spread += w * (sums.shift - widen(v.at[j]));
                }
            });
    }
    const Real log_sum = a.logarithms ? Real(0) : real_log(group_sum<threads>(sums.exponentials, scratch));
    Real spread = 0;
    if (smoothing != 0) spread = group_sum<threads>(sums.spread + sums.weights * log_sum, scratch);
    if (threadIdx.x != 0) return;
    if (!a.logarithms) static_cast<Real *>(a.top)[n] = sums.top, static_cast<Real *>(a.log_sum)[n] = log_sum;
    const int64_t t = class_of(a, n);
    Real loss = 0;
    if (t >= 0) {
        loss = (1 - smoothing) * one_or<Real>(a.weight, t) * ((sums.top - widen(x[t])) + log_sum);
        if (smoothing != 0) loss += smoothing / static_cast<Real>(a.C) * spread;
    }
    static_cast<Real *>(a.loss)[n] = loss;
}

// dx[c] = dloss ((1 - s) w[t] (p[c] - [c = t]) + s / C (p[c] sum(w) - w[c])),  p = e^((x - top) - log_sum).
template <class T, int threads, int N>
__global__ void __launch_bounds__(row_block_threads, 1)
    cross_entropy_backward_kernel(const __grid_constant__ tc_cross_entropy_backward_args a, int64_t rows)
{
    using Real = compute<T>;
    TC_SHARED(Real, scratch, [row_block_threads / warp_lanes]);
    const int64_t n = own_row(), C = a.C;
    if (n >= rows) return; // all threads of a row
    const T *x = row_at<T>(a.x, n, C);
    T *dx = row_at<T>(a.dx, n, C);
    const int64_t t = class_of(a, n);
    if (t < 0) {
        Vector<T, N> zeros;
        for (int j = 0; j < N; j++) narrow(zeros.at[j], Real(0));
        for_own_vectors<threads, N>(C, [&](int64_t c) { store_vector<N>(dx + c, zeros); });
        return;
    }
    const Real smoothing = static_cast<Real>(a.smoothing), dloss = static_cast<const Real *>(a.dloss)[n];
    Real weights = static_cast<Real>(C);
    if (a.weight && smoothing != 0) {
        weights = 0;
        for_own_vectors<threads, 1>(C, [&](int64_t c) { weights += at<Real>(a.weight, c); });
        weights = group_sum<threads>(weights, scratch);
    }
    const Real at_target = dloss * (1 - smoothing) * one_or<Real>(a.weight, t), even = dloss * smoothing / static_cast<Real>(C);
    const Real top = a.logarithms ? Real(0) : static_cast<const Real *>(a.top)[n];
    const Real log_sum = a.logarithms ? Real(0) : static_cast<const Real *>(a.log_sum)[n], slope = at_target + even * weights;
    for_own_vectors<threads, N>(C, [&](int64_t c) {
        Vector<T, N> v;
        if (!a.logarithms) v = load_vector<N>(x + c);
        TC_UNROLL
        for (int j = 0; j < N; j++) {
            const Real p = a.logarithms ? Real(0) : real_exp((widen(v.at[j]) - top) - log_sum);
            const Real w = smoothing != 0 ? even * one_or<Real>(a.weight, c + j) : Real(0);
            narrow(v.at[j], p * slope - w - (c + j == t ? at_target : Real(0)));
        }
        store_vector<N>(dx + c, v);
    });
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
    const auto &a = *static_cast<const tc_cross_entropy_forward_args *>(args);
    const auto forward = [&](auto threads, auto n, const Launch &shape) {
        return launch<cross_entropy_kernel<T, decltype(threads)::value, decltype(n)::value>>(shape, a, N);
    };
    return launch_rows<T>(N, a.C, stream, forward, a.x);
}
template <class T> int tc_cuda_cross_entropy_backward(const void *args, int64_t N, void *, void *stream)
{
    const auto &a = *static_cast<const tc_cross_entropy_backward_args *>(args);
    const auto backward = [&](auto threads, auto n, const Launch &shape) {
        return launch<cross_entropy_backward_kernel<T, decltype(threads)::value, decltype(n)::value>>(shape, a, N);
    };
    return launch_rows<T>(N, a.C, stream, backward, a.x, a.dx);
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, loss_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, loss_backward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, cross_entropy_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, cross_entropy_backward)
