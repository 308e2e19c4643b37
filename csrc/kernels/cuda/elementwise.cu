// elementwise.cu: functions of one, two and three operands, of any strides and dtypes; activations and dropout.
#include "../activation.h"
#include "../dropout.h"
#include "dropout.cuh"
#include "elementwise.cuh"
#include "functions.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

#define v_truth(mask) ((mask) ? Real(1) : Real(0))

// The functions: out[i] from the values of the inputs there.
// The formatter mistakes a #define after a case for a part of it.
// clang-format off

using OwnUnary = Own<false, TC_UNARY_relu, TC_UNARY_gelu, TC_UNARY_gelu_tanh, TC_UNARY_silu>; // both ways

template <class Real> struct UnaryForward {
    static constexpr int inputs = 1;
    using Own = OwnUnary;
    static __device__ __forceinline__ Real apply(int function, const Real (&in)[1])
    {
        const Real x = in[0];
        switch (function) {
#define TC_UNARY(name, saved, value, gradient)                                                                                             \
    case TC_UNARY_##name: return value;
#include "../unary.def"
#undef TC_UNARY
        default: return x;
        }
    }
};

template <class Real> struct UnaryBackward { // from dy and the saved tensor
    static constexpr int inputs = 2;
    using Own = OwnUnary;
    static __device__ __forceinline__ Real apply(int function, const Real (&in)[2])
    {
        const Real g = in[0], x = in[1], &y = x;
        switch (function) {
#define TC_UNARY(name, saved, value, gradient)                                                                                             \
    case TC_UNARY_##name: (void)y; return gradient;
#include "../unary.def"
#undef TC_UNARY
        default: return g;
        }
    }
};

template <class Real> struct BinaryForward {
    static constexpr int inputs = 2;
    using Own = tc::Own<true, TC_BINARY_add, TC_BINARY_sub, TC_BINARY_mul>;
    static __device__ __forceinline__ Real apply(int function, const Real (&in)[2])
    {
        const Real a = in[0], b = in[1];
        switch (function) {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b)                                                                   \
    case TC_BINARY_##name: return value;
#define TC_BINARY_FLAT(name, value)                                                                                                        \
    case TC_BINARY_##name: return value;
#define TC_BINARY_BITS(name)
#include "../binary.def"
#undef TC_BINARY_BITS
#undef TC_BINARY_FLAT
#undef TC_BINARY
        default: return a;
        }
    }
};

template <class Real> struct BinaryBackward {
    static constexpr int inputs = 3;
    using Own = tc::Own<false>;
    static __device__ __forceinline__ Real apply(int function, const Real (&in)[3])
    {
        const Real g = in[0], a = in[1], b = in[2];
        switch (function) {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b)                                                                   \
    case 2 * TC_BINARY_##name: return gradient_a;                                                                                          \
    case 2 * TC_BINARY_##name + 1: return gradient_b;
#define TC_BINARY_FLAT(name, value)
#define TC_BINARY_BITS(name)
#include "../binary.def"
#undef TC_BINARY_BITS
#undef TC_BINARY_FLAT
#undef TC_BINARY
        default: return g + a + b;
        }
    }
};
// clang-format on

template <class T, int N>
__global__ void __launch_bounds__(element_threads, block_residency)
    activation_backward_kernel(const __grid_constant__ tc_activation_backward_args a)
{
    for_own_elements(a.n / N, [&](int64_t i) {
        const Vector<T, N> x = load_vector<N>(static_cast<const T *>(a.x) + i * N);
        Vector<T, N> d = load_vector<N>(static_cast<const T *>(a.dy) + i * N);
        TC_UNROLL
        for (int j = 0; j < N; j++) narrow(d.at[j], widen(d.at[j]) * activation_slope(a.activation, widen(x.at[j])));
        store_vector<N>(static_cast<T *>(a.dx) + i * N, d);
    });
}

// A thread takes a vector, and draws its share of the blocks of random words that it has in common with three others; `vectors`: those of
// whole groups and warps.
template <class T>
__global__ void __launch_bounds__(element_threads, block_residency)
    dropout_vectors_kernel(const __grid_constant__ tc_dropout_forward_args a, const __grid_constant__ Keep<compute<T>> keep,
                           int64_t vectors)
{
    constexpr int N = vector_lanes<T>;
    const Draw draw = draw_of(a.mask.seed, a.mask.call, a.mask.drawn);
    for_own_elements(vectors, [&](int64_t vector) {
        const int64_t i = vector * N;
        Vector<T, N> v = {};
        if (i < a.n) v = load_vector<N>(static_cast<const T *>(a.x) + i);
        const uint32_t kept = kept_of_vector<N>(draw, keep, static_cast<uint64_t>(place_in_batch(a.mask.places, i)), true, all_lanes);
        TC_UNROLL
        for (int j = 0; j < N; j++) narrow(v.at[j], keep.applied(widen(v.at[j]), kept >> j & 1));
        if (i < a.n) store_vector<N>(static_cast<T *>(a.y) + i, v);
    });
}

