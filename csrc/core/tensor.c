/* tensor.c: storages, windows on them, and copying values between them. */
#include "tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../kernels/copy.h"
#include "allocator.h"
#include "backend.h"
#include "layout.h"
#include "status.h"
#include "tape.h"

/* ---- storage -------------------------------------------------------------------------------------------------- */

static void storage_release(tc_storage *storage)
{
    if (atomic_fetch_sub_explicit(&storage->references, 1, memory_order_acq_rel) != 1) return;
    for (tc_attachment *a = atomic_load(&storage->attachments), *next; a; a = next) {
        next = a->next;
        a->release(a);
    }
    if (storage->owned) {
        const tc_backend *backend;
        tc_error ignored;
        if (tc_backend_for(&backend, storage->device, &ignored) == TC_OK)
            backend->free(storage->device.index, storage->data, storage->bytes);
    } else if (storage->release) {
        storage->release(storage->context);
    }
    tc_free(storage, sizeof *storage);
}

static tc_storage *storage_new(void)
{
    tc_storage *storage = tc_allocate(sizeof *storage);
    if (!storage) return NULL;
    memset(storage, 0, sizeof *storage);
    atomic_init(&storage->references, 1);
    storage->writable = true;
    return storage;
}

/* ---- tensors: making and freeing --------------------------------------------------------------------------------- */

bool tc_multiply_sizes(int64_t a, int64_t b, int64_t *product)
{
    return !__builtin_mul_overflow(a, b, product) && *product < INT64_MAX / 2;
}

/* Checks a shape and counts its elements and bytes. */
static tc_status measure_shape(int ndim, const int64_t *shape, tc_dtype dtype, int64_t *numel, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    if (ndim < 0 || ndim > TC_MAX_DIMS) return tc_fail(err, TC_ERROR_VALUE, "a tensor has at most %d axes, got %d", TC_MAX_DIMS, ndim);
    int64_t count = 1, bytes;
    bool empty = false, fits = true;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) return tc_fail(err, TC_ERROR_VALUE, "the shape %s has a negative length", tc_shape_text(text, ndim, shape));
        if (shape[i] == 0)
            empty = true;
        else if (!tc_multiply_sizes(count, shape[i], &count))
            fits = false;
    }
    if (empty)
        count = 0;
    else if (!fits || !tc_multiply_sizes(count, (int64_t)tc_dtype_size(dtype), &bytes))
        return tc_fail(err, TC_ERROR_VALUE, "the shape %s has more elements than memory can address", tc_shape_text(text, ndim, shape));
    *numel = count;
    return TC_OK;
}

static void contiguous_strides(tc_tensor *tensor)
{
    int64_t step = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        tensor->strides[i] = step;
        step *= tensor->shape[i] > 0 ? tensor->shape[i] : 1;
    }
    tensor->contiguous = true;
}

static bool has_contiguous_strides(const tc_tensor *tensor)
{
    if (tensor->numel == 0) return true;
    int64_t step = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != step) return false;
        step *= tensor->shape[i];
    }
    return true;
}

/* A header with shape, dtype and count; storage, data and strides are the caller's to fill. */
static tc_status header_new(tc_tensor **out, int ndim, const int64_t *shape, tc_dtype dtype, tc_error *err)
{
    int64_t numel = 0;
    tc_status status = measure_shape(ndim, shape, dtype, &numel, err);
    if (status != TC_OK) return status;
    tc_tensor *tensor = tc_allocate(sizeof *tensor);
    if (!tensor) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: a tensor header");
    memset(tensor, 0, offsetof(tc_tensor, shape));
    atomic_init(&tensor->references, 1);
    tensor->ndim = ndim;
    tensor->dtype = dtype;
    tensor->numel = numel;
    for (int i = 0; i < ndim; i++) tensor->shape[i] = shape[i];
    *out = tensor;
    return TC_OK;
}

