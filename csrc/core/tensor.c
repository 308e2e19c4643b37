/* tensor.c: storages and views of them. */
#include "tensor.h"

#include <string.h>

#include "allocator.h"
#include "backend.h"
#include "graph.h"
#include "layout.h"
#include "lock.h"
#include "own.h"
#include "tape_view.h"

/* ---- storage -------------------------------------------------------------------------------------------------- */

/* Giving memory back to its owner may release storages in turn, to any depth: an ndarray over a tensor over an ndarray and so on. Those
 * wait on a list until the first release is over. */
static _Thread_local struct {
    tc_storage *waiting; /* the next one is its `data` */
    bool busy;
} giving_back;

static void give_back(tc_storage *storage)
{
    storage->data = giving_back.waiting;
    giving_back.waiting = storage;
    if (giving_back.busy) return;
    giving_back.busy = true;
    for (tc_storage *next; (next = giving_back.waiting) != NULL;) {
        giving_back.waiting = next->data;
        next->release(next->context);
        tc_free(next, sizeof *next);
    }
    giving_back.busy = false;
}

static void storage_release(tc_storage *storage)
{
    if (!tc_drop_reference(&storage->references)) return;
    for (tc_attachment *a = atomic_load(&storage->attachments), *next; a; a = next) {
        next = a->next;
        a->release(a);
    }
    if (!storage->owned && storage->release) {
        give_back(storage);
        return;
    }
    if (storage->owned) {
        const tc_backend *backend;
        tc_error ignored;
        if (tc_backend_for(&backend, storage->device, &ignored) == TC_OK)
            backend->free(storage->device.index, storage->data, storage->bytes);
    }
    tc_free(storage, sizeof *storage);
}

