/* add_in_place.c: to += from. */
#include "../add_in_place.h"
#include "ahead.h"

typedef struct sums {
    real *to;
    const real *from;
} sums;

TC_INLINE void add(void *loop, int64_t i, int lanes)
{
    const sums *s = loop;
    v_store_some(s->to + i, v_load_some(s->to + i, lanes) + v_load_some(s->from + i, lanes), lanes);
}

TC_DEFINE_KERNEL(add_in_place)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_add_in_place_args *a = args;
    (void)scratch;
    const int64_t last = end * TC_ADD_BLOCK < a->numel ? end * TC_ADD_BLOCK : a->numel;
    each_vector(add, &(sums){a->to, a->from}, &(vectors_ahead){sizeof(real), array_ahead(), {a->to, a->from}}, begin * TC_ADD_BLOCK, last);
}
