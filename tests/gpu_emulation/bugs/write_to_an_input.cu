// An input is used as scratch memory, through a cast that takes its const away.
// caught by access: not in its row: store of 4 bytes at 0x\w+, in none of the blocks that shift writes by kernels.def; the members it
// writes are y\n  at {here}
#include "bug.h"

struct shift_args {
    float *y;
    const float *x;
};
constexpr tc_kernel row = {"shift", 0, sizeof(shift_args), 1, {{tc_kernel_write::TC_WRITES_MEMORY, 0}}};

template <bool fixed> __global__ void shift(const shift_args a)
{
    const float value = a.x[threadIdx.x] + 1;
    if (!fixed) const_cast<float *>(a.x)[threadIdx.x] = value; // <- here
    a.y[threadIdx.x] = value;
}

template <bool fixed> int run(float *out)
{
    const shift_args args = {out, device_array(counting(32))};
    const emulator::Operands operands({&row, "y"}, &args, nullptr);
    return tc::launch<shift<fixed>>(tc::Launch(1, 32, 0, nullptr), args);
}
BUG_MAIN(counting(32, 1))