void tc_attach(tc_storage *storage, tc_attachment *attachment)
{
    attachment->next = atomic_load(&storage->attachments);
    while (!atomic_compare_exchange_weak(&storage->attachments, &attachment->next, attachment)) {
    }
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

static tc_status too_large(int ndim, const int64_t *shape, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    return tc_fail(err, TC_ERROR_VALUE, "the shape %s has more elements than memory can address", tc_shape_text(text, ndim, shape));
}

tc_status tc_check_lengths(int ndim, const int64_t *shape, tc_error *err)
{
    int64_t product = 1;
    for (int i = 0; i < ndim; i++)
        if (shape[i] != 0 && !tc_multiply_sizes(product, shape[i], &product)) return too_large(ndim, shape, err);
    return TC_OK;
}

/* Checks a shape and counts its elements. In a tensor without elements the other lengths must fit as well, so that no product of lengths of
 * a tensor overflows, whichever an op multiplies. */
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
    if (!fits || !tc_multiply_sizes(count, (int64_t)tc_dtype_size(dtype), &bytes)) return too_large(ndim, shape, err);
    *numel = empty ? 0 : count;
    return TC_OK;
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
    TC_TRY(measure_shape(ndim, shape, dtype, &numel, err));
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

/* The memory of a new tensor. */
static tc_status storage_for(tc_storage **out, const tc_tensor *tensor, tc_device device, tc_error *err)
{
    const tc_backend *backend;
    TC_TRY(tc_backend_for(&backend, device, err));
    tc_storage *storage = storage_new();
    if (!storage) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: a storage header");
    storage->device = device;
    storage->bytes = (size_t)tensor->numel * tc_dtype_size(tensor->dtype);
    tc_status status = backend->allocate(device.index, storage->bytes, &storage->data, err);
    if (status == TC_ERROR_MEMORY && device.type == TC_CPU) { /* a GPU's message says more */
        char text[TC_SHAPE_TEXT];
        status = tc_fail(err, TC_ERROR_MEMORY, "out of memory: a tensor of shape %s and dtype %s needs %zu bytes on %s",
                         tc_tensor_text(text, tensor), tc_dtype_name(tensor->dtype), storage->bytes, backend->name);
    }
    if (status != TC_OK) {
        tc_free(storage, sizeof *storage);
        return status;
    }
    storage->owned = true;
    if (backend->own) backend->own(device.index, storage->data, storage);
    *out = storage;
    return TC_OK;
}

tc_status tc_tensor_empty(tc_tensor **out, int ndim, const int64_t *shape, tc_dtype dtype, tc_device device, tc_error *err)
{
    tc_tensor *tensor;
    TC_TRY(header_new(&tensor, ndim, shape, dtype, err));
    const tc_status status = storage_for(&tensor->storage, tensor, device, err);
    if (status != TC_OK) {
        tc_free(tensor, sizeof *tensor);
        return status;
    }
    tensor->data = tensor->storage->data;
    if (device.type == TC_CUDA) tensor->capture = tc_graph_number();
    tc_c_strides(tensor->strides, ndim, shape);
    tensor->contiguous = true;
    *out = tensor;
    return TC_OK;
}

static bool is_far(int64_t stride) { return stride > INT32_MAX || stride < INT32_MIN; }

tc_status tc_tensor_wrap(tc_tensor **out, void *data, int ndim, const int64_t *shape, const int64_t *strides, tc_dtype dtype, bool writable,
                         void (*release)(void *context), void *context, tc_error *err)
{
    tc_tensor *tensor;
    TC_TRY(header_new(&tensor, ndim, shape, dtype, err));
    tc_storage *storage = storage_new();
    if (!storage) {
        tc_free(tensor, sizeof *tensor);
        return tc_fail(err, TC_ERROR_MEMORY, "out of memory: a storage header");
    }
    storage->device = (tc_device){TC_CPU, 0};
    storage->data = data;
    storage->writable = writable;
    storage->release = release;
    storage->context = context;
    atomic_init(&storage->shared, true);
    tensor->storage = storage;
    tensor->data = data;
    /* A stride that is never used may be any number: ops multiply strides, so a far one becomes 0. */
    for (int i = 0; i < ndim; i++) tensor->strides[i] = is_far(strides[i]) && (shape[i] <= 1 || tensor->numel == 0) ? 0 : strides[i];
    tensor->contiguous = has_contiguous_strides(tensor);
    storage->bytes = tensor->contiguous ? (size_t)tensor->numel * tc_dtype_size(dtype) : 0;
    *out = tensor;
    return TC_OK;
}

tc_tensor *tc_tensor_retain(tc_tensor *tensor)
{
    if (tensor) tc_add_reference(&tensor->references);
    return tensor;
}

void tc_tensor_release(tc_tensor *tensor)
{
    while (tensor && tc_drop_reference(&tensor->references)) {
        tc_node *node = tensor->node;
        tc_tensor *next = tensor->base ? tensor->base : tensor->grad; /* assigned gradients may have gradients or bases, to any depth */
        TC_ASSERT(!tensor->base || !tensor->grad);
        if (tensor->grad_slot) tc_tensor_release(tensor->grad_slot);
        if (tensor->of) tc_tensor_release(tensor->of);
        storage_release(tensor->storage);
        tc_hook *hooks = tensor->hooks;
        tc_retained *retained = tensor->retained;
        tc_free(tensor, sizeof *tensor);
        if (hooks) tc_hooks_release(hooks);
        if (retained) tc_retained_release(retained);
        if (node) tc_node_release(node);
        tensor = next;
    }
}

/* A view of the storage; its first element is `bytes` bytes after `from`. */
static tc_status over_storage(tc_tensor **out, tc_storage *storage, tc_dtype dtype, int ndim, const int64_t *shape, const int64_t *strides,
                              char *from, int64_t bytes, tc_error *err)
{
    tc_tensor *tensor;
    TC_TRY(header_new(&tensor, ndim, shape, dtype, err));
    tc_add_reference(&storage->references);
    tensor->storage = storage;
    tensor->data = tensor->numel ? from + bytes : from;
    tensor->version = atomic_load_explicit(&storage->version, memory_order_acquire);
    if (storage->device.type == TC_CUDA) tensor->capture = tc_graph_number();
    for (int i = 0; i < ndim; i++) tensor->strides[i] = strides[i];
    tensor->contiguous = has_contiguous_strides(tensor);
    *out = tensor;
    return TC_OK;
}

tc_status tc_tensor_alias(tc_tensor **out, tc_tensor *base, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset,
                          tc_error *err)
{
    const int64_t bytes = offset * (int64_t)tc_dtype_size(base->dtype);
    return over_storage(out, base->storage, base->dtype, ndim, shape, strides, base->data, bytes, err);
}

tc_status tc_tensor_memory(tc_tensor **out, const tc_tensor *tensor, tc_error *err)
{
    tc_storage *storage = tensor->storage;
    const int64_t size = (int64_t)tc_dtype_size(tensor->dtype), bytes = (int64_t)storage->bytes, length = bytes / size, one = 1;
    int64_t low = tensor->data - (char *)storage->data, high = low + size;
    *out = NULL;
    if (!tensor->numel) return TC_OK;
    for (int i = 0; i < tensor->ndim; i++) *(tensor->strides[i] < 0 ? &low : &high) += (tensor->shape[i] - 1) * tensor->strides[i] * size;
    if (low < 0 || high > bytes || bytes % size) return TC_OK;
    return over_storage(out, storage, tensor->dtype, 1, &length, &one, storage->data, 0, err);
}

tc_status tc_tensor_in_copy(tc_tensor **out, const tc_tensor *tensor, tc_tensor *copy, tc_error *err)
{
    if (copy->storage->bytes != tensor->storage->bytes)
        return tc_fail(err, TC_ERROR_STATE, "a copy of a Tensor's memory has %zu bytes, not %zu", copy->storage->bytes,
                       tensor->storage->bytes);
    return over_storage(out, copy->storage, tensor->dtype, tensor->ndim, tensor->shape, tensor->strides, copy->data,
                        tensor->data - (char *)tensor->storage->data, err);
}

tc_status tc_tensor_detach(tc_tensor **out, tc_tensor *tensor, tc_error *err)
{
    TC_TRY(tc_tensor_alias(out, tensor, tensor->ndim, tensor->shape, tensor->strides, 0, err));
    (*out)->version = TC_NEVER_STALE;
    return TC_OK;
}

tc_status tc_tensor_like_as(tc_tensor **out, const tc_tensor *model, tc_dtype dtype, tc_error *err)
{
    return tc_tensor_empty(out, model->ndim, model->shape, dtype, model->storage->device, err);
}

tc_status tc_tensor_like(tc_tensor **out, const tc_tensor *model, tc_error *err)
{
    return tc_tensor_like_as(out, model, model->dtype, err);
}

/* ---- what may be replaced while another thread computes ------------------------------------------------------------------- */

TC_DEFINE_SHARED_LOCK(tc_replacing, TC_RANK_TENSOR)

/* Without the history, which is read with the caller's lock only. */
static tc_status hold_memory(tc_tensor **out, tc_tensor *tensor, tc_error *err)
{
    tc_tensor *held = tc_allocate(sizeof *held);
    if (!held) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: a tensor header");
    TC_ASSERT(!tensor->of);
    memset(held, 0, offsetof(tc_tensor, shape));
    atomic_init(&held->references, 1);
    tc_add_reference(&tensor->storage->references);
    held->storage = tensor->storage;
    held->data = tensor->data;
    held->dtype = tensor->dtype;
    held->ndim = tensor->ndim;
    held->numel = tensor->numel;
    held->contiguous = tensor->contiguous;
    held->version = TC_NEVER_STALE;
    memcpy(held->shape, tensor->shape, sizeof(int64_t) * (size_t)tensor->ndim);
    memcpy(held->strides, tensor->strides, sizeof(int64_t) * (size_t)tensor->ndim);
    held->of = tc_tensor_retain(tensor);
    *out = held;
    return TC_OK;
}

tc_status tc_tensor_hold(tc_tensor **out, tc_tensor *tensor, tc_error *err)
{
    if (tensor->base) TC_TRY(tc_tape_renew_view(tensor, err));
    TC_TRY(hold_memory(out, tensor, err));
    (*out)->base = tc_tensor_retain(tensor->base);
    (*out)->of_detached = tc_tape_is_detached(tensor);
    (*out)->requires_grad = tensor->requires_grad;
    (*out)->version = tensor->version;
    (*out)->wrote = tensor->wrote;
    (*out)->traced_before = tensor->traced_before;
    (*out)->changed_before = tensor->changed_before;
    (*out)->output = tensor->output;
    if (tensor->node) (*out)->node = tc_node_retain(tensor->node);
    if (tensor->retained) {
        tc_add_reference(&tensor->retained->references);
        (*out)->retained = tensor->retained;
    }
    return TC_OK;
}

void tc_tensor_end_hold(tc_tensor *held)
{
    tc_tensor *tensor = held->of;
    if (!held->written || tensor->storage != held->storage) return;             /* the write was to memory that the tensor no longer has */
    if (!held->node && tensor->node && tensor->version > held->version) return; /* another thread has written values with a history since */
    tc_node *before = tensor->node;
    tensor->node = held->node;
    tensor->output = held->output;
    tensor->version = held->version;
    tensor->wrote = held->wrote;
    tensor->traced_before = held->traced_before;
    tensor->changed_before = held->changed_before;
    held->node = before;
    tc_tape_write_base(tensor);
}

void tc_tensor_forget_base(tc_tensor *tensor)
{
    tc_tensor *base = tensor->base;
    tensor->base = NULL;
    tc_tensor_release(base);
}

tc_status tc_tensor_look(tc_look *out, tc_tensor *leaf, tc_error *err)
{
    *out = (tc_look){.dtype = leaf->dtype, .device = leaf->storage->device};
    if (leaf->grad) return hold_memory(&out->grad, leaf->grad, err);
    return leaf->grad_slot ? hold_memory(&out->slot, leaf->grad_slot, err) : TC_OK;
}

void tc_tensor_give_grad(tc_tensor *leaf, tc_tensor **gradient)
{
    tc_graph_note_leaf(leaf, false);
    if (leaf->grad || leaf->dtype != (*gradient)->dtype || !tc_same_device(leaf->storage->device, (*gradient)->storage->device)) return;
    leaf->grad = *gradient;
    *gradient = NULL;
}

/* Steals `next`. */
static void replace(tc_tensor **member, tc_tensor *next)
{
    tc_lock_take(&tc_replacing);
    tc_tensor *before = *member;
    *member = next;
    tc_lock_give(&tc_replacing);
    tc_tensor_release(before);
}

tc_tensor *tc_tensor_take_grad(tc_tensor *tensor)
{
    tc_lock_take(&tc_replacing);
    tc_tensor *grad = tc_tensor_retain(tensor->grad);
    tc_lock_give(&tc_replacing);
    return grad;
}

tc_status tc_tensor_set_grad(tc_tensor *tensor, tc_tensor *grad, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (grad && !tc_tensor_same_shape(tensor, grad))
        return tc_fail(err, TC_ERROR_VALUE, "grad has shape %s but the tensor has %s; they must be equal", tc_tensor_text(a, grad),
                       tc_tensor_text(b, tensor));
    if (grad && grad->dtype != tensor->dtype)
        return tc_fail(err, TC_ERROR_TYPE, "grad is %s but the tensor is %s; convert it first", tc_dtype_name(grad->dtype),
                       tc_dtype_name(tensor->dtype));
    TC_TRY(tc_check_same_device(grad, "grad", tensor, "the tensor", err));
    if (grad == tensor) return tc_fail(err, TC_ERROR_VALUE, "a tensor cannot be its own gradient: assign a clone() of it");
    tc_tensor *kept = grad;
    if (grad && (grad->node || grad->requires_grad || grad->grad)) { /* its history could lead back here, and then neither would be freed */
        TC_TRY(tc_tensor_detach(&kept, grad, err));
    } else {
        tc_tensor_retain(kept);
    }
    tc_graph_note_leaf(tensor, true);
    if (kept) { /* either base could lead back here as well */
        tc_tensor_forget_base(tensor);
        tc_tensor_forget_base(kept);
    }
    replace(&tensor->grad, kept);
    return TC_OK;
}

/* ---- other memory ----------------------------------------------------------------------------------------------------- */

tc_status tc_tensor_check_data(const tc_tensor *tensor, const tc_tensor *source, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (tensor->storage->is_cast) return tc_fail_cast(err);
    if (tensor->node) return tc_fail(err, TC_ERROR_STATE, "the data of a result cannot be replaced, only that of a leaf; use detach()");
    if (!tc_tensor_same_shape(tensor, source))
        return tc_fail(err, TC_ERROR_VALUE,
                       "the new data has shape %s but the tensor has %s; they must be equal: for another shape assign a new one, "
                       "module.weight = nn.Parameter(data)",
                       tc_tensor_text(a, source), tc_tensor_text(b, tensor));
    if (tensor->requires_grad && !tc_dtype_is_float(source->dtype))
        return tc_fail(err, TC_ERROR_TYPE, "the new data is %s but the tensor requires a gradient, which only floating tensors have",
                       tc_dtype_name(source->dtype));
    if (tc_graph_number() && tensor->capture != tc_graph_number())
        return tc_fail(err, TC_ERROR_STATE,
                       "a Tensor of shape %s got another .data while tc.cuda.graph captured, and each start would use the memory that it "
                       "had; change its values in place, by copy_()",
                       tc_tensor_text(a, tensor));
    TC_ASSERT(!tensor->of);
    return TC_OK;
}

tc_status tc_tensor_set_data(tc_tensor *tensor, tc_tensor *source, tc_error *err)
{
    TC_TRY(tc_tensor_check_data(tensor, source, err));
    tc_storage *before = tensor->storage;
    tc_tensor *grad = NULL, *slot = NULL;
    tc_add_reference(&source->storage->references);
    tc_lock_take(&tc_replacing);
    if (tensor->dtype != source->dtype || !tc_same_device(before->device, source->storage->device)) {
        grad = tensor->grad;
        slot = tensor->grad_slot;
        tensor->grad = tensor->grad_slot = NULL;
    }
    tensor->storage = source->storage;
    tensor->data = source->data;
    tensor->dtype = source->dtype;
    tensor->contiguous = source->contiguous;
    tensor->version = TC_NEVER_STALE;
    memcpy(tensor->strides, source->strides, sizeof(int64_t) * (size_t)source->ndim);
    tc_lock_give(&tc_replacing);
    tc_tensor_release(grad);
    tc_tensor_release(slot);
    tc_tensor_forget_base(tensor);
    storage_release(before);
    return TC_OK;
}

tc_status tc_tensor_set_grad_slot(tc_tensor *tensor, tc_tensor *slot, tc_error *err)
{
    if (slot && (!tc_tensor_same_shape(tensor, slot) || slot->dtype != tensor->dtype || !slot->contiguous))
        return tc_fail(err, TC_ERROR_VALUE, "the place for a gradient must have the parameter's shape and dtype and be contiguous");
    TC_ASSERT(!tensor->of);
    replace(&tensor->grad_slot, tc_tensor_retain(slot));
    return TC_OK;
}

tc_status tc_check_same_device(const tc_tensor *a, const char *a_name, const tc_tensor *b, const char *b_name, tc_error *err)
{
    char p[TC_DEVICE_TEXT], q[TC_DEVICE_TEXT];
    if (!a || !b) return TC_OK;
    const tc_device x = a->storage->device, y = b->storage->device;
    if (tc_same_device(x, y)) return TC_OK;
    return tc_fail(err, TC_ERROR_STATE, "%s is on %s but %s is on %s; move one with .to()", a_name, tc_device_text(p, x), b_name,
                   tc_device_text(q, y));
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

bool tc_tensor_same_view(const tc_tensor *a, const tc_tensor *b)
{
    return a->data == b->data && a->dtype == b->dtype && tc_tensor_same_shape(a, b) &&
           memcmp(a->strides, b->strides, sizeof *a->strides * (size_t)a->ndim) == 0;
}

const char *tc_tensor_text(char buffer[TC_SHAPE_TEXT], const tc_tensor *tensor)
{
    return tc_shape_text(buffer, tensor->ndim, tensor->shape);
}
