/* cuda_alarm.c: errors that kernels find. A kernel that checks indices writes to an alarm in page-locked memory; the host looks at the
 * alarms whenever it has waited for the device anyway, and says then which earlier call it was. */
#include <stdio.h>
#include <string.h>

#include "../kernels/check_index.h"
#include "allocator.h"
#include "cuda.h"
#include "status.h"

#define ALARMS 256 /* of a device; the checks of earlier calls than the last 256, but for those of graphs, are not described any more */

/* A check of a captured graph, each start of which may raise the alarm. */
typedef struct graph_note {
    int64_t ticket;
    const tc_cuda_graph *graph;
    tc_index_check check;
    struct graph_note *next;
} graph_note;

typedef struct alarm_board {
    int64_t (*alarms)[TC_ALARM_WORDS]; /* (ALARMS), page-locked */
    int64_t tickets;                   /* given out so far */
    struct {
        int64_t ticket;
        tc_index_check check;
    } notes[ALARMS];
    graph_note *of_graphs;
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
    const tc_cuda_graph *graph = tc_cuda_capture_here();
    graph_note *kept = graph ? tc_allocate(sizeof *kept) : NULL;
    if (graph && !kept) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: a check of a captured graph");
    *alarm = NULL;
    tc_cuda_lock(index);
    alarm_board *board = board_of(stay.api, index);
    if (board) {
        const int64_t place = board->tickets % ALARMS;
        *ticket = board->notes[place].ticket = ++board->tickets;
        board->notes[place].check = *check;
        *alarm = board->alarms[place];
    }
    if (board && kept) {
        *kept = (graph_note){.ticket = *ticket, .graph = graph, .check = *check, .next = board->of_graphs};
        board->of_graphs = kept;
        kept = NULL;
    }
    tc_cuda_unlock(index);
    tc_free(kept, sizeof *kept);
    return TC_OK;
}

void tc_cuda_forget_checks(int index, const tc_cuda_graph *graph)
{
    alarm_board *board = atomic_load(&boards[tc_cuda_slot(index)]);
    for (graph_note **at = board ? &board->of_graphs : NULL; at && *at;) {
        graph_note *note = *at;
        if (note->graph != graph) {
            at = &note->next;
            continue;
        }
        *at = note->next;
        tc_free(note, sizeof *note);
    }
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

/* An alarm that was raised, and its check. */
typedef struct raised {
    int64_t words[TC_ALARM_WORDS];
    bool known;
    tc_index_check check;
} raised;

static raised note_of(const alarm_board *board, int place)
{
    raised found = {.known = false};
    memcpy(found.words, board->alarms[place], sizeof found.words);
    const int64_t ticket = found.words[TC_ALARM_TICKET];
    found.known = board->notes[place].ticket == ticket;
    if (found.known) found.check = board->notes[place].check;
    for (const graph_note *note = board->of_graphs; note && !found.known; note = note->next) {
        found.known = note->ticket == ticket;
        if (found.known) found.check = note->check;
    }
    return found;
}

#define TOLD 2

/* The earliest alarms, and how many there are; all that are seen are taken back, and none that another thread's call raises meanwhile. The
 * lock is held. */
static int take_alarms(raised first[TOLD], alarm_board *board)
{
    int count = 0;
    for (int place = 0; place < ALARMS; place++) {
        const int64_t ticket = ticket_at(board, place);
        if (!ticket) continue;
        const bool is_first = count == 0 || ticket < first[0].words[TC_ALARM_TICKET];
        if (is_first && count > 0) first[1] = first[0];
        if (is_first || count == 1 || ticket < first[1].words[TC_ALARM_TICKET]) first[is_first ? 0 : 1] = note_of(board, place);
        count++;
        memset(board->alarms[place], 0, sizeof *board->alarms);
    }
    return count;
}

static void describe(tc_error *text, const raised *alarm)
{
    const int64_t position = alarm->words[TC_ALARM_POSITION], value = alarm->words[TC_ALARM_VALUE];
    if (alarm->known)
        (void)!alarm->check.fail(&alarm->check, position, value, text);
    else
        (void)!tc_fail(text, TC_ERROR_STATE, "index %lld (element %lld of the indices), or a probability with these bits, is out of range",
                       (long long)value, (long long)position);
}

/* TC_ERROR_STATE, whatever the call itself would have given: Python takes an IndexError of another call, as in an object's __getitem__, for
 * the end of a loop. */
tc_status tc_cuda_earlier_errors(const tc_cuda_api *api, int index, tc_error *err)
{
    alarm_board *board = atomic_load(&boards[tc_cuda_slot(index)]);
    char device[TC_DEVICE_TEXT], others[sizeof(tc_error) + 64] = "";
    raised first[TOLD];
    tc_error text;
    if (!board || !any_alarm(board)) return TC_OK;
    const int code = tc_cuda_wait_for_all(api, index); /* another stream may be writing its alarm */
    if (code) return tc_cuda_failed(api, index, "waiting", code, err);
    tc_cuda_lock(index);
    const int count = take_alarms(first, board);
    tc_cuda_unlock(index);
    if (count == 0) return TC_OK; /* another thread has it */
    if (count > 1) {
        describe(&text, &first[1]);
        snprintf(others, sizeof others, "; %d more since, the next: %.120s", count - 1, text.message);
    }
    describe(&text, &first[0]);
    return tc_fail(err, TC_ERROR_STATE,
                   "%.*s (in an earlier call on %s, which did not wait for the check; what was computed from it since then is wrong%s)",
                   count > 1 ? 200 : 340, text.message, tc_device_text(device, (tc_device){TC_CUDA, index}), others);
}
