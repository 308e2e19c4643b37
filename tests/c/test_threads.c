/* test_threads.c: the pool. Every item once, whoever calls and however many threads; forks; refusals. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/threads.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "check.h"
#include "core/allocator.h"

#define LARGE_COST 1e7 /* of one item: enough for any number of threads */

static void set_threads(int count)
{
    tc_error err;
    CHECK_EQUAL(tc_set_num_threads(count, &err), TC_OK);
    CHECK_EQUAL(tc_get_num_threads(), count);
}

static void sleep_microseconds(long us) { nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL); }

/* ---- a kernel that notes what it was given ----------------------------------------------------------------------------- */

enum { MOST_ITEMS = 5003, SCRATCH = 200 };

typedef struct job {
    int64_t items;
    bool has_scratch;
    long item_microseconds;
    bool needs_help;          /* the caller does not end its first range before another thread has begun one */
    int *times;               /* how often each item was done; plain, so that the thread sanitizer sees two at one item */
    atomic_int ranges, wrong; /* ranges that were empty, outside, or with a scratch that is shared or misaligned */
    atomic_int by_others;     /* ranges on another thread than the caller's */
    pthread_t caller;
} job;

/* However long a busy machine takes to give that thread a core, within ten seconds. */
static void wait_for_help(job *j)
{
    for (int i = 0; i < 10000 && atomic_load(&j->by_others) == 0; i++) sleep_microseconds(1000);
}

static void note(const void *args, int64_t begin, int64_t end, void *scratch)
{
    job *j = *(job *const *)args;
    atomic_fetch_add(&j->ranges, 1);
    if (begin >= end || begin < 0 || end > j->items) atomic_fetch_add(&j->wrong, 1);
    if (!pthread_equal(pthread_self(), j->caller))
        atomic_fetch_add(&j->by_others, 1);
    else if (j->needs_help)
        wait_for_help(j);
    if (j->has_scratch ? (uintptr_t)scratch % TC_ALIGNMENT != 0 || !scratch : scratch != NULL) atomic_fetch_add(&j->wrong, 1);
    if (j->has_scratch) memset(scratch, (int)(begin % 251), SCRATCH);
    for (int64_t i = begin; i < end; i++) {
        if (j->item_microseconds) sleep_microseconds(j->item_microseconds);
        j->times[i]++;
    }
    for (int i = 0; j->has_scratch && i < SCRATCH; i++) {
        if (((unsigned char *)scratch)[i] != begin % 251) atomic_fetch_add(&j->wrong, 1);
    }
}

static tc_status start(job *j, double cost, tc_error *err)
{
    j->caller = pthread_self();
    memset(j->times, 0, (size_t)j->items * sizeof *j->times);
    atomic_store(&j->ranges, 0);
    atomic_store(&j->by_others, 0);
    return tc_parallel_for(note, &j, j->items, cost, j->has_scratch ? SCRATCH : 0, err);
}

static void check_once_each(job *j, double cost)
{
    tc_error err;
    CHECK_EQUAL(start(j, cost, &err), TC_OK);
    int64_t wrong = 0;
    for (int64_t i = 0; i < j->items; i++) wrong += j->times[i] != 1;
    CHECK_EQUAL(wrong, 0);
    CHECK_EQUAL(atomic_load(&j->wrong), 0);
}

/* ---- one caller ---------------------------------------------------------------------------------------------------------- */

static void every_item_once(void)
{
    static int times[MOST_ITEMS];
    static const int64_t items[] = {1, 2, 3, 7, 16, 17, 64, 1000, MOST_ITEMS};
    static const int counts[] = {1, 2, 3, 16};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        set_threads(counts[c]);
        for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
            for (int repeat = 0; repeat < 20; repeat++) {
                job j = {.items = items[i], .times = times, .has_scratch = repeat % 2};
                check_once_each(&j, LARGE_COST);
                check_once_each(&j, 2 * 32768.0 / (double)items[i]); /* just worth two participants */
            }
        }
    }
}

