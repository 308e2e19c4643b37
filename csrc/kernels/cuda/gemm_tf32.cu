// gemm_tf32.cu: products of float32 on tensor cores, where float32 products may give up accuracy: TC_GEMM_TF32, and TC_GEMM_TF32_X3 by
// the three larger products of two parts each.
#include "gemm_tensor.cuh"

int tc::launch_tf32_gemm(const tc_gemm_args &a, void *stream)
{
    switch (a.variant) {
    case TC_GEMM_TF32: return launch_tensor_product<tf32>(a, stream);
    case TC_GEMM_TF32_X3: return launch_tensor_product<tf32_x3>(a, stream);
    default: return cudaErrorInvalidValue;
    }
}
