/* test_allocator.c: blocks are aligned, apart and reusable; the counts are right; the cache is bounded and is given up
 * when memory runs out; huge pages; threads and forks. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/allocator.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define SLACK (256 * MIB) /* what the cache may hold above the high-water mark */

static size_t in_use(void) { return tc_allocator_statistics().in_use; }
static size_t cached(void) { return tc_allocator_statistics().cached; }
static uint64_t system_calls(void) { return tc_allocator_statistics().system_calls; }

/* xorshift64: the same sizes in every run. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Mostly small, now and then up to 2 MiB. */
static size_t random_size(uint64_t *state)
{
    const uint64_t bits = next_random(state);
    return (size_t)(bits >> 32) & (((size_t)1 << (bits % 22)) - 1);
}

typedef struct block {
    unsigned char *data;
    size_t bytes;
    unsigned char mark;
} block;

static block allocate_marked(size_t bytes, unsigned char mark)
{
    block b = {tc_allocate(bytes), bytes, mark};
    CHECK(b.data != NULL);
    CHECK_EQUAL((uintptr_t)b.data % TC_ALIGNMENT, 0);
    if (b.data) memset(b.data, mark, bytes);
    return b;
}

static void free_marked(block b)
{
    size_t wrong = 0;
    for (size_t i = 0; i < b.bytes; i += 1 + b.bytes / 64) wrong += b.data[i] != b.mark;
    if (b.bytes) wrong += b.data[b.bytes - 1] != b.mark;
    CHECK_EQUAL(wrong, 0);
    tc_free(b.data, b.bytes);
}

/* ---- blocks ---------------------------------------------------------------------------------------------------------------- */

static void blocks_hold_what_was_asked(void)
{
    const size_t before = in_use();
    for (size_t bytes = 0; bytes < 3 * MIB; bytes += 1 + bytes / 7) {
        for (size_t b = bytes ? bytes - 1 : 0; b <= bytes + 1; b++) {
            const block x = allocate_marked(b, 0x5A), y = allocate_marked(b, 0xA5);
            const size_t held = in_use() - before;
            CHECK(held >= 2 * b && held <= 2 * (b + b / 4 + TC_ALIGNMENT));
            free_marked(x);
            free_marked(y);
            CHECK_EQUAL(in_use(), before);
        }
    }
    tc_free(NULL, 100);
    CHECK_EQUAL(in_use(), before);
}

static void random_lifetimes(uint64_t seed, int steps)
{
    enum { SLOTS = 256 };
    static _Thread_local block slots[SLOTS];
    uint64_t state = seed;
    memset(slots, 0, sizeof slots);
    for (int i = 0; i < steps; i++) {
        block *slot = &slots[next_random(&state) % SLOTS];
        if (slot->data) free_marked(*slot);
        *slot = allocate_marked(random_size(&state) / 4, (unsigned char)state);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].data) free_marked(slots[i]);
    }
}

static void impossible_sizes(void)
{
    const size_t before = in_use();
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2 + 1, PTRDIFF_MAX, (size_t)PTRDIFF_MAX / 2, (size_t)1 << 60};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) CHECK(tc_allocate(sizes[i]) == NULL);
    CHECK_EQUAL(in_use(), before);
}

static void counts_the_peak(void)
{
    tc_allocator_reset_peak();
    const size_t before = in_use();
    CHECK_EQUAL(tc_allocator_statistics().peak_in_use, before);
    const block a = allocate_marked(8 * MIB, 1), b = allocate_marked(4 * MIB, 2);
    free_marked(b);
    free_marked(a);
    CHECK_EQUAL(tc_allocator_statistics().peak_in_use, before + 12 * MIB);
    CHECK_EQUAL(in_use(), before);
    tc_allocator_reset_peak();
    CHECK_EQUAL(tc_allocator_statistics().peak_in_use, before);
    block small[1000]; /* small blocks are counted by their thread: the peak may lag by 64 KiB */
    for (int i = 0; i < 1000; i++) small[i] = allocate_marked(1024, (unsigned char)i);
    for (int i = 0; i < 1000; i++) free_marked(small[i]);
    const size_t peak = tc_allocator_statistics().peak_in_use;
    CHECK(peak >= before + 1000 * 1024 - 64 * 1024 && peak <= before + 1000 * 1024);
}

