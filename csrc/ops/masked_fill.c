/* masked_fill.c: one value where a mask is set, in a new tensor or in place. */
#include <math.h>

#include "../core/broadcast.h"
#include "../core/write_where.h"
#include "op.h"
#include "view.h"

/* *filled: the value in the dtype of x, a number, or an element on its device (owned by the scope). */
static tc_status read_fill(tc_scope *s, tc_argument *filled, const tc_tensor *x, const tc_tensor *mask, const tc_argument *value)
{
    char a[TC_SHAPE_TEXT];
    const tc_dtype given = value->tensor ? value->tensor->dtype : value->scalar.kind;
    *filled = *value;
    if (mask->dtype != TC_BOOL)
        return tc_fail(s->err, TC_ERROR_TYPE,
                       "mask is %s; masked_fill needs a bool mask, True where the value goes: mask == 0, or mask.bool()",
                       tc_dtype_name(mask->dtype));
    if (value->tensor && value->tensor->ndim > 0)
        return tc_fail(s->err, TC_ERROR_VALUE,
                       "value has shape %s; masked_fill takes a number or a Tensor without axes: tc.where takes others",
                       tc_tensor_text(a, value->tensor));
    const bool whole = !value->tensor && isfinite(value->scalar.real) && value->scalar.real == trunc(value->scalar.real);
    if (tc_dtype_is_float(given) && !tc_dtype_is_float(x->dtype) && !whole)
        return value->tensor
                   ? tc_fail(s->err, TC_ERROR_TYPE, "value of %s cannot be written to a tensor of %s; convert the tensor with .float()",
                             tc_dtype_name(given), tc_dtype_name(x->dtype))
                   : tc_fail(s->err, TC_ERROR_TYPE, "value %g cannot be written to a tensor of %s; convert the tensor with .float()",
                             value->scalar.real, tc_dtype_name(x->dtype));
    if (value->tensor) {
        TC_TRY(tc_cast(&filled->tensor, value->tensor, x->dtype, s->err));
        TC_TRY(tc_own(s, filled->tensor));
        TC_TRY(tc_to_device(&filled->tensor, filled->tensor, x->storage->device, s->err));
        return tc_own(s, filled->tensor);
    }
    if (x->dtype == TC_BOOL) {
        filled->scalar = tc_scalar_bool(value->scalar.real != 0);
    } else if (!tc_dtype_is_float(x->dtype) && tc_dtype_is_float(given)) {
        TC_TRY(tc_check_number_fits(value->scalar, x->dtype, s->err));
        filled->scalar = tc_scalar_integer((int64_t)value->scalar.real);
    }
    return TC_OK;
}

tc_status tc_masked_fill(tc_tensor **out, tc_tensor *x, tc_tensor *mask, const tc_argument *value, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_argument filled;
    TC_TRY(read_fill(&s, &filled, x, mask, value));
    return tc_where(out, mask, &filled, &(tc_argument){.tensor = x}, err);
}

/* *out: `filled` as an element of the dtype of x, rounded as the kernels round it. */
static tc_status element_of(tc_scope *s, tc_tensor **out, const tc_argument *filled, const tc_tensor *x)
{
    const bool floating = tc_dtype_is_float(x->dtype);
    tc_scalar number = filled->scalar;
    tc_tensor *wide = filled->tensor;
    if (!wide) {
        TC_TRY(tc_check_number_fits(number, x->dtype, s->err));
        void *const bytes = floating ? (void *)&number.real : (void *)&number.integer;
        TC_TRY(tc_tensor_wrap(&wide, bytes, 0, NULL, NULL, floating ? TC_FLOAT64 : TC_INT64, false, NULL, NULL, s->err));
        TC_TRY(tc_own(s, wide));
        TC_TRY(tc_tensor_as(&wide, wide, floating ? tc_compute_dtype(x->dtype) : TC_INT64, s->err));
        TC_TRY(tc_own(s, wide));
    }
    TC_TRY(tc_make_as(s, out, 0, NULL, x->dtype));
    return tc_tensor_copy(*out, wide, s->err);
}

/* Does b broadcast to the shape of a? */
static bool fits(const tc_tensor *a, const tc_tensor *b)
{
    int ndim;
    int64_t shape[TC_MAX_DIMS];
    tc_error unread; /* where() says what is wrong */
    return tc_broadcast_shape(&ndim, shape, a->ndim, a->shape, b->ndim, b->shape, &unread) == TC_OK && tc_has_shape(a, ndim, shape);
}

tc_status tc_fill_masked(tc_tensor *x, tc_tensor *mask, const tc_argument *value, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_argument filled;
    tc_tensor *view, *element;
    TC_OWNED tc_tensor *result = NULL;
    tc_input in[] = {{"x", x}};
    TC_TRY(tc_begin_moving(&s, in, 1));
    TC_TRY(read_fill(&s, &filled, x, mask, value));
    if (fits(x, mask)) {
        TC_TRY(tc_broadcast_view(&view, mask, x->ndim, x->shape, err));
        TC_TRY(tc_own(&s, view));
        const bool distinct = tc_layout_is_distinct(x->ndim, x->shape, x->strides);
        const bool in_place = tc_can_write_where(x, view) && !tc_tape_wants(2, (tc_tensor *const[]){x, filled.tensor});
        element = filled.tensor;
        if (in_place || (!distinct && !element)) TC_TRY(element_of(&s, &element, &filled, x));
        if (!distinct) return tc_index_set(x, 1, &(tc_index){.kind = TC_INDEX_TENSOR, .tensor = view}, element, err);
        if (in_place) {
            TC_TRY(tc_tensor_begin_write(x, err));
            return tc_write_where(x, view, element, err);
        }
    }
    TC_TRY(tc_where(&result, mask, &filled, &(tc_argument){.tensor = x}, err));
    return tc_assign(x, result, err);
}