tc_status tc_tensor_empty(tc_tensor **out, int ndim, const int64_t *shape, tc_dtype dtype, tc_device device, tc_error *err)
{
    tc_tensor *tensor = NULL;
    tc_storage *storage = NULL;
    const tc_backend *backend;
    tc_status status = TC_OK;
    TC_TRY(tc_backend_for(&backend, device, err));
    TC_TRY(header_new(&tensor, ndim, shape, dtype, err));
    storage = storage_new();
    if (!storage) TC_TRY(tc_fail(err, TC_ERROR_MEMORY, "out of memory: a storage header"));
    storage->device = device;
    storage->bytes = (size_t)tensor->numel * tc_dtype_size(dtype);
    status = backend->allocate(device.index, storage->bytes, &storage->data, err);
    if (status == TC_ERROR_MEMORY && device.type == TC_CPU) { /* a GPU's message says more */
        char text[TC_SHAPE_TEXT];
        tc_fail(err, TC_ERROR_MEMORY, "out of memory: a tensor of shape %s and dtype %s needs %zu bytes on %s",
                tc_shape_text(text, ndim, shape), tc_dtype_name(dtype), storage->bytes, backend->name);
    }
    if (status != TC_OK) goto cleanup;
    storage->owned = true;
    tensor->storage = storage;
    tensor->data = storage->data;
    contiguous_strides(tensor);
    *out = tensor;
    return TC_OK;
cleanup:
    if (storage) tc_free(storage, sizeof *storage);
    if (tensor) tc_free(tensor, sizeof *tensor);
    return status;
}

tc_status tc_tensor_wrap(tc_tensor **out, void *data, int ndim, const int64_t *shape, const int64_t *strides, tc_dtype dtype, bool writable,
                         void (*release)(void *context), void *context, tc_error *err)
{
    tc_tensor *tensor;
    tc_status status = header_new(&tensor, ndim, shape, dtype, err);
    if (status != TC_OK) return status;
    tc_storage *storage = storage_new();
    if (!storage) {
        tc_free(tensor, sizeof *tensor);
        return tc_fail(err, TC_ERROR_MEMORY, "out of memory: a storage header");
    }
    storage->device = (tc_device){TC_CPU, 0};
    storage->data = data;
    storage->bytes = (size_t)tensor->numel * tc_dtype_size(dtype);
    storage->writable = writable;
    storage->release = release;
    storage->context = context;
    atomic_init(&storage->shared, true);
    tensor->storage = storage;
    tensor->data = data;
    for (int i = 0; i < ndim; i++) tensor->strides[i] = strides[i];
    tensor->contiguous = has_contiguous_strides(tensor);
    *out = tensor;
    return TC_OK;
}

tc_tensor *tc_tensor_retain(tc_tensor *tensor)
{
    if (tensor) atomic_fetch_add_explicit(&tensor->references, 1, memory_order_relaxed);
    return tensor;
}

void tc_tensor_release(tc_tensor *tensor)
{
    while (tensor && atomic_fetch_sub_explicit(&tensor->references, 1, memory_order_acq_rel) == 1) {
        tc_node *node = tensor->node;
        tc_tensor *grad = tensor->grad; /* next: assigned gradients may have gradients of their own, to any depth */
        tc_tensor_release(tensor->grad_slot);
        storage_release(tensor->storage);
        tc_free(tensor, sizeof *tensor);
        if (node) tc_node_release(node);
        tensor = grad;
    }
}

tc_status tc_tensor_alias(tc_tensor **out, tc_tensor *base, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset,
                          tc_error *err)
{
    tc_tensor *tensor;
    tc_status status = header_new(&tensor, ndim, shape, base->dtype, err);
    if (status != TC_OK) return status;
    atomic_fetch_add_explicit(&base->storage->references, 1, memory_order_relaxed);
    tensor->storage = base->storage;
    tensor->data = tensor->numel ? base->data + offset * (int64_t)tc_dtype_size(base->dtype) : base->data;
    tensor->version = atomic_load_explicit(&base->storage->version, memory_order_acquire);
    for (int i = 0; i < ndim; i++) tensor->strides[i] = strides[i];
    tensor->contiguous = has_contiguous_strides(tensor);
    *out = tensor;
    return TC_OK;
}

