// ladder.cu: seven products C = A B of float32, each faster than the one before: the steps of S. Boehm, "How to Optimize a CUDA Matmul
// Kernel for cuBLAS-like Performance" (2022), who published their speed. test_predicted_time.py predicts it from what they do. Where nvcc
// makes one load of neighbours in shared memory, the vector is written out. A (M,K), B (K,N), C (M,N); sizes are multiples of the tiles.
#include "device.cuh"

namespace
{

using namespace tc;

// Of shared memory, whose vectors can be loaded.
template <int columns> struct alignas(16) Row {
    float at[columns];
};

struct Product {
    const float *a, *b;
    float *c;
    int64_t N, K;
};

// 1, 2: a thread computes one element from global memory; neighbouring threads are neighbours in a column of C, or in a row.
template <bool along_rows> __global__ void __launch_bounds__(1024) element_kernel(Product p)
{
    const int slow = threadIdx.x / 32, fast = threadIdx.x % 32;
    const int64_t row = blockIdx.y * 32 + (along_rows ? slow : fast), column = blockIdx.x * 32 + (along_rows ? fast : slow);
    float sum = 0;
    for (int64_t k = 0; k < p.K; k++) sum += p.a[row * p.K + k] * p.b[k * p.N + column];
    p.c[row * p.N + column] = sum;
}

// 3: the block shares tiles of A and B.
__global__ void __launch_bounds__(1024) shared_kernel(Product p)
{
    TC_SHARED(Row<32>, as, [32]);
    TC_SHARED(Row<32>, bs, [32]);
    const int slow = threadIdx.x / 32, fast = threadIdx.x % 32;
    const int64_t row = blockIdx.y * 32 + slow, column = blockIdx.x * 32 + fast;
    float sum = 0;
    for (int64_t k = 0; k < p.K; k += 32) {
        as[slow].at[fast] = p.a[row * p.K + k + fast];
        bs[slow].at[fast] = p.b[(k + slow) * p.N + column];
        __syncthreads();
        TC_UNROLL
        for (int i = 0; i < 32; i += 4) {
            const Vector<float, 4> a = load_vector<4>(&as[slow].at[i]);
            TC_UNROLL
            for (int j = 0; j < 4; j++) sum += a.at[j] * bs[i + j].at[fast];
        }
        __syncthreads();
    }
    p.c[row * p.N + column] = sum;
}

// 4: a thread computes 8 elements of a column; tiles of 64 x 64, 8 deep.
__global__ void __launch_bounds__(512) column_kernel(Product p)
{
    TC_SHARED(Row<8>, as, [64]);
    TC_SHARED(Row<64>, bs, [8]);
    const int thread = threadIdx.x, own_column = thread % 64, own_row = thread / 64 * 8;
    const int64_t row = blockIdx.y * 64, column = blockIdx.x * 64;
    float sums[8] = {};
    for (int64_t k = 0; k < p.K; k += 8) {
        as[thread / 8].at[thread % 8] = p.a[(row + thread / 8) * p.K + k + thread % 8];
        bs[thread / 64].at[own_column] = p.b[(k + thread / 64) * p.N + column + own_column];
        __syncthreads();
        TC_UNROLL
        for (int i = 0; i < 8; i += 4) {
            Vector<float, 4> a[8];
            TC_UNROLL
            for (int r = 0; r < 8; r++) a[r] = load_vector<4>(&as[own_row + r].at[i]);
            TC_UNROLL
            for (int j = 0; j < 4; j++) {
                const float b = bs[i + j].at[own_column];
                TC_UNROLL
                for (int r = 0; r < 8; r++) sums[r] += a[r].at[j] * b;
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 8; r++) p.c[(row + own_row + r) * p.N + column + own_column] = sums[r];
}

template <int rows, int columns>
__device__ __forceinline__ void multiply(float (&sums)[rows][columns], const float (&a)[rows], const float (&b)[columns])
{
    TC_UNROLL
    for (int r = 0; r < rows; r++) TC_UNROLL
    for (int c = 0; c < columns; c++) sums[r][c] += a[r] * b[c];
}

__device__ __forceinline__ void take_four(float *to, const float *shared)
{
    const Vector<float, 4> four = load_vector<4>(shared);
    TC_UNROLL
    for (int j = 0; j < 4; j++) to[j] = four.at[j];
}

// 5, 6: a thread computes 8 x 8 elements; tiles of 128 x 128, 8 deep. Vectorized: A is transposed on its way, and global memory is read and
// written in vectors.
template <bool vectorized> __global__ void __launch_bounds__(256) square_kernel(Product p)
{
    TC_SHARED(Row<128 * 8>, a_memory, [1]); // (128,8), vectorized (8,128)
    TC_SHARED(Row<128>, bs, [8]);
    float *as = a_memory[0].at;
    const int thread = threadIdx.x, own_column = thread % 16 * 8, own_row = thread / 16 * 8;
    const int64_t row = blockIdx.y * 128, column = blockIdx.x * 128;
    float sums[8][8] = {};
    for (int64_t k = 0; k < p.K; k += 8) {
        if (vectorized) {
            const Vector<float, 4> a = load_vector<4>(&p.a[(row + thread / 2) * p.K + k + thread % 2 * 4]);
            TC_UNROLL
            for (int j = 0; j < 4; j++) as[(thread % 2 * 4 + j) * 128 + thread / 2] = a.at[j];
            store_vector<4>(&bs[thread / 32].at[thread % 32 * 4], load_vector<4>(&p.b[(k + thread / 32) * p.N + column + thread % 32 * 4]));
        } else {
            TC_UNROLL
            for (int i = 0; i < 128; i += 32) as[(thread / 8 + i) * 8 + thread % 8] = p.a[(row + thread / 8 + i) * p.K + k + thread % 8];
            TC_UNROLL
            for (int i = 0; i < 8; i += 2)
                bs[thread / 128 + i].at[thread % 128] = p.b[(k + thread / 128 + i) * p.N + column + thread % 128];
        }
        __syncthreads();
        TC_UNROLL
        for (int i = 0; i < 8; i += 4) {
            float a[4][8], b[8];
            TC_UNROLL
            for (int r = 0; r < 8; r++) {
                float four[4];
                if (!vectorized) take_four(four, &as[(own_row + r) * 8 + i]);
                TC_UNROLL
                for (int j = 0; j < 4 && !vectorized; j++) a[j][r] = four[j];
            }
            TC_UNROLL
            for (int j = 0; j < 4; j++) {
                TC_UNROLL
                for (int half = 0; half < 8; half += 4) {
                    if (vectorized) take_four(&a[j][half], &as[(i + j) * 128 + own_row + half]);
                    take_four(&b[half], &bs[i + j].at[own_column + half]);
                }
                multiply(sums, a[j], b);
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c += 4) {
            float *to = &p.c[(row + own_row + r) * p.N + column + own_column + c];
            if (vectorized)
                store_vector<4>(to, Vector<float, 4>{{sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3]}});
            else
                for (int j = 0; j < 4; j++) to[j] = sums[r][c + j];
        }
}

// 7 (Boehm's number 10): a warp computes 64 x 64 elements, a thread 8 x 4 of each of four parts; tiles of 128 x 128, 16 deep.
__global__ void __launch_bounds__(128) warp_kernel(Product p)
{
    TC_SHARED(Row<128>, as, [16]);
    TC_SHARED(Row<128>, bs, [16]);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int own_row = warp / 2 * 64 + lane / 4 * 8, own_column = warp % 2 * 64 + lane % 4 * 4;
    const int64_t row = blockIdx.y * 128, column = blockIdx.x * 128;
    float sums[8][16] = {};
    for (int64_t k = 0; k < p.K; k += 16) {
        TC_UNROLL
        for (int i = 0; i < 128; i += 32) {
            const Vector<float, 4> a = load_vector<4>(&p.a[(row + thread / 4 + i) * p.K + k + thread % 4 * 4]);
            TC_UNROLL
            for (int j = 0; j < 4; j++) as[thread % 4 * 4 + j].at[thread / 4 + i] = a.at[j];
        }
        TC_UNROLL
        for (int i = 0; i < 16; i += 4)
            store_vector<4>(&bs[thread / 32 + i].at[lane * 4], load_vector<4>(&p.b[(k + thread / 32 + i) * p.N + column + lane * 4]));
        __syncthreads();
        TC_UNROLL
        for (int i = 0; i < 16; i++) {
            float a[8], b[16];
            TC_UNROLL
            for (int half = 0; half < 8; half += 4) take_four(&a[half], &as[i].at[own_row + half]);
            TC_UNROLL
            for (int part = 0; part < 4; part++) take_four(&b[part * 4], &bs[i].at[own_column + part * 16]);
            multiply(sums, a, b);
        }
        __syncthreads();
    }
    for (int r = 0; r < 8; r++)
        for (int part = 0; part < 4; part++) {
            const float *s = &sums[r][part * 4];
            store_vector<4>(&p.c[(row + own_row + r) * p.N + column + own_column + part * 16], Vector<float, 4>{{s[0], s[1], s[2], s[3]}});
        }
}

template <auto kernel> int launch_tiles(const Product &p, int64_t M, int tile, int threads)
{
    return launch<kernel>(Launch(dim3(static_cast<unsigned>(p.N / tile), static_cast<unsigned>(M / tile)), dim3(threads), 0, nullptr), p);
}

int launch_step(int step, const Product &p, int64_t M)
{
    switch (step) {
    case 1: return launch_tiles<element_kernel<false>>(p, M, 32, 1024);
    case 2: return launch_tiles<element_kernel<true>>(p, M, 32, 1024);
    case 3: return launch_tiles<shared_kernel>(p, M, 32, 1024);
    case 4: return launch_tiles<column_kernel>(p, M, 64, 512);
    case 5: return launch_tiles<square_kernel<false>>(p, M, 128, 256);
    case 6: return launch_tiles<square_kernel<true>>(p, M, 128, 256);
    default: return launch_tiles<warp_kernel>(p, M, 128, 128);
    }
}

} // namespace

// Step 1 to 7 of the ladder, on arrays of the host. Gives a CUDA error number.
extern "C" __attribute__((visibility("default"))) int run_step(int step, const float *a, const float *b, float *c, int64_t M, int64_t N,
                                                               int64_t K)
{
    const size_t bytes[3] = {sizeof(float) * static_cast<size_t>(M * K), sizeof(float) * static_cast<size_t>(K * N),
                             sizeof(float) * static_cast<size_t>(M * N)};
    void *memory[3] = {};
    int error = 0;
    for (int i = 0; i < 3 && !error; i++) error = cudaMalloc(&memory[i], bytes[i]);
    if (!error) error = cudaMemcpyAsync(memory[0], a, bytes[0], cudaMemcpyHostToDevice, nullptr);
    if (!error) error = cudaMemcpyAsync(memory[1], b, bytes[1], cudaMemcpyHostToDevice, nullptr);
    if (!error)
        error = launch_step(
            step, {static_cast<const float *>(memory[0]), static_cast<const float *>(memory[1]), static_cast<float *>(memory[2]), N, K}, M);
    if (!error) error = cudaMemcpyAsync(c, memory[2], bytes[2], cudaMemcpyDeviceToHost, nullptr);
    if (!error) error = cudaStreamSynchronize(nullptr);
    for (void *block : memory) cudaFree(block);
    return error;
}