static void others_help(void)
{
    int times[64];
    for (int count = 1; count <= 3; count++) {
        set_threads(count);
        job j = {.items = 64, .times = times, .needs_help = count > 1};
        check_once_each(&j, LARGE_COST);
        if (count == 1)
            CHECK_EQUAL(atomic_load(&j.by_others), 0);
        else
            CHECK(atomic_load(&j.by_others) > 0);
        if (count == 1) CHECK_EQUAL(atomic_load(&j.ranges), 1);
    }
}

static void small_work_stays(void)
{
    int times[100];
    set_threads(3);
    job j = {.items = 100, .times = times, .item_microseconds = 10};
    static const double costs[] = {0, 1, 100, -1, __builtin_nan("")};
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        check_once_each(&j, costs[i]);
        CHECK_EQUAL(atomic_load(&j.ranges), 1);
        CHECK_EQUAL(atomic_load(&j.by_others), 0);
    }
    tc_error err;
    for (j.items = -5; j.items <= 0; j.items += 5) {
        job *argument = &j;
        atomic_store(&j.ranges, 0);
        CHECK_EQUAL(tc_parallel_for(note, &argument, j.items, LARGE_COST, 0, &err), TC_OK);
        CHECK_EQUAL(atomic_load(&j.ranges), 0);
    }
}

/* Jobs after pauses of any length find the workers spinning, on their way to sleep, or asleep. */
static void jobs_after_pauses(void)
{
    int times[32];
    set_threads(3);
    job j = {.items = 32, .times = times};
    for (int i = 0; i < 400; i++) {
        check_once_each(&j, i % 2 ? LARGE_COST : 3000);
        if (i % 4) sleep_microseconds(i * 37 % 400);
    }
}

/* ---- nested and concurrent callers ------------------------------------------------------------------------------------------ */

static void nest(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    atomic_int *done = *(atomic_int *const *)args;
    for (int64_t i = begin; i < end; i++) {
        int times[50];
        job inner = {.items = 50, .times = times, .has_scratch = i % 2};
        check_once_each(&inner, LARGE_COST);
        CHECK_EQUAL(atomic_load(&inner.ranges), 1);
        CHECK_EQUAL(atomic_load(&inner.by_others), 0);
        atomic_fetch_add(done, 1);
    }
}

static void nested_calls(void)
{
    tc_error err;
    for (int count = 1; count <= 3; count++) {
        set_threads(count);
        atomic_int done = 0;
        atomic_int *argument = &done;
        CHECK_EQUAL(tc_parallel_for(nest, &argument, 40, LARGE_COST, 0, &err), TC_OK);
        CHECK_EQUAL(tc_parallel_for(nest, &argument, 3, 1, 0, &err), TC_OK); /* too small for the pool */
        CHECK_EQUAL(atomic_load(&done), 43);
    }
    int times[64];
    set_threads(2);
    job j = {.items = 64, .times = times, .needs_help = true};
    check_once_each(&j, LARGE_COST);
    CHECK(atomic_load(&j.by_others) > 0); /* the caller is not taken for a nested one for ever */
}

static atomic_bool stop_calling;
static bool callers_have_scratch; /* written while there are none */

static void *call_until_stopped(void *unused)
{
    int times[301];
    (void)unused;
    job j = {.items = 301, .times = times};
    do {
        j.has_scratch = callers_have_scratch && !j.has_scratch;
        check_once_each(&j, LARGE_COST);
    } while (!atomic_load(&stop_calling));
    return NULL;
}

enum { CALLERS = 3 };

static void start_callers(pthread_t callers[CALLERS])
{
    atomic_store(&stop_calling, false);
    for (int i = 0; i < CALLERS; i++) CHECK_EQUAL(pthread_create(&callers[i], NULL, call_until_stopped, NULL), 0);
}

static void stop_callers(pthread_t callers[CALLERS])
{
    atomic_store(&stop_calling, true);
    for (int i = 0; i < CALLERS; i++) CHECK_EQUAL(pthread_join(callers[i], NULL), 0);
}

