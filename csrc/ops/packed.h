/* packed.h: packed weights, kept with the storage they were made from until it is written to. */
#ifndef TC_OPS_PACKED_H
#define TC_OPS_PACKED_H

#include "../core/tensor.h"
#include "../kernels/gemm.h"

typedef struct tc_packed tc_packed; /* panels with a reference count */

/* Packs B as `pack` says (its `panels` field is filled in) for the CPU. With a storage, what was packed from the same place of it
 * before is used again as long as the storage's version is the same. Any number of threads may ask at once. */
TC_CHECKED tc_status tc_packed_acquire(tc_packed **out, const tc_gemm_pack_args *pack, tc_dtype compute, tc_storage *storage,
                                       tc_error *err);
const void *tc_packed_panels(const tc_packed *packed);
void tc_packed_release(tc_packed *packed); /* NULL is allowed */

#endif
