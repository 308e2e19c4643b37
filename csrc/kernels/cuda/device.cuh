// device.cuh: everything that the kernels use of the GPU, under our own names.
//
// A .cu file includes this and no CUDA header, and is compiled by nvcc for the GPU and by g++ for the emulation of
// tests/gpu_emulation, whose emulator.h has a twin of every name in the first half of this file. Inline PTX is here and
// nowhere else. A comment next to each instruction says what older GPUs do instead.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// Before a loop over a register array: only constant indices keep it in registers.
#define TC_UNROLL _Pragma("unroll")
// Before a long loop of which it is enough to unroll a few iterations.
#define TC_UNROLL_SOME _Pragma("unroll 4")
// Before a loop whose body is too long to be there more than once.
#define TC_ROLLED _Pragma("unroll 1")
// An array of this block in shared memory:  TC_SHARED(float, row, [32][33]);  TC_SHARED(float, total);
#define TC_SHARED(type, name, ...) __shared__ type name __VA_ARGS__
// The shared memory of the size given at the launch, aligned to 16 bytes, as `type *name`.
#define TC_DYNAMIC_SHARED(type, name)                                                                                                      \
    extern __shared__ __align__(16) unsigned char tc_dynamic_shared[];                                                                     \
    type *name = reinterpret_cast<type *>(tc_dynamic_shared)

namespace tc
{

// ---- launching: the one place that starts a kernel and opts in to its shared memory ----

struct Launch {
    dim3 grid, block;
    size_t shared_bytes; // dynamic
    void *stream;        // a cudaStream_t
    Launch(dim3 grid_, dim3 block_, size_t shared_bytes_, void *stream_)
        : grid(grid_), block(block_), shared_bytes(shared_bytes_), stream(stream_)
    {
    }
};

// The result is that of this launch alone, not the runtime's last error, which may be of an earlier call.
template <auto kernel, class... Args> cudaError_t start(const Launch &shape, const Args &...args)
{
    constexpr size_t without_asking = 48 * 1024;
    if (shape.shared_bytes > without_asking) {
        const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
        if (error != cudaSuccess) return error;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = static_cast<cudaStream_t>(shape.stream);
    return cudaLaunchKernelEx(&config, kernel, args...);
}

// The table's entry for the kernel `id`. Its twin remembers which kernel the launches belong to.
template <int id, auto run> constexpr auto launcher = run;

// ---- number formats ----

struct float16 {
    uint16_t bits;
};
struct bfloat16 {
    uint16_t bits;
};
__device__ __forceinline__ float to_float(float16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ __forceinline__ float to_float(bfloat16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }
__device__ __forceinline__ void from_float(float16 &to, float x) { to.bits = __half_as_ushort(__float2half_rn(x)); }
__device__ __forceinline__ void from_float(bfloat16 &to, float x) { to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
// Two numbers in a register, the first one in the lower half.
__device__ __forceinline__ uint32_t pack(float low, float high, float16)
{
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&both);
}
__device__ __forceinline__ uint32_t pack(float low, float high, bfloat16)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&both);
}

// The 19 bits of a float that a tensor core reads, rounded to nearest. Before sm_80: rounded here, in the same way.
__device__ __forceinline__ uint32_t float_to_tf32(float x)
{
#if __CUDA_ARCH__ >= 800
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
#else
    const uint32_t bits = __float_as_uint(x);
    return x != x ? bits & ~0x1fffu : (bits + 0x1000u) & ~0x1fffu;
#endif
}

__device__ __forceinline__ uint32_t bits_of_float(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float float_of_bits(uint32_t bits) { return __uint_as_float(bits); }

// x y, which is rounded before anything is added to it.
__device__ __forceinline__ float rounded_product(float x, float y) { return __fmul_rn(x, y); }
__device__ __forceinline__ double rounded_product(double x, double y) { return __dmul_rn(x, y); }

// 2^x, good to 2 units in the last place; denormals become zero.
__device__ __forceinline__ float exp2_approximate(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x, good to one unit in the last place; denormals are zeros.
__device__ __forceinline__ float reciprocal_approximate(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ---- vectors: up to 16 bytes, moved by one instruction; the address is a multiple of them ----

template <class Vector> __device__ __forceinline__ Vector load_whole(const void *p) { return *static_cast<const Vector *>(p); }
template <class Vector> __device__ __forceinline__ void store_whole(void *p, const Vector &v) { *static_cast<Vector *>(p) = v; }
// The same to global memory, whatever the compiler makes of the vector's elements: it stores some one by one, at four times the transfers.
template <class Vector> __device__ __forceinline__ void store_global(void *p, const Vector &v)
{
    const uint32_t *const words = reinterpret_cast<const uint32_t *>(&v);
    if constexpr (sizeof(Vector) == 16)
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(words[0]), "r"(words[1]),
                     "r"(words[2]), "r"(words[3])
                     : "memory");
    else if constexpr (sizeof(Vector) == 8)
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "r"(words[0]), "r"(words[1]) : "memory");
    else
        store_whole(p, v);
}

// ---- asynchronous copies: global to shared memory, 4, 8 or 16 bytes per thread. Before sm_80: copied at once ----

__device__ __forceinline__ uint32_t shared_address(const void *shared) { return static_cast<uint32_t>(__cvta_generic_to_shared(shared)); }

// Copies valid_bytes and fills the rest with zeros. Both addresses are multiples of `bytes`.
template <int bytes> __device__ __forceinline__ void copy_async(void *shared, const void *global, int valid_bytes = bytes)
{
#if __CUDA_ARCH__ >= 800
    if constexpr (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid_bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global), "n"(bytes),
                     "r"(valid_bytes)
                     : "memory");
#else
    struct alignas(bytes) Words {
        uint32_t at[bytes / 4];
    };
    Words words = {};
    if (valid_bytes == bytes)
        words = *static_cast<const Words *>(global);
    else
        TC_ROLLED
    for (int i = 0; i < valid_bytes; i++)
        words.at[i / 4] |= static_cast<uint32_t>(static_cast<const unsigned char *>(global)[i]) << 8 * (i % 4);
    *static_cast<Words *>(shared) = words;
#endif
}
__device__ __forceinline__ void copy_async_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most this many of the thread's groups are in progress. Other threads see the copies after a barrier.
template <int groups_left> __device__ __forceinline__ void copy_async_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
#endif
}

