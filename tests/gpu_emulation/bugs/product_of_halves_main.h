// product_of_halves_main.h: product_main.h for gemm_tensor.cu.
using namespace tc;
using Stored = bfloat16;
constexpr int64_t longest = 267;
constexpr float rest = 0;
inline float seen(bool, float x) { return x; }
template <bool along> int start(const tc_gemm_args &a)
{
    if (along && a.M <= 16) return launch_tensor_tile<bfloat16, 16, true, true, false>(a, nullptr);
    return launch_tensor_tile<bfloat16, 64, along, along, !along>(a, nullptr);
}
#include "bugs/product_main.h"
