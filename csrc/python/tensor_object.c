/* tensor_object.c: the type Tensor: making one, its properties, its ties to NumPy. Its arithmetic, indexing and methods
 * are rows of the op tables. */
#include "binding.h"

#include <string.h>

#include "../core/tensor.h"

/* ---- making ------------------------------------------------------------------------------------------------------------ */

/* What tc.tensor and Tensor(...) do: copies `data`; Python floats become float32, arrays keep their dtype. */
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
    const bool plain = !is_tensor && !PyArray_Check(data) && !PyArray_IsScalar(data, Generic);
    if (plain && dtype == TC_FLOAT64) dtype = TC_FLOAT32;
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

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "dtype", "device", "requires_grad", NULL};
    PyObject *data, *dtype = NULL, *device = NULL;
    int requires_grad = 0;
    tc_error err;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOp:Tensor", names, &data, &dtype, &device, &requires_grad)) return NULL;
    tc_tensor *tensor = tensor_from_data(data, dtype, device, "data");
    if (!tensor) return NULL;
    if (requires_grad && tc_tensor_set_requires_grad(tensor, true, &err) != TC_OK) {
        tc_tensor_release(tensor);
        return tcpy_raise(&err);
    }
    tcpy_tensor *self = (tcpy_tensor *)type->tp_alloc(type, 0);
    if (!self) {
        tc_tensor_release(tensor);
        return NULL;
    }
    self->tensor = tensor;
    tensor->wrapper = self;
    return (PyObject *)self;
}

