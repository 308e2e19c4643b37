// attention_backward_main.h: the main function of a program that test_kernel_bugs.py makes of attention_backward_mma.cu, as it is or with a
// bug. The tiles are whole ones and one that is not.
#include "bugs/attention_gradients.h"

namespace
{

int launch_gradients(const tc_attention_backward_args &a, const QueryNumbers<float> &of_queries)
{
    const tc_attention_problem &p = a.problem;
    const Wanted of_q = {Gradient::query, 1, p.Tq, features, 1, nullptr}, of_k = {Gradient::key, 1, p.Tk, features, 1, nullptr},
                 of_v = {Gradient::value, 1, p.Tk, features, 1, nullptr};
    if (const int error = launch_shape<Shape<true, features>, bfloat16>(a, of_q, of_q, of_queries, nullptr)) return error;
    return launch_shape<Shape<false, features>, bfloat16>(a, of_k, of_v, of_queries, nullptr);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    set_schedule(argv[1], argv[2]);
    if (const int error = compare_all(1, 140, 170, false)) return error;
    if (const int error = costly()) return error;
    return compare_all(1, 70, 70, true);
}
