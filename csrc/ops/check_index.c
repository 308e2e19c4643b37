/* check_index.c: see check_index.h. */
#include "check_index.h"

#include <string.h>

tc_index_check tc_index_check_of(const tc_tensor *places, int64_t length,
                                 tc_status (*fail)(const tc_index_check *, int64_t, int64_t, tc_error *))
{
    tc_index_check check = {.fail = fail, .length = length, .ndim = places->ndim};
    memcpy(check.shape, places->shape, sizeof(int64_t) * (size_t)places->ndim);
    return check;
}

static tc_check_index_args args_of(const tc_index_check *check, const tc_tensor *places)
{
    return (tc_check_index_args){
        .indices = tc_data(places), .n = places->numel, .length = check->length, .ignored = check->ignored, .ignores = check->ignores};
}

tc_status tc_index_alarm_begin(tc_index_alarm *alarm, tc_device device, const tc_index_check *check, tc_error *err)
{
    const tc_backend *backend;
    const int64_t words = TC_ALARM_WORDS;
    *alarm = (tc_index_alarm){.check = check, .device = device};
    TC_TRY(tc_backend_for(&backend, device, err));
    if (backend->check_later) TC_TRY(backend->check_later(device.index, check, &alarm->alarm, &alarm->ticket, err));
    if (alarm->alarm) return TC_OK;
    if (!backend->host_memory) TC_TRY(tc_tensor_zeros(&alarm->own, 1, &words, TC_INT64, device, err));
    alarm->alarm = alarm->own ? tc_data(alarm->own) : alarm->here;
    alarm->ticket = 1;
    return TC_OK;
}

tc_status tc_index_alarm_end(tc_index_alarm *alarm, tc_status ran, tc_error *err)
{
    TC_OWNED tc_tensor *own = tc_take(&alarm->own);
    const tc_backend *backend;
    const int64_t *found = alarm->here;
    TC_TRY(ran);
    TC_TRY(tc_backend_for(&backend, alarm->device, err));
    if (own) TC_TRY(backend->copy(alarm->device.index, alarm->here, true, own->data, false, sizeof alarm->here, err));
    return found[TC_ALARM_TICKET] ? alarm->check->fail(alarm->check, found[TC_ALARM_POSITION], found[TC_ALARM_VALUE], err) : TC_OK;
}

/* Runs the kernel of `table` on the device with an alarm. */
static tc_status run_check(tc_device device, tc_dtype table, const tc_index_check *check, tc_check_index_args args, tc_error *err)
{
    tc_index_alarm alarm;
    TC_TRY(tc_index_alarm_begin(&alarm, device, check, err));
    args.alarm = alarm.alarm;
    args.ticket = alarm.ticket;
    return tc_index_alarm_end(&alarm, tc_run(device, table, &tc_kernel_check_index, &args, 1, 2.0 * (double)args.n, 0, err), err);
}

tc_status tc_check_indices(const tc_index_check *check, const tc_tensor *places, tc_error *err)
{
    return run_check(places->storage->device, TC_FLOAT32, check, args_of(check, places), err);
}

tc_status tc_check_and_weigh(tc_scope *s, const tc_index_check *check, const tc_tensor *places, const tc_tensor *weight, double *sum,
                             tc_tensor **total)
{
    const tc_backend *backend;
    union {
        float single;
        double twice;
    } number = {.twice = 0};
    tc_check_index_args args = args_of(check, places);
    TC_TRY(tc_backend_for(&backend, s->device, s->err));
    *total = NULL;
    if (!backend->host_memory) TC_TRY(tc_make_statistic(s, total, 0, NULL));
    args.weight = tc_data(weight);
    args.total = *total ? tc_data(*total) : &number;
    TC_TRY(run_check(s->device, s->statistics, check, args, s->err));
    *sum = s->statistics == TC_FLOAT64 ? number.twice : (double)number.single;
    return TC_OK;
}
