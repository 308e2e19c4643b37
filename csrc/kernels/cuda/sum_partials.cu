// sum_partials.cu: adds the partial sums of a reduction over rows, always in the same order.
#include "../sum_partials.h"
#include "launchers.h"
#include "vector_rows.cuh"

namespace
{

using namespace tc;

// partial (chunks,C) in the compute dtype; out,before (C).
template <class T> __global__ void __launch_bounds__(column_threads) sum_partials_kernel(const __grid_constant__ tc_sum_partials_args a)
{
    using Real = compute<T>;
    const int64_t column = static_cast<int64_t>(blockIdx.x) * warp_lanes + threadIdx.x;
    Real sum = sum_of_chunks<Real>(a.partial, a.chunks, a.C, column);
    if (threadIdx.y != 0 || column >= a.C) return;
    if (a.before) sum += widen(static_cast<const T *>(a.before)[column]);
    narrow(static_cast<T *>(a.out)[column], sum);
}

} // namespace

template <class T> int tc_cuda_sum_partials(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_sum_partials_args *>(args);
    if (a.C == 0) return 0;
    return launch<sum_partials_kernel<T>>(column_launch(1, a.C, stream), a);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, sum_partials)
