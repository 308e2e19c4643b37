/* ops_rows.c: the ops of csrc/ops/ops.def. A row is read twice: as a function that calls C, then as an entry of the table. */
#include "binding.h"

#include "../core/tensor.h"

/* Where None is not a value of the argument's type, its variable is a pointer, NULL for None. */
#define OR_NULL(value, member) ((value)->none ? NULL : &(value)->member)

static const tcpy_ints all_axes = {.count = -1};

/* Each result and argument is a local variable of its name. */
#define RESULT(name) tc_tensor **const name = result_at++;
#define TENSOR(name, ...) tc_tensor *const name = (argument_at++)->t;
#define TENSOR_OR_NONE(name, ...) tc_tensor *const name = (argument_at++)->t;
#define STAYING(name, ...) tc_tensor *const name = (argument_at++)->t;
#define STAYING_OR_NONE(name, ...) tc_tensor *const name = (argument_at++)->t;
#define PROMOTED(name) tc_tensor *const name = (argument_at++)->t;
#define TENSORS(name, ...) const tc_tensors *const name = &(argument_at++)->list;
#define WRITTEN(name) const tc_tensors *const name = &(argument_at++)->list;
#define TENSORS_OR_NONE(name, ...)                                                                                                         \
    const tc_tensors *const name = OR_NULL(argument_at, list);                                                                             \
    argument_at++;
#define INT(name, ...) const int64_t name = (argument_at++)->i;
#define INT_OR_NONE(name, ...)                                                                                                             \
    const int64_t *const name = OR_NULL(argument_at, i);                                                                                   \
    argument_at++;
#define INT_OR_TENSOR(name, ...) const tcpy_integers *const name = &(argument_at++)->integers;
#define OPERAND(name) const tc_argument *const name = &(argument_at++)->operand->value;
#define NUMBER(name) const tc_scalar name = (argument_at++)->operand->value.scalar;
#define PAIR(name, ...) const tcpy_ints *const name = (argument_at++)->ints;
#define INTS(name, ...) const tcpy_ints *const name = (argument_at++)->ints;
#define INTS_OR_NONE(name, ...) const tcpy_ints *const name = (argument_at++)->ints;
#define AXES(name, ...)                                                                                                                    \
    const tcpy_ints *const name = argument_at->none ? &all_axes : argument_at->ints;                                                       \
    argument_at++;
#define AXES_NOT_EMPTY AXES
#define SPREAD(name) const tcpy_ints *const name = (argument_at++)->ints;
#define REAL(name, ...) const double name = (argument_at++)->f;
#define REAL_OR_NONE(name, ...)                                                                                                            \
    const double *const name = OR_NULL(argument_at, f);                                                                                    \
    argument_at++;
#define BOOL(name, ...) const bool name = (argument_at++)->b;
#define BOOL_OR_NONE(name, ...)                                                                                                            \
    const bool *const name = OR_NULL(argument_at, b);                                                                                      \
    argument_at++;
