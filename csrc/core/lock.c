/* lock.c: see lock.h. */
#include "lock.h"

#include <stdbool.h>

#ifdef TC_ASSERTIONS
_Thread_local unsigned tc_ranks_held;
#endif

static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER; /* guards the lists; a fork takes it first */
static tc_lock *locks[TC_RANK_COUNT];
static tc_after_fork *hooks;

void tc_lock_add(tc_lock *lock)
{
    pthread_mutex_lock(&adding);
    lock->previous = NULL;
    lock->next = locks[lock->rank];
    if (lock->next) lock->next->previous = lock;
    locks[lock->rank] = lock;
    pthread_mutex_unlock(&adding);
}

void tc_lock_remove(tc_lock *lock)
{
    pthread_mutex_lock(&adding);
    if (lock->previous)
        lock->previous->next = lock->next;
    else
        locks[lock->rank] = lock->next;
    if (lock->next) lock->next->previous = lock->previous;
    pthread_mutex_unlock(&adding);
}

void tc_after_fork_add(tc_after_fork *hook)
{
    pthread_mutex_lock(&adding);
    hook->next = hooks;
    hooks = hook;
    pthread_mutex_unlock(&adding);
}

static void before_fork(void)
{
    pthread_mutex_lock(&adding);
    for (int rank = 0; rank < TC_RANK_COUNT; rank++)
        for (tc_lock *lock = locks[rank]; lock; lock = lock->next) pthread_mutex_lock(&lock->mutex);
}

static void in_parent(void)
{
    for (int rank = TC_RANK_COUNT; rank-- > 0;)
        for (tc_lock *lock = locks[rank]; lock; lock = lock->next) pthread_mutex_unlock(&lock->mutex);
    pthread_mutex_unlock(&adding);
}

static void in_child(void)
{
    for (tc_after_fork *hook = hooks; hook; hook = hook->next) hook->in_child();
    in_parent();
}

static bool installed;

TC_WHEN_LOADED install_handlers(void) { installed = pthread_atfork(before_fork, in_parent, in_child) == 0; }

tc_status tc_locks_initialize(tc_error *err)
{
    if (installed) return TC_OK;
    return tc_fail(err, TC_ERROR_MEMORY, "out of memory while installing the fork handlers");
}
