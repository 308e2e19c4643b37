/* generator_object.c: the type Generator: a sequence of random numbers, and the counter of dropout masks. */
#include "binding.h"

#include <stdatomic.h>
#include <string.h>

#include "../core/graph.h"
#include "../core/random.h"
#include "../core/status.h"
#include "../core/tensor.h"

#define STATE_BYTES (TC_GENERATOR_STATE_BYTES + 8) /* the sequence, then the number of dropout calls, little-endian */

typedef struct generator_object {
    PyObject_HEAD tc_generator *generator;
    _Atomic uint64_t calls; /* dropout masks drawn so far */
    unsigned capture;       /* that made it, or 0: the same generator begins anew in each start, with the same masks */
} generator_object;

static int seed_from_object(uint64_t *out, PyObject *object)
{
    PyObject *index = PyNumber_Index(object);
    if (!index) return tcpy_name_argument("a seed must be an int, not %s", Py_TYPE(object)->tp_name);
    int beyond;
    *out = (uint64_t)PyLong_AsLongLongAndOverflow(index, &beyond); /* negative seeds wrap around, as in PyTorch */
    if (beyond > 0) *out = PyLong_AsUnsignedLongLong(index);
    if (beyond < 0 || (beyond > 0 && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)))
        tcpy_raise_shown(PyExc_ValueError, index, "a seed must be between -2**63 and 2**64 - 1, got %%S");
    Py_DECREF(index);
    return PyErr_Occurred() ? -1 : 0;
}

/* Steals `generator`, NULL when there was no memory for it. */
static PyObject *wrap(PyTypeObject *type, tc_generator *generator)
{
    generator_object *self = generator ? (generator_object *)type->tp_alloc(type, 0) : NULL;
    if (self) {
        self->capture = tc_graph_number();
        self->generator = generator;
        return (PyObject *)self;
    }
    if (!generator) return PyErr_NoMemory();
    tc_generator_free(generator);
    return NULL;
}

static PyObject *generator_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"seed", "device", NULL};
    PyObject *seed_object = NULL, *device_object = NULL;
    tc_device device;               /* draws on the CPU for all of them */
    uint64_t seed = 67280421310721; /* PyTorch's default, of a generator without a seed */
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$O:Generator", names, &seed_object, &device_object)) return NULL;
    if (tcpy_device_from_object(&device, device_object) < 0) return NULL;
    if (seed_object && seed_object != Py_None && seed_from_object(&seed, seed_object) < 0) return NULL;
    return wrap(type, tc_generator_new(seed));
}

static void generator_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    tc_generator_free(((generator_object *)object)->generator);
    type->tp_free(object);
    Py_DECREF(type);
}

static tc_generator *generator_of(PyObject *object) { return ((generator_object *)object)->generator; }

/* A start of a graph takes numbers of masks by itself, and repeats no other call of a generator, but for one that the function makes, which
 * is the same in each call of the function. */
static int refuse_in_capture(PyObject *self, const char *call)
{
    if (!tc_cuda_is_capturing() || ((generator_object *)self)->capture == tc_graph_number()) return 0;
    PyErr_Format(PyExc_RuntimeError, "Generator.%s was called while tc.cuda.graph captured; move that out of the function", call);
    return -1;
}

static int refuse_draw_in_capture(void)
{
    if (!tc_cuda_is_capturing()) return 0;
    PyErr_SetString(
        PyExc_RuntimeError,
        "random numbers were drawn on the host (rand, randn, randint, randperm, bernoulli, nn.init) while tc.cuda.graph captured, "
        "and each start would have the same; draw them before, and pass them as an argument");
    return -1;
}

/* ---- seeds and state --------------------------------------------------------------------------------------------------- */

static PyObject *manual_seed(PyObject *self, PyObject *object)
{
    uint64_t seed = 0;
    if (refuse_in_capture(self, "manual_seed()") < 0 || seed_from_object(&seed, object) < 0) return NULL;
    tc_generator_seed(generator_of(self), seed);
    atomic_store(&((generator_object *)self)->calls, 0);
    return Py_NewRef(self);
}

static PyObject *initial_seed(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(tc_generator_initial_seed(generator_of(self)));
}