#define WORD(name) const uint64_t name = (uint64_t)(argument_at++)->i;
#define WORD_OF_DROPOUT(name, drops)                                                                                                       \
    if (argument_at->none && (drops))                                                                                                      \
        return tc_fail(err, TC_ERROR_VALUE,                                                                                                \
                       "dropout needs the arguments seed and call, from which follows what is kept; " #name " is None");                   \
    WORD(name)
#define CHOICE(name, ...) const int name = (int)(argument_at++)->i;
#define CHOICE_OR_NONE(name, ...) const int name = (int)(argument_at++)->i;
#define KEYWORDS
#define ALIAS(name, of) argument_at++;
#define NOTHING
#define OP(name, results, arguments, expression, where, doc)                                                                               \
    static tc_status call_##name(tc_tensor **result_at, const tcpy_value *argument_at, tc_error *err)                                      \
    {                                                                                                                                      \
        (void)result_at, (void)argument_at;                                                                                                \
        results arguments return expression;                                                                                               \
    }
#include "../ops/ops.def"
#undef RESULT
#undef TENSOR
#undef TENSOR_OR_NONE
#undef STAYING
#undef STAYING_OR_NONE
#undef PROMOTED
#undef TENSORS
#undef WRITTEN
#undef TENSORS_OR_NONE
#undef INT
#undef INT_OR_NONE
#undef INT_OR_TENSOR
#undef OPERAND
#undef NUMBER
#undef PAIR
#undef INTS
#undef INTS_OR_NONE
#undef AXES
#undef AXES_NOT_EMPTY
#undef SPREAD
#undef REAL
#undef REAL_OR_NONE
#undef BOOL
#undef BOOL_OR_NONE
#undef WORD
#undef WORD_OF_DROPOUT
#undef CHOICE
#undef CHOICE_OR_NONE
#undef KEYWORDS
#undef ALIAS
#undef NOTHING
#undef OP

/* Each is a word of the spec, as binding.h explains. */
#define ARGUMENT(name, kind, ...) name ":" kind __VA_OPT__("=" #__VA_ARGS__) " "
#define RESULT(name) #name " "
#define TENSOR(name, ...) ARGUMENT(#name, "t", __VA_ARGS__)
#define TENSOR_OR_NONE(name, ...) ARGUMENT(#name, "t?", __VA_ARGS__)
#define STAYING(name, ...) ARGUMENT(#name, "t@", __VA_ARGS__)
#define STAYING_OR_NONE(name, ...) ARGUMENT(#name, "t@?", __VA_ARGS__)
#define PROMOTED(name) ARGUMENT(#name, "t+")
#define TENSORS(name, ...) ARGUMENT(#name, "T", __VA_ARGS__)
#define WRITTEN(name) ARGUMENT(#name, "T@")
#define TENSORS_OR_NONE(name, ...) ARGUMENT(#name, "T?", __VA_ARGS__)
#define INT(name, ...) ARGUMENT(#name, "i", __VA_ARGS__)
#define INT_OR_NONE(name, ...) ARGUMENT(#name, "i?", __VA_ARGS__)
#define INT_OR_TENSOR(name, ...) ARGUMENT(#name, "n", __VA_ARGS__)
#define OPERAND(name) ARGUMENT(#name, "a")
#define NUMBER(name) ARGUMENT(#name, "v")
#define PAIR(name, ...) ARGUMENT(#name, "p", __VA_ARGS__)
#define INTS(name, ...) ARGUMENT(#name, "I", __VA_ARGS__)
#define INTS_OR_NONE(name, ...) ARGUMENT(#name, "I?", __VA_ARGS__)
#define AXES(name, ...) ARGUMENT(#name, "I?", __VA_ARGS__)
#define AXES_NOT_EMPTY(name, ...) ARGUMENT(#name, "I!?", __VA_ARGS__)
#define SPREAD(name) ARGUMENT(#name, "I*")
#define REAL(name, ...) ARGUMENT(#name, "f", __VA_ARGS__)
#define REAL_OR_NONE(name, ...) ARGUMENT(#name, "f?", __VA_ARGS__)
#define BOOL(name, ...) ARGUMENT(#name, "b", __VA_ARGS__)
#define BOOL_OR_NONE(name, ...) ARGUMENT(#name, "b?", __VA_ARGS__)
#define WORD(name) ARGUMENT(#name, "w")
#define WORD_OF_DROPOUT(name, drops) ARGUMENT(#name, "w", None)
#define CHOICE(name, ...) ARGUMENT(#name, "c", __VA_ARGS__)
#define CHOICE_OR_NONE(name, ...) ARGUMENT(#name, "c?", __VA_ARGS__)
#define KEYWORDS "| "
#define ALIAS(name, of) #name "=" #of " "
#define NOTHING ""
#define FUNCTION 0
#define METHOD TCPY_METHOD
#define METHOD_ONLY TCPY_METHOD_ONLY
#define UNRECORDED TCPY_UNRECORDED
#define QUICK TCPY_METHOD_ONLY | TCPY_KEEP_GIL
#define QUICK_OF_CONTIGUOUS QUICK | TCPY_MAY_COPY
#define AT_ONCE TCPY_KEEP_GIL
#define FUNCTION_IN_PLACE TCPY_RETURNS_SELF
#define IN_PLACE TCPY_METHOD_ONLY | TCPY_RETURNS_SELF
#define OP(op, made, arguments, expression, where, text)                                                                                   \
    {.name = #op, .spec = arguments, .results = made, .call = call_##op, .doc = text, .flags = where},

const tcpy_op tcpy_ops_rows[] = {
#include "../ops/ops.def"
    {.name = NULL},
};
