// sum_partials.cu: adds the partial sums of a reduction over rows, always in the same order.
#include "../sum_partials.h"
#include "launchers.h"
#include "device.cuh"

namespace
{

using namespace tc;

// blockDim (32 columns, 8 lanes): a thread adds every 8th chunk of its column, then the 8 sums are added in order.
// partial (chunks,C) in the compute dtype; out (C).
constexpr int chunk_lanes = 8;
template <class T>
__global__ void __launch_bounds__(warp_lanes *chunk_lanes) sum_partials_kernel(const __grid_constant__ tc_sum_partials_args a)
{
    using Real = compute<T>;
    TC_SHARED(Real, sums, [chunk_lanes][warp_lanes]);
    const Real *partial = static_cast<const Real *>(a.partial);
    const int64_t column = static_cast<int64_t>(blockIdx.x) * warp_lanes + threadIdx.x;
    Real sum = 0;
    if (column < a.C)
        for (int64_t chunk = threadIdx.y; chunk < a.chunks; chunk += chunk_lanes) sum += partial[chunk * a.C + column];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= a.C) return;
    for (int i = 1; i < chunk_lanes; i++) sum += sums[i][threadIdx.x];
    narrow(static_cast<T *>(a.out)[column], sum);
}

} // namespace

template <class T> int tc_cuda_sum_partials(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_sum_partials_args *>(args);
    if (a.C == 0) return 0;
    const dim3 grid = blocks(divide_up(a.C, warp_lanes));
    return launch<sum_partials_kernel<T>>(Launch(grid, dim3(warp_lanes, chunk_lanes), 0, stream), a);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, sum_partials)
