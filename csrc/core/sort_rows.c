/* sort_rows.c: the order that sorts rows, for the kernels of CPUs: nothing in it gains by an instruction set. */
#include "../kernels/sort.h"

#include <string.h>

#include "sort_words.h"

#define FEW_FIRST 16 /* up to this number, the first elements are found one by one */
#define MANY_FIRST 8 /* rows less than this number of times as long as the part that is wanted are sorted completely */
#define FEW 8        /* rows of up to this length are sorted by insertion */
#define RANK_BITS (8 * (int)sizeof(element))
#define LARGEST_RANK (~(uint64_t)0 >> (64 - RANK_BITS))

static int bits_of(uint64_t x) { return x ? 64 - __builtin_clzll(x) : 0; }

#define IS_NAN(x) ((x) != (x))

#define element float
#define rank_integer int32_t
#define SORT(name) name##_f32
#include "sort_rows_template.h"
#undef element
#undef rank_integer
#undef SORT

#define element double
#define rank_integer int64_t
#define SORT(name) name##_f64
#include "sort_rows_template.h"
#undef element
#undef SORT
#undef IS_NAN

#define IS_NAN(x) false
#define element int64_t
#define SORT(name) name##_i64
#include "sort_rows_template.h"
