// copy.cu: strided copies with a cast, fills with one number or with a range, and sums in place.
#include "../add_in_place.h"
#include "../copy.h"
#include "elements.cuh"
#include "launchers.h"
#include <type_traits>

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

// Floats of 4 and 2 bytes that are flat are converted into one another N at a time.
template <class To, class From, int N> __global__ void __launch_bounds__(element_threads) cast_kernel(To *to, const From *from, int64_t n)
{
    for_own_elements(n / N, [&](int64_t i) {
        const Vector<From, N> read = load_vector<N>(from + i * N);
        Vector<To, N> written = {};
        TC_UNROLL
        for (int j = 0; j < N; j++) convert(written.at[j], element(read.at[j]));
        store_vector<N>(to + i * N, written);
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

bool is_flat(const tc_copy_args &a) { return a.ndim == 0 || (a.ndim == 1 && a.to_strides[0] == 1 && (!a.from || a.from_strides[0] == 1)); }

// How many pieces of 16 bytes a copy or fill consists of; 0: it is not made of such pieces.
int64_t sixteens(const tc_copy_args &a)
{
    const size_t bytes = static_cast<size_t>(a.numel) * element_bytes(a.to_dtype);
    return is_flat(a) && vectors_fit<uint8_t>(static_cast<int64_t>(bytes), a.to, a.from) ? static_cast<int64_t>(bytes / sizeof(Sixteen))
                                                                                         : 0;
}

__global__ void __launch_bounds__(element_threads) move_sixteens_kernel(Sixteen *to, const Sixteen *from, int64_t n)
{
    for_own_elements(n, [&](int64_t i) { store_whole(to + i, load_whole<Sixteen>(from + i)); });
}

__global__ void __launch_bounds__(element_threads) fill_sixteens_kernel(Sixteen *to, Sixteen bits, int64_t n)
{
    for_own_elements(n, [&](int64_t i) { store_whole(to + i, bits); });
}

int run_move(const tc_copy_args &a, void *stream)
{
    if (const int64_t n = sixteens(a))
        return launch<move_sixteens_kernel>(element_launch(n, stream), static_cast<Sixteen *>(a.to), static_cast<const Sixteen *>(a.from),
                                            n);
    const Launch shape = element_launch(a.numel, stream);
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

template <class T, int N> __global__ void __launch_bounds__(element_threads) add_kernel(const __grid_constant__ tc_add_in_place_args a)
{
    T *to = static_cast<T *>(a.to);
    const T *from = static_cast<const T *>(a.from);
    for_own_elements(a.numel / N, [&](int64_t i) {
        Vector<T, N> sum = load_vector<N>(to + i * N);
        const Vector<T, N> added = load_vector<N>(from + i * N);
        TC_UNROLL
        for (int j = 0; j < N; j++) narrow(sum.at[j], widen(sum.at[j]) + widen(added.at[j]));
        store_vector<N>(to + i * N, sum);
    });
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

template <class T> constexpr bool is_integer = std::is_same_v<decltype(element(T())), int64_t>;

template <class To>
__global__ void __launch_bounds__(element_threads) whole_range_kernel(To *to, uint64_t first, uint64_t step, float unit, int64_t n)
{
    for_own_elements(n, [&](int64_t i) {
        const int64_t number = static_cast<int64_t>(first + static_cast<uint64_t>(i) * step);
        if constexpr (is_integer<To>)
            convert(to[i], number);
        else
            convert(to[i], static_cast<compute<To>>(number) * static_cast<compute<To>>(unit));
    });
}

// In float64, as there are numbers that float32 would round otherwise: two operations for an element, which a launch outlasts.
template <class To>
__global__ void __launch_bounds__(element_threads)
    real_range_kernel(To *to, double first, double step, double last, int64_t turn, int64_t n)
{
    for_own_elements(n, [&](int64_t i) {
        const double steps = rounded_product(step, static_cast<double>(i < turn ? i : n - 1 - i));
        convert(to[i], i < turn ? first + steps : i == n - 1 ? last : last - steps);
    });
}

int run_range(const tc_copy_args &a, const tc_range &r, void *stream)
{
    const Launch shape = element_launch(a.numel, stream);
    return with_dtype(a.to_dtype, [&](auto type) {
        auto *to = static_cast<decltype(type) *>(a.to);
        if (!r.is_whole) return launch<real_range_kernel<decltype(type)>>(shape, to, r.first, r.step, r.last, r.turn, a.numel);
        return launch<whole_range_kernel<decltype(type)>>(shape, to, static_cast<uint64_t>(r.whole_first),
                                                          static_cast<uint64_t>(r.whole_step), r.unit, a.numel);
    });
}

int run_fill(const tc_copy_args &a, void *stream)
{
    if (a.range) return run_range(a, *a.range, stream);
    const size_t element = element_bytes(a.to_dtype);
    if (const int64_t n = sixteens(a)) {
        uint64_t pattern = a.number;
        for (size_t known = element; known < sizeof pattern; known *= 2) pattern |= pattern << (8 * known); // the bits above it are zeros
        return launch<fill_sixteens_kernel>(element_launch(n, stream), static_cast<Sixteen *>(a.to), Sixteen{{pattern, pattern}}, n);
    }
    const Launch shape = element_launch(a.numel, stream);
    switch (element) {
    case 8: return launch<fill_kernel<uint64_t>>(shape, a, a.number);
    case 4: return launch<fill_kernel<uint32_t>>(shape, a, static_cast<uint32_t>(a.number));
    case 2: return launch<fill_kernel<uint16_t>>(shape, a, static_cast<uint16_t>(a.number));
    default: return launch<fill_kernel<uint8_t>>(shape, a, static_cast<uint8_t>(a.number));
    }
}

// Of 4 and 2 bytes, which cast_kernel converts.
template <class T> constexpr bool is_short_float = false;
template <> constexpr bool is_short_float<float> = true;
template <> constexpr bool is_short_float<float16> = true;
template <> constexpr bool is_short_float<bfloat16> = true;

template <class To, class From> int flat_cast(const tc_copy_args &a, void *stream)
{
    To *to = static_cast<To *>(a.to);
    const From *from = static_cast<const From *>(a.from);
    using Wider = std::conditional_t<(sizeof(To) > sizeof(From)), To, From>;
    return launch_flat<Wider>(
        a.numel, stream, [&](auto N, const Launch &shape) { return launch<cast_kernel<To, From, N.value>>(shape, to, from, a.numel); }, to,
        from);
}

int copy(const tc_copy_args &a, void *stream)
{
    const Launch shape = element_launch(a.numel, stream);
    if (a.numel == 0) return 0;
    if (!a.from) return run_fill(a, stream);
    if (a.to_dtype == a.from_dtype && a.to_dtype != TC_BOOL) return run_move(a, stream);
    return with_dtype(a.to_dtype, [&](auto to) {
        return with_dtype(a.from_dtype, [&](auto from) {
            using To = decltype(to);
            using From = decltype(from);
            if constexpr (is_short_float<To> && is_short_float<From> && !std::is_same_v<To, From>) {
                if (is_flat(a)) return flat_cast<To, From>(a, stream);
            }
            return launch<copy_kernel<To, From>>(shape, a);
        });
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
    return launch_flat<T>(
        a.numel, stream, [&](auto N, const Launch &shape) { return launch<add_kernel<T, N.value>>(shape, a); }, a.to, a.from);
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, copy)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, add_in_place)
