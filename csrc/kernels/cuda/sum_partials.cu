// sum_partials.cu: adds the partial sums of a reduction over rows, always in the same order.
#include "../sum_partials.h"
#include "launchers.h"
#include "vector_rows.cuh"

namespace
{

using namespace tc;

// partial (chunks,C) in the compute dtype; out (C): the chunks are the rows of a single chunk.
template <class T> __global__ void __launch_bounds__(column_threads) sum_partials_kernel(const __grid_constant__ tc_sum_partials_args a)
{
    using Real = compute<T>;
    sum_columns<Real, 1>(
        a.chunks, a.C, a.chunks, [&](auto &sums, int64_t chunk, int64_t column) { sums[0] += row_at<Real>(a.partial, chunk, a.C)[column]; },
        [&](const auto &sums, int64_t column) { narrow(static_cast<T *>(a.out)[column], sums[0]); });
}

} // namespace

template <class T> int tc_cuda_sum_partials(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_sum_partials_args *>(args);
    if (a.C == 0) return 0;
    return launch<sum_partials_kernel<T>>(column_launch(1, a.C, stream), a);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, sum_partials)
