/* cpu_plan.h: the planners of CPUs, one for each kernel that needs a plan. Each takes the args of its kernel. */
#ifndef TC_CORE_CPU_PLAN_H
#define TC_CORE_CPU_PLAN_H

#include <stdbool.h>

#include "../kernels/gemm.h"
#include "plan.h"

void tc_cpu_plan_gemm(tc_plan *plan, void *args); /* cpu_gemm.c */
TC_CHECKED tc_status tc_cpu_prepare_gemm(tc_plan *plan, void *args, tc_error *err);
/* Do rows of long sequences go another way than others? */
bool tc_cpu_gemm_goes_by_length(const tc_gemm_args *g, tc_dtype compute);

void tc_cpu_plan_attention_forward(tc_plan *plan, void *args); /* cpu_attention.c */
void tc_cpu_plan_attention_backward(tc_plan *plan, void *args);
void tc_cpu_plan_attention_dbias(tc_plan *plan, void *args);

#endif
