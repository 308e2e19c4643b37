// attention_backward_head_main.h: the main function of a program that test_kernel_bugs.py makes of attention_backward_head.cu, as it is or
// with a bug. Two heads read the same keys; the last tiles are not whole, and of queries there are fewer than of keys.
#include "bugs/attention_gradients.h"

namespace
{

int launch_gradients(const tc_attention_backward_args &a, const QueryNumbers<float> &)
{
    return launch_shape<Shape<features>, bfloat16>(a, nullptr);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    if (const int error = compare_all(2, 40, 75, false)) return error;
    if (const int error = costly()) return error;
    return compare_all(2, 70, 70, true);
}
