/* tensor_object.c: the type Tensor: constructor, properties, and the assembly of its parts. Operators are in tensor_number.c, indexing in
 * tensor_index.c, the NumPy protocols in tensor_numpy.c; most methods are rows of the op tables, some are written in Python. */
#include "tensor_slots.h"

#include "../core/copy.h"
#include "../core/tape_view.h"

/* ---- making ------------------------------------------------------------------------------------------------------------ */

/* Of data that NumPy reads as float64: are they of that dtype, and not Python's floats? A list is if one of its items is. Other objects are
 * arrays of other libraries: frames, PyTorch's tensors. */
static int is_float64(PyObject *data)
{
    if (PyArray_Check(data)) return PyArray_ISFLOAT((PyArrayObject *)data) && PyArray_ITEMSIZE((PyArrayObject *)data) >= 8;
    if (PyArray_IsScalar(data, Generic)) return PyArray_IsScalar(data, Double) || PyArray_IsScalar(data, LongDouble);
    if (PyFloat_Check(data) || PyLong_Check(data)) return 0;
    if (PyList_Check(data) || PyTuple_Check(data)) {
        int found = 0;
        for (Py_ssize_t i = 0; !found && i < PySequence_Fast_GET_SIZE(data); i++) {
            PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(data, i)); /* reading its attributes may run code that takes it out */
            found = is_float64(item);
            Py_DECREF(item);
        }
        return found;
    }
    const int has = tcpy_has_attribute(data, "dtype");
    return has ? has : tcpy_has_attribute(data, "__array__");
}

/* tc.tensor and Tensor(...): copies `data`; Python floats become float32, arrays keep their dtype. */
static tc_tensor *tensor_from_data(PyObject *data, PyObject *dtype_object, PyObject *device_object, const char *name)
{
    tc_tensor *source = NULL, *copy = NULL;
    tc_device device;
    tc_dtype dtype;
    tc_error err;
    bool is_tensor;
    if (tcpy_device_from_object(&device, device_object) < 0) return NULL;
    if (tcpy_tensor_from_object(&source, data, name, &is_tensor) < 0) return NULL;
    dtype = source->dtype;
    const int typed = !is_tensor && dtype == TC_FLOAT64 ? is_float64(data) : 1;
    if (typed < 0) goto done;
    if (!typed) dtype = TC_FLOAT32;
    if (dtype_object && dtype_object != Py_None && tcpy_dtype_from_object(&dtype, dtype_object) < 0) goto done;
    if (tc_tensor_empty(&copy, source->ndim, source->shape, dtype, device, &err) != TC_OK) {
        tcpy_raise(&err);
        goto done;
    }
    if (tc_tensor_copy(copy, source, &err) != TC_OK) {
        tcpy_raise(&err);
        tc_tensor_release(copy);
        copy = NULL;
    }
done:
    tc_tensor_release(source);
    return copy;
}

/* An object of `type` for a tensor that has none (steals the reference, also on failure). */
static PyObject *wrap_as(PyTypeObject *type, tc_tensor *tensor)
{
    tcpy_tensor *self = (tcpy_tensor *)type->tp_alloc(type, 0);
    if (!self) {
        tc_tensor_release(tensor);
        return NULL;
    }
    self->tensor = tensor;
    tensor->wrapper = self;
    return (PyObject *)self;
}

/* Are these the lengths of PyTorch's Tensor(2, 3)? */
static bool are_lengths(PyObject *args)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        PyObject *item = PyTuple_GET_ITEM(args, i);
        if (PyBool_Check(item) || !(PyLong_Check(item) || PyArray_IsScalar(item, Integer))) return false;
    }
    return true;
}

