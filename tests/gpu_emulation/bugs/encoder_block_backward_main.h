// encoder_block_backward_main.h: the main function of a program that test_kernel_bugs.py makes of encoder_block_backward.cu, as it is or
// with a bug. It computes the gradients of blocks with a norm after each branch and before it, of chunks of one and of two sequences: rows
// of whole vectors, of a whole panel and of more, and others.
#include "bugs/encoder_block_cases.h"

namespace
{

int compare(const Case &c)
{
    Block block(c);
    const Matrix dy(c.B * c.T, c.E, 6, -1);
    const tc_encoder_block_places places = tc_encoder_block_places_of(c.E, c.F);
    const int64_t chunks = tc_divide_up(c.B, c.chunk), of_sequence = c.T * c.E;
    std::vector<float> dx(dy.data.size()), partial(static_cast<size_t>(chunks * places.end), NAN);
    float *const to = device_array(dx), *const sums = device_array(partial);
    tc_encoder_block_backward_args a = {};
    a.block = block.args, a.dx = to, a.partial = sums, a.dy = device_array(dy.data), a.chunk = c.chunk;
    if (const int error = tc_cuda_encoder_block_backward<float>(&a, chunks, nullptr, nullptr)) {
        printf("error %d: %s\n", error, emulator_report());
        return 1;
    }
    cudaMemcpyAsync(dx.data(), to, dx.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    cudaMemcpyAsync(partial.data(), sums, partial.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        Rows gradient[parameters];
        for (int i = 0; i < parameters; i++) gradient[i].resize(static_cast<size_t>(places.size[i]));
        for (int64_t b = chunk * c.chunk; b < std::min((chunk + 1) * c.chunk, c.B); b++) {
            const Rows d =
                Reference(block, b).backward({dy.data.begin() + b * of_sequence, dy.data.begin() + (b + 1) * of_sequence}, gradient);
            if (is_wrong("dx", &dx[static_cast<size_t>(b * of_sequence)], d, c.E)) return 1;
        }
        for (int i = 0; i < parameters; i++) {
            const char *const names[parameters] = {"dqkv",  "dqkv_bias",  "dout",    "dout_bias", "dup",     "dup_bias",
                                                   "ddown", "ddown_bias", "dgamma1", "dbeta1",    "dgamma2", "dbeta2"};
            const int64_t columns = block.parameter[static_cast<size_t>(i)].columns;
            if (is_wrong(names[i], &partial[static_cast<size_t>(chunk * places.end + places.begin[i])], gradient[i], columns)) return 1;
        }
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    constexpr tc_activation relu = TC_ACTIVATION_RELU, gelu = TC_ACTIVATION_GELU;
    const Case cases[] = {{2, 16, 32, 4, 64, false, true, false, relu, 2},
                          {3, 5, 6, 2, 7, true, false, true, gelu, 2},
                          {1, 21, 24, 3, 68, true, true, false, relu, 1},
                          {1, 33, 8, 1, 9, false, false, true, gelu, 1}};
    for (const Case &c : cases) {
        if (const int error = compare(c)) return error;
        if (c.T == 16 && is_costly(128 * c.B)) return 1; // so many where attention's scores are written and read
    }
    return 0;
}