static PyObject *draw_seed(PyObject *self, PyObject *unused)
{
    (void)unused;
    int64_t seed;
    if (refuse_draw_in_capture() < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS seed = tc_generator_seed64(generator_of(self));
    Py_END_ALLOW_THREADS return PyLong_FromLongLong(seed);
}

static PyObject *reserve(PyObject *self, PyObject *object)
{
    const unsigned long long words = PyLong_AsUnsignedLongLong(object);
    if (PyErr_Occurred() || refuse_draw_in_capture() < 0) return NULL;
    PyTypeObject *type = Py_TYPE(self);
    tc_generator *reserved;
    Py_BEGIN_ALLOW_THREADS reserved = tc_generator_reserve(generator_of(self), words);
    Py_END_ALLOW_THREADS return wrap(type, reserved);
}

static PyObject *next_call(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (refuse_in_capture(self, "next_call()") < 0) return NULL;
    return PyLong_FromUnsignedLongLong(atomic_fetch_add(&((generator_object *)self)->calls, 1));
}

void tcpy_take_masks(PyObject *generator, uint64_t count, uint64_t *seed, uint64_t *call)
{
    *seed = tc_generator_initial_seed(generator_of(generator));
    *call = atomic_fetch_add(&((generator_object *)generator)->calls, count);
}

void tcpy_give_masks_back(PyObject *generator, uint64_t count, uint64_t call)
{
    uint64_t next = call + count;
    (void)atomic_compare_exchange_strong(&((generator_object *)generator)->calls, &next, call);
}

#define MOST_WITH_MASK 4 /* arguments of with_mask */

/* function(..., seed, number of the first of `count` masks). If that raises, the next mask has the number, unless another thread has taken
 * one since. In C, so that no interrupt comes between the number and the call. */
static PyObject *with_masks_of(PyObject *self, uint64_t masks, PyObject *const *args, Py_ssize_t count)
{
    PyObject *given[MOST_WITH_MASK + 2], *result = NULL;
    uint64_t first, seed_value;
    memcpy(given, args, sizeof *args * (size_t)count);
    tcpy_take_masks(self, masks, &seed_value, &first);
    PyObject *seed = given[count] = PyLong_FromUnsignedLongLong(seed_value),
             *number = given[count + 1] = PyLong_FromUnsignedLongLong(first);
    const bool is_drawn_anew = tc_cuda_is_capturing() && ((generator_object *)self)->capture != tc_graph_number();
    if (seed && number && (!is_drawn_anew || tcpy_begin_draw(self, seed_value, first, masks) == 0))
        result = PyObject_Vectorcall(args[0], given + 1, (size_t)(count + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (is_drawn_anew) tc_cuda_end_draw(result != NULL);
    Py_XDECREF(seed);
    Py_XDECREF(number);
    if (!result) tcpy_give_masks_back(self, masks, first);
    return result;
}

static PyObject *with_mask(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count < 1 || count > MOST_WITH_MASK) return PyErr_Format(PyExc_TypeError, "with_mask() takes a function and at most 3 arguments");
    return with_masks_of(self, 1, args, count);
}

static PyObject *with_masks(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count < 2 || count > MOST_WITH_MASK + 1)
        return PyErr_Format(PyExc_TypeError, "with_masks() takes the number of masks, a function and at most 3 arguments");
    const unsigned long long masks = PyLong_AsUnsignedLongLong(args[0]);
    if (masks == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    return with_masks_of(self, masks, args + 1, count - 1);
}

static PyObject *read_state(PyObject *self)
{
    uint8_t state[STATE_BYTES];
    const uint64_t calls = atomic_load(&((generator_object *)self)->calls);
    tc_generator_get_state(generator_of(self), state);
    for (int i = 0; i < 8; i++) state[TC_GENERATOR_STATE_BYTES + i] = (uint8_t)(calls >> (8 * i));
    return PyBytes_FromStringAndSize((const char *)state, STATE_BYTES);
}

static PyObject *get_state(PyObject *self, PyObject *unused)
{
    (void)unused;
    return refuse_in_capture(self, "get_state()") < 0 ? NULL : read_state(self);
}

static PyObject *set_state(PyObject *self, PyObject *object)
{
    Py_buffer buffer;
    uint64_t calls = 0;
    if (refuse_in_capture(self, "set_state()") < 0 || PyObject_GetBuffer(object, &buffer, PyBUF_SIMPLE) < 0) return NULL;
    const uint8_t *bytes = buffer.buf;
    bool good = buffer.len == STATE_BYTES || buffer.len == TC_GENERATOR_STATE_BYTES; /* the shorter one is PyTorch's */
    for (int i = 0; good && buffer.len == STATE_BYTES && i < 8; i++) calls |= (uint64_t)bytes[TC_GENERATOR_STATE_BYTES + i] << (8 * i);
    good = good && tc_generator_set_state(generator_of(self), bytes);
    const Py_ssize_t length = buffer.len;
    PyBuffer_Release(&buffer);
    if (!good)
        return PyErr_Format(PyExc_ValueError, "this is not a generator state (%zd bytes): expected what get_state() gave, %d bytes", length,
                            STATE_BYTES);
    atomic_store(&((generator_object *)self)->calls, calls);
    Py_RETURN_NONE;
}

static PyObject *generator_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (refuse_in_capture(self, "__reduce__(), which copies and pickles it,") < 0) return NULL;
    PyObject *state = read_state(self);
    return state ? Py_BuildValue("O()N", Py_TYPE(self), state) : NULL;
}

static PyObject *generator_setstate(PyObject *self, PyObject *state) { return set_state(self, state); }

static PyObject *generator_repr(PyObject *self)
{
    return PyUnicode_FromFormat("Generator(seed=%llu)", (unsigned long long)tc_generator_initial_seed(generator_of(self)));
}

/* ---- draws: into new Tensors, or a given one ------------------------------------------------------------------------------ */

/* What is drawn to: a reference, also while the Tensor is given other memory; and the object to return. */
typedef struct drawn {
    tc_tensor *tensor;
    PyObject *object;
} drawn;

/* A Tensor instead of a shape: contiguous floats on the CPU, written to unrecorded. Nothing is drawn where the write is refused. */
static int open_sample(drawn *s, PyObject *object)
{
    tc_tensor *const tensor = ((tcpy_tensor *)object)->tensor;
    tc_error err;
    if (!tensor->contiguous || !tc_tensor_on_cpu(tensor) || (tensor->dtype != TC_FLOAT32 && tensor->dtype != TC_FLOAT64)) {
        PyErr_SetString(PyExc_ValueError, "numbers are drawn into a contiguous Tensor of float32 or float64 on the CPU");
        return -1;
    }
    if (tc_tensor_alias(&s->tensor, tensor, tensor->ndim, tensor->shape, tensor->strides, 0, &err) != TC_OK ||
        tc_tensor_begin_write(tensor, &err) != TC_OK) {
        tc_tensor_release(s->tensor);
        tcpy_raise(&err);
        return -1;
    }
    s->object = Py_NewRef(object);
    return 0;
}

/* The new Tensor, or NULL: stolen, and wrapped first, so that a call without memory draws nothing. */
static int wrap_sample(drawn *s, tc_tensor *tensor)
{
    s->tensor = tensor ? tc_tensor_retain(tensor) : NULL;
    s->object = tensor ? tcpy_wrap(tensor) : NULL;
    if (s->object) return 0;
    tc_tensor_release(s->tensor);
    return -1;
}

static PyObject *end_sample(drawn *s)
{
    tc_tensor_release(s->tensor);
    return s->object;
}

/* A tensor of the dtype and shape, to be drawn to. */
static tc_tensor *new_sample(PyObject *shape_object, PyObject *dtype_object)
{
    PyObject *shape_items;
    int64_t shape[TC_MAX_DIMS];
    tc_dtype dtype = TC_FLOAT32;
    tc_tensor *tensor = NULL;
    tc_error err;
    if (dtype_object && dtype_object != Py_None && tcpy_dtype_from_object(&dtype, dtype_object) < 0) return NULL;
    if (dtype != TC_FLOAT32 && dtype != TC_FLOAT64) {
        PyErr_Format(PyExc_TypeError, "random numbers are drawn as float32 or float64, not %s; draw float32 and convert",
                     tc_dtype_name(dtype));
        return NULL;
    }
    shape_items = tcpy_items(shape_object, "a shape is a sequence of ints");
    if (!shape_items) return NULL;
    const Py_ssize_t ndim = PyTuple_GET_SIZE(shape_items);
    for (Py_ssize_t i = 0; i < ndim && i < TC_MAX_DIMS; i++) {
        shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape_items, i));
        if (shape[i] == -1 && PyErr_Occurred()) {
            Py_DECREF(shape_items);
            return NULL;
        }
    }
    Py_DECREF(shape_items);
    if (tc_tensor_empty(&tensor, ndim > TC_MAX_DIMS ? TC_MAX_DIMS + 1 : (int)ndim, shape, dtype, (tc_device){TC_CPU, 0}, &err) == TC_OK)
        return tensor;
    tcpy_raise(&err);
    return NULL;
}

