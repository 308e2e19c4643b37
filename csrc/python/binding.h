/* binding.h: the thin layer between CPython, NumPy and the C library: arguments, errors, ownership. No arithmetic here.
 *
 * An op is one row of a table:
 *     {"layer_norm", "x:t normalized_shape:I weight:t?=None bias:t?=None eps:f=1e-5", run_layer_norm, "doc"}
 * The spec names the arguments, their kinds and defaults; call.c binds a call to it and passes `run` a tcpy_call with
 * converted arguments. Kinds:
 *     t  a tensor: a Tensor, an ndarray, or whatever np.asarray takes     t?  or None
 *     t+ likewise; ndarrays of several floating dtypes become the promoted one
 *     t@ likewise, wherever it is: beside Tensors on a GPU, arrays of the other kinds become Tensors there     t@?  or None
 *     T  a sequence of tensors     T@  wherever they are, as they are written to
 *     i  an int          i?  or None          f  a float          f?  or None          b  a bool
 *     I  an int or a sequence of ints         I?  or None         I*  like I, but also spread over the rest of the call: t.view(2, 3)
 *     I! likewise, but not () by an alias or a position, as PyTorch and NumPy do not agree on it    I!?  or None
 *     w  an int, cut to 64 bits               o  any object
 *     n  an int, or integers in a tensor      p  a pair of counts, None in it for no bound
 *     a  an operand: a tensor or a number     v  a number
 *     c  one of the words that spec.c lists for the argument of this name (as an int: its place)      c?  or None, the first
 * `dim=axis` makes dim another name of the earlier argument axis. A `|` before an argument makes it and the following ones keyword-only.
 * No default means required.
 */
#ifndef TC_PYTHON_BINDING_H
#define TC_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#ifndef TCPY_MODULE_FILE
#define NO_IMPORT_ARRAY
#endif
#define PY_ARRAY_UNIQUE_SYMBOL transformer_c_array_api
#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>

#include "../transformer_c.h"

#define TCPY_MAX_ARGS 24
#define TCPY_MAX_INTS TC_MAX_DIMS
#define TCPY_MAX_LISTS 8
#define TCPY_MAX_RESULTS 8

typedef struct tcpy_ints {
    int count;   /* -1: all axes */
    bool scalar; /* one int was given, not a sequence */
    bool none;   /* nothing was given: t.squeeze(), not t.squeeze(()) */
    int64_t values[TCPY_MAX_INTS];
} tcpy_ints;

typedef struct tcpy_integers {
    tc_tensor *tensor; /* borrowed from the call; NULL: the number */
    int64_t number;
} tcpy_integers;

typedef struct tcpy_operand {
    tc_argument value; /* its tensor is borrowed from the call */
    PyObject *beyond;  /* borrowed: an int of more than 64 bits, which only combines with floats; or NULL */
} tcpy_operand;

typedef struct tcpy_value {
    union {
        tc_tensor *t; /* borrowed from the call; NULL for None */
        int64_t i;
        double f;
        bool b;
        PyObject *o; /* borrowed */
        tcpy_ints *ints;
        tcpy_integers integers;
        const tcpy_operand *operand;
        tc_tensors list; /* borrowed from the call */
    };
    bool given; /* false: the default */
    bool none;
} tcpy_value;

/* One call: the converted arguments, and the objects to release afterwards. */
typedef struct tcpy_call {
    const char *name;
    bool any_tensor; /* a Tensor was among the arguments: the results are Tensors */
    bool any_array;  /* or what is none */
    bool keep_gil;   /* little work: not worth letting other threads in. Otherwise the call computes with what tcpy_hold made */
    tcpy_value v[TCPY_MAX_ARGS];
    int owned_count, owned_capacity;
    tc_tensor **owned, *owned_small[TCPY_MAX_ARGS];
    int ints_count;
    tcpy_ints ints[4];
    int operand_count;
    tcpy_operand operands[2];
    void *blocks[TCPY_MAX_LISTS]; /* PyMem blocks of tensor lists */
    int block_count;
} tcpy_call;

typedef PyObject *(*tcpy_run)(tcpy_call *call);
typedef tc_status (*tcpy_c_function)(tc_tensor **out, const tcpy_value *arguments, tc_error *err);

