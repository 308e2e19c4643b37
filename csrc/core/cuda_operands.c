/* cuda_operands.c: which memory a kernel reads and writes, found in its args.
 *
 * A struct of arguments is read word by word: a word that is an address in one of our blocks is an operand. A number that happens to look
 * like an address costs only a needless wait; words that nobody has set are zero. The kernel's row in kernels.def says which words it
 * writes through; it reads all others. */
#include <stddef.h>
#include <string.h>

#include "../kernels/optimizer.h"
#include "cuda.h"

_Static_assert(offsetof(tc_sgd_args, chunk_count) == offsetof(tc_scale_args, chunk_count) &&
                   offsetof(tc_adam_args, chunk_count) == offsetof(tc_scale_args, chunk_count) &&
                   offsetof(tc_rmsprop_args, chunk_count) == offsetof(tc_scale_args, chunk_count) &&
                   offsetof(tc_norm_args, chunk_count) == offsetof(tc_scale_args, chunk_count),
               "chunks and chunk_count come first");

static bool is_written(const tc_kernel *kernel, size_t offset)
{
    for (size_t i = 0; i < kernel->write_count; i++)
        if (kernel->writes[i].offset == offset) return true;
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
        if (!code) code = tc_cuda_writes(work, chunk->half);
        for (int j = 0; j < TC_OPTIMIZER_STATES && !code; j++) code = tc_cuda_writes(work, chunk->state[j]);
    }
    return code;
}

int tc_cuda_order_kernel(const tc_cuda_work *work, const tc_kernel *kernel, const void *args)
{
    const char *bytes = args;
    const void *address;
    int code = 0;
    for (size_t at = 0; at < kernel->args_bytes && !code; at += sizeof address) {
        memcpy(&address, bytes + at, sizeof address);
        if (address && !is_written(kernel, at)) code = tc_cuda_reads(work, address);
    }
    for (size_t i = 0; i < kernel->write_count && !code; i++) {
        memcpy(&address, bytes + kernel->writes[i].offset, sizeof address);
        if (kernel->writes[i].kind == TC_WRITES_CHUNKS)
            code = order_chunks(work, args);
        else if (address)
            code = tc_cuda_writes(work, address);
    }
    return code;
}