// ---- tensor cores ----

// 8x8 matrices of 16-bit elements in shared memory; lane i gives the address of row i % 8 of matrix i / 8 (16-byte aligned).
__device__ __forceinline__ void load_matrix_x2(uint32_t (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)) : "memory");
}
__device__ __forceinline__ void load_matrix_x2_transposed(uint32_t (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ __forceinline__ void load_matrix_x4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ __forceinline__ void load_matrix_x4_transposed(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// d (16,8) += a (16,K) b (K,8), K = 16 or, for tf32, 8; the layouts are those of tests/gpu_emulation/tensor_core.h. These
// need sm_80: on older GPUs they abort the launch.
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], float16)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bfloat16)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}
__device__ __forceinline__ void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

} // namespace tc
#else
#include <emulator.h>
#define TC_UNROLL
#define TC_UNROLL_SOME
#define TC_ROLLED
#endif

// ==== from here on the same for both ====

namespace tc
{

// Returns a call's error and clears the runtime's last error, which another library would take for its own.
inline int told(cudaError_t error)
{
    if (error != cudaSuccess) cudaGetLastError();
    return error;
}

template <auto kernel, class... Args> int launch(const Launch &shape, const Args &...args) { return told(start<kernel>(shape, args...)); }

constexpr unsigned all_lanes = 0xffffffffu;
constexpr int warp_lanes = 32;

// Half formats are for storage only: everything is computed in float, or in double for double.
template <class T> struct Compute {
    using type = float;
};
template <> struct Compute<double> {
    using type = double;
};
template <class T> using compute = typename Compute<T>::type;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(float16 x) { return to_float(x); }
__device__ __forceinline__ float widen(bfloat16 x) { return to_float(x); }
__device__ __forceinline__ void narrow(float &to, float x) { to = x; }
__device__ __forceinline__ void narrow(double &to, double x) { to = x; }
__device__ __forceinline__ void narrow(float16 &to, float x) { from_float(to, x); }
__device__ __forceinline__ void narrow(bfloat16 &to, float x) { from_float(to, x); }

// A number that a function knows at compile time from its argument's type.
template <int value_> struct Constant {
    static constexpr int value = value_;
};

// N neighbouring elements, moved by one instruction when they make 4, 8 or 16 bytes.
template <class T, int N> struct alignas(sizeof(T) * N) Vector {
    T at[N];
};
template <class T> constexpr int vector_lanes = 16 / sizeof(T);
template <int N, class T> __device__ __forceinline__ Vector<T, N> load_vector(const T *p) { return load_whole<Vector<T, N>>(p); }
template <int N, class T> __device__ __forceinline__ void store_vector(T *p, const Vector<T, N> &v) { store_whole(p, v); }

// Host side: may rows of C elements that start at these addresses (null counts as aligned) be moved as 16-byte vectors?
template <class T, class... Pointers> bool vectors_fit(int64_t C, const Pointers *...pointers)
{
    return C % vector_lanes<T> == 0 && (... && (reinterpret_cast<uintptr_t>(pointers) % 16 == 0));
}

__device__ __forceinline__ float real_exp(float x) { return expf(x); }
__device__ __forceinline__ double real_exp(double x) { return exp(x); }
__device__ __forceinline__ float real_fma(float x, float y, float z) { return fmaf(x, y, z); } // x y + z, rounded once
__device__ __forceinline__ double real_fma(double x, double y, double z) { return fma(x, y, z); }
__device__ __forceinline__ float real_log(float x) { return logf(x); }
__device__ __forceinline__ double real_log(double x) { return log(x); }
__device__ __forceinline__ float real_sqrt(float x) { return sqrtf(x); }
__device__ __forceinline__ double real_sqrt(double x) { return sqrt(x); }
__device__ __forceinline__ float real_tanh(float x) { return tanhf(x); }
__device__ __forceinline__ double real_tanh(double x) { return tanh(x); }

__device__ __forceinline__ double real_erfc(double x) { return erfc(x); }

// Joins what the threads of a block have, by a tree: f(i, j) adds that of thread j to that of thread i, in memory that they share. At the
// end thread 0 has all of it. The order is fixed.
template <int threads, class F> __device__ __forceinline__ void join_block(F f)
{
    __syncthreads();
    for (int distance = threads / 2; distance > 0; distance /= 2) {
        const int own = static_cast<int>(threadIdx.x);
        if (own < distance) f(own, own + distance);
        __syncthreads();
    }
}

// Sum over the warp, in every lane. A butterfly: the order is fixed and all lanes get the same bits.
template <class Real> __device__ __forceinline__ Real warp_sum(Real value)
{
    for (int distance = warp_lanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
    return value;
}

// Joins what the `threads` threads of a row (threadIdx.x) have, in every one of them: lanes of a warp, a warp, or the whole block, blockDim
// (threads, rows). The order is fixed; lanes without elements, which add zeros, change no bit. `scratch`: shared, one element per warp; it
// may be used again at once.
template <int threads, class Real, class F> __device__ __forceinline__ Real group_join(Real value, Real *scratch, F join)
{
    constexpr int lanes = threads < warp_lanes ? threads : warp_lanes;
    unsigned mask = all_lanes;
    if constexpr (threads < warp_lanes) mask = ((1u << threads) - 1) << threadIdx.y * threads % warp_lanes;
    for (int distance = lanes / 2; distance > 0; distance /= 2) value = join(value, __shfl_xor_sync(mask, value, distance));
    if constexpr (threads > warp_lanes) {
        constexpr int warps = threads / warp_lanes;
        if (threadIdx.x % warp_lanes == 0) scratch[threadIdx.x / warp_lanes] = value;
        __syncthreads();
        value = scratch[0];
        for (int i = 1; i < warps; i++) value = join(value, scratch[i]);
        __syncthreads();
    }
    return value;
}
template <int threads, class Real> __device__ __forceinline__ Real group_sum(Real value, Real *scratch)
{
    return group_join<threads>(value, scratch, [](Real a, Real b) { return a + b; });
}

// A one-dimensional grid. Zero blocks when there are too many, which the launch refuses.
inline dim3 blocks(int64_t count) { return dim3(count <= INT32_MAX ? static_cast<unsigned>(count) : 0u); }

__host__ __device__ __forceinline__ int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The number of this block in its grid, taken apart: the place along an axis of `count` places, the fastest axis first; `rest` is along the
// last one. As many blocks as fit a grid divide in 32 bits, by a few instructions; a division of 64 bits is a call.
struct BlockPlace {
    uint32_t rest = blockIdx.x;
    __device__ __forceinline__ int64_t take(int64_t count)
    {
        const uint32_t places = static_cast<uint32_t>(count), whole = rest / places, place = rest - whole * places;
        rest = whole;
        return place;
    }
};

} // namespace tc
