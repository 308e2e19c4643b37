// rotary.cu: rotates the pairs of a row by angles that depend on the row's position.
#include "../rotary.h"
#include "elements.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

template <class Real>
__global__ void __launch_bounds__(element_threads) table_kernel(const __grid_constant__ tc_rotary_table_args a, int64_t n)
{
    const int64_t half = a.D / 2;
    for_own_elements(n * half, [&](int64_t i) {
        const auto [at, j] = InRow(i, half);
        const double position = a.positions ? a.positions[at] : static_cast<double>(at);
        const double angle = position * pow(a.base, -2.0 * static_cast<double>(j) / static_cast<double>(a.D));
        static_cast<Real *>(a.cosine)[i] = static_cast<Real>(cos(angle));
        static_cast<Real *>(a.sine)[i] = static_cast<Real>(sin(angle));
    });
}

// A thread per pair.
template <class T> __global__ void __launch_bounds__(element_threads) rotary_kernel(const __grid_constant__ tc_rotary_args a, int64_t rows)
{
    using Real = compute<T>;
    const int64_t half = a.D / 2;
    for_own_elements(rows * half, [&](int64_t i) {
        const auto [row, j] = InRow(i, half);
        int64_t at[1];
        element_offsets<1>(at, row, a.ndim, a.shape, {a.strides});
        const int64_t first = row * a.D + (a.interleaved ? 2 * j : j), second = first + (a.interleaved ? 1 : half);
        const Real c = static_cast<const Real *>(a.cosine)[at[0] * half + j], s = static_cast<const Real *>(a.sine)[at[0] * half + j];
        const Real sine = a.inverse ? -s : s;
        const T *x = static_cast<const T *>(a.x);
        T *y = static_cast<T *>(a.y);
        const Real u = widen(x[first]), v = widen(x[second]);
        narrow(y[first], u * c - v * sine);
        narrow(y[second], v * c + u * sine);
    });
}

} // namespace

template <class T> int tc_cuda_rotary_table(const void *args, int64_t n, void *, void *stream)
{
    const auto &a = *static_cast<const tc_rotary_table_args *>(args);
    return n * a.D != 0 ? launch<table_kernel<compute<T>>>(element_launch(n * (a.D / 2), stream), a, n) : 0;
}
template <class T> int tc_cuda_rotary(const void *args, int64_t rows, void *, void *stream)
{
    const auto &a = *static_cast<const tc_rotary_args *>(args);
    return rows * a.D != 0 ? launch<rotary_kernel<T>>(element_launch(rows * (a.D / 2), stream), a, rows) : 0;
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, rotary_table)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, rotary)
