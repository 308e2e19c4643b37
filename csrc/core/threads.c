/* threads.c: the persistent pool.
 *
 * A job has a number of participants: the calling thread, which is participant 0, and workers 1, 2, ... The items are
 * divided into one contiguous part per participant, so that the same rows tend to stay in the same core's cache from op
 * to op. A participant takes its part in a few chunks, and when it is done, takes chunks of the others' parts. So nobody
 * waits for a worker that has not begun: one that sleeps, or whose core is busy with another process, costs the caller
 * only its help.
 *
 * `gate` is the one word through which workers join a job:
 *
 *     bits 0..10   workers that have joined
 *     bits 11..21  participants of the job; 0 while the gate is shut
 *     bits 22..63  number of the job
 *
 * The owner of the pool writes the job, then opens the gate. Worker w joins by adding one to the word, if w is a
 * participant. When no chunk is left the owner shuts the gate, which tells it how many have joined, and waits until as
 * many have finished. Only then may the job be overwritten.
 *
 * Workers wait for a job by polling the gate for a short while, then on a condition variable of their own.
 * Wake-ups go down a binary tree (participant p wakes 2p+1 and 2p+2), so that the caller wakes at most two. A sleeper
 * announces itself and then looks at the gate once more, the waker opens the gate and then looks for sleepers, all
 * sequentially consistent: at least one of the two sees the other. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_setname_np */
#endif
#include "threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "allocator.h"
#include "cpu_count.h"
#include "lock.h"
#include "status.h"

/* Elementary operations that are worth another participant: about 5 us of vector arithmetic, twice the cost of handing over a job. */
#define COST_PER_PARTICIPANT 32768.0
/* Chunks per participant when its part is large: a core that is lost to another process for the whole job then delays the others by at most
 * an eighth of a part. */
#define CHUNKS_PER_PART 8
/* Waking a sleeper costs a few microseconds, on virtual machines more than ten, and comes too late for a small job. So sleepers are woken
 * for a large job, or once the small ones have added up to this many participants' worth. */
#define WORTH_WAKING 16.0
/* How long a thread polls before it sleeps. It first pauses the processor, then yields at every poll, so that any other thread that can run
 * gets the core. Together they cover the time that a host language needs between two ops: without polling most jobs of a training step
 * would begin with a wake-up. */
#define PAUSE_NANOSECONDS 50000
#define SPIN_NANOSECONDS 200000
#define PAUSES_PER_LOOK_AT_CLOCK 16
/* The operating system sometimes leaves a worker waiting for seconds on the core that the caller keeps busy, with other cores idle: after
 * this many consecutive jobs that ended before the worker joined, it is moved to the other cores. */
#define MISSES_BEFORE_MOVING 4
/* Work that may be interrupted is cut into ranges of this cost, some 10 ms, when it has more than a few of them; in between the caller
 * looks whether it must stop, but not more often than this: the look waits for the host language's lock. */
#define INTERRUPTIBLE_COST 67108864.0
#define LOOK_NANOSECONDS 50000000
/* Scratch areas are at least this far apart: the processor fetches cache lines in pairs. */
#define SCRATCH_ALIGNMENT 128

#define GATE_JOINED_BITS 11
#define GATE_JOB_SHIFT 22
#define GATE_FIELD ((UINT64_C(1) << GATE_JOINED_BITS) - 1)

typedef struct participant {
    /* Its part of the items: [next, end) is not taken yet. */
    _Alignas(SCRATCH_ALIGNMENT) _Atomic int64_t next;
    int64_t end;
    /* For workers only. */
    _Alignas(SCRATCH_ALIGNMENT) atomic_bool asleep;
    atomic_bool called; /* asleep, and told to wake up */
    atomic_bool stop;
    _Atomic uint64_t joined_job;
    int misses; /* for the owner: consecutive jobs that it could have joined and did not */
    int avoids; /* for the owner: the CPU that it may not run on; -1: none */
    pthread_t thread;
    pthread_mutex_t mutex; /* with `wake`: for `asleep` */
    pthread_cond_t wake;
} participant;

