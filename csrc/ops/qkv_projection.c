/* qkv_projection.c: queries, keys and values of all heads by one product (Vaswani et al. 2017, section 3.2.2). q, k and v are views of
 * its result (..., T, 3E): nothing is copied, attention reads rows of any stride.
 *
 * Saved for the backward: x and weight. */
#include <inttypes.h>
#include <string.h>

#include "gemm.h"
#include "linear.h"

enum { X, WEIGHT, BIAS, INPUTS };
enum { SAVED_X, SAVED_WEIGHT, SAVED_LENGTHS };

typedef struct heads {
    int64_t H, D;
    int64_t head, part; /* columns from one head to the next, and from q to k to v */
} heads;

static tc_status find_heads(heads *h, const tc_tensor *x, const tc_tensor *weight, int64_t num_heads, tc_packing packing, tc_error *err)
{
    char text[TC_SHAPE_TEXT];
    if (x->ndim < 2 || x->ndim + 1 > TC_MAX_DIMS)
        return tc_fail(err, TC_ERROR_VALUE, "x has shape %s; expected (..., T, C) with 2 to %d axes", tc_tensor_text(text, x),
                       TC_MAX_DIMS - 1);
    if (weight->ndim != 2)
        return tc_fail(err, TC_ERROR_VALUE, "weight has shape %s; expected two axes, (3 E, C)", tc_tensor_text(text, weight));
    if (num_heads < 1) return tc_fail(err, TC_ERROR_VALUE, "num_heads is %" PRId64 "; it must be at least 1", num_heads);
    if (weight->shape[0] % 3 != 0 || weight->shape[0] / 3 % num_heads != 0)
        return tc_fail(err, TC_ERROR_VALUE,
                       "weight has shape %s; its rows must be queries, keys and values of %" PRId64 " heads, a multiple of 3 * %" PRId64,
                       tc_tensor_text(text, weight), num_heads, num_heads);
    h->H = num_heads;
    h->D = weight->shape[0] / 3 / num_heads;
    h->head = packing == TC_PACKING_HEAD ? 3 * h->D : h->D;
    h->part = packing == TC_PACKING_HEAD ? h->D : h->D * h->H;
    return TC_OK;
}

/* The three views (..., H, T, D) of joint (..., T, 3E): q, k, v. */
static tc_status three_windows(tc_scope *s, tc_tensor *windows[3], tc_tensor *joint, const heads *h)
{
    int64_t shape[TC_MAX_DIMS], strides[TC_MAX_DIMS];
    const int n = joint->ndim;
    memcpy(shape, joint->shape, sizeof shape);
    memcpy(strides, joint->strides, sizeof strides);
    shape[n - 2] = h->H, strides[n - 2] = h->head;
    shape[n - 1] = joint->shape[n - 2], strides[n - 1] = joint->strides[n - 2];
    shape[n] = h->D, strides[n] = 1;
    for (int part = 0; part < 3; part++) TC_TRY(tc_make_view(s, &windows[part], joint, n + 1, shape, strides, part * h->part));
    return TC_OK;
}

/* ---- the gradient of the joint result ------------------------------------------------------------------------------------ */

/* Are the gradients the three views of one (..., T, 3E) tensor? Then *joint is that tensor, otherwise it stays NULL. */
static tc_status joint_of_windows(tc_scope *s, tc_tensor **joint, tc_tensor *const d[3], const heads *h, int ndim, const int64_t *shape)
{
    if (!d[0] || !d[1] || !d[2]) return TC_OK;
    const int64_t element = (int64_t)tc_dtype_size(d[0]->dtype);
    int64_t strides[TC_MAX_DIMS], expected[TC_MAX_DIMS], step = 1;
    for (int i = ndim - 1; i >= 0; step *= shape[i--]) strides[i] = step;
    memcpy(expected, strides, sizeof expected);
    expected[ndim - 2] = h->head, expected[ndim - 1] = strides[ndim - 2], expected[ndim] = 1;
    for (int part = 0; part < 3; part++) {
        if (d[part]->storage != d[0]->storage || d[part]->dtype != d[0]->dtype || d[part]->data != d[0]->data + part * h->part * element)
            return TC_OK;
        for (int i = 0; i <= ndim; i++)
            if (d[part]->shape[i] > 1 && d[part]->strides[i] != expected[i]) return TC_OK;
    }
    return tc_make_view(s, joint, d[0], ndim, shape, strides, 0);
}

/* The same gathered: three copies. */
static tc_status joint_by_copy(tc_scope *s, tc_tensor **joint, tc_tensor *const d[3], const heads *h, int ndim, const int64_t *shape,
                               const tc_tensor *x)
{
    tc_tensor *windows[3];
    const bool all = d[0] && d[1] && d[2];
    TC_TRY((all ? tc_tensor_empty : tc_tensor_zeros)(joint, ndim, shape, x->dtype, x->storage->device, s->err));
    TC_TRY(tc_own(s, *joint));
    TC_TRY(three_windows(s, windows, *joint, h));
    for (int i = 0; i < 3; i++)
        if (d[i]) TC_TRY(tc_tensor_copy(windows[i], d[i], s->err));
    return TC_OK;
}

