/* regions.c: memory of the system in huge pages.
 *
 * The processor's table of addresses has room for some thousand pages, of 4 KiB or of 2 MiB. Linux gives huge ones to those who ask for them, and
 * only where a whole one fits. So a block of 2 MiB and more begins at one, and smaller ones are cut from regions: the first free range that is
 * large enough, in the order of addresses. What is free remembers its size and the next range in its own first bytes. */
#include "regions.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "allocator.h"

#define REGION_BYTES (8 * TC_HUGE_PAGE)

typedef struct range {
    size_t bytes;
    struct range *next; /* of the same region, by address */
} range;

/* At the beginning of its memory. */
typedef struct region {
    _Alignas(TC_ALIGNMENT) struct region *next;
    range *free;
} region;

static region *regions; /* the oldest first */

/* ---- the system's memory ------------------------------------------------------------------------------------------------- */

static void ask_for_huge_pages(void *block, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    madvise(block, bytes - bytes % TC_HUGE_PAGE, MADV_HUGEPAGE); /* a system without them refuses: nothing changes */
#else
    (void)block, (void)bytes;
#endif
}

void *tc_system_allocate(size_t bytes)
{
    const bool huge = bytes >= TC_HUGE_PAGE;
    void *block = NULL;
    if (posix_memalign(&block, huge ? TC_HUGE_PAGE : TC_ALIGNMENT, bytes) != 0) return NULL;
    if (huge) ask_for_huge_pages(block, bytes);
    return block;
}

/* ---- regions --------------------------------------------------------------------------------------------------------------- */

static char *end_of(range *r) { return (char *)r + r->bytes; }

/* The first `bytes` of the first range that has as many; NULL: none has. */
static void *take(region *owner, size_t bytes)
{
    for (range **at = &owner->free; *at; at = &(*at)->next) {
        range *const found = *at;
        if (found->bytes < bytes) continue;
        if (found->bytes == bytes) {
            *at = found->next;
        } else {
            range *const rest = (range *)((char *)found + bytes);
            *rest = (range){found->bytes - bytes, found->next};
            *at = rest;
        }
        return found;
    }
    return NULL;
}

void *tc_region_allocate(size_t bytes)
{
    region **last = &regions;
    for (; *last; last = &(*last)->next) {
        void *block = take(*last, bytes);
        if (block) return block;
    }
    region *const fresh = tc_system_allocate(REGION_BYTES);
    if (!fresh) return NULL;
    range *const all = (range *)(fresh + 1);
    *all = (range){REGION_BYTES - sizeof *fresh, NULL};
    *fresh = (region){.free = all};
    *last = fresh;
    return take(fresh, bytes);
}

/* Puts a range where it belongs, and joins it with its neighbours. */
static void put(region *owner, range *freed)
{
    range **at = &owner->free, *before = NULL;
    for (; *at && *at < freed; at = &(*at)->next) before = *at;
    freed->next = *at;
    *at = freed;
    if (freed->next && end_of(freed) == (char *)freed->next) {
        freed->bytes += freed->next->bytes;
        freed->next = freed->next->next;
    }
    if (before && end_of(before) == (char *)freed) {
        before->bytes += freed->bytes;
        before->next = freed->next;
    }
}

void tc_region_free(void *block, size_t bytes)
{
    region **at = &regions;
    while ((uintptr_t)block - (uintptr_t)*at >= REGION_BYTES) at = &(*at)->next;
    region *const owner = *at;
    range *const freed = block;
    freed->bytes = bytes;
    put(owner, freed);
    if (owner->free->bytes < REGION_BYTES - sizeof *owner) return;
    *at = owner->next;
    free(owner);
}