static participant participants[TC_MAX_THREADS];

static atomic_int thread_count; /* the number set by tc_set_num_threads(); 0 before one is set */

static struct {
    atomic_bool owned; /* by the thread whose job is running, or which changes the workers; all other members belong to the owner */
    int workers;       /* participants[1 .. workers] have a thread */
    atomic_bool spin;  /* false when there are more threads than CPUs */

    double worth_asleep; /* work, in participants, since sleepers were last woken */

    /* The job: written before the gate opens, read by those who joined. */
    tc_range_kernel kernel;
    const void *args;
    int64_t chunk; /* items taken at a time */
    int count;     /* participants */
    bool wakes;    /* whether it wakes sleeping workers */
    char *scratch; /* participant p's at scratch + p * scratch_stride */
    size_t scratch_stride;
    bool watched; /* whether the owner looks, between ranges, whether it must stop */
    int64_t looked;
    bool stopped;

    _Alignas(SCRATCH_ALIGNMENT) _Atomic uint64_t gate;
    _Alignas(SCRATCH_ALIGNMENT) atomic_int finished; /* workers that are done with the job */
    atomic_bool owner_asleep;
    pthread_mutex_t mutex; /* with `done`: for `owner_asleep` */
    pthread_cond_t done;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

/* True while this thread runs a kernel: a call from there is a nested one. */
static _Thread_local bool inside_kernel;

/* The job of the pool that this thread has begun: none, one that goes on, or one whose workers a fork has taken away. */
static _Thread_local enum { NO_JOB, OWN_JOB, LOST_JOB } own_job;

/* ---- waiting ------------------------------------------------------------------------------------------------------- */

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

typedef struct spinner {
    int64_t start; /* nanoseconds; 0: do not spin */
    int64_t waited;
    int pauses;
} spinner;

static spinner spinner_start(void) { return (spinner){.start = atomic_load(&pool.spin) ? nanoseconds() : 0}; }

/* Waits a moment; false when the time for spinning is over. */
static bool spinner_again(spinner *s)
{
    if (s->start == 0) return false;
    if (s->waited < PAUSE_NANOSECONDS) {
        pause_briefly();
        if (++s->pauses % PAUSES_PER_LOOK_AT_CLOCK != 0) return true;
    } else {
        sched_yield();
    }
    s->waited = nanoseconds() - s->start;
    return s->waited < SPIN_NANOSECONDS;
}

static void wake_if_asleep(participant *worker)
{
    if (!atomic_load(&worker->asleep)) return;
    pthread_mutex_lock(&worker->mutex);
    atomic_store(&worker->called, true);
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->mutex);
}

/* ---- stopping ---------------------------------------------------------------------------------------------------------- */

static bool (*_Atomic interrupt_check)(void);

void tc_set_interrupt_check(bool (*check)(void)) { atomic_store(&interrupt_check, check); }

/* Asks, if it is time to: *looked is when it was last asked. The check may run ops: they are no nested calls of this one. */
static bool must_stop(int64_t *looked)
{
    const int64_t now = nanoseconds();
    if (now - *looked < LOOK_NANOSECONDS) return false;
    bool (*check)(void) = atomic_load(&interrupt_check);
#ifdef TC_ASSERTIONS
    TC_ASSERT(tc_ranks_held == 0); /* the check may wait for another thread, and run a backward */
#endif
    inside_kernel = false;
    const bool stop = check && check();
    inside_kernel = true;
    *looked = nanoseconds();
    return stop;
}

/* Items of a range after which to look; 0: the work is too short to look. */
static int64_t items_until_look(int64_t items, double cost)
{
    if (!((double)items * cost > 4 * INTERRUPTIBLE_COST) || !atomic_load(&interrupt_check)) return 0;
    return cost < INTERRUPTIBLE_COST ? (int64_t)(INTERRUPTIBLE_COST / (cost > 1 ? cost : 1)) : 1;
}

static tc_status interrupted(tc_error *err) { return tc_fail(err, TC_ERROR_CALLBACK, "interrupted"); }

