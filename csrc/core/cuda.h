/* cuda.h: GPUs, through the CUDA library that is opened on first use. The library next to the extension module is libtransformer_c_cuda.so;
 * TRANSFORMER_C_CUDA_LIBRARY names another one, which in tests is an emulated GPU. */
#ifndef TC_CORE_CUDA_H
#define TC_CORE_CUDA_H

#include "../kernels/cuda_api.h"
#include "backend.h"

/* Can the device be used? TC_ERROR_STATE with the reason if not: no library, no or an old driver, no such device, one that the library has
 * no code for, a process forked from one that used CUDA. */
TC_CHECKED tc_status tc_cuda_check(int index, tc_error *err);

/* A thread's stay on a device, which is selected until the scope of the variable ends. Then the thread gets back the device that it had, as
 * other libraries in the process select devices for their own work. */
typedef struct tc_cuda_stay {
    const tc_cuda_api *api;
    int before; /* -1: the same */
} tc_cuda_stay;
#define TC_CUDA_STAY(name) __attribute__((cleanup(tc_cuda_leave))) tc_cuda_stay name = {.api = NULL, .before = -1}
/* Checks the device and selects it. */
TC_CHECKED tc_status tc_cuda_enter(tc_cuda_stay *stay, int index, tc_error *err);
void tc_cuda_leave(tc_cuda_stay *stay);

/* The library's text for its error number `code`, after "<what> on <device> failed: ". */
TC_CHECKED tc_status tc_cuda_failed(const tc_cuda_api *api, int index, const char *what, int code, tc_error *err);
/* Of a device that can be used: its multiprocessors, its compute capability (80 for 8.0), the shared memory that a block may ask for. */
int tc_cuda_multiprocessors(int index);
int tc_cuda_capability(int index);
int tc_cuda_block_shared_bytes(int index);
bool tc_cuda_forked(void);   /* this process was forked from one that used CUDA */
int tc_cuda_slot(int index); /* the index of a device in tables, from 0 */
#define TC_CUDA_DEVICES 64

/* One lock per device, for its streams and its memory. It is held while work is put on a stream, never while the host waits for a
 * stream. */
void tc_cuda_lock(int index);
void tc_cuda_unlock(int index);

/* ---- memory (cuda_memory.c) ---- */

TC_CHECKED tc_status tc_cuda_allocate(int index, size_t bytes, void **out, tc_error *err);
void tc_cuda_free(int index, void *block, size_t bytes);

/* Work on a block, by numbers of streams and of work on them. It stays with the block when that is freed and taken again. */
typedef struct tc_cuda_history {
    int writer;
    uint64_t written; /* number of that work on the writer's stream; 0: none */
    uint64_t readers; /* one bit per stream that has read since then */
} tc_cuda_history;

/* Memory from the driver, used or free. */
#define TC_CUDA_CLASSES 144 /* sizes of blocks */
typedef struct tc_cuda_block {
    char *memory;
    size_t bytes;
    tc_cuda_history history;
    struct tc_cuda_block *next_free;
    struct tc_storage *owner; /* or NULL */
    int graphs;               /* that name it: nobody else gets it meanwhile */
    bool freed;               /* while graphs name it */
    tc_cuda_graph *pool;      /* the graph in whose capture it was taken, or of whose function it is an argument, or NULL */
    bool is_late;             /* another library may still work on it: cuda_wait.c waits before it lets go */
    struct tc_cuda_block *next_late;
} tc_cuda_block;

/* The block that contains the address; NULL: not our memory, such as the host's. The lock is held. */
tc_cuda_block *tc_cuda_block_of(int index, const void *address);
/* The storage that has the block at `memory`, whose version work of graphs raises. Until it is freed. */
void tc_cuda_own(int index, void *memory, struct tc_storage *owner);
/* Would this thread's work have to wait before it writes there? The lock is held. */
bool tc_cuda_would_wait(int index, const tc_cuda_history *history);

/* ---- streams and the order of work (cuda_stream.c) ---- */

#define TC_CUDA_STREAMS 64 /* per device; one bit for each in a history */

/* One kernel or copy. */
typedef struct tc_cuda_work {
    const tc_cuda_api *api;
    int index;
    struct tc_cuda_queue *queue;
    tc_cuda_graph *graph; /* whose capture the work is in, or NULL */
    void *stream;         /* where the work is put */
    uint64_t number;      /* on its stream, from 1 */
} tc_cuda_work;

/* Beside CUDA's error numbers: memory of the capture of another thread, in which nobody has computed anything yet. */
#define TC_CUDA_OF_A_CAPTURE (-1)

/* Between these two the device's lock is held. In a capture of this thread the work becomes the graph's. Name first all memory that is
 * read, then all that is written; then put the work on the stream. When begin fails, end is not called. */
