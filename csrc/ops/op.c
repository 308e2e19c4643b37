/* op.c: see op.h. */
#include "op.h"

#include <string.h>

#include "../core/allocator.h"
#include "../core/reduction.h"
#include "../core/tape_view.h"

/* ---- what is owned ------------------------------------------------------------------------------------------------------ */

void tc_scope_free(tc_scope *s)
{
    TC_ASSERT(s->count >= 0 && s->count <= s->capacity);
    for (int i = 0; i < s->count; i++) tc_tensor_release(s->owned[i]);
    if (s->owned != s->few) tc_free(s->owned, sizeof *s->owned * (size_t)s->capacity);
}

static tc_status grow(tc_scope *s)
{
    const size_t bytes = sizeof *s->owned * (size_t)s->capacity;
    tc_tensor **larger = tc_allocate(2 * bytes);
    if (!larger) return tc_fail(s->err, TC_ERROR_MEMORY, "out of memory: the temporaries of an op");
    memcpy(larger, s->owned, bytes);
    if (s->owned != s->few) tc_free(s->owned, bytes);
    s->owned = larger;
    s->capacity *= 2;
    return TC_OK;
}

tc_status tc_own(tc_scope *s, tc_tensor *tensor)
{
    const tc_status status = s->count == s->capacity ? grow(s) : TC_OK;
    if (status == TC_OK)
        s->owned[s->count++] = tensor;
    else
        tc_tensor_release(tensor);
    return status;
}

tc_status tc_make_as(tc_scope *s, tc_tensor **out, int ndim, const int64_t *shape, tc_dtype dtype)
{
    TC_TRY(tc_tensor_empty(out, ndim, shape, dtype, s->device, s->err));
    return tc_own(s, *out);
}

tc_status tc_make(tc_scope *s, tc_tensor **out, int ndim, const int64_t *shape) { return tc_make_as(s, out, ndim, shape, s->compute); }

tc_status tc_make_result(tc_scope *s, tc_tensor **out, int ndim, const int64_t *shape)
{
    return tc_make_as(s, out, ndim, shape, s->widens ? s->result : s->compute);
}

tc_status tc_make_statistic(tc_scope *s, tc_tensor **out, int ndim, const int64_t *shape)
{
    return tc_make_as(s, out, ndim, shape, s->statistics);
}

tc_status tc_make_view(tc_scope *s, tc_tensor **out, tc_tensor *base, int ndim, const int64_t *shape, const int64_t *strides,
                       int64_t offset)
{
    TC_TRY(tc_tensor_alias(out, base, ndim, shape, strides, offset, s->err));
    return tc_own(s, *out);
}

tc_status tc_move_axis(tc_scope *s, tc_tensor **out, tc_tensor *x, int from, int to)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    *out = x;
    if (from == to) return TC_OK;
    for (int i = 0, next = 0; i < x->ndim; i++) {
        if (next == from) next++;
        const int axis = i == to ? from : next++;
        shape[i] = x->shape[axis];
        strides[i] = x->strides[axis];
    }
    return tc_make_view(s, out, x, x->ndim, shape, strides, 0);
}

tc_status tc_make_memory(tc_scope *s, void **out, size_t bytes)
{
    const int64_t count = (int64_t)bytes;
    tc_tensor *memory;
    TC_TRY(tc_tensor_empty(&memory, 1, &count, TC_UINT8, (tc_device){TC_CPU, 0}, s->err));
    *out = memory->data;
    return tc_own(s, memory);
}

void tc_give(tc_scope *s, tc_tensor **out, tc_tensor *tensor)
{
    if (!out) return;
    *out = tensor;
    for (int i = s->count; i-- > 0;)
        if (s->owned[i] == tensor) {
            s->owned[i] = s->owned[--s->count];
            return;
        }
    tc_tensor_retain(tensor);
}

/* *tensor, of the scope, becomes one of `dtype`. */
static tc_status round_to(tc_scope *s, tc_tensor **tensor, tc_dtype dtype)
{
    if ((*tensor)->dtype == dtype) return TC_OK;
    TC_TRY(tc_tensor_as(tensor, *tensor, dtype, s->err));
    return tc_own(s, *tensor);
}

tc_status tc_give_rounded(tc_scope *s, int count, tc_result *results)
{
    for (int i = 0; i < count; i++)
        if (results[i].out && !results[i].wide) TC_TRY(round_to(s, &results[i].tensor, s->result));
    for (int i = 0; i < count; i++) tc_give(s, results[i].out, results[i].tensor);
    return TC_OK;
}

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

/* In place, for kernels that only move elements. */
static void start(tc_scope *s, tc_input *in, int count, tc_dtype dtype)
{
    TC_ASSERT(count <= TC_MAX_INPUTS);
    s->in = in;
    s->in_count = count;
    s->device = in[0].given->storage->device;
    s->result = s->compute = dtype;
    s->statistics = tc_compute_dtype(dtype);
    s->kernels = TC_FLOAT32;
    s->widens = false;
}

