/* triangle.c: the upper or the lower triangle of matrices. Nothing is saved: the gradient is the same triangle of dy. */
#include "../kernels/triangle.h"

#include "../core/backend.h"
#include "../core/status.h"
#include "../core/tape.h"
#include "operands.h"

typedef struct triangle_attributes {
    int64_t diagonal;
    bool upper;
} triangle_attributes;

static tc_status triangle(tc_tensor **out, tc_tensor *x, const triangle_attributes *a, tc_error *err)
{
    tc_scope scope = {0};
    tc_tensor *y = NULL;
    tc_status status = TC_OK;
    char text[TC_SHAPE_TEXT];
    if (x->ndim < 2)
        return tc_fail(err, TC_ERROR_VALUE, "triu and tril are of matrices: input needs at least 2 axes, its shape is %s",
                       tc_tensor_text(text, x));
    TC_TRY(tc_scope_contiguous(&scope, &x, err));
    TC_TRY(tc_tensor_like(&y, x, err));
    const int64_t M = x->shape[x->ndim - 2], N = x->shape[x->ndim - 1];
    int64_t diagonal = a->diagonal; /* any beyond the corners is as good as the one there */
    if (diagonal > N) diagonal = N;
    if (diagonal < -M) diagonal = -M;
    const tc_triangle_args args = {
        .y = y->data, .x = x->data, .element_bytes = (int)tc_dtype_size(x->dtype), .upper = a->upper, .M = M, .N = N, .diagonal = diagonal};
    if (x->numel) TC_TRY(tc_run(x->storage->device, TC_FLOAT32, TC_K_triangle, &args, x->numel / N, (double)N, 0, err));
    *out = tc_tensor_retain(y);
cleanup:
    tc_scope_end(&scope);
    tc_tensor_release(y);
    return status;
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    return triangle(&grad_inputs[0], grad_outputs[0], node->attributes, err);
}

static const tc_op triangle_op = {"triangle", backward, NULL};

tc_status tc_triangle(tc_tensor **out, tc_tensor *x, bool upper, int64_t diagonal, tc_error *err)
{
    const triangle_attributes a = {diagonal, upper};
    tc_tensor *y;
    tc_status status = triangle(&y, x, &a, err);
    if (status != TC_OK) return status;
    const tc_record record = {.op = &triangle_op,
                              .input_count = 1,
                              .inputs = &x,
                              .output_count = 1,
                              .outputs = &y,
                              .attributes = &a,
                              .attribute_bytes = sizeof a};
    status = tc_tape_record(&record, err);
    if (status != TC_OK)
        tc_tensor_release(y);
    else
        *out = y;
    return status;
}