/* Reads (shape or Tensor, a, b, dtype). */
static int begin_sample(drawn *s, PyObject *args, const char *format, double *a, double *b)
{
    PyObject *shape, *dtype = NULL;
    if (refuse_draw_in_capture() < 0 || !PyArg_ParseTuple(args, format, &shape, a, b, &dtype)) return -1;
    return tcpy_is_tensor(shape) ? open_sample(s, shape) : wrap_sample(s, new_sample(shape, dtype));
}

static PyObject *uniform(PyObject *self, PyObject *args)
{
    double low, high;
    drawn s;
    if (begin_sample(&s, args, "Odd|O:uniform", &low, &high) < 0) return NULL;
    tc_tensor *const to = s.tensor;
    Py_BEGIN_ALLOW_THREADS if (to->dtype == TC_FLOAT32)
        tc_generator_uniform_f32(generator_of(self), (float *)(void *)to->data, to->numel, low, high);
    else tc_generator_uniform_f64(generator_of(self), (double *)(void *)to->data, to->numel, low, high);
    Py_END_ALLOW_THREADS return end_sample(&s);
}

/* In blocks, or one by one, as PyTorch fills what is not contiguous: so are few numbers drawn. */
static PyObject *draw_normal(PyObject *self, PyObject *args, bool in_blocks)
{
    double mean, std;
    drawn s;
    if (begin_sample(&s, args, "Odd|O:normal", &mean, &std) < 0) return NULL;
    tc_tensor *const to = s.tensor;
    Py_BEGIN_ALLOW_THREADS if (!in_blocks)
        tc_generator_normal_one_by_one(generator_of(self), to->data, to->dtype == TC_FLOAT64, to->numel, mean, std);
    else if (to->dtype == TC_FLOAT32) tc_generator_normal_f32(generator_of(self), (float *)(void *)to->data, to->numel, mean, std);
    else tc_generator_normal_f64(generator_of(self), (double *)(void *)to->data, to->numel, mean, std);
    Py_END_ALLOW_THREADS return end_sample(&s);
}

