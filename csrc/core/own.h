/* own.h: the tensors that a function makes for itself, released when it is left. */
#ifndef TC_CORE_OWN_H
#define TC_CORE_OWN_H

#include "tensor.h"

static inline void tc_release_local(tc_tensor **tensor) { tc_tensor_release(*tensor); }

/* A local reference that is released when its block is left, in any way:  TC_OWNED tc_tensor *copy = NULL; */
#define TC_OWNED __attribute__((cleanup(tc_release_local)))

/* Gives the reference to the caller. */
static inline tc_tensor *tc_take(tc_tensor **local)
{
    tc_tensor *tensor = *local;
    *local = NULL;
    return tensor;
}

#endif
