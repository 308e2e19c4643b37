// instructions.cu: every wrapper of device.cuh that has an emulated twin, on given operands. Compiled by nvcc for a GPU and by
// g++ for the emulation: tools/gpu_test.py holds the two results against each other.
#include "device.cuh"

using namespace tc;

namespace
{

// One warp. in, out: `words` 32-bit words a lane.
enum Instruction {
    TF32,
    EXP2,
    RECIPROCAL,
    HALF,
    BFLOAT,
    COPY4,
    COPY8,
    COPY16,
    COPY_PART,
    STORE8,
    STORE16,
    LDM2,
    LDM2T,
    LDM4,
    LDM4T,
    MMA_HALF,
    MMA_BFLOAT,
    MMA_TF32
};

constexpr int words = 12;

__device__ float as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
__device__ uint32_t as_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// 16 bytes a lane: the alignment that the widest copies and ldmatrix want.
using Row = Vector<uint32_t, 4>;

template <int bytes> __device__ void copy_case(Row *rows, const uint32_t *in, uint32_t *out, int valid)
{
    const int lane = threadIdx.x;
    copy_async<bytes>(rows + lane, in, valid);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < bytes / 4; i++) out[i] = rows[(lane + 1) % warp_lanes].at[i];
}

__global__ void instruction_kernel(int which, const uint32_t *inputs, uint32_t *outputs)
{
    TC_SHARED(Row, rows, [warp_lanes]);
    const int lane = threadIdx.x;
    const uint32_t *in = inputs + lane * words;
    uint32_t *out = outputs + lane * words;
    uint32_t two[2], four[4];
    const uint32_t a[4] = {in[4], in[5], in[6], in[7]}, b[2] = {in[8], in[9]};
    float d[4] = {as_float(in[0]), as_float(in[1]), as_float(in[2]), as_float(in[3])};
    if (which >= LDM2 && which <= LDM4T) {
        for (int i = 0; i < 4; i++) rows[lane].at[i] = in[i];
        __syncthreads();
    }
    float16 half;
    bfloat16 bfloat;
    switch (which) {
    case TF32:
        for (int i = 0; i < words; i++) out[i] = float_to_tf32(as_float(in[i]));
        break;
    case EXP2:
        for (int i = 0; i < words; i++) out[i] = as_bits(exp2_approximate(as_float(in[i])));
        break;
    case RECIPROCAL:
        for (int i = 0; i < words; i++) out[i] = as_bits(reciprocal_approximate(as_float(in[i])));
        break;
    case HALF:
        for (int i = 0; i < words; i++) {
            from_float(half, as_float(in[i]));
            out[i] = as_bits(to_float(half));
        }
        break;
    case BFLOAT:
        for (int i = 0; i < words; i++) {
            from_float(bfloat, as_float(in[i]));
            out[i] = as_bits(to_float(bfloat));
        }
        break;
    case COPY4: copy_case<4>(rows, in, out, 4); break;
    case COPY8: copy_case<8>(rows, in, out, 8); break;
    case COPY16: copy_case<16>(rows, in, out, 16); break;
    case COPY_PART: copy_case<16>(rows, in, out, 6); break;
    case STORE8: store_global(out, load_whole<Vector<uint32_t, 2>>(in)); break;
    case STORE16: store_global(out, load_whole<Row>(in)); break;
    case LDM2: load_matrix_x2(two, rows + lane % 16); break;
    case LDM2T: load_matrix_x2_transposed(two, rows + lane % 16); break;
    case LDM4: load_matrix_x4(four, rows + lane); break;
    case LDM4T: load_matrix_x4_transposed(four, rows + lane); break;
    case MMA_HALF: mma(d, a, b, float16()); break;
    case MMA_BFLOAT: mma(d, a, b, bfloat16()); break;
    default: mma_tf32(d, a, b); break;
    }
    if (which == LDM2 || which == LDM2T)
        for (int i = 0; i < 2; i++) out[i] = two[i];
    if (which == LDM4 || which == LDM4T)
        for (int i = 0; i < 4; i++) out[i] = four[i];
    if (which >= MMA_HALF)
        for (int i = 0; i < 4; i++) out[i] = as_bits(d[i]);
}

} // namespace

// inputs, outputs: 32 * 12 words of the host. Gives a CUDA error number.
extern "C" __attribute__((visibility("default"))) int run_instruction(int which, const void *inputs, void *outputs)
{
    constexpr size_t bytes = sizeof(uint32_t) * warp_lanes * words;
    void *in = nullptr, *out = nullptr;
    int error = cudaMalloc(&in, bytes);
    if (!error) error = cudaMalloc(&out, bytes);
    if (!error) error = cudaMemcpyAsync(in, inputs, bytes, cudaMemcpyHostToDevice, nullptr);
    if (!error) error = cudaMemcpyAsync(out, outputs, bytes, cudaMemcpyHostToDevice, nullptr);
    if (!error)
        error = launch<instruction_kernel>(Launch(dim3(1), dim3(warp_lanes), 0, nullptr), which, static_cast<const uint32_t *>(in),
                                           static_cast<uint32_t *>(out));
    if (!error) error = cudaMemcpyAsync(outputs, out, bytes, cudaMemcpyDeviceToHost, nullptr);
    if (!error) error = cudaStreamSynchronize(nullptr);
    cudaFree(in);
    cudaFree(out);
    return error;
}
