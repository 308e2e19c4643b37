/* accumulate.c: see accumulate.h. */
#include "accumulate.h"

#include "../kernels/add_in_place.h"
#include "backend.h"
#include "copy.h"
#include "own.h"

static tc_status add_contiguous(tc_tensor *to, const tc_tensor *from, tc_error *err)
{
    TC_ASSERT(to->contiguous && from->contiguous && to->numel == from->numel && to->dtype == from->dtype);
    const tc_add_in_place_args args = {.to = to->data, .from = from->data, .numel = to->numel};
    return tc_run(to->storage->device, to->dtype, &tc_kernel_add_in_place, &args, tc_divide_up(to->numel, TC_ADD_BLOCK), TC_ADD_BLOCK, 0,
                  err);
}

tc_status tc_add_in_place(tc_tensor *to, tc_tensor *from, tc_error *err)
{
    TC_OWNED tc_tensor *sum = NULL, *addend = NULL;
    const tc_backend *backend;
    TC_TRY(tc_backend_for(&backend, to->storage->device, err));
    const tc_dtype compute = backend->compute_dtype(to->dtype);
    TC_TRY(tc_tensor_as(&addend, from, compute, err));
    TC_TRY(tc_tensor_as(&sum, to, compute, err));
    TC_TRY(add_contiguous(sum, addend, err));
    if (sum != to) TC_TRY(tc_tensor_copy(to, sum, err));
    atomic_fetch_add_explicit(&to->storage->version, 1, memory_order_acq_rel);
    return TC_OK;
}

bool tc_tensor_alone(const tc_tensor *tensor)
{
    const tc_storage *storage = tensor->storage;
    return atomic_load(&tensor->references) == 1 && atomic_load(&storage->references) == 1 && storage->owned && tensor->contiguous;
}

tc_status tc_accumulate(tc_tensor **sum, tc_tensor *addend, tc_error *err)
{
    TC_OWNED tc_tensor *added = addend, *own = NULL;
    if (tc_tensor_alone(*sum)) return tc_add_in_place(*sum, added, err);
    if (tc_tensor_alone(added)) {
        TC_TRY(tc_add_in_place(added, *sum, err));
        own = tc_take(&added);
    } else {
        TC_TRY(tc_tensor_like(&own, *sum, err));
        TC_TRY(tc_tensor_copy(own, *sum, err));
        TC_TRY(tc_add_in_place(own, added, err));
    }
    tc_tensor_release(*sum);
    *sum = tc_take(&own);
    return TC_OK;
}