static PyObject *normal(PyObject *self, PyObject *args) { return draw_normal(self, args, true); }
static PyObject *normal_one_by_one(PyObject *self, PyObject *args) { return draw_normal(self, args, false); }

static PyObject *new_integers(PyObject *self, int ndim, const int64_t *shape, bool permutation, int64_t low, int64_t high)
{
    tc_tensor *sample;
    tc_error err;
    if (refuse_draw_in_capture() < 0) return NULL;
    if (tc_tensor_empty(&sample, ndim, shape, TC_INT64, (tc_device){TC_CPU, 0}, &err) != TC_OK) return tcpy_raise(&err);
    PyObject *result = tcpy_wrap(sample);
    if (!result) return NULL;
    int64_t *values = (int64_t *)(void *)sample->data;
    Py_BEGIN_ALLOW_THREADS if (permutation) tc_generator_permutation(generator_of(self), values, sample->numel);
    else tc_generator_integers(generator_of(self), values, sample->numel, low, high);
    Py_END_ALLOW_THREADS return result;
}

static PyObject *integers(PyObject *self, PyObject *args)
{
    PyObject *shape_object, *shape_items;
    long long low, high;
    int64_t shape[TC_MAX_DIMS];
    if (!PyArg_ParseTuple(args, "OLL:integers", &shape_object, &low, &high)) return NULL;
    if (low >= high) return PyErr_Format(PyExc_ValueError, "low must be below high, got low=%lld and high=%lld", low, high);
    shape_items = tcpy_items(shape_object, "a shape is a sequence of ints");
    if (!shape_items) return NULL;
    const Py_ssize_t ndim = PyTuple_GET_SIZE(shape_items);
    for (Py_ssize_t i = 0; i < ndim && i < TC_MAX_DIMS; i++) shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape_items, i));
    Py_DECREF(shape_items);
    if (PyErr_Occurred()) return NULL;
    return new_integers(self, ndim > TC_MAX_DIMS ? TC_MAX_DIMS + 1 : (int)ndim, shape, false, low, high);
}

