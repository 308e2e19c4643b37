/* release.c: Python objects that are released on a thread without the GIL. */
#include "binding.h"

#include <stdatomic.h>

#include "../core/lock.h"

typedef struct pending_release {
    struct pending_release *next;
    void (*release)(void *context);
    void *context;
} pending_release;

TC_DEFINE_LOCK(pending_lock, TC_RANK_PENDING)
static pending_release *pending;
static atomic_bool any_pending;

void tcpy_release_with_gil(void (*release)(void *context), void *context)
{
    if (!Py_IsInitialized()) return; /* the interpreter has ended, and its objects with it */
    if (PyGILState_Check()) {
        release(context);
        return;
    }
    pending_release *entry = PyMem_RawMalloc(sizeof *entry);
    if (!entry) return; /* better a leak than a crash */
    *entry = (pending_release){.release = release, .context = context};
    tc_lock_take(&pending_lock);
    entry->next = pending;
    pending = entry;
    atomic_store_explicit(&any_pending, true, memory_order_relaxed);
    tc_lock_give(&pending_lock);
}

static void drop_object(void *object) { Py_DECREF((PyObject *)object); }

void tcpy_release_object(void *object) { tcpy_release_with_gil(drop_object, object); }

void tcpy_drain_releases(void)
{
    if (!atomic_load_explicit(&any_pending, memory_order_relaxed)) return;
    tc_lock_take(&pending_lock);
    pending_release *list = pending;
    pending = NULL;
    atomic_store_explicit(&any_pending, false, memory_order_relaxed);
    tc_lock_give(&pending_lock);
    while (list) {
        pending_release *next = list->next;
        list->release(list->context);
        PyMem_RawFree(list);
        list = next;
    }
}
