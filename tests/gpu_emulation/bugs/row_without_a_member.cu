// The row of the kernel does not list a member that it writes, so that no stream would wait for that.
// caught by access: not in its row: store of 4 bytes at 0x\w+, in none of the blocks that scale writes by kernels.def; the members it
// writes are y\n  at {here}
#include "bug.h"
#include <cstddef>

struct scale_args {
    float *y, *largest;
    const float *x;
};
constexpr tc_kernel whole = {
    "scale", 0, sizeof(scale_args), 2, {{tc_kernel_write::TC_WRITES_MEMORY, 0}, {tc_kernel_write::TC_WRITES_MEMORY, sizeof(float *)}}};
constexpr tc_kernel lacking = {"scale", 0, sizeof(scale_args), 1, {{tc_kernel_write::TC_WRITES_MEMORY, 0}}};

__global__ void scale(const scale_args a)
{
    a.y[threadIdx.x] = 2 * a.x[threadIdx.x];
    if (threadIdx.x == 31) *a.largest = a.x[31]; // <- here
}

template <bool fixed> int run(float *out)
{
    const scale_args args = {out, device_array<float>({0}), device_array(counting(32))};
    const emulator::Operands operands(fixed ? emulator::Row{&whole, "y, largest"} : emulator::Row{&lacking, "y"}, &args, nullptr);
    return tc::launch<scale>(tc::Launch(1, 32, 0, nullptr), args);
}
std::vector<float> doubled()
{
    std::vector<float> values = counting(32);
    for (float &value : values) value *= 2;
    return values;
}
BUG_MAIN(doubled())
