/* cuda.h: GPUs, through the CUDA library that is opened on first use. The library beside the extension module is
 * libtransformer_c_cuda.so; TRANSFORMER_C_CUDA_LIBRARY names another one, which in tests is an emulated GPU. */
#ifndef TC_CORE_CUDA_H
#define TC_CORE_CUDA_H

#include "../kernels/cuda_api.h"
#include "backend.h"

/* The library's functions, with the device selected for this thread; TC_ERROR_STATE with the reason when that cannot be: no
 * library, no or an old driver, no such device, a process forked from one that used CUDA. */
TC_CHECKED tc_status tc_cuda_device(const tc_cuda_api **out, int index, tc_error *err);
/* What the library says of its error number `code`, after "<what> on <device> failed: ". */
TC_CHECKED tc_status tc_cuda_failed(const tc_cuda_api *api, int index, const char *what, int code, tc_error *err);
bool tc_cuda_forked(void);   /* from a process that used CUDA */
int tc_cuda_slot(int index); /* from 0: a place in tables of devices */
#define TC_CUDA_DEVICES 64

/* One lock a device, for its streams and its memory. Held while work is put on a stream, never while the host waits for a stream. */
void tc_cuda_lock(int index);
void tc_cuda_unlock(int index);

/* ---- memory (cuda_memory.c) ---- */

TC_CHECKED tc_status tc_cuda_allocate(int index, size_t bytes, void **out, tc_error *err);
void tc_cuda_free(int index, void *block, size_t bytes);

/* What was done to a block, by numbers of streams and of their works. It stays with the block when that is freed and taken again. */
typedef struct tc_cuda_history {
    int writer;
    uint64_t written; /* which work of the writer's; 0: none */
    uint64_t readers; /* a bit a stream: since then */
} tc_cuda_history;

/* Of the block that the address lies in; NULL: it is no memory of ours, such as the host's. The lock is held. */
tc_cuda_history *tc_cuda_history_of(int index, const void *address);
/* Would this thread's work have to wait before it writes there? The lock is held. */
bool tc_cuda_would_wait(int index, const tc_cuda_history *history);

/* ---- streams and the order of work (cuda_stream.c) ---- */

#define TC_CUDA_STREAMS 64 /* of a device; a bit each in a history */

/* One kernel or copy. */
typedef struct tc_cuda_work {
    const tc_cuda_api *api;
    int index;
    struct tc_cuda_queue *queue;
    void *stream;    /* to put it on */
    uint64_t number; /* on its stream, from 1 */
} tc_cuda_work;

/* Between these two the device's lock is held. First everything that is read, then everything that is written is named; then the work is
 * put on the stream. When begin fails there is no end. */
TC_CHECKED tc_status tc_cuda_begin(tc_cuda_work *work, const tc_cuda_api *api, int index, tc_error *err);
void tc_cuda_end(tc_cuda_work *work);
/* These give a CUDA error number. */
int tc_cuda_reads(const tc_cuda_work *work, const void *memory);
int tc_cuda_writes(const tc_cuda_work *work, const void *memory);
/* Names what a kernel reads and writes, by its args (cuda_operands.c). */
int tc_cuda_order_kernel(const tc_cuda_work *work, const tc_kernel *kernel, const void *args);

void tc_cuda_is_done(const tc_cuda_work *work); /* the host has waited for it */

/* ---- page-locked memory for copies from and to the host (cuda_staging.c) ---- */

#define TC_CUDA_STAGING_BYTES ((size_t)1 << 20) /* of a buffer; larger copies go without */
#define TC_CUDA_STAGING_BUFFERS 8               /* of a device */

typedef struct tc_cuda_staging {
    void *memory, *event; /* NULL: not asked for yet */
    enum { TC_STAGING_FREE, TC_STAGING_HELD, TC_STAGING_ON_ITS_WAY } state;
    uint64_t turn; /* of those on their way: which left first */
} tc_cuda_staging;

/* A buffer that nobody uses; the host waits when all are on their way. NULL: threads hold all of them, or there is no such memory. */
tc_cuda_staging *tc_cuda_take_staging(const tc_cuda_api *api, int index);
/* on_its_way: a copy from it is on a stream, and its event is recorded after that. */
void tc_cuda_give_staging(int index, tc_cuda_staging *staging, bool on_its_way);

/* ---- planning (cuda_plan.c) ---- */

TC_CHECKED tc_status tc_cuda_plan(tc_plan *plan, void *args, tc_error *err);

extern const tc_backend tc_cuda_backend;

#endif