TC_CHECKED tc_status tc_cuda_begin(tc_cuda_work *work, const tc_cuda_api *api, int index, tc_error *err);
void tc_cuda_end(tc_cuda_work *work);
/* These return a CUDA error number. */
int tc_cuda_reads(const tc_cuda_work *work, const void *memory);
int tc_cuda_writes(const tc_cuda_work *work, const void *memory);
int tc_cuda_orders(const tc_cuda_work *work, tc_cuda_history *history, bool writes); /* the same, for a block of memory */
/* Names what a kernel reads and writes, by its args (cuda_operands.c). */
int tc_cuda_order_kernel(const tc_cuda_work *work, const tc_kernel *kernel, const void *args);

void tc_cuda_is_done(const tc_cuda_work *work);                  /* the host has waited for it */
int tc_cuda_wait_for_streams(const tc_cuda_api *api, int index); /* the host waits for all our streams; a CUDA error number */

/* ---- waits for the whole device (cuda_wait.c) ---- */

/* The host waits for all work on the device, or while a thread captures for that of our streams. Gives a CUDA error number. No lock of the
 * device is held. */
int tc_cuda_wait_for_all(const tc_cuda_api *api, int index);
/* Another library, on streams that nobody knows, may still work on this memory: waits for the device, or while a thread captures keeps the
 * block from other owners until somebody has. */
void tc_cuda_wait_or_keep(const tc_cuda_api *api, int index, const void *memory);
/* Around a capture on the device. */
void tc_cuda_capture_begins(int index);
void tc_cuda_capture_ends(const tc_cuda_api *api, int index);

/* ---- graphs (cuda_graph.c) ---- */

/* The capture of this thread, or NULL. */
tc_cuda_graph *tc_cuda_capture_here(void);
void *tc_cuda_capture_stream(const tc_cuda_graph *graph);
/* Fails in a capture of this thread: "<what> while tc.cuda.graph captures ...". Elsewhere, and for other threads, TC_OK. */
TC_CHECKED tc_status tc_cuda_not_in_capture(const char *what, tc_error *err);
/* Fails when the device is not that of this thread's capture, or the thread may not start work now. */
TC_CHECKED tc_status tc_cuda_may_start(int index, tc_error *err);
/* Names a block that the work of a capture reads or writes. Gives a CUDA error number. The lock is held. */
int tc_cuda_graph_uses(tc_cuda_graph *graph, tc_cuda_block *block, bool writes);
/* The free blocks of a size class that a capture may take again. */
tc_cuda_block **tc_cuda_pool(tc_cuda_graph *graph, int size_class);
bool tc_cuda_records(const tc_cuda_graph *graph);      /* its capture is not over */
void tc_cuda_lets_go(int index, tc_cuda_block *block); /* a graph, of a block that it named. The lock is held (cuda_memory.c) */

/* ---- page-locked memory for copies from and to the host (cuda_staging.c) ---- */

#define TC_CUDA_STAGING_BYTES ((size_t)1 << 20) /* per buffer; larger copies take several, one after the other */
#define TC_CUDA_STAGING_BUFFERS 8               /* per device */

typedef enum tc_staging_state {
    TC_STAGING_FREE,
    TC_STAGING_HELD,
    TC_STAGING_ON_ITS_WAY, /* a copy from it is on a stream, and its event is recorded after the copy */
    TC_STAGING_LOST,       /* nobody knows whether a copy from or to it is over: it is not used again */
} tc_staging_state;

typedef struct tc_cuda_staging {
    void *memory, *event; /* NULL: not made yet */
    tc_staging_state state;
    uint64_t turn; /* order among the buffers with a copy in progress */
} tc_cuda_staging;

/* A buffer that nobody uses; the host waits when every buffer has a copy in progress. NULL: threads hold all of them, or there is no
 * page-locked memory. */
tc_cuda_staging *tc_cuda_take_staging(const tc_cuda_api *api, int index);
void tc_cuda_give_staging(int index, tc_cuda_staging *staging, tc_staging_state state);

/* The backend's copy (cuda_copy.c). */
TC_CHECKED tc_status tc_cuda_copy(int index, void *to, bool to_host, const void *from, bool from_host, size_t bytes, tc_error *err);

/* ---- errors that kernels find (cuda_alarm.c) ---- */

/* The backend's check_later. */
TC_CHECKED tc_status tc_cuda_check_later(int index, const tc_index_check *check, int64_t **alarm, int64_t *ticket, tc_error *err);
/* Before the end of a graph, whose checks are described until then. The lock is held. */
void tc_cuda_forget_checks(int index, const tc_cuda_graph *graph);
/* TC_ERROR_STATE, once, with the errors of earlier calls that kernels have found. The host has waited for the work in question. */
TC_CHECKED tc_status tc_cuda_earlier_errors(const tc_cuda_api *api, int index, tc_error *err);

/* ---- planning (cuda_plan.c) ---- */

TC_CHECKED tc_status tc_cuda_plan(tc_plan *plan, void *args, tc_error *err);

extern const tc_backend tc_cuda_backend;

#endif
