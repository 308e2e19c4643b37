/* elementwise.h: arguments of the element-wise kernels: one result, up to three operands, any strides and dtypes. */
#ifndef TC_KERNELS_ELEMENTWISE_H
#define TC_KERNELS_ELEMENTWISE_H

#include <stdint.h>

#include "kernels.h"

#define TC_ELEMENT_DIMS 16
#define TC_ELEMENT_BLOCK 8192 /* elements per item */
#define TC_ELEMENT_INPUTS 3

/* What the kernels of three inputs choose. */
enum {
    TC_CHOICE_where, /* condition, a, b: a where the condition is not zero, otherwise b */
    TC_CHOICE_clamp, /* x, low, high: x between them; NaN where one is NaN */
    TC_CHOICE_same,  /* g, x, y: g where x and y are equal, otherwise 0 */
    /* On CPUs alone, with the bits of the ops one after the other: */
    TC_CHOICE_add_product, /* x, y, z: x + y z */
    TC_CHOICE_lerp         /* x, y, z: x + (y - x) z */
};

/* One operand. Elements are converted between `dtype` (a tc_dtype) and the kernel's compute dtype when they are read and written. Strides
 * in elements, any sign, 0 to repeat. data NULL: every element is `value`, or `integer` in the integer kernels. */
typedef struct tc_operand {
    void *data;
    int dtype;
    double value;
    int64_t integer;
    int64_t strides[TC_ELEMENT_DIMS];
} tc_operand;

/* out[i] = function(in[0][i], in[1][i], in[2][i]) for i over shape.  Items are blocks of TC_ELEMENT_BLOCK elements in C order. The
 * layout has been simplified by the op (tc_layout_merge). out may be one of the inputs when their strides are equal.
 *
 * kernel            function              inputs
 * unary_forward     TC_UNARY_*            x
 * unary_backward    TC_UNARY_*            dy, and x or y, as the row of unary.def says       -> dx
 * binary_forward    TC_BINARY_*           a, b
 * binary_backward   2 * TC_BINARY_* + i   dy, a, b     -> da (i = 0), db (i = 1)
 * where_forward     TC_CHOICE_*           three: see there
 * integer_unary, integer_binary, integer_where: the same in int64 arithmetic (integer.def); of the choices TC_CHOICE_where alone
 */
typedef struct tc_elementwise_args {
    int function;
    int inputs;
    int ndim;
    int64_t numel;
    int64_t shape[TC_ELEMENT_DIMS];
    tc_operand out;
    tc_operand in[TC_ELEMENT_INPUTS];
} tc_elementwise_args;
extern const tc_kernel tc_kernel_binary_backward;
extern const tc_kernel tc_kernel_binary_forward;
extern const tc_kernel tc_kernel_integer_binary;
extern const tc_kernel tc_kernel_integer_unary;
extern const tc_kernel tc_kernel_integer_where;
extern const tc_kernel tc_kernel_unary_backward;
extern const tc_kernel tc_kernel_unary_forward;
extern const tc_kernel tc_kernel_where_forward;

#endif
