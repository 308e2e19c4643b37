/* cuda_stream.c: a stream for each thread, and the order between them.
 *
 * A thread gets a stream on a device with its first work there and returns it when the thread ends, for the next thread; streams are never
 * destroyed, so nothing has to be done at the end of the process, when the driver may be unloaded. With more threads than streams, threads
 * share.
 *
 * The rule: work that reads memory comes after the work that last wrote it; work that writes memory comes after the work that last wrote
 * it and all work that read it since. It applies to whole blocks of the memory cache (cuda_memory.c keeps their history, also while they
 * are free, so a block that another thread takes needs no extra wait), whichever thread made the tensor, its view or its block. Where the
 * other work is on another stream, an event is recorded there and this stream waits for it on the GPU; the host does not wait.
 *
 * Counts of work say what a stream already runs after, so that it waits only once for the same work. */
#include "cuda.h"

#include <string.h>

#include "allocator.h"
#include "lock.h"

typedef struct tc_cuda_queue {
    void *stream, *event;
    uint64_t put;                    /* pieces of work put on it */
    uint64_t done;                   /* how many of them the host has waited for */
    uint64_t after[TC_CUDA_STREAMS]; /* its next work runs after this many pieces of work of each other stream */
    int number, users;               /* users: threads and contexts that have it */
} tc_cuda_queue;

typedef struct device_order {
    tc_lock lock;
    tc_cuda_queue *queues[TC_CUDA_STREAMS];
    int count;
} device_order;

static device_order orders[TC_CUDA_DEVICES] = {[0 ... TC_CUDA_DEVICES - 1] = {.lock = TC_LOCK_INITIALIZER(TC_RANK_CUDA_DEVICE)}};

TC_WHEN_LOADED add_locks(void)
{
    for (int i = 0; i < TC_CUDA_DEVICES; i++) tc_lock_add(&orders[i].lock);
}

typedef struct thread_streams {
    tc_cuda_queue *own[TC_CUDA_DEVICES];
    tc_cuda_queue *chosen; /* by tc_cuda_set_stream, or NULL */
    int chosen_slot;
} thread_streams;

static _Thread_local thread_streams *streams_here; /* NULL until the thread needs them: memory of threads is scarce, see setup.py */
static pthread_key_t at_thread_end;
static pthread_once_t key_made = PTHREAD_ONCE_INIT;
static bool key_is_there;

void tc_cuda_lock(int index) { tc_lock_take(&orders[tc_cuda_slot(index)].lock); }
void tc_cuda_unlock(int index) { tc_lock_give(&orders[tc_cuda_slot(index)].lock); }

/* ---- who has which stream --------------------------------------------------------------------------------------------------------- */

static void give_back_all(void *memory)
{
    thread_streams *streams = memory;
    for (int slot = 0; slot < TC_CUDA_DEVICES && !tc_cuda_forked(); slot++) { /* after a fork the streams are the parent's */
        if (!streams->own[slot]) continue;
        tc_lock_take(&orders[slot].lock);
        streams->own[slot]->users--;
        tc_lock_give(&orders[slot].lock);
    }
    streams_here = NULL;
    tc_free(streams, sizeof *streams);
}

static void make_key(void) { key_is_there = pthread_key_create(&at_thread_end, give_back_all) == 0; }

/* Those of this thread, made if it has none. */
static tc_status own_streams(thread_streams **out, tc_error *err)
{
    if (!streams_here) {
        pthread_once(&key_made, make_key);
        thread_streams *made = tc_allocate(sizeof *made);
        if (!made) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the streams of a thread");
        memset(made, 0, sizeof *made);
        if (!key_is_there || pthread_setspecific(at_thread_end, made) != 0) {
            tc_free(made, sizeof *made);
            return tc_fail(err, TC_ERROR_STATE, "no stream can be given to this thread: the process has no thread-specific keys left");
        }
        streams_here = made;
    }
    *out = streams_here;
    return TC_OK;
}

