/* embedding.c: rows of a table, one-hot rows, and the largest value over a sequence.
 *
 * Saved for the backward of embedding: the indices. */
#include "../kernels/embedding.h"

#include <inttypes.h>
#include <string.h>

#include "../kernels/read_index.h"
#include "check_index.h"
#include "sort_positions.h"

/* ---- indices --------------------------------------------------------------------------------------------------------------- */

/* Integers, with at least one axis to spare. */
static tc_status check_integers(tc_scope *s, const tc_tensor *indices, const char *name)
{
    char text[TC_SHAPE_TEXT];
    if (tc_dtype_is_float(indices->dtype) || indices->dtype == TC_BOOL)
        return tc_fail(s->err, TC_ERROR_TYPE, "%s is %s; integers are needed: convert it with .long() or np.int64", name,
                       tc_dtype_name(indices->dtype));
    if (indices->ndim + 1 > TC_MAX_DIMS)
        return tc_fail(s->err, TC_ERROR_VALUE, "%s has shape %s; the result would have more than %d axes", name,
                       tc_tensor_text(text, indices), TC_MAX_DIMS);
    return TC_OK;
}

/* *places: the indices, contiguous int64. */
static tc_status as_int64(tc_scope *s, tc_tensor **places, tc_tensor *indices)
{
    TC_TRY(tc_tensor_as(places, indices, TC_INT64, s->err));
    return tc_own(s, *places);
}

static tc_status fail_row(const tc_index_check *check, int64_t position, int64_t row, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    return tc_fail(err, TC_ERROR_INDEX,
                   "index %" PRId64 " (element %" PRId64 " of indices, shape %s) is outside the table, which has %" PRId64 " rows", row,
                   position, tc_shape_text(text, check->ndim, check->shape), check->length);
}

/* The same for indices into a table of V rows. */
static tc_status as_rows(tc_scope *s, tc_tensor **places, tc_tensor *indices, int64_t V)
{
    TC_TRY(as_int64(s, places, indices));
    const tc_index_check check = tc_index_check_of(*places, V, fail_row);
    return tc_check_indices(&check, *places, s->err);
}

static int64_t group_count(int64_t n) { return tc_divide_up(n, TC_EMBEDDING_GROUP); }

/* ---- embedding ----------------------------------------------------------------------------------------------------------- */

/* The row without a gradient, or -1. */
static int64_t padding_row(const int64_t *padding_idx, int64_t V) { return !padding_idx ? -1 : *padding_idx + (*padding_idx < 0 ? V : 0); }

static tc_status check_table(tc_scope *s, const tc_tensor *weight, const int64_t *padding_idx)
{
    char text[TC_SHAPE_TEXT];
    TC_TRY(tc_check_float(weight, "weight", s->err));
    if (weight->ndim != 2)
        return tc_fail(s->err, TC_ERROR_VALUE, "weight has shape %s; expected two axes, (num_embeddings, embedding_dim)",
                       tc_tensor_text(text, weight));
    const int64_t V = weight->shape[0];
    if (padding_idx && (*padding_idx < -V || *padding_idx >= V))
        return tc_fail(s->err, TC_ERROR_VALUE, "padding_idx is %" PRId64 " but weight %s has %" PRId64 " rows", *padding_idx,
                       tc_tensor_text(text, weight), V);
    return TC_OK;
}

#define FEW_ROWS 8 /* on CPUs, indices of less than one row in FEW_ROWS are sorted; those of more rows are counted for each row */

/* args.rows, .order, .start and .count of the rows that `places` has. */
static tc_status list_rows(tc_scope *s, tc_embedding_backward_args *args, const tc_tensor *places, int64_t V)
{
    tc_tensor *order, *rows, *starts;
    const int64_t n = places->numel, ends = n + 1, *indices = tc_data(places);
    TC_TRY(tc_make_as(s, &order, 1, &n, TC_INT64));
    TC_TRY(tc_make_as(s, &rows, 1, &n, TC_INT64));
    TC_TRY(tc_make_as(s, &starts, 1, &ends, TC_INT64));
    TC_TRY(tc_sort_positions(tc_data(order), indices, n, s->device, s->err));
    int64_t *row = tc_data(rows), *start = tc_data(starts), count = 0, before = -1;
    args->order = tc_data(order);
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = tc_read_index_below(&indices[args->order[i]], V);
        if (v <= before) continue; /* less than the one before only if it was changed meanwhile */
        start[count] = i;
        row[count++] = before = v;
    }
    start[count] = n;
    args->rows = row, args->start = start, args->count = count;
    return TC_OK;
}