/* A row of ops.def has `call` and `results`; an op that makes its own Python objects has `run`. */
typedef struct tcpy_op {
    const char *name;
    const char *spec;
    tcpy_run run;
    const char *doc;
    int flags;
    tcpy_c_function call;
    const char *results; /* their names, each followed by a blank */
} tcpy_op;

#define TCPY_METHOD 1      /* also a method of Tensor; the first argument is self */
#define TCPY_METHOD_ONLY 2 /* a method of Tensor and nothing else */
#define TCPY_UNRECORDED 4  /* runs with gradients turned off */
#define TCPY_KEEP_GIL 8    /* little work, however many elements there are */
#define TCPY_RETURNS_SELF 16
#define TCPY_MAY_COPY 32 /* with TCPY_KEEP_GIL: but much work where the first argument is not contiguous */

/* With this few elements a call takes a few microseconds, and releasing the GIL costs more. */
#define TCPY_LITTLE 16384
static inline bool tcpy_is_little(const tc_tensor *tensor) { return tc_tensor_numel(tensor) <= TCPY_LITTLE; }

/* Computes: runs an expression that returns tc_status, with the GIL released unless the work is small. Then every Tensor in the expression
 * has been through tcpy_hold. */
#define TCPY_COMPUTE(call, status, expression)                                                                                             \
    do {                                                                                                                                   \
        if ((call)->keep_gil) {                                                                                                            \
            (status) = (expression);                                                                                                       \
        } else {                                                                                                                           \
            Py_BEGIN_ALLOW_THREADS(status) = (expression);                                                                                 \
            Py_END_ALLOW_THREADS tcpy_end_holds(call);                                                                                     \
        }                                                                                                                                  \
    } while (0)

#if PY_VERSION_HEX < 0x030A0000
#error "transformer_c needs Python 3.10 or newer"
#endif

/* ---- state: one per process (NumPy does not support sub-interpreters either) ------------------- */

typedef struct tcpy_state {
    PyTypeObject *tensor_type, *op_type;
    PyArray_Descr *bfloat16; /* of ml_dtypes, or NULL until first needed */
    PyObject *bfloat16_name; /* tc.bfloat16: that, or a word; or NULL until first needed */
    PyObject *tracer;        /* called after each op, or NULL */
    PyObject *device_type;   /* what device names are made of, or NULL for str */
    PyObject *cpu;           /* the device "cpu" */
} tcpy_state;
extern tcpy_state tcpy;

typedef struct tcpy_tensor {
    PyObject_HEAD tc_tensor *tensor;
    PyObject *weakrefs;
} tcpy_tensor;

#define tcpy_is_tensor(object) PyObject_TypeCheck(object, tcpy.tensor_type)

/* ---- converting (convert.c) ------------------------------------------------------------------------------------------------ */

/* A new reference to a tensor over the ndarray's memory where that is possible, otherwise over a copy. `name` for messages. */
int tcpy_tensor_from_array(tc_tensor **out, PyArrayObject *array, const char *name);
/* Whatever np.asarray takes, or a Tensor. New reference. 0, or -1 with an exception set. *is_tensor says which it was. */
int tcpy_tensor_from_object(tc_tensor **out, PyObject *object, const char *name, bool *is_tensor);
/* A new ndarray that shares the tensor's memory (CPU tensors). */
PyObject *tcpy_array_from_tensor(tc_tensor *tensor, bool writable);
int tcpy_dtype_from_object(tc_dtype *out, PyObject *object); /* np.float32, "float32", float, tc dtype names */
PyObject *tcpy_dtype_to_object(tc_dtype dtype);              /* the np.dtype, or tc.bfloat16; new reference */
/* 1, 0, or -1 with the exception that the attribute itself raised, which PyObject_HasAttr would hide. */
int tcpy_has_attribute(PyObject *object, const char *name);

/* ---- devices (device.c) ------------------------------------------------------------------------------------------------- */

int tcpy_device_from_object(tc_device *out, PyObject *object); /* "cpu", "cuda", "cuda:1"; None is the CPU */
PyObject *tcpy_device_to_object(tc_device device);
PyObject *tcpy_set_device_type(PyObject *module, PyObject *type);

/* ---- releases (release.c) ----------------------------------------------------------------------------------------------- */