tc_status tc_tensor_detach(tc_tensor **out, tc_tensor *tensor, tc_error *err)
{
    tc_status status = tc_tensor_alias(out, tensor, tensor->ndim, tensor->shape, tensor->strides, 0, err);
    if (status == TC_OK) (*out)->version = TC_NEVER_STALE;
    return status;
}

tc_status tc_tensor_like_as(tc_tensor **out, const tc_tensor *model, tc_dtype dtype, tc_error *err)
{
    return tc_tensor_empty(out, model->ndim, model->shape, dtype, model->storage->device, err);
}

tc_status tc_tensor_like(tc_tensor **out, const tc_tensor *model, tc_error *err)
{
    return tc_tensor_like_as(out, model, model->dtype, err);
}

tc_status tc_tensor_zeros(tc_tensor **out, int ndim, const int64_t *shape, tc_dtype dtype, tc_device device, tc_error *err)
{
    return tc_tensor_full(out, ndim, shape, 0.0, dtype, device, err);
}

tc_status tc_tensor_full(tc_tensor **out, int ndim, const int64_t *shape, double value, tc_dtype dtype, tc_device device, tc_error *err)
{
    tc_tensor *scalar = NULL, *tensor = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_tensor_wrap(&scalar, &value, 0, NULL, NULL, TC_FLOAT64, false, NULL, NULL, err));
    TC_TRY(tc_tensor_empty(&tensor, ndim, shape, dtype, device, err));
    TC_TRY(tc_tensor_copy(tensor, scalar, err));
    *out = tc_tensor_retain(tensor);
cleanup:
    tc_tensor_release(scalar);
    tc_tensor_release(tensor);
    return status;
}

/* ---- copying ------------------------------------------------------------------------------------------------------ */

/* Same device: one strided, casting kernel. The shapes are equal up to broadcasting, which has been checked. */
static tc_status copy_on_device(tc_tensor *to, const tc_tensor *from, tc_error *err)
{
    if (to->contiguous && from->contiguous && to->dtype == from->dtype && to->numel == from->numel) {
        const tc_backend *backend;
        tc_status status = tc_backend_for(&backend, to->storage->device, err);
        if (status != TC_OK) return status;
        const size_t bytes = (size_t)to->numel * tc_dtype_size(to->dtype);
        return backend->copy(to->storage->device.index, to->data, to->storage->device.type == TC_CPU, from->data,
                             from->storage->device.type == TC_CPU, bytes, err);
    }
    tc_copy_args args = {.to = to->data, .from = from->data, .to_dtype = to->dtype, .from_dtype = from->dtype, .numel = to->numel};
    memcpy(args.shape, to->shape, sizeof(int64_t) * (size_t)to->ndim);
    memcpy(args.to_strides, to->strides, sizeof(int64_t) * (size_t)to->ndim);
    tc_broadcast_strides(args.from_strides, from, to->ndim, to->shape);
    int64_t *const strides[2] = {args.to_strides, args.from_strides};
    args.ndim = tc_layout_merge(to->ndim, args.shape, 2, strides, true);
    return tc_run(to->storage->device, TC_FLOAT32, &tc_kernel_copy, &args, (to->numel + TC_COPY_BLOCK - 1) / TC_COPY_BLOCK, TC_COPY_BLOCK,
                  0, err);
}

/* From a GPU to another one: by the host, which waits. A stream's order is that of its device. */
static tc_status copy_by_host(tc_tensor *to, const tc_tensor *from, tc_error *err)
{
    tc_tensor *host = NULL;
    tc_status status = TC_OK;
    TC_TRY(tc_tensor_empty(&host, from->ndim, from->shape, from->dtype, (tc_device){TC_CPU, 0}, err));
    TC_TRY(tc_tensor_copy(host, from, err));
    TC_TRY(tc_tensor_copy(to, host, err));
cleanup:
    tc_tensor_release(host);
    return status;
}

