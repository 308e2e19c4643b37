// copy.cu: strided copies with a cast, fills with one number, and sums in place.
#include "../add_in_place.h"
#include "../copy.h"
#include "elements.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

template <class To, class From> __global__ void __launch_bounds__(element_threads) copy_kernel(const __grid_constant__ tc_copy_args a)
{
    To *to = static_cast<To *>(a.to);
    const From *from = static_cast<const From *>(a.from);
    for_own_elements(a.numel, [&](int64_t i) {
        int64_t offset[2];
        element_offsets<2>(offset, i, a.ndim, a.shape, {a.to_strides, a.from_strides});
        convert(to[offset[0]], element(from[offset[1]]));
    });
}

// Between equal dtypes the bits are copied, except bools, which become 0 or 1.
template <class Bits> __global__ void __launch_bounds__(element_threads) move_kernel(const __grid_constant__ tc_copy_args a)
{
    Bits *to = static_cast<Bits *>(a.to);
    const Bits *from = static_cast<const Bits *>(a.from);
    for_own_elements(a.numel, [&](int64_t i) {
        int64_t offset[2];
        element_offsets<2>(offset, i, a.ndim, a.shape, {a.to_strides, a.from_strides});
        store_whole(to + offset[0], load_whole<Bits>(from + offset[1]));
    });
}

struct alignas(16) Sixteen {
    uint64_t bits[2];
};

size_t element_bytes(int dtype)
{
    return with_dtype(dtype, [](auto type) { return sizeof type; });
}

// The same copy or fill in pieces of 16 bytes, if it is one.
bool in_sixteens(tc_copy_args &a)
{
    const bool flat = a.ndim == 0 || (a.ndim == 1 && a.to_strides[0] == 1 && (!a.from || a.from_strides[0] == 1));
    const uintptr_t ends = reinterpret_cast<uintptr_t>(a.to) | reinterpret_cast<uintptr_t>(a.from);
    const size_t bytes = static_cast<size_t>(a.numel) * element_bytes(a.to_dtype);
    if (!flat || (ends | bytes) % sizeof(Sixteen)) return false;
    a.numel = static_cast<int64_t>(bytes / sizeof(Sixteen));
    a.ndim = 1;
    a.shape[0] = a.numel;
    a.to_strides[0] = a.from_strides[0] = 1;
    return true;
}

int run_move(tc_copy_args a, void *stream)
{
    const bool wide = in_sixteens(a);
    const Launch shape = element_launch(a.numel, stream);
    if (wide) return launch<move_kernel<Sixteen>>(shape, a);
    switch (a.to_dtype) {
    case TC_FLOAT64:
    case TC_INT64: return launch<move_kernel<uint64_t>>(shape, a);
    case TC_FLOAT32:
    case TC_INT32: return launch<move_kernel<uint32_t>>(shape, a);
    case TC_FLOAT16:
    case TC_BFLOAT16: return launch<move_kernel<uint16_t>>(shape, a);
    default: return launch<move_kernel<uint8_t>>(shape, a);
    }
}

template <class T> __global__ void __launch_bounds__(element_threads) add_kernel(const __grid_constant__ tc_add_in_place_args a)
{
    T *to = static_cast<T *>(a.to);
    const T *from = static_cast<const T *>(a.from);
    for_own_elements(a.numel, [&](int64_t i) { narrow(to[i], widen(to[i]) + widen(from[i])); });
}

template <class Bits> __global__ void __launch_bounds__(element_threads) fill_kernel(const __grid_constant__ tc_copy_args a, Bits bits)
{
    Bits *to = static_cast<Bits *>(a.to);
    for_own_elements(a.numel, [&](int64_t i) {
        int64_t offset[1];
        element_offsets<1>(offset, i, a.ndim, a.shape, {a.to_strides});
        to[offset[0]] = bits;
    });
}

int run_fill(tc_copy_args a, void *stream)
{
    const size_t element = element_bytes(a.to_dtype);
    const bool wide = in_sixteens(a);
    const Launch shape = element_launch(a.numel, stream);
    if (wide) {
        uint64_t pattern = a.number;
        for (size_t known = element; known < sizeof pattern; known *= 2) pattern |= pattern << (8 * known); // the bits above it are zeros
        return launch<fill_kernel<Sixteen>>(shape, a, Sixteen{{pattern, pattern}});
    }
    switch (element) {
    case 8: return launch<fill_kernel<uint64_t>>(shape, a, a.number);
    case 4: return launch<fill_kernel<uint32_t>>(shape, a, static_cast<uint32_t>(a.number));
    case 2: return launch<fill_kernel<uint16_t>>(shape, a, static_cast<uint16_t>(a.number));
    default: return launch<fill_kernel<uint8_t>>(shape, a, static_cast<uint8_t>(a.number));
    }
}

int copy(const tc_copy_args &a, void *stream)
{
    const Launch shape = element_launch(a.numel, stream);
    if (a.numel == 0) return 0;
    if (!a.from) return run_fill(a, stream);
    if (a.to_dtype == a.from_dtype && a.to_dtype != TC_BOOL) return run_move(a, stream);
    return with_dtype(a.to_dtype, [&](auto to) {
        return with_dtype(a.from_dtype, [&](auto from) { return launch<copy_kernel<decltype(to), decltype(from)>>(shape, a); });
    });
}

} // namespace

// The dtypes are arguments: all tables share one copy kernel.
template <class T> int tc_cuda_copy(const void *args, int64_t, void *, void *stream)
{
    return copy(*static_cast<const tc_copy_args *>(args), stream);
}

template <class T> int tc_cuda_add_in_place(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_add_in_place_args *>(args);
    if (a.numel == 0) return 0;
    return launch<add_kernel<T>>(element_launch(a.numel, stream), a);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, copy)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, add_in_place)