/* The same for all rows, without a list of them. */
static tc_status order_by_row(tc_scope *s, tc_embedding_backward_args *args, const tc_tensor *places, int64_t V)
{
    tc_tensor *order, *start;
    const int64_t n = places->numel, starts = V + 1; /* V fits */
    TC_TRY(tc_make_as(s, &order, 1, &n, TC_INT64));
    TC_TRY(tc_make_as(s, &start, 1, &starts, TC_INT64));
    const bool sorted = tc_sorts_first(s->device, n);
    if (sorted) TC_TRY(tc_sort_positions(tc_data(order), tc_data(places), n, s->device, s->err));
    const tc_embedding_order_args sorting = {
        .order = tc_data(order), .start = tc_data(start), .indices = tc_data(places), .n = n, .V = V, .sorted = sorted};
    args->order = sorting.order, args->start = sorting.start;
    return tc_compute(s, &tc_kernel_embedding_order, &sorting, 1, 3.0 * (double)(n + V));
}

/* dweight (V,D) of dy (...,D).  places: contiguous int64, in range; padding: a row, or -1. */
static tc_status table_gradient(tc_tensor **dweight, tc_tensor *dy, tc_tensor *places, int64_t V, int64_t padding, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"dy", dy, .halves = true}};
    tc_tensor *out;
    const int64_t n = places->numel, D = dy->shape[dy->ndim - 1], shape[2] = {V, D};
    TC_TRY(tc_begin(&s, in, 1));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make_result(&s, &out, 2, shape));
    tc_embedding_backward_args args = {
        .dweight = out->data, .dy = in[0].data, .n = n, .D = D, .padding_idx = padding, .stored = tc_stored_as(&s, out)};
    const bool few = s.device.type == TC_CPU && n < V / FEW_ROWS;
    TC_TRY((few ? list_rows : order_by_row)(&s, &args, places, V));
    TC_TRY(tc_compute(&s, &tc_kernel_embedding_backward, &args, V, (double)D * (1.0 + (double)n / (double)(V ? V : 1))));
    return tc_give_rounded(&s, 1, &(tc_result){dweight, out});
}

typedef struct embedding_attributes {
    int64_t V, padding;
} embedding_attributes;

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const embedding_attributes *a = node->attributes;
    return table_gradient(&grad_inputs[0], grad_outputs[0], tc_node_saved(node, 0), a->V, a->padding, err);
}

static const tc_op embedding_op = {"embedding", backward, .attribute_bytes = sizeof(embedding_attributes)};

tc_status tc_embedding(tc_tensor **y, tc_tensor *indices, tc_tensor *weight, const int64_t *padding_idx, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"weight", weight}};
    tc_tensor *out, *places;
    int64_t shape[TC_MAX_DIMS];
    TC_TRY(tc_begin_moving(&s, in, 1));
    TC_TRY(check_integers(&s, indices, "indices"));
    TC_TRY(check_table(&s, weight, padding_idx));
    TC_TRY(tc_check_same_device(indices, "indices", weight, "weight", err));
    const int64_t V = weight->shape[0], D = weight->shape[1];
    TC_TRY(as_rows(&s, &places, indices, V));
    TC_TRY(tc_prepare(&s));
    memcpy(shape, indices->shape, sizeof(int64_t) * (size_t)indices->ndim);
    shape[indices->ndim] = D;
    TC_TRY(tc_make(&s, &out, indices->ndim + 1, shape));
    const tc_embedding_forward_args args = {.y = out->data,
                                            .weight = in[0].data,
                                            .indices = tc_data(places),
                                            .n = places->numel,
                                            .V = V,
                                            .row_bytes = D * (int64_t)tc_dtype_size(weight->dtype)};
    TC_TRY(tc_compute(&s, &tc_kernel_embedding_forward, &args, group_count(args.n),
                      TC_EMBEDDING_GROUP * (8.0 + (double)args.row_bytes / 8.0)));
    const embedding_attributes a = {V, padding_row(padding_idx, V)};
    return tc_finish(&s, y, out, &(tc_record){.op = &embedding_op, TC_SAVED(places), .attributes = &a});
}