/* Between the host and a GPU: made contiguous and cast where it is, moved, then laid out where it goes. */
static tc_status copy_across(tc_tensor *to, const tc_tensor *from, tc_error *err)
{
    tc_tensor *packed = NULL, *landed = NULL;
    const tc_backend *backend;
    tc_status status = TC_OK;
    TC_TRY(tc_tensor_empty(&packed, from->ndim, from->shape, to->dtype, from->storage->device, err));
    TC_TRY(copy_on_device(packed, from, err));
    TC_TRY(tc_tensor_empty(&landed, from->ndim, from->shape, to->dtype, to->storage->device, err));
    const bool to_host = to->storage->device.type == TC_CPU, from_host = from->storage->device.type == TC_CPU;
    const tc_device device = to_host ? from->storage->device : to->storage->device;
    TC_TRY(tc_backend_for(&backend, device, err));
    TC_TRY(
        backend->copy(device.index, landed->data, to_host, packed->data, from_host, (size_t)from->numel * tc_dtype_size(to->dtype), err));
    TC_TRY(copy_on_device(to, landed, err));
cleanup:
    tc_tensor_release(packed);
    tc_tensor_release(landed);
    return status;
}

tc_status tc_tensor_copy(tc_tensor *to, const tc_tensor *from, tc_error *err)
{
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_status status = tc_broadcast_shape(&ndim, shape, to->ndim, to->shape, from->ndim, from->shape, err);
    if (status != TC_OK || ndim != to->ndim || memcmp(shape, to->shape, sizeof(int64_t) * (size_t)ndim) != 0)
        return tc_fail(err, TC_ERROR_VALUE, "a value of shape %s cannot be written to shape %s: it must broadcast to it",
                       tc_shape_text(a, from->ndim, from->shape), tc_shape_text(b, to->ndim, to->shape));
    if (to->numel == 0) return TC_OK;
    const tc_device x = to->storage->device, y = from->storage->device;
    if (x.type == y.type && x.index == y.index) return copy_on_device(to, from, err);
    return x.type == y.type ? copy_by_host(to, from, err) : copy_across(to, from, err);
}

tc_status tc_tensor_as(tc_tensor **out, tc_tensor *tensor, tc_dtype dtype, tc_error *err)
{
    if (tensor->contiguous && tensor->dtype == dtype) {
        *out = tc_tensor_retain(tensor);
        return TC_OK;
    }
    tc_tensor *copy;
    tc_status status = tc_tensor_like_as(&copy, tensor, dtype, err);
    if (status != TC_OK) return status;
    status = tc_tensor_copy(copy, tensor, err);
    if (status != TC_OK)
        tc_tensor_release(copy);
    else
        *out = copy;
    return status;
}

tc_status tc_tensor_contiguous(tc_tensor **out, tc_tensor *tensor, tc_error *err) { return tc_tensor_as(out, tensor, tensor->dtype, err); }

/* ---- other memory ----------------------------------------------------------------------------------------------------- */

tc_status tc_tensor_set_data(tc_tensor *tensor, tc_tensor *source, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (tensor->node) return tc_fail(err, TC_ERROR_STATE, "the data of a result cannot be replaced, only that of a leaf; use detach()");
    if (!tc_tensor_same_shape(tensor, source))
        return tc_fail(err, TC_ERROR_VALUE, "the new data has shape %s but the tensor has %s; they must be equal",
                       tc_tensor_text(a, source), tc_tensor_text(b, tensor));
    if (tensor->requires_grad && !tc_dtype_is_float(source->dtype))
        return tc_fail(err, TC_ERROR_TYPE, "the new data is %s but the tensor requires a gradient, which only floating tensors have",
                       tc_dtype_name(source->dtype));
    tc_storage *before = tensor->storage;
    const tc_device x = before->device, y = source->storage->device;
    if (tensor->dtype != source->dtype || x.type != y.type || x.index != y.index) {
        tc_tensor_release(tensor->grad);
        tc_tensor_release(tensor->grad_slot);
        tensor->grad = tensor->grad_slot = NULL;
    }
    atomic_fetch_add_explicit(&source->storage->references, 1, memory_order_relaxed);
    tensor->storage = source->storage;
    tensor->data = source->data;
    tensor->dtype = source->dtype;
    tensor->contiguous = source->contiguous;
    tensor->version = TC_NEVER_STALE;
    memcpy(tensor->strides, source->strides, sizeof(int64_t) * (size_t)source->ndim);
    storage_release(before);
    return TC_OK;
}

