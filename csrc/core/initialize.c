/* initialize.c: what a process must do before its first call. */
#include "../transformer_c.h"
#include "cpu.h"
#include "lock.h"
#include "threads.h"

tc_status tc_initialize(tc_error *err)
{
    TC_TRY(tc_locks_initialize(err));
    TC_TRY(tc_cpu_initialize(err));
    return tc_threads_initialize(err);
}
