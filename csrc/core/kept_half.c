/* kept_half.c: see kept_half.h. An entry is attached to the storage of its weight and freed with it. One lock guards all entries: it is
 * locked while a short list is searched, never while a copy is made. */
#include "kept_half.h"

#include "allocator.h"
#include "copy.h"
#include "graph.h"
#include "own.h"

#define MAX_ENTRIES 512 /* of one storage; the limit stops a program that always casts new windows */

typedef struct entry {
    tc_attachment attachment; /* first: an entry is its attachment */
    const void *data;         /* of the weight */
    int64_t numel;
    tc_tensor *copy;  /* of the weight's elements in their order; NULL while a writer has it */
    unsigned version; /* of the weight's storage when it had these values */
} entry;

TC_DEFINE_LOCK(entries_lock, TC_RANK_PACKED)

static unsigned version_of(const tc_tensor *weight) { return atomic_load_explicit(&weight->storage->version, memory_order_acquire); }

/* Do only its entry and graphs have it? */
static bool is_unused(const tc_tensor *copy)
{
    const int graphs = atomic_load(&copy->storage->graphs);
    return atomic_load(&copy->references) == 1 && atomic_load(&copy->storage->references) == 1 + graphs;
}

static void release_entry(tc_attachment *attachment)
{
    entry *e = (entry *)attachment;
    tc_tensor_release(e->copy);
    tc_free(e, sizeof *e);
}

/* The entry of this weight, or NULL; *count: entries of the storage. The lock is held. */
static entry *find(const tc_tensor *weight, int *count)
{
    *count = 0;
    for (tc_attachment *a = atomic_load(&weight->storage->attachments); a; a = a->next) {
        entry *e = (entry *)a;
        if (a->release != release_entry) continue;
        ++*count;
        if (e->data == weight->data && e->numel == weight->numel) return e;
    }
    return NULL;
}

/* Keeps a copy (stolen). Running out of memory is no error: the copy is made again next time. */
static void keep(const tc_tensor *weight, tc_tensor *copy, unsigned version)
{
    int count;
    tc_lock_take(&entries_lock);
    entry *e = find(weight, &count);
    if (!e && count < MAX_ENTRIES && (e = tc_allocate(sizeof *e)) != NULL) {
        *e = (entry){.attachment.release = release_entry, .data = weight->data, .numel = weight->numel};
        tc_attach(weight->storage, &e->attachment);
    }
    tc_tensor *stale = e ? e->copy : copy;
    if (e) {
        e->copy = copy;
        e->version = version;
    }
    tc_lock_give(&entries_lock);
    tc_tensor_release(stale);
}

tc_status tc_half_copy(tc_tensor **out, tc_tensor *weight, tc_dtype dtype, tc_error *err)
{
    TC_TRY(tc_tensor_as(out, weight, dtype, err));
    (*out)->storage->is_cast = true;
    (*out)->storage->writable = false;
    return TC_OK;
}

bool tc_may_keep_half(const tc_tensor *weight)
{
    const tc_storage *storage = weight->storage;
    return weight->dtype == TC_FLOAT32 && weight->contiguous && weight->numel > 0 && !storage->shared;
}

tc_status tc_kept_half(tc_tensor **out, tc_tensor *weight, tc_dtype dtype, tc_error *err)
{
    TC_OWNED tc_tensor *copy = NULL;
    const unsigned version = version_of(weight);
    int count;
    tc_lock_take(&entries_lock);
    const entry *e = find(weight, &count);
    if (e && e->copy && e->version == version && e->copy->dtype == dtype) copy = tc_tensor_retain(e->copy);
    tc_lock_give(&entries_lock);
    if (copy) {
        TC_TRY(tc_graph_note_half(weight, copy, err));
    } else {
        TC_TRY(tc_half_copy(&copy, weight, dtype, err));
        if (tc_cuda_is_capturing()) { /* the graph casts the weight itself, which the captured work may have written */
            *out = tc_take(&copy);
            return TC_OK;
        }
        keep(weight, tc_tensor_retain(copy), version);
    }
    return tc_tensor_alias(out, copy, weight->ndim, weight->shape, weight->strides, 0, err);
}

tc_tensor *tc_take_kept_half(const tc_tensor *weight)
{
    int count;
    tc_tensor *copy = NULL;
    if (!atomic_load(&weight->storage->attachments)) return NULL;
    tc_lock_take(&entries_lock);
    entry *e = find(weight, &count);
    if (e && e->copy && is_unused(e->copy)) {
        copy = e->copy;
        e->copy = NULL;
    }
    tc_lock_give(&entries_lock);
    return copy;
}

void tc_give_kept_half(const tc_tensor *weight, tc_tensor *copy) { keep(weight, copy, version_of(weight)); }

/* ---- graphs ----------------------------------------------------------------------------------------------------------------- */

static bool is_copy_of(const entry *e, const tc_tensor *copy) { return e && e->copy && e->copy->storage == copy->storage; }

bool tc_kept_half_is(const tc_tensor *weight, const tc_tensor *copy)
{
    int count;
    tc_lock_take(&entries_lock);
    const entry *e = find(weight, &count);
    const bool is = is_copy_of(e, copy) && e->version == version_of(weight) && tc_may_keep_half(weight);
    tc_lock_give(&entries_lock);
    return is;
}

tc_status tc_renew_kept_half(tc_tensor *weight, tc_tensor *copy, tc_error *err)
{
    tc_tensor *kept;
    const unsigned version = version_of(weight);
    if (tc_kept_half_is(weight, copy)) return TC_OK;
    TC_TRY(tc_tensor_alias(&kept, copy, copy->ndim, copy->shape, copy->strides, 0, err));
    atomic_fetch_add_explicit(&copy->storage->version, 1, memory_order_acq_rel); /* a backward may still want the old values */
    tc_status status = tc_tensor_copy(copy, weight, err);
    if (status == TC_OK && tc_may_keep_half(weight))
        keep(weight, kept, version);
    else
        tc_tensor_release(kept);
    return status;
}

void tc_kept_half_was_stepped(const tc_tensor *weight, const tc_tensor *copy)
{
    int count;
    tc_lock_take(&entries_lock);
    entry *e = find(weight, &count);
    if (is_copy_of(e, copy)) e->version = version_of(weight);
    tc_lock_give(&entries_lock);
}