static void failures_on_request(void)
{
    static const size_t sizes[] = {10, 100000, 4 * MIB};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (int nth = 1; nth <= 4; nth++) {
            const size_t before = in_use();
            tc_allocator_fail_after(nth);
            for (int i = 1; i <= 8; i++) {
                void *p = tc_allocate(sizes[s]);
                CHECK_EQUAL(p == NULL, i == nth); /* once, then no more */
                tc_free(p, sizes[s]);
            }
            CHECK_EQUAL(in_use(), before);
        }
    }
    tc_allocator_fail_after(1);
    tc_allocator_fail_after(0);
    free_marked(allocate_marked(100, 7));
}

/* ---- the cache --------------------------------------------------------------------------------------------------------------- */

#if TC_ALLOCATOR_CACHES
static void equal_steps_ask_the_system_once(void)
{
    uint64_t after_first = 0;
    for (int step = 0; step < 1000; step++) {
        uint64_t state = 42;
        block blocks[100];
        for (int i = 0; i < 100; i++) {
            const size_t bytes = random_size(&state);
            blocks[i] = (block){tc_allocate(bytes), bytes, 0};
        }
        for (int i = 0; i < 100; i++) tc_free(blocks[i * 37 % 100].data, blocks[i * 37 % 100].bytes);
        if (step == 0) after_first = system_calls();
    }
    CHECK_EQUAL(system_calls(), after_first);
}

static void the_cache_is_emptied(void)
{
    free_marked(allocate_marked(100, 1));
    free_marked(allocate_marked(3 * MIB, 2));
    CHECK(cached() >= 3 * MIB);
    tc_allocator_empty_cache();
    CHECK_EQUAL(cached(), 0);
    const uint64_t calls = system_calls();
    free_marked(allocate_marked(3 * MIB, 2));
    CHECK_EQUAL(system_calls(), calls + 1);
}

/* Ever new sizes: the cache stays within the high-water mark and the slack. A size that is requested often stays. */
static void the_cache_is_bounded(void)
{
    tc_allocator_empty_cache();
    const size_t before = in_use(), steady = 5 * MIB;
    tc_free(tc_allocate(steady), steady);
    uint64_t calls = system_calls();
    for (int octave = 20; octave < 27; octave++) {
        for (size_t quarter = 5; quarter <= 8; quarter++) { /* a class each */
            const size_t bytes = quarter << (octave - 2);
            void *p = tc_allocate(bytes);
            CHECK(p != NULL);
            tc_free(p, bytes);
            CHECK(in_use() + cached() <= before + 128 * MIB + SLACK);
            tc_free(tc_allocate(steady), steady);
        }
    }
    CHECK_EQUAL(system_calls(), calls + 27); /* 5 MiB is one of the 28 sizes: the steady one was never given back */
    CHECK(cached() > SLACK / 2);
    tc_allocator_empty_cache();
    CHECK_EQUAL(in_use(), before);
}

/* Whether Linux may give huge pages to the memory at an address: 1 or 0, or -1 where it says nothing, as of no memory. */
static int may_have_huge_pages(const void *address)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    bool inside = false;
    int advised = -1;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long first, end;
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2) inside = first <= (uintptr_t)address && (uintptr_t)address < end;
        if (inside && strncmp(line, "VmFlags:", 8) == 0) advised = strstr(line, " hg") != NULL;
    }
    if (maps) fclose(maps);
    return advised;
}

/* And they go back to the system whole. */
static void large_blocks_ask_for_huge_pages(void)
{
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0) return;
    for (size_t bytes = 2 * MIB; bytes <= 7 * MIB; bytes += MIB / 2) {
        const block x = allocate_marked(bytes, 7);
        CHECK_EQUAL((uintptr_t)x.data % (2 * MIB), 0);
        CHECK(may_have_huge_pages(x.data) != 0);
        CHECK(may_have_huge_pages(x.data + bytes - 1) != 0);
        free_marked(x);
        tc_allocator_empty_cache();
        CHECK_EQUAL(may_have_huge_pages(x.data), -1);
    }
}

/* Bytes of this process that are in memory. */
static size_t resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (!file) return 0;
    if (fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Also while it is free: its link is elsewhere. */
static void what_nobody_uses_takes_no_memory(void)
{
    enum { BLOCKS = 20 };
    void *blocks[BLOCKS];
    tc_allocator_empty_cache();
    const size_t before = resident();
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < BLOCKS; i++) blocks[i] = tc_allocate(5 * MIB / 2);
        for (int i = 0; i < BLOCKS; i++) tc_free(blocks[i], 5 * MIB / 2);
    }
    CHECK(resident() <= before + 4 * MIB);
    tc_allocator_empty_cache();
}

