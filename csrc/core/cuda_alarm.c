/* cuda_alarm.c: errors that kernels find. A kernel that checks indices writes to an alarm in page-locked memory; the host looks at the
 * alarms whenever it has waited for the device anyway, and says then which earlier call it was. */
#include <string.h>

#include "../kernels/check_index.h"
#include "allocator.h"
#include "cuda.h"
#include "status.h"

#define ALARMS 256 /* of a device; the checks of earlier calls than the last 256 are not described any more */

typedef struct alarm_board {
    int64_t (*alarms)[TC_ALARM_WORDS]; /* (ALARMS), page-locked */
    int64_t tickets;                   /* given out so far */
    struct {
        int64_t ticket;
        tc_index_check check;
    } notes[ALARMS];
} alarm_board;

static alarm_board
    *_Atomic boards[TC_CUDA_DEVICES]; /* NULL: no check so far. They are never freed: kernels may write to them at any time */

/* The device's board, made with its first check, or NULL without page-locked memory. The lock is held, the device selected. */
static alarm_board *board_of(const tc_cuda_api *api, int index)
{
    alarm_board *board = atomic_load(&boards[tc_cuda_slot(index)]);
    void *memory = NULL;
    if (board) return board;
    if (api->allocate_host(&memory, sizeof *board->alarms * ALARMS) != 0) return NULL;
    board = tc_allocate(sizeof *board);
    if (!board) return NULL; /* the page stays: the next check makes another one */
    memset(memory, 0, sizeof *board->alarms * ALARMS);
    memset(board, 0, sizeof *board);
    board->alarms = memory;
    atomic_store(&boards[tc_cuda_slot(index)], board);
    return board;
}

tc_status tc_cuda_check_later(int index, const tc_index_check *check, int64_t **alarm, int64_t *ticket, tc_error *err)
{
    TC_CUDA_STAY(stay);
    TC_TRY(tc_cuda_enter(&stay, index, err));
    *alarm = NULL;
    tc_cuda_lock(index);
    alarm_board *board = board_of(stay.api, index);
    if (board) {
        const int64_t place = board->tickets % ALARMS;
        *ticket = board->notes[place].ticket = ++board->tickets;
        board->notes[place].check = *check;
        *alarm = board->alarms[place];
    }
    tc_cuda_unlock(index);
    return TC_OK;
}

static int64_t ticket_at(const alarm_board *board, int place)
{
    return __atomic_load_n(&board->alarms[place][TC_ALARM_TICKET], __ATOMIC_RELAXED);
}

static bool any_alarm(const alarm_board *board)
{
    for (int place = 0; place < ALARMS; place++)
        if (ticket_at(board, place)) return true;
    return false;
}

/* The place of the earliest alarm; all that are seen are taken back, and none that another thread's call raises meanwhile. The lock is
 * held. */
static int take_first(alarm_board *board, int64_t alarm[TC_ALARM_WORDS])
{
    int first = -1;
    for (int place = 0; place < ALARMS; place++) {
        const int64_t ticket = ticket_at(board, place);
        if (!ticket) continue;
        if (first < 0 || ticket < alarm[TC_ALARM_TICKET]) {
            first = place;
            memcpy(alarm, board->alarms[place], sizeof *board->alarms);
        }
        memset(board->alarms[place], 0, sizeof *board->alarms);
    }
    return first;
}

tc_status tc_cuda_earlier_errors(const tc_cuda_api *api, int index, tc_error *err)
{
    alarm_board *board = atomic_load(&boards[tc_cuda_slot(index)]);
    int64_t alarm[TC_ALARM_WORDS];
    char name[TC_DEVICE_TEXT];
    tc_error found;
    if (!board || !any_alarm(board)) return TC_OK;
    const int code = tc_cuda_wait_for_all(api, index); /* another stream may be writing its alarm */
    if (code) return tc_cuda_failed(api, index, "waiting", code, err);
    tc_cuda_lock(index);
    const int place = take_first(board, alarm);
    const bool known = place >= 0 && board->notes[place].ticket == alarm[TC_ALARM_TICKET];
    const tc_index_check check = known ? board->notes[place].check : (tc_index_check){.length = 0};
    tc_cuda_unlock(index);
    if (place < 0) return TC_OK; /* another thread has it */
    const char *device = tc_device_text(name, (tc_device){TC_CUDA, index});
    if (!known)
        return tc_fail(
            err, TC_ERROR_INDEX,
            "an earlier call on %s had the index %lld as element %lld of its indices, or a probability with these bits, which is out "
            "of range; what was computed from it since then is wrong",
            device, (long long)alarm[TC_ALARM_VALUE], (long long)alarm[TC_ALARM_POSITION]);
    const tc_status status = check.fail(&check, alarm[TC_ALARM_POSITION], alarm[TC_ALARM_VALUE], &found);
    return tc_fail(err, status,
                   "%s (in an earlier call on %s, which did not wait for the check; what was computed from it since then is "
                   "wrong)",
                   found.message, device);
}