/* The lock is held, the device selected. */
static tc_status make_queue(tc_cuda_queue **out, const tc_cuda_api *api, int index, tc_error *err)
{
    device_order *order = &orders[tc_cuda_slot(index)];
    tc_cuda_queue *queue = tc_allocate(sizeof *queue);
    if (!queue) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: a stream");
    memset(queue, 0, sizeof *queue);
    int code = api->create_stream(&queue->stream, 0);
    if (!code) code = api->create_event(&queue->event);
    if (code) { /* a stream without an event is never used */
        tc_free(queue, sizeof *queue);
        return tc_cuda_failed(api, index, "making a stream", code, err);
    }
    queue->number = order->count;
    order->queues[order->count++] = queue;
    *out = queue;
    return TC_OK;
}

/* An unused stream, a new one, or the one with the fewest users that is not `avoided`. The lock is held. */
static tc_status take_queue(tc_cuda_queue **out, const tc_cuda_api *api, int index, const tc_cuda_queue *avoided, tc_error *err)
{
    device_order *order = &orders[tc_cuda_slot(index)];
    tc_cuda_queue *best = NULL;
    for (int i = 0; i < order->count; i++)
        if (order->queues[i] != avoided && (!best || order->queues[i]->users < best->users)) best = order->queues[i];
    if (!best || (best->users > 0 && order->count < TC_CUDA_STREAMS)) {
        best = NULL;
        const tc_status status = make_queue(&best, api, index, err);
        if (!best) return status;
    }
    best->users++;
    *out = best;
    return TC_OK;
}

/* This thread's stream on the device. The lock is held. */
static tc_status current_queue(tc_cuda_queue **out, const tc_cuda_api *api, int index, tc_error *err)
{
    const int slot = tc_cuda_slot(index);
    thread_streams *mine;
    TC_TRY(own_streams(&mine, err));
    *out = mine->chosen && mine->chosen_slot == slot ? mine->chosen : mine->own[slot];
    if (*out) return TC_OK;
    const tc_status status = take_queue(&mine->own[slot], api, index, NULL, err);
    *out = mine->own[slot];
    return status;
}

tc_status tc_cuda_new_stream(void **stream, int index, tc_error *err)
{
    TC_CUDA_STAY(stay);
    tc_cuda_queue *avoided, *queue = NULL;
    TC_TRY(tc_cuda_enter(&stay, index, err));
    tc_cuda_lock(index);
    tc_status status = current_queue(&avoided, stay.api, index, err);
    if (status == TC_OK) status = take_queue(&queue, stay.api, index, avoided, err);
    tc_cuda_unlock(index);
    if (status == TC_OK) *stream = queue->stream;
    return status;
}

/* The queue of a stream, and its device's slot; -1 when there is none. */
static int find_queue(tc_cuda_queue **out, const void *stream)
{
    for (int slot = 0; slot < TC_CUDA_DEVICES; slot++) {
        tc_cuda_queue *found = NULL;
        tc_lock_take(&orders[slot].lock);
        for (int i = 0; i < orders[slot].count && !found; i++)
            if (orders[slot].queues[i]->stream == stream) found = orders[slot].queues[i];
        tc_lock_give(&orders[slot].lock);
        if (!found) continue;
        *out = found;
        return slot;
    }
    return -1;
}

tc_status tc_cuda_set_stream(void **before, void *stream, tc_error *err)
{
    tc_cuda_queue *queue = NULL;
    const int slot = stream ? find_queue(&queue, stream) : 0;
    if (slot < 0) return tc_fail(err, TC_ERROR_VALUE, "%p is not a stream of transformer_c; expected one of tc_cuda_new_stream()", stream);
    thread_streams *mine;
    TC_TRY(own_streams(&mine, err));
    if (before) *before = mine->chosen ? mine->chosen->stream : NULL;
    mine->chosen = queue;
    mine->chosen_slot = slot;
    return TC_OK;
}

