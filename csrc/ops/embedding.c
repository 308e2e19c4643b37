/* embedding.c: rows of a table, one-hot rows, and the largest value over a sequence.
 *
 * Saved for the backward of embedding: the indices. */
#include "../kernels/embedding.h"

#include <inttypes.h>
#include <string.h>

#include "../core/backend.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"

static tc_status check_integers(const tc_tensor *indices, const char *name, tc_error *err)
{
    if (!tc_dtype_is_float(indices->dtype) && indices->dtype != TC_BOOL) return TC_OK;
    return tc_fail(err, TC_ERROR_TYPE, "%s is %s; integers are needed: convert it with .long() or np.int64", name,
                   tc_dtype_name(indices->dtype));
}

/* *indices becomes contiguous int64, and *host the same in memory that can be read here; both owned by the scope. */
static tc_status as_int64(tc_old_scope *scope, tc_tensor **indices, const tc_tensor **host, tc_error *err)
{
    tc_status status = tc_old_scope_cast(scope, indices, TC_INT64, err);
    if (status == TC_OK) status = tc_old_scope_contiguous(scope, indices, err);
    if (status != TC_OK) return status;
    *host = *indices;
    if (tc_tensor_on_cpu(*indices)) return TC_OK;
    tc_tensor *copy;
    status = tc_to_device(&copy, *indices, (tc_device){TC_CPU, 0}, err);
    if (status == TC_OK) *host = tc_old_scope_own(scope, copy);
    return status;
}

static const int64_t *values_of(const tc_tensor *host) { return (const int64_t *)(const void *)host->data; }

static int64_t group_count(int64_t n) { return (n + TC_EMBEDDING_GROUP - 1) / TC_EMBEDDING_GROUP; }

/* ---- embedding ----------------------------------------------------------------------------------------------------------- */

typedef struct embedding_attributes {
    int64_t V, padding_idx;
} embedding_attributes;

/* dweight (V,D) in dy's dtype.  indices: contiguous int64, in range. */
static tc_status table_gradient(tc_tensor **dweight, tc_tensor *dy, tc_tensor *indices, int64_t V, int64_t padding_idx, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *out = NULL, *order = NULL, *start = NULL;
    tc_status status = TC_OK;
    const tc_device device = dy->storage->device;
    const tc_dtype result = dy->dtype, compute = tc_compute_dtype(result);
    const int64_t n = indices->numel, D = dy->shape[dy->ndim - 1], shape[2] = {V, D}, starts = V + 1;
    TC_TRY(tc_old_scope_cast(&scope, &dy, compute, err));
    TC_TRY(tc_old_scope_contiguous(&scope, &dy, err));
    TC_TRY(tc_tensor_empty(&out, 2, shape, compute, device, err));
    TC_TRY(tc_tensor_empty(&order, 1, &n, TC_INT64, device, err));
    TC_TRY(tc_tensor_empty(&start, 1, &starts, TC_INT64, device, err));
    const tc_embedding_order_args sorting = {
        .order = (int64_t *)(void *)order->data, .start = (int64_t *)(void *)start->data, .indices = values_of(indices), .n = n, .V = V};
    TC_TRY(tc_run(device, compute, &tc_kernel_embedding_order, &sorting, 1, 3.0 * (double)(n + V), 0, err));
    const tc_embedding_backward_args args = {
        .dweight = out->data, .dy = dy->data, .order = sorting.order, .start = sorting.start, .D = D, .padding_idx = padding_idx};
    TC_TRY(tc_run(device, compute, &tc_kernel_embedding_backward, &args, V, (double)D * (1.0 + (double)n / (double)(V ? V : 1)), 0, err));
    TC_TRY(tc_tensor_as(dweight, out, result, err));
cleanup:
    tc_old_scope_end(&scope);
    tc_tensor_release(out);
    tc_tensor_release(order);
    tc_tensor_release(start);
    return status;
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const embedding_attributes *at = node->attributes;
    return table_gradient(&grad_inputs[0], grad_outputs[0], tc_node_saved(node, 0), at->V, at->padding_idx, err);
}

static const tc_op embedding_op = {"embedding", backward, NULL};

