/* allocator.h: memory for tensors. Freed blocks are kept on free lists by size class and used again, because a training step asks for the
 * same sizes thousands of times. Thread-safe. Under AddressSanitizer (or with TC_NO_CACHE) every block is returned to the system at once,
 * so that a use after free is seen. */
#ifndef TC_CORE_ALLOCATOR_H
#define TC_CORE_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__) || defined(TC_NO_CACHE)
#define TC_ALLOCATOR_CACHES 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TC_ALLOCATOR_CACHES 0
#endif
#endif
#ifndef TC_ALLOCATOR_CACHES
#define TC_ALLOCATOR_CACHES 1
#endif

#define TC_ALIGNMENT 64 /* bytes: a cache line and the widest vector */

void *tc_allocate(size_t bytes); /* aligned to TC_ALIGNMENT, uninitialised; NULL when memory runs out; 0 bytes gives a valid pointer */
void tc_free(void *block, size_t bytes); /* the size that was asked for */
/* Returns every cached block to the system, except the few small ones on the lists of other threads. */
void tc_allocator_empty_cache(void);

typedef struct tc_allocator_stats {
    size_t in_use, peak_in_use, cached; /* bytes of whole blocks; the peak may miss 64 KiB per thread */
    uint64_t system_calls;              /* blocks taken from the system so far */
} tc_allocator_stats;
tc_allocator_stats tc_allocator_statistics(void);
void tc_allocator_reset_peak(void);
/* For tests: the n-th allocation from now fails (once); 0 turns it off. */
void tc_allocator_fail_after(int64_t n);

#endif
