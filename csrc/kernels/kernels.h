/* kernels.h: the interface between ops and kernels.
 *
 * A kernel does arithmetic on a range of its items and nothing else: it never allocates, locks, prints or knows about
 * threads. All kernels have one C type: they take a plain struct of pointers, sizes and strides, declared in
 * kernels/<op>.h with the shapes in comments, for the CPU kernel and the CUDA launcher alike. All other facts about a kernel are in
 * its row of kernels.def. Ops reach kernels only through tc_run() and plans (core/backend.h, core/plan.h), which pick device and dtype.
 */
#ifndef TC_KERNELS_H
#define TC_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Computes items [begin, end) of the work that `args` describes. `scratch`: memory for this call alone, of the size the op asked for,
 * aligned to 64 bytes, uninitialised. The result must not depend on how the range is cut. */
typedef void (*tc_range_kernel)(const void *args, int64_t begin, int64_t end, void *scratch);

/* How far before it is needed the CPU kernels ask for memory, in bytes; 0 on processors that read ahead better alone. Set by core/cpu.c. */
extern size_t tc_kernel_bytes_ahead;

#define TC_KERNEL_WRITES 12

/* One member of the args through which a kernel writes. */
typedef struct tc_kernel_write {
    enum { TC_WRITES_MEMORY, TC_WRITES_CHUNKS } kind; /* a pointer to memory, or to tc_optimizer_chunk's */
    size_t offset;
} tc_kernel_write;

/* A row of kernels.def; they are all in core/kernels.c. */
typedef struct tc_kernel {
    const char *name;
    int id; /* its place in the tables of functions: kernel_ids.h */
    size_t args_bytes;
    size_t write_count;
    tc_kernel_write writes[TC_KERNEL_WRITES];
} tc_kernel;

typedef struct tc_kernel_table tc_kernel_table; /* kernel_ids.h: the functions of one compute dtype and instruction set */

#endif
