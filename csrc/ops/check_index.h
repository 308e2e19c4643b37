/* check_index.h: are indices and classes in range? On devices that the host waits for it learns that at once, from GPUs with the next copy
 * to the host or synchronisation: an op does not wait for the device. Until then kernels take a bad index for TC_NO_INDEX. */
#ifndef TC_OPS_CHECK_INDEX_H
#define TC_OPS_CHECK_INDEX_H

#include "../core/index_check.h"
#include "../kernels/check_index.h"
#include "op.h"

/* A check of `places`, contiguous int64, for tc_check_indices. */
tc_index_check tc_index_check_of(const tc_tensor *places, int64_t length,
                                 tc_status (*fail)(const tc_index_check *, int64_t, int64_t, tc_error *));

/* An alarm that a kernel raises which checks indices by itself. Begin it before the kernel and end it after: then it is looked at, unless
 * the backend does that later. Either tells the error. */
typedef struct tc_index_alarm {
    const tc_index_check *check;
    tc_device device;
    int64_t *alarm, ticket;       /* for the kernel */
    int64_t here[TC_ALARM_WORDS]; /* `alarm` on the host, */
    tc_tensor *own;               /* or on the device, without page-locked memory */
} tc_index_alarm;
TC_CHECKED tc_status tc_index_alarm_begin(tc_index_alarm *alarm, tc_device device, const tc_index_check *check, tc_error *err);
TC_CHECKED tc_status tc_index_alarm_end(tc_index_alarm *alarm, tc_status ran, tc_error *err);

TC_CHECKED tc_status tc_check_indices(const tc_index_check *check, const tc_tensor *places, tc_error *err);
/* Also adds up the weights (of s->statistics; NULL: ones) of indices that are not ignored: into *sum, or where the host would have to wait
 * for it, into *total, a tensor of s->statistics without axes that the scope owns. Otherwise *total is NULL. */
TC_CHECKED tc_status tc_check_and_weigh(tc_scope *s, const tc_index_check *check, const tc_tensor *places, const tc_tensor *weight,
                                        double *sum, tc_tensor **total);

#endif
