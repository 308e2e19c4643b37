/* sort_rows.c: the order that sorts rows, for the kernels of CPUs: nothing in it gains by an instruction set. */
#include "../kernels/sort.h"

#include <string.h>

#include "sort_words.h"

#define FEW_FIRST 16 /* so many of the first are looked for one by one */
#define MANY_FIRST 8 /* of rows that are not so many times as long, all elements are sorted */
#define FEW 8        /* and so many that are all are put in order so */
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