static void *resize_until_stopped(void *seed)
{
    tc_error err;
    for (unsigned i = *(unsigned *)seed; !atomic_load(&stop_calling); i++)
        CHECK_EQUAL(tc_set_num_threads(1 + (int)(i * i % 5), &err), TC_OK);
    return NULL;
}

static void concurrent_callers_and_resizes(void)
{
    pthread_t callers[CALLERS], resizers[2];
    unsigned seeds[2] = {0, 3};
    set_threads(3);
    callers_have_scratch = true;
    start_callers(callers);
    sleep_microseconds(50000);
    for (int i = 0; i < 2; i++) CHECK_EQUAL(pthread_create(&resizers[i], NULL, resize_until_stopped, &seeds[i]), 0);
    sleep_microseconds(150000);
    stop_callers(callers);
    for (int i = 0; i < 2; i++) CHECK_EQUAL(pthread_join(resizers[i], NULL), 0);
}

/* ---- the workers -------------------------------------------------------------------------------------------------------------- */

static void look_at_worker(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)end;
    (void)scratch;
    job *j = *(job *const *)args;
    sleep_microseconds(2000);
    atomic_fetch_add(&j->ranges, 1);
    if (pthread_equal(pthread_self(), j->caller)) return;
    sigset_t blocked;
    char name[16];
    CHECK_EQUAL(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
    CHECK(sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGALRM));
    CHECK_EQUAL(pthread_getname_np(pthread_self(), name, sizeof name), 0);
    CHECK_TEXT(name, "tc_worker_");
    atomic_fetch_add(&j->by_others, 1);
    (void)begin;
}

static int count_workers(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file) && strncmp(name, "tc_worker_", 10) == 0) count++;
        if (file) fclose(file);
    }
    if (tasks) closedir(tasks);
    return count;
}

/* A thread that was started has its name once it has run. */
static void check_workers(int expected)
{
    for (int i = 0; i < 2000 && count_workers() != expected; i++) sleep_microseconds(1000);
    CHECK_EQUAL(count_workers(), expected);
}

static void workers_come_and_go(void)
{
    tc_error err;
    sigset_t before, after;
    set_threads(3);
    CHECK_EQUAL(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    job j = {.items = 40, .caller = pthread_self()};
    job *argument = &j;
    CHECK_EQUAL(tc_parallel_for(look_at_worker, &argument, j.items, LARGE_COST, 0, &err), TC_OK);
    CHECK(atomic_load(&j.by_others) > 0);
    CHECK_EQUAL(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    CHECK_EQUAL(sigismember(&after, SIGINT), sigismember(&before, SIGINT)); /* the caller's mask is as it was */
    check_workers(2);
    set_threads(2);
    check_workers(1);
    set_threads(1);
    check_workers(0);
}

#if !THREAD_SANITIZED
/* ---- forks ---------------------------------------------------------------------------------------------------------------------- */

static void use_pool(void)
{
    int times[64];
    job j = {.items = 64, .times = times, .has_scratch = true};
    for (int count = 3; count >= 1; count--) {
        set_threads(count);
        j.needs_help = count > 1;
        check_once_each(&j, LARGE_COST);
        CHECK_EQUAL(atomic_load(&j.by_others) > 0, count > 1);
    }
}

static void fork_again(void)
{
    use_pool();
    set_threads(3);
    job j = {.items = 8, .times = (int[8]){0}};
    check_once_each(&j, LARGE_COST);
    CHECK_IN_CHILD(use_pool);
}

static void forks(void)
{
    set_threads(3);
    int times[64];
    job j = {.items = 64, .times = times};
    check_once_each(&j, LARGE_COST);
    CHECK_IN_CHILD(use_pool);
    CHECK_IN_CHILD(fork_again);
    check_once_each(&j, LARGE_COST); /* the parent's pool still works */

    pthread_t callers[CALLERS];                /* forked while other threads are inside a job, at any point of it */
    callers_have_scratch = !ADDRESS_SANITIZED; /* its own allocator may leave a lock taken in the child */
    start_callers(callers);
    for (int i = 0; i < 8; i++) CHECK_IN_CHILD(use_pool);
    stop_callers(callers);
    check_once_each(&j, LARGE_COST);
}

#endif

/* ---- refusals ---------------------------------------------------------------------------------------------------------------------- */

static void no_memory_for_scratch(void)
{
    tc_error err;
    int times[64];
    for (int count = 1; count <= 3; count++) {
        set_threads(count);
        job j = {.items = 64, .times = times, .has_scratch = true};
        tc_allocator_fail_after(1);
        CHECK_EQUAL(start(&j, LARGE_COST, &err), TC_ERROR_MEMORY);
        CHECK_EQUAL(atomic_load(&j.ranges), 0);
        CHECK_EQUAL(err.status, TC_ERROR_MEMORY);
        CHECK_TEXT(err.message, "out of memory");
        check_once_each(&j, LARGE_COST); /* and the pool is free again */

        static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 200, SIZE_MAX / 2, SIZE_MAX / 3 + 1};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            job *argument = &j;
            atomic_store(&j.ranges, 0);
            CHECK_EQUAL(tc_parallel_for(note, &argument, 64, LARGE_COST, sizes[i], &err), TC_ERROR_MEMORY);
            CHECK_EQUAL(atomic_load(&j.ranges), 0);
        }
    }
}

