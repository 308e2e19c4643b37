/* cuda_operands.c: which memory a kernel reads and writes, found in its args.
 *
 * A struct of arguments is read word by word: a word that is an address in one of our blocks is memory of the kernel. A number that looks
 * like one costs a needless wait and no more. The table says which words the kernel writes to; all others it reads. A kernel that is not
 * in the table, such as those of the optimizers, whose memory is in lists elsewhere, comes after all other work and before all that
 * follows. */
#include <stddef.h>
#include <string.h>

#include "../kernels/activation.h"
#include "../kernels/add_in_place.h"
#include "../kernels/attention.h"
#include "../kernels/copy.h"
#include "../kernels/dropout.h"
#include "../kernels/elementwise.h"
#include "../kernels/embedding.h"
#include "../kernels/gemm.h"
#include "../kernels/index.h"
#include "../kernels/integer_product.h"
#include "../kernels/layer_norm.h"
#include "../kernels/loss.h"
#include "../kernels/optimizer.h"
#include "../kernels/reduce.h"
#include "../kernels/softmax.h"
#include "../kernels/sort.h"
#include "../kernels/sum_partials.h"
#include "../kernels/triangle.h"
#include "cuda.h"

#define MOST_WRITTEN 5

typedef struct operands {
    size_t bytes;                 /* of the args */
    size_t written[MOST_WRITTEN]; /* offsets, plus one; 0: no more */
    bool has_chunks;              /* the args begin with a list of chunks and its length, as those of tc_scale_args */
} operands;

#define AT(args, member) (offsetof(args, member) + 1)
#define WRITES(args, ...)                                                                                                                  \
    {                                                                                                                                      \
        .bytes = sizeof(args), .written = { __VA_ARGS__ }                                                                                  \
    }
#define WRITES_1(args, a) WRITES(args, AT(args, a))
#define WRITES_2(args, a, b) WRITES(args, AT(args, a), AT(args, b))
#define WRITES_3(args, a, b, c) WRITES(args, AT(args, a), AT(args, b), AT(args, c))
#define WRITES_4(args, a, b, c, d) WRITES(args, AT(args, a), AT(args, b), AT(args, c), AT(args, d))
#define WRITES_5(args, a, b, c, d, e) WRITES(args, AT(args, a), AT(args, b), AT(args, c), AT(args, d), AT(args, e))
#define CHUNKS(args)                                                                                                                       \
    {                                                                                                                                      \
        .bytes = sizeof(args), .has_chunks = true                                                                                          \
    }
#define CHUNKS_WRITES_1(args, a)                                                                                                           \
    {                                                                                                                                      \
        .bytes = sizeof(args), .written = {AT(args, a)}, .has_chunks = true                                                                \
    }

