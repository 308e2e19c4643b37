/* lock.h: the library's locks, and what a fork does with them.
 *
 * A fork copies memory as it is, and of all threads only the one that called it. So every lock is taken before a fork, in the order of
 * tc_lock_rank, and released after it in the parent and in the child: the data that they guard are complete in both. No file has a lock or
 * a fork handler of another kind, except threads.c for its condition variables; tests/concurrency/test_forks.py checks that. */
#ifndef TC_CORE_LOCK_H
#define TC_CORE_LOCK_H

#include <pthread.h>

#include "status.h"

/* A thread that holds a lock takes only locks of a higher rank. */
typedef enum tc_lock_rank {
    TC_RANK_COMMIT, /* held while gradients are added up */
    TC_RANK_CUDA_LIBRARY,
    TC_RANK_CUDA_WAITING, /* one per device */
    TC_RANK_CUDA_STAGING, /* one per device */
    TC_RANK_CUDA_DEVICE,  /* one per device */
    TC_RANK_GENERATOR,    /* one per generator */
    TC_RANK_PACKED,
    TC_RANK_TENSOR,
    TC_RANK_PENDING,
    TC_RANK_ALLOCATOR,
    TC_RANK_COUNT
} tc_lock_rank;

typedef struct tc_lock {
    pthread_mutex_t mutex;
    tc_lock_rank rank;
    struct tc_lock *previous, *next; /* of its rank */
} tc_lock;

/* From now on a fork knows the lock; until then nobody takes it. */
void tc_lock_add(tc_lock *lock);
/* Before a lock is destroyed. Nobody holds it. */
void tc_lock_remove(tc_lock *lock);

#define TC_LOCK_INITIALIZER(its_rank)                                                                                                      \
    {                                                                                                                                      \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (its_rank)                                                                             \
    }
#define TC_WHEN_LOADED __attribute__((constructor)) static void
/* A lock of a file; of several files. */
#define TC_DEFINE_LOCK(name, its_rank) static TC_DEFINE_SHARED_LOCK(name, its_rank)
#define TC_DEFINE_SHARED_LOCK(name, its_rank)                                                                                              \
    tc_lock name = TC_LOCK_INITIALIZER(its_rank);                                                                                          \
    TC_WHEN_LOADED add_##name(void) { tc_lock_add(&name); }

/* What a child does after a fork, while all locks are held: `function` takes none. */
typedef struct tc_after_fork {
    void (*in_child)(void);
    struct tc_after_fork *next;
} tc_after_fork;
void tc_after_fork_add(tc_after_fork *hook);
#define TC_IN_FORKED_CHILD(function)                                                                                                       \
    static tc_after_fork hook_of_##function = {.in_child = function};                                                                      \
    TC_WHEN_LOADED add_##function(void) { tc_after_fork_add(&hook_of_##function); }

/* An error when there was no memory for the fork handlers. */
TC_CHECKED tc_status tc_locks_initialize(tc_error *err);

#ifdef TC_ASSERTIONS
extern _Thread_local unsigned tc_ranks_held; /* a bit for each rank */
#endif

static inline void tc_lock_take(tc_lock *lock)
{
#ifdef TC_ASSERTIONS
    TC_ASSERT(tc_ranks_held >> lock->rank == 0);
    tc_ranks_held |= 1u << lock->rank;
#endif
    pthread_mutex_lock(&lock->mutex);
}

static inline void tc_lock_give(tc_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
#ifdef TC_ASSERTIONS
    tc_ranks_held &= ~(1u << lock->rank);
#endif
}

#endif
