/* add_in_place.c: to += from. */
#include "../add_in_place.h"
#include "simd.h"

TC_DEFINE_KERNEL(add_in_place)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_add_in_place_args *a = args;
    real *to = a->to;
    const real *from = a->from;
    (void)scratch;
    const int64_t last = end * TC_ADD_BLOCK < a->numel ? end * TC_ADD_BLOCK : a->numel;
    for (int64_t i = begin * TC_ADD_BLOCK; i < last; i += TC_LANES) {
        const int lanes = v_left(last, i);
        v_store_some(to + i, v_load_some(to + i, lanes) + v_load_some(from + i, lanes), lanes);
    }
}