static void tensor_dealloc(PyObject *object)
{
    tcpy_tensor *self = (tcpy_tensor *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->weakrefs) PyObject_ClearWeakRefs(object);
    if (self->tensor) {
        if (self->tensor->wrapper == self) self->tensor->wrapper = NULL;
        tc_tensor_release(self->tensor);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

static tc_tensor *tensor_of(PyObject *object) { return ((tcpy_tensor *)object)->tensor; }

/* ---- properties --------------------------------------------------------------------------------------------------------- */

static PyObject *shape_tuple(const tc_tensor *tensor)
{
    PyObject *tuple = PyTuple_New(tensor->ndim);
    for (int i = 0; tuple && i < tensor->ndim; i++) {
        PyObject *length = PyLong_FromLongLong(tensor->shape[i]);
        if (length) PyTuple_SET_ITEM(tuple, i, length);
        else Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *get_shape(PyObject *self, void *unused) { return (void)unused, shape_tuple(tensor_of(self)); }
static PyObject *get_ndim(PyObject *self, void *unused) { return (void)unused, PyLong_FromLong(tensor_of(self)->ndim); }
static PyObject *get_dtype(PyObject *self, void *unused) { return (void)unused, tcpy_dtype_to_object(tensor_of(self)->dtype); }
static PyObject *get_device(PyObject *self, void *unused) { return (void)unused, tcpy_device_to_object(tensor_of(self)->storage->device); }
static PyObject *get_is_leaf(PyObject *self, void *unused) { return (void)unused, PyBool_FromLong(tc_tensor_is_leaf(tensor_of(self))); }
static PyObject *get_requires_grad(PyObject *self, void *unused) { return (void)unused, PyBool_FromLong(tc_tensor_requires_grad(tensor_of(self))); }

static int set_requires_grad(PyObject *self, PyObject *value, void *unused)
{
    tc_error err;
    (void)unused;
    const int truth = value ? PyObject_IsTrue(value) : 0;
    if (truth < 0) return -1;
    if (tc_tensor_set_requires_grad(tensor_of(self), truth, &err) == TC_OK) return 0;
    tcpy_raise(&err);
    return -1;
}

static PyObject *get_grad(PyObject *self, void *unused)
{
    (void)unused;
    tc_tensor *grad = tc_tensor_grad(tensor_of(self));
    if (!grad) Py_RETURN_NONE;
    return tcpy_wrap(tc_tensor_retain(grad));
}

static int set_grad(PyObject *self, PyObject *value, void *unused)
{
    tc_error err;
    tc_tensor *grad = NULL;
    bool is_tensor;
    (void)unused;
    if (value && value != Py_None && tcpy_tensor_from_object(&grad, value, "grad", &is_tensor) < 0) return -1;
    const tc_status status = tc_tensor_set_grad(tensor_of(self), grad, &err);
    tc_tensor_release(grad);
    if (status == TC_OK) return 0;
    tcpy_raise(&err);
    return -1;
}

static PyGetSetDef properties[] = {
    {"shape", get_shape, NULL, "Lengths of the axes, a tuple of ints.", NULL},
    {"ndim", get_ndim, NULL, "Number of axes.", NULL},
    {"dtype", get_dtype, NULL, "The np.dtype of the elements.", NULL},
    {"device", get_device, NULL, "\"cpu\" or \"cuda:<ordinal>\".", NULL},
    {"is_leaf", get_is_leaf, NULL, "True for tensors that no recorded op made.", NULL},
    {"requires_grad", get_requires_grad, set_requires_grad, "Whether backward() brings a gradient here or passes through.", NULL},
    {"grad", get_grad, set_grad, "The gradient of a leaf, or None. May be assigned.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- NumPy ------------------------------------------------------------------------------------------------------------------ */

static PyObject *tensor_array(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *dtype = NULL, *copy = NULL;
    const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (nargs > 0) dtype = args[0];
    for (Py_ssize_t i = 0; i < keywords; i++) {
        const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i));
        if (name && strcmp(name, "dtype") == 0) dtype = args[nargs + i];
        else if (name && strcmp(name, "copy") == 0) copy = args[nargs + i];
    }
    PyObject *array = tcpy_array_from_tensor(tensor_of(self), false);
    if (!array) return NULL;
    PyArray_Descr *descr = NULL;
    if (dtype && dtype != Py_None && !PyArray_DescrConverter(dtype, &descr)) {
        Py_DECREF(array);
        return NULL;
    }
    const bool same = !descr || PyArray_EquivTypes(descr, PyArray_DESCR((PyArrayObject *)array));
    if (same && copy != Py_True) {
        Py_XDECREF(descr);
        return array;
    }
    if (!same && copy == Py_False) {
        PyErr_SetString(PyExc_ValueError, "a copy is needed to change the dtype, and copy=False forbids it");
        Py_XDECREF(descr);
        Py_DECREF(array);
        return NULL;
    }
    PyObject *result = PyArray_FromArray((PyArrayObject *)array, descr, NPY_ARRAY_ENSURECOPY | NPY_ARRAY_FORCECAST);
    Py_DECREF(array);
    return result;
}

static PyMethodDef tensor_methods[] = {
    {"__array__", (PyCFunction)(void (*)(void))tensor_array, METH_FASTCALL | METH_KEYWORDS, "__array__($self, dtype=None, copy=None)\n--\n\nA detached, read-only view."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef tensor_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(tcpy_tensor, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot tensor_slots[] = {
    {Py_tp_new, tensor_new},         {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_getset, properties},      {Py_tp_methods, tensor_methods},
    {Py_tp_members, tensor_members}, {Py_tp_doc, "Tensor(data, dtype=None, device=None, requires_grad=False)\n--\n\nAn array that records what is computed with it."},
    {0, NULL},
};

static PyType_Spec tensor_spec = {
    .name = "transformer_c.Tensor",
    .basicsize = sizeof(tcpy_tensor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = tensor_slots,
};

int tcpy_add_tensor_type(PyObject *module)
{
    tcpy.tensor_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &tensor_spec, NULL);
    if (!tcpy.tensor_type) return -1;
    return PyModule_AddObjectRef(module, "Tensor", (PyObject *)tcpy.tensor_type);
}
