/* argsort.c: the order that sorts rows of floats. */
#include "../sort.h"
#include "simd.h"

#if TC_PRECISION == 64
#define argsort_rows tc_argsort_rows_f64
#else
#define argsort_rows tc_argsort_rows_f32
#endif

TC_DEFINE_KERNEL(argsort)(const void *args, int64_t begin, int64_t end, void *scratch) { argsort_rows(args, begin, end, scratch); }