/* Uninitialised memory of float32; Tensor() has one axis, of length 0. */
static tc_tensor *tensor_of_lengths(PyObject *args)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(args);
    const int ndim = count > TC_MAX_DIMS ? TC_MAX_DIMS + 1 : count ? (int)count : 1;
    int64_t shape[TC_MAX_DIMS] = {0};
    tc_tensor *tensor = NULL;
    tc_error err;
    for (int i = 0; i < count && i < TC_MAX_DIMS; i++) {
        shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(args, i));
        if (shape[i] == -1 && PyErr_Occurred()) return NULL;
    }
    if (tc_tensor_empty(&tensor, ndim, shape, TC_FLOAT32, (tc_device){TC_CPU, 0}, &err) != TC_OK) tcpy_raise(&err);
    return tensor;
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "dtype", "device", "requires_grad", NULL};
    PyObject *data, *dtype = NULL, *device = NULL;
    int requires_grad = 0;
    tc_error err;
    if (!kwargs && are_lengths(args)) {
        tc_tensor *empty = tensor_of_lengths(args);
        return empty ? wrap_as(type, empty) : NULL;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOp:Tensor", names, &data, &dtype, &device, &requires_grad)) return NULL;
    tc_tensor *tensor = tensor_from_data(data, dtype, device, "data");
    if (!tensor) return NULL;
    if (requires_grad && tc_tensor_set_requires_grad(tensor, true, &err) != TC_OK) {
        tc_tensor_release(tensor);
        return tcpy_raise(&err);
    }
    return tcpy_show("tensor", wrap_as(type, tensor), &data, 1, NULL);
}

static void tensor_dealloc(PyObject *object)
{
    tcpy_tensor *self = (tcpy_tensor *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->tensor && self->tensor->wrapper == self) self->tensor->wrapper = NULL; /* first: what follows may run Python code */
    if (self->weakrefs) PyObject_ClearWeakRefs(object);
    tc_tensor_release(self->tensor);
    type->tp_free(object);
    Py_DECREF(type);
}

/* ---- properties --------------------------------------------------------------------------------------------------------- */

static PyObject *get_shape(PyObject *self, void *unused)
{
    return (void)unused, tcpy_int_tuple(tcpy_tensor_of(self)->ndim, tcpy_tensor_of(self)->shape);
}
static PyObject *get_ndim(PyObject *self, void *unused) { return (void)unused, PyLong_FromLong(tcpy_tensor_of(self)->ndim); }
static PyObject *get_dtype(PyObject *self, void *unused) { return (void)unused, tcpy_dtype_to_object(tcpy_tensor_of(self)->dtype); }
static PyObject *get_dtype_name(PyObject *self, void *unused)
{
    return (void)unused, PyUnicode_FromString(tc_dtype_name(tcpy_tensor_of(self)->dtype));
}
static PyObject *get_device(PyObject *self, void *unused)
{
    return (void)unused, tcpy_device_to_object(tcpy_tensor_of(self)->storage->device);
}
static PyObject *get_is_leaf(PyObject *self, void *unused)
{
    return (void)unused, PyBool_FromLong(tc_tensor_is_leaf(tcpy_tensor_of(self)));
}
static PyObject *get_requires_grad(PyObject *self, void *unused)
{
    return (void)unused, PyBool_FromLong(tc_tensor_requires_grad(tcpy_tensor_of(self)));
}

static int set_requires_grad(PyObject *self, PyObject *value, void *unused)
{
    tc_error err;
    (void)unused;
    const int truth = value ? PyObject_IsTrue(value) : 0;
    if (truth < 0) return -1;
    if (tc_tensor_set_requires_grad(tcpy_tensor_of(self), truth, &err) == TC_OK) return 0;
    tcpy_raise(&err);
    return -1;
}

static PyObject *get_grad(PyObject *self, void *unused)
{
    (void)unused;
    tc_tensor *grad = tc_tensor_take_grad(tcpy_tensor_of(self));
    if (!grad) Py_RETURN_NONE;
    return tcpy_wrap(grad);
}

/* A Tensor is the gradient from now on; an array is copied to the device of the Tensor, as its owner may change it. */
static int set_grad(PyObject *self, PyObject *value, void *unused)
{
    tc_error err;
    tc_tensor *tensor = tcpy_tensor_of(self), *grad = NULL, *copy = NULL;
    tc_status status = TC_OK;
    bool is_tensor = true;
    (void)unused;
    if (value && value != Py_None && tcpy_tensor_from_object(&grad, value, "grad", &is_tensor) < 0) return -1;
    if (!is_tensor) status = tc_tensor_empty(&copy, grad->ndim, grad->shape, grad->dtype, tensor->storage->device, &err);
    if (!is_tensor && status == TC_OK) status = tc_tensor_copy(copy, grad, &err);
    if (status == TC_OK) status = tc_tensor_set_grad(tensor, is_tensor ? grad : copy, &err);
    tc_tensor_release(copy);
    tc_tensor_release(grad);
    if (status == TC_OK) return 0;
    tcpy_raise(&err);
    return -1;
}