/* Halves are computed in the backend's dtype for them. */
static tc_status compute_floating(tc_scope *s)
{
    const tc_backend *backend;
    TC_TRY(tc_backend_for(&backend, s->device, s->err));
    s->compute = s->kernels = backend->compute_dtype(s->result);
    s->widens = s->compute == TC_FLOAT32 && backend->compute_dtype(TC_FLOAT16) == TC_FLOAT32;
    return TC_OK;
}

static tc_status check_like_first(const tc_scope *s, const tc_input *in, bool any_dtype)
{
    const tc_input *first = &s->in[0];
    if (!any_dtype) TC_TRY(tc_check_same_dtype(first->given, first->name, in->given, in->name, s->err));
    return tc_check_same_device(first->given, first->name, in->given, in->name, s->err);
}

static tc_status begin(tc_scope *s, tc_input *in, int count, bool backward)
{
    start(s, in, count, in[0].given->dtype);
    TC_TRY(compute_floating(s));
    for (int i = 0; i < count; i++) {
        const tc_tensor *tensor = in[i].given;
        TC_TRY(tc_check_float(tensor, in[i].name, s->err));
        if (tensor && i) TC_TRY(check_like_first(s, &in[i], backward && (tensor->dtype == s->compute || tensor->dtype == s->statistics)));
    }
    return TC_OK;
}

tc_status tc_begin(tc_scope *s, tc_input *in, int count) { return begin(s, in, count, false); }
tc_status tc_begin_backward(tc_scope *s, tc_input *in, int count) { return begin(s, in, count, true); }

tc_status tc_begin_moving(tc_scope *s, tc_input *in, int count)
{
    start(s, in, count, in[0].given->dtype);
    for (int i = 1; i < count; i++) TC_TRY(check_like_first(s, &in[i], false));
    return TC_OK;
}

tc_status tc_begin_promoting(tc_scope *s, tc_input *in, int count)
{
    tc_dtype dtype = in[0].given->dtype;
    bool mixed = false;
    for (int i = 1; i < count; i++)
        if (in[i].given) dtype = tc_dtype_promote(dtype, in[i].given->dtype);
    start(s, in, count, dtype);
    if (tc_dtype_is_float(dtype)) TC_TRY(compute_floating(s));
    for (int i = 0; i < count; i++) mixed |= in[i].given && !tc_dtype_is_float(in[i].given->dtype);
    if (mixed && tc_dtype_is_float(dtype)) s->compute = s->kernels = s->statistics; /* halves have no room for integers */
    for (int i = 1; i < count; i++) TC_TRY(check_like_first(s, &in[i], true));
    return TC_OK;
}

tc_status tc_begin_elements(tc_scope *s, tc_input *in, int count, tc_dtype dtype, tc_dtype result)
{
    const tc_input *first = in;
    while (!first->given) first++;
    s->in = in;
    s->in_count = count;
    s->device = first->given->storage->device;
    s->compute = s->result = result;
    s->kernels = s->statistics = tc_compute_dtype(dtype);
    s->widens = false;
    for (const tc_input *other = first + 1; other < in + count; other++)
        TC_TRY(tc_check_same_device(first->given, first->name, other->given, other->name, s->err));
    return TC_OK;
}

tc_status tc_prepare(tc_scope *s)
{
    for (int i = 0; i < s->in_count; i++) {
        tc_tensor *ready = s->in[i].given;
        tc_dtype dtype = s->in[i].statistic ? s->statistics : s->compute;
        if (s->in[i].halves && tc_stored_as(s, ready) != TC_STORED_AS_COMPUTED) dtype = ready->dtype;
        if (ready && !((ready->contiguous || s->in[i].strided) && ready->dtype == dtype)) {
            TC_TRY(tc_tensor_as(&ready, ready, dtype, s->err));
            TC_TRY(tc_own(s, ready));
        }
        s->in[i].tensor = ready;
        s->in[i].data = tc_data(ready);
    }
    return TC_OK;
}

bool tc_has_shape(const tc_tensor *tensor, int ndim, const int64_t *shape)
{
    return tensor->ndim == ndim && memcmp(tensor->shape, shape, sizeof *shape * (size_t)ndim) == 0;
}

tc_status tc_check_shape(tc_scope *s, const tc_tensor *tensor, const char *name, const char *must, int ndim, const int64_t *shape)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (!tensor || tc_has_shape(tensor, ndim, shape)) return TC_OK;
    return tc_fail(s->err, TC_ERROR_VALUE, "%s has shape %s but %s %s; they must be equal", name, tc_tensor_text(a, tensor), must,
                   tc_shape_text(b, ndim, shape));
}

tc_status tc_check_follows(tc_scope *s, const tc_tensor *tensor, const char *name, const tc_tensor *x, int ndim, const int64_t *shape)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT], c[TC_SHAPE_TEXT];
    if (!tensor || tc_has_shape(tensor, ndim, shape)) return TC_OK;
    return tc_fail(s->err, TC_ERROR_VALUE, "%s has shape %s; with x of shape %s it must have %s", name, tc_tensor_text(a, tensor),
                   tc_tensor_text(b, x), tc_shape_text(c, ndim, shape));
}

/* ---- computing and finishing -------------------------------------------------------------------------------------------- */