/* ---- a participant's work --------------------------------------------------------------------------------------------- */

/* Nobody takes another range of the job. */
static void stop_job(void)
{
    pool.stopped = true;
    pool.watched = false;
    for (int i = 0; i < pool.count; i++) atomic_store_explicit(&participants[i].next, participants[i].end, memory_order_relaxed);
}

static void take_part(int self)
{
    for (int child = 2 * self + 1; pool.wakes && child <= 2 * self + 2 && child < pool.count; child++) wake_if_asleep(&participants[child]);
    void *scratch = pool.scratch ? pool.scratch + (size_t)self * pool.scratch_stride : NULL;
    inside_kernel = true;
    for (int i = 0; i < pool.count; i++) {
        participant *part = &participants[(self + i) % pool.count];
        /* Read before it is added to: most parts of others are used up by then. */
        while (atomic_load_explicit(&part->next, memory_order_relaxed) < part->end) {
            const int64_t begin = atomic_fetch_add_explicit(&part->next, pool.chunk, memory_order_relaxed);
            if (begin >= part->end) break;
            pool.kernel(pool.args, begin, part->end - begin < pool.chunk ? part->end : begin + pool.chunk, scratch);
            if (self == 0 && pool.watched && must_stop(&pool.looked)) stop_job();
        }
    }
    inside_kernel = false;
}

static int gate_participants(uint64_t gate) { return (int)(gate >> GATE_JOINED_BITS & GATE_FIELD); }

/* Whether the gate is open to worker `self`, for a job it has not been in. */
static bool gate_is_open(uint64_t gate, int self, uint64_t last_job)
{
    return self < gate_participants(gate) && gate >> GATE_JOB_SHIFT != last_job;
}

/* Sleeps until the gate opens or the worker has to stop. */
static void worker_sleep(participant *me, int self, uint64_t last_job)
{
    pthread_mutex_lock(&me->mutex);
    atomic_store(&me->asleep, true);
    while (!gate_is_open(atomic_load(&pool.gate), self, last_job) && !atomic_load(&me->stop)) pthread_cond_wait(&me->wake, &me->mutex);
    atomic_store(&me->asleep, false);
    atomic_store(&me->called, false);
    pthread_mutex_unlock(&me->mutex);
}

static void finish_job(void)
{
    atomic_fetch_add(&pool.finished, 1);
    if (!atomic_load(&pool.owner_asleep)) return;
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.mutex);
}

static void *worker_main(void *argument)
{
    participant *me = argument;
    const int self = (int)(me - participants);
    char name[24];
    snprintf(name, sizeof name, "tc_worker_%d", self);
#ifdef __APPLE__
    pthread_setname_np(name);
#else
    pthread_setname_np(pthread_self(), name);
#endif
    uint64_t last_job = 0; /* jobs count from 1 */
    while (!atomic_load(&me->stop)) {
        spinner wait = spinner_start();
        uint64_t gate = atomic_load(&pool.gate);
        while (!gate_is_open(gate, self, last_job) && spinner_again(&wait)) gate = atomic_load(&pool.gate);
        if (!gate_is_open(gate, self, last_job)) {
            worker_sleep(me, self, last_job);
            gate = atomic_load(&pool.gate);
        }
        while (gate_is_open(gate, self, last_job)) {
            if (!atomic_compare_exchange_weak(&pool.gate, &gate, gate + 1)) continue;
            last_job = gate >> GATE_JOB_SHIFT;
            atomic_store_explicit(&me->joined_job, last_job, memory_order_relaxed);
            take_part(self);
            finish_job();
        }
    }
    return NULL;
}

/* ---- starting and stopping workers; all by the owner ------------------------------------------------------------------ */