tc_status tc_embedding_backward(tc_tensor **dweight, tc_tensor *dy, tc_tensor *indices, int64_t V, const int64_t *padding_idx,
                                tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"dy", dy}};
    tc_tensor *places;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    TC_TRY(tc_begin(&s, in, 1));
    TC_TRY(check_integers(&s, indices, "indices"));
    TC_TRY(tc_check_same_device(dy, "dy", indices, "indices", err));
    if (dy->ndim != indices->ndim + 1 || memcmp(dy->shape, indices->shape, sizeof(int64_t) * (size_t)indices->ndim) != 0)
        return tc_fail(err, TC_ERROR_VALUE, "dy has shape %s; expected that of indices %s and one axis more", tc_tensor_text(a, dy),
                       tc_tensor_text(b, indices));
    if (V < 0) return tc_fail(err, TC_ERROR_VALUE, "num_embeddings is %" PRId64 "; it cannot be negative", V);
    TC_TRY(as_rows(&s, &places, indices, V));
    return table_gradient(dweight, dy, places, V, padding_row(padding_idx, V), err);
}

/* ---- one-hot --------------------------------------------------------------------------------------------------------------- */

static tc_status fail_one_hot(const tc_index_check *check, int64_t position, int64_t value, tc_error *err)
{
    if (value < 0)
        return tc_fail(err, TC_ERROR_VALUE, "x has %" PRId64 " as its element %" PRId64 "; classes are not negative", value, position);
    return tc_fail(err, TC_ERROR_VALUE,
                   "x has %" PRId64 " as its element %" PRId64 " but num_classes is %" PRId64 "; expected 0 to %" PRId64, value, position,
                   check->length, check->length - 1);
}

/* *count: one more than the largest value, which the host reads. */
static tc_status count_classes(tc_scope *s, int64_t *count, tc_tensor *places)
{
    TC_OWNED tc_tensor *host = NULL;
    char text[TC_SHAPE_TEXT];
    int64_t largest = -1;
    if (places->numel == 0)
        return tc_fail(s->err, TC_ERROR_VALUE, "x has shape %s, no elements, so num_classes must be given", tc_tensor_text(text, places));
    TC_TRY(tc_tensor_on(&host, places, (tc_device){TC_CPU, 0}, s->err));
    const int64_t *values = tc_data(host);
    for (int64_t i = 0; i < host->numel; i++) {
        const int64_t value = tc_read_index(&values[i]);
        if (value > largest) largest = value;
    }
    if (largest == INT64_MAX)
        return tc_fail(s->err, TC_ERROR_VALUE, "x has %" PRId64 " as an element: more classes than memory can address", largest);
    *count = largest + 1;
    return TC_OK;
}

tc_status tc_one_hot(tc_tensor **out, tc_tensor *indices, int64_t classes, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", indices}};
    tc_tensor *y, *places;
    int64_t shape[TC_MAX_DIMS], *count = &shape[indices->ndim];
    TC_TRY(tc_begin_moving(&s, in, 1));
    TC_TRY(check_integers(&s, indices, "x"));
    if (classes < -1) return tc_fail(err, TC_ERROR_VALUE, "num_classes is %" PRId64 "; expected -1 or a count", classes);
    TC_TRY(as_int64(&s, &places, indices));
    memcpy(shape, indices->shape, sizeof(int64_t) * (size_t)indices->ndim);
    *count = classes;
    if (classes < 0) TC_TRY(count_classes(&s, count, places));
    const tc_index_check check = tc_index_check_of(places, *count, fail_one_hot);
    TC_TRY(tc_check_indices(&check, places, err));
    TC_TRY(tc_make_as(&s, &y, indices->ndim + 1, shape, TC_INT64));
    const tc_one_hot_args args = {.out = tc_data(y), .indices = tc_data(places), .n = places->numel, .classes = *count};
    TC_TRY(tc_compute(&s, &tc_kernel_one_hot, &args, group_count(args.n), TC_EMBEDDING_GROUP * (4.0 + (double)args.classes / 4.0)));
    tc_give(&s, out, y);
    return TC_OK;
}

/* ---- pooling --------------------------------------------------------------------------------------------------------------- */

tc_status tc_global_max_pool1d(tc_tensor **y, tc_tensor *x, tc_error *err)
{
    static const int64_t sequence = 1;
    char text[TC_SHAPE_TEXT];
    TC_TRY(tc_check_float(x, "x", err));
    if (x->ndim != 3 || x->shape[1] == 0)
        return tc_fail(err, TC_ERROR_VALUE, "x has shape %s; expected (B, T, C) with T at least 1", tc_tensor_text(text, x));
    return tc_reduce(y, x, TC_REDUCE_max, 1, &sequence, false, err);
}
