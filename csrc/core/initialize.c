/* initialize.c: what a process must do before its first call. */
#include "../transformer_c.h"
#include "cpu.h"
#include "threads.h"

tc_status tc_initialize(tc_error *err)
{
    const tc_status status = tc_cpu_initialize(err);
    return status == TC_OK ? tc_threads_initialize(err) : status;
}