#if !THREAD_SANITIZED /* which needs the address space itself */
/* When the system has no more memory, the cache is freed and the allocation continues. */
static void gives_up_the_cache_when_memory_is_out(void)
{
    enum { BLOCKS = 6 };
    void *blocks[BLOCKS];
    tc_allocator_empty_cache();
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = tc_allocate(32 * MIB)) != NULL);
    for (int i = 0; i < BLOCKS; i++) tc_free(blocks[i], 32 * MIB);
    CHECK_EQUAL(cached(), BLOCKS * 32 * MIB);
    limit_address_space(16 * MIB);
    void *large = tc_allocate(150 * MIB); /* only fits where the six were */
    CHECK(large != NULL);
    CHECK_EQUAL(cached(), 0);
    CHECK(tc_allocate(150 * MIB) == NULL); /* this one fits nowhere */
    tc_free(large, 150 * MIB);
    free_marked(allocate_marked(1000, 3));
}
#endif
#endif

/* ---- threads --------------------------------------------------------------------------------------------------------------------- */

static void *live_and_end(void *seed)
{
    random_lifetimes(*(uint64_t *)seed, 1000);
    return NULL;
}

static void run_threads(int count)
{
    pthread_t threads[8];
    uint64_t seeds[8];
    for (int i = 0; i < count; i++) {
        seeds[i] = 1000 + (uint64_t)i;
        CHECK_EQUAL(pthread_create(&threads[i], NULL, live_and_end, &seeds[i]), 0);
    }
    for (int i = 0; i < count; i++) CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
}

static void threads_leave_nothing(void)
{
    const size_t before = in_use();
    run_threads(4);
    CHECK_EQUAL(in_use(), before);
}

#if TC_ALLOCATOR_CACHES
static void *free_many(void *blocks)
{
    for (int i = 0; i < 500; i++) tc_free(((void **)blocks)[i], 700);
    return NULL;
}

/* What ended threads had on their lists serves the next ones. */
static void lists_of_ended_threads_are_drained(void)
{
    void *blocks[500];
    pthread_t thread;
    uint64_t calls = 0;
    const size_t before = in_use();
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 500; k++) blocks[k] = tc_allocate(700);
        CHECK_EQUAL(pthread_create(&thread, NULL, free_many, blocks), 0);
        CHECK_EQUAL(pthread_join(thread, NULL), 0);
        CHECK_EQUAL(in_use(), before);
        if (i == 0) calls = system_calls();
    }
    CHECK_EQUAL(system_calls(), calls);
}
#endif

/* One thread allocates, another frees: the blocks come back to the first through the shared lists. */
enum { RING = 64, PASSED = 100000 };
static void *_Atomic ring[RING];

static void *free_what_comes(void *unused)
{
    (void)unused;
    for (int i = 0; i < PASSED; i++) {
        void *p;
        while (!(p = atomic_exchange(&ring[i % RING], NULL))) sched_yield();
        tc_free(p, 256);
    }
    return NULL;
}

static void blocks_pass_between_threads(void)
{
    pthread_t consumer;
    const size_t before = in_use();
    const uint64_t calls = system_calls();
    tc_allocator_reset_peak();
    CHECK_EQUAL(pthread_create(&consumer, NULL, free_what_comes, NULL), 0);
    for (int i = 0; i < PASSED; i++) {
        void *p = tc_allocate(256);
        CHECK(p != NULL);
        while (atomic_load(&ring[i % RING])) sched_yield();
        atomic_store(&ring[i % RING], p);
    }
    CHECK_EQUAL(pthread_join(consumer, NULL), 0);
    CHECK_EQUAL(in_use(), before);
    CHECK(tc_allocator_statistics().peak_in_use <= before + (RING + 2) * 256 + 2 * 64 * 1024); /* each of the two may lag */
    if (TC_ALLOCATOR_CACHES) CHECK(system_calls() - calls < 1000);
}

/* A destructor of the thread's that runs after the allocator's own finds no lists, and still may free. */
static pthread_key_t late_key;

static void free_late(void *p)
{
    static _Thread_local int round;
    if (++round < 3) {
        CHECK_EQUAL(pthread_setspecific(late_key, p), 0);
        free_marked(allocate_marked(100, 1));
    } else {
        tc_free(p, 300);
    }
}

static void *end_with_a_block(void *unused)
{
    (void)unused;
    CHECK_EQUAL(pthread_setspecific(late_key, tc_allocate(300)), 0);
    return NULL;
}