static const operands table[TC_KERNEL_COUNT] = {
    [TC_K_activation_backward] = WRITES_1(tc_activation_backward_args, dx),
    [TC_K_add_in_place] = WRITES_1(tc_add_in_place_args, to),
    [TC_K_argsort] = WRITES_1(tc_argsort_args, indices),
    [TC_K_attention_backward] = WRITES_5(tc_attention_backward_args, dq.data, dk.data, dv.data, dk_partial, dv_partial),
    [TC_K_attention_dbias] = WRITES_1(tc_attention_dbias_args, dbias.data),
    [TC_K_attention_forward] = WRITES_5(tc_attention_forward_args, values.data, shift, sum, lse, map),
    [TC_K_attention_sum_splits] = WRITES_2(tc_attention_backward_args, dk.data, dv.data),
    [TC_K_binary_backward] = WRITES_1(tc_elementwise_args, out.data),
    [TC_K_binary_forward] = WRITES_1(tc_elementwise_args, out.data),
    [TC_K_copy] = WRITES_1(tc_copy_args, to),
    [TC_K_cross_entropy_backward] = WRITES_1(tc_cross_entropy_backward_args, dx),
    [TC_K_cross_entropy_forward] = WRITES_3(tc_cross_entropy_forward_args, loss, top, log_sum),
    [TC_K_dropout_forward] = WRITES_1(tc_dropout_forward_args, y),
    [TC_K_embedding_backward] = WRITES_1(tc_embedding_backward_args, dweight),
    [TC_K_embedding_forward] = WRITES_1(tc_embedding_forward_args, y),
    [TC_K_embedding_order] = WRITES_2(tc_embedding_order_args, order, start),
    [TC_K_extreme_backward] = WRITES_1(tc_extreme_backward_args, dx),
    [TC_K_gemm] = WRITES_3(tc_gemm_args, c, pre, a_sum),
    [TC_K_gemm_pack] = WRITES_1(tc_gemm_pack_args, panels),
    [TC_K_index_add] = WRITES_1(tc_index_args, base),
    [TC_K_index_gather] = WRITES_1(tc_index_args, selection),
    [TC_K_index_put] = WRITES_1(tc_index_args, base),
    [TC_K_integer_argsort] = WRITES_1(tc_argsort_args, indices),
    [TC_K_integer_binary] = WRITES_1(tc_elementwise_args, out.data),
    [TC_K_integer_product] = WRITES_1(tc_integer_product_args, product.c),
    [TC_K_integer_reduce] = WRITES_1(tc_reduce_args, out),
    [TC_K_integer_unary] = WRITES_1(tc_elementwise_args, out.data),
    [TC_K_integer_where] = WRITES_1(tc_elementwise_args, out.data),
    [TC_K_layer_norm_backward] = WRITES_3(tc_layer_norm_backward_args, dx, dgamma_partial, dbeta_partial),
    [TC_K_layer_norm_forward] = WRITES_4(tc_layer_norm_forward_args, y, mean, rstd, sum),
    [TC_K_loss_backward] = WRITES_2(tc_loss_backward_args, dx, dtarget),
    [TC_K_loss_forward] = WRITES_1(tc_loss_forward_args, loss),
    [TC_K_one_hot] = WRITES_1(tc_one_hot_args, out),
    [TC_K_reduce_arg] = WRITES_1(tc_reduce_args, out),
    [TC_K_reduce_arg_columns] = WRITES_1(tc_reduce_args, out),
    [TC_K_reduce_columns] = WRITES_1(tc_reduce_args, out),
    [TC_K_reduce_rows] = WRITES_1(tc_reduce_args, out),
    [TC_K_softmax_backward] = WRITES_1(tc_softmax_backward_args, dx),
    [TC_K_softmax_forward] = WRITES_1(tc_softmax_forward_args, y),
    [TC_K_sum_partials] = WRITES_1(tc_sum_partials_args, out),
    [TC_K_triangle] = WRITES_1(tc_triangle_args, y),
    [TC_K_unary_backward] = WRITES_1(tc_elementwise_args, out.data),
    [TC_K_unary_forward] = WRITES_1(tc_elementwise_args, out.data),
    [TC_K_where_forward] = WRITES_1(tc_elementwise_args, out.data),
    [TC_K_adam_step] = CHUNKS(tc_adam_args),
    [TC_K_gradient_norm] = CHUNKS_WRITES_1(tc_norm_args, partial),
    [TC_K_gradient_scale] = CHUNKS(tc_scale_args),
    [TC_K_rmsprop_step] = CHUNKS(tc_rmsprop_args),
    [TC_K_sgd_step] = CHUNKS(tc_sgd_args),
};

_Static_assert(offsetof(tc_sgd_args, chunk_count) == offsetof(tc_scale_args, chunk_count) &&
                   offsetof(tc_adam_args, chunk_count) == offsetof(tc_scale_args, chunk_count) &&
                   offsetof(tc_rmsprop_args, chunk_count) == offsetof(tc_scale_args, chunk_count) &&
                   offsetof(tc_norm_args, chunk_count) == offsetof(tc_scale_args, chunk_count),
               "chunks and chunk_count come first");

static bool is_written(const operands *kernel, size_t offset)
{
    for (int i = 0; i < MOST_WRITTEN && kernel->written[i]; i++)
        if (kernel->written[i] == offset + 1) return true;
    return false;
}

static int order_chunks(const tc_cuda_work *work, const void *args)
{
    const tc_scale_args *list = args;
    int code = 0;
    for (int64_t i = 0; i < list->chunk_count && !code; i++) {
        const tc_optimizer_chunk *chunk = &list->chunks[i];
        code = tc_cuda_writes(work, chunk->gradient);
        if (!code) code = tc_cuda_writes(work, chunk->parameter);
        for (int j = 0; j < TC_OPTIMIZER_STATES && !code; j++) code = tc_cuda_writes(work, chunk->state[j]);
    }
    return code;
}

int tc_cuda_order_kernel(const tc_cuda_work *work, tc_kernel_id kernel, const void *args)
{
    const operands *found = &table[kernel];
    const char *bytes = args;
    const void *address;
    int code = 0;
    for (size_t at = 0; at < found->bytes && !code; at += sizeof address) {
        memcpy(&address, bytes + at, sizeof address);
        if (address && !is_written(found, at)) code = tc_cuda_reads(work, address);
    }
    for (int i = 0; i < MOST_WRITTEN && found->written[i] && !code; i++) {
        memcpy(&address, bytes + found->written[i] - 1, sizeof address);
        if (address) code = tc_cuda_writes(work, address);
    }
    return code || !found->has_chunks ? code : order_chunks(work, args);
}