/* Calls release(context) with the GIL: at once on a thread that has it, otherwise at the next call from Python. So the core may release a
 * tensor while it holds a lock: no thread waits for the GIL there. */
void tcpy_release_with_gil(void (*release)(void *context), void *context);
/* The same for a reference to a PyObject: what a tensor over the memory of an object calls when it is freed. */
void tcpy_release_object(void *object);
/* Does what waits for the GIL. */
void tcpy_drain_releases(void);

/* ---- arguments, and what a call owns (arguments.c) ------------------------------------------------------------------ */

/* The items of an iterable as a tuple: converting one may run code of the user's (__index__, __array__) that changes a list. On failure the
 * format and the arguments after it make the TypeError. */
PyObject *tcpy_items(PyObject *object, const char *format, ...);
/* After a failed conversion: a TypeError gets this message, which names the argument. Anything else that the user's code raised
 * (KeyboardInterrupt, MemoryError) stays. Returns -1. */
int tcpy_name_argument(const char *format, ...);
/* The repr of an object, or how many bits an int has whose digits are too many to show: beyond 4300 of them, repr is an error. */
PyObject *tcpy_shown(PyObject *object);
/* Raises an error whose message has this instead of %%S, which `format` and the arguments after it leave. */
void tcpy_raise_shown(PyObject *type, PyObject *object, const char *format, ...);

/* Before and after what a call owns; keep_gil is the caller's to set, before it holds anything. */
static inline void tcpy_begin(tcpy_call *call)
{
    call->owned = call->owned_small;
    call->owned_count = 0;
    call->owned_capacity = TCPY_MAX_ARGS;
    call->ints_count = call->operand_count = call->block_count = 0;
    call->any_array = false;
}
void tcpy_release_owned(tcpy_call *call);
static inline void tcpy_end(tcpy_call *call)
{
    if (call->owned_count || call->block_count) tcpy_release_owned(call);
}

/* The call releases `tensor` at its end. Steals the reference, also on failure. 0, or -1 with an exception set. */
int tcpy_own(tcpy_call *call, tc_tensor *tensor);

/* Arrays are on no device of their own: an array beside a Tensor on a GPU is copied there. A Tensor stays where it is. 0, or -1 with an
 * exception set. */
int tcpy_bring_array(tcpy_call *call, tc_tensor **array, const tc_tensor *beside);

/* Before a call computes: if that is without the GIL, *tensor becomes a header of its own, so that the call computes with what the Tensor
 * is now, even if another thread sets .data or .grad or writes in place meanwhile (core/tensor.h). 0, or -1 with an exception set. */
int tcpy_hold_tensor(tcpy_call *call, tc_tensor **tensor);
static inline int tcpy_hold(tcpy_call *call, tc_tensor **tensor) { return call->keep_gil ? 0 : tcpy_hold_tensor(call, tensor); }
/* After it: Tensors that were written in place have their new history. */
void tcpy_end_holds(tcpy_call *call);

/* ---- results (result.c) ------------------------------------------------------------------------------------------------- */

PyObject *tcpy_raise(const tc_error *err); /* sets the exception; returns NULL */
/* The Tensor object of a tensor (steals the reference, also on failure). */
PyObject *tcpy_wrap(tc_tensor *tensor);
PyObject *tcpy_int_tuple(int count, const int64_t *values);
/* Turns a status and new tensors (stolen) into the result of a call: a Tensor or ndarray, or a tuple of them; NULL tensors become None. On
 * failure it raises and does not touch the tensors. */
PyObject *tcpy_result(tcpy_call *call, tc_status status, const tc_error *err, int count, tc_tensor **tensors);
static inline PyObject *tcpy_result1(tcpy_call *call, tc_status status, const tc_error *err, tc_tensor *tensor)
{
    return tcpy_result(call, status, err, 1, &tensor);
}

/* ---- operands of arithmetic (operands.c) ------------------------------------------------------------------------------------ */

/* A Python or NumPy number or bool: 1, and *out is it. 0 for any other object; -1 with an exception for a number out of range. */
int tcpy_scalar_from_object(tc_scalar *out, PyObject *object);
int tcpy_read_number(tcpy_operand *out, PyObject *object);       /* likewise */
int tcpy_read_integer_like(tcpy_operand *out, PyObject *object); /* likewise, for objects with __index__ */
/* A Tensor, a number, or an array: 1. 0 for any other object; -1 with an exception set. *owned: the tensor of an array, a new reference;
 * otherwise NULL. */