void tc_cuda_end_stream(void *stream)
{
    tc_cuda_queue *queue;
    const int slot = tc_cuda_forked() ? -1 : find_queue(&queue, stream);
    if (slot < 0) return;
    tc_lock_take(&orders[slot].lock);
    queue->users--;
    tc_lock_give(&orders[slot].lock);
}

/* ---- the order ---------------------------------------------------------------------------------------------------------------------- */

/* Orders the next work of `queue` after work number `count` of stream `number`, and so after all work before that. */
static int come_after(const tc_cuda_work *work, int number, uint64_t count)
{
    const device_order *order = &orders[tc_cuda_slot(work->index)];
    tc_cuda_queue *queue = work->queue;
    if (number == queue->number || count <= queue->after[number]) return 0;
    const tc_cuda_queue *other = order->queues[number];
    if (count <= other->done) return 0;
    int code = work->api->record_event(other->event, other->stream);
    if (!code) code = work->api->wait_event(queue->stream, other->event);
    if (code) return code;
    for (int i = 0; i < order->count; i++) /* and after all that stream waited for */
        if (other->after[i] > queue->after[i]) queue->after[i] = other->after[i];
    queue->after[number] = other->put; /* the event was recorded just now */
    return 0;
}

tc_status tc_cuda_begin(tc_cuda_work *work, const tc_cuda_api *api, int index, tc_error *err)
{
    tc_cuda_queue *queue;
    tc_cuda_graph *graph = tc_cuda_capture_here();
    TC_TRY(tc_cuda_may_start(index, err));
    tc_cuda_lock(index);
    if (graph) {
        *work = (tc_cuda_work){.api = api, .index = index, .graph = graph, .stream = tc_cuda_capture_stream(graph)};
        return TC_OK;
    }
    tc_status status = current_queue(&queue, api, index, err);
    if (status == TC_OK)
        *work = (tc_cuda_work){.api = api, .index = index, .queue = queue, .stream = queue->stream, .number = queue->put + 1};
    if (status != TC_OK) tc_cuda_unlock(index);
    return status;
}

/* Counted only here: an event recorded by come_after() must not seem to cover work that is not on its stream yet. */
void tc_cuda_end(tc_cuda_work *work)
{
    if (work->queue) work->queue->put = work->number;
    tc_cuda_unlock(work->index);
}

int tc_cuda_orders(const tc_cuda_work *work, tc_cuda_history *history, bool writes)
{
    int code = come_after(work, history->writer, history->written);
    for (uint64_t left = writes ? history->readers : 0; left && !code; left &= left - 1) {
        const int reader = __builtin_ctzll(left);
        code = come_after(work, reader, orders[tc_cuda_slot(work->index)].queues[reader]->put);
    }
    if (!code && writes) *history = (tc_cuda_history){.writer = work->queue->number, .written = work->number};
    if (!code && !writes) history->readers |= UINT64_C(1) << work->queue->number;
    return code;
}

/* The lock is held. */
static bool is_of_another_capture(const tc_cuda_block *block, const tc_cuda_graph *own)
{
    return block->pool && block->pool != own && tc_cuda_records(block->pool);
}

static int name(const tc_cuda_work *work, const void *memory, bool writes)
{
    tc_cuda_block *block = tc_cuda_block_of(work->index, memory);
    if (!block) return 0;
    if (is_of_another_capture(block, work->graph)) return TC_CUDA_OF_A_CAPTURE;
    return work->graph ? tc_cuda_graph_uses(work->graph, block, writes) : tc_cuda_orders(work, &block->history, writes);
}

int tc_cuda_reads(const tc_cuda_work *work, const void *memory) { return name(work, memory, false); }
int tc_cuda_writes(const tc_cuda_work *work, const void *memory) { return name(work, memory, true); }

