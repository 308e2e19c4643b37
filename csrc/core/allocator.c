/* allocator.c: a caching allocator of two levels.
 *
 * Sizes are rounded up to classes, four per power of two (at most a quarter is lost), and a free block stores the link to
 * the next one in its own first bytes, or in front of them. Small blocks come from lists of the calling thread, which need no lock and
 * exchange blocks with the shared lists in batches. Large blocks use the shared lists directly: compared with the work
 * done on them, a lock costs nothing, but the page faults of fresh memory cost a lot.
 *
 * Bounds: a thread's list of a class has at most THREAD_LIST_BYTES, and all memory (in use or cached) is at most
 * CACHE_SLACK above the peak of the memory in use. So a loop of equal steps takes nothing from the system after its
 * first step, and a loop whose sizes keep changing frees the blocks whose class has been unused for longest.
 *
 * Blocks of 2 MiB and more are in huge pages where the system has them. */
#include "allocator.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "lock.h"

/* ---- injected failures ------------------------------------------------------------------------------------------------- */

static _Atomic int64_t allocations_to_failure; /* 0: off */

void tc_allocator_fail_after(int64_t n) { atomic_store(&allocations_to_failure, n > 0 ? n : 0); }

static bool fails_by_request(void)
{
    int64_t left = atomic_load_explicit(&allocations_to_failure, memory_order_relaxed);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&allocations_to_failure, &left, left - 1)) return left == 1;
    }
    return false;
}

static void *aligned_block(size_t bytes)
{
    void *block = NULL;
    return posix_memalign(&block, TC_ALIGNMENT, bytes) == 0 ? block : NULL;
}

#if !TC_ALLOCATOR_CACHES

/* ---- without a cache: a block is of the exact size, so that a checker sees every step beyond it ----------------------- */

static _Atomic size_t in_use, peak_in_use;
static _Atomic uint64_t system_calls;

void *tc_allocate(size_t bytes)
{
    if (fails_by_request() || bytes > PTRDIFF_MAX) return NULL;
    void *block = aligned_block(bytes ? bytes : 1);
    if (!block) return NULL;
    atomic_fetch_add(&system_calls, 1);
    const size_t now = atomic_fetch_add(&in_use, bytes) + bytes;
    size_t peak = atomic_load(&peak_in_use);
    while (now > peak && !atomic_compare_exchange_weak(&peak_in_use, &peak, now)) continue;
    return block;
}

void tc_free(void *block, size_t bytes)
{
    if (!block) return;
    atomic_fetch_sub(&in_use, bytes);
    free(block);
}

void tc_allocator_empty_cache(void) {}

tc_allocator_stats tc_allocator_statistics(void)
{
    return (tc_allocator_stats){
        .in_use = atomic_load(&in_use), .peak_in_use = atomic_load(&peak_in_use), .system_calls = atomic_load(&system_calls)};
}

void tc_allocator_reset_peak(void) { atomic_store(&peak_in_use, atomic_load(&in_use)); }

#else

#define LARGEST_BLOCK ((size_t)PTRDIFF_MAX / 2) /* rounded up to its class, it still fits in a ptrdiff_t */
#define CACHE_SLACK ((size_t)256 << 20)
#define THREAD_LIST_BYTES ((size_t)64 << 10)
#define THREAD_LIST_BLOCKS 64
#define UNREPORTED_BYTES ((ptrdiff_t)64 << 10) /* a thread updates the shared count when its own has changed by this much */

/* ---- size classes: 64 128 192 256, 320 384 448 512, 640 768 896 1024, ... ---------------------------------------------- */

enum {
    CLASSES = (62 - 8) * 4 + 4,
    SMALL_CLASSES = (15 - 8) * 4 + 4, /* up to 32 KiB: classes that use the lists of the thread */
};

static int size_class(size_t bytes)
{
    if (bytes <= 4 * TC_ALIGNMENT) return bytes ? (int)((bytes - 1) / TC_ALIGNMENT) : 0;
    const int octave = 63 - __builtin_clzll(bytes - 1); /* 2^octave < bytes <= 2^(octave + 1) */
    return (octave - 7) * 4 + (int)((bytes - 1) >> (octave - 2) & 3);
}

static size_t class_bytes(int class)
{
    if (class < 4) return (size_t)(class + 1) * TC_ALIGNMENT;
    const int octave = class / 4 + 7;
    return (size_t)(4 + class % 4 + 1) << (octave - 2);
}

