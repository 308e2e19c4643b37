/* cast.h: one element after another, between any two dtypes. */
#ifndef TC_CAST_H
#define TC_CAST_H

#include "../types.h"
#include "simd.h"

typedef uint8_t boolean; /* written as 0 or 1; memory from outside may have any other byte for true */
typedef uint16_t float16, bfloat16;

static const int8_t element_bytes[TC_DTYPE_COUNT] = {4, 8, 2, 2, 8, 4, 1, 1}; /* in the order of tc_dtype */

/* Elements as bits, of any dtype of so many bytes. */
typedef uint16_t __attribute__((may_alias)) word_2;
typedef uint32_t __attribute__((may_alias)) word_4;
typedef uint64_t __attribute__((may_alias)) word_8;

/* What a macro makes of an element. */
#define SAME(x) (x)
#define NOT_ZERO(x) ((x) != 0)

/* NOT_ZERO of 16 bools. */
typedef uint8_t boolean_lanes __attribute__((vector_size(16)));
static inline boolean_lanes truths(boolean_lanes x) { return (boolean_lanes)(x != 0) & 1; }

/* to[i * to_step] = from[i * from_step] cast, i < n. */
typedef void (*cast_run)(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t n);

/* [from][to]. The table of the float32 kernels, which those of float64 share. */
#define CAST_RUNS_F32(isa) TC_PASTE4(tc_cast_runs, _f32_, isa, )
#define cast_runs CAST_RUNS_F32(TC_ISA)
extern const cast_run cast_runs[TC_DTYPE_COUNT][TC_DTYPE_COUNT];

#endif
