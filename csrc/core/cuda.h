/* cuda.h: GPUs, through the CUDA library that is opened on first use. The library beside the extension module is
 * libtransformer_c_cuda.so; TRANSFORMER_C_CUDA_LIBRARY names another one, which in tests is an emulated GPU. */
#ifndef TC_CORE_CUDA_H
#define TC_CORE_CUDA_H

#include "../kernels/cuda_api.h"
#include "backend.h"

/* The library's functions, with the device selected for this thread; TC_ERROR_STATE with the reason when that cannot be: no
 * library, no or an old driver, no such device, a process forked from one that used CUDA. */
TC_CHECKED tc_status tc_cuda_device(const tc_cuda_api **out, int index, tc_error *err);
/* What the library says of its error number `code`, after "<what> on <device> failed: ". */
TC_CHECKED tc_status tc_cuda_failed(const tc_cuda_api *api, int index, const char *what, int code, tc_error *err);
int tc_cuda_slot(int index); /* from 0: a place in tables of devices */
#define TC_CUDA_DEVICES 64

/* Memory of a device from its cache (cuda_memory.c). */
TC_CHECKED tc_status tc_cuda_allocate(int index, size_t bytes, void **out, tc_error *err);
void tc_cuda_free(int index, void *block, size_t bytes);

/* The emulated GPU takes one call at a time; for a real one these do nothing. */
void tc_cuda_lock(const tc_cuda_api *api);
void tc_cuda_unlock(const tc_cuda_api *api);

void *tc_cuda_current_stream(void); /* of this thread; NULL: the default one of the device */

extern const tc_backend tc_cuda_backend;

#endif