static tc_status check_gradient(const tc_tensor *d, const char *name, const heads *h, const tc_tensor *x, tc_error *err)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    int64_t shape[TC_MAX_DIMS];
    const int n = x->ndim;
    if (!d) return TC_OK;
    memcpy(shape, x->shape, sizeof shape);
    shape[n - 2] = h->H, shape[n - 1] = x->shape[n - 2], shape[n] = h->D;
    if (tc_has_shape(d, n + 1, shape)) return tc_check_same_dtype(x, "x", d, name, err);
    return tc_fail(err, TC_ERROR_VALUE, "%s has shape %s; expected %s, (..., heads, T, head size)", name, tc_tensor_text(a, d),
                   tc_shape_text(b, n + 1, shape));
}

/* `node`: as in tc_linear_gradients. */
static tc_status gradients(const tc_node *node, tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dq, tc_tensor *dk,
                           tc_tensor *dv, tc_tensor *x, tc_tensor *weight, int64_t num_heads, tc_packing packing,
                           const tc_sequences *sequences, tc_error *err)
{
    TC_SCOPE(s, err);
    heads h;
    int64_t shape[TC_MAX_DIMS];
    tc_tensor *joint = NULL, *const d[3] = {dq, dk, dv};
    static const char *const names[3] = {"dq", "dk", "dv"};
    TC_TRY(find_heads(&h, x, weight, num_heads, packing, err));
    for (int i = 0; i < 3; i++) TC_TRY(check_gradient(d[i], names[i], &h, x, err));
    memcpy(shape, x->shape, sizeof shape);
    shape[x->ndim - 1] = weight->shape[0];
    TC_TRY(joint_of_windows(&s, &joint, d, &h, x->ndim, shape));
    if (!joint) TC_TRY(joint_by_copy(&s, &joint, d, &h, x->ndim, shape, x));
    return tc_linear_gradients(node, dx, dweight, dbias, joint, false, x, weight, NULL, TC_ACTIVATION_NONE, sequences, err);
}

tc_status tc_qkv_projection_backward(tc_tensor **dx, tc_tensor **dweight, tc_tensor **dbias, tc_tensor *dq, tc_tensor *dk, tc_tensor *dv,
                                     tc_tensor *x, tc_tensor *weight, int64_t num_heads, tc_packing packing, const tc_sequences *sequences,
                                     tc_error *err)
{
    return gradients(NULL, dx, dweight, dbias, dq, dk, dv, x, weight, num_heads, packing, sequences, err);
}

/* ---- on the tape --------------------------------------------------------------------------------------------------------- */

typedef struct qkv_attributes {
    int64_t num_heads;
    tc_packing packing;
    int64_t length; /* of sequences */
} qkv_attributes;

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const qkv_attributes *a = node->attributes;
    const tc_sequences sequences = {a->length, tc_node_saved(node, SAVED_LENGTHS)};
    return gradients(node, tc_wanted(node, grad_inputs, X), tc_wanted(node, grad_inputs, WEIGHT), tc_wanted(node, grad_inputs, BIAS),
                     grad_outputs[0], grad_outputs[1], grad_outputs[2], tc_node_saved(node, SAVED_X), tc_node_saved(node, SAVED_WEIGHT),
                     a->num_heads, a->packing, &sequences, err);
}

static const tc_op qkv_projection_op = {"qkv_projection", backward, NULL, sizeof(qkv_attributes)};

tc_status tc_qkv_projection(tc_tensor **q, tc_tensor **k, tc_tensor **v, tc_tensor *x, tc_tensor *weight, tc_tensor *bias,
                            int64_t num_heads, tc_packing packing, const tc_sequences *sequences, tc_error *err)
{
    TC_SCOPE(s, err);
    heads h;
    tc_input in[] = {[X] = {"x", x, .strided = true, .halves = true},
                     [WEIGHT] = {"weight", weight, .strided = true, .halves = true},
                     [BIAS] = {"bias", bias, .halves = true}};
    tc_tensor *joint, *kept, *windows[3];
    tc_sequences own;
    TC_TRY(tc_begin(&s, in, INPUTS));
    TC_TRY(find_heads(&h, x, weight, num_heads, packing, err));
    TC_TRY(tc_linear_check(&s, x, weight, bias, NULL));
    TC_TRY(tc_take_sequences(&s, &own, sequences, x));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_linear_compute(&s, &joint, NULL, TC_ACTIVATION_NONE, NULL, &own));
    TC_TRY(three_windows(&s, windows, joint, &h));
    TC_TRY(tc_keep_for(&s, &kept, x, weight));
    return tc_finish_all(&s, 3, (tc_result[]){{q, windows[0]}, {k, windows[1]}, {v, windows[2]}},
                         &(tc_record){.op = &qkv_projection_op,
                                      TC_SAVED(kept, weight, own.lengths),
                                      .attributes = &(qkv_attributes){num_heads, packing, own.length}});
}
