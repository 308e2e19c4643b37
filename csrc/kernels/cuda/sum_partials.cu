// sum_partials.cu: adds the partial sums of a reduction over rows, always in the same order.
#include "../sum_partials.h"
#include "launchers.h"
#include "vector_rows.cuh"

namespace
{

using namespace tc;

// partial (chunks,C) in the compute dtype; out,before (C). All threads of a column read; the first adds up in the order of the chunks, so
// that the result is that of one thread which has summed all of it.
template <class T> __global__ void __launch_bounds__(column_threads) sum_partials_kernel(const __grid_constant__ tc_sum_partials_args a)
{
    using Real = compute<T>;
    constexpr int reads = 8; // of each thread, before they are added up
    TC_SHARED(Real, some, [reads * column_row_lanes][warp_lanes]);
    const int64_t column = static_cast<int64_t>(blockIdx.x) * warp_lanes + threadIdx.x;
    Real sum = 0;
    for (int64_t first = 0; first < a.chunks; first += reads * column_row_lanes) {
        TC_UNROLL
        for (int i = 0; i < reads; i++) {
            const int row = i * column_row_lanes + static_cast<int>(threadIdx.y);
            some[row][threadIdx.x] = column < a.C && first + row < a.chunks ? row_at<Real>(a.partial, first + row, a.C)[column] : Real(0);
        }
        __syncthreads();
        const int64_t left = a.chunks - first;
        for (int row = 0; threadIdx.y == 0 && row < reads * column_row_lanes && row < left; row++) sum += some[row][threadIdx.x];
        __syncthreads();
    }
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
