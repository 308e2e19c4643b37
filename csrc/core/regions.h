/* regions.h: blocks of medium size, cut from regions that lie in huge pages. For the allocator, which calls with its lock held. */
#ifndef TC_CORE_REGIONS_H
#define TC_CORE_REGIONS_H

#include <stddef.h>

#define TC_HUGE_PAGE ((size_t)2 << 20)

/* Fresh memory of the system, of any size; in huge pages where the block contains whole ones and the system has them. NULL when memory runs
 * out. Freed by free(). */
void *tc_system_allocate(size_t bytes);

/* A block of a region, aligned to TC_ALIGNMENT; `bytes` is a multiple of it, and at most TC_HUGE_PAGE. NULL when memory runs out. */
void *tc_region_allocate(size_t bytes);
void tc_region_free(void *block, size_t bytes); /* the size that was asked for; a region without a block is given back to the system */

#endif
