/* tensor_slots.h: the parts of the type Tensor, one file each, assembled in tensor_object.c. */
#ifndef TC_PYTHON_TENSOR_SLOTS_H
#define TC_PYTHON_TENSOR_SLOTS_H

#include "binding.h"

#include "../core/tensor.h"

static inline tc_tensor *tcpy_tensor_of(PyObject *object) { return ((tcpy_tensor *)object)->tensor; }

/* Each ends with a row of zeros. */
extern PyType_Slot tcpy_number_slots[]; /* tensor_number.c */
extern PyType_Slot tcpy_index_slots[];  /* tensor_index.c */
extern PyType_Slot tcpy_buffer_slots[]; /* tensor_numpy.c */

/* tensor_number.c */
PyObject *tcpy_tensor_compare(PyObject *a, PyObject *b, int operation);
PyObject *tcpy_tensor_number(tc_tensor *tensor); /* the one element as a Python number, from any device */

/* tensor_numpy.c */
PyObject *tcpy_tensor_array(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *tcpy_tensor_cuda_array_interface(PyObject *self, void *unused);

/* ops_dlpack.c */
PyObject *tcpy_tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *tcpy_tensor_dlpack_device(PyObject *self, PyObject *unused);

#endif
