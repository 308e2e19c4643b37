// check_index.cu: looks for indices outside their range, so that the host need not read them.
#include "../check_index.h"
#include "elements.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

// One block. Each thread looks at every 128th index; then a tree finds the first one outside, and adds up the weights.
template <class Real> __global__ void __launch_bounds__(element_threads) check_index_kernel(const __grid_constant__ tc_check_index_args a)
{
    TC_SHARED(double, totals, [element_threads]);
    TC_SHARED(int64_t, first, [element_threads]);
    const Real *weight = static_cast<const Real *>(a.weight);
    double total = 0;
    int64_t outside = a.n;
    for (int64_t i = threadIdx.x; i < a.n; i += element_threads) {
        const int64_t index = a.indices[i];
        if (a.ignores && index == a.ignored) continue;
        if (index >= 0 && index < a.length)
            total += weight ? static_cast<double>(weight[index]) : 1.0;
        else if (outside == a.n)
            outside = i;
    }
    totals[threadIdx.x] = total;
    first[threadIdx.x] = outside;
    join_block<element_threads>([&](int own, int other) {
        totals[own] += totals[other];
        if (first[other] < first[own]) first[own] = first[other];
    });
    if (threadIdx.x != 0) return;
    if (a.total) *static_cast<Real *>(a.total) = static_cast<Real>(totals[0]);
    if (first[0] == a.n) return;
    a.alarm[TC_ALARM_VALUE] = a.indices[first[0]];
    a.alarm[TC_ALARM_POSITION] = first[0];
    a.alarm[TC_ALARM_TICKET] = a.ticket;
}

} // namespace

template <class T> int tc_cuda_check_index(const void *args, int64_t, void *, void *stream)
{
    return launch<check_index_kernel<compute<T>>>(Launch(dim3(1), dim3(element_threads), 0, stream),
                                                  *static_cast<const tc_check_index_args *>(args));
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, check_index)
