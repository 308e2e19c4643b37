/* check_index.c: looks for indices outside their range. */
#include "../check_index.h"
#include "../read_index.h"
#include "simd.h"

TC_DEFINE_KERNEL(check_index)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_check_index_args *a = args;
    const real *weight = a->weight;
    double total = 0;
    (void)begin, (void)end, (void)scratch; /* one item */
    for (int64_t i = 0; i < a->n; i++) {
        const int64_t index = tc_read_index(&a->indices[i]);
        if (a->ignores && index == a->ignored) continue;
        if (index < 0 || index >= a->length) {
            a->alarm[TC_ALARM_VALUE] = index;
            a->alarm[TC_ALARM_POSITION] = i;
            a->alarm[TC_ALARM_TICKET] = a->ticket;
            return;
        }
        total += weight ? (double)weight[index] : 1;
    }
    if (a->total) *(real *)a->total = (real)total;
}
