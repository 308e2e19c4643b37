// launch_bounds.cpp: keeps what each kernel's __launch_bounds__ allow.
#include "launch_bounds.h"
#include <map>

namespace
{
std::map<std::string, int> &limits()
{
    static std::map<std::string, int> of_kernels;
    return of_kernels;
}
} // namespace

// "{anonymous}::gemm_kernel<float, 64>" -> "gemm_kernel"
int emulator::most_threads(const std::string &kernel)
{
    const std::string plain = kernel.substr(0, kernel.find('<'));
    const size_t colon = plain.rfind(':');
    const auto found = limits().find(colon == std::string::npos ? plain : plain.substr(colon + 1));
    return found == limits().end() ? 0 : found->second;
}

void emulator_limit_threads(const char *kernel, int threads) { limits()[kernel] = threads; }
