/* function_ids.h: the functions of one and of two arguments by number, one row each in unary.def and binary.def. transformer_c.h includes
 * it, so that a new function recompiles the core and the ops, but of the kernels only those that compute such functions. */
#ifndef TC_KERNELS_FUNCTION_IDS_H
#define TC_KERNELS_FUNCTION_IDS_H

typedef enum tc_unary_function {
#define TC_UNARY(name, saved, value, gradient) TC_UNARY_##name,
#include "unary.def"
#undef TC_UNARY
    TC_UNARY_COUNT
} tc_unary_function;

typedef enum tc_binary_function {
#define TC_BINARY(name, needs_a, needs_b, value, gradient_a, gradient_b) TC_BINARY_##name,
#define TC_BINARY_FLAT(name, value) TC_BINARY_##name,
#define TC_BINARY_BITS(name) TC_BINARY_##name,
#include "binary.def"
#undef TC_BINARY
#undef TC_BINARY_FLAT
#undef TC_BINARY_BITS
    TC_BINARY_COUNT
} tc_binary_function;

#endif