static void wrong_counts(void)
{
    tc_error err;
    set_threads(2);
    static const int counts[] = {0, -1, TC_MAX_THREADS + 1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", counts[i]);
        CHECK_EQUAL(tc_set_num_threads(counts[i], &err), TC_ERROR_VALUE);
        CHECK_TEXT(err.message, text);
        CHECK_TEXT(err.message, "from 1 to 1024");
        CHECK_EQUAL(tc_get_num_threads(), 2);
    }
}

#if !(THREAD_SANITIZED || ADDRESS_SANITIZED)
/* (The sanitizers need the address space themselves.)
 * With no room for the stacks of 16 workers the work is done by those there are, and the count says so. */
static void too_many_for_the_system(void)
{
    int times[64];
    job j = {.items = 64, .times = times};
    set_threads(16);
    limit_address_space((size_t)20 << 20);
    check_once_each(&j, LARGE_COST);
    CHECK(tc_get_num_threads() < 16);
    check_workers(tc_get_num_threads() - 1);
}
#endif

/* ---- the environment: before anything else has used the pool ------------------------------------------------------------------- */

static const char *environment_text;
static int environment_count; /* 0: an error */

static void check_environment(void)
{
    tc_error err;
    int times[8];
    job j = {.items = 8, .times = times};
    CHECK_EQUAL(tc_get_num_threads(), 1);
    if (environment_text)
        setenv("TRANSFORMER_C_NUM_THREADS", environment_text, 1);
    else
        unsetenv("TRANSFORMER_C_NUM_THREADS");
    if (environment_count) {
        if (environment_count <= 16)
            check_once_each(&j, LARGE_COST); /* looks at the environment by itself */
        else
            CHECK_EQUAL(tc_threads_initialize(&err), TC_OK);
        CHECK_EQUAL(tc_get_num_threads(), environment_count);
        CHECK_EQUAL(tc_threads_initialize(&err), TC_OK);
        CHECK_EQUAL(tc_get_num_threads(), environment_count);
        set_threads(3);
        CHECK_EQUAL(tc_threads_initialize(&err), TC_OK); /* a count that was set stays */
        CHECK_EQUAL(tc_get_num_threads(), 3);
        return;
    }
    CHECK_EQUAL(tc_threads_initialize(&err), TC_ERROR_VALUE);
    CHECK_TEXT(err.message, "TRANSFORMER_C_NUM_THREADS");
    CHECK_TEXT(err.message, environment_text);
    CHECK_TEXT(err.message, "from 1 to 1024");
    CHECK_EQUAL(start(&j, LARGE_COST, &err), TC_ERROR_VALUE);
    CHECK_EQUAL(atomic_load(&j.ranges), 0);
    set_threads(2);
    check_once_each(&j, LARGE_COST);
}

