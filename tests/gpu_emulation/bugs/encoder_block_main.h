// encoder_block_main.h: the main function of a program that test_kernel_bugs.py makes of encoder_block.cu, as it is or with a bug. It takes
// sequences through a block with a norm after each branch and before it: rows of whole vectors, of a whole panel and of more, and others.
#include "bugs/encoder_block_cases.h"

namespace
{

int compare(const Case &c)
{
    Block block(c);
    std::vector<float> y(block.x.data.size());
    float *const to = device_array(y);
    block.args.y = to;
    if (const int error = tc_cuda_encoder_block_forward<float>(&block.args, c.B, nullptr, nullptr)) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    cudaMemcpyAsync(y.data(), to, y.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t b = 0; b < c.B; b++)
        if (is_wrong("y", &y[static_cast<size_t>(b * c.T * c.E)], Reference(block, b).y(), c.E)) return 1;
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    constexpr tc_activation relu = TC_ACTIVATION_RELU, gelu = TC_ACTIVATION_GELU;
    const Case cases[] = {{2, 16, 32, 4, 64, false, true, false, relu, 1},
                          {2, 5, 6, 2, 7, true, false, true, gelu, 1},
                          {1, 21, 24, 3, 68, true, true, false, relu, 1},
                          {1, 33, 8, 1, 9, false, false, false, relu, 1}};
    for (const Case &c : cases) {
        if (const int error = compare(c)) return error;
        if (c.T == 16 && is_costly()) return 1;
    }
    return 0;
}
