/* own.h: leaving a function on an error, with what it made on the way released by itself. */
#ifndef TC_CORE_OWN_H
#define TC_CORE_OWN_H

#include "tensor.h"

static inline void tc_release_local(tc_tensor **tensor) { tc_tensor_release(*tensor); }

/* A local reference that is released when its block is left, by whatever way:  TC_OWNED tc_tensor *copy = NULL; */
#define TC_OWNED __attribute__((cleanup(tc_release_local)))

/* The reference is the caller's from here on. */
static inline tc_tensor *tc_take(tc_tensor **local)
{
    tc_tensor *tensor = *local;
    *local = NULL;
    return tensor;
}

/* The one macro that hides control flow: returns from the function when a call fails. */
#undef TC_TRY
#define TC_TRY(call)                                                                                                                       \
    do {                                                                                                                                   \
        const tc_status tried = (call);                                                                                                    \
        if (tried != TC_OK) return tried;                                                                                                  \
    } while (0)

#endif