static PyObject *permutation(PyObject *self, PyObject *object)
{
    const long long n = PyLong_AsLongLong(object);
    if (n == -1 && PyErr_Occurred()) return NULL;
    if (n < 0) return PyErr_Format(PyExc_ValueError, "the length of a permutation cannot be negative, got %lld", n);
    const int64_t shape[1] = {n};
    return new_integers(self, 1, shape, true, 0, 0);
}

static PyMethodDef methods[] = {
    {"manual_seed", manual_seed, METH_O, "manual_seed($self, seed, /)\n--\n\nStarts the sequence anew from `seed`; returns self."},
    {"initial_seed", initial_seed, METH_NOARGS, "initial_seed($self)\n--\n\nThe seed it was given last."},
    {"seed64", draw_seed, METH_NOARGS, "seed64($self)\n--\n\nDraws a seed for another generator, in [0, 2**63)."},
    {"reserve", reserve, METH_O,
     "reserve($self, words, /)\n--\n\nA generator of the next so many 32-bit words, for draws in several calls; this one goes on after "
     "them."},
    {"next_call", next_call, METH_NOARGS, "next_call($self)\n--\n\nThe number of the next dropout mask, and counts it."},
    {"with_mask", (PyCFunction)(void (*)(void))with_mask, METH_FASTCALL,
     "with_mask($self, function, /, *args)\n--\n\nfunction(*args, seed, number of the next mask); if that raises, the next mask has the "
     "number."},
    {"with_masks", (PyCFunction)(void (*)(void))with_masks, METH_FASTCALL,
     "with_masks($self, count, function, /, *args)\n--\n\nwith_mask for a function that draws several masks, whose numbers follow one "
     "another."},
    {"get_state", get_state, METH_NOARGS, "get_state($self)\n--\n\nThe whole state as bytes."},
    {"set_state", set_state, METH_O, "set_state($self, state, /)\n--\n\nGoes back to a state that get_state() gave."},
    {"uniform", uniform, METH_VARARGS,
     "uniform($self, shape, low, high, dtype=None, /)\n--\n\nA Tensor of U(low, high), or into one, given for a shape."},
    {"normal", normal, METH_VARARGS,
     "normal($self, shape, mean, std, dtype=None, /)\n--\n\nA Tensor of N(mean, std**2), or into one, given for a shape."},
    {"normal_one_by_one", normal_one_by_one, METH_VARARGS,
     "normal_one_by_one($self, shape, mean, std, dtype=None, /)\n--\n\nThe same, as PyTorch draws them for what is not contiguous."},
    {"integers", integers, METH_VARARGS, "integers($self, shape, low, high, /)\n--\n\nAn int64 Tensor of integers in [low, high)."},
    {"permutation", permutation, METH_O, "permutation($self, n, /)\n--\n\nThe integers below n in random order."},
    {"__reduce__", generator_reduce, METH_NOARGS, "__reduce__($self, /)\n--\n\nFor pickle and copy."},
    {"__setstate__", generator_setstate, METH_O, "__setstate__($self, state, /)\n--\n\nFor pickle and copy."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, generator_new},
    {Py_tp_dealloc, generator_dealloc},
    {Py_tp_repr, generator_repr},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "Generator(seed=None, *, device=None)\n--\n\nA sequence of random numbers: MT19937, used as PyTorch's CPU generator uses it.\n\n"
     "The same seed gives the same numbers as ``torch.Generator().manual_seed(seed)``.\n\n"
     "Parameters\n----------\nseed : int, optional\n    From -2**63 to 2**64 - 1.\n"
     "device : str, optional\n    PyTorch's name, without effect: a sequence is drawn on the CPU, the same for Tensors of any device.\n\n"
     "Examples\n--------\n>>> import transformer_c as tc\n>>> tc.randint(10, (4,), rng=tc.Generator(42)).tolist()\n[2, 7, 6, 4]\n"},
    {0, NULL},
};

static PyType_Spec spec = {.name = "transformer_c.Generator",
                           .basicsize = sizeof(generator_object),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                           .slots = slots};

int tcpy_add_generator_type(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (!type) return -1;
    const int result = PyModule_AddObjectRef(module, "Generator", type);
    Py_DECREF(type);
    return result;
}