/* The same memory without a history: the Tensor's own values, which can be read and written without the tape's knowledge. */
static PyObject *get_data(PyObject *self, void *unused)
{
    tc_tensor *alias = NULL;
    tc_error err;
    (void)unused;
    return tcpy_show("detach", tc_tensor_detach(&alias, tcpy_tensor_of(self), &err) == TC_OK ? tcpy_wrap(alias) : tcpy_raise(&err), &self,
                     1, NULL);
}

static int set_data(PyObject *self, PyObject *value, void *unused)
{
    tc_error err;
    (void)unused;
    if (!value || !tcpy_is_tensor(value)) {
        PyErr_Format(PyExc_TypeError, "data must be a Tensor, not %s", value ? Py_TYPE(value)->tp_name : "deleted");
        return -1;
    }
    if (tc_tensor_set_data(tcpy_tensor_of(self), tcpy_tensor_of(value), &err) == TC_OK) return 0;
    tcpy_raise(&err);
    return -1;
}

static PyObject *get_T(PyObject *self, void *unused)
{
    tc_tensor *x = tcpy_tensor_of(self), *y = NULL;
    int64_t axes[TC_MAX_DIMS];
    tc_error err;
    (void)unused;
    for (int i = 0; i < x->ndim; i++) axes[i] = x->ndim - 1 - i;
    return tcpy_show("T", tc_permute(&y, x, x->ndim, axes, &err) == TC_OK ? tcpy_wrap(y) : tcpy_raise(&err), &self, 1, NULL);
}

static PyObject *get_mT(PyObject *self, void *unused)
{
    tc_tensor *x = tcpy_tensor_of(self), *y = NULL;
    tc_error err;
    char text[TC_SHAPE_TEXT];
    (void)unused;
    if (x->ndim < 2)
        return PyErr_Format(PyExc_ValueError, "mT is of matrices: at least 2 axes are needed, the shape is %s", tc_tensor_text(text, x));
    return tcpy_show("mT", tc_transpose(&y, x, -2, -1, &err) == TC_OK ? tcpy_wrap(y) : tcpy_raise(&err), &self, 1, NULL);
}

static PyObject *get_grad_fn(PyObject *self, void *unused)
{
    tc_tensor *x = tcpy_tensor_of(self);
    tc_error err;
    (void)unused;
    if (x->base && tc_tape_renew_view(x, &err) != TC_OK) return tcpy_raise(&err);
    if (!x->node) Py_RETURN_NONE;
    return PyUnicode_FromString(x->node->op->name);
}

static PyObject *get_itemsize(PyObject *self, void *unused)
{
    return (void)unused, PyLong_FromSize_t(tc_dtype_size(tcpy_tensor_of(self)->dtype));
}

static PyObject *get_nbytes(PyObject *self, void *unused)
{
    const tc_tensor *x = tcpy_tensor_of(self);
    return (void)unused, PyLong_FromLongLong(x->numel * (long long)tc_dtype_size(x->dtype));
}

static PyObject *get_is_cuda(PyObject *self, void *unused)
{
    return (void)unused, PyBool_FromLong(!tc_tensor_on_cpu(tcpy_tensor_of(self)));
}

static PyObject *get_is_sparse(PyObject *self, void *unused) { return (void)self, (void)unused, Py_NewRef(Py_False); }

static PyObject *get_version(PyObject *self, void *unused)
{
    return (void)unused, PyLong_FromUnsignedLong(atomic_load(&tcpy_tensor_of(self)->storage->version));
}

