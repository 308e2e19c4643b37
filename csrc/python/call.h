/* call.h: an op as Python sees it, shared by spec.c (which reads it), arguments.c (which converts) and call.c (which binds and calls). */
#ifndef TC_PYTHON_CALL_H
#define TC_PYTHON_CALL_H

#include "binding.h"

/* Advice where a dtype is given for a shape. */
#define TCPY_BYTES_AS_DTYPE "t.to(dtype) converts values; tc.as_tensor(t.numpy().view(dtype)) reads the same bytes in another dtype"

/* The values of an argument of kind c, found by the name of the argument: a word is passed as its index in `words`, None as the first. */
typedef struct tcpy_choice {
    const char *argument, *words[5], *error;
} tcpy_choice;

typedef struct tcpy_argument {
    PyObject *name;   /* interned */
    const char *text; /* the same, owned by `name` */
    char kind;        /* t T i n a v p w f b I c o */
    bool optional;    /* None is allowed */
    bool spread;      /* I* */
    bool not_empty;   /* I! */
    bool promoted;    /* t+ */
    bool stays;       /* t@ T@ */
    bool required, keyword_only;
    int alias_of;              /* another name for that argument; -1: an argument itself */
    const tcpy_choice *choice; /* of kind c */
    tcpy_value fallback;
} tcpy_argument;

typedef struct tcpy_op_object {
    PyObject_HEAD vectorcallfunc vectorcall;
    const tcpy_op *op;
    PyObject *name, *doc, *signature, *spec;
    PyObject *results; /* names of the results, a tuple; NULL for an op with `run` */
    int count, positional;
    bool promotes; /* an argument is t+ */
    tcpy_argument args[TCPY_MAX_ARGS];
} tcpy_op_object;

/* ---- spec.c ------------------------------------------------------------------------------------------------------------ */

/* Fills in self->args, count and positional. 0, or -1, possibly without an exception, for a spec that cannot be read. */
int tcpy_read_spec(tcpy_op_object *self, const char *spec);
/* "(x, dim=-1, *, eps=1e-05)" in the way inspect.signature reads it. */
PyObject *tcpy_signature(const tcpy_op_object *self);
/* The index of the argument of that name, or -1. */
int tcpy_find_argument(const tcpy_op_object *self, PyObject *name);
/* The choice of an argument of that name, or NULL. */
const tcpy_choice *tcpy_find_choice(const char *name, size_t length);
/* The index of a word among the words of a choice, or -1. */
int tcpy_find_word(const tcpy_choice *choice, const char *word, size_t length);

/* ---- arguments.c ------------------------------------------------------------------------------------------------------- */

/* Converts one object to the argument's kind. New objects belong to the call. 0, or -1 with an exception set. */
int tcpy_convert(tcpy_call *call, const tcpy_argument *arg, tcpy_value *value, PyObject *object);
/* May the operands be combined, or a single one with the first argument? 0, or -1 with an exception set. */
int tcpy_check_operands(const tcpy_call *call);
/* For the arguments t+: ndarrays of several floating dtypes become the promoted one. Tensors are left to the op, whose message names
 * both. */
int tcpy_promote(tcpy_call *call, const tcpy_op_object *self);
/* f(x, 2, 3) for an argument I*: the rest of the positional arguments are its items, or none in f(x). */
int tcpy_convert_spread(tcpy_call *call, const tcpy_argument *arg, tcpy_value *value, PyObject *const *items, Py_ssize_t count);

#endif
