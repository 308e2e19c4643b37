/* cuda_api.h: the C interface of libtransformer_c_cuda.so, all that the core knows about CUDA.
 *
 * The library is opened on first use of a CUDA device and asked for one table of functions. Functions that can fail return 0
 * or a CUDA error number, which error_text() explains. The emulated GPU of the tests provides the same table.
 */
#ifndef TC_CUDA_API_H
#define TC_CUDA_API_H

#include "kernel_ids.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TC_CUDA_ABI_VERSION 9

/* The error numbers that the core distinguishes; it only passes others to error_text(). */
#define TC_CUDA_OUT_OF_MEMORY 2
#define TC_CUDA_OLD_DRIVER 35 /* or none */
#define TC_CUDA_NO_DEVICE 100
#define TC_CUDA_NOT_READY 600

/* Puts all the work that `args` describes (the struct of kernels/<op>.h, its pointers into device memory) on the stream. `items` as
 * for the CPU kernel; `scratch` is device memory of the size given by scratch_bytes, for this call alone.
 *
 * A table is for tensors of one dtype. Values that kernels save for each other and reduce into (statistics, partial sums, shift,
 * sum, lse) have the compute dtype: float64 for float64, otherwise float32. */
typedef int (*tc_cuda_launcher)(const void *args, int64_t items, void *scratch, void *stream);

typedef struct tc_cuda_kernel_table {
    tc_cuda_launcher run[TC_KERNEL_COUNT];                      /* NULL: no CUDA kernel yet */
    size_t (*scratch_bytes[TC_KERNEL_COUNT])(const void *args); /* NULL: none needed */
} tc_cuda_kernel_table;

/* A stream is a cudaStream_t, NULL the device's default one, which waits for all others and makes them wait, unless they are apart. An
 * event is a cudaEvent_t. Functions that concern a device use the one that the calling thread selected last. Several threads may call any
 * function at once. */
typedef struct tc_cuda_api {
    int abi_version;  /* TC_CUDA_ABI_VERSION; a library with another value was built from other sources */
    int emulated;     /* 1: the emulation of the tests, not a GPU */
    const char *rows; /* tc_kernel_rows; likewise */
    const char *(*error_text)(int error);
    int (*versions)(int *driver, int *runtime); /* 1000 * major + 10 * minor; driver 0: none is installed */
    const int *code_for; /* compute capabilities, 80 for 8.0, rising, then 0; the last one as PTX too, for later GPUs */
    int (*device_count)(int *count);
    int (*compute_capability)(int *capability, int index); /* 10 * major + minor */
    int (*multiprocessors)(int *count, int index);
    int (*block_shared_bytes)(int *bytes, int index); /* that a block may ask for, at most */
    int (*current_device)(int *index);                /* of this thread */
    int (*select_device)(int index);
    int (*memory_info)(size_t *unused, size_t *total);
    int (*allocate)(void **pointer, size_t bytes); /* device memory, aligned to 256 bytes */
    int (*release)(void *pointer);                 /* NULL is allowed */
    int (*copy_from_host)(void *device, const void *host, size_t bytes, void *stream);
    int (*copy_to_host)(void *host, const void *device, size_t bytes, void *stream);
    int (*copy_on_device)(void *to, const void *from, size_t bytes, void *stream);
    int (*allocate_host)(void **pointer, size_t bytes); /* page-locked */
    int (*create_stream)(void **stream, int apart);     /* apart: it and the default stream do not wait for each other */
    int (*create_event)(void **event);
    int (*record_event)(void *event, void *stream); /* the event occurs when all work that is on the stream now is done */
    int (*wait_event)(void *stream, void *event);   /* work put on the stream from now on runs after the event */
    int (*query_event)(void *event);                /* 0: it has occurred, or was never recorded; otherwise TC_CUDA_NOT_READY */
    int (*synchronize_event)(void *event);          /* the host waits for it */
    int (*synchronize)(void *stream);               /* waits, and returns the error of any work that failed */
    int (*synchronize_device)(void);                /* the same for all its streams, none of which may be in a capture */
    /* Work that is put on the stream, which is apart, is kept for a graph and not done, until end_capture() gives it. Meanwhile the
     * host may not wait for the stream, and work on it not for that of other streams; both make the capture's end fail. Threads may
     * allocate memory. */
    int (*begin_capture)(void *stream);
    int (*end_capture)(void **captured, void *stream);        /* in either case the stream is as before the capture */
    int (*instantiate)(void **graph, void *captured);         /* what can be launched; this may take memory of the device */
    int (*forget_captured)(void *captured);                   /* a graph that was made of it stays */
    int (*launch_graph)(void *graph, void *stream);           /* all its work, in order, after what is on the stream */
    int (*destroy_graph)(void *graph);                        /* a launch that is on its way still runs */
    const tc_cuda_kernel_table *(*kernels)(tc_dtype storage); /* NULL: not a floating dtype */
} tc_cuda_api;

__attribute__((visibility("default"))) const tc_cuda_api *tc_cuda_get_api(void);

#ifdef __cplusplus
}
#endif
#endif