static bool start_worker(int index)
{
    participant *worker = &participants[index];
    atomic_store(&worker->asleep, false);
    atomic_store(&worker->called, false);
    atomic_store(&worker->stop, false);
    atomic_store(&worker->joined_job, 0);
    worker->misses = 0;
    worker->avoids = -1;
    if (pthread_mutex_init(&worker->mutex, NULL) != 0) return false;
    if (pthread_cond_init(&worker->wake, NULL) != 0) {
        pthread_mutex_destroy(&worker->mutex);
        return false;
    }
    /* A worker inherits a mask that blocks every signal, so that Ctrl-C interrupts the host's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&worker->thread, NULL, worker_main, worker) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!started) {
        pthread_cond_destroy(&worker->wake);
        pthread_mutex_destroy(&worker->mutex);
    }
    return started;
}

static void stop_worker(int index)
{
    participant *worker = &participants[index];
    atomic_store(&worker->stop, true);
    wake_if_asleep(worker);
    pthread_join(worker->thread, NULL);
    pthread_cond_destroy(&worker->wake);
    pthread_mutex_destroy(&worker->mutex);
}

/* Makes the pool one of `count` threads, the caller among them; returns how many there are. */
static int resize_pool(int count)
{
    if (pool.workers == count - 1) return count;
    while (pool.workers > count - 1) stop_worker(pool.workers--);
    atomic_store(&pool.spin, count <= tc_cpu_count());
    while (pool.workers < count - 1 && start_worker(pool.workers + 1)) pool.workers++;
    return pool.workers + 1;
}

/* ---- a fork ------------------------------------------------------------------------------------------------------------ */

/* The child has the thread that forked and none of the workers; a job that another thread was running is not its own. The pool starts empty
 * with new locks (the old ones may be held by threads that do not exist here). A thread that forks in the middle of its own job (a handler
 * of a signal did, see must_stop) has lost what its workers had begun; it keeps the pool until that call has failed. */
static void reset_in_child(void)
{
    pool.workers = 0;
    atomic_store(&pool.gate, 0);
    atomic_store(&pool.finished, 0);
    atomic_store(&pool.owner_asleep, false);
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.done, NULL);
    if (own_job == OWN_JOB) own_job = LOST_JOB;
    atomic_store(&pool.owned, own_job == LOST_JOB);
}

TC_IN_FORKED_CHILD(reset_in_child)

/* ---- who has the pool ---------------------------------------------------------------------------------------------- */

static bool own_pool(void) { return !atomic_exchange(&pool.owned, true); }

static void disown_pool(void) { atomic_store(&pool.owned, false); }

/* ---- the number of threads ----------------------------------------------------------------------------------------------- */

static tc_status check_count(int64_t count, const char *what, const char *text, tc_error *err)
{
    if (count >= 1 && count <= TC_MAX_THREADS) return TC_OK;
    return tc_fail(err, TC_ERROR_VALUE, "%s is %s; it must be a whole number from 1 to %d", what, text, TC_MAX_THREADS);
}

tc_status tc_threads_initialize(tc_error *err)
{
    int64_t count = 0;
    const char *text = getenv("TRANSFORMER_C_NUM_THREADS");
    if (text && text[0]) {
        char *end;
        errno = 0;
        count = strtoll(text, &end, 10);
        if (*end || errno) count = 0;
        char quoted[64];
        snprintf(quoted, sizeof quoted, "'%s'", text);
        const tc_status status = check_count(count, "TRANSFORMER_C_NUM_THREADS", quoted, err);
        if (status != TC_OK) return status;
    } else {
        count = tc_cpu_count();
        if (count > TC_MAX_THREADS) count = TC_MAX_THREADS;
    }
    int unset = 0;
    atomic_compare_exchange_strong(&thread_count, &unset, (int)count);
    return TC_OK;
}

int tc_get_num_threads(void)
{
    const int count = atomic_load(&thread_count);
    return count ? count : 1;
}

tc_status tc_set_num_threads(int count, tc_error *err)
{
    char text[16];
    snprintf(text, sizeof text, "%d", count);
    const tc_status status = check_count(count, "the number of threads", text, err);
    if (status != TC_OK) return status;
    atomic_store(&thread_count, count);
    /* Surplus workers end now, or with the next job when the pool is busy. */
    if (own_pool()) {
        if (pool.workers >= count) resize_pool(count);
        disown_pool();
    }
    return TC_OK;
}