int tcpy_read_operand(tcpy_operand *out, tc_tensor **owned, PyObject *object, const char *name, bool *any_tensor);
/* May the operand be combined with a tensor (or, NULL, with a number)? 0, or -1 with an exception set. */
int tcpy_check_meets(const tcpy_operand *operand, const tc_tensor *tensor);
/* How many elements Tensors broadcast to; more is no error. NULL: none. */
int64_t tcpy_broadcast_numel(int count, tc_tensor *const *tensors);
/* Of Tensors that are little: is what they broadcast to? */
bool tcpy_stays_little(int count, tc_tensor *const *tensors);

/* function(a, b) of Tensors, numbers and whatever np.asarray takes: a Tensor when one is among them, otherwise an ndarray. NotImplemented
 * for objects that are not arrays. */
PyObject *tcpy_binary(PyObject *a, PyObject *b, tc_binary_function function);

/* ---- op tables (ops_*.c), each ended by {NULL} ------------------------------------------------------------------------------ */

#define TCPY_OP_TABLE(name) extern const tcpy_op tcpy_ops_##name[];
#include "op_tables.def"
#undef TCPY_OP_TABLE

/* Adds `op_type` and an op object for every row to the module and to Tensor. */
int tcpy_add_op_type(PyObject *module);
int tcpy_add_ops(PyObject *module, const tcpy_op *table);
int tcpy_add_tensor_type(PyObject *module);
int tcpy_add_generator_type(PyObject *module);
/* Takes the numbers of its next masks, and gives the first with the seed. */
void tcpy_take_masks(PyObject *generator, uint64_t count, uint64_t *seed, uint64_t *call);
/* In a capture, before an op with the mask number `call` of the generator (ops_cuda.c). -1: an exception is set. */
int tcpy_begin_draw(PyObject *generator, uint64_t seed, uint64_t call, uint64_t count);
/* The generator takes back `count` numbers from `call` on, unless another thread has taken more since. */
void tcpy_give_masks_back(PyObject *generator, uint64_t count, uint64_t call);

/* trace.c. After a call that gave `result`: calls the tracer, if there is one, with the name, the arguments (in the form of a vectorcall)
 * and the result. Returns the result, or NULL with the tracer's exception. Steals the result. */
PyObject *tcpy_show_call(const char *name, PyObject *result, PyObject *const *args, Py_ssize_t count, PyObject *kwnames);
static inline PyObject *tcpy_show(const char *name, PyObject *result, PyObject *const *args, Py_ssize_t count, PyObject *kwnames)
{
    return __builtin_expect(tcpy.tracer != NULL, 0) ? tcpy_show_call(name, result, args, count, kwnames) : result;
}
/* Before the numbers of a Tensor leave the library, by bool(), float(), NumPy or DLPack: shows that, as `name`, with None as its result. -1
 * with the tracer's exception. */
int tcpy_show_numbers_taken(const char *name, PyObject *tensor);
static inline int tcpy_show_numbers(const char *name, PyObject *tensor)
{
    return __builtin_expect(tcpy.tracer != NULL, 0) ? tcpy_show_numbers_taken(name, tensor) : 0;
}
PyObject *tcpy_set_tracer(PyObject *module, PyObject *tracer);
PyObject *tcpy_is_traced(PyObject *module, PyObject *unused);

/* tensor_number.c */
PyObject *tcpy_product(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *tcpy_compute_into(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *tcpy_pad_by_itself(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* one_kind.c */
PyObject *tcpy_gradients_of_one_kind(PyObject *module, PyObject *parameters);
PyObject *tcpy_step_of_one_kind(PyObject *module, PyObject *args);

/* switches.c */
int tcpy_add_switches(PyObject *module);
PyObject *tcpy_autocast_state(PyObject *module, PyObject *unused);
bool tcpy_casts_parameters(void); /* Is this thread in a call under autocast, in which parameters are their casts? */
PyObject *tcpy_call_depth(PyObject *module, PyObject *unused);
PyObject *tcpy_call_nested(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
