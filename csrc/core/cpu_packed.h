/* cpu_packed.h: packed weights, kept with the storage they were made from until it is written to. */
#ifndef TC_CORE_CPU_PACKED_H
#define TC_CORE_CPU_PACKED_H

#include "../kernels/gemm.h"
#include "plan.h"

typedef struct tc_packed {
    tc_prepared prepared; /* first: its release() drops a reference */
    atomic_int references;
    unsigned version; /* of the storage */
    size_t bytes;
    void *panels;
} tc_packed;

/* Packs B as `pack` says (its `panels` field is filled in). With a storage, panels packed earlier from the same place are used again as
 * long as the storage's version is the same. Any number of threads may call at once. */
TC_CHECKED tc_status tc_packed_acquire(tc_packed **out, const tc_gemm_pack_args *pack, tc_dtype compute, tc_storage *storage,
                                       tc_error *err);

#endif