// Of arrays whose groups or vectors begin anywhere. A thread takes the four elements of a block of random words, TC_PHILOX_BLOCKS apart, so
// neighbouring threads take neighbours.
template <class T>
__global__ void __launch_bounds__(element_threads, resident_threads / element_threads)
    dropout_kernel(const __grid_constant__ tc_dropout_forward_args a, const __grid_constant__ Keep<compute<T>> keep, int64_t groups)
{
    const Draw draw = draw_of(a.mask.seed, a.mask.call, a.mask.drawn);
    const tc_places &places = a.mask.places;
    for_own_elements(a.n / places.row * groups * TC_PHILOX_BLOCKS, [&](int64_t block) {
        const int64_t item = block / TC_PHILOX_BLOCKS, row = item / groups;
        const int64_t begin = (places.first + row * places.step) * places.row; // of the row, in the whole batch
        const int64_t first = (begin / TC_PHILOX_GROUP + item % groups) * TC_PHILOX_GROUP + block % TC_PHILOX_BLOCKS;
        const PhiloxWords words = philox_words(draw.seed, draw.call, static_cast<uint64_t>(first));
        TC_UNROLL
        for (int w = 0; w < 4; w++) {
            const int64_t in_row = first + w * TC_PHILOX_BLOCKS - begin, i = row * places.row + in_row;
            if (in_row < 0 || in_row >= places.row) continue;
            const bool kept = !keep.none && words.at[w] >= keep.threshold;
            narrow(static_cast<T *>(a.y)[i], keep.applied(widen(static_cast<const T *>(a.x)[i]), kept));
        }
    });
}

} // namespace

#define TC_ELEMENTWISE(kernel, Function)                                                                                                   \
    template <class T> int tc_cuda_##kernel(const void *args, int64_t, void *, void *stream)                                               \
    {                                                                                                                                      \
        return elementwise<compute<T>, Function>(args, stream);                                                                            \
    }                                                                                                                                      \
    TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, kernel)
TC_ELEMENTWISE(unary_forward, UnaryForward)
TC_ELEMENTWISE(unary_backward, UnaryBackward)
TC_ELEMENTWISE(binary_forward, BinaryForward)
TC_ELEMENTWISE(binary_backward, BinaryBackward)
TC_ELEMENTWISE(where_forward, Where)

template <class T> int tc_cuda_activation_backward(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_activation_backward_args *>(args);
    if (a.n == 0) return 0;
    return launch_flat<T>(
        a.n, stream, [&](auto N, const Launch &shape) { return launch<activation_backward_kernel<T, N.value>>(shape, a); }, a.x, a.dy,
        a.dx);
}
template <class T> int tc_cuda_dropout_forward(const void *args, int64_t, void *, void *stream)
{
    const auto &a = *static_cast<const tc_dropout_forward_args *>(args);
    if (a.n == 0) return 0;
    const Keep<compute<T>> keep = keep_of<T>(a.mask);
    if (tc_dropout_is_aligned(&a) && vectors_fit<T>(a.n, a.x, a.y)) {
        constexpr int64_t warp_elements = warp_lanes * vector_lanes<T>; // 64 or a multiple of it
        static_assert(warp_elements % TC_PHILOX_GROUP == 0, "a warp takes whole groups");
        const int64_t vectors = divide_up(a.n, warp_elements) * warp_lanes;
        tc_dropout_forward_args of_vectors = a;
        if (a.n <= a.mask.places.row) of_vectors.mask.places.step = 1; // lanes behind the only row share its last blocks
        return launch<dropout_vectors_kernel<T>>(element_launch(vectors, stream), of_vectors, keep, vectors);
    }
    return launch<dropout_kernel<T>>(element_launch(tc_dropout_items(&a) * TC_PHILOX_BLOCKS, stream), a, keep, tc_dropout_groups(&a));
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, activation_backward)
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, dropout_forward)
