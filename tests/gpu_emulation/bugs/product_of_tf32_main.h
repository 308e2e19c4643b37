// product_of_tf32_main.h: product_main.h for gemm_tf32.cu, of more k than are added up at once: along k by tf32, which rounds what numbers
// have beyond whole ones, and across it by two parts of each number, which have it.
#include <cmath>
using namespace tc;
using Stored = float;
constexpr int64_t longest = 404;
constexpr float rest = 1.0f / 8192;
inline float seen(bool along, float x) { return along ? std::round(x) : x; }
template <bool along> int start(const tc_gemm_args &a)
{
    return along ? launch_tensor_tile<tf32, 64, true, true, false>(a, nullptr)
                 : launch_tensor_tile<tf32_x3, 64, false, false, true>(a, nullptr);
}
#include "bugs/product_main.h"
