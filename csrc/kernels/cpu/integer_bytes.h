/* integer_bytes.h: see integer_bytes.c. */
#ifndef TC_INTEGER_BYTES_H
#define TC_INTEGER_BYTES_H

#include "../elementwise.h"
#include "cast.h"

/* No element of a loop depends on one before: an operand is the result itself, or apart from it. Saves a check and a second loop. */
#ifdef __clang__
#define SIDE_BY_SIDE /* where clang makes no vectors it would warn */
#else
#define SIDE_BY_SIDE TC_PRAGMA(GCC ivdep)
#endif

/* False where an operand is neither dense bytes nor a number of that size: then nothing is done. */
#define integer_bytes TC_PASTE4(tc_integer, _bytes_, TC_ISA, )
bool integer_bytes(const tc_elementwise_args *a, int64_t begin, int64_t end);

#endif