tc_status tc_compute(tc_scope *s, const tc_kernel *kernel, const void *args, int64_t items, double cost)
{
    return tc_run_interruptible(s->device, s->kernels, kernel, args, items, cost, s->err);
}

tc_dtype tc_weight_gradient_dtype(const tc_scope *s, const tc_tensor *weight)
{
    return weight && weight->storage->is_cast ? s->statistics : s->compute;
}

tc_status tc_sum_rows(tc_scope *s, tc_tensor **out, const tc_tensor *partial, int ndim, const int64_t *shape, tc_dtype dtype)
{
    TC_ASSERT(partial->ndim == 2 && partial->contiguous);
    TC_TRY(tc_make_as(s, out, ndim, shape, dtype));
    return tc_sum_partials(*out, partial, partial->shape[0], partial->shape[1], s->err);
}

tc_status tc_keep_for(tc_scope *s, tc_tensor **kept, tc_tensor *x, tc_tensor *other)
{
    static const int64_t none[TC_MAX_DIMS] = {0};
    tc_tensor *one, *given[TC_MAX_INPUTS];
    for (int i = 0; i < s->in_count; i++) given[i] = s->in[i].given;
    *kept = x;
    if (tc_tape_wants(1, &other) || !tc_tape_wants(s->in_count, given)) return TC_OK;
    TC_TRY(tc_make_as(s, &one, 0, NULL, x->dtype));
    return tc_make_view(s, kept, one, x->ndim, x->shape, none, 0);
}

/* The record of an op as the tape takes it, or false when the op is not put on the tape. `inputs` is room for those of tc_begin. */
static bool completed(tc_record *full, const tc_scope *s, const tc_record *record, tc_tensor *inputs[TC_MAX_INPUTS])
{
    for (int i = 0; !record->inputs && i < s->in_count; i++) inputs[i] = s->in[i].given;
    tc_tensor *const *all = record->inputs ? record->inputs : inputs;
    const int count = record->inputs ? record->input_count : s->in_count;
    if (!tc_tape_wants(count, all)) return false;
    *full = *record;
    full->inputs = all;
    full->input_count = count;
    if (!full->attribute_bytes) full->attribute_bytes = record->op->attribute_bytes;
    return true;
}

tc_status tc_finish_all(tc_scope *s, int count, tc_result *results, const tc_record *record)
{
    tc_tensor *inputs[TC_MAX_INPUTS], *few[TC_MAX_OUTPUTS], **outputs = few;
    tc_record full;
    for (int i = 0; i < count; i++)
        if (results[i].tensor) TC_TRY(round_to(s, &results[i].tensor, s->result));
    if (completed(&full, s, record, inputs)) {
        if (count > TC_MAX_OUTPUTS) {
            void *memory;
            TC_TRY(tc_make_memory(s, &memory, sizeof *outputs * (size_t)count));
            outputs = memory;
        }
        for (int i = 0; i < count; i++) outputs[i] = results[i].tensor;
        full.outputs = outputs;
        full.output_count = count;
        TC_TRY(tc_tape_record(&full, s->err));
    }
    for (int i = count; i-- > 0;) tc_give(s, results[i].out, results[i].tensor); /* those made last are found first */
    return TC_OK;
}

tc_status tc_finish(tc_scope *s, tc_tensor **out, tc_tensor *result, const tc_record *record)
{
    return tc_finish_all(s, 1, &(tc_result){out, result}, record);
}

tc_status tc_finish_alone(tc_tensor **out, tc_tensor *result, tc_tensor *x, const tc_op *op, const void *attributes, tc_error *err)
{
    if (tc_tape_wants(1, &x)) {
        const tc_record record = {.op = op,
                                  .input_count = 1,
                                  .inputs = &x,
                                  .output_count = 1,
                                  .outputs = &result,
                                  .attributes = attributes,
                                  .attribute_bytes = op->attribute_bytes};
        const tc_status status = tc_tape_record(&record, err);
        if (status != TC_OK) {
            tc_tensor_release(result);
            return status;
        }
    }
    if (result->storage == x->storage) tc_tape_note_view(result, x);
    *out = result;
    return TC_OK;
}

/* The record of a write to the first input, or NULL when it is not put on the tape. */
static const tc_record *write_record(tc_record *full, tc_scope *s, const tc_record *record, tc_tensor *inputs[TC_MAX_INPUTS])
{
    if (!completed(full, s, record, inputs)) return NULL;
    full->outputs = &s->in[0].given;
    full->output_count = 1;
    return full;
}

tc_status tc_finish_write(tc_scope *s, const tc_record *record)
{
    tc_tensor *inputs[TC_MAX_INPUTS];
    tc_record full;
    const tc_record *recorded = write_record(&full, s, record, inputs);
    return recorded ? tc_tape_begin_write(s->in[0].given, recorded, s->err) : tc_tensor_begin_write(s->in[0].given, s->err);
}

tc_status tc_finish_written(tc_scope *s, const tc_record *record)
{
    tc_tensor *inputs[TC_MAX_INPUTS];
    tc_record full;
    return tc_tape_take_writes(s->in[0].given, write_record(&full, s, record, inputs), s->err);
}