typedef struct free_block {
    struct free_block *next;
} free_block;

typedef struct free_list {
    free_block *head;
    size_t count;
} free_list;

static void push(free_list *list, void *block)
{
    free_block *b = block;
    b->next = list->head;
    list->head = b;
    list->count++;
}

static void *pop(free_list *list)
{
    free_block *b = list->head;
    if (b) {
        list->head = b->next;
        list->count--;
    }
    return b;
}

/* ---- the system's memory ------------------------------------------------------------------------------------------------- */

/* Blocks of this size and more begin at a huge page and ask for them: the processor's table of addresses has room for a few thousand pages,
 * of 4 KiB or of 2 MiB (docs/performance/elementwise.md). Linux gives them unless it was told not to; elsewhere such a block is like all
 * others. */
#define HUGE_PAGE ((size_t)2 << 20)

#ifdef MADV_HUGEPAGE
#define FRONT ((size_t)64 << 10) /* in front of such a block, in small pages: a multiple of their size everywhere */

static void *huge_block(size_t bytes)
{
    char *const memory = mmap(NULL, bytes + HUGE_PAGE + FRONT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    const size_t before = (2 * HUGE_PAGE - FRONT - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    char *const block = memory + before + FRONT;
    if (before) munmap(memory, before);
    if (before < HUGE_PAGE) munmap(block + bytes, HUGE_PAGE - before);
    madvise(block, bytes, MADV_HUGEPAGE); /* where it is refused, pages are small */
    return block;
}

static void *system_allocate(size_t bytes) { return bytes < HUGE_PAGE ? aligned_block(bytes) : huge_block(bytes); }

static void system_free(void *block, size_t bytes)
{
    if (bytes < HUGE_PAGE)
        free(block);
    else
        munmap((char *)block - FRONT, FRONT + bytes);
}

/* A free block's link is in front of a huge page: in the first one it would make two megabytes of a block that nobody has used. */
static size_t link_offset(int class) { return class_bytes(class) < HUGE_PAGE ? 0 : FRONT; }
#else
static void *system_allocate(size_t bytes) { return aligned_block(bytes); }

static void system_free(void *block, size_t bytes)
{
    (void)bytes;
    free(block);
}

static size_t link_offset(int class)
{
    (void)class;
    return 0;
}
#endif

/* ---- what is shared ------------------------------------------------------------------------------------------------------ */

typedef struct thread_cache {
    free_list lists[SMALL_CLASSES];
    /* Written by the thread alone, read for statistics. */
    _Atomic ptrdiff_t unreported_in_use; /* bytes; negative when it frees blocks that others allocated */
    _Atomic size_t cached;
    struct thread_cache *previous, *next; /* of all threads' caches; under the lock */
} thread_cache;

TC_DEFINE_LOCK(shared_lock, TC_RANK_ALLOCATOR) /* for everything in `shared` */

static struct {
    free_list lists[CLASSES];
    uint64_t last_asked[CLASSES]; /* the value of `clock` when the class was last asked for */
    uint64_t clock;
    ptrdiff_t in_use; /* without what the threads have not reported yet */
    ptrdiff_t peak_in_use;
    ptrdiff_t high_water; /* the peak that bounds the cache; tc_allocator_reset_peak() does not change it */
    size_t cached;
    uint64_t system_calls;
    thread_cache *caches;
} shared;

static void note_peak(void)
{
    if (shared.in_use > shared.peak_in_use) shared.peak_in_use = shared.in_use;
    if (shared.in_use > shared.high_water) shared.high_water = shared.in_use;
}

static void shared_put(int class, void *block)
{
    push(&shared.lists[class], (char *)block - link_offset(class));
    shared.cached += class_bytes(class);
}

/* NULL: the list is empty. */
static void *shared_pop(int class)
{
    char *const link = pop(&shared.lists[class]);
    if (!link) return NULL;
    shared.cached -= class_bytes(class);
    return link + link_offset(class);
}

static void drop_one(int class) { system_free(shared_pop(class), class_bytes(class)); }

/* Frees cached blocks, starting with the class that has been unused for longest, until a block of `bytes` is allowed. */
static void make_room(size_t bytes)
{
    const ptrdiff_t in_use = shared.in_use + (ptrdiff_t)bytes;
    const ptrdiff_t limit = (in_use > shared.high_water ? in_use : shared.high_water) + (ptrdiff_t)CACHE_SLACK;
    while (shared.cached && in_use + (ptrdiff_t)shared.cached > limit) {
        int oldest = -1;
        for (int c = 0; c < CLASSES; c++) {
            if (shared.lists[c].head && (oldest < 0 || shared.last_asked[c] < shared.last_asked[oldest])) oldest = c;
        }
        drop_one(oldest);
    }
}

static void drop_all(void)
{
    for (int c = 0; c < CLASSES; c++) {
        while (shared.lists[c].head) drop_one(c);
    }
}

/* Fresh memory for a block of the class; when the system has none left, frees the cache and tries again. The lock is held. */
static void *fresh_block(int class)
{
    const size_t bytes = class_bytes(class);
    make_room(bytes);
    void *block = system_allocate(bytes);
    if (!block && shared.cached) {
        drop_all();
        block = system_allocate(bytes);
    }
    if (block) shared.system_calls++;
    return block;
}

/* A block from the shared list or the system, not counted as in use yet. The lock is held. */
static void *shared_take(int class)
{
    shared.last_asked[class] = ++shared.clock;
    void *block = shared_pop(class);
    return block ? block : fresh_block(class);
}

/* ---- a thread's own lists ------------------------------------------------------------------------------------------------ */

static _Thread_local thread_cache *own_cache;
static _Thread_local bool thread_is_ending; /* its lists are freed: from now on its blocks use the shared lists */

static pthread_key_t cache_key; /* its destructor empties the cache of a thread that ends */
static bool cache_key_exists;

static void add_to(_Atomic size_t *counter, size_t bytes)
{
    /* One writer: no need for a locked instruction. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + bytes, memory_order_relaxed);
}

/* Moves blocks of a list to the shared one until `keep` are left. The lock is held. */
static void give_blocks(thread_cache *cache, int class, size_t keep)
{
    free_list *list = &cache->lists[class];
    while (list->count > keep) {
        shared_put(class, pop(list));
        add_to(&cache->cached, 0 - class_bytes(class));
    }
}

/* Moves the thread's count into the shared one. The lock is held. */
static void report(thread_cache *cache)
{
    shared.in_use += atomic_load_explicit(&cache->unreported_in_use, memory_order_relaxed);
    atomic_store_explicit(&cache->unreported_in_use, 0, memory_order_relaxed);
    note_peak();
}

static void drain(thread_cache *cache)
{
    for (int c = 0; c < SMALL_CLASSES; c++) give_blocks(cache, c, 0);
    report(cache);
}

static void end_thread(void *argument)
{
    thread_cache *cache = argument;
    thread_is_ending = true;
    own_cache = NULL;
    tc_lock_take(&shared_lock);
    drain(cache);
    if (cache->previous)
        cache->previous->next = cache->next;
    else
        shared.caches = cache->next;
    if (cache->next) cache->next->previous = cache->previous;
    tc_lock_give(&shared_lock);
    free(cache);
}

/* ---- a fork -------------------------------------------------------------------------------------------------------------------- */

/* The other threads do not exist here. Their blocks in use stay in use (a tensor may be shared with this thread); the few blocks on their
 * lists are leaked, because a list may have been copied half-way through a change. */
static void forget_other_threads(void)
{
    thread_cache *next = NULL;
    for (thread_cache *cache = shared.caches; cache; cache = next) {
        next = cache->next;
        if (cache == own_cache) continue;
        report(cache);
        free(cache);
    }
    shared.caches = own_cache;
    if (own_cache) own_cache->previous = own_cache->next = NULL;
}

TC_IN_FORKED_CHILD(forget_other_threads)

static void make_key(void) { cache_key_exists = pthread_key_create(&cache_key, end_thread) == 0; }

/* The calling thread's cache, made on first use; NULL when it cannot be made; then the shared lists are used. */
static thread_cache *make_cache(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    if (thread_is_ending || !cache_key_exists) return NULL;
    thread_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return NULL;
    if (pthread_setspecific(cache_key, cache) != 0) {
        free(cache);
        return NULL;
    }
    tc_lock_take(&shared_lock);
    cache->next = shared.caches;
    if (cache->next) cache->next->previous = cache;
    shared.caches = cache;
    tc_lock_give(&shared_lock);
    own_cache = cache;
    return cache;
}

static thread_cache *get_cache(void)
{
    thread_cache *cache = own_cache;
    return cache ? cache : make_cache();
}

static size_t list_limit(int class)
{
    const size_t blocks = THREAD_LIST_BYTES / class_bytes(class);
    return blocks < THREAD_LIST_BLOCKS ? blocks : THREAD_LIST_BLOCKS;
}

/* Counts `bytes` (negative for a free) as in use by the calling thread. */
static void count_in_use(thread_cache *cache, ptrdiff_t bytes)
{
    const ptrdiff_t unreported = atomic_load_explicit(&cache->unreported_in_use, memory_order_relaxed) + bytes;
    atomic_store_explicit(&cache->unreported_in_use, unreported, memory_order_relaxed);
    if (unreported < UNREPORTED_BYTES && unreported > -UNREPORTED_BYTES) return;
    tc_lock_take(&shared_lock);
    report(cache);
    tc_lock_give(&shared_lock);
}

/* Fills an empty list to half its limit from the shared one, or with a single fresh block. */
static void refill(thread_cache *cache, int class)
{
    const size_t wanted = (list_limit(class) + 1) / 2;
    tc_lock_take(&shared_lock);
    do {
        void *block = shared_take(class);
        if (!block) break;
        push(&cache->lists[class], block);
        add_to(&cache->cached, class_bytes(class));
    } while (cache->lists[class].count < wanted && shared.lists[class].head);
    tc_lock_give(&shared_lock);
}

/* ---- the interface ---------------------------------------------------------------------------------------------------------- */

static void *allocate_shared(int class)
{
    tc_lock_take(&shared_lock);
    void *block = shared_take(class);
    if (block) {
        shared.in_use += (ptrdiff_t)class_bytes(class);
        note_peak();
    }
    tc_lock_give(&shared_lock);
    return block;
}

void *tc_allocate(size_t bytes)
{
    if (fails_by_request() || bytes > LARGEST_BLOCK) return NULL;
    const int class = size_class(bytes);
    thread_cache *cache = get_cache();
    if (!cache || class >= SMALL_CLASSES) return allocate_shared(class);
    if (!cache->lists[class].head) refill(cache, class);
    void *block = pop(&cache->lists[class]);
    if (!block) return NULL;
    add_to(&cache->cached, 0 - class_bytes(class));
    count_in_use(cache, (ptrdiff_t)class_bytes(class));
    return block;
}

void tc_free(void *block, size_t bytes)
{
    if (!block) return;
    const int class = size_class(bytes);
    thread_cache *cache = get_cache();
    if (!cache || class >= SMALL_CLASSES) {
        tc_lock_take(&shared_lock);
        shared.in_use -= (ptrdiff_t)class_bytes(class);
        shared_put(class, block);
        tc_lock_give(&shared_lock);
        return;
    }
    push(&cache->lists[class], block);
    add_to(&cache->cached, class_bytes(class));
    count_in_use(cache, -(ptrdiff_t)class_bytes(class));
    if (cache->lists[class].count > list_limit(class)) {
        tc_lock_take(&shared_lock);
        give_blocks(cache, class, list_limit(class) / 2);
        tc_lock_give(&shared_lock);
    }
}

void tc_allocator_empty_cache(void)
{
    tc_lock_take(&shared_lock);
    if (own_cache) drain(own_cache);
    drop_all();
    shared.high_water = shared.in_use;
    tc_lock_give(&shared_lock);
}

tc_allocator_stats tc_allocator_statistics(void)
{
    tc_lock_take(&shared_lock);
    if (own_cache) report(own_cache);
    ptrdiff_t in_use = shared.in_use;
    size_t cached = shared.cached;
    for (thread_cache *cache = shared.caches; cache; cache = cache->next) {
        in_use += atomic_load_explicit(&cache->unreported_in_use, memory_order_relaxed);
        cached += atomic_load_explicit(&cache->cached, memory_order_relaxed);
    }
    const tc_allocator_stats stats = {(size_t)in_use, (size_t)shared.peak_in_use, cached, shared.system_calls};
    tc_lock_give(&shared_lock);
    return stats;
}

void tc_allocator_reset_peak(void)
{
    tc_lock_take(&shared_lock);
    if (own_cache) report(own_cache);
    shared.peak_in_use = shared.in_use;
    tc_lock_give(&shared_lock);
}

#endif
