/* argsort.c: the order that sorts rows of floats. */
#include "simd.h"

typedef real element;
#include "merge_sort.h"

TC_DEFINE_KERNEL(argsort)(const void *args, int64_t begin, int64_t end, void *scratch) { argsort_rows(args, begin, end, scratch); }