#ifdef __linux__
static void default_is_affinity(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_EQUAL(sched_setaffinity(0, sizeof one, &one), 0);
    environment_text = NULL;
    environment_count = 1;
    check_environment();
}
#endif

static void environments(void)
{
    static const struct {
        const char *text;
        int count;
    } cases[] = {{"1", 1},   {"5", 5},  {"1024", 1024}, {"0", 0},   {"-2", 0}, {"1025", 0},
                 {"two", 0}, {"2x", 0}, {"2.5", 0},     {"1e2", 0}, {" ", 0},  {"99999999999999999999", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        environment_text = cases[i].text;
        environment_count = cases[i].count;
        CHECK_IN_CHILD(check_environment);
    }
#ifdef __linux__
    CHECK_IN_CHILD(default_is_affinity);
#endif
}

/* ---- interrupts ------------------------------------------------------------------------------------------------------- */

static atomic_int looks, looks_until_stop; /* 0: never */
static pthread_t looker;

static bool look(void)
{
    int nested_times[50];
    job nested = {.items = 50, .times = nested_times};
    looker = pthread_self();
    check_once_each(&nested, LARGE_COST); /* a handler may compute */
    return atomic_fetch_add(&looks, 1) + 1 == atomic_load(&looks_until_stop);
}

static tc_status start_interruptible(job *j, int until_stop, tc_error *err)
{
    j->caller = pthread_self();
    memset(j->times, 0, (size_t)j->items * sizeof *j->times);
    atomic_store(&j->wrong, 0);
    atomic_store(&looks, 0);
    atomic_store(&looks_until_stop, until_stop);
    return tc_parallel_for_interruptible(note, &j, j->items, 1e8, SCRATCH, err);
}

/* The check is asked by the caller, between ranges; after a stop no item is done twice, some are not done, and the pool works on. */
static void interrupts(void)
{
    static int times[MOST_ITEMS];
    tc_error err;
    job j = {.items = 300, .has_scratch = true, .times = times};
    tc_set_interrupt_check(look);
    for (int count = 1; count <= 4; count++) {
        set_threads(count);
        int64_t done = 0, twice = 0;
        j.item_microseconds = 8000; /* 600 ms or more, if nothing stopped it after some 100 */
        CHECK_EQUAL(start_interruptible(&j, 2, &err), TC_ERROR_CALLBACK);
        CHECK_TEXT(err.message, "interrupted");
        for (int64_t i = 0; i < j.items; i++) done += times[i] == 1, twice += times[i] > 1;
        CHECK_EQUAL(twice, 0);
        CHECK(done > 0 && done < j.items);
        CHECK_EQUAL(atomic_load(&looks), 2);
        CHECK(pthread_equal(looker, pthread_self()));
        j.item_microseconds = 1000;
        CHECK_EQUAL(start_interruptible(&j, 0, &err), TC_OK);
        done = 0;
        for (int64_t i = 0; i < j.items; i++) done += times[i] == 1;
        CHECK_EQUAL(done, j.items);
        CHECK_EQUAL(atomic_load(&j.wrong), 0);
        check_once_each(&j, LARGE_COST); /* not interruptible: nobody is asked */
    }
    const int asked = atomic_load(&looks);
    check_once_each(&j, LARGE_COST);
    CHECK_EQUAL(atomic_load(&looks), asked);
    tc_set_interrupt_check(NULL);
    CHECK_EQUAL(start_interruptible(&j, 1, &err), TC_OK);
}

int main(void)
{
    environments();
    wrong_counts();
    every_item_once();
    others_help();
    small_work_stays();
    jobs_after_pauses();
    nested_calls();
    concurrent_callers_and_resizes();
    workers_come_and_go();
    interrupts();
#if !THREAD_SANITIZED /* it allows no new threads in the child of a process that had some */
    forks();
#endif
    no_memory_for_scratch();
#if !(THREAD_SANITIZED || ADDRESS_SANITIZED)
    CHECK_IN_CHILD(too_many_for_the_system);
#endif
    return check_finish();
}
