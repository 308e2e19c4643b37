/* kernels.c: the rows of kernels.def as data: `tc_kernel_layer_norm_forward` and so on. */
#include "../kernels/kernels.def" /* the structs */

#include "../kernels/kernel_ids.h"

/* The kind of a member, from its type. A kernel cannot write through a member that is const or no pointer: that is a compile error here. */
#define WRITE_KIND(member)                                                                                                                 \
    _Generic((member),                                                                                                                     \
             void *: TC_WRITES_MEMORY,                                                                                                     \
             int64_t *: TC_WRITES_MEMORY,                                                                                                  \
             double *: TC_WRITES_MEMORY,                                                                                                   \
             const tc_optimizer_chunk *: TC_WRITES_CHUNKS)
#define WRITE(args, member)                                                                                                                \
    {                                                                                                                                      \
        WRITE_KIND(((args *)0)->member), offsetof(args, member)                                                                            \
    }

/* WRITE of each of up to twelve members. */
#define EACH_1(args, a) WRITE(args, a)
#define EACH_2(args, a, ...) WRITE(args, a), EACH_1(args, __VA_ARGS__)
#define EACH_3(args, a, ...) WRITE(args, a), EACH_2(args, __VA_ARGS__)
#define EACH_4(args, a, ...) WRITE(args, a), EACH_3(args, __VA_ARGS__)
#define EACH_5(args, a, ...) WRITE(args, a), EACH_4(args, __VA_ARGS__)
#define EACH_6(args, a, ...) WRITE(args, a), EACH_5(args, __VA_ARGS__)
#define EACH_7(args, a, ...) WRITE(args, a), EACH_6(args, __VA_ARGS__)
#define EACH_8(args, a, ...) WRITE(args, a), EACH_7(args, __VA_ARGS__)
#define EACH_9(args, a, ...) WRITE(args, a), EACH_8(args, __VA_ARGS__)
#define EACH_10(args, a, ...) WRITE(args, a), EACH_9(args, __VA_ARGS__)
#define EACH_11(args, a, ...) WRITE(args, a), EACH_10(args, __VA_ARGS__)
#define EACH_12(args, a, ...) WRITE(args, a), EACH_11(args, __VA_ARGS__)
#define THIRTEENTH(a, b, c, d, e, f, g, h, i, j, k, l, m, ...) m
#define EACH(args, ...)                                                                                                                    \
    THIRTEENTH(__VA_ARGS__, EACH_12, EACH_11, EACH_10, EACH_9, EACH_8, EACH_7, EACH_6, EACH_5, EACH_4, EACH_3, EACH_2, EACH_1, )           \
    (args, __VA_ARGS__)
#define COUNT(...) THIRTEENTH(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, )

#define TC_KERNEL_ENTRY(kernel, gpu, args, ...)                                                                                            \
    const tc_kernel tc_kernel_##kernel = {.name = #kernel,                                                                                 \
                                          .id = TC_K_##kernel,                                                                             \
                                          .args_bytes = sizeof(args),                                                                      \
                                          .write_count = COUNT(__VA_ARGS__),                                                               \
                                          .writes = {EACH(args, __VA_ARGS__)}};
#include "../kernels/kernels.def"
#undef TC_KERNEL_ENTRY
