// product_of_floats_main.h: product_main.h for gemm_float.cu, of two blocks of k: along k by multiply-adds, and across it by tf32.
using Stored = float;
constexpr int64_t longest = 402;
template <bool along> int start(const tc_gemm_args &a)
{
    return along ? launch_copied<64, multiply_adds, along_k, along_k>(a, nullptr)
                 : launch_copied<64, tf32_x3, in_vectors, in_vectors>(a, nullptr);
}
#include "bugs/product_main.h"
