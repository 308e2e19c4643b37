// extremes.cu: where the largest and smallest elements are, their gradient, and the order that sorts a row.
#include "../sort.h"
#include "found.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

// out (kept): where the first largest or smallest element is.
template <class Real> struct FirstExtreme {
    using Value = Real;
    static __device__ __forceinline__ Found<Real> none(int) { return {0, -1}; }
    template <class X> static __device__ __forceinline__ Real value(int, X x) { return static_cast<Real>(x); }
    static __device__ __forceinline__ Found<Real> join(int step, const Found<Real> &a, const Found<Real> &b)
    {
        return first_extreme(step, a, b);
    }
    static __device__ __forceinline__ void write(const tc_reduce_args &a, int64_t kept, const Found<Real> &found)
    {
        static_cast<int64_t *>(a.out)[kept] = found.at;
    }
};

template <class Real> int arg_reduce(const void *args, bool columns, void *stream)
{
    const auto &a = *static_cast<const tc_reduce_args *>(args);
    if (a.kept == 0) return 0;
    return with_dtype(a.x_dtype, [&](auto type) { return launch_find<FirstExtreme<Real>, decltype(type)>(a, columns, stream); });
}

// One thread per result: of the elements equal to it (NaN equals NaN) the first gets its gradient.
template <class T>
__global__ void __launch_bounds__(element_threads)
    extreme_backward_kernel(const __grid_constant__ tc_extreme_backward_args a, int64_t results)
{
    for_own_elements(results, [&](int64_t i) {
        const InRow result(i, a.inner);
        const int64_t start = result.row * a.length * a.inner + result.at;
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

// Element i of a row before element j: of equal ones the first, so that no two are equal and the order is stable.
template <class X> __device__ __forceinline__ bool goes_before(const X *x, int64_t i, int64_t j, bool descending)
{
    const auto a = element(x[i]), b = element(x[j]);
    return stands_before(a, b, descending) || (i < j && !stands_before(b, a, descending));
}

constexpr int64_t shortest_run = 256; // sorted by counting what goes before each element; longer runs by merging two

// One pass over rows of C elements, which are in runs of `sorted` elements in order (none for the first pass); afterwards runs are
// `to_be` long. from, to (rows, C); the last pass writes the first K of each row, to (rows, K).
struct SortPass {
    const int64_t *from;
    int64_t *to;
    int64_t sorted, to_be, written;
};

// One thread per element: its place is where its run begins, and the number of elements of the run that go before it.
template <class X>
__global__ void __launch_bounds__(element_threads)
    argsort_kernel(const __grid_constant__ tc_argsort_args a, const __grid_constant__ SortPass pass)
{
    for_own_elements(a.N * a.C, [&](int64_t i) {
        const int64_t row = i / a.C, at = i % a.C, run = at / pass.to_be * pass.to_be;
        const X *x = static_cast<const X *>(a.x) + row * a.C;
        int64_t own = at, place = run;
        if (pass.from) {
            const int64_t *from = pass.from + row * a.C, middle = run + pass.sorted, last = run + pass.to_be < a.C ? run + pass.to_be : a.C;
            const bool in_first = at < middle;
            own = within(from[at], a.C);
            place += in_first ? at - run : at - middle;
            int64_t low = in_first ? middle : run, high = in_first ? last : middle; // in the other half
            const int64_t begin = low;
            while (low < high) {
                const int64_t between = low + (high - low) / 2;
                if (goes_before(x, within(from[between], a.C), own, a.descending))
                    low = between + 1;
                else
                    high = between;
            }
            place += low - begin;
        } else {
            const int64_t last = run + pass.to_be < a.C ? run + pass.to_be : a.C;
            for (int64_t k = run; k < last; k++) place += goes_before(x, k, own, a.descending);
        }
        if (place < pass.written) pass.to[row * pass.written + place] = own;
    });
}

int sort_passes(int64_t C)
{
    int passes = 1;
    for (int64_t run = shortest_run; run < C; run *= 2) passes++;
    return passes;
}

// The orders between the passes: two, of which each pass reads one and writes the other.
size_t argsort_scratch(const tc_argsort_args &a)
{
    const int passes = sort_passes(a.C);
    return static_cast<size_t>(passes > 2 ? 2 : passes - 1) * static_cast<size_t>(a.N * a.C) * sizeof(int64_t);
}

template <class X> int argsort(const void *args, void *scratch, void *stream)
{
    const auto &a = *static_cast<const tc_argsort_args *>(args);
    const int passes = sort_passes(a.C);
    int64_t *between[2] = {static_cast<int64_t *>(scratch), static_cast<int64_t *>(scratch) + (passes > 2 ? a.N * a.C : 0)};
    if (a.N * a.C == 0) return 0;
    SortPass pass = {nullptr, nullptr, 0, shortest_run, a.C};
    for (int i = 0; i < passes; i++) {
        const bool last = i == passes - 1;
        pass.to = last ? a.indices : between[i % 2];
        pass.written = last ? a.K : a.C;
        const int error = launch<argsort_kernel<X>>(element_launch(a.N * a.C, stream), a, pass);
        if (error) return error;
        pass = {pass.to, nullptr, pass.to_be, 2 * pass.to_be, a.C};
    }
    return 0;
}

} // namespace

template <class T> int tc_cuda_reduce_arg(const void *args, int64_t, void *, void *stream)
{
    return arg_reduce<compute<T>>(args, false, stream);
}
template <class T> int tc_cuda_reduce_arg_columns(const void *args, int64_t, void *, void *stream)
{
    return arg_reduce<compute<T>>(args, true, stream);
}
template <class T> int tc_cuda_extreme_backward(const void *args, int64_t items, void *, void *stream)
{
    const auto &a = *static_cast<const tc_extreme_backward_args *>(args);
    const int64_t results = a.inner ? items / divide_up(a.inner, TC_REDUCE_TILE) * a.inner : 0;
    return results ? launch<extreme_backward_kernel<T>>(element_launch(results, stream), a, results) : 0;
}
template <class T> int tc_cuda_argsort(const void *args, int64_t, void *scratch, void *stream) { return argsort<T>(args, scratch, stream); }
template <class T> int tc_cuda_integer_argsort(const void *args, int64_t, void *scratch, void *stream)
{
    return argsort<int64_t>(args, scratch, stream);
}
template <class T> size_t tc_cuda_argsort_scratch(const void *args) { return argsort_scratch(*static_cast<const tc_argsort_args *>(args)); }
template <class T> size_t tc_cuda_integer_argsort_scratch(const void *args) { return tc_cuda_argsort_scratch<T>(args); }
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, reduce_arg)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, reduce_arg_columns)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, extreme_backward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE_WITH_SCRATCH, argsort)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE_WITH_SCRATCH, integer_argsort)
