// embedding.cu: rows of a table, their gradient, and one-hot rows.
#include "../embedding.h"
#include "elements.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

// Rows are moved as words of the largest size that divides their bytes.
template <class Word> __global__ void __launch_bounds__(element_threads) rows_kernel(const __grid_constant__ tc_embedding_forward_args a)
{
    const int64_t words = a.row_bytes / static_cast<int64_t>(sizeof(Word));
    const Word *weight = static_cast<const Word *>(a.weight);
    for_own_elements(a.n * words, [&](int64_t i) {
        const InRow to(i, words);
        const int64_t row = a.indices[to.row];
        static_cast<Word *>(a.y)[i] = row >= 0 && row < a.V ? weight[row * words + to.at] : Word(0); // see ../read_index.h
    });
}

template <class Word> int take_rows(const tc_embedding_forward_args &a, void *stream)
{
    const int64_t words = a.n * (a.row_bytes / static_cast<int64_t>(sizeof(Word)));
    return words ? launch<rows_kernel<Word>>(element_launch(words, stream), a) : 0;
}

// The order of the indices in three steps. Each row of the table has a thread, which reads all indices, first to count its own,
// then to write their positions: always in ascending order, however many there are. Indices that change in between leave
// places that nothing is written to: those get 0, which is a position too. Many indices have been sorted instead (ops/sort_positions.h).

// f(i) for each position i of index v, in order; called by the whole block. v belongs to this thread; -1: none.
template <class F> __device__ __forceinline__ void for_places_of(int64_t v, const int64_t *indices, int64_t n, F f)
{
    TC_SHARED(int64_t, some, [element_threads]);
    for (int64_t first = 0; first < n; first += element_threads) {
        __syncthreads();
        if (first + threadIdx.x < n) some[threadIdx.x] = indices[first + threadIdx.x];
        __syncthreads();
        const int count = n - first < element_threads ? static_cast<int>(n - first) : element_threads;
        for (int i = 0; i < count; i++)
            if (some[i] == v) f(first + i);
    }
}

__device__ __forceinline__ int64_t own_row(int64_t V)
{
    const int64_t v = static_cast<int64_t>(blockIdx.x) * element_threads + threadIdx.x;
    return v < V ? v : -1;
}

__global__ void __launch_bounds__(element_threads) count_kernel(const __grid_constant__ tc_embedding_order_args a)
{
    const int64_t v = own_row(a.V);
    int64_t count = 0;
    for_places_of(v, a.indices, a.n, [&](int64_t) { count++; });
    if (v >= 0) a.start[v] = count;
}

// One block. start (V+1): the counts become the beginnings; a thread adds up V / threads neighbours.
__global__ void __launch_bounds__(element_threads) start_kernel(const __grid_constant__ tc_embedding_order_args a)
{
    TC_SHARED(int64_t, sums, [element_threads]);
    const int64_t share = divide_up(a.V, element_threads), first = share * threadIdx.x < a.V ? share * threadIdx.x : a.V;
    const int64_t last = first + share < a.V ? first + share : a.V;
    int64_t sum = 0;
    for (int64_t v = first; v < last; v++) sum += a.start[v];
    sums[threadIdx.x] = sum;
    __syncthreads();
    int64_t before = 0;
    for (unsigned i = 0; i < threadIdx.x; i++) before += sums[i];
    for (int64_t v = first; v < last; v++) {
        const int64_t count = a.start[v];
        a.start[v] = before;
        before += count;
    }
    if (threadIdx.x == element_threads - 1) a.start[a.V] = before; // indices that are out of range have no place
}

__global__ void __launch_bounds__(element_threads) place_kernel(const __grid_constant__ tc_embedding_order_args a)
{
    const int64_t v = own_row(a.V);
    int64_t next = v >= 0 ? a.start[v] : 0;
    const int64_t end = v >= 0 ? a.start[v + 1] : 0;
    for_places_of(v, a.indices, a.n, [&](int64_t place) {
        if (next < end) a.order[next++] = place;
    });
    while (next < end) a.order[next++] = 0;
}

// Of sorted positions: start[v] is the first one whose index is not below v.
__global__ void __launch_bounds__(element_threads) start_of_sorted_kernel(const __grid_constant__ tc_embedding_order_args a)
{
    for_own_elements(a.V + 1, [&](int64_t v) {
        int64_t low = 0, high = a.n;
        while (low < high) {
            const int64_t between = low + (high - low) / 2;
            if (a.indices[within(a.order[between], a.n)] < v)
                low = between + 1;
            else
                high = between;
        }
        a.start[v] = low;
    });
}

int order_places(const tc_embedding_order_args &a, void *stream)
{
    if (a.sorted) return launch<start_of_sorted_kernel>(element_launch(a.V + 1, stream), a);
    const Launch one(dim3(1), dim3(element_threads), 0, stream);
    if (a.V == 0) return launch<start_kernel>(one, a);
    const Launch all(blocks(divide_up(a.V, element_threads)), dim3(element_threads), 0, stream);
    int error = launch<count_kernel>(all, a);
    if (!error) error = launch<start_kernel>(one, a);
    return error ? error : launch<place_kernel>(all, a);
}

constexpr int row_block = 64; // rows added up before they are added to the total: keeps precision for a row that is used often

template <class T>
__global__ void __launch_bounds__(element_threads) backward_kernel(const __grid_constant__ tc_embedding_backward_args a, int64_t V)
{
    using Real = compute<T>;
    for_own_elements(V * a.D, [&](int64_t i) {
        const auto [v, column] = InRow(i, a.D);
        const int64_t last = v == a.padding_idx ? a.start[v] : a.start[v + 1];
        Real total = 0;
        for (int64_t block = a.start[v]; block < last; block += row_block) {
            const int64_t until = block + row_block < last ? block + row_block : last;
            Real sum = 0;
            for (int64_t r = block; r < until; r++) sum += widen(static_cast<const T *>(a.dy)[within(a.order[r], a.n) * a.D + column]);
            total += sum;
        }
        narrow(static_cast<T *>(a.dweight)[i], total);
    });
}

__global__ void __launch_bounds__(element_threads) one_hot_kernel(const __grid_constant__ tc_one_hot_args a)
{
    for_own_elements(a.n * a.classes, [&](int64_t i) {
        const InRow to(i, a.classes);
        a.out[i] = a.indices[to.row] == to.at;
    });
}

} // namespace

// Rows are bytes and indices integers: all tables share the first two kernels and one_hot.
template <class T> int tc_cuda_embedding_forward(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_embedding_forward_args *>(args);
    switch (a.row_bytes % 8) {
    case 0: return take_rows<uint64_t>(a, stream);
    case 4: return take_rows<uint32_t>(a, stream);
    case 2:
    case 6: return take_rows<uint16_t>(a, stream);
    default: return take_rows<uint8_t>(a, stream);
    }
}
template <class T> int tc_cuda_embedding_order(const void *args, int64_t, void *, void *stream)
{
    return order_places(*static_cast<const tc_embedding_order_args *>(args), stream);
}
template <class T> int tc_cuda_embedding_backward(const void *args, int64_t rows, void *, void *stream)
{
    const auto &a = *static_cast<const tc_embedding_backward_args *>(args);
    return rows * a.D != 0 ? launch<backward_kernel<T>>(element_launch(rows * a.D, stream), a, rows) : 0;
}
template <class T> int tc_cuda_one_hot(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_one_hot_args *>(args);
    return a.n * a.classes != 0 ? launch<one_hot_kernel>(element_launch(a.n * a.classes, stream), a) : 0;
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, embedding_forward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, embedding_order)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, embedding_backward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, one_hot)