/* ---- the call -------------------------------------------------------------------------------------------------------------- */

/* All of it on the calling thread; `until_look` as items_until_look() says. */
static tc_status run_alone(tc_range_kernel kernel, const void *args, int64_t items, size_t scratch_bytes, int64_t until_look, tc_error *err)
{
    void *scratch = NULL;
    bool stopped = false;
    if (scratch_bytes) {
        scratch = tc_allocate(scratch_bytes);
        if (!scratch) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: a kernel needs %zu bytes of scratch", scratch_bytes);
    }
    const bool nested = inside_kernel;
    inside_kernel = true;
    if (until_look) {
        int64_t looked = nanoseconds();
        for (int64_t begin = 0, end; begin < items && !stopped; begin = end) {
            end = items - begin > until_look ? begin + until_look : items;
            kernel(args, begin, end, scratch);
            stopped = end < items && must_stop(&looked);
        }
    } else {
        kernel(args, 0, items, scratch);
    }
    inside_kernel = nested;
    if (scratch) tc_free(scratch, scratch_bytes);
    return stopped ? interrupted(err) : TC_OK;
}

/* Cuts [0, items) into one part per participant, and parts into chunks. */
static void cut_items(int64_t items, int count, double worth)
{
    const int64_t length = items / count, longer = items % count; /* the first `longer` parts have one item more */
    int64_t begin = 0;
    for (int i = 0; i < count; i++) {
        atomic_store_explicit(&participants[i].next, begin, memory_order_relaxed);
        begin += length + (i < longer);
        participants[i].end = begin;
    }
    const double worth_each = worth / count; /* at least 1 */
    const int64_t chunks = worth_each < CHUNKS_PER_PART ? (int64_t)worth_each : CHUNKS_PER_PART;
    pool.chunk = (length + (longer > 0) + chunks - 1) / chunks;
}

/* Spins, then sleeps, until `joined` workers have finished. */
static void wait_for_workers(int joined)
{
    spinner wait = spinner_start();
    while (atomic_load(&pool.finished) != joined) {
        if (spinner_again(&wait)) continue;
        pthread_mutex_lock(&pool.mutex);
        atomic_store(&pool.owner_asleep, true);
        while (atomic_load(&pool.finished) != joined) pthread_cond_wait(&pool.done, &pool.mutex);
        atomic_store(&pool.owner_asleep, false);
        pthread_mutex_unlock(&pool.mutex);
    }
}

/* Lets a worker run on all of the caller's CPUs except the one that the caller is on. */
static void move_away(participant *worker)
{
#ifdef __linux__
    cpu_set_t allowed; /* for 1,024 CPUs; with more the call fails, and the worker is not moved */
    const int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || here == worker->avoids) return;
    if (pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
    CPU_CLR(here, &allowed);
    if (pthread_setaffinity_np(worker->thread, sizeof allowed, &allowed) == 0) worker->avoids = here;
#else
    (void)worker;
#endif
}

/* After a job: counts the workers that could have joined it and did not. */
static void count_misses(uint64_t job)
{
    for (int i = 1; i < pool.count; i++) {
        participant *worker = &participants[i];
        const bool left_asleep = atomic_load(&worker->asleep) && !atomic_load(&worker->called);
        if (left_asleep) continue;
        if (atomic_load_explicit(&worker->joined_job, memory_order_relaxed) == job) {
            worker->misses = 0;
        } else if (++worker->misses >= MISSES_BEFORE_MOVING) {
            worker->misses = 0;
            move_away(worker);
        }
    }
}

/* The job is written; the calling thread owns the pool. */
static void run_job(void)
{
    atomic_store_explicit(&pool.finished, 0, memory_order_relaxed);
    const uint64_t job = (atomic_load(&pool.gate) >> GATE_JOB_SHIFT) + 1;
    atomic_store(&pool.gate, job << GATE_JOB_SHIFT | (uint64_t)pool.count << GATE_JOINED_BITS);
    take_part(0);
    const uint64_t gate = atomic_exchange(&pool.gate, job << GATE_JOB_SHIFT);
    const int joined = (int)(gate & GATE_FIELD);
    wait_for_workers(joined);
    if (joined < pool.count - 1) count_misses(job);
}