tc_status tc_tensor_set_grad_slot(tc_tensor *tensor, tc_tensor *slot, tc_error *err)
{
    if (slot && (!tc_tensor_same_shape(tensor, slot) || slot->dtype != tensor->dtype || !slot->contiguous))
        return tc_fail(err, TC_ERROR_VALUE, "the place for a gradient must have the parameter's shape and dtype and be contiguous");
    tc_tensor_retain(slot);
    tc_tensor_release(tensor->grad_slot);
    tensor->grad_slot = slot;
    return TC_OK;
}

/* ---- properties ----------------------------------------------------------------------------------------------------- */

int tc_tensor_ndim(const tc_tensor *tensor) { return tensor->ndim; }
const int64_t *tc_tensor_shape(const tc_tensor *tensor) { return tensor->shape; }
const int64_t *tc_tensor_strides(const tc_tensor *tensor) { return tensor->strides; }
int64_t tc_tensor_numel(const tc_tensor *tensor) { return tensor->numel; }
tc_dtype tc_tensor_dtype(const tc_tensor *tensor) { return tensor->dtype; }
tc_device tc_tensor_device(const tc_tensor *tensor) { return tensor->storage->device; }
void *tc_tensor_data(const tc_tensor *tensor) { return tensor->data; }
bool tc_tensor_is_contiguous(const tc_tensor *tensor) { return tensor->contiguous; }
bool tc_tensor_on_cpu(const tc_tensor *tensor) { return tensor->storage->device.type == TC_CPU; }

bool tc_tensor_same_shape(const tc_tensor *a, const tc_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof(int64_t) * (size_t)a->ndim) == 0;
}

const char *tc_tensor_text(char buffer[TC_SHAPE_TEXT], const tc_tensor *tensor)
{
    return tc_shape_text(buffer, tensor->ndim, tensor->shape);
}

/* ---- broadcasting ----------------------------------------------------------------------------------------------------- */

tc_status tc_broadcast_shape(int *ndim, int64_t shape[TC_MAX_DIMS], int a_ndim, const int64_t *a, int b_ndim, const int64_t *b,
                             tc_error *err)
{
    const int n = a_ndim > b_ndim ? a_ndim : b_ndim;
    for (int i = 0; i < n; i++) { /* from the last axis */
        const int64_t x = i < a_ndim ? a[a_ndim - 1 - i] : 1, y = i < b_ndim ? b[b_ndim - 1 - i] : 1;
        if (x != y && x != 1 && y != 1) {
            char p[TC_SHAPE_TEXT], q[TC_SHAPE_TEXT];
            return tc_fail(err, TC_ERROR_VALUE,
                           "shapes %s and %s do not broadcast: axis %d has lengths %lld and %lld, which must be equal or 1",
                           tc_shape_text(p, a_ndim, a), tc_shape_text(q, b_ndim, b), -1 - i, (long long)x, (long long)y);
        }
        shape[n - 1 - i] = x == 1 ? y : x;
    }
    *ndim = n;
    return TC_OK;
}

void tc_broadcast_strides(int64_t strides[TC_MAX_DIMS], const tc_tensor *tensor, int ndim, const int64_t *shape)
{
    const int lead = ndim - tensor->ndim;
    for (int i = 0; i < ndim; i++) strides[i] = i < lead || tensor->shape[i - lead] != shape[i] ? 0 : tensor->strides[i - lead];
}