bool tc_cuda_would_wait(int index, const tc_cuda_history *history)
{
    const thread_streams *mine = streams_here;
    const int slot = tc_cuda_slot(index);
    const tc_cuda_queue *queue = !mine ? NULL : mine->chosen && mine->chosen_slot == slot ? mine->chosen : mine->own[slot];
    if (!queue) return true;
    const bool after_writer = history->writer == queue->number || history->written <= queue->after[history->writer];
    return !after_writer || (history->readers & ~(UINT64_C(1) << queue->number));
}

/* ---- waiting on the host, and for others --------------------------------------------------------------------------------------------- */

void tc_cuda_is_done(const tc_cuda_work *work)
{
    tc_cuda_lock(work->index);
    if (work->queue->done < work->number) work->queue->done = work->number;
    tc_cuda_unlock(work->index);
}

int tc_cuda_wait_for_streams(const tc_cuda_api *api, int index)
{
    device_order *order = &orders[tc_cuda_slot(index)];
    int code = 0;
    tc_cuda_lock(index);
    const int count = order->count;
    tc_cuda_unlock(index);
    for (int i = 0; i < count && !code; i++) code = api->synchronize(order->queues[i]->stream);
    return code;
}

tc_status tc_cuda_synchronize(int index, tc_error *err)
{
    TC_CUDA_STAY(stay);
    uint64_t put[TC_CUDA_STREAMS];
    TC_TRY(tc_cuda_not_in_capture("the host waited for the GPU", err));
    TC_TRY(tc_cuda_enter(&stay, index, err));
    device_order *order = &orders[tc_cuda_slot(index)];
    tc_cuda_lock(index);
    const int count = order->count;
    for (int i = 0; i < count; i++) put[i] = order->queues[i]->put;
    tc_cuda_unlock(index);
    const int code = tc_cuda_wait_for_all(stay.api, index);
    tc_cuda_lock(index);
    for (int i = 0; i < count && !code; i++)
        if (order->queues[i]->done < put[i]) order->queues[i]->done = put[i];
    tc_cuda_unlock(index);
    if (code) return tc_cuda_failed(stay.api, index, "waiting", code, err);
    return tc_cuda_earlier_errors(stay.api, index, err);
}

tc_status tc_cuda_hand_over(const tc_tensor *tensor, void *stream, tc_error *err)
{
    const int index = tc_tensor_device(tensor).index;
    TC_CUDA_STAY(stay);
    TC_TRY(tc_cuda_not_in_capture("a Tensor was given to another library", err));
    TC_TRY(tc_cuda_enter(&stay, index, err));
    const device_order *order = &orders[tc_cuda_slot(index)];
    tc_cuda_lock(index);
    const tc_cuda_block *block = tc_cuda_block_of(index, tensor->storage->data);
    int code = block && is_of_another_capture(block, NULL) ? TC_CUDA_OF_A_CAPTURE : 0;
    for (int i = 0; i < order->count && !code; i++) { /* all of them: the receiver may write to memory that they read */
        code = stay.api->record_event(order->queues[i]->event, order->queues[i]->stream);
        if (!code) code = stay.api->wait_event(stream, order->queues[i]->event);
    }
    tc_cuda_unlock(index);
    return code ? tc_cuda_failed(stay.api, index, "handing memory over", code, err) : TC_OK;
}

void tc_cuda_take_back(const tc_tensor *tensor, void *stream)
{
    const int index = tc_tensor_device(tensor).index;
    TC_CUDA_STAY(stay);
    tc_error ignored;
    if (stream == TC_CUDA_LEGACY_STREAM) return; /* CUDA itself orders it and a thread's own stream, a blocking one */
    if (tc_cuda_enter(&stay, index, &ignored) != TC_OK) return;
    tc_cuda_wait_or_keep(stay.api, index, tensor->storage->data); /* that stream may have been destroyed */
}
