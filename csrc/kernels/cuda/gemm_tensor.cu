// gemm_tensor.cu: products of halves on tensor cores.
#include "gemm_tensor.cuh"

template <class T> int tc::launch_tensor_gemm(const tc_gemm_args &a, void *stream) { return launch_tensor_product<T>(a, stream); }

template int tc::launch_tensor_gemm<tc::float16>(const tc_gemm_args &, void *);
template int tc::launch_tensor_gemm<tc::bfloat16>(const tc_gemm_args &, void *);