/* Scratch for `count` participants in one block, `pool.scratch_stride` bytes each; returns the size of the block, 0 when memory runs
 * out. */
static size_t allocate_scratch(size_t scratch_bytes, int count)
{
    size_t stride, bytes;
    if (__builtin_add_overflow(scratch_bytes, SCRATCH_ALIGNMENT - 1, &stride)) return 0;
    stride -= stride % SCRATCH_ALIGNMENT;
    if (__builtin_mul_overflow(stride, (size_t)count, &bytes)) return 0;
    pool.scratch = tc_allocate(bytes);
    pool.scratch_stride = stride;
    return pool.scratch ? bytes : 0;
}

/* The calling thread owns the pool; the work is worth `worth` participants. */
static tc_status run_shared(tc_range_kernel kernel, const void *args, int64_t items, double worth, size_t scratch_bytes, int64_t until_look,
                            tc_error *err)
{
    int wanted = atomic_load(&thread_count);
    int count = resize_pool(wanted);
    if (count < wanted) atomic_compare_exchange_strong(&thread_count, &wanted, count);
    if (count > worth) count = (int)worth;
    if (count > items) count = (int)items;

    size_t bytes = 0;
    pool.scratch = NULL;
    if (scratch_bytes) {
        bytes = allocate_scratch(scratch_bytes, count);
        if (!bytes) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: %d threads need %zu bytes of scratch each", count, scratch_bytes);
    }
    pool.kernel = kernel;
    pool.args = args;
    pool.count = count;
    pool.worth_asleep += worth;
    pool.wakes = pool.worth_asleep >= WORTH_WAKING;
    if (pool.wakes) pool.worth_asleep = 0;
    cut_items(items, count, worth);
    pool.stopped = false;
    pool.watched = until_look > 0;
    if (pool.watched) {
        pool.looked = nanoseconds();
        if (pool.chunk > until_look) pool.chunk = until_look;
    }
    own_job = OWN_JOB;
    run_job();
    const bool lost = own_job == LOST_JOB;
    own_job = NO_JOB;
    if (bytes) tc_free(pool.scratch, bytes);
    if (pool.stopped) return interrupted(err);
    if (lost)
        return tc_fail(err, TC_ERROR_STATE,
                       "a handler of a signal forked this process in the middle of the call, whose other threads only the parent has; the "
                       "call goes on there");
    return TC_OK;
}

static tc_status parallel_for(tc_range_kernel kernel, const void *args, int64_t items, double cost, size_t scratch_bytes,
                              bool interruptible, tc_error *err)
{
    if (items <= 0) return TC_OK;
    if (atomic_load_explicit(&thread_count, memory_order_relaxed) == 0) {
        const tc_status status = tc_threads_initialize(err);
        if (status != TC_OK) return status;
    }
    const double worth = (double)items * cost / COST_PER_PARTICIPANT;
    if (!(worth >= 2)) return run_alone(kernel, args, items, scratch_bytes, 0, err);
    const int64_t until_look = interruptible && !inside_kernel ? items_until_look(items, cost) : 0;
    if (tc_get_num_threads() == 1 || items == 1 || inside_kernel || !own_pool())
        return run_alone(kernel, args, items, scratch_bytes, until_look, err);
    const tc_status status = run_shared(kernel, args, items, worth, scratch_bytes, until_look, err);
    disown_pool();
    return status;
}

tc_status tc_parallel_for(tc_range_kernel kernel, const void *args, int64_t items, double cost, size_t scratch_bytes, tc_error *err)
{
    return parallel_for(kernel, args, items, cost, scratch_bytes, false, err);
}

tc_status tc_parallel_for_interruptible(tc_range_kernel kernel, const void *args, int64_t items, double cost, size_t scratch_bytes,
                                        tc_error *err)
{
    return parallel_for(kernel, args, items, cost, scratch_bytes, true, err);
}
