/* triangle.c: the upper or the lower triangle of matrices. Nothing is saved: the gradient is the same triangle of dy. */
#include "../kernels/triangle.h"

#include "op.h"

typedef struct triangle_attributes {
    int64_t diagonal;
    bool upper;
} triangle_attributes;

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const triangle_attributes *a = node->attributes;
    return tc_triangle(&grad_inputs[0], grad_outputs[0], a->upper, a->diagonal, err);
}

static const tc_op triangle_op = {"triangle", backward, .attribute_bytes = sizeof(triangle_attributes)};

tc_status tc_triangle(tc_tensor **out, tc_tensor *x, bool upper, int64_t diagonal, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"input", x}};
    tc_tensor *y;
    char text[TC_SHAPE_TEXT];
    TC_TRY(tc_begin_moving(&s, in, 1));
    if (x->ndim < 2)
        return tc_fail(err, TC_ERROR_VALUE, "triu and tril are of matrices: input needs at least 2 axes, its shape is %s",
                       tc_tensor_text(text, x));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &y, x->ndim, x->shape));
    const int64_t M = x->shape[x->ndim - 2], N = x->shape[x->ndim - 1];
    const triangle_attributes a = {.diagonal = diagonal > N ? N : diagonal < -M ? -M : diagonal, .upper = upper}; /* beyond the corners */
    const tc_triangle_args args = {.y = y->data,
                                   .x = in[0].data,
                                   .element_bytes = (int)tc_dtype_size(x->dtype),
                                   .upper = upper,
                                   .M = M,
                                   .N = N,
                                   .diagonal = a.diagonal};
    if (x->numel) TC_TRY(tc_compute(&s, &tc_kernel_triangle, &args, x->numel / N, (double)N));
    TC_TRY(tc_tensor_settle_bools(y, err));
    return tc_finish(&s, out, y, &(tc_record){.op = &triangle_op, .attributes = &a});
}
