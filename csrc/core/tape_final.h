/* tape_final.h: when the gradients of leaves are final during a backward.
 *
 * A walk visits nodes by descending sequence. So a leaf gets nothing more once all nodes that are left have lower sequences than each of
 * its readers: found by a pass over the graph before the walk, and true as well of nodes that the walk then does not enter, because no
 * gradient arrives there.
 */
#ifndef TC_CORE_TAPE_FINAL_H
#define TC_CORE_TAPE_FINAL_H

#include "tape_heap.h"

typedef struct tc_final {
    const tc_tensor *leaf;
    int64_t place;   /* in the list given */
    uint64_t reader; /* one more than the lowest sequence of its readers */
} tc_final;

#define TC_NO_READER UINT64_MAX /* final at the beginning */
#define TC_AT_THE_END 0         /* it has a hook: final once that was called, after the walk */

typedef struct tc_finals {
    tc_final *leaves; /* in the order in which they become final */
    int64_t count;
    int64_t told; /* how many of them are */
} tc_finals;

/* Those of leaves of which each is given once; `root` may be NULL. */
TC_CHECKED tc_status tc_finals_find(tc_finals *out, tc_node *root, int64_t count, tc_tensor *const *leaves, tc_error *err);
/* The next leaf that is final while the nodes of `left` are, or NULL. */
const tc_final *tc_finals_next(tc_finals *finals, const tc_node_heap *left);
void tc_finals_free(tc_finals *finals);

#endif
