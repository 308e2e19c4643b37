/* sum_partials.c: adds the partial sums of a reduction over rows, always in the same order. */
#include "../sum_partials.h"
#include "stored.h"

TC_DEFINE_KERNEL(sum_partials)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_sum_partials_args *a = args;
    const real *partial = a->partial;
    (void)scratch;
    const int64_t first = begin * TC_SUM_PARTIALS_GROUP;
    const int64_t last = end * TC_SUM_PARTIALS_GROUP < a->C ? end * TC_SUM_PARTIALS_GROUP : a->C;
    for (int64_t i = first; i < last; i += TC_LANES) {
        const int lanes = v_left(last, i);
        vreal sum = a->chunks ? v_load_some(partial + i, lanes) : v_zero(); /* not 0 plus it: a sum may be -0 */
        for (int64_t chunk = 1; chunk < a->chunks; chunk++) sum = sum + v_load_some(partial + chunk * a->C + i, lanes);
        if (a->before) sum = sum + v_load_stored(stored_at(a->before, a->before_stored, i), a->before_stored, lanes);
        v_store_stored(stored_to(a->out, a->out_stored, i), a->out_stored, sum, lanes);
    }
}
