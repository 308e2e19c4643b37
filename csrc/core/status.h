/* status.h: how code inside the library reports an error. */
#ifndef TC_CORE_STATUS_H
#define TC_CORE_STATUS_H

#include "../transformer_c.h"

/* Writes the message (printf style) into `err` and returns `status`, so that a check reads
 *     if (bad) return tc_fail(err, TC_ERROR_VALUE, "q has head size %" PRId64 " ...", ...);
 * A message says what was given, what was expected, and the fix. */
tc_status tc_fail(tc_error *err, tc_status status, const char *format, ...) TC_PRINTF(3, 4);
#ifdef __clang_analyzer__ /* reads one file at a time, and would mistake a failure for a success */
#define tc_fail(err, status, ...) ((void)tc_fail(err, status, __VA_ARGS__), (status))
#endif

/* "(2, 3, 4)" for messages. Returns `buffer`. */
#define TC_SHAPE_TEXT 128
const char *tc_shape_text(char buffer[TC_SHAPE_TEXT], int ndim, const int64_t *shape);

/* A condition that is true whatever a caller does, unless the library itself is wrong: tested in builds with sanitizers, which define
 * TC_ASSERTIONS. Elsewhere the condition is compiled but never evaluated, so it must not have side effects. Arguments are checked with
 * tc_fail(). */
#ifdef TC_ASSERTIONS
#include <assert.h>
#define TC_ASSERT(condition) assert(condition)
#else
#define TC_ASSERT(condition) ((void)sizeof(!(condition)))
#endif

/* The one macro that hides control flow: returns from the function when a call fails. Its scope (ops/op.h) or TC_OWNED (own.h) releases the
 * tensors that the function has made. */
#define TC_TRY(call)                                                                                                                       \
    do {                                                                                                                                   \
        const tc_status tried = (call);                                                                                                    \
        if (tried != TC_OK) return tried;                                                                                                  \
    } while (0)

#endif