static void frees_while_a_thread_ends(void)
{
    pthread_t thread;
    const size_t before = in_use();
    CHECK_EQUAL(pthread_key_create(&late_key, free_late), 0);
    CHECK_EQUAL(pthread_create(&thread, NULL, end_with_a_block, NULL), 0);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    CHECK_EQUAL(in_use(), before);
}

/* ---- forks --------------------------------------------------------------------------------------------------------------------------- */

#if !ADDRESS_SANITIZED
static atomic_bool stop;

static void *live_until_stopped(void *seed)
{
    for (uint64_t s = *(uint64_t *)seed; !atomic_load(&stop); s++) random_lifetimes(s, 200);
    return NULL;
}
#endif

static void allocate_in_child(void)
{
    const size_t before = in_use();
    random_lifetimes(7, 1000);
    CHECK_EQUAL(in_use(), before);
#if !THREAD_SANITIZED /* it allows no new threads in the child of a process that had some */
    run_threads(2);
    CHECK_EQUAL(in_use(), before);
#endif
    tc_allocator_empty_cache();
    CHECK_EQUAL(cached(), 0);
}

/* What another thread has in use is in use in the child as well, also what it has counted only for itself yet. */
static atomic_int holding; /* 1: the thread holds its blocks; 2: it is to let them go */
static size_t in_use_at_fork;

static void *hold_blocks(void *unused)
{
    (void)unused;
    void *blocks[10];
    for (int i = 0; i < 10; i++) blocks[i] = tc_allocate(1000);
    atomic_store(&holding, 1);
    while (atomic_load(&holding) == 1) sched_yield();
    for (int i = 0; i < 10; i++) tc_free(blocks[i], 1000);
    return NULL;
}

static void count_in_child(void) { CHECK_EQUAL(in_use(), in_use_at_fork); }

static void forks_keep_the_count(void)
{
    pthread_t thread;
    const size_t before = in_use();
    CHECK_EQUAL(pthread_create(&thread, NULL, hold_blocks, NULL), 0);
    while (!atomic_load(&holding)) sched_yield();
    in_use_at_fork = in_use();
    CHECK(in_use_at_fork >= before + 10 * 1000);
    CHECK_IN_CHILD(count_in_child);
    atomic_store(&holding, 2);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
}

static void forks(void)
{
    CHECK_IN_CHILD(allocate_in_child);
#if !ADDRESS_SANITIZED /* its own allocator may leave a lock taken in the child */
    pthread_t threads[2];
    uint64_t seeds[2] = {11, 12};
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++) CHECK_EQUAL(pthread_create(&threads[i], NULL, live_until_stopped, &seeds[i]), 0);
    for (int i = 0; i < 10; i++) CHECK_IN_CHILD(allocate_in_child);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
#endif
}

/* ---- 1e5 cycles: nothing grows ------------------------------------------------------------------------------------------------------- */

static void no_growth(void)
{
    tc_free(tc_allocate(4096), 4096);
    const tc_allocator_stats before = tc_allocator_statistics();
    for (int i = 0; i < 100000; i++) {
        void *p = tc_allocate(4096);
        if (!p) CHECK(p != NULL);
        tc_free(p, 4096);
    }
    const tc_allocator_stats after = tc_allocator_statistics();
    CHECK_EQUAL(after.in_use, before.in_use);
    CHECK_EQUAL(after.cached, before.cached);
    CHECK_EQUAL(after.system_calls, before.system_calls + (TC_ALLOCATOR_CACHES ? 0 : 100000));
}

int main(void)
{
    blocks_hold_what_was_asked();
    random_lifetimes(1, 5000);
    impossible_sizes();
    counts_the_peak();
    failures_on_request();
    no_growth();
#if TC_ALLOCATOR_CACHES
    equal_steps_ask_the_system_once();
    the_cache_is_emptied();
    the_cache_is_bounded();
    large_blocks_ask_for_huge_pages();
    what_nobody_uses_takes_no_memory();
    lists_of_ended_threads_are_drained();
#if !THREAD_SANITIZED
    CHECK_IN_CHILD(gives_up_the_cache_when_memory_is_out);
#endif
#endif
    threads_leave_nothing();
    blocks_pass_between_threads();
    frees_while_a_thread_ends();
    forks_keep_the_count();
    forks();
    CHECK_EQUAL(in_use(), 0);
    return check_finish();
}