static PyGetSetDef properties[] = {
    {"shape", get_shape, NULL, "Lengths of the axes, a tuple of ints.", NULL},
    {"ndim", get_ndim, NULL, "Number of axes.", NULL},
    {"dtype", get_dtype, NULL, "The np.dtype of the elements; of bfloat16 a str without the package ml_dtypes.", NULL},
    {"_dtype_name", get_dtype_name, NULL, "The name of the dtype; needs no other package for bfloat16.", NULL},
    {"_version", get_version, NULL, "Raised by every write in place to the memory.", NULL},
    {"device", get_device, NULL, "\"cpu\" or \"cuda:<ordinal>\".", NULL},
    {"is_leaf", get_is_leaf, NULL, "True for tensors that no recorded op made.", NULL},
    {"requires_grad", get_requires_grad, set_requires_grad, "Whether backward() brings a gradient here or passes through.", NULL},
    {"grad", get_grad, set_grad, "The gradient of a leaf, or None. May be assigned.", NULL},
    {"grad_fn", get_grad_fn, NULL, "Name of the op that made this Tensor, when it was recorded; otherwise None.", NULL},
    {"data", get_data, set_data, "The same memory with no history. Assigning a Tensor makes a leaf take on that Tensor's memory.", NULL},
    {"T", get_T, NULL, "The axes in reverse order.", NULL},
    {"mT", get_mT, NULL, "The last two axes exchanged.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of one element.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"is_cuda", get_is_cuda, NULL, "Whether the memory is on a GPU.", NULL},
    {"is_sparse", get_is_sparse, NULL, "False, for programs that ask: there are no sparse tensors.", NULL},
    {"__cuda_array_interface__", tcpy_tensor_cuda_array_interface, NULL, "The memory of a Tensor on a GPU, version 3 of the interface.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- methods written in Python ------------------------------------------------------------------------------------------------ */

/* Calls `function` of a module of the package with (self, *args, **kwargs). */
static PyObject *delegate(const char *module, const char *function, PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *all = NULL, *result = NULL;
    PyObject *home = PyImport_ImportModule(module);
    PyObject *callable = home ? PyObject_GetAttrString(home, function) : NULL;
    const Py_ssize_t count = args ? PyTuple_GET_SIZE(args) : 0;
    if (callable) all = PyTuple_New(count + 1);
    if (all) {
        PyTuple_SET_ITEM(all, 0, Py_NewRef(self));
        for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(all, i + 1, Py_NewRef(PyTuple_GET_ITEM(args, i)));
        result = PyObject_Call(callable, all, kwargs);
    }
    Py_XDECREF(all);
    Py_XDECREF(callable);
    Py_XDECREF(home);
    return result;
}

#define DELEGATE(name, module, function)                                                                                                   \
    static PyObject *name(PyObject *self, PyObject *args, PyObject *kwargs)                                                                \
    {                                                                                                                                      \
        return delegate("transformer_c." module, function, self, args, kwargs);                                                            \
    }
DELEGATE(tensor_copy, "_tensor_copying", "copy")
DELEGATE(tensor_deepcopy, "_tensor_copying", "deepcopy")
DELEGATE(tensor_reduce, "_tensor_copying", "reduce")
DELEGATE(tensor_array_ufunc, "_tensor_numpy", "array_ufunc")
DELEGATE(tensor_array_function, "_tensor_numpy", "array_function")
DELEGATE(tensor_format, "_tensor_repr", "format_tensor")

/* Names that PyTorch or NumPy has and a Tensor lacks: the error says what to write instead. Private names, which NumPy and copy probe
 * often, get the plain error. */
static PyObject *tensor_getattro(PyObject *self, PyObject *name)
{
    PyObject *result = PyObject_GenericGetAttr(self, name);
    if (result || !PyErr_ExceptionMatches(PyExc_AttributeError)) return result;
    if (!PyUnicode_Check(name) || PyUnicode_GET_LENGTH(name) == 0 || PyUnicode_READ_CHAR(name, 0) == '_') return NULL;
    PyErr_Clear();
    PyObject *args = PyTuple_Pack(1, name);
    if (!args) return NULL;
    result = delegate("transformer_c._hints", "tensor_attribute", self, args, NULL);
    Py_DECREF(args);
    return result;
}

/* By identity: == compares elements. Addresses of objects are multiples of 16. */
static Py_hash_t identity_hash(PyObject *self) { return (Py_hash_t)((uintptr_t)self >> 4); }

static PyObject *tensor_repr(PyObject *self) { return delegate("transformer_c._tensor_repr", "tensor_repr", self, NULL, NULL); }

/* ---- other objects over the same memory --------------------------------------------------------------------------------------- */

/* cls._over(tensor, requires_grad): an object of this class, a leaf, over the memory of `tensor`. */
static PyObject *tensor_over(PyObject *cls, PyObject *args)
{
    PyTypeObject *type = (PyTypeObject *)cls;
    PyObject *source;
    int requires_grad;
    tc_tensor *alias = NULL;
    tc_error err;
    if (!PyArg_ParseTuple(args, "O!p:_over", tcpy.tensor_type, &source, &requires_grad)) return NULL;
    tc_status status = tc_tensor_detach(&alias, tcpy_tensor_of(source), &err);
    if (status == TC_OK && requires_grad) status = tc_tensor_set_requires_grad(alias, true, &err);
    if (status != TC_OK) {
        tc_tensor_release(alias);
        return tcpy_raise(&err);
    }
    return wrap_as(type, alias);
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void)) function, METH_VARARGS | METH_KEYWORDS

static PyMethodDef tensor_methods[] = {
    {"__array__", (PyCFunction)(void (*)(void))tcpy_tensor_array, METH_FASTCALL | METH_KEYWORDS,
     "__array__($self, dtype=None, copy=None)\n--\n\nA detached, read-only view."},
    {"__array_ufunc__", KEYWORDS(tensor_array_ufunc),
     "The operators between ndarrays and Tensors; a TypeError for other functions of NumPy."},
    {"__array_function__", KEYWORDS(tensor_array_function), "A TypeError that names our function."},
    {"__dlpack__", KEYWORDS(tcpy_tensor_dlpack),
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nA DLPack capsule over the memory."},
    {"__dlpack_device__", tcpy_tensor_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self)\n--\n\nThe device as DLPack numbers it: (kind, ordinal)."},
    {"__copy__", KEYWORDS(tensor_copy), "__copy__($self)\n--\n\nAnother Tensor over the same memory."},
    {"__deepcopy__", KEYWORDS(tensor_deepcopy), "__deepcopy__($self, memo)\n--\n\nA leaf with a copy of the memory and of the gradient."},
    {"__reduce_ex__", KEYWORDS(tensor_reduce),
     "__reduce_ex__($self, protocol)\n--\n\nFor pickle: values, dtype, device and requires_grad; no history."},
    {"__format__", KEYWORDS(tensor_format), "__format__($self, spec)\n--\n\nOne element like a Python number."},
    {"_over", tensor_over, METH_VARARGS | METH_CLASS,
     "_over($type, tensor, requires_grad)\n--\n\nA leaf of this class over the memory of a Tensor."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef tensor_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(tcpy_tensor, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* ---- cycles ---------------------------------------------------------------------------------------------------------------------- */

/* The hooks of a leaf that nothing but its object refers to. */
static tc_hook *_Atomic *own_hooks(PyObject *self)
{
    tc_tensor *tensor = tcpy_tensor_of(self);
    return tensor && atomic_load_explicit(&tensor->references, memory_order_acquire) == 1 ? &tensor->hooks : NULL;
}

/* For subclasses that may lie in cycles, as a Parameter does whose hook refers to its module. A Tensor itself is not tracked: it has no
 * attributes, and is made too often. */
static int tensor_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    tc_hook *_Atomic *const hooks = own_hooks(self);
    for (tc_hook *hook = hooks ? *hooks : NULL; hook; hook = hook->next)
        if (!hook->retained) Py_VISIT((PyObject *)hook->context);
    return 0;
}

static int tensor_clear(PyObject *self)
{
    tc_hook *_Atomic *const hooks = own_hooks(self);
    if (hooks) tc_hooks_release(atomic_exchange(hooks, NULL));
    return 0;
}

static PyType_Slot tensor_slots[] = {
    {Py_tp_new, tensor_new},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_traverse, tensor_traverse},
    {Py_tp_clear, tensor_clear},
    {Py_tp_repr, tensor_repr},
    {Py_tp_getattro, tensor_getattro},
    {Py_tp_hash, identity_hash},
    {Py_tp_richcompare, tcpy_tensor_compare},
    {Py_tp_getset, properties},
    {Py_tp_methods, tensor_methods},
    {Py_tp_members, tensor_members},
    {Py_tp_doc, "Tensor(data, dtype=None, device=None, requires_grad=False)\n--\n\nAn array that records what is computed with it, "
                "so that backward() can compute gradients. tc.tensor(data) makes one; Tensor(2, 3) is tc.empty(2, 3)."},
    {0, NULL},
};

/* ---- putting the parts together ------------------------------------------------------------------------------------------------- */

int tcpy_add_tensor_type(PyObject *module)
{
    PyType_Slot slots[80], *const parts[] = {tensor_slots, tcpy_number_slots, tcpy_index_slots, tcpy_buffer_slots};
    int count = 0;
    for (int i = 0; i < 4; i++)
        for (const PyType_Slot *slot = parts[i]; slot->slot; slot++) slots[count++] = *slot;
    slots[count] = (PyType_Slot){0, NULL};
    PyType_Spec spec = {.name = "transformer_c.Tensor",
                        .basicsize = sizeof(tcpy_tensor),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                        .slots = slots};
    tcpy.tensor_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    if (!tcpy.tensor_type) return -1;
    return PyModule_AddObjectRef(module, "Tensor", (PyObject *)tcpy.tensor_type);
}
