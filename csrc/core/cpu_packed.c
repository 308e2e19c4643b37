/* cpu_packed.c: see cpu_packed.h. An entry is attached to its storage and freed with it; its panels are replaced when the storage has been
 * written to. One lock guards all entries: it is locked while a short list is searched, never while a matrix is packed. */
#include "cpu_packed.h"

#include <string.h>

#include "allocator.h"
#include "backend.h"
#include "lock.h"

/* Of one storage: a flat buffer of parameters has many; the limit stops a program that always packs new windows. */
#define MAX_ENTRIES 512

typedef struct entry {
    tc_attachment attachment; /* first: an entry is its attachment */
    const void *b;
    int64_t K, N, b_row, b_col;
    tc_stored stored; /* of the matrix, and so of its panels */
    int parts;        /* of each element, or 0 */
    tc_dtype compute;
    tc_packed *packed;
} entry;

TC_DEFINE_LOCK(entries_lock, TC_RANK_PACKED)

static void release(tc_prepared *prepared)
{
    tc_packed *packed = (tc_packed *)prepared;
    if (atomic_fetch_sub_explicit(&packed->references, 1, memory_order_acq_rel) != 1) return;
    tc_free(packed->panels, packed->bytes);
    tc_free(packed, sizeof *packed);
}

static tc_packed *retain(tc_packed *packed)
{
    atomic_fetch_add_explicit(&packed->references, 1, memory_order_relaxed);
    return packed;
}

static void release_entry(tc_attachment *attachment)
{
    entry *e = (entry *)attachment;
    release(&e->packed->prepared);
    tc_free(e, sizeof *e);
}

static tc_status pack_now(tc_packed **out, tc_gemm_pack_args pack, tc_dtype compute, tc_error *err)
{
    const size_t element = tc_dtype_size(compute);
    int64_t items = tc_gemm_panels(pack.N, element), bytes;
    bool fits = true;
    for (int d = 0; d < pack.batch_dims; d++) fits = fits && tc_multiply_sizes(items, pack.batch_shape[d], &items);
    const int64_t row_bytes = pack.panels_stored == TC_STORED_AS_COMPUTED ? TC_GEMM_PANEL_BYTES : TC_GEMM_PANEL_BYTES / 2;
    if (pack.parts)
        fits = fits && tc_multiply_sizes(items, tc_gemm_group_bytes(pack.K, pack.parts), &bytes);
    else
        fits = fits && tc_multiply_sizes(items, row_bytes, &bytes) &&
               tc_multiply_sizes(bytes, tc_gemm_panel_rows(pack.K, pack.panels_stored), &bytes);
    tc_packed *packed = fits ? tc_allocate(sizeof *packed) : NULL;
    pack.panels = packed ? tc_allocate((size_t)bytes) : NULL;
    if (!pack.panels) {
        if (packed) tc_free(packed, sizeof *packed);
        return tc_fail(err, TC_ERROR_MEMORY, "out of memory while packing a matrix of %lld x %lld for a product", (long long)pack.K,
                       (long long)pack.N);
    }
    *packed = (tc_packed){.prepared = {release}, .references = 1, .bytes = (size_t)bytes, .panels = pack.panels};
    const double cost = (double)(pack.K * TC_GEMM_PANEL_BYTES) / (double)element;
    const tc_status status = tc_run((tc_device){TC_CPU, 0}, compute, &tc_kernel_gemm_pack, &pack, items, cost, 0, err);
    if (status != TC_OK)
        release(&packed->prepared);
    else
        *out = packed;
    return status;
}

/* The entry of this matrix, or NULL; *count: entries of the storage. The lock is held. */
static entry *find(tc_storage *storage, const tc_gemm_pack_args *pack, tc_dtype compute, int *count)
{
    *count = 0;
    for (tc_attachment *a = atomic_load(&storage->attachments); a; a = a->next) {
        entry *e = (entry *)a;
        if (a->release != release_entry) continue;
        ++*count;
        if (e->b == pack->b && e->K == pack->K && e->N == pack->N && e->b_row == pack->b_row && e->b_col == pack->b_col &&
            e->stored == pack->b_stored && e->parts == pack->parts && e->compute == compute)
            return e;
    }
    return NULL;
}

/* Keeps `packed` with the storage. Running out of memory is no error: the matrix is packed again next time. */
static void keep(tc_storage *storage, const tc_gemm_pack_args *pack, tc_dtype compute, tc_packed *packed)
{
    int count;
    tc_packed *stale = NULL;
    tc_lock_take(&entries_lock);
    entry *e = find(storage, pack, compute, &count);
    if (e) {
        stale = e->packed;
        e->packed = retain(packed);
    } else if (count < MAX_ENTRIES && (e = tc_allocate(sizeof *e)) != NULL) {
        *e = (entry){.attachment.release = release_entry,
                     .b = pack->b,
                     .K = pack->K,
                     .N = pack->N,
                     .b_row = pack->b_row,
                     .b_col = pack->b_col,
                     .stored = pack->b_stored,
                     .parts = pack->parts,
                     .compute = compute,
                     .packed = retain(packed)};
        tc_attach(storage, &e->attachment);
    }
    tc_lock_give(&entries_lock);
    if (stale) release(&stale->prepared);
}

tc_status tc_packed_acquire(tc_packed **out, const tc_gemm_pack_args *pack, tc_dtype compute, tc_storage *storage, tc_error *err)
{
    if (!storage) return pack_now(out, *pack, compute, err);
    const unsigned version = atomic_load_explicit(&storage->version, memory_order_acquire);
    int count;
    tc_lock_take(&entries_lock);
    entry *e = find(storage, pack, compute, &count);
    tc_packed *packed = e && e->packed->version == version ? retain(e->packed) : NULL;
    tc_lock_give(&entries_lock);
    if (!packed) {
        const tc_status status = pack_now(&packed, *pack, compute, err);
        if (status != TC_OK) return status;
        packed->version = version;
        keep(storage, pack, compute, packed);
    }
    *out = packed;
    return TC_OK;
}