static tc_status check_indices(const tc_tensor *host, const tc_tensor *shaped, int64_t V, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    const int64_t *values = values_of(host);
    for (int64_t i = 0; i < host->numel; i++)
        if (values[i] < 0 || values[i] >= V)
            return tc_fail(err, TC_ERROR_INDEX,
                           "index %" PRId64 " (element %" PRId64 " of indices, shape %s) is outside the table, which has %" PRId64 " rows",
                           values[i], i, tc_tensor_text(text, shaped), V);
    return TC_OK;
}

static tc_status check_table(const tc_tensor *weight, bool has_padding, int64_t *padding_idx, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    tc_status status = tc_check_float(weight, "weight", err);
    if (status != TC_OK) return status;
    if (weight->ndim != 2)
        return tc_fail(err, TC_ERROR_VALUE, "weight has shape %s; expected two axes, (num_embeddings, embedding_dim)",
                       tc_tensor_text(text, weight));
    const int64_t V = weight->shape[0];
    if (!has_padding)
        *padding_idx = -1;
    else if (*padding_idx < -V || *padding_idx >= V)
        return tc_fail(err, TC_ERROR_VALUE, "padding_idx is %" PRId64 " but weight %s has %" PRId64 " rows", *padding_idx,
                       tc_tensor_text(text, weight), V);
    else if (*padding_idx < 0)
        *padding_idx += V;
    return TC_OK;
}

tc_status tc_embedding(tc_tensor **y, tc_tensor *indices, tc_tensor *weight, bool has_padding, int64_t padding_idx, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *out = NULL, *table = weight;
    const tc_tensor *host;
    int64_t shape[TC_MAX_DIMS];
    char text[TC_SHAPE_TEXT];
    tc_status status = TC_OK;
    TC_TRY(check_integers(indices, "indices", err));
    TC_TRY(check_table(weight, has_padding, &padding_idx, err));
    TC_TRY(tc_check_same_device(indices, "indices", weight, "weight", err));
    if (indices->ndim + 1 > TC_MAX_DIMS)
        TC_TRY(tc_fail(err, TC_ERROR_VALUE, "indices has shape %s; the result would have more than %d axes", tc_tensor_text(text, indices),
                       TC_MAX_DIMS));
    const tc_tensor *shaped = indices;
    TC_TRY(as_int64(&scope, &indices, &host, err));
    TC_TRY(check_indices(host, shaped, weight->shape[0], err));
    TC_TRY(tc_old_scope_contiguous(&scope, &table, err));
    memcpy(shape, indices->shape, sizeof(int64_t) * (size_t)indices->ndim);
    shape[indices->ndim] = weight->shape[1];
    const tc_device device = weight->storage->device;
    TC_TRY(tc_tensor_empty(&out, indices->ndim + 1, shape, weight->dtype, device, err));
    const tc_embedding_forward_args args = {.y = out->data,
                                            .weight = table->data,
                                            .indices = values_of(indices),
                                            .n = indices->numel,
                                            .row_bytes = weight->shape[1] * (int64_t)tc_dtype_size(weight->dtype)};
    TC_TRY(tc_run(device, TC_FLOAT32, &tc_kernel_embedding_forward, &args, group_count(args.n),
                  TC_EMBEDDING_GROUP * (8.0 + (double)args.row_bytes / 8.0), 0, err));
    const embedding_attributes at = {weight->shape[0], padding_idx};
    const tc_record record = {.op = &embedding_op,
                              .input_count = 1,
                              .inputs = &weight,
                              .output_count = 1,
                              .outputs = &out,
                              .saved_count = 1,
                              .saved = &indices,
                              .attributes = &at,
                              .attribute_bytes = sizeof at};
    TC_TRY(tc_tape_record(&record, err));
    *y = tc_tensor_retain(out);
cleanup:
    tc_old_scope_end(&scope);
    tc_tensor_release(out);
    return status;
}

tc_status tc_embedding_backward(tc_tensor **dweight, tc_tensor *dy, tc_tensor *indices, int64_t V, bool has_padding, int64_t padding_idx,
                                tc_error *err)
{
    tc_old_scope scope = {0};
    const tc_tensor *host, *shaped = indices;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    tc_status status = TC_OK;
    TC_TRY(check_integers(indices, "indices", err));
    TC_TRY(tc_check_float(dy, "dy", err));
    TC_TRY(tc_check_same_device(dy, "dy", indices, "indices", err));
    if (dy->ndim != indices->ndim + 1 || memcmp(dy->shape, indices->shape, sizeof(int64_t) * (size_t)indices->ndim) != 0)
        TC_TRY(tc_fail(err, TC_ERROR_VALUE, "dy has shape %s; expected that of indices %s and one axis more", tc_tensor_text(a, dy),
                       tc_tensor_text(b, indices)));
    if (V < 0) TC_TRY(tc_fail(err, TC_ERROR_VALUE, "num_embeddings is %" PRId64 "; it cannot be negative", V));
    TC_TRY(as_int64(&scope, &indices, &host, err));
    TC_TRY(check_indices(host, shaped, V, err));
    TC_TRY(table_gradient(dweight, dy, indices, V, !has_padding ? -1 : padding_idx < 0 ? padding_idx + V : padding_idx, err));
cleanup:
    tc_old_scope_end(&scope);
    return status;
}

/* ---- one-hot --------------------------------------------------------------------------------------------------------------- */

tc_status tc_one_hot(tc_tensor **out, tc_tensor *indices, int64_t classes, tc_error *err)
{
    tc_old_scope scope = {0};
    tc_tensor *y = NULL;
    const tc_tensor *host;
    int64_t shape[TC_MAX_DIMS], largest = -1;
    char text[TC_SHAPE_TEXT];
    tc_status status = TC_OK;
    TC_TRY(check_integers(indices, "x", err));
    if (indices->ndim + 1 > TC_MAX_DIMS)
        TC_TRY(tc_fail(err, TC_ERROR_VALUE, "x has shape %s; the result would have more than %d axes", tc_tensor_text(text, indices),
                       TC_MAX_DIMS));
    if (classes < -1) TC_TRY(tc_fail(err, TC_ERROR_VALUE, "num_classes is %" PRId64 "; expected -1 or a count", classes));
    TC_TRY(as_int64(&scope, &indices, &host, err));
    const int64_t *values = values_of(host);
    for (int64_t i = 0; i < host->numel; i++) {
        if (values[i] > largest) largest = values[i];
        if (values[i] < 0)
            TC_TRY(tc_fail(err, TC_ERROR_VALUE, "x has %" PRId64 " as its element %" PRId64 "; classes are not negative", values[i], i));
        if (classes >= 0 && values[i] >= classes)
            TC_TRY(tc_fail(err, TC_ERROR_VALUE,
                           "x has %" PRId64 " as its element %" PRId64 " but num_classes is %" PRId64 "; expected 0 to %" PRId64, values[i],
                           i, classes, classes - 1));
    }
    if (classes < 0 && host->numel == 0)
        TC_TRY(tc_fail(err, TC_ERROR_VALUE, "x has shape %s, no elements, so num_classes must be given", tc_tensor_text(text, indices)));
    memcpy(shape, indices->shape, sizeof(int64_t) * (size_t)indices->ndim);
    shape[indices->ndim] = classes < 0 ? largest + 1 : classes;
    const tc_device device = indices->storage->device;
    TC_TRY(tc_tensor_empty(&y, indices->ndim + 1, shape, TC_INT64, device, err));
    const tc_one_hot_args args = {
        .out = (int64_t *)(void *)y->data, .indices = values_of(indices), .n = indices->numel, .classes = shape[indices->ndim]};
    TC_TRY(tc_run(device, TC_FLOAT32, &tc_kernel_one_hot, &args, group_count(args.n),
                  TC_EMBEDDING_GROUP * (4.0 + (double)args.classes / 4.0), 0, err));
    *out = tc_tensor_retain(y);
cleanup:
    tc_old_scope_end(&scope);
    tc_tensor_release(y);
    return status;
}

/* ---- pooling --------------------------------------------------------------------------------------------------------------- */

tc_status tc_global_max_pool1d(tc_tensor **y, tc_tensor *x, tc_error *err)
{
    static const int64_t sequence = 1;
    char text[TC_SHAPE_TEXT];
    const tc_status status = tc_check_float(x, "x", err);
    if (status != TC_OK) return status;
    if (x->ndim != 3 || x->shape[1] == 0)
        return tc_fail(err, TC_ERROR_VALUE, "x has shape %s; expected (B, T, C) with T at least 1", tc_tensor_text(text, x));
    return tc_reduce(y, x, TC_REDUCE_max, 1, &sequence, false, err);
}
